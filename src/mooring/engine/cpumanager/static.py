"""The static policy: start, allocation, removal.

Source: kubelet v1.37.1, cpumanager policy_static.go; spec: cpu-manager.md sections 2, 4 and 10.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from mooring.engine.core.bits import CPUMask, NUMAMask, list_text
from mooring.engine.core.decision import Cause, Endless, Fault
from mooring.engine.core.gotext import quote
from mooring.engine.core.observer import Observer
from mooring.engine.core.pod import Container, Pod
from mooring.engine.cpumanager.choice import check_whole_cores, choose
from mooring.engine.cpumanager.chooser import CPUsChosen
from mooring.engine.cpumanager.facts import (
    CPUPinningFailed,
    CPUPinningRequested,
    CPUsAssigned,
    CPUsReleased,
    ExclusiveCPUsCounted,
    ExistingCPUsKept,
    PartitionKept,
)
from mooring.engine.cpumanager.policy import AllocationError, StaticPolicy
from mooring.engine.cpumanager.requests import exclusive_cpus
from mooring.engine.cpumanager.state import CPUState, Reusable


@dataclass(frozen=True, slots=True)
class Allocated:
    """State and record after a container was served."""

    state: CPUState
    reusable: Reusable


def start(policy: StaticPolicy, state: CPUState) -> CPUState | Fault:
    """Check a state against machine and reservation.

    Returns:
        The state, filled where it is fresh, or what the kubelet finds wrong.
    """
    default, reserved = state.default, policy.reserved
    # 1. A fresh state gets the whole pool and is not checked further.
    if not default:
        if state.assignments:
            return Fault("default cpuset cannot be empty", Cause.FILE_CONTRADICTS)
        return replace(state, default=policy.shareable)
    # 2. Reserved CPUs lie in the shared pool, or with strict reservation outside it.
    if policy.strict_reservation:
        if reserved & default:
            text = (
                f"some of strictly reserved cpus: {_quoted(reserved & default)} "
                f"are present in defaultCpuSet: {_quoted(default)}"
            )
            return Fault(text, Cause.CPUS_CHANGED)
    elif reserved & ~default:
        text = f"not all reserved cpus: {_quoted(reserved)} are present in defaultCpuSet: {_quoted(default)}"
        return Fault(text, Cause.CPUS_CHANGED)
    # 3. Nothing is both shared and exclusive.
    known = default
    for pod in sorted(state.assignments):
        for container in sorted(state.assignments[pod]):
            cpus = state.assignments[pod][container]
            if cpus & default:
                text = (
                    f"pod: {pod}, container: {container} cpuset: {_quoted(cpus)} "
                    f"overlaps with default cpuset {_quoted(default)}"
                )
                return Fault(text, Cause.FILE_CONTRADICTS)
            known |= cpus
    # 4. Nothing is missing and nothing is unknown.
    if policy.gates.managers:
        for cpus in state.pods.values():
            known |= cpus
    if known != policy.shareable:
        text = (
            f"current set of available CPUs {_quoted(policy.shareable)} "
            f"doesn't match with CPUs in state {_quoted(known)}"
        )
        return Fault(text, Cause.CPUS_CHANGED)
    return state


def _quoted(cpus: CPUMask) -> str:
    return quote(list_text(cpus))


def allocate(
    policy: StaticPolicy,
    state: CPUState,
    reusable: Reusable,
    pod: Pod,
    container: Container,
    affinity: NUMAMask | None,
    observer: Observer | None = None,
) -> Allocated | AllocationError | Endless:
    """Serve one container of a pod that is being admitted.

    Args:
        policy: the policy.
        state: before.
        reusable: CPUs left by init containers.
        pod: the pod.
        container: one of its containers.
        affinity: mask of the NUMA nodes that the topology manager stored for it; None for no opinion.
        observer: receives what was found.

    Returns:
        The new state, the kubelet's error, or the defect that keeps the kubelet from returning.
    """
    # 1-2. Containers without a claim to exclusive CPUs stay in the shared pool.
    need = exclusive_cpus(pod, container, policy.gates)
    if observer is not None:
        observer(ExclusiveCPUsCounted(pod.uid, container.name, need))
    if need == 0 or policy.gates.leaves_out(pod):
        return Allocated(state, reusable)
    # 3. From here on every error counts as a failure to pin.
    if observer is not None:
        observer(CPUPinningRequested(pod.uid, container.name))
    answer = _pinned(policy, state, reusable, pod, container, need, affinity, observer)
    if observer is not None and isinstance(answer, AllocationError):
        observer(CPUPinningFailed(pod.uid, container.name, answer.message))
    return answer


def _pinned(
    policy: StaticPolicy,
    state: CPUState,
    reusable: Reusable,
    pod: Pod,
    container: Container,
    need: int,
    affinity: NUMAMask | None,
    observer: Observer | None,
) -> Allocated | AllocationError | Endless:
    """Serve a container that has a claim to ``need`` exclusive CPUs."""
    # 4. An existing assignment wins; its size is not compared. Up to v1.36 the check of whole cores comes first (rule
    # smt-check-before-existing; spec: releases.md section 5).
    existing = state.assignments.get(pod.uid, {}).get(container.name)
    if existing is not None:
        if policy.rules.whole_cores and policy.rules.older.smt_check_before_existing:
            refusal = check_whole_cores(policy, state, pod.uid, container.name, need, observer)
            if refusal is not None:
                return refusal
        if observer is not None:
            observer(ExistingCPUsKept(pod.uid, container.name, existing))
        return Allocated(state, reusable.after(pod.uid, container, existing))
    # 5-7. Whole cores; CPUs from the hint's nodes first, then from anywhere.
    chooser = policy.chooser
    choice = choose if chooser is None else chooser.choose
    chosen = choice(policy, state, reusable.of(pod.uid), pod, container.name, need, affinity, observer)
    if not isinstance(chosen, CPUsChosen):
        return chosen
    taken = chosen.cpus
    # 8. Store.
    assigned = dict(state.assignments)
    assigned[pod.uid] = {**state.assignments.get(pod.uid, {}), container.name: taken}
    baselines = with_baselines(state, pod.uid, {container.name: taken})
    stored = replace(state, default=state.default & ~taken, assignments=assigned, baselines=baselines)
    left = reusable.after(pod.uid, container, taken)
    if chooser is not None:
        stored, left = chooser.stored(stored, left, pod.uid, container, chosen)
    if observer is not None:
        observer(CPUsAssigned(pod.uid, container.name, taken, stored.held))
    return Allocated(stored, left)


def with_baselines(state: CPUState, pod: str, sets: Mapping[str, CPUMask]) -> Mapping[str, Mapping[str, CPUMask]]:
    """Return the baselines with the first assignment of each container; later ones leave them alone."""
    known = state.baselines.get(pod, {})
    return {**state.baselines, pod: {**sets, **known}}


def remove(
    policy: StaticPolicy, state: CPUState, pod: str, container: str, observer: Observer | None = None
) -> CPUState:
    """Return the state without one container's assignment.

    CPUs that other containers of the pod still hold, such as those reused from an init container, stay with them.
    """
    containers = state.assignments.get(pod, {})
    if container not in containers:
        return state
    rest = {name: cpus for name, cpus in containers.items() if name != container}
    assignments = dict(state.assignments)  # a copy without the key costs a tenth of a comprehension
    del assignments[pod]
    if rest:
        assignments[pod] = rest
    baselines = _without_baseline(state, pod, container)
    pods = state.pods
    if policy.gates.managers and pod in pods:
        if rest:
            if observer is not None:
                observer(PartitionKept(pod, container))
            return replace(state, assignments=assignments, baselines=baselines)
        released = state.pods[pod]
        pods = {uid: cpus for uid, cpus in pods.items() if uid != pod}
    else:
        released = containers[container]
        for cpus in rest.values():
            released &= ~cpus
    left = replace(state, default=state.default | released, assignments=assignments, pods=pods, baselines=baselines)
    if observer is not None:
        observer(CPUsReleased(pod, container, released, left.held))
    return left


def remove_pods(state: CPUState, pods: Iterable[str]) -> CPUState:
    """Return the state without all that some pods have, as :func:`remove` would leave it, in one step.

    For pods without a partition of their own.
    """
    default, assignments, baselines = state.default, dict(state.assignments), dict(state.baselines)
    for pod in pods:
        containers = assignments.pop(pod)
        for cpus in containers.values():
            default |= cpus
        rest = {name: cpus for name, cpus in baselines.pop(pod, {}).items() if name not in containers}
        if rest:
            baselines[pod] = rest
    return replace(state, default=default, assignments=assignments, baselines=baselines)


def _without_baseline(state: CPUState, pod: str, container: str) -> Mapping[str, Mapping[str, CPUMask]]:
    if container not in state.baselines.get(pod, {}):
        return state.baselines
    rest = {name: cpus for name, cpus in state.baselines[pod].items() if name != container}
    baselines = dict(state.baselines)
    del baselines[pod]
    if rest:
        baselines[pod] = rest
    return baselines
