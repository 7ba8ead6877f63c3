"""The CPU manager's hints: every set of NUMA nodes with enough CPUs.

Source: kubelet v1.37.1, cpumanager policy_static.go (generateCPUTopologyHints); spec: cpu-manager.md section 9.

What the static policy answers when the topology manager asks.

Source: kubelet v1.37.1, cpumanager policy_static.go (GetTopologyHints, GetPodTopologyHints); spec: cpu-manager.md
section 9.
"""

from __future__ import annotations

from functools import lru_cache

from mooring.engine.core.bits import NO_CPUS, NO_NODES, CPUMask
from mooring.engine.core.decision import Observer
from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.core.pod import Container, Pod
from mooring.engine.core.topology import Topology
from mooring.engine.cpumanager import pod_allocation
from mooring.engine.cpumanager.facts import CPUHintsAsked
from mooring.engine.cpumanager.policy import StaticPolicy, available_cpus, exclusive_cpus, exclusive_cpus_of_pod
from mooring.engine.cpumanager.state import CPUState, Reusable
from mooring.engine.topologymanager.hints import IMPOSSIBLE, Hints
from mooring.engine.topologymanager.wide import (
    AnyHints,
    Demand,
    Family,
    ResourceHints,
    as_ids,
    over_subsets,
)
from mooring.lazy import replace

MOST_LISTED = 8
"""Largest number of nodes with CPUs for which hints are listed; with more of them they are described."""


def generate_hints(
    topology: Topology,
    available: CPUMask,
    reusable: CPUMask,
    need: int,
    *,
    align_by_socket: bool,
    absent: CPUMask = NO_CPUS,
) -> AnyHints:
    """Return a hint for every set of NUMA nodes whose CPUs suffice.

    A set is preferred when no smaller set of nodes could serve the request on an empty machine (with align-by-socket
    also when it touches as few sockets as that). A CPU that is both available and reusable counts twice, as in the
    kubelet.

    Args:
        topology: of the machine; only nodes with CPUs take part.
        available: mask of the CPUs that may be taken.
        reusable: mask of the CPUs that init containers of the same pod leave; every hint must hold all of them.
        need: how many CPUs are wanted.
        align_by_socket: the policy option.
        absent: mask of the CPUs that the machine does not have for now (extension cpu-hotplug).
    """
    nodes = tuple(topology.numa)
    if len(nodes) > MOST_LISTED:
        # Describe the same hints; the empty list when there is none
        weights = [0] * (max(topology.numa) + 1)
        universe = required = NO_NODES
        for node, held in topology.numa.items():
            weights[node] = (held & available).bit_count()
            universe |= 1 << node
            if held & reusable:
                required |= 1 << node
        smallest = _smallest_size(tuple([(held & ~absent).bit_count() for held in topology.numa.values()]), need)
        span, sockets = 0, tuple[int, ...]()
        if align_by_socket:
            sockets = tuple(sum(1 << node for node, _ in nodes) for nodes in topology.nodes_of_socket.values())
            span = _socket_span(topology, smallest)
        demand = Demand(need - reusable.bit_count(), tuple(weights))
        family = Family(universe, (demand,), smallest, required=required, sockets=sockets, span=span)
        return family if family.describes(universe) else IMPOSSIBLE
    cpus = tuple(topology.numa.values())
    base = sum(1 << position for position, mask in enumerate(cpus) if mask & reusable) if reusable else 0
    smallest = _smallest_size(tuple([(mask & ~absent).bit_count() for mask in cpus]), need)
    span, sockets = 0, ()
    if align_by_socket:
        # For each socket the mask of the positions of the nodes that have CPUs on it
        sockets = tuple(
            sum(1 << position for position, mask in enumerate(cpus) if mask & socket)
            for socket in topology.sockets.values()
        )
        span = _socket_span(topology, smallest)
    free = tuple([(mask & available).bit_count() for mask in cpus])
    return _listed(nodes, free, need - reusable.bit_count(), base, smallest, span, sockets)


# Of a machine with 8 nodes 255 hints are made. Pods of one shape ask for the same ones again, and so do trials of many
# configurations. They are remembered by what they depend on.


@lru_cache(maxsize=512)
def _listed(
    nodes: tuple[int, ...],
    free: tuple[int, ...],
    wanted: int,
    base: int,
    smallest: int,
    span: int,
    sockets: tuple[int, ...],
) -> Hints:
    """List the hints.

    Args:
        nodes: ids of the nodes with CPUs.
        free: how many CPUs of each may be taken.
        wanted: how many are wanted beside the reusable ones.
        base: mask of the positions of nodes that every hint holds.
        smallest: size of the preferred hints.
        span: number of sockets that hints touch which are preferred, too.
        sockets: for each socket the mask of the positions of its nodes; empty without align-by-socket.
    """
    sums = over_subsets(free)
    found = [index for index, count in enumerate(sums) if count >= wanted and index & base == base and index]
    preferred = [
        index
        for index in found
        if index.bit_count() == smallest or (sockets and sum(1 for own in sockets if own & index) == span)
    ]
    chosen = set(preferred)
    others = [index for index in found if index not in chosen]
    return Hints(tuple(as_ids(preferred, nodes)), tuple(as_ids(others, nodes)))


@lru_cache(maxsize=256)
def _smallest_size(sizes: tuple[int, ...], need: int) -> int:
    """Return the fewest nodes that could serve the request on an empty machine; all of them when none could."""
    total = 0
    for number, size in enumerate(sorted(sizes, reverse=True), start=1):
        total += size
        if total >= need:
            return number
    return len(sizes)


def _socket_span(topology: Topology, smallest: int) -> int:
    """Return how many sockets the smallest set of nodes spans when sockets are filled one by one."""
    if not topology.num_sockets:
        raise KubeletCrashError("the machine declares no sockets: the kubelet divides by zero here")
    nodes_per_socket = max(topology.num_numa_nodes // topology.num_sockets, 1)
    return -(-smallest // nodes_per_socket)


CPU = "cpu"
SOCKET_RESTART = "socket-restart"


def container_hints(
    policy: StaticPolicy,
    state: CPUState,
    reusable: Reusable,
    pod: Pod,
    container: Container,
    observer: Observer | None = None,
) -> ResourceHints | None:
    """Return the hints for one container; None when it has no opinion.

    A container that has an entry already (after a restart of the kubelet) gets hints for just these CPUs; when their
    number is not what it requests, nothing is possible. An entry may be an empty set.
    """
    need = exclusive_cpus(pod, container, policy.gates)
    if need == 0 or policy.gates.leaves_out(pod):
        return None
    existing = state.assignments.get(pod.uid, {}).get(container.name)
    if existing is None:
        left = reusable.of(pod.uid) & ~state.offline
        asked = CPUHintsAsked(pod.uid, container.name, need, available_cpus(policy, state), left, mismatch=False)
        return _answer(policy, state, pod, asked, observer, absent=state.offline)
    asked = CPUHintsAsked(pod.uid, container.name, need, existing, NO_CPUS, mismatch=existing.bit_count() != need)
    return _answer(policy, state, pod, asked, observer, absent=_not_compared(policy, existing))


def pod_hints(
    policy: StaticPolicy, state: CPUState, reusable: Reusable, pod: Pod, observer: Observer | None = None
) -> ResourceHints | None:
    """Return the hints for a whole pod; None when it has no opinion."""
    need = exclusive_cpus_of_pod(pod, policy.gates)
    if need == 0 or policy.gates.leaves_out(pod):
        return None
    kept = state.pods.get(pod.uid, NO_CPUS)
    if pod_allocation.stored_pod(policy, state, pod) is pod_allocation.StoredPod.KEPT:
        asked = CPUHintsAsked(pod.uid, "", need, CPUMask(kept), NO_CPUS, mismatch=kept.bit_count() != need)
        return _answer(policy, state, pod, asked, observer, absent=_not_compared(policy, CPUMask(kept)))
    if policy.gates.manages(pod) and pod_allocation.shared_pool_error(pod, need, policy.gates):
        return {CPU: IMPOSSIBLE}
    stale = pod_allocation.stale_cpus(policy, state, pod)
    if stale:
        free = available_cpus(policy, replace(state, default=state.default | stale))
        asked = CPUHintsAsked(pod.uid, "", need, free, reusable.of(pod.uid) & ~state.offline, mismatch=False)
        return _answer(policy, state, pod, asked, observer, absent=state.offline)
    if policy.gates.manages(pod) and pod_allocation.POD_RESTART in policy.rules.fixed_defects:
        # What the pod keeps, or what there is when it releases what it has (defect pod-restart fixed)
        is_kept = pod_allocation.restored_sets(policy, state, pod, need) is not None
        free = CPUMask(kept) if is_kept else available_cpus(policy, pod_allocation.without_pod(state, pod.uid))
        asked = CPUHintsAsked(pod.uid, "", need, free, NO_CPUS, mismatch=False)
        absent = _not_compared(policy, CPUMask(kept)) if kept == asked.available else 0
        return _answer(policy, state, pod, asked, observer, absent=absent | state.offline & ~asked.available)
    held = NO_CPUS
    mismatch = False
    for container in pod.containers:
        existing = state.assignments.get(pod.uid, {}).get(container.name)
        if existing is not None:
            mismatch = mismatch or existing.bit_count() != exclusive_cpus(pod, container, policy.gates)
            held |= existing
    if mismatch or held.bit_count() == need:
        asked = CPUHintsAsked(pod.uid, "", need, held, NO_CPUS, mismatch=mismatch)
        return _answer(policy, state, pod, asked, observer, absent=_not_compared(policy, held))
    left = reusable.of(pod.uid) & ~state.offline | held
    asked = CPUHintsAsked(pod.uid, "", need, available_cpus(policy, state), left, mismatch=False)
    return _answer(policy, state, pod, asked, observer, absent=state.offline)


def _not_compared(policy: StaticPolicy, kept: CPUMask) -> CPUMask:
    """Return the CPUs with which the sets of nodes of a running container are not compared.

    Defect socket-restart: align-by-socket takes CPUs from all nodes of the hint's sockets, so that a container may hold
    CPUs of more nodes than its hint has. When the kubelet restarts, no set of nodes that holds them all is preferred,
    and the policy restricted rejects the running pod. With the defect fixed the nodes that it is on are compared with
    nothing else.
    """
    fixed = policy.rules.align_by_socket and SOCKET_RESTART in policy.rules.fixed_defects
    return policy.topology.all_cpus & ~kept if fixed else NO_CPUS


def _answer(
    policy: StaticPolicy,
    state: CPUState,
    pod: Pod,
    asked: CPUHintsAsked,
    observer: Observer | None,
    *,
    absent: CPUMask = NO_CPUS,
) -> ResourceHints:
    if policy.chooser is not None and not asked.mismatch:
        asked, out_of_reach = policy.chooser.narrowed(policy, state, pod, asked, observer)
        absent |= out_of_reach
    return hints_from(policy, asked, observer, absent)


def hints_from(
    policy: StaticPolicy, asked: CPUHintsAsked, observer: Observer | None, absent: CPUMask = NO_CPUS
) -> ResourceHints:
    """Return the hints that are made from CPUs that were chosen for it.

    Args:
        policy: the policy.
        asked: what they are made from.
        observer: receives it.
        absent: mask of the CPUs that the machine does not have for now.
    """
    if observer is not None:
        observer(asked)
    if asked.mismatch:
        return {CPU: IMPOSSIBLE}
    return {
        CPU: generate_hints(
            policy.topology,
            asked.available,
            asked.reusable,
            asked.need,
            align_by_socket=policy.rules.align_by_socket,
            absent=absent,
        )
    }
