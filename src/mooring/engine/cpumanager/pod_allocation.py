"""CPUs for a whole pod with pod-level resources, and its partition among the containers.

Source: kubelet v1.37.1, cpumanager policy_static.go (AllocatePod), KEP-5526; spec: pod-level.md section 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mooring.engine.core.bits import NO_CPUS, CPUMask, NUMAMask
from mooring.engine.core.decision import Endless
from mooring.engine.core.observer import Observer
from mooring.engine.core.pod import Pod
from mooring.engine.cpumanager.choice import choose
from mooring.engine.cpumanager.chooser import CPUsChosen
from mooring.engine.cpumanager.facts import (
    CPUPinningFailed,
    CPUsAssigned,
    CPUsReleased,
    ExistingCPUsKept,
    PodPartitioned,
    PodShareCut,
)
from mooring.engine.cpumanager.options import TakeError
from mooring.engine.cpumanager.pod_partition import EMPTY_SHARED_POOL, divided, shared_pool_error
from mooring.engine.cpumanager.pod_restore import POD_RESTART, restored_sets, without_pod
from mooring.engine.cpumanager.policy import AllocationError, StaticPolicy
from mooring.engine.cpumanager.requests import exclusive_cpus_of_pod
from mooring.engine.cpumanager.state import CPUState, Reusable
from mooring.engine.cpumanager.static import Allocated, with_baselines


def allocate_pod(
    policy: StaticPolicy,
    state: CPUState,
    reusable: Reusable,
    pod: Pod,
    affinity: NUMAMask | None,
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
        not roll back; with defect pod-restart fixed nothing is left behind).
    """
    # 1. Without a whole number of CPUs for the pod there is nothing to do; from here on every error counts.
    need = exclusive_cpus_of_pod(pod, policy.gates)
    if need == 0:
        return state, Allocated(state, reusable)
    if POD_RESTART in policy.rules.fixed_defects:
        left, answer = _restored(policy, state, pod, need, affinity, observer)
    else:
        left, answer = _partitioned(policy, state, pod, need, affinity, observer)
    if isinstance(answer, AllocationError) and observer is not None:
        observer(CPUPinningFailed(pod.uid, "", answer.message))
    return left, Allocated(left, reusable) if answer is None else answer


def _restored(
    policy: StaticPolicy, state: CPUState, pod: Pod, need: int, affinity: NUMAMask | None, observer: Observer | None
) -> tuple[CPUState, AllocationError | Endless | None]:
    """Keep what the pod has, complete it, or give it back and start again; an error leaves the state as it was."""
    sets = restored_sets(policy, state, pod, need)
    if sets is not None:
        if observer is not None:
            observer(ExistingCPUsKept(pod.uid, "", state.pods[pod.uid]))
        complete = sets == state.assignments.get(pod.uid)
        return state if complete else _with_sets(state, pod.uid, sets), None
    without = without_pod(state, pod.uid)
    told: list[object] = []
    left, answer = _partitioned(policy, without, pod, need, affinity, told.append if observer is not None else None)
    if answer is not None:
        # What was cut before an error is not kept.
        told = [fact for fact in told if not isinstance(fact, CPUsAssigned | PodShareCut)]
    elif observer is not None and without is not state:
        told = [CPUsReleased(pod.uid, "", without.default & ~state.default, without.held), *told]
    if observer is not None:
        for fact in told:
            observer(fact)
    return (left if answer is None else state), answer


def _partitioned(
    policy: StaticPolicy, state: CPUState, pod: Pod, need: int, affinity: NUMAMask | None, observer: Observer | None
) -> tuple[CPUState, AllocationError | Endless | None]:
    """Return the state that stays behind, and what kept the pod from its partition of ``need`` CPUs."""
    # 2. Somebody to use them.
    empty = shared_pool_error(pod, need, policy.gates)
    if empty:
        return state, AllocationError(empty, EMPTY_SHARED_POOL)
    # 3-5. Whole cores, the partition.
    choice = choose if policy.chooser is None else policy.chooser.choose
    chosen = choice(policy, state, NO_CPUS, pod, "", need, affinity, observer)
    if not isinstance(chosen, CPUsChosen):
        return state, chosen
    bubble = chosen.cpus
    # 6-7. Reported and stored before it is divided.
    state = replace(state, default=state.default & ~bubble, pods={**state.pods, pod.uid: bubble})
    if observer is not None:
        observer(CPUsAssigned(pod.uid, "", bubble, state.held))
    # 8-10. The containers' sets.
    sets = divided(policy, pod, bubble, observer)
    if isinstance(sets, TakeError):
        return state, AllocationError(sets.message)
    if isinstance(sets, Endless):
        return state, sets
    # 11. Stored.
    stored = _with_sets(state, pod.uid, sets)
    if observer is not None:
        observer(PodPartitioned(pod.uid, bubble, sets))
    return stored, None


def _with_sets(state: CPUState, uid: str, sets: Mapping[str, CPUMask]) -> CPUState:
    held = {**state.assignments.get(uid, {}), **sets}
    return replace(state, assignments={**state.assignments, uid: held}, baselines=with_baselines(state, uid, sets))
