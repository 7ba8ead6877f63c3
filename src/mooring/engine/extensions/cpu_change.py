"""What a container asks of its exclusive CPUs when it is resized, and what can never be granted.

No released kubelet does this. Source: KEP-5554 and its open implementation (kubernetes/kubernetes#140629); spec:
resize.md section 4.
"""

from __future__ import annotations

from dataclasses import dataclass

from mooring.engine.core.bits import CPUMask
from mooring.engine.core.pod import Container, Pod
from mooring.engine.cpumanager.policy import AllocationError, StaticPolicy
from mooring.engine.cpumanager.requests import exclusive_cpus
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.extensions.hidden import hidden_of

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
