"""Resizing exclusive CPUs in place: what may be asked, which hints there are, and which CPUs it comes to.

A container that grows keeps all it has; one that shrinks keeps at least its baseline, the CPUs it got at first. Both
ways the CPUs are taken by the policy's own rules, around those that stay.

No released kubelet does this. Source: KEP-5554 and its open implementation (kubernetes/kubernetes#140629); spec:
resize.md section 4.
"""

from __future__ import annotations

from mooring.engine.core.bits import NO_CPUS, CPUMask, NUMAMask
from mooring.engine.core.decision import AllocationError, Observer
from mooring.engine.core.pod import Container, Pod
from mooring.engine.cpumanager.facts import CPUHintsAsked
from mooring.engine.cpumanager.hints import hints_from
from mooring.engine.cpumanager.policy import (
    StaticPolicy,
    available_cpus,
    exclusive_cpus,
    exclusive_cpus_of_pod,
    withheld,
)
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.cpumanager.static import why_no_whole_cores
from mooring.engine.extensions.choosing import taken_around, usable_cpus
from mooring.engine.extensions.offline import without_idle_pairs
from mooring.engine.extensions.owners import hidden_of
from mooring.engine.topologymanager.wide import ResourceHints
from mooring.lazy import dataclass, lazily, replace

with lazily():
    import mooring.engine.extensions.facts as extension_facts

INCONSISTENT = "inconsistentCPUAllocationError"
PROHIBITED = "prohibitedCPUAllocationError"
NO_BASELINE = "getOriginalCPUSetError"
HIDDEN_SIBLINGS = "hiddenSiblingsError"


@dataclass(frozen=True, slots=True)
class CPUResize:
    """One container on its way from the CPUs it has to the number it requests."""

    current: CPUMask
    """CPUs that it has."""
    baseline: CPUMask
    """CPUs that it got at first."""
    need: int

    @property
    def is_growth(self) -> bool:
        """Tell whether it requests more than it has."""
        return self.need > self.current.bit_count()

    @property
    def is_shrink(self) -> bool:
        """Tell whether it requests less than it has."""
        return self.need < self.current.bit_count()

    @property
    def kept(self) -> CPUMask:
        """CPUs that stay whatever is decided."""
        return self.baseline if self.is_shrink else self.current


def change_of(policy: StaticPolicy, state: CPUState, pod: Pod, container: Container) -> CPUResize | None:
    """Return what a pod's container asks of the CPUs that it has; None for one without CPUs of its own.

    Pod-level pods are left alone.
    """
    current = state.assignments.get(pod.uid, {}).get(container.name, 0)
    need = exclusive_cpus(pod, container, policy.gates)
    if not current or not need or pod.is_pod_level:
        return None
    baseline = state.baselines.get(pod.uid, {}).get(container.name, 0)
    return CPUResize(CPUMask(current), CPUMask(baseline & current), need)


def check_feasible(
    policy: StaticPolicy, state: CPUState, before: Pod, after: Pod, container: Container
) -> AllocationError | None:
    """Return why one container can never be resized so; None when nothing speaks against it.

    Args:
        policy: the policy.
        state: before.
        before: the pod with the resources that it has.
        after: the pod with those that it requests.
        container: of the latter.
    """
    if after.is_pod_level:
        return None
    old = next(one for one in before.containers if one.name == container.name)
    allocated, requested = exclusive_cpus(before, old, policy.gates), exclusive_cpus(after, container, policy.gates)
    amounts = f"(requested CPUs = {container.requests.get('cpu', 0)}, allocated CPUs = {old.requests.get('cpu', 0)}"
    if requested and not allocated:
        return AllocationError(
            "inconsistentCPUAllocation Error: Skip resize, Not allowed to move a container from shared pool to "
            f"exclusively allocated pool, {amounts})",
            INCONSISTENT,
        )
    if allocated and not requested:
        return AllocationError(
            "inconsistentCPUAllocation Error: Skip resize, Not allowed to move a container from exclusively allocated "
            f"pool to shared pool, not allowed {amounts})",
            INCONSISTENT,
        )
    if requested == allocated:
        return None
    if hidden_of(state, after.uid, container.name):
        # Hidden threads are chosen with their cores, once (extension plugins).
        return AllocationError(
            "hiddenSiblings Error: Skip resize, Not allowed to change a container exclusively allocated pool with "
            f"hidden siblings, {amounts})",
            HIDDEN_SIBLINGS,
        )
    if container.name not in state.baselines.get(after.uid, {}):
        return AllocationError(
            "getOriginalCPUSet Error: Skip resize, unable to get PromisedCPUSet, nothing to be done, "
            f"(podUID = {after.uid}, containerName {container.name})",
            NO_BASELINE,
        )
    original = state.baselines[after.uid][container.name].bit_count()
    if requested < original:
        return AllocationError(
            "prohibitedCPUAllocation Error: Skip resize, Not allowed to reduce container exclusively allocated pool "
            f"below original, {amounts}, original CPUs = {original}, guaranteed CPUs = {requested})",
            PROHIBITED,
        )
    return None


def why_not_fresh(state: CPUState) -> str:
    """Return why a state without a shared pool is refused, as KEP-5554 words it; empty when it is not."""
    if state.default:
        return ""
    if state.assignments:
        return "default cpuset cannot be empty when assignments exist"
    return "default cpuset cannot be empty when originals exist and assignments don't exist" if state.baselines else ""


NOT_RESIZED = "resizeAllocateCPUsError"


def container_hints(
    policy: StaticPolicy, state: CPUState, pod: Pod, container: Container, observer: Observer | None = None
) -> ResourceHints | None:
    """Return the hints for a container of a pod that is resized; all NUMA nodes that must stay in use are in each."""
    change = change_of(policy, state, pod, container)
    if change is None:
        return None
    available = change.current
    if change.is_growth:
        available = _usable(policy, state, pod, container.name, change, observer)
    kept = change.kept if change.is_growth or change.is_shrink else NO_CPUS
    asked = CPUHintsAsked(pod.uid, container.name, change.need, available, kept, mismatch=False)
    return hints_from(policy, asked, observer, absent=state.offline & ~kept)


def pod_hints(
    policy: StaticPolicy, state: CPUState, pod: Pod, observer: Observer | None = None
) -> ResourceHints | None:
    """Return the hints for a whole pod that is resized: around all that its containers keep."""
    found = {one.name: change_of(policy, state, pod, one) for one in pod.containers}
    changes = {name: change for name, change in found.items() if change is not None}
    if not changes:
        return None
    available = kept = NO_CPUS
    for name, change in changes.items():
        growing = change.is_growth
        available |= _usable(policy, state, pod, name, change, None) if growing else change.current
        kept |= change.kept
    # What stays would count twice: a pod's containers do not all shrink at once, as a single one does.
    asked = CPUHintsAsked(
        pod.uid, "", exclusive_cpus_of_pod(pod, policy.gates), CPUMask(available & ~kept), kept, mismatch=False
    )
    return hints_from(policy, asked, observer, absent=state.offline & ~kept)


def resized_set(
    policy: StaticPolicy,
    state: CPUState,
    pod: Pod,
    container: Container,
    affinity: NUMAMask | None,
    observer: Observer | None = None,
) -> CPUMask | AllocationError | None:
    """Return the CPUs that a container comes to; None for one whose CPUs no manager decides about.

    Args:
        policy: the policy.
        state: before.
        pod: with the resources that it requests.
        container: one of its containers.
        affinity: mask of the NUMA nodes of the merged hint; None for no opinion.
        observer: receives what was found.
    """
    change = change_of(policy, state, pod, container)
    if change is None:
        return None
    if not change.is_growth and not change.is_shrink:
        return change.current
    refusal = None
    if policy.rules.whole_cores:
        # CPUs that the container has count as available.
        whole = (state.default & ~policy.reserved_cores & ~withheld(policy, state)) | change.current
        refusal = why_no_whole_cores(
            pod.uid, container.name, change.need, policy.group_size, whole.bit_count(), observer=None
        )
    retained = change.kept.bit_count()
    if refusal is None and change.need < retained:
        # Guards the rules themselves: nothing that stays may be more than what is requested.
        refusal = AllocationError(
            f"requested number of CPUs ( {change.need} ) are less than number of retained CPUs ( {retained} )"
        )
    if refusal is None:
        pool: int = change.current
        if change.is_growth:
            pool = _usable(policy, state, pod, container.name, change, None)
        elif (change.current & ~state.offline | change.kept).bit_count() >= change.need:
            # A container that shrinks keeps CPUs that are online, where they suffice.
            pool = change.current & ~state.offline
        found = taken_around(policy, CPUMask(pool & ~change.kept), CPUMask(change.kept), change.need, affinity)
        if not isinstance(found, AllocationError):
            if observer is not None:
                observer(
                    extension_facts.CPUsResized(
                        pod.uid, container.name, change.current, CPUMask(change.kept), CPUMask(pool), affinity, found
                    )
                )
            return found
        refusal = found
    if refusal.reason:
        return refusal
    message = (
        "ResizeAllocateCPUs Error: Skip resize, unable to resize container exclusively allocated pool, "
        f"(podUID = {pod.uid}, containerName = {container.name}, topologyError = {refusal.message})"
    )
    return AllocationError(message, NOT_RESIZED)


def _usable(
    policy: StaticPolicy, state: CPUState, pod: Pod, container: str, change: CPUResize, observer: Observer | None
) -> CPUMask:
    """Return what a container may grow by; plugins may withhold some of it."""
    missing = change.need - change.current.bit_count()
    return usable_cpus(policy, state, available_cpus(policy, state), pod, container, missing, observer)


def assigned(state: CPUState, pod: str, container: str, cpus: CPUMask) -> CPUState:
    """Return the state with another set for a container, at once; a delayed one is dropped.

    CPUs that other containers of the pod have too, such as those left by an init container, stay with them.
    """
    held = state.assignments[pod]
    current = held[container]
    released = current & ~cpus
    for name, others in held.items():
        if name != container:
            released &= ~others
    state = without_pre_assignment(state, pod, container)
    if current == cpus:
        return state
    assignments = {**state.assignments, pod: {**held, container: cpus}}
    return without_idle_pairs(replace(state, default=(state.default | released) & ~cpus, assignments=assignments))


def without_pre_assignment(state: CPUState, pod: str, container: str) -> CPUState:
    """Return the state without the delayed scale-down of a container."""
    pending = state.pre_assignments.get(pod, {})
    if container not in pending:
        return state
    rest = {name: one for name, one in pending.items() if name != container}
    others = {uid: one for uid, one in state.pre_assignments.items() if uid != pod}
    return replace(state, pre_assignments={**others, pod: rest} if rest else others)
