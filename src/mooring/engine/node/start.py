"""Starting the managers on what their checkpoint files hold, and how the kubelet words its refusals.

Source: kubelet v1.37.1, cpumanager policy Start and cm/container_manager_linux.go; spec: configuration.md section 5.1,
cpu-manager.md section 2, state-files.md section 4.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from mooring.engine.core.bits import NO_CPUS
from mooring.engine.core.decision import Cause, Fault, Observer, StartRefusal
from mooring.engine.core.gotext import quote
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.cpumanager.static import start
from mooring.engine.extensions.cpu_resize import why_not_fresh
from mooring.engine.memorymanager.start import start as start_memory
from mooring.engine.memorymanager.state import MemoryState
from mooring.engine.node.settings import Settings
from mooring.lazy import dataclass, replace


@dataclass(frozen=True, slots=True)
class RestoredStates:
    """What reading the checkpoint files came to."""

    cpu: CPUState | StartRefusal | None = None
    """The state, the kubelet's refusal to restore it, or None when there is no file."""
    memory: MemoryState | StartRefusal | None = None
    """The same for the memory manager's file."""


@dataclass(frozen=True, slots=True)
class Started:
    """How far the start came."""

    cpu: CPUState | None
    """The CPU manager's state afterwards; None when it was not reached or refused."""
    memory: MemoryState | None
    """The memory manager's state afterwards; None when it was not reached or refused."""
    refusal: StartRefusal | None


def written(before: Settings, after: Settings, cpu: CPUState, memory: MemoryState) -> RestoredStates:
    """Return what a kubelet finds in the files of the kubelet before it, as far as decisions go.

    Entries of whole pods are written and read only with the gate PodLevelResourceManagers (spec: state-files.md section
    2). Where they are forgotten the containers keep their own. Baselines depend on a gate too and decide nothing.

    Args:
        before: of the kubelet that wrote the files.
        after: of the kubelet that reads them.
        cpu: what was written.
        memory: what was written.
    """
    # Releases of the node's own delay are in memory only (KEP-6122).
    is_delaying = after.cpu is not None and after.cpu.scale_down.is_on
    kept = {
        pod: written
        for pod, held in cpu.pre_assignments.items()
        if is_delaying and (written := {name: pre for name, pre in held.items() if pre.is_written})
    }
    cpu = replace(cpu, pre_assignments=kept)
    if not (before.pod_level.managers and after.pod_level.managers):
        cpu, memory = replace(cpu, pods={}), replace(memory, pods={})
    return RestoredStates(cpu, memory)


def start_managers(settings: Settings, restored: RestoredStates, observer: Observer | None = None) -> Started:
    """Start the CPU manager, then the memory manager, then check the reservation against the machine.

    When the CPU manager fails the memory manager's file is neither read nor made.

    Args:
        settings: configuration and policies.
        restored: what the files hold.
        observer: receives what was found.

    Raises:
        KubeletCrashError: the memory manager's file has a group of nodes that do not list the same types of memory.
    """
    cpu = _start_cpu_manager(settings, restored.cpu)
    if isinstance(cpu, StartRefusal):
        return Started(None, None, cpu)
    memory = _start_memory_manager(settings, restored.memory, observer)
    if isinstance(memory, StartRefusal):
        return Started(cpu, None, memory)
    overcommitted = settings.reservation.overcommitment(settings.release.rules)
    return Started(cpu, memory, StartRefusal.of("start", overcommitted) if overcommitted else None)


def running_managers(settings: Settings, read: RestoredStates) -> Started:
    """Return the managers of a kubelet that runs and has written what was read.

    A running kubelet can write a state on which it would not start again, such as an empty shared pool
    (kubernetes/kubernetes#141196), or memory of a group that counts on another of its nodes after a release
    (kubernetes/kubernetes#131253): only the policies are checked.

    Args:
        settings: configuration and policies.
        read: what the files hold.
    """
    cpu, memory = _read_cpu(settings, read.cpu), _read_memory(settings, read.memory)
    if isinstance(cpu, StartRefusal):
        return Started(None, None, cpu)
    return Started(cpu, None, memory) if isinstance(memory, StartRefusal) else Started(cpu, memory, None)


def _read_cpu(settings: Settings, state: CPUState | StartRefusal | None) -> CPUState | StartRefusal:
    policy = settings.config.cpu_manager_policy
    if state is None:
        return CPUState(policy, NO_CPUS, {})
    if isinstance(state, CPUState) and state.policy != policy:
        return other_policy("cpu", policy, state.policy)
    return state


def _read_memory(settings: Settings, state: MemoryState | StartRefusal | None) -> MemoryState | StartRefusal:
    policy = settings.config.memory_manager_policy
    if state is None:
        return MemoryState(policy, {}, {})
    if isinstance(state, MemoryState) and state.policy != policy:
        return other_policy("memory", policy, state.policy)
    return state


def _start_cpu_manager(settings: Settings, found: CPUState | StartRefusal | None) -> CPUState | StartRefusal:
    state = _read_cpu(settings, found)
    if isinstance(state, StartRefusal) or settings.cpu is None:
        return state
    refused = why_not_fresh(state) if settings.cpu.resizes else ""
    started = Fault(refused, Cause.FILE_CONTRADICTS) if refused else start(settings.cpu, state)
    if isinstance(started, Fault):
        text = f"start cpu manager error: {started.text}"
        return StartRefusal.of("start", replace(started, text=text, names=("cpu",)))
    return started


def _start_memory_manager(
    settings: Settings, found: MemoryState | StartRefusal | None, observer: Observer | None
) -> MemoryState | StartRefusal:
    state = _read_memory(settings, found)
    if isinstance(state, StartRefusal) or settings.memory is None:
        return state
    started = start_memory(settings.memory, state, observer)
    if isinstance(started, str):
        text = f"start memory manager error: {started}"
        return StartRefusal.of("start", Fault(text, Cause.FILE_CONTRADICTS, names=("memory",)))
    return started


Manager: TypeAlias = Literal["cpu", "memory"]
"""Which manager's file is meant."""

CPU_FILE = "cpu_manager_state"
"""Name of the CPU manager's state file in the kubelet's root directory."""

MEMORY_FILE = "memory_manager_state"
"""Name of the memory manager's state file in the kubelet's root directory."""


def not_restored(
    manager: Manager, inner: str, cause: Cause = Cause.FILE_DAMAGED, containers: tuple[str, ...] = ()
) -> StartRefusal:
    """Return the refusal of a start on a file, which stays as it is; its path is shortened to its name.

    Args:
        manager: whose file it is.
        inner: the kubelet's reason.
        cause: of the reason.
        containers: ids that the reason names.

    >>> print(not_restored("memory", "checkpoint is corrupted").message)  # doctest: +NORMALIZE_WHITESPACE
    start memory manager error: could not restore state from checkpoint: checkpoint is corrupted, please drain this
    node and delete the memory manager checkpoint file "memory_manager_state" before restarting Kubelet
    """
    noun, file = ("CPU", CPU_FILE) if manager == "cpu" else ("memory", MEMORY_FILE)
    text = (
        f"start {manager} manager error: could not restore state from checkpoint: {inner}, "
        f"please drain this node and delete the {noun} manager checkpoint file {quote(file)} before restarting Kubelet"
    )
    return StartRefusal.of("start", Fault(text, cause, names=(manager,), values=containers))


def other_policy(manager: Manager, configured: str, found: str) -> StartRefusal:
    """Return the refusal of a state that another policy wrote."""
    prefix = "[memorymanager] " if manager == "memory" else ""
    text = f"{prefix}configured policy {quote(configured)} differs from state checkpoint policy {quote(found)}"
    return not_restored(manager, text, Cause.POLICY_CHANGED)
