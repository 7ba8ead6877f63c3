"""CPUs for a whole pod with pod-level resources, and its partition among the containers.

Source: kubelet v1.37.1, cpumanager policy_static.go (AllocatePod), KEP-5526; spec: pod-level.md section 4.
"""

from __future__ import annotations

from dataclasses import replace

from mooring.core.decision import Endless
from mooring.core.observer import Observer
from mooring.core.pod import ContainerKind, Pod
from mooring.cpumanager.choice import check_whole_cores, take_near
from mooring.cpumanager.facts import PodPartitioned
from mooring.cpumanager.pod_budget import EMPTY_SHARED_POOL, shared_pool_error
from mooring.cpumanager.policy import AllocationError, StaticPolicy
from mooring.cpumanager.requests import exclusive_cpus, exclusive_cpus_of_pod
from mooring.cpumanager.rules import TakeError
from mooring.cpumanager.state import CPUState
from mooring.cpumanager.static import Allocated, Reusable, with_baselines
from mooring.cpumanager.take import take


def allocate_pod(
    policy: StaticPolicy,
    state: CPUState,
    reusable: Reusable,
    pod: Pod,
    affinity: int | None,
    observer: Observer | None = None,
) -> tuple[CPUState, Allocated | AllocationError | Endless]:
    """Cut a partition for the pod from the node, and the containers' sets from the partition.

    Nothing is reused from init containers; they share CPUs with each other and with the apps.

    Args:
        policy: the policy.
        state: before.
        reusable: passed through.
        pod: a pod that takes the path of KEP-5526.
        affinity: mask of the NUMA nodes stored for its first container; None for no opinion.
        observer: receives what was found.

    Returns:
        The state that stays behind, and the answer: an error in the middle leaves the partition taken (v1.37.1 does
        not roll back).
    """
    # 1-3. A whole number of CPUs, somebody to use them, whole cores.
    need = exclusive_cpus_of_pod(pod, policy.gates)
    if need == 0:
        return state, Allocated(state, reusable)
    empty = shared_pool_error(pod, need, policy.gates)
    if empty:
        return state, AllocationError(empty, EMPTY_SHARED_POOL)
    if policy.rules.whole_cores:
        refusal = check_whole_cores(policy, state, pod.uid, "", need, observer)
        if refusal is not None:
            return state, refusal
    # 4-5. The partition.
    bubble = take_near(policy, state, 0, pod.uid, "", need, affinity, observer)
    if isinstance(bubble, TakeError):
        return state, AllocationError(bubble.message)
    if isinstance(bubble, Endless):
        return state, bubble
    # 7. Stored before it is divided.
    state = replace(state, default=state.default & ~bubble, pods={**state.pods, pod.uid: bubble})
    # 8-10. The containers' sets.
    sets = _divided(policy, pod, bubble)
    if isinstance(sets, TakeError):
        return state, AllocationError(sets.message)
    if isinstance(sets, Endless):
        return state, sets
    # 11. Stored.
    held = {**state.assignments.get(pod.uid, {}), **sets}
    stored = replace(
        state,
        assignments={**state.assignments, pod.uid: held},
        baselines=with_baselines(state, pod.uid, sets),
    )
    if observer is not None:
        observer(PodPartitioned(pod.uid, bubble, sets))
    return stored, Allocated(stored, reusable)


def _divided(policy: StaticPolicy, pod: Pod, bubble: int) -> dict[str, int] | TakeError | Endless:
    """Return the CPUs of each container, in the order of the specification."""
    sets: dict[str, int] = {}
    of_sidecars = of_apps = 0
    for container in pod.containers:
        count = exclusive_cpus(pod, container, policy.gates)
        pool = bubble & ~of_sidecars & ~of_apps
        if count:
            taken = take(policy.topology, pool, count, policy.rules)
            if not isinstance(taken, int):
                return taken
            sets[container.name] = taken
            if container.kind is ContainerKind.SIDECAR:
                of_sidecars |= taken
            elif container.kind is ContainerKind.APP:
                of_apps |= taken
        elif container.kind is ContainerKind.INIT:
            sets[container.name] = pool
    rest = bubble & ~of_sidecars & ~of_apps
    return {container.name: sets.get(container.name, rest) for container in pod.containers}
