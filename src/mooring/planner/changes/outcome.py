"""A question answered for the search: the verdicts of a plan without its sentences.

It asks the same kubelet the same questions as :func:`~mooring.planner.plan.make_plan` and keeps every state in between,
so that a search can go on from any of them: kubelets are values and cost nothing to keep.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from mooring.core.decision import Placement, StartRefusal
from mooring.kubelet.events import after_event, ended, ordered
from mooring.kubelet.kubelet import Kubelet
from mooring.manifest.scenario import Remove
from mooring.node import Decision
from mooring.planner.question import Question, Queue, happening, opened_for, pods_in, queue_of

Holding = tuple[Placement, tuple[tuple[Placement, tuple[str, ...]], ...]]
"""What a pod holds: as a whole, and for each container with the ids of its devices."""


@dataclass(frozen=True, slots=True)
class QueueOutcome:
    """A question, answered: every pod's verdict, and the kubelet before each entry of the queue."""

    before: tuple[Kubelet, ...]
    """Before each entry of the queue that was reached, when the pods that end before it have ended."""
    decisions: Mapping[str, Decision]
    """By uid of the pods that were asked."""
    after: Kubelet
    """When all were asked, and the pods that end then have ended."""

    def admitted(self, uid: str) -> bool:
        """Tell whether a pod was asked and admitted."""
        decision = self.decisions.get(uid)
        return decision is not None and decision.admitted


def begin(question: Question) -> tuple[Kubelet, Queue] | StartRefusal:
    """Return the kubelet before the first pod is asked, and what happens to it."""
    start = opened_for(question).start
    if start.kubelet is None:
        return start.refusal or StartRefusal("start", "")
    kubelet = start.kubelet.counting(start.kubelet.used)
    return kubelet, queue_of(question, ordered(kubelet, question.pods))


def followed(
    kubelet: Kubelet, queue: Queue, leaving: Mapping[str, Sequence[str]], expected: Collection[str] = ()
) -> QueueOutcome | None:
    """Let a queue happen.

    Args:
        kubelet: before.
        queue: pods, and CPUs that go offline.
        leaving: which pods end before which other, as in a question.
        expected: uids of pods that are to be admitted.

    Returns:
        None as soon as an expected pod is not admitted. The pods behind one from which the kubelet does not return are
        not asked.
    """
    before: list[Kubelet] = []
    decisions: dict[str, Decision] = {}
    for event in happening(queue, leaving):
        if not isinstance(event, Remove):
            before.append(kubelet)
        kubelet, result = after_event(kubelet, event)
        for one in result.admissions:
            if one.pod.uid in expected and not one.admitted:
                return None
            if not one.crash:
                decisions[one.pod.uid] = one.decision
        if result.is_last:
            break
    unasked = {pod.uid for pod in pods_in(queue[len(before) :])}
    return None if unasked.intersection(expected) else QueueOutcome(tuple(before), decisions, kubelet)


def without(kubelet: Kubelet, uids: Iterable[str]) -> Kubelet:
    """Return the kubelet after some of its pods have ended."""
    for uid in uids:
        kubelet = ended(kubelet, uid)
    return kubelet


def holding(decision: Decision) -> Holding:
    """Return what a pod got, in a form that can be compared."""
    return decision.pod, tuple(
        (
            placement,
            tuple(
                f"{resource}/{device.id}"
                for resource, devices in sorted(decision.devices.get(name, {}).items())
                for device in devices
            ),
        )
        for name, placement in decision.containers.items()
    )
