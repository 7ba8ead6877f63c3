"""The engine run for the search: the verdicts of a plan without its sentences, files and facts.

It asks the same node the same questions as :func:`~mooring.planner.plan.make_plan` and keeps every state in between,
so that a search can go on from any of them: nodes are values and cost nothing to keep.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from mooring.core.decision import Placement, StartRefusal
from mooring.core.errors import KubeletCrashError
from mooring.core.pod import Pod
from mooring.devicemanager.state import DeviceState
from mooring.node import Decision, Node
from mooring.node.resources import check_amounts, pod_requests
from mooring.planner.held import adopted, held_by_others
from mooring.planner.plan import started
from mooring.planner.question import Question

Holding = tuple[Placement, tuple[tuple[Placement, tuple[str, ...]], ...]]
"""What a pod holds: as a whole, and for each container with the ids of its devices."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A node between two pods."""

    node: Node
    used: Mapping[str, int]
    """What the active pods request together, as the node resources check counts it."""


@dataclass(frozen=True, slots=True)
class Course:
    """A question, answered: every pod's verdict, and the node before each."""

    standings: tuple[Standing, ...]
    """Before each pod that was asked, in their order."""
    decisions: Mapping[str, Decision]
    """By uid of the pods that were asked."""
    after: Standing
    """When all were asked, and those who end then have ended."""

    def admitted(self, uid: str) -> bool:
        """Tell whether a pod was asked and admitted."""
        decision = self.decisions.get(uid)
        return decision is not None and decision.admitted


def opened(question: Question) -> Standing | StartRefusal:
    """Return the node before the first pod is asked."""
    start = started(question.machine, question.config, question.mooring, question.files, None)
    if start.kubelet is None:
        return start.refusal or StartRefusal("start", "")
    node = start.kubelet.with_devices(DeviceState(question.devices)).node
    others = held_by_others(node, {pod.uid for pod in question.active})
    stay = adopted(others, {pod.uid: pod for pod in question.pods})
    return Standing(node.adopt(stay), _sum(stay))


def queue_of(question: Question) -> tuple[tuple[Pod, bool], ...]:
    """Return all pods in the order in which they are asked, and whether each ran already."""
    return (*((pod, True) for pod in question.active), *((pod, False) for pod in question.pods))


def answered(question: Question) -> Course | StartRefusal:
    """Answer a whole question; who comes after an admission that never returns is not asked."""
    standing = opened(question)
    if isinstance(standing, StartRefusal):
        return standing
    course = followed(standing, queue_of(question), question.leaving)
    if course is None:
        raise AssertionError("a course from which nothing is expected has an end")
    return course


def followed(
    standing: Standing,
    queue: Sequence[tuple[Pod, bool]],
    leaving: Mapping[str, Sequence[str]],
    expected: Collection[str] = (),
) -> Course | None:
    """Ask pods one after another.

    Args:
        standing: the node before.
        queue: the pods, each with whether it ran already.
        leaving: who ends before whom, as in a question.
        expected: uids of pods that are to be admitted.

    Returns:
        None as soon as an expected pod is not admitted.
    """
    standings: list[Standing] = []
    decisions: dict[str, Decision] = {}
    for pod, running in queue:
        standing = without(standing, leaving.get(pod.uid, ()))
        standings.append(standing)
        standing, decision = asked(standing, pod, running=running)
        if pod.uid in expected and (decision is None or not decision.admitted):
            return None
        if decision is None:
            break
        decisions[pod.uid] = decision
        if decision.endless is not None:
            break
    else:
        standing = without(standing, leaving.get("", ()))
    unasked = {pod.uid for pod, _ in queue[len(standings) :]}
    return None if unasked.intersection(expected) else Course(tuple(standings), decisions, standing)


def asked(standing: Standing, pod: Pod, *, running: bool = False) -> tuple[Standing, Decision | None]:
    """Ask for one pod; no decision means that the kubelet crashes."""
    node = standing.node
    try:
        if running:
            node, readmission = node.readmit([pod])
            decision = readmission.decisions[0]
        else:
            node, decision = node.decide(pod)
    except KubeletCrashError:
        return standing, None
    if not decision.admitted:
        # A pod that had been adopted from the state files is active no more.
        gone = standing.node.active.get(pod.uid) if pod.uid not in node.active else None
        return Standing(node, _less(standing.used, gone)), decision
    used = _less(standing.used, standing.node.active.get(pod.uid))
    settings, wanted = node.settings, pod_requests(pod)
    refused = check_amounts(wanted, used, len(node.active) - 1, settings.reservation, settings.config.max_pods)
    if refused is not None:
        return Standing(node.withdraw(pod.uid), used), replace(decision, admitted=False, rejection=refused)
    if not running:
        node = node.start_containers(pod.uid)
    return Standing(node, _more(used, wanted)), decision


def without(standing: Standing, uids: Iterable[str]) -> Standing:
    """Return the node after some of its pods have ended."""
    for uid in uids:
        pod = standing.node.active.get(uid)
        if pod is not None:
            node, _ = standing.node.remove(uid)
            standing = Standing(node, _less(standing.used, pod))
    return standing


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


def _sum(pods: Iterable[Pod]) -> dict[str, int]:
    used: dict[str, int] = {}
    for pod in pods:
        used = _more(used, pod_requests(pod))
    return used


def _more(used: Mapping[str, int], wanted: Mapping[str, int]) -> dict[str, int]:
    return {resource: used.get(resource, 0) + wanted.get(resource, 0) for resource in {**used, **wanted}}


def _less(used: Mapping[str, int], pod: Pod | None) -> Mapping[str, int]:
    if pod is None:
        return used
    wanted = pod_requests(pod)
    return {resource: amount - wanted.get(resource, 0) for resource, amount in used.items()}
