"""Choosing exclusive CPUs: the check of whole cores, and taking near the hint.

Source: kubelet v1.37.1, cpumanager policy_static.go (Allocate, allocateCPUs); spec: cpu-manager.md sections 4 and 4.2.
"""

from __future__ import annotations

from mooring.engine.core.bits import NO_CPUS, CPUMask, NUMAMask
from mooring.engine.core.decision import Endless
from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.core.observer import Observer
from mooring.engine.core.pod import Pod
from mooring.engine.core.release import NEWEST_RULES, ReleaseRules
from mooring.engine.cpumanager.chooser import CPUsChosen
from mooring.engine.cpumanager.facts import CPUsTaken, TakeBegun, WholeCoresChecked
from mooring.engine.cpumanager.options import TakeError
from mooring.engine.cpumanager.packed import NO_CORE_SIZE
from mooring.engine.cpumanager.policy import AllocationError, StaticPolicy, available_cpus, withheld
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.cpumanager.take import take

SMT_ALIGNMENT_ERROR = "SMTAlignmentError"


def choose(
    policy: StaticPolicy,
    state: CPUState,
    left: CPUMask,
    pod: Pod,
    container: str,
    need: int,
    affinity: NUMAMask | None,
    observer: Observer | None,
) -> CPUsChosen | AllocationError | Endless:
    """Choose exclusive CPUs for a container, or for a whole pod: whole cores where required, near the hint.

    Args:
        policy: the policy.
        state: before.
        left: mask of the CPUs that init containers leave, usable besides the shared pool.
        pod: the pod.
        container: name; empty for the partition of the whole pod.
        need: how many CPUs.
        affinity: mask of the hint's NUMA nodes; None for no opinion.
        observer: receives what was found.
    """
    if policy.rules.whole_cores:
        refusal = check_whole_cores(policy, state, pod.uid, container, need, observer)
        if refusal is not None:
            return refusal
    taken = take_near(policy, state, left, pod.uid, container, need, affinity, observer)
    if isinstance(taken, TakeError):
        return AllocationError(taken.message)
    return CPUsChosen(taken) if isinstance(taken, int) else taken


def check_whole_cores(
    policy: StaticPolicy,
    state: CPUState,
    pod: str,
    container: str,
    need: int,
    observer: Observer | None,
) -> AllocationError | None:
    """Apply full-pcpus-only. CPUs that init containers leave are not counted, half-used cores are."""
    group = policy.group_size
    available = (state.default & ~policy.reserved_cores & ~withheld(policy, state)).bit_count()
    return why_no_whole_cores(pod, container, need, group, available, observer, policy.rules.older)


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
        observer(WholeCoresChecked(pod, container, need, group, available, passed=not message))
    return AllocationError(message, SMT_ALIGNMENT_ERROR) if message else None


def take_near(
    policy: StaticPolicy,
    state: CPUState,
    left: CPUMask,
    pod: str,
    container: str,
    need: int,
    affinity: NUMAMask | None,
    observer: Observer | None,
) -> CPUMask | TakeError | Endless:
    """Take CPUs from the nodes of the hint first, then from anywhere.

    The two takes are independent runs of the algorithm.

    Args:
        policy: the policy.
        state: before.
        left: mask of the CPUs that init containers leave, usable besides the shared pool.
        pod: uid, for the observer.
        container: name, for the observer; empty for a whole pod.
        need: how many CPUs.
        affinity: mask of the hint's NUMA nodes; None for no opinion.
        observer: receives what was found.
    """
    pool = available_cpus(policy, state) | left & ~state.offline
    close = near(policy, pool, affinity)
    first: CPUMask | TakeError | Endless = NO_CPUS
    if close:
        wanted = min(need, close.bit_count())
        if observer is not None:
            observer(TakeBegun(pod, container, wanted, close, "hint"))
        first = take(policy.topology, close, wanted, policy.rules, observer)
    result: CPUMask | TakeError | Endless = first
    if isinstance(first, int):
        missing = need - first.bit_count()
        if observer is not None and missing > 0:
            observer(TakeBegun(pod, container, missing, pool & ~first, "anywhere"))
        rest = take(policy.topology, pool & ~first, missing, policy.rules, observer)
        result = first | rest if isinstance(rest, int) else rest
    if observer is not None:
        observer(
            CPUsTaken(
                pod=pod,
                container=container,
                need=need,
                pool=pool,
                reusable=left,
                affinity=affinity,
                near=close,
                first=first if isinstance(first, int) else NO_CPUS,
                taken=result if isinstance(result, int) else NO_CPUS,
                error=_error_text(result),
            )
        )
    return result


def _error_text(result: CPUMask | TakeError | Endless) -> str:
    if isinstance(result, TakeError):
        return result.message
    return result.defect if isinstance(result, Endless) else ""


def near(policy: StaticPolicy, pool: CPUMask, affinity: NUMAMask | None) -> CPUMask:
    """Return the CPUs of the pool that the hint points to: those of its nodes, with align-by-socket of its sockets."""
    if affinity is None:
        return NO_CPUS
    inside = policy.topology.cpus_in_numa(affinity)
    if policy.rules.align_by_socket:
        sockets = policy.topology.sockets.values()
        inside = CPUMask(sum(mask for mask in sockets if mask & inside))
    return pool & inside
