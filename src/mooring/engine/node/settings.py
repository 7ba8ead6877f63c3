"""Building the managers: from configuration and machine to everything that decisions need, or the kubelet's refusal.

Source: kubelet v1.37.1, the order of cmd/kubelet/app/server.go and cm/container_manager_linux.go; spec:
configuration.md sections 2 to 5, topology-manager.md section 1.

Starting the managers on what their checkpoint files hold, and how the kubelet words its refusals.

Source: kubelet v1.37.1, cpumanager policy Start and cm/container_manager_linux.go; spec: configuration.md section 5.1,
cpu-manager.md section 2, state-files.md section 4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

from mooring.engine.core.bits import NO_CPUS
from mooring.engine.core.config import (
    CPU_HOTPLUG,
    DEVICE_ALIGNMENT,
    DeviceAlignments,
    KubeletConfig,
    MooringConfig,
    with_defaults,
)
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import Cause, Fault, Observer, StartRefusal
from mooring.engine.core.gotext import TRUE_WORDS, map_text, quote
from mooring.engine.core.machineinfo import MachineInfo
from mooring.engine.core.pod import PodLevelGates
from mooring.engine.core.release import DECODE_PREFIX, NEWEST, FeatureGates, Release, resolve_gates
from mooring.engine.core.topology import Topology, TopologyError, discover_topology
from mooring.engine.cpumanager.policy import StaticPolicy
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.cpumanager.static import start
from mooring.engine.extensions.cpu_resize import why_not_fresh
from mooring.engine.memorymanager.policy import MemoryPolicy
from mooring.engine.memorymanager.start import start as start_memory
from mooring.engine.memorymanager.state import MemoryState
from mooring.engine.node.policies import cpu_policy, memory_policy, numa_info, pod_level_gates
from mooring.engine.node.reservation import Reservation, reserve, soft_eviction_fault
from mooring.engine.node.validation import validate
from mooring.engine.releases.config_fields import unknown_flag
from mooring.engine.releases.gates import known_gates
from mooring.engine.topologymanager.hints import NUMAInfo
from mooring.lazy import dataclass, field, lazily, replace

with lazily():
    import mooring.engine.plugins.host as plugin_host

if TYPE_CHECKING:
    from mooring.engine.plugins.host import PluginHost

CPU_OPTIONS_GATE = "CPUManagerPolicyOptions"
TOPOLOGY_OPTIONS_GATE = "TopologyManagerPolicyOptions"


@dataclass(frozen=True, slots=True)
class Settings:
    """A configuration that was understood, on its machine."""

    config: KubeletConfig
    fixed_defects: frozenset[str]
    extensions: frozenset[str]
    gates: FeatureGates
    reservation: Reservation
    topology: Topology | None
    """None when the machine's CPUs cannot be made out, and a kubelet up to 1.31 does not need them."""
    numa: NUMAInfo
    topology_policy: str
    pod_scope: bool
    cpu: StaticPolicy | None
    """The static CPU policy; None for policy ``none``."""
    memory: MemoryPolicy | None
    """The static memory policy; None for policy ``None``."""
    pod_level: PodLevelGates
    """The gates that decide about pods with pod-level resources."""
    numa_ids: tuple[int, ...]
    """Ids of all NUMA nodes of the description, ascending."""
    plugins: PluginHost | None = None
    """Plugins that take part in the choice of CPUs; None without any, and with CPU manager policy ``none``."""
    replace_offline: str = ""
    """Where replacement CPUs for offline ones come from; empty without the extension cpu-hotplug."""
    device_alignments: DeviceAlignments | None = None
    """How CPUs and memory follow devices; None without the extension device-alignment."""
    release: Release = NEWEST
    """The kubelet release that decides."""
    info: MachineInfo | None = field(default=None, compare=False, repr=False)
    """The kubelet's view of the machine, for pictures; no decision reads it."""

    @property
    def has_memory_manager(self) -> bool:
        """Whether there is a memory manager at all: up to v1.31 its gate can be off (spec: releases.md section 2)."""
        return self.gates.values.get("MemoryManager", True)

    @property
    def max_pods(self) -> int:
        """How many pods the node runs at most: ``maxPods``, or ``podsPerCore`` for each CPU if that is less."""
        most, per_core = self.config.max_pods, self.config.pods_per_core
        return min(most, per_core * (self.reservation.capacity["cpu"].milli // 1000)) if per_core else most

    @property
    def allocatable_cpus(self) -> CPUSet:
        """CPUs that exclusive allocation may ever use; empty with policy ``none``."""
        if self.cpu is None:
            return CPUSet()
        return CPUSet(self.cpu.topology.all_cpus & ~self.cpu.reserved)


def build_settings(config: KubeletConfig, mooring: MooringConfig, info: MachineInfo) -> Settings | StartRefusal:
    """Do what the kubelet does before it looks at its checkpoint files; the first error stops it.

    Args:
        config: as written.
        mooring: which defects are fixed.
        info: the kubelet's view of the machine.
    """
    gates = _gates_of_command(config, mooring)
    if isinstance(gates, StartRefusal):
        return gates
    config = with_defaults(config)
    invalid = validate(config, gates, mooring.release)
    if invalid:
        return StartRefusal.of("validation", *invalid)
    topology = topology_of(info)
    reservation = reserve(config, info, topology, mooring.release.rules)
    if isinstance(reservation, Fault):
        return StartRefusal.of("reservation", reservation)
    unguarded = _options_without_their_gate(config, gates)
    if unguarded:
        return StartRefusal.of("options", Fault(unguarded, Cause.OPTIONS_GATE))
    built = _managers(config, mooring, gates, info, reservation)
    if isinstance(built, StartRefusal):
        return built
    numa, cpu, memory = built
    unfit = soft_eviction_fault(config, info.memory_capacity)
    if unfit is not None:
        return StartRefusal.of("kubelet", unfit)
    # Without exclusive CPUs there is nothing that plugins could choose.
    chooser = None if cpu is None else cpu.chooser
    return Settings(
        config=config,
        fixed_defects=mooring.fixed_defects,
        extensions=mooring.extensions,
        gates=gates,
        reservation=reservation,
        topology=None if isinstance(topology, str) else topology,
        numa=numa,
        topology_policy=config.topology_manager_policy,
        pod_scope=config.topology_manager_scope == "pod",
        cpu=cpu,
        memory=memory,
        pod_level=pod_level_gates(gates, mooring.release.rules),
        numa_ids=tuple(sorted(node.node_id for node in info.topology)),
        info=info,
        replace_offline=mooring.replace_offline if CPU_HOTPLUG in mooring.extensions else "",
        device_alignments=mooring.device_alignments if DEVICE_ALIGNMENT in mooring.extensions else None,
        plugins=chooser if chooser is not None and isinstance(chooser, plugin_host.PluginHost) else None,
        release=mooring.release,
    )


def _managers(
    config: KubeletConfig, mooring: MooringConfig, gates: FeatureGates, info: MachineInfo, reservation: Reservation
) -> tuple[NUMAInfo, StaticPolicy | None, MemoryPolicy | None] | StartRefusal:
    """Build the managers in the kubelet's order; the first error stops it."""
    numa = numa_info(config, info, gates, mooring.release)
    if isinstance(numa, Fault):
        return StartRefusal.of("topologyManager", numa)
    cpu = cpu_policy(config, mooring, gates, topology_of(info), reservation, info.facts)
    if isinstance(cpu, Fault):
        return StartRefusal.of("cpuManager", cpu)
    memory = memory_policy(config, mooring, gates, info, reservation)
    return StartRefusal.of("memoryManager", memory) if isinstance(memory, Fault) else (numa, cpu, memory)


def topology_of(info: MachineInfo) -> Topology | str:
    """Return the topology of a machine's CPUs, or the kubelet's text that says why it cannot be made out."""
    try:
        return discover_topology(info)
    except TopologyError as error:
        return str(error)


def _gates_of_command(config: KubeletConfig, mooring: MooringConfig) -> FeatureGates | StartRefusal:
    """Return the gates, after the checks of the command line and of decoding.

    A gate is refused where the release finds the fault (rule gates-checked-after-decoding, up to v1.31).
    """
    release = mooring.release
    unknown = unknown_flag((flag.written for flag in config.checked.flags), release.name)
    if unknown is not None:
        return StartRefusal.of("flags", unknown)
    if config.checked.null_duration:
        return StartRefusal.of("decode", Fault('time: invalid duration ""'))
    gates = resolve_gates(config.feature_gates, known_gates(release.name), mooring.extensions)
    if isinstance(gates, FeatureGates):
        return gates
    if release.rules.gates_checked_after_decoding:
        return StartRefusal.of("featureGates", *gates)
    return StartRefusal.of("decode", *gates, prefix=DECODE_PREFIX)


def _options_without_their_gate(config: KubeletConfig, gates: FeatureGates) -> str:
    """Return the kubelet's text for policy options whose gate is off, else an empty text.

    Both gates can be off in older releases only (spec: releases.md sections 7 and 8). An empty map counts as given:
    the kubelet asks whether there is a map (cmd/kubelet/app/server.go).
    """
    options = config.cpu_manager_policy_options
    if (options or config.checked.cpu_options_empty) and not gates[CPU_OPTIONS_GATE]:
        needed = f'"CPUManager", {quote(CPU_OPTIONS_GATE)}'
        return f"CPU Manager policy options {map_text(options)} require feature gates {needed} enabled"
    options = config.topology_manager_policy_options
    if (options or config.checked.topology_options_empty) and not gates[TOPOLOGY_OPTIONS_GATE]:
        needed = quote(TOPOLOGY_OPTIONS_GATE)
        return f"topology manager policy options {map_text(options)} require feature gates {needed} enabled"
    return ""


def policies(settings: Settings) -> str:
    """Return in one line the kubelet's release unless it is the newest, the policies and the options that are on."""
    config = settings.config
    parts = [] if settings.release == NEWEST else [f"kubelet {settings.release}"]
    parts += [f"CPU manager {config.cpu_manager_policy}"]
    parts += sorted(name for name, value in config.cpu_manager_policy_options.items() if value in TRUE_WORDS)
    scope = f", scope {config.topology_manager_scope}" if config.topology_manager_policy != "none" else ""
    parts.append(f"topology manager {config.topology_manager_policy}{scope}")
    if config.memory_manager_policy != "None":
        parts.append(f"memory manager {config.memory_manager_policy}")
    return " · ".join(parts)


@dataclass(frozen=True, slots=True)
class RestoredStates:
    """What reading the checkpoint files came to."""

    cpu: CPUState | StartRefusal | None = None
    """The state, the kubelet's refusal to restore it, or None when there is no file."""
    memory: MemoryState | StartRefusal | None = None
    """The same for the memory manager's file."""


Started: TypeAlias = tuple[CPUState | None, MemoryState | None, StartRefusal | None]
"""How far a start came: each manager's state afterwards, None where it was not reached or refused, and the refusal."""


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
    is_delaying = after.cpu is not None and after.cpu.delays
    kept = {
        pod: written
        for pod, held in cpu.pre_assignments.items()
        if is_delaying and (written := {name: pre for name, pre in held.items() if pre.is_written})
    }
    cpu = replace(cpu, pre_assignments=kept)
    if not (before.pod_level.managers and after.pod_level.managers):
        cpu, memory = replace(cpu, pods={}), replace(memory, pods={})
    return RestoredStates(cpu, memory)


def start_managers(
    settings: Settings, restored: RestoredStates, observer: Observer | None = None, *, runs: bool = False
) -> Started:
    """Start the CPU manager, then the memory manager, then check the reservation against the machine.

    When the CPU manager fails the memory manager's file is neither read nor made. A running kubelet can write a state
    on which it would not start again, such as an empty shared pool (kubernetes/kubernetes#141196), or memory of a group
    that counts on another of its nodes after a release (kubernetes/kubernetes#131253): of it only the policies are
    checked.

    Args:
        settings: configuration and policies.
        restored: what the files hold.
        observer: receives what was found.
        runs: whether the kubelet runs and has written what was read.

    Raises:
        KubeletCrashError: the memory manager's file has a group of nodes that do not list the same types of memory.
    """
    cpu = _read("cpu", restored.cpu, CPUState(settings.config.cpu_manager_policy, NO_CPUS, {}))
    if isinstance(cpu, CPUState) and settings.cpu is not None and not runs:
        contradiction = why_not_fresh(cpu) if settings.cpu.resizes else ""
        begun = Fault(contradiction, Cause.FILE_CONTRADICTS) if contradiction else start(settings.cpu, cpu)
        cpu = _not_begun("cpu", begun) if isinstance(begun, Fault) else begun
    if isinstance(cpu, StartRefusal):
        return None, None, cpu
    memory = _read("memory", restored.memory, MemoryState(settings.config.memory_manager_policy, {}, {}))
    if isinstance(memory, MemoryState) and settings.memory is not None and not runs:
        served = start_memory(settings.memory, memory, observer)
        memory = _not_begun("memory", Fault(served, Cause.FILE_CONTRADICTS)) if isinstance(served, str) else served
    if isinstance(memory, StartRefusal):
        return cpu, None, memory
    overcommitted = None if runs else settings.reservation.overcommitment(settings.release.rules)
    return cpu, memory, StartRefusal.of("start", overcommitted) if overcommitted else None


_State = TypeVar("_State", CPUState, MemoryState)


def _read(manager: Manager, found: _State | StartRefusal | None, empty: _State) -> _State | StartRefusal:
    """Return a state that was read, the empty one where there is no file, or the refusal of another policy's."""
    if found is None:
        return empty
    if not isinstance(found, StartRefusal) and found.policy != empty.policy:
        return other_policy(manager, empty.policy, found.policy)
    return found


def _not_begun(manager: Manager, fault: Fault) -> StartRefusal:
    text = f"start {manager} manager error: {fault.text}"
    return StartRefusal.of("start", replace(fault, text=text, names=(manager,)))


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
