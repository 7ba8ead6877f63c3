"""What happens to a node one thing after another: pods arrive and end, the kubelet restarts, CPUs go offline.

Every event gives another kubelet and what came of it. A plan, a search, a trial and a recording are sequences of
events; they differ in the order and in how they ask (:class:`~mooring.engine.kubelet.admit.AdmitMode`). Nothing is
waited for: time is a number, so that every run of a scenario is the same.

Source: kubelet v1.37.1, pkg/kubelet/allocation (retry of resizes) and cpumanager (reconciliation); spec: resize.md
sections 1 and 5.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from mooring.engine.core.config import KubeletConfig
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import Observer, Rejection, StartRefusal
from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.core.moment import SECOND, Moment
from mooring.engine.core.pod import Pod, ResourceList
from mooring.engine.core.release import Release
from mooring.engine.kubelet.admit import AdmitMode, AdmitResult, admit, readmit, without
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.kubelet.start import NotStarted, restart_kubelet
from mooring.engine.node.resources import DEFERRED, Resize, Waiting, retry_order
from mooring.lazy import dataclass, field, lazily, replace

with lazily():
    from mooring.engine.node import hotplug, resizing

FIRST_RETRY = 30 * SECOND
"""After its start the kubelet tries waiting resizes for the first time, when it knows all of its pods."""
RETRY_PERIOD = 180 * SECOND


@dataclass(frozen=True, slots=True)
class Admit:
    """A pod arrives."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class Remove:
    """A pod ends and is gone."""

    uid: str


@dataclass(frozen=True, slots=True)
class Restart:
    """The kubelet stops and starts again on its checkpoint files."""

    kubelet: KubeletConfig | None = None
    """The configuration from here on; None leaves it as it was."""
    release: Release | None = None
    """The kubelet's release from here on; None leaves it as it was."""
    boot: str | None = None
    """Names the machine's next boot, where the machine starts again too; then the pods' containers start again."""


@dataclass(frozen=True, slots=True)
class Reboot:
    """The machine starts again: everything as for a restart, and another boot."""


@dataclass(frozen=True, slots=True)
class Advance:
    """Time goes by."""

    nanoseconds: int


@dataclass(frozen=True, slots=True)
class Amounts:
    """Requests and limits that are named; all others stay."""

    requests: ResourceList = field(default_factory=dict)
    limits: ResourceList = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Resizing:
    """A pod is to have other resources."""

    uid: str
    containers: Mapping[str, Amounts]
    resources: Amounts | None = None
    """Of the pod as a whole."""


@dataclass(frozen=True, slots=True)
class PodUpdate:
    """A running pod wants the resources of this one: it is asked about with all that wait."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class ResizeTo:
    """A running pod is to have the resources of this one; only the check of what is feasible and managers are asked."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class Offline:
    """CPUs go offline."""

    cpus: CPUSet


@dataclass(frozen=True, slots=True)
class Online:
    """CPUs come back."""

    cpus: CPUSet


@dataclass(frozen=True, slots=True)
class Readmit:
    """A pod that runs already is admitted again, after the start of the kubelet."""

    pod: Pod


Event: TypeAlias = Admit | Readmit | Remove | Restart | Offline | Online
"""What changes a kubelet at once."""
Living: TypeAlias = Event | Advance | PodUpdate | ResizeTo
"""What happens in the life of a kubelet."""
Step: TypeAlias = Admit | Remove | Restart | Reboot | Advance | Resizing | ResizeTo | Offline | Online
"""What happens to a node."""


@dataclass(frozen=True, slots=True)
class EventResult:
    """What came of an event."""

    admissions: tuple[AdmitResult, ...] = ()
    """The answer about the pod; after a restart the answers about the running pods."""
    not_started: NotStarted | None = None
    """Set when the kubelet does not start again."""
    cpus: hotplug.CPUsChanged | None = None
    """Set when CPUs went offline or came online."""
    crash: str = ""
    """Why the kubelet would crash, outside of an admission."""
    started: Kubelet | None = None
    """The kubelet that has started again, before it knows which pods run."""
    resize: Resize | None = None
    """The answer for a pod that wants other resources."""
    retried: Mapping[str, Resize] = field(default_factory=dict)
    """The answers for pods that had waited for theirs, by uid."""
    infeasible: bool = False
    """Whether the check of what is feasible refused other resources before managers were asked."""

    @property
    def refusal(self) -> StartRefusal | None:
        """Why the kubelet does not start again."""
        return None if self.not_started is None else self.not_started.refusal

    @property
    def is_last(self) -> bool:
        """Tell whether no event can follow: a crash outside of an admission, an endless admission, a refused start.

        After a crash on an admission the kubelet is as before, and the next event can follow without the pod.
        """
        endless = any(one.decision.endless is not None for one in self.admissions)
        return bool(self.crash) or self.refusal is not None or endless

    @property
    def crashed(self) -> bool:
        """Tell whether the kubelet crashes on an admission."""
        return any(one.crash for one in self.admissions)


@dataclass(frozen=True, slots=True)
class Happened:
    """An event that has happened."""

    event: Living
    before: Kubelet
    at_once: Kubelet
    """The kubelet when it had happened, and had not tried again the resizes that wait."""
    after: Kubelet
    result: EventResult
    wanting: Mapping[str, Pod]
    """The pods that want other resources than they have, by uid."""


def run(
    kubelet: Kubelet, events: Iterable[Living], mode: AdmitMode = AdmitMode.ADMISSION, observer: Observer | None = None
) -> Iterator[Happened]:
    """Let events happen one after another, to the first that none can follow; arguments as of :func:`after_event`.

    An event is taken when the one before has happened. When a pod came or went, the resizes that wait are tried again.
    """
    # When the kubelet started, from where its periods are counted, and the pods that wanted other resources before
    # that and are not considered again yet.
    since, again = kubelet.node.moment.since_boot, dict[str, Pod]()
    for event in events:
        before = at_once = kubelet
        match event:
            case Advance(nanoseconds):
                kubelet, again, retried = _advanced(kubelet, since, again, nanoseconds, observer)
                result = EventResult(retried=retried)
            case PodUpdate(pod):
                kubelet, again, retried = _resized(kubelet, again, pod, observer)
                answer = retried.pop(pod.uid, None) or resizing.resize_state(kubelet.node, pod.uid)
                result = EventResult(resize=answer, retried=retried)
            case ResizeTo(pod):
                kubelet, decision, infeasible = kubelet.ask_managers(pod)
                result = EventResult((AdmitResult(pod, decision, kubelet),), infeasible=infeasible is not None)
            case Restart():
                kubelet, result = after_event(kubelet, event, mode, observer)
                since, running = kubelet.node.moment.since_boot, kubelet.node.active
                again = {uid: pod for uid, pod in _wanting(before, again).items() if uid in running}
            case _:
                kubelet, result = after_event(kubelet, event, mode, observer)
                at_once = kubelet
                if not result.is_last:
                    kubelet, again, retried = _retried(kubelet, again, observer)
                    result = replace(result, retried=retried) if retried else result
        yield Happened(event, before, at_once, kubelet, result, _wanting(kubelet, again))
        if result.is_last:
            return


def _wanting(kubelet: Kubelet, again: Mapping[str, Pod]) -> dict[str, Pod]:
    return {**again, **{uid: one.pod for uid, one in kubelet.node.waiting.items()}}


def _resized(
    kubelet: Kubelet, again: dict[str, Pod], pod: Pod, observer: Observer | None
) -> tuple[Kubelet, dict[str, Pod], dict[str, Resize]]:
    """Request other resources for an active pod; all that wait are considered with it, in the kubelet's order.

    An update of a pod that asks for nothing new considers nothing again up to 1.37 (rule
    resize-retried-with-resources-only; spec: preview.md section 12).
    """
    waiting, older = kubelet.node.waiting.get(pod.uid), kubelet.settings.release.rules
    if waiting is not None and waiting.pod == pod and older.resize_retried_with_resources_only:
        return kubelet, again, {}
    others = _waiting(kubelet, {uid: one for uid, one in again.items() if uid != pod.uid})
    kubelet, answers = _tried(kubelet, {**others, pod.uid: _as_waiting(kubelet, pod)}, observer)
    if any(answer.accepted for answer in answers.values()):
        kubelet, again, more = _retried(kubelet, {}, observer)
        answers |= more
    return kubelet, {}, answers


def _retried(
    kubelet: Kubelet, again: dict[str, Pod], observer: Observer | None
) -> tuple[Kubelet, dict[str, Pod], dict[str, Resize]]:
    """Try the waiting resizes again, until none is accepted any more."""
    answers: dict[str, Resize] = {}
    while _waits(kubelet, again):
        kubelet, found = _tried(kubelet, _waiting(kubelet, again), observer)
        again = {}
        answers |= found
        if not any(answer.accepted for answer in found.values()):
            break
    return kubelet, again, answers


def _tried(
    kubelet: Kubelet, asked: Mapping[str, Waiting], observer: Observer | None
) -> tuple[Kubelet, dict[str, Resize]]:
    answers = {}
    for one in retry_order(asked.values(), kubelet.node.active):
        kubelet, answers[one.pod.uid] = kubelet.resize(one.pod, observer)
    return kubelet, answers


def _waits(kubelet: Kubelet, again: Mapping[str, Pod]) -> bool:
    return bool(again) or any(one.reason == DEFERRED for one in kubelet.node.waiting.values())


def _waiting(kubelet: Kubelet, again: Mapping[str, Pod]) -> dict[str, Waiting]:
    """Return the resizes that wait, by uid; those not considered yet come last."""
    known = {uid: one for uid, one in kubelet.node.waiting.items() if one.reason == DEFERRED}
    return known | {uid: _as_waiting(kubelet, pod) for uid, pod in again.items() if uid in kubelet.node.active}


def _as_waiting(kubelet: Kubelet, pod: Pod) -> Waiting:
    before = kubelet.node.waiting.get(pod.uid)
    return Waiting(pod, Rejection("", ""), DEFERRED, kubelet.node.moment if before is None else before.since)


def _advanced(
    kubelet: Kubelet, since: int, again: dict[str, Pod], nanoseconds: int, observer: Observer | None
) -> tuple[Kubelet, dict[str, Pod], dict[str, Resize]]:
    """Let time go by, with everything that the kubelet does meanwhile, and return what was tried again."""
    end = kubelet.node.moment.plus(nanoseconds)
    answers: dict[str, Resize] = {}
    while True:
        release, retry = _next_release(kubelet, since), _next_retry(kubelet, since, again)
        at = min((tick for tick in (release, retry) if tick is not None), default=None)
        if at is None or at > end.since_boot:
            return kubelet.at(end), again, answers
        before = kubelet.at(Moment(at, end.boot))
        kubelet = before.reconcile(observer) if at == release else before
        if kubelet.node.cpu is not before.node.cpu or at == retry:
            kubelet, again, found = _retried(kubelet, again, observer)
            answers |= found


def _next_release(kubelet: Kubelet, since: int) -> int | None:
    """Return when the next reconciliation comes that has something to do."""
    pods, now = kubelet.node.cpu.pre_assignments.values(), kubelet.node.moment
    due = [pre.apply_at.since_boot for held in pods for pre in held.values() if pre.apply_at.boot == now.boot]
    if not due:
        return None
    period = max(kubelet.settings.config.cpu_manager_reconcile_period_ns, 1)
    return _first_tick(since, period, max(now.since_boot + 1, min(due)))


def _next_retry(kubelet: Kubelet, since: int, again: Mapping[str, Pod]) -> int | None:
    """Return when waiting resizes are tried next if nothing else happens."""
    if not _waits(kubelet, again):
        return None
    now, first = kubelet.node.moment.since_boot, since + FIRST_RETRY
    return first if now < first else _first_tick(first, RETRY_PERIOD, now + 1)


def _first_tick(start: int, period: int, earliest: int) -> int:
    """Return the first ``start + k * period`` with a positive k that is not before a time."""
    return start + max(1, -(-(earliest - start) // period)) * period


def after_event(
    kubelet: Kubelet, event: Event, mode: AdmitMode = AdmitMode.ADMISSION, observer: Observer | None = None
) -> tuple[Kubelet, EventResult]:
    """Let one thing happen to a node.

    Args:
        kubelet: before.
        event: what happens.
        mode: how the kubelet is asked about pods.
        observer: receives what the engine found.

    Raises:
        InputError: CPUs go offline or come online without the extension cpu-hotplug.
    """
    try:
        match event:
            case Admit(pod) | Readmit(pod):
                kubelet, result = admit(kubelet, pod, mode, running=isinstance(event, Readmit), observer=observer)
                return kubelet, EventResult((result,))
            case Remove(uid):
                return ended(kubelet, uid, observer), EventResult()
            case Restart():
                start = restart_kubelet(kubelet, event.kubelet, event.boot, event.release)
                if isinstance(start, NotStarted):
                    return kubelet, EventResult(not_started=start)
                after, results = readmit(start, kubelet.node.active.values(), mode, observer)
                if event.boot is not None:
                    for uid in after.node.active:
                        after = after.start_containers(uid)
                return after, EventResult(results, started=start)
            case Offline(cpus):
                kubelet, change = kubelet.offline(cpus.mask, observer)
                return kubelet, EventResult(cpus=change)
            case Online(cpus):
                kubelet, change = kubelet.online(cpus.mask, observer)
                return kubelet, EventResult(cpus=change)
    except KubeletCrashError as error:
        return kubelet, EventResult(crash=str(error))


def ended(kubelet: Kubelet, uid: str, observer: Observer | None = None) -> Kubelet:
    """Return the kubelet after a pod has ended; CPUs that it releases may replace offline ones.

    What no active pod holds is released as well, also where the pod itself is not active.

    Raises:
        KubeletCrashError: the kubelet itself would crash.
    """
    used = without(kubelet.used, kubelet.node.active.get(uid))
    after, _ = kubelet.remove(uid, observer)
    return after.counting(used).replanned(observer)


def ordered(kubelet: Kubelet, pods: Sequence[Pod], observer: Observer | None = None) -> tuple[Pod, ...]:
    """Return pods that wait together in the order in which they are asked about: as given, or as plugins say."""
    plugins = kubelet.settings.plugins
    return tuple(pods) if plugins is None else tuple(plugins.ordered(pods, observer))
