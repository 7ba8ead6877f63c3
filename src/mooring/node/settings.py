"""Building the managers: from configuration and machine to everything that decisions need, or the kubelet's refusal.

Source: kubelet v1.37.1, the order of cmd/kubelet/app/server.go and cm/container_manager_linux.go; spec:
configuration.md sections 2 to 5, topology-manager.md section 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mooring.core.bits import CPUMask, NUMAMask, mask_of
from mooring.core.config import (
    CPU_HOTPLUG,
    DEVICE_ALIGNMENT,
    EXCLUSIVE_RESIZE,
    SCALE_DOWN_DELAY,
    DeviceAlignments,
    KubeletConfig,
    MooringConfig,
    with_defaults,
)
from mooring.core.cpuset import CPUSet
from mooring.core.decision import Endless, StartRefusal
from mooring.core.gates import DECODE_PREFIX, EXTENSION_GATES, FeatureGates, resolve_gates
from mooring.core.gotext import map_text, quote
from mooring.core.machineinfo import CPUFacts, MachineInfo
from mooring.core.plugins import PluginChoice
from mooring.core.pod import PodLevelGates, StatusSizes
from mooring.core.release import NEWEST, Release, ReleaseRules
from mooring.core.topology import Topology, TopologyError, discover_topology
from mooring.cpumanager.chooser import CPUsChosen, CPUsWanted, Purpose
from mooring.cpumanager.options import EXCLUSIVE_RESIZE_GATE, TakeError, TakeRules, check_against_machine, parse_options
from mooring.cpumanager.policy import STATIC, ScaleDown, StaticPolicy
from mooring.cpumanager.state import CPUState
from mooring.cpumanager.take import take
from mooring.lazy import lazily
from mooring.memorymanager.machine import default_machine_state, reserved_table
from mooring.memorymanager.policy import STATIC as MEMORY_STATIC
from mooring.memorymanager.policy import MemoryPolicy
from mooring.node.reservation import Reservation, reserve
from mooring.node.validation import SCOPES, validate
from mooring.releases.gates import known_gates
from mooring.releases.policy_options import cpu_option_groups, topology_option_groups
from mooring.topologymanager.distances import NUMAInfo
from mooring.topologymanager.merge import NONE, POLICIES, RESTRICTED, SINGLE_NUMA_NODE
from mooring.topologymanager.options import STABLE, OptionGuard
from mooring.topologymanager.options import parse_options as parse_topology_options

with lazily():
    import mooring.plugins.host as plugin_host

if TYPE_CHECKING:
    from mooring.plugins.host import PluginHost
    from mooring.plugins.values import MachineView

MEMORY_RESIZE_GATE = "InPlacePodVerticalScalingExclusiveMemory"
CPU_OPTIONS_GATE = "CPUManagerPolicyOptions"
TOPOLOGY_OPTIONS_GATE = "TopologyManagerPolicyOptions"
TOPOLOGY_GROUP_GATES = {"beta": "TopologyManagerPolicyBetaOptions", "alpha": "TopologyManagerPolicyAlphaOptions"}
POD_DELAY_GATE = EXTENSION_GATES[SCALE_DOWN_DELAY][0]
HIGHEST_NODE = 63
"""The kubelet's masks of NUMA nodes have 64 bits."""


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


def build_settings(
    config: KubeletConfig,
    mooring: MooringConfig,
    info: MachineInfo,
) -> Settings | StartRefusal:
    """Do what the kubelet does before it looks at its checkpoint files; the first error stops it.

    Args:
        config: as written.
        mooring: which defects are fixed.
        info: the kubelet's view of the machine.
    """
    config = with_defaults(config)
    gates = resolve_gates(config.feature_gates, known_gates(mooring.release.name), mooring.extensions)
    if isinstance(gates, str):
        return _gates_refused(gates, mooring.release.rules)
    invalid = validate(config, gates, mooring.release.rules)
    if invalid:
        return StartRefusal("validation", invalid)
    topology = topology_of(info)
    reservation = reserve(config, info, topology, mooring.release.rules)
    if isinstance(reservation, str):
        return StartRefusal("reservation", reservation)
    unguarded = _options_without_their_gate(config, gates)
    if unguarded:
        return StartRefusal("options", unguarded)
    numa = _numa_info(config, info, _option_guard(gates, mooring.release))
    if isinstance(numa, str):
        return StartRefusal("topologyManager", numa)
    cpu = _cpu_policy(config, mooring, gates, topology, reservation, info.facts)
    if isinstance(cpu, str):
        return StartRefusal("cpuManager", cpu)
    memory = _memory_policy(config, mooring, gates, info, reservation)
    if isinstance(memory, str):
        return StartRefusal("memoryManager", memory)
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
        pod_level=_pod_level(gates, mooring.release.rules),
        numa_ids=tuple(sorted(node.node_id for node in info.topology)),
        replace_offline=mooring.replace_offline if CPU_HOTPLUG in mooring.extensions else "",
        device_alignments=mooring.device_alignments if DEVICE_ALIGNMENT in mooring.extensions else None,
        plugins=_plugins_of(cpu),
        release=mooring.release,
    )


def _plugins_of(policy: StaticPolicy | None) -> PluginHost | None:
    """Return the host of the node's plugins; without exclusive CPUs there is nothing that they could choose."""
    chooser = None if policy is None else policy.chooser
    return chooser if chooser is not None and isinstance(chooser, plugin_host.PluginHost) else None


def _pod_level(gates: FeatureGates, older: ReleaseRules) -> PodLevelGates:
    """Return how pods with pod-level resources are treated.

    The managers do not know these resources up to v1.33 (rule pod-level-pods-by-containers), and up to v1.35 not while
    the gate is off (rule pod-level-pods-by-containers-without-gate; spec: releases.md sections 6 and 8).
    """
    is_on = gates["PodLevelResources"]
    unknown = older.pod_level_pods_by_containers or (older.pod_level_pods_by_containers_without_gate and not is_on)
    return PodLevelGates(
        is_on, gates["PodLevelResourceManagers"], unknown_to_managers=unknown, statuses=_statuses(gates, older)
    )


def _statuses(gates: FeatureGates, older: ReleaseRules) -> StatusSizes:
    if not (older.status_resources_decide_size and gates["InPlacePodVerticalScaling"]):
        return StatusSizes.NONE
    return StatusSizes.APPS if older.status_of_init_containers_ignored else StatusSizes.APPS_AND_SIDECARS


def topology_of(info: MachineInfo) -> Topology | str:
    """Return the topology of a machine's CPUs, or the kubelet's text that says why it cannot be made out."""
    try:
        return discover_topology(info)
    except TopologyError as error:
        return str(error)


def _gates_refused(problem: str, older: ReleaseRules) -> StartRefusal:
    """Refuse gates where the release finds the fault (rule gates-checked-after-decoding, up to v1.31)."""
    if older.gates_checked_after_decoding:
        return StartRefusal("featureGates", problem)
    return StartRefusal("decode", DECODE_PREFIX + problem)


def _options_without_their_gate(config: KubeletConfig, gates: FeatureGates) -> str:
    """Return the kubelet's text for policy options whose gate is off, else an empty text.

    Both gates can be off in older releases only (spec: releases.md sections 7 and 8).
    """
    options = config.cpu_manager_policy_options
    if options and not gates[CPU_OPTIONS_GATE]:
        needed = f'"CPUManager", {quote(CPU_OPTIONS_GATE)}'
        return f"CPU Manager policy options {map_text(options)} require feature gates {needed} enabled"
    options = config.topology_manager_policy_options
    if options and not gates[TOPOLOGY_OPTIONS_GATE]:
        needed = quote(TOPOLOGY_OPTIONS_GATE)
        return f"topology manager policy options {map_text(options)} require feature gates {needed} enabled"
    return ""


def _option_guard(gates: FeatureGates, release: Release) -> OptionGuard:
    enabled = {group for group, gate in TOPOLOGY_GROUP_GATES.items() if gates[gate]} | {STABLE}
    groups = topology_option_groups(release.name)
    return OptionGuard(groups, frozenset(enabled), release.rules.capitalized_topology_option_texts)


def _numa_info(config: KubeletConfig, info: MachineInfo, guard: OptionGuard) -> NUMAInfo | str:
    """Build the topology manager: with policy ``none`` nothing is checked, not even bad options."""
    policy = config.topology_manager_policy
    ids = [node.node_id for node in info.topology]
    if policy == NONE:
        return NUMAInfo(NUMAMask(mask_of(node for node in ids if 0 <= node <= HIGHEST_NODE)))
    options = parse_topology_options(config.topology_manager_policy_options, guard)
    if isinstance(options, str):
        return options
    if options.prefer_closest and any(node.distances is None for node in info.topology):
        return "cannot discover NUMA topology: error getting NUMA distances from cadvisor"
    if len(ids) > options.max_allowable:
        return f"unsupported on machines with more than {options.max_allowable} NUMA Nodes"
    if policy not in POLICIES:
        return f"unknown policy: {quote(policy)}"
    if config.topology_manager_scope not in SCOPES:
        return f"unknown scope: {quote(config.topology_manager_scope)}"
    if any(not 0 <= node <= HIGHEST_NODE for node in ids):
        # The kubelet ignores this error and crashes at the first pod.
        return f"bit number must be in range 0-{HIGHEST_NODE}"
    distances: Mapping[int, tuple[int, ...]] | None = None
    if options.prefer_closest and policy != SINGLE_NUMA_NODE:
        distances = {node.node_id: node.distances or () for node in info.topology}
    return NUMAInfo(NUMAMask(mask_of(ids)), distances)


def _cpu_policy(
    config: KubeletConfig,
    mooring: MooringConfig,
    gates: FeatureGates,
    topology: Topology | str,
    reservation: Reservation,
    facts: CPUFacts,
) -> StaticPolicy | str | None:
    """Build the CPU manager's policy: the policy, the kubelet's error, or None for policy ``none``."""
    # Up to v1.31 only the static policy reads the machine (rule machine-not-read-for-policy-none).
    if isinstance(topology, str) and not mooring.release.rules.machine_not_read_for_policy_none:
        return topology
    if config.cpu_manager_policy == "none":
        options = config.cpu_manager_policy_options
        if options:
            return f"new none policy error: None policy: received unsupported options={map_text(options)}"
        return None
    if config.cpu_manager_policy != STATIC:
        return f"unknown policy: {quote(config.cpu_manager_policy)}"
    if isinstance(topology, str):
        return topology
    amount = reservation.reserved.get("cpu")
    if amount is None:
        return "[cpumanager] unable to determine reserved CPU resources for static policy"
    count = -(-amount.milli // 1000)
    policy = _static_policy(config, mooring, gates, topology, reservation.cpus, count, facts)
    return f"new static policy error: {policy}" if isinstance(policy, str) else policy


def _static_policy(
    config: KubeletConfig,
    mooring: MooringConfig,
    gates: FeatureGates,
    topology: Topology,
    explicit: CPUSet,
    count: int,
    facts: CPUFacts,
) -> StaticPolicy | str:
    """Build the static policy with ``count`` reserved CPUs; option errors come before those of the reservation."""
    fixed = mooring.fixed_defects
    options = parse_options(
        config.cpu_manager_policy_options, gates, mooring.extensions, cpu_option_groups(mooring.release.name)
    )
    if isinstance(options, str):
        return options
    refused = check_against_machine(options, topology, config.topology_manager_policy, fixed)
    if refused:
        return refused
    rules = options.take_rules(fixed, mooring.release.rules)
    host = None
    if mooring.plugins.plugins:
        host = _host(config, mooring.plugins, plugin_host.machine_view(topology, rules, facts))
    reserved = explicit.mask
    if not reserved:
        taken = _reserved(topology, rules, host, count)
        if isinstance(taken, Endless):
            return f"the kubelet would not return (defect {taken.defect})"
        # An error of the take counts as an empty set.
        reserved = CPUMask(taken if isinstance(taken, int) else 0)
    if reserved.bit_count() != count:
        return (
            f"[cpumanager] unable to reserve the required amount of CPUs "
            f"(size of {CPUSet(reserved)} did not equal {count})"
        )
    resizes = EXCLUSIVE_RESIZE in mooring.extensions and gates[EXCLUSIVE_RESIZE_GATE]
    delays = resizes and SCALE_DOWN_DELAY in mooring.extensions
    return StaticPolicy(
        topology=topology,
        rules=rules,
        reserved=reserved,
        reserved_cores=topology.core_siblings(reserved),
        strict_reservation=options.strict_reservation,
        gates=_pod_level(gates, mooring.release.rules),
        resizes=resizes,
        scale_down=ScaleDown(is_on=delays, node_delay=options.scale_delay, of_pods=delays and gates[POD_DELAY_GATE]),
        chooser=host.reserving(reserved) if host is not None else None,
    )


def _host(config: KubeletConfig, plugins: PluginChoice, machine: MachineView) -> PluginHost:
    keeps_hints = config.topology_manager_policy in {RESTRICTED, SINGLE_NUMA_NODE}
    return plugin_host.PluginHost(plugins, machine, keeps_hints=keeps_hints)


def _reserved(topology: Topology, rules: TakeRules, host: PluginHost | None, count: int) -> int | TakeError | Endless:
    """Take the system's CPUs: by the kubelet's rules, or as plugins would have them."""
    if host is not None:
        empty = CPUState(STATIC, topology.all_cpus, {})
        found = host.chosen(empty, CPUsWanted(Purpose.RESERVED, count, topology.all_cpus), None)
        if found is not None:
            return found.cpus if isinstance(found, CPUsChosen) else found
    return take(topology, topology.all_cpus, count, rules)


def _memory_policy(
    config: KubeletConfig, mooring: MooringConfig, gates: FeatureGates, info: MachineInfo, reservation: Reservation
) -> MemoryPolicy | str | None:
    """Build the memory manager's policy: the policy, the kubelet's error, or None for policy ``None``."""
    name = config.memory_manager_policy
    if name == "None" or not gates.values.get("MemoryManager", True):  # see Settings.has_memory_manager
        return None
    if name == "BestEffort" and not mooring.release.rules.best_effort_memory_policy_unknown:
        return f'policy {quote(name)} is not available for platform "linux"'
    if name != MEMORY_STATIC:
        return f"unknown policy: {quote(name)}"
    ids = [node.node_id for node in info.topology]
    fixed = mooring.fixed_defects
    reserved = reserved_table(config.reserved_memory, ids, reservation.reserved, fixed)
    if isinstance(reserved, str):
        return reserved
    resizes = EXCLUSIVE_RESIZE in mooring.extensions and gates[MEMORY_RESIZE_GATE]
    older = mooring.release.rules
    return MemoryPolicy(
        default_machine_state(info, reserved), _pod_level(gates, older), fixed, resizes=resizes, older=older
    )
