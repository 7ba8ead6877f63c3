"""The static policy: start, allocation, removal, the check of whole cores, and taking near the hint.

Source: kubelet v1.37.1, cpumanager policy_static.go; spec: cpu-manager.md sections 2, 4, 4.2 and 10.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mooring.engine.core.bits import NO_CPUS, CPUMask, NUMAMask, list_text
from mooring.engine.core.decision import AllocationError, Cause, Endless, Fault, Observer
from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.core.gotext import quote
from mooring.engine.core.pod import Container, Pod
from mooring.engine.core.release import NEWEST_RULES, ReleaseRules
from mooring.engine.cpumanager import facts
from mooring.engine.cpumanager.packed import NO_CORE_SIZE
from mooring.engine.cpumanager.policy import (
    CPUsChosen,
    CPUsWanted,
    StaticPolicy,
    available_cpus,
    exclusive_cpus,
    withheld,
)
from mooring.engine.cpumanager.state import CPUState, Reusable
from mooring.engine.cpumanager.take import take
from mooring.lazy import replace

SMT_ALIGNMENT_ERROR = "SMTAlignmentError"


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
    # 3. Nothing is both shared and exclusive. The kubelet walks in random order: any of the texts may be the one.
    overlaps = [
        f"pod: {pod}, container: {container} cpuset: {_quoted(cpus)} overlaps with default cpuset {_quoted(default)}"
        for pod in sorted(state.assignments)
        for container, cpus in sorted(state.assignments[pod].items())
        if cpus & default
    ]
    if overlaps:
        return Fault(overlaps[0], Cause.FILE_CONTRADICTS, values=tuple(overlaps))
    # 4. Nothing is missing and nothing is unknown.
    known = default | state.held
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
) -> tuple[CPUState, Reusable] | AllocationError | Endless:
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
        The new state and record, the kubelet's error, or the defect that keeps the kubelet from returning.
    """
    # 1-2. Containers without a claim to exclusive CPUs stay in the shared pool.
    need = exclusive_cpus(pod, container, policy.gates)
    if observer is not None:
        observer(facts.ExclusiveCPUsCounted(pod.uid, container.name, need))
    if need == 0 or policy.gates.leaves_out(pod):
        return state, reusable
    # 3. From here on every error counts as a failure to pin.
    if observer is not None:
        observer(facts.CPUPinningRequested(pod.uid, container.name))
    answer = _pinned(policy, state, reusable, pod, container, need, affinity, observer)
    if observer is not None and isinstance(answer, AllocationError):
        observer(facts.CPUPinningFailed(pod.uid, container.name, answer.message))
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
) -> tuple[CPUState, Reusable] | AllocationError | Endless:
    """Serve a container that has a claim to ``need`` exclusive CPUs."""
    # 4. An existing assignment wins; its size is not compared. Up to v1.36 the check of whole cores comes first (rule
    # smt-check-before-existing; spec: releases.md section 5).
    wanted = wanted_cpus(policy, state, reusable.of(pod.uid), pod, container.name, need, affinity)
    existing = state.assignments.get(pod.uid, {}).get(container.name)
    if existing is not None:
        if policy.rules.older.smt_check_before_existing:
            refusal = check_whole_cores(policy, state, wanted, observer)
            if refusal is not None:
                return refusal
        if observer is not None:
            observer(facts.ExistingCPUsKept(pod.uid, container.name, existing))
        return state, reusable.after(pod.uid, container, existing)
    # 5-7. Whole cores; CPUs from the hint's nodes first, then from anywhere.
    chooser = policy.chooser
    choice = choose if chooser is None else chooser.choose
    chosen = choice(policy, state, wanted, observer)
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
        observer(facts.CPUsAssigned(pod.uid, container.name, taken, stored.held, stored))
    return stored, left


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
    assignments = _less(state.assignments, pod, container)
    rest, baselines = assignments.get(pod, {}), _less(state.baselines, pod, container)
    pods = state.pods
    if policy.gates.managers and pod in pods:
        if rest:
            if observer is not None:
                observer(facts.PartitionKept(pod, container))
            return replace(state, assignments=assignments, baselines=baselines)
        released = state.pods[pod]
        pods = {uid: cpus for uid, cpus in pods.items() if uid != pod}
    else:
        released = containers[container]
        for cpus in rest.values():
            released &= ~cpus
    left = replace(state, default=state.default | released, assignments=assignments, pods=pods, baselines=baselines)
    if observer is not None:
        observer(facts.CPUsReleased(pod, container, released, left.held, left))
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


def _less(sets: Mapping[str, Mapping[str, CPUMask]], pod: str, container: str) -> Mapping[str, Mapping[str, CPUMask]]:
    """Return sets without that of one container."""
    if container not in sets.get(pod, {}):
        return sets
    rest = {name: cpus for name, cpus in sets[pod].items() if name != container}
    left = dict(sets)  # a copy without the key costs a tenth of a comprehension
    del left[pod]
    if rest:
        left[pod] = rest
    return left


def wanted_cpus(
    policy: StaticPolicy, state: CPUState, left: CPUMask, pod: Pod, container: str, need: int, affinity: NUMAMask | None
) -> CPUsWanted:
    """Return the request for a container, or for a whole pod.

    Args:
        policy: the policy.
        state: before.
        left: mask of the CPUs that init containers leave, usable besides the shared pool.
        pod: the pod.
        container: name; empty for the partition of the whole pod.
        need: how many CPUs.
        affinity: mask of the hint's NUMA nodes; None for no opinion.
    """
    pool = available_cpus(policy, state) | left & ~state.offline
    return CPUsWanted(need, pool, near(policy, pool, affinity), pod, container, affinity, left)


def choose(
    policy: StaticPolicy, state: CPUState, wanted: CPUsWanted, observer: Observer | None
) -> CPUsChosen | AllocationError | Endless:
    """Choose exclusive CPUs for a container, or for a whole pod: whole cores where required, near the hint."""
    return check_whole_cores(policy, state, wanted, observer) or taken_near(policy, wanted, observer)


def check_whole_cores(
    policy: StaticPolicy, state: CPUState, wanted: CPUsWanted, observer: Observer | None
) -> AllocationError | None:
    """Apply full-pcpus-only, if it is on. CPUs that init containers leave are not counted, half-used cores are."""
    if not policy.rules.whole_cores:
        return None
    available = (state.default & ~policy.reserved_cores & ~withheld(policy, state)).bit_count()
    return why_no_whole_cores(
        wanted.uid, wanted.container, wanted.need, policy.group_size, available, observer, policy.rules.older
    )


def why_no_whole_cores(
    pod: str,
    container: str,
    need: int,
    group: int,
    available: int,
    observer: Observer | None,
    older: ReleaseRules = NEWEST_RULES,
) -> AllocationError | None:
    """Return the kubelet's refusal of whole cores; None when nothing speaks against them.

    Up to v1.31 the text about free CPUs needs more than 0 of them (rule smt-text-needs-free-cores; spec: releases.md
    section 8).

    Args:
        pod: uid.
        container: name; empty for a whole pod.
        need: how many CPUs are requested.
        group: how many CPUs a core has.
        available: how many CPUs are on cores that may be given.
        observer: receives what was found.
        older: rules of an older release.

    Raises:
        KubeletCrashError: a core has no CPUs by average.
    """
    if group == 0:
        raise KubeletCrashError(NO_CORE_SIZE)
    message = ""
    if need % group or (need > available == 0 and older.smt_text_needs_free_cores):
        message = f"SMT Alignment Error: requested {need} cpus not multiple cpus per core = {group}"
    elif need > available:
        message = (
            f"SMT Alignment Error: not enough free physical CPUs: available physical CPUs = {available}, "
            f"requested CPUs = {need}, CPUs per core = {group}"
        )
    if observer is not None:
        observer(facts.WholeCoresChecked(pod, container, need, group, available, passed=not message))
    return AllocationError(message, SMT_ALIGNMENT_ERROR) if message else None


def taken_near(
    policy: StaticPolicy, wanted: CPUsWanted, observer: Observer | None
) -> CPUsChosen | AllocationError | Endless:
    """Take CPUs from the nodes of the hint first, then from anywhere: two runs."""
    pool, close = wanted.pool, wanted.near
    first: CPUMask | AllocationError | Endless = NO_CPUS
    if close:
        count = min(wanted.need, close.bit_count())
        if observer is not None:
            observer(facts.TakeBegun(wanted.uid, wanted.container, count, close, "hint"))
        width = 0 if wanted.affinity is None else wanted.affinity.bit_count()
        first = take(policy.topology, close, count, policy.rules, observer, width=width)
    result: CPUMask | AllocationError | Endless = first
    if isinstance(first, int):
        missing = wanted.need - first.bit_count()
        if observer is not None and missing > 0:
            observer(facts.TakeBegun(wanted.uid, wanted.container, missing, pool & ~first, "anywhere"))
        rest = take(policy.topology, pool & ~first, missing, policy.rules, observer) if missing > 0 else NO_CPUS
        result = first | rest if isinstance(rest, int) else rest
    if observer is not None:
        error = result.message if isinstance(result, AllocationError) else ""
        error = result.defect if isinstance(result, Endless) else error
        first, taken = (one if isinstance(one, int) else NO_CPUS for one in (first, result))
        observer(taken_fact(wanted, first, taken, error))
    return CPUsChosen(result) if isinstance(result, int) else result


def taken_fact(wanted: CPUsWanted, first: CPUMask, taken: CPUMask, error: str) -> facts.CPUsTaken:
    """Return what was taken, for the observer."""
    return facts.CPUsTaken(
        pod=wanted.uid,
        container=wanted.container,
        need=wanted.need,
        pool=wanted.pool,
        reusable=wanted.left,
        affinity=wanted.affinity,
        near=wanted.near,
        first=first,
        taken=taken,
        error=error,
    )


def near(policy: StaticPolicy, pool: CPUMask, affinity: NUMAMask | None) -> CPUMask:
    """Return the CPUs of the pool that the hint points to: those of its nodes, with align-by-socket of its sockets."""
    if affinity is None:
        return NO_CPUS
    inside = policy.topology.cpus_in_numa(affinity)
    if policy.rules.align_by_socket:
        sockets = policy.topology.sockets.values()
        inside = CPUMask(sum(mask for mask in sockets if mask & inside))
    return pool & inside
