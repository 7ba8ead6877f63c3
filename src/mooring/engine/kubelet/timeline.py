"""A kubelet that lives through time: when it reconciles, and when it tries resizes again.

Nothing is waited for: time is a number, so that every run of a scenario is the same.

Source: kubelet v1.37.1, pkg/kubelet/allocation (retry of resizes) and cpumanager (reconciliation); spec: resize.md
sections 1 and 5.
"""

from __future__ import annotations

from collections.abc import Mapping

from mooring.engine.core.decision import Observer, Rejection
from mooring.engine.core.moment import SECOND, Moment
from mooring.engine.core.pod import Pod
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.node.resizing import resize_state
from mooring.engine.node.resources import DEFERRED, Resize, Waiting, retry_order
from mooring.lazy import dataclass, field, replace

FIRST_RETRY = 30 * SECOND
"""After its start the kubelet tries waiting resizes for the first time, when it knows all of its pods."""
RETRY_PERIOD = 180 * SECOND


@dataclass(frozen=True, slots=True)
class Timeline:
    """A kubelet, and when it started."""

    kubelet: Kubelet
    started: int
    """Nanoseconds since boot when it started; its periods are counted from there."""
    again: Mapping[str, Pod] = field(default_factory=dict)
    """Pods that wanted other resources before a restart, by uid: not yet considered again."""

    @property
    def now(self) -> Moment:
        """The time."""
        return self.kubelet.node.moment

    @property
    def waits(self) -> bool:
        """Tell whether a resize is to be tried again."""
        waiting = self.kubelet.node.waiting
        return bool(self.again) or any(one.reason == DEFERRED for one in waiting.values())


def resized(
    timeline: Timeline, pod: Pod, observer: Observer | None = None
) -> tuple[Timeline, Resize, dict[str, Resize]]:
    """Request other resources for an active pod; all that wait are considered with it, in the kubelet's order.

    An update of a pod that asks for nothing new considers nothing again up to 1.37 (rule
    resize-retried-with-resources-only; spec: preview.md section 12).

    Returns:
        The timeline, the answer for the pod, and those for other pods that had waited.
    """
    node = timeline.kubelet.node
    waiting, older = node.waiting.get(pod.uid), node.settings.release.rules
    if waiting is not None and waiting.pod == pod and older.resize_retried_with_resources_only:
        return timeline, resize_state(node, pod.uid), {}
    again = {uid: one for uid, one in timeline.again.items() if uid != pod.uid}
    asked = {**_waiting(replace(timeline, again=again)), pod.uid: _as_waiting(timeline, pod)}
    timeline, answers = _tried(replace(timeline, again={}), asked, observer)
    if any(answer.accepted for answer in answers.values()):
        timeline, more = retried(timeline, observer)
        answers |= more
    answer = answers.pop(pod.uid)
    return timeline, answer, answers


def retried(timeline: Timeline, observer: Observer | None = None) -> tuple[Timeline, dict[str, Resize]]:
    """Try the waiting resizes again, until none is accepted any more."""
    answers: dict[str, Resize] = {}
    while timeline.waits:
        timeline, found = _tried(replace(timeline, again={}), _waiting(timeline), observer)
        answers |= found
        if not any(answer.accepted for answer in found.values()):
            break
    return timeline, answers


def _tried(
    timeline: Timeline, asked: Mapping[str, Waiting], observer: Observer | None
) -> tuple[Timeline, dict[str, Resize]]:
    kubelet, answers = timeline.kubelet, {}
    for one in retry_order(asked.values(), kubelet.node.active):
        kubelet, answers[one.pod.uid] = kubelet.resize(one.pod, observer)
    return replace(timeline, kubelet=kubelet), answers


def _waiting(timeline: Timeline) -> dict[str, Waiting]:
    """Return the resizes that wait, by uid; those not considered yet come last."""
    node = timeline.kubelet.node
    known = {uid: one for uid, one in node.waiting.items() if one.reason == DEFERRED}
    return known | {uid: _as_waiting(timeline, pod) for uid, pod in timeline.again.items() if uid in node.active}


def _as_waiting(timeline: Timeline, pod: Pod) -> Waiting:
    before = timeline.kubelet.node.waiting.get(pod.uid)
    return Waiting(pod, Rejection("", ""), DEFERRED, before.since if before is not None else timeline.now)


def advanced(
    timeline: Timeline, nanoseconds: int, observer: Observer | None = None
) -> tuple[Timeline, dict[str, Resize]]:
    """Let time go by, with everything that the kubelet does meanwhile.

    Returns:
        The timeline, and the last answers for the pods whose resizes were tried again.
    """
    end = timeline.now.plus(nanoseconds)
    answers: dict[str, Resize] = {}
    while True:
        ticks = [tick for tick in (_reconciliation(timeline), _retry(timeline)) if tick is not None]
        at = min(ticks, default=None)
        if at is None or at > end.since_boot:
            return replace(timeline, kubelet=timeline.kubelet.at(end)), answers
        before = timeline.kubelet.at(Moment(at, end.boot))
        after = before.reconcile(observer) if at == _reconciliation(timeline) else before
        has_released = after.node.cpu is not before.node.cpu
        is_retry = at == _retry(timeline)
        timeline = replace(timeline, kubelet=after)
        if has_released or is_retry:
            timeline, found = retried(timeline, observer)
            answers |= found


def _reconciliation(timeline: Timeline) -> int | None:
    """Return when the next reconciliation comes that has something to do."""
    pods, boot = timeline.kubelet.node.cpu.pre_assignments.values(), timeline.now.boot
    due = [pre.apply_at.since_boot for held in pods for pre in held.values() if pre.apply_at.boot == boot]
    if not due:
        return None
    period = timeline.kubelet.settings.config.cpu_manager_reconcile_period_ns
    return _first_tick(timeline.started, max(period, 1), timeline.now.since_boot + 1, min(due))


def _retry(timeline: Timeline) -> int | None:
    """Return when waiting resizes are tried next if nothing else happens."""
    if not timeline.waits:
        return None
    first = timeline.started + FIRST_RETRY
    now = timeline.now.since_boot
    return first if now < first else _first_tick(first, RETRY_PERIOD, now + 1, 0)


def _first_tick(start: int, period: int, *earliest: int) -> int:
    """Return the first ``start + k * period`` with a positive k that is not before any of some times."""
    count = max(1, -(-(max(earliest) - start) // period))
    return start + count * period
