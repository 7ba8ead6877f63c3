"""One or two pods end before the pod is asked, for good or to come back last."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations, islice

from mooring.core.pod import Pod
from mooring.cpumanager.policy import available_cpus
from mooring.cpumanager.requests import exclusive_cpus_of_pod
from mooring.node.resources import allocatable, pod_requests
from mooring.planner.changes.applying import AGAIN
from mooring.planner.changes.change import Move, Removal
from mooring.planner.changes.cost import Cost, of_removed
from mooring.planner.changes.course import Course, Standing, asked, without
from mooring.planner.changes.proposal import Proposal
from mooring.planner.changes.search import Search

MOST_PAIRS = 750
"""How many pairs of pods are tried at most, the cheapest first; pairs that give back too little do not count."""


def moves(search: Search) -> Iterator[Proposal]:
    """Yield the smallest pod that makes room by ending, and finds room itself when all others were asked."""
    if not (search.is_new and search.has_room):
        return
    for pod in _cheapest_first(search):
        standing = without(search.standing, [pod.uid])
        if not _admits(search, standing):
            continue
        back = replace(pod, uid=f"{pod.uid}{AGAIN}")
        queue = (search.queue[search.place], *search.tail, (back, False))
        course = search.go_on(standing, queue, without={pod.uid}, back={back.uid})
        if course is not None:
            names = search.names
            yield search.proposal((Move(names[pod.uid], names[search.pod.uid]),), Cost(touched=1), course)
            return


def removals(search: Search) -> Iterator[Proposal]:
    """Yield the cheapest pod that makes room by ending."""
    yield from _first(search, ((pod,) for pod in _cheapest_first(search)))


def pairs(search: Search) -> Iterator[Proposal]:
    """Yield the cheapest two pods that make room by ending together, and neither of them alone.

    A pod that is refused even when all earlier pods have ended is not helped by two of them.
    """
    alone = without(search.standing, [pod.uid for pod in search.earlier])
    if not (search.is_new and _admits(search, alone)):
        return
    too_few = [pod for pod in _cheapest_first(search) if _without(search, (pod,)) is None]
    both = sorted(combinations(too_few, 2), key=of_removed)
    could = (pair for pair in both if _could_suffice(search, pair))
    yield from _first(search, islice(could, MOST_PAIRS))


def _first(search: Search, choices: Iterable[Sequence[Pod]]) -> Iterator[Proposal]:
    if not search.is_new:
        return
    names = search.names
    for pods in choices:
        course = _without(search, pods)
        if course is not None:
            changes = tuple(Removal(names[pod.uid], names[search.pod.uid]) for pod in pods)
            yield search.proposal(changes, of_removed(pods), course)
            return


def _without(search: Search, pods: Sequence[Pod]) -> Course | None:
    """Return what becomes of all others when pods end; None when that does not help."""
    uids = [pod.uid for pod in pods]
    standing = without(search.standing, uids)
    if not _admits(search, standing):
        return None
    return search.go_on(standing, (search.queue[search.place], *search.tail), without=uids)


def _cheapest_first(search: Search) -> list[Pod]:
    return sorted(search.earlier, key=lambda pod: of_removed((pod,)))


def _admits(search: Search, standing: Standing) -> bool:
    _, decision = asked(standing, search.pod)
    return decision is not None and decision.admitted


def _could_suffice(search: Search, pods: Sequence[Pod]) -> bool:
    """Tell whether there are enough CPUs and requests when pods end; where they lie is for the engine to say."""
    standing, settings = search.standing, search.settings
    node, wanted = allocatable(settings.reservation), pod_requests(search.pod)
    for resource, amount in wanted.items():
        if resource in node:
            given = sum(pod_requests(pod).get(resource, 0) for pod in pods)
            if amount > node[resource] - standing.used.get(resource, 0) + given:
                return False
    policy, state = settings.cpu, standing.node.cpu
    if policy is None or policy.gates.leaves_out(search.pod):
        return True
    freed = sum(mask.bit_count() for pod in pods for mask in state.assignments.get(pod.uid, {}).values())
    freed += sum(state.pods.get(pod.uid, 0).bit_count() for pod in pods)
    free = available_cpus(policy, standing.node.settled().cpu).bit_count()
    return exclusive_cpus_of_pod(search.pod, policy.gates) <= free + freed
