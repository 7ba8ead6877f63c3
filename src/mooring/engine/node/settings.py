"""Building the managers: from configuration and machine to everything that decisions need, or the kubelet's refusal.

Source: kubelet v1.37.1, the order of cmd/kubelet/app/server.go and cm/container_manager_linux.go; spec:
configuration.md sections 2 to 5, topology-manager.md section 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mooring.engine.core.config import (
    CPU_HOTPLUG,
    DEVICE_ALIGNMENT,
    DeviceAlignments,
    KubeletConfig,
    MooringConfig,
    with_defaults,
)
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import Cause, Fault, StartRefusal
from mooring.engine.core.gotext import map_text, quote
from mooring.engine.core.machineinfo import MachineInfo
from mooring.engine.core.pod import PodLevelGates
from mooring.engine.core.release import DECODE_PREFIX, NEWEST, FeatureGates, Release, resolve_gates
from mooring.engine.core.topology import Topology, TopologyError, discover_topology
from mooring.engine.cpumanager.policy import StaticPolicy
from mooring.engine.memorymanager.policy import MemoryPolicy
from mooring.engine.node.policies import cpu_policy, memory_policy, numa_info, pod_level_gates
from mooring.engine.node.reservation import Reservation, reserve, soft_eviction_fault
from mooring.engine.node.validation import validate
from mooring.engine.releases.config_fields import unknown_flag
from mooring.engine.releases.gates import known_gates
from mooring.engine.topologymanager.hints import NUMAInfo
from mooring.lazy import dataclass, field, lazily

if TYPE_CHECKING:
    from mooring.engine.plugins.host import PluginHost

with lazily():
    import mooring.engine.plugins.host as plugin_host

_TRUE = ("1", "t", "T", "TRUE", "true", "True")
"""What Go's ParseBool takes for true."""


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
    unfit = soft_eviction_fault(config, info.memory_capacity)
    if unfit is not None:
        return StartRefusal.of("kubelet", unfit)
    numa, cpu, memory = built
    # The host of the node's plugins; without exclusive CPUs there is nothing that they could choose
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
        plugins=(chooser if chooser is not None and isinstance(chooser, plugin_host.PluginHost) else None),
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
    parts += sorted(name for name, value in config.cpu_manager_policy_options.items() if value in _TRUE)
    scope = f", scope {config.topology_manager_scope}" if config.topology_manager_policy != "none" else ""
    parts.append(f"topology manager {config.topology_manager_policy}{scope}")
    if config.memory_manager_policy != "None":
        parts.append(f"memory manager {config.memory_manager_policy}")
    return " · ".join(parts)
