"""What the static policy answers when the topology manager asks.

Source: kubelet v1.37.1, cpumanager policy_static.go (GetTopologyHints, GetPodTopologyHints); spec: cpu-manager.md
section 9.
"""

from __future__ import annotations

from mooring.core.pod import Container, Pod
from mooring.cpumanager.hints import generate_hints
from mooring.cpumanager.requests import exclusive_cpus, exclusive_cpus_of_pod
from mooring.cpumanager.state import CPUState
from mooring.cpumanager.static import Reusable, StaticPolicy, available_cpus
from mooring.topologymanager.hints import IMPOSSIBLE, Hints, ResourceHints

CPU = "cpu"


def container_hints(
    policy: StaticPolicy, state: CPUState, reusable: Reusable, pod: Pod, container: Container
) -> ResourceHints | None:
    """Return the hints for one container; None when it has no opinion.

    A container that has CPUs already (after a restart of the kubelet) gets hints for just these; when their number is
    not what it asks for, nothing is possible.
    """
    need = exclusive_cpus(pod, container, policy.gates)
    if need == 0 or policy.gates.leaves_out(pod):
        return None
    existing = state.assignments.get(pod.uid, {}).get(container.name, 0)
    if existing:
        if existing.bit_count() != need:
            return {CPU: IMPOSSIBLE}
        return {CPU: _generate(policy, existing, 0, need)}
    return {CPU: _generate(policy, available_cpus(policy, state), reusable.of(pod.uid), need)}


def pod_hints(policy: StaticPolicy, state: CPUState, reusable: Reusable, pod: Pod) -> ResourceHints | None:
    """Return the hints for a whole pod; None when it has no opinion."""
    need = exclusive_cpus_of_pod(pod, policy.gates)
    if need == 0 or policy.gates.leaves_out(pod):
        return None
    held = 0
    for container in pod.containers:
        existing = state.assignments.get(pod.uid, {}).get(container.name, 0)
        if existing:
            if existing.bit_count() != exclusive_cpus(pod, container, policy.gates):
                return {CPU: IMPOSSIBLE}
            held |= existing
    if held.bit_count() == need:
        return {CPU: _generate(policy, held, 0, need)}
    return {CPU: _generate(policy, available_cpus(policy, state), reusable.of(pod.uid) | held, need)}


def _generate(policy: StaticPolicy, available: int, reusable: int, need: int) -> Hints:
    return generate_hints(policy.topology, available, reusable, need, align_by_socket=policy.rules.align_by_socket)
