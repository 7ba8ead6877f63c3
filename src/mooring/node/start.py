"""Starting the managers on what their checkpoint files hold.

Source: kubelet v1.37.1, cpumanager/state and policy Start; spec: cpu-manager.md section 2, state-files.md section 4.
"""

from __future__ import annotations

from mooring.core.decision import StartRefusal
from mooring.core.gotext import quote
from mooring.cpumanager.state import CPUState
from mooring.cpumanager.static import start
from mooring.node.settings import Settings

CPU_FILE = "cpu_manager_state"
MEMORY_FILE = "memory_manager_state"


def restore_refusal(manager: str, file: str, inner: str) -> StartRefusal:
    """Return the kubelet's refusal to start on a checkpoint that it cannot restore.

    Args:
        manager: ``CPU`` or ``memory``, as the kubelet writes it in the remedy.
        file: name of the checkpoint file; the kubelet prints its whole path.
        inner: what is wrong with it.
    """
    return StartRefusal(
        "start",
        f"start {manager.lower()} manager error: could not restore state from checkpoint: {inner}, please drain this node "
        f"and delete the {manager} manager checkpoint file {quote(file)} before restarting Kubelet",
    )


def policy_mismatch(configured: str, found: str) -> str:
    """Return the kubelet's text for a checkpoint of another policy."""
    return f"configured policy {quote(configured)} differs from state checkpoint policy {quote(found)}"


def start_cpu_manager(settings: Settings, state: CPUState | None) -> CPUState | StartRefusal:
    """Start the CPU manager on a restored state, or on none, and return the state afterwards."""
    policy = settings.config.cpu_manager_policy
    if state is None:
        state = CPUState(policy, 0, {})
    elif state.policy != policy:
        return restore_refusal("CPU", CPU_FILE, policy_mismatch(policy, state.policy))
    if settings.cpu is None:
        return state
    started = start(settings.cpu, state)
    if isinstance(started, str):
        return StartRefusal("start", f"start cpu manager error: {started}")
    return started
