"""One or two pods end before the pod is asked, for good or to come back last."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations, islice

from mooring.core.pod import Pod
from mooring.cpumanager.policy import available_cpus
from mooring.cpumanager.requests import exclusive_cpus_of_pod
from mooring.kubelet.admit import admit
from mooring.kubelet.kubelet import Kubelet
from mooring.manifest.scenario import Admit
from mooring.node.resources import allocatable, pod_requests
from mooring.planner.changes.applying import AGAIN
from mooring.planner.changes.change import Move, Removal
from mooring.planner.changes.cost import Cost, of_removed
from mooring.planner.changes.course import Course, without
from mooring.planner.changes.proposal import Proposal
from mooring.planner.changes.search import Search

MOST_PAIRS = 750
"""How many pairs of pods are tried at most, the cheapest first; pairs that give back too little do not count."""


def moves(search: Search) -> Iterator[Proposal]:
    """Yield the smallest pod that makes room by ending, and finds room itself when all others were asked."""
    if not (search.is_new and search.has_room):
        return
    for pod in _cheapest_first(search):
        kubelet = without(search.kubelet, [pod.uid])
        if not _admits(search, kubelet):
            continue
        back = replace(pod, uid=f"{pod.uid}{AGAIN}")
        queue = (search.entry, *search.tail, Admit(back))
        changes = (Move(search.names[pod.uid], search.names[search.pod.uid]),)
        course = search.tried(changes, kubelet, queue, without={pod.uid}, back={back.uid})
        if course is not None:
            yield search.proposal(changes, Cost(touched=1), course)
            return


def removals(search: Search) -> Iterator[Proposal]:
    """Yield the cheapest pod that makes room by ending."""
    yield from _first(search, ((pod,) for pod in _cheapest_first(search)))


def pairs(search: Search) -> Iterator[Proposal]:
    """Yield the cheapest two pods that make room by ending together, and neither of them alone.

    A pod that is refused even when all earlier pods have ended is not helped by two of them.
    """
    alone = without(search.kubelet, [pod.uid for pod in search.earlier])
    if not (search.is_new and _admits(search, alone)):
        return
    too_few = [pod for pod in _cheapest_first(search) if _without(search, (pod,)) is None]
    both = sorted(combinations(too_few, 2), key=of_removed)
    could = (pair for pair in both if _could_suffice(search, pair))
    yield from _first(search, islice(could, MOST_PAIRS))


def _first(search: Search, choices: Iterable[Sequence[Pod]]) -> Iterator[Proposal]:
    if not search.is_new:
        return
    for pods in choices:
        course = _without(search, pods)
        if course is not None:
            yield search.proposal(_removed(search, pods), of_removed(pods), course)
            return


def _removed(search: Search, pods: Sequence[Pod]) -> tuple[Removal, ...]:
    return tuple(Removal(search.names[pod.uid], search.names[search.pod.uid]) for pod in pods)


def _without(search: Search, pods: Sequence[Pod]) -> Course | None:
    """Return what becomes of all others when pods end; None when that does not help."""
    uids = [pod.uid for pod in pods]
    kubelet = without(search.kubelet, uids)
    if not _admits(search, kubelet):
        return None
    return search.tried(_removed(search, pods), kubelet, (search.entry, *search.tail), without=uids)


def _cheapest_first(search: Search) -> list[Pod]:
    return sorted(search.earlier, key=lambda pod: of_removed((pod,)))


def _admits(search: Search, kubelet: Kubelet) -> bool:
    return admit(kubelet, search.pod)[1].admitted


def _could_suffice(search: Search, pods: Sequence[Pod]) -> bool:
    """Tell whether there are enough CPUs and requests when pods end; where they lie is for the engine to say."""
    kubelet, settings = search.kubelet, search.settings
    node, wanted = allocatable(settings.reservation), pod_requests(search.pod)
    for resource, amount in wanted.items():
        if resource in node:
            given = sum(pod_requests(pod).get(resource, 0) for pod in pods)
            if amount > node[resource] - kubelet.used.get(resource, 0) + given:
                return False
    policy, state = settings.cpu, kubelet.node.cpu
    if policy is None or policy.gates.leaves_out(search.pod):
        return True
    freed = sum(mask.bit_count() for pod in pods for mask in state.assignments.get(pod.uid, {}).values())
    freed += sum(state.pods.get(pod.uid, 0).bit_count() for pod in pods)
    free = available_cpus(policy, kubelet.node.settled().cpu).bit_count()
    return exclusive_cpus_of_pod(search.pod, policy.gates) <= free + freed
