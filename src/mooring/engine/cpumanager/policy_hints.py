"""What the static policy answers when the topology manager asks.

Source: kubelet v1.37.1, cpumanager policy_static.go (GetTopologyHints, GetPodTopologyHints); spec: cpu-manager.md
section 9.
"""

from __future__ import annotations

from mooring.engine.core.bits import NO_CPUS, CPUMask
from mooring.engine.core.observer import Observer
from mooring.engine.core.pod import Container, Pod
from mooring.engine.cpumanager.facts import CPUHintsAsked
from mooring.engine.cpumanager.hints import generate_hints
from mooring.engine.cpumanager.pod_partition import shared_pool_error
from mooring.engine.cpumanager.pod_restore import POD_RESTART, restored_sets, without_pod
from mooring.engine.cpumanager.policy import StaticPolicy, available_cpus
from mooring.engine.cpumanager.requests import exclusive_cpus, exclusive_cpus_of_pod
from mooring.engine.cpumanager.state import CPUState, Reusable
from mooring.engine.topologymanager.entries import ResourceHints
from mooring.engine.topologymanager.hints import IMPOSSIBLE

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
    if policy.gates.manages(pod) and shared_pool_error(pod, need, policy.gates):
        return {CPU: IMPOSSIBLE}
    if policy.gates.manages(pod) and POD_RESTART in policy.rules.fixed_defects:
        asked = _asked_for_restored(policy, state, pod, need)
        kept = state.pods.get(pod.uid, 0)
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
    else:
        left = reusable.of(pod.uid) & ~state.offline | held
        asked = CPUHintsAsked(pod.uid, "", need, available_cpus(policy, state), left, mismatch=False)
        return _answer(policy, state, pod, asked, observer, absent=state.offline)
    return _answer(policy, state, pod, asked, observer, absent=_not_compared(policy, held))


def _not_compared(policy: StaticPolicy, kept: CPUMask) -> CPUMask:
    """Return the CPUs with which the sets of nodes of a running container are not compared.

    Defect socket-restart: align-by-socket takes CPUs from all nodes of the hint's sockets, so that a container may hold
    CPUs of more nodes than its hint has. When the kubelet restarts, no set of nodes that holds them all is preferred,
    and the policy restricted rejects the running pod. With the defect fixed the nodes that it is on are compared with
    nothing else.
    """
    fixed = policy.rules.align_by_socket and SOCKET_RESTART in policy.rules.fixed_defects
    return policy.topology.all_cpus & ~kept if fixed else NO_CPUS


def _asked_for_restored(policy: StaticPolicy, state: CPUState, pod: Pod, need: int) -> CPUHintsAsked:
    """Request what the pod keeps, or what there is when it releases what it has (defect pod-restart fixed)."""
    if restored_sets(policy, state, pod, need) is not None:
        return CPUHintsAsked(pod.uid, "", need, state.pods[pod.uid], NO_CPUS, mismatch=False)
    return CPUHintsAsked(
        pod.uid, "", need, available_cpus(policy, without_pod(state, pod.uid)), NO_CPUS, mismatch=False
    )


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
