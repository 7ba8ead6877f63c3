"""CPUs for a whole pod with pod-level resources, and its partition among the containers.

Source: kubelet v1.37.1, cpumanager policy_static.go (AllocatePod), KEP-5526; spec: pod-level.md section 4.
"""

from __future__ import annotations

from dataclasses import replace

from mooring.core.decision import Endless
from mooring.core.observer import Observer
from mooring.core.pod import Container, ContainerKind, Pod
from mooring.cpumanager.choice import check_whole_cores, take_near
from mooring.cpumanager.facts import CPUPinningFailed, CPUPinningRequested, CPUsAssigned, PodPartitioned, PodShareCut
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
    # 1. Without a whole number of CPUs for the pod there is nothing to do; from here on every error counts.
    need = exclusive_cpus_of_pod(pod, policy.gates)
    if need == 0:
        return state, Allocated(state, reusable)
    left, answer = _partitioned(policy, state, pod, need, affinity, observer)
    if isinstance(answer, AllocationError) and observer is not None:
        observer(CPUPinningFailed(pod.uid, "", answer.message))
    return left, Allocated(left, reusable) if answer is None else answer


def _partitioned(
    policy: StaticPolicy, state: CPUState, pod: Pod, need: int, affinity: int | None, observer: Observer | None
) -> tuple[CPUState, AllocationError | Endless | None]:
    """Return the state that stays behind, and what kept the pod from its partition of ``need`` CPUs."""
    # 2-3. Somebody to use them, whole cores.
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
    # 6-7. Reported and stored before it is divided.
    state = replace(state, default=state.default & ~bubble, pods={**state.pods, pod.uid: bubble})
    if observer is not None:
        observer(CPUsAssigned(pod.uid, "", bubble, state.held))
    # 8-10. The containers' sets.
    sets = _divided(policy, pod, bubble, observer)
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
    return stored, None


def _divided(
    policy: StaticPolicy, pod: Pod, bubble: int, observer: Observer | None
) -> dict[str, int] | TakeError | Endless:
    """Return the CPUs of each container, in the order of the specification."""
    sets: dict[str, int] = {}
    of_sidecars = of_apps = 0
    for container in pod.containers:
        count = exclusive_cpus(pod, container, policy.gates)
        pool = bubble & ~of_sidecars & ~of_apps
        if count:
            if observer is not None:
                observer(CPUPinningRequested(pod.uid, container.name))
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
        else:
            continue
        _report_share(observer, pod, container, sets[container.name], exclusive=count > 0)
    rest = bubble & ~of_sidecars & ~of_apps
    for container in pod.containers:
        if container.name not in sets:
            _report_share(observer, pod, container, rest, exclusive=False)
    return {container.name: sets.get(container.name, rest) for container in pod.containers}


def _report_share(observer: Observer | None, pod: Pod, container: Container, cpus: int, *, exclusive: bool) -> None:
    if observer is not None:
        observer(PodShareCut(pod.uid, container.name, cpus, exclusive))
