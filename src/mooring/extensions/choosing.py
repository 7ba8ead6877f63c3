"""Choosing with or without others: the one place at which plugins take part in the CPU manager's choice.

Without a chooser every function here is the kubelet's rule and nothing else. Source: CPU Manager Plugin Model
(proposal); spec: resize.md section 7.
"""

from __future__ import annotations

from mooring.core.decision import Endless
from mooring.core.observer import Observer
from mooring.core.pod import Pod
from mooring.cpumanager.choice import check_whole_cores, near, take_near, why_no_whole_cores
from mooring.cpumanager.chooser import CPUsChosen, CPUsWanted, Purpose
from mooring.cpumanager.facts import CPUsTaken
from mooring.cpumanager.options import TakeError
from mooring.cpumanager.policy import AllocationError, StaticPolicy, available_cpus
from mooring.cpumanager.state import CPUState
from mooring.extensions.hidden import hidden_for
from mooring.extensions.whole_cores import common_size, whole_cores_in


def choose(
    policy: StaticPolicy,
    state: CPUState,
    left: int,
    pod: Pod,
    container: str,
    need: int,
    affinity: int | None,
    observer: Observer | None,
) -> CPUsChosen | AllocationError | Endless:
    """Choose exclusive CPUs for a container, or for a whole pod.

    With full-pcpus-only they are whole cores. The kubelet checks that before it takes; where a chooser counts cores as
    they are, it is its answer that is held to it, and a refusal is told in the kubelet's words.

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
    chooser = policy.chooser
    if chooser is None or not chooser.counts_cores:
        refusal = _check(policy, state, pod, container, need, observer)
        if refusal is not None:
            return refusal
    if chooser is not None:
        # Hidden threads of ended init containers are as free for the pod as the CPUs that these leave.
        left |= hidden_for(state, pod.uid, left)
        pool = available_cpus(policy, state) | left & ~state.offline
        purpose = Purpose.CONTAINER if container else Purpose.POD
        wanted = CPUsWanted(purpose, need, pool, near(policy, pool, affinity), pod, container, affinity)
        found = _chosen(policy, state, wanted, observer)
        if isinstance(found, AllocationError):
            return found
        if found is not None:
            if observer is not None:
                observer(_taken(wanted, left, affinity, found))
            return found if isinstance(found, CPUsChosen) else AllocationError(found.message)
        refusal = _check(policy, state, pod, container, need, observer) if chooser.counts_cores else None
        if refusal is not None:
            return refusal
    taken = take_near(policy, state, left, pod.uid, container, need, affinity, observer)
    if isinstance(taken, TakeError):
        return AllocationError(taken.message)
    return CPUsChosen(taken) if isinstance(taken, int) else taken


def _check(
    policy: StaticPolicy, state: CPUState, pod: Pod, container: str, need: int, observer: Observer | None
) -> AllocationError | None:
    if not policy.rules.whole_cores:
        return None
    return check_whole_cores(policy, state, pod.uid, container, need, observer)


def _chosen(
    policy: StaticPolicy, state: CPUState, wanted: CPUsWanted, observer: Observer | None
) -> CPUsChosen | AllocationError | TakeError | None:
    """Ask the chooser; None when it leaves the choice to the kubelet's rules."""
    if policy.chooser is None or wanted.pod is None:
        return None
    found = policy.chooser.chosen(state, wanted, observer)
    if not isinstance(found, TakeError) or not policy.rules.whole_cores or not policy.chooser.counts_cores:
        return found
    usable = policy.chooser.usable(state, wanted, None) & wanted.pool
    if usable.bit_count() < wanted.need:
        return found
    # There are enough of them, and they do not come in whole cores.
    cores = whole_cores_in(policy.topology, usable)
    group = common_size(cores) or policy.group_size
    available = sum(core.bit_count() for core in cores)
    refusal = why_no_whole_cores(wanted.pod.uid, wanted.container, wanted.need, group, available, observer)
    return refusal or found


def _taken(wanted: CPUsWanted, left: int, affinity: int | None, found: CPUsChosen | TakeError) -> CPUsTaken:
    cpus = found.cpus if isinstance(found, CPUsChosen) else 0
    return CPUsTaken(
        pod=wanted.pod.uid if wanted.pod is not None else "",
        container=wanted.container,
        need=wanted.need,
        pool=wanted.pool,
        reusable=left,
        affinity=affinity,
        near=wanted.near,
        first=cpus & wanted.near,
        taken=cpus,
        error=found.message if isinstance(found, TakeError) else "",
    )


def usable_cpus(
    policy: StaticPolicy,
    state: CPUState,
    pool: int,
    pod: Pod,
    container: str,
    need: int,
    observer: Observer | None = None,
) -> int:
    """Return the mask of those CPUs of a pool that a container, or a whole pod, may get: hints count these."""
    if policy.chooser is None:
        return pool
    purpose = Purpose.CONTAINER if container else Purpose.POD
    return policy.chooser.usable(state, CPUsWanted(purpose, need, pool, 0, pod, container), observer) & pool
