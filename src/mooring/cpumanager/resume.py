"""What a restart finds of resizes: containers whose CPUs are not of the number that they were granted.

A kubelet without KEP-5554 calls such a container impossible. With it the resize goes on where it was interrupted: a
scale-down delay is a guaranteed minimum, so that one that nobody can vouch for begins anew.

Source: KEP-5554, KEP-6122; spec: resize.md sections 5.2 and 5.3.
"""

from __future__ import annotations

from mooring.core.config import SCALE_DOWN_DELAY
from mooring.core.gates import EXTENSION_GATES
from mooring.core.moment import Moment
from mooring.core.observer import Observer
from mooring.core.pod import Container, Pod
from mooring.cpumanager.policy import AllocationError, StaticPolicy
from mooring.cpumanager.resize import change_of, resized_set
from mooring.cpumanager.scale_down import continued, taken_over
from mooring.cpumanager.state import CPUState

UNSUPPORTED = "PodFeatureUnsupported"


def is_resized(policy: StaticPolicy, state: CPUState, pod: Pod, container: Container) -> bool:
    """Tell whether a container has another number of CPUs than it asks for, and may have."""
    if not policy.resizes:
        return False
    change = change_of(policy, state, pod, container)
    return change is not None and (change.is_growth or change.is_shrink)


def resumed_resize(
    policy: StaticPolicy,
    state: CPUState,
    pod: Pod,
    container: Container,
    affinity: int | None,
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
    if _has_lost_its_delay(policy, state, pod, container):
        missing = EXTENSION_GATES[SCALE_DOWN_DELAY][0]
        return AllocationError(f"Pod requires node features that are not available: {missing}", UNSUPPORTED)
    going_on = continued(policy, state, pod, container.name, change.need, now, observer)
    if going_on is not None:
        return going_on
    found = resized_set(policy, state, pod, container, affinity, observer)
    if found is None or isinstance(found, AllocationError):
        return state if found is None else found
    return taken_over(policy, state, pod, container.name, found, now, observer)


def _has_lost_its_delay(policy: StaticPolicy, state: CPUState, pod: Pod, container: Container) -> bool:
    """Tell whether a delay of the pod's own is pending on a node that knows such delays no longer."""
    pre = state.pre_assignments.get(pod.uid, {}).get(container.name)
    return pre is not None and pre.is_written and policy.scale_down.is_on and not policy.scale_down.of_pods
