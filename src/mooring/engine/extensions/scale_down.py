"""The scale-down delay: CPUs that a container releases stay with it until it had time to leave them.

The smaller set is decided at once and kept as a pre-assignment; the container's cpuset, the shared pool and all other
containers see nothing of it until the delay is over and the state is reconciled. The delay is a minimum.

After a restart a container can have CPUs that are not of the number that it was granted. A kubelet without KEP-5554
calls such a container impossible. With it the resize continues where it was interrupted: a delay is a guaranteed
minimum, so that one that nothing vouches for starts again.

No released kubelet does this. Source: KEP-5554, KEP-6122; spec: resize.md section 5.

Releasing a container's CPUs, with what extensions keep beside them.

Source: kubelet v1.37.1, cpumanager policy_static.go (RemoveContainer); spec: cpu-manager.md section 10.
"""

from __future__ import annotations

from collections.abc import Collection

from mooring.engine.core.bits import CPUMask, NUMAMask
from mooring.engine.core.config import SCALE_DOWN_DELAY
from mooring.engine.core.decision import AllocationError, Observer
from mooring.engine.core.moment import SECOND, Moment
from mooring.engine.core.pod import Container, Pod
from mooring.engine.core.release import EXTENSION_GATES
from mooring.engine.cpumanager.policy import StaticPolicy
from mooring.engine.cpumanager.state import CPUState, PreAssignment
from mooring.engine.cpumanager.static import remove
from mooring.engine.extensions.cpu_resize import assigned, change_of, resized_set, without_pre_assignment
from mooring.engine.extensions.offline import without_idle_pairs
from mooring.engine.extensions.owners import without_hidden
from mooring.lazy import lazily, replace

with lazily():
    import mooring.engine.extensions.facts as extension_facts


def taken_over(
    policy: StaticPolicy,
    state: CPUState,
    pod: Pod,
    container: str,
    cpus: CPUMask,
    now: Moment,
    observer: Observer | None = None,
) -> CPUState:
    """Return the state after a container's new set was decided: at once, or with a delay where it is smaller.

    A request is compared with what the container has, never with what it is about to have: equal or more drops a
    pending release, less starts a full new delay. The delay is the pod's own where it has one, which the state file
    keeps, else the node's. That the pod's own wins is this project's decision; no document of the proposal knows both.
    """
    current = state.assignments[pod.uid][container]
    grace = pod.scale_down_grace
    is_own = policy.delays_of_pods and grace is not None
    delay = (grace or 0) * SECOND if is_own else policy.node_delay
    report_dropped(state, pod.uid, container, observer)
    if cpus.bit_count() >= current.bit_count() or not delay or not policy.delays:
        return _moved(state, pod.uid, container, cpus, observer)
    pre = PreAssignment(cpus, now.plus(delay), is_written=is_own)
    if observer is not None:
        observer(extension_facts.ScaleDownStarted(pod.uid, container, current, cpus, delay))
    pending = {**state.pre_assignments.get(pod.uid, {}), container: pre}
    return replace(state, pre_assignments={**state.pre_assignments, pod.uid: pending})


def report_dropped(state: CPUState, pod: str, container: str, observer: Observer | None) -> None:
    """Report that a container's pending release is going to be no more; nothing where there is none."""
    pre = state.pre_assignments.get(pod, {}).get(container)
    if pre is not None and observer is not None:
        observer(extension_facts.ScaleDownDropped(pod, container, state.assignments[pod][container] & ~pre.cpus))


def _moved(state: CPUState, pod: str, container: str, cpus: CPUMask, observer: Observer | None) -> CPUState:
    before = state.assignments[pod][container]
    after = assigned(state, pod, container, cpus)
    if observer is not None and cpus != before:
        observer(extension_facts.CPUsMoved(pod, container, before, cpus, after.held, after))
    return after


def reconciled(
    state: CPUState, now: Moment, observer: Observer | None = None, spared: Collection[tuple[str, str]] = ()
) -> CPUState:
    """Return the state after all releases whose delay is over; the same value when there is none.

    Args:
        state: before.
        now: the present moment.
        observer: receives what was released.
        spared: pod uid and container of those that cannot be taken back yet, whatever the time.
    """
    for pod, containers in sorted(state.pre_assignments.items()):
        for container, pre in sorted(containers.items()):
            if pre.apply_at.has_come(now) and (pod, container) not in spared:
                released = state.assignments[pod][container] & ~pre.cpus
                state = _moved(state, pod, container, pre.cpus, observer)
                if observer is not None:
                    observer(extension_facts.ScaleDownCompleted(pod, container, pre.cpus, released))
    return state


def continued(
    policy: StaticPolicy,
    state: CPUState,
    pod: Pod,
    container: str,
    need: int,
    now: Moment,
    observer: Observer | None = None,
) -> CPUState | None:
    """Decide after a restart about a release that the state file has; None when it is to be decided again.

    The first that applies: another boot, or a number that is not the pending one, start again; a container that asks
    for all that it has needs no release; else the delay continues, and one that is over is applied at the first
    reconciliation.
    """
    pre = state.pre_assignments.get(pod.uid, {}).get(container)
    if pre is None or not policy.delays or pre.apply_at.boot != now.boot:
        return None
    if need == state.assignments[pod.uid][container].bit_count():
        report_dropped(state, pod.uid, container, observer)
        return without_pre_assignment(state, pod.uid, container)
    return state if need == pre.cpus.bit_count() else None


UNSUPPORTED = "PodFeatureUnsupported"


def is_resized(policy: StaticPolicy, state: CPUState, pod: Pod, container: Container) -> bool:
    """Tell whether a container has another number of CPUs than it requests, and may have."""
    if not policy.resizes:
        return False
    change = change_of(policy, state, pod, container)
    return change is not None and (change.is_growth or change.is_shrink)


def resumed_resize(
    policy: StaticPolicy,
    state: CPUState,
    pod: Pod,
    container: Container,
    affinity: NUMAMask | None,
    now: Moment,
    *,
    observer: Observer | None = None,
) -> CPUState | AllocationError:
    """Return the state with a container's resize taken up again; the same value where there is none.

    Args:
        policy: the policy.
        state: as it was restored.
        pod: with the resources that it was granted.
        container: one of its containers.
        affinity: mask of the NUMA nodes of the merged hint; None for no opinion.
        now: when the node is asked.
        observer: receives what was found.
    """
    if not policy.resizes:
        return state
    change = change_of(policy, state, pod, container)
    if change is None:
        return state
    # Whether a delay of the pod's own is pending on a node that knows such delays no longer
    pre = state.pre_assignments.get(pod.uid, {}).get(container.name)
    if pre is not None and pre.is_written and policy.delays and not policy.delays_of_pods:
        missing = EXTENSION_GATES[SCALE_DOWN_DELAY][0]
        return AllocationError(f"Pod requires node features that are not available: {missing}", UNSUPPORTED)
    going_on = continued(policy, state, pod, container.name, change.need, now, observer)
    if going_on is not None:
        return going_on
    found = resized_set(policy, state, pod, container, affinity, observer)
    if found is None or isinstance(found, AllocationError):
        return state if found is None else found
    return taken_over(policy, state, pod, container.name, found, now, observer)


def release(
    policy: StaticPolicy, state: CPUState, pod: str, container: str, observer: Observer | None = None
) -> CPUState:
    """Return the state without one container's assignment, its pending release, replacements and hidden threads."""
    if container in state.assignments.get(pod, {}):
        report_dropped(state, pod, container, observer)
        state = remove(policy, without_pre_assignment(state, pod, container), pod, container, observer)
        state = without_idle_pairs(state)
    return without_hidden(state, pod, container)
