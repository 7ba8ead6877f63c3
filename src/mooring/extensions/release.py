"""Releasing a container's CPUs, with what extensions keep beside them.

Source: kubelet v1.37.1, cpumanager policy_static.go (RemoveContainer); spec: cpu-manager.md section 10.
"""

from __future__ import annotations

from mooring.core.observer import Observer
from mooring.cpumanager.policy import StaticPolicy
from mooring.cpumanager.state import CPUState
from mooring.cpumanager.static import remove
from mooring.extensions.cpu_resize import without_pre_assignment
from mooring.extensions.hidden import without_hidden
from mooring.extensions.offline import without_idle_pairs
from mooring.extensions.scale_down import report_dropped


def release(
    policy: StaticPolicy, state: CPUState, pod: str, container: str, observer: Observer | None = None
) -> CPUState:
    """Return the state without one container's assignment, its pending release, replacements and hidden threads."""
    if container in state.assignments.get(pod, {}):
        report_dropped(state, pod, container, observer)
        state = remove(policy, without_pre_assignment(state, pod, container), pod, container, observer)
        state = without_idle_pairs(state)
    return without_hidden(state, pod, container)
