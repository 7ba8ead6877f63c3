"""Differences that observations cannot decide about, because they show nothing of what happened within a decision."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, combinations
from typing import Final

from mooring.engine.core.bits import CPUMask
from mooring.engine.core.pod import Pod
from mooring.engine.kubelet.admit import AdmitMode, AdmitResult, admit
from mooring.engine.kubelet.events import Admit, Remove
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.memorymanager.state import Block
from mooring.monitoring.shadow.judging.besides import Besides, holding
from mooring.monitoring.shadow.judging.mismatch import unlike_answers
from mooring.monitoring.shadow.judging.orders import Order
from mooring.monitoring.shadow.observed import ObservedPod

LEFT_MEANWHILE: Final = "a pod left while another was asked about"
_MOST_REMOVED: Final = 6
"""Pods that left while another was asked about, of which all sets are tried."""


def changed_meanwhile(order: Order, goal: Kubelet) -> bool:
    """Tell whether the node changed between two containers of the last pod that was asked about.

    The managers look at the active pods anew at each container: what a pod that has just left had goes to the next one.

    Source: kubelet v1.37.1, cm/cpumanager/cpu_manager.go (Allocate: removeStaleState).
    """
    step = order.steps[-1] if order.steps else None
    removed = [one.uid for one in order.steps if isinstance(one, Remove)]
    if not isinstance(step, Admit) or not removed:
        return False
    there = goal.node.cpu.assignments.get(step.pod.uid, {})
    names = [one.name for one in step.pod.containers if one.name in there]
    nodes = {frozenset(map(str, range(number))): point for number, point in enumerate(order.points[:-1])}
    were_there = all(uid in order.points[0].node.active for uid in removed)
    if were_there and len(removed) == len(order.steps) - 1 and len(removed) <= _MOST_REMOVED:
        subsets = chain.from_iterable(combinations(removed, count) for count in range(len(removed) + 1))
        nodes = {frozenset(uids): order.points[0].without(uids) for uids in subsets}
    given = {gone: _given(node, step.pod) for gone, node in nodes.items()}
    if len(there) > 1 and all(any(one.get(name) == cpus for one in given.values()) for name, cpus in there.items()):
        return True
    for gone, first in given.items():
        for count in range(1, len(names)):
            kept = {name: there[name] for name in names[:count] if first.get(name) == there[name]}
            later = (node for others, node in nodes.items() if gone < others)
            if len(kept) == count and any(_given(node, step.pod, kept) == there for node in later):
                return True
    return False


def refused_meanwhile(refused: ObservedPod, points: Sequence[Kubelet], besides: Besides) -> bool:
    """Tell whether a pod was refused in the kubelet's words if another left between two of its containers.

    A refused pod leaves, too: while the kubelet ends it, it has still what it was given.

    Args:
        refused: the pod.
        points: nodes on the way.
        besides: which pods may have left.
    """
    pod = refused.pod
    for with_it, without in chain.from_iterable(_leaving(point, besides) for point in points):
        given = _given(with_it, pod)
        names = [one.name for one in pod.containers if one.name in given]
        for count in range(1, len(names) + 1):
            kept = {name: given[name] for name in names[:count]}
            if unlike_answers(_asked(without, pod, kept), refused) is None:
                return True
    return False


def _leaving(point: Kubelet, besides: Besides) -> Iterator[tuple[Kubelet, Kubelet]]:
    """Yield a node with a pod that left and without it."""
    for uid in besides.leaving:
        if uid in point.node.active:
            yield point, point.without([uid])
    for pod in besides.ending:
        if pod.uid not in point.node.active:
            ends = holding(besides.accepted, point, pod)
            if ends is not point:
                yield ends, point


def _given(kubelet: Kubelet, pod: Pod, kept: Mapping[str, CPUMask] | None = None) -> Mapping[str, CPUMask]:
    """Return the exclusive CPUs that the containers of a pod would get where some of them have theirs already."""
    return _asked(kubelet, pod, kept or {}).decided.node.cpu.assignments.get(pod.uid, {})


def _asked(kubelet: Kubelet, pod: Pod, kept: Mapping[str, CPUMask]) -> AdmitResult:
    """Return the answer about a pod of which some containers have their exclusive CPUs already."""
    cpu, taken = kubelet.node.cpu, CPUMask(sum(kept.values()))
    if kept and not taken & ~cpu.default:
        cpu = replace(cpu, default=cpu.default & ~taken, assignments={**cpu.assignments, pod.uid: kept})
        node = replace(kubelet.node, providers=replace(kubelet.node.providers, cpu=cpu))
        kubelet = replace(kubelet, node=node)
    return admit(kubelet, pod, AdmitMode.TRIAL)[1]


def counts_elsewhere(kubelet: Kubelet, goal: Kubelet) -> bool:
    """Tell whether two differ only in which NUMA node of several the memory of a container counts on."""

    def sums(one: Kubelet) -> dict[tuple[tuple[int, ...], str], int]:
        found: dict[tuple[tuple[int, ...], str], int] = {}
        for node in one.node.memory.nodes.values():
            for kind, table in node.memory.items():
                found[node.cells, kind] = found.get((node.cells, kind), 0) + table.reserved
        return found

    there = goal.node.active
    kept = kubelet.without([uid for uid in kubelet.node.active if uid not in there])
    return kept.node.memory.assignments == goal.node.memory.assignments and sums(kept) == sums(goal)


def has_init_containers_that_run(order: Order, goal: Kubelet) -> bool:
    """Tell whether the last pod has what it would get while init containers of pods that came before it run still.

    An order lets them end at once. What they have more than the other containers is released when these start.

    Source: kubelet v1.37.1, cm/memorymanager/memory_manager.go (Allocate, AddContainer) and policy_static.go
    (updatePodReusableMemory).
    """
    step = order.steps[-1] if order.steps else None
    if not isinstance(step, Admit):
        return False
    node = order.points[0]
    for before in order.steps[:-1]:
        match before:
            case Admit(pod):
                started, answer = admit(node, pod)
                node = answer.decided.counting(started.used) if answer.admitted else started
            case Remove(uid) if uid in node.node.active:
                node = node.without([uid])
            case _:
                return False
    return _held(admit(node, step.pod)[1].decided, step.pod) == _held(goal, step.pod)


def _held(kubelet: Kubelet, pod: Pod) -> tuple[Mapping[str, CPUMask], Mapping[str, frozenset[Block]]]:
    blocks = kubelet.node.memory.assignments.get(pod.uid, {})
    return kubelet.node.cpu.assignments.get(pod.uid, {}), {name: frozenset(found) for name, found in blocks.items()}
