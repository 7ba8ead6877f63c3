"""Releasing a container's CPUs, with what extensions keep beside them.

Source: kubelet v1.37.1, cpumanager policy_static.go (RemoveContainer); spec: cpu-manager.md section 10.
"""

from __future__ import annotations

from mooring.engine.core.observer import Observer
from mooring.engine.cpumanager.policy import StaticPolicy
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.cpumanager.static import remove
from mooring.engine.extensions.cpu_resize import without_pre_assignment
from mooring.engine.extensions.hidden import without_hidden
from mooring.engine.extensions.offline import without_idle_pairs
from mooring.engine.extensions.scale_down import report_dropped


def release(
    policy: StaticPolicy, state: CPUState, pod: str, container: str, observer: Observer | None = None
) -> CPUState:
    """Return the state without one container's assignment, its pending release, replacements and hidden threads."""
    if container in state.assignments.get(pod, {}):
        report_dropped(state, pod, container, observer)
        state = remove(policy, without_pre_assignment(state, pod, container), pod, container, observer)
        state = without_idle_pairs(state)
    return without_hidden(state, pod, container)
