"""Building the policies of the three managers: from what is configured, or the kubelet's refusal.

Source: kubelet v1.37.1, cm/topologymanager/topology_manager.go, cm/cpumanager/cpu_manager.go and policy_static.go,
cm/memorymanager/memory_manager.go; spec: configuration.md section 5, topology-manager.md section 1.
"""

from __future__ import annotations

from collections.abc import Mapping

from mooring.engine.core.bits import CPUMask, NUMAMask, mask_of
from mooring.engine.core.config import EXCLUSIVE_RESIZE, SCALE_DOWN_DELAY, KubeletConfig, MooringConfig
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import Cause, Endless, Fault
from mooring.engine.core.gotext import map_text, quote
from mooring.engine.core.machineinfo import CPUFacts, MachineInfo
from mooring.engine.core.pod import PodLevelGates, StatusSizes
from mooring.engine.core.release import EXTENSION_GATES, FeatureGates, Release, ReleaseRules
from mooring.engine.core.topology import Topology
from mooring.engine.cpumanager.options import (
    EXCLUSIVE_RESIZE_GATE,
    STRICT_RESERVATION,
    TakeRules,
    check_against_machine,
    parse_options,
)
from mooring.engine.cpumanager.options import FIELD as CPU_OPTIONS
from mooring.engine.cpumanager.policy import STATIC, CPUsChosen, CPUsWanted, StaticPolicy
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.cpumanager.take import take
from mooring.engine.memorymanager.policy import STATIC as MEMORY_STATIC
from mooring.engine.memorymanager.policy import MemoryPolicy, default_machine_state, reserved_table
from mooring.engine.node.reservation import Reservation
from mooring.engine.node.validation import SCOPES
from mooring.engine.releases.gates import cpu_option_groups, topology_option_groups
from mooring.engine.topologymanager.hints import NUMAInfo
from mooring.engine.topologymanager.merge import FIELD as TOPOLOGY_OPTIONS
from mooring.engine.topologymanager.merge import (
    GROUP_GATES,
    MAX_ALLOWABLE,
    NONE,
    POLICIES,
    PREFER_CLOSEST,
    RESTRICTED,
    SINGLE_NUMA_NODE,
    STABLE,
)
from mooring.engine.topologymanager.merge import parse_options as parse_topology_options
from mooring.lazy import lazily, replace

with lazily():
    import mooring.engine.plugins.host as plugin_host
    import mooring.engine.plugins.values as plugin_values


MEMORY_RESIZE_GATE = "InPlacePodVerticalScalingExclusiveMemory"
POD_DELAY_GATE = EXTENSION_GATES[SCALE_DOWN_DELAY][0]
HIGHEST_NODE = 63
"""The kubelet's masks of NUMA nodes have 64 bits."""


def numa_info(config: KubeletConfig, info: MachineInfo, gates: FeatureGates, release: Release) -> NUMAInfo | Fault:
    """Build the topology manager: with policy ``none`` nothing is checked, not even bad options."""
    policy = config.topology_manager_policy
    ids = [node.node_id for node in info.topology]
    if policy == NONE:
        return NUMAInfo(NUMAMask(mask_of(node for node in ids if 0 <= node <= HIGHEST_NODE)))
    enabled = {group for group, gate in GROUP_GATES.items() if gates[gate]} | {STABLE}
    options = parse_topology_options(
        config.topology_manager_policy_options,
        topology_option_groups(release.name),
        enabled,
        capitalized=release.rules.capitalized_topology_option_texts,
    )
    if isinstance(options, Fault):
        return options
    prefer_closest, max_allowable = options
    if prefer_closest and any(node.distances is None for node in info.topology):
        text = "cannot discover NUMA topology: error getting NUMA distances from cadvisor"
        return Fault(text, Cause.NO_DISTANCES, TOPOLOGY_OPTIONS, (PREFER_CLOSEST,))
    if len(ids) > max_allowable:
        text = f"unsupported on machines with more than {max_allowable} NUMA Nodes"
        return Fault(text, Cause.TOO_MANY_NODES, TOPOLOGY_OPTIONS, (MAX_ALLOWABLE,), (str(max_allowable),))
    if policy not in POLICIES:
        return Fault(f"unknown policy: {quote(policy)}", field="topologyManagerPolicy")
    if config.topology_manager_scope not in SCOPES:
        return Fault(f"unknown scope: {quote(config.topology_manager_scope)}", field="topologyManagerScope")
    if any(not 0 <= node <= HIGHEST_NODE for node in ids):
        # The kubelet ignores this error and crashes at the first pod.
        return Fault(f"bit number must be in range 0-{HIGHEST_NODE}")
    distances: Mapping[int, tuple[int, ...]] | None = None
    if prefer_closest and policy != SINGLE_NUMA_NODE:
        distances = {node.node_id: node.distances or () for node in info.topology}
    return NUMAInfo(NUMAMask(mask_of(ids)), distances)


def cpu_policy(
    config: KubeletConfig,
    mooring: MooringConfig,
    gates: FeatureGates,
    topology: Topology | str,
    reservation: Reservation,
    facts: CPUFacts,
) -> StaticPolicy | Fault | None:
    """Build the CPU manager's policy: the policy, what is wrong, or None for policy ``none``."""
    # Up to v1.31 only the static policy reads the machine (rule machine-not-read-for-policy-none).
    if isinstance(topology, str) and not mooring.release.rules.machine_not_read_for_policy_none:
        return Fault(topology)
    if config.cpu_manager_policy == "none":
        options = config.cpu_manager_policy_options
        if options:
            text = f"new none policy error: None policy: received unsupported options={map_text(options)}"
            return Fault(text, Cause.OPTIONS_WITHOUT_POLICY, CPU_OPTIONS)
        return None
    if config.cpu_manager_policy != STATIC:
        return Fault(f'unknown policy: "{config.cpu_manager_policy}"', field="cpuManagerPolicy")
    if isinstance(topology, str):
        return Fault(topology)
    amount = reservation.reserved.get("cpu")
    if amount is None:
        text = "[cpumanager] unable to determine reserved CPU resources for static policy"
        return Fault(text, Cause.NO_RESERVED_CPUS)
    count = -(-amount.milli // 1000)
    policy = _static_policy(config, mooring, gates, topology, reservation.cpus, count, facts)
    return replace(policy, text=f"new static policy error: {policy.text}") if isinstance(policy, Fault) else policy


def _static_policy(
    config: KubeletConfig,
    mooring: MooringConfig,
    gates: FeatureGates,
    topology: Topology,
    explicit: CPUSet,
    count: int,
    facts: CPUFacts,
) -> StaticPolicy | Fault:
    """Build the static policy with ``count`` reserved CPUs; option errors come before those of the reservation."""
    fixed = mooring.fixed_defects
    options = parse_options(
        config.cpu_manager_policy_options, gates, mooring.extensions, cpu_option_groups(mooring.release.name)
    )
    if isinstance(options, Fault):
        return options
    on, scale_delay = options
    refused = check_against_machine(on, topology, config.topology_manager_policy, fixed)
    if refused is not None:
        return refused
    rules = TakeRules.of(on, fixed, mooring.release.rules)
    host = None
    if mooring.plugins.plugins:
        keeps_hints = config.topology_manager_policy in {RESTRICTED, SINGLE_NUMA_NODE}
        machine = plugin_values.machine_view(topology, rules, facts)
        host = plugin_host.PluginHost(mooring.plugins, machine, keeps_hints=keeps_hints)
    reserved = explicit.mask
    if not reserved:
        # By the kubelet's rules, or as plugins would have them.
        empty = CPUState(STATIC, topology.all_cpus, {})
        found = None if host is None else host.chosen(empty, CPUsWanted(count, topology.all_cpus), None)
        taken = take(topology, topology.all_cpus, count, rules) if found is None else found
        if isinstance(taken, CPUsChosen):
            taken = taken.cpus
        if isinstance(taken, Endless):
            return Fault(f"the kubelet would not return (defect {taken.defect})")
        # An error of the take counts as an empty set.
        reserved = CPUMask(taken if isinstance(taken, int) else 0)
    if reserved.bit_count() != count:
        text = (
            f"[cpumanager] unable to reserve the required amount of CPUs "
            f"(size of {CPUSet(reserved)} did not equal {count})"
        )
        return Fault(text, Cause.TOO_FEW_CPUS)
    is_resizing = mooring.release.rules.resizes_exclusive_cpus or EXCLUSIVE_RESIZE in mooring.extensions
    resizes = is_resizing and gates[EXCLUSIVE_RESIZE_GATE]
    delays = resizes and SCALE_DOWN_DELAY in mooring.extensions
    return StaticPolicy(
        topology=topology,
        rules=rules,
        reserved=reserved,
        reserved_cores=topology.core_siblings(reserved),
        strict_reservation=STRICT_RESERVATION in on,
        gates=pod_level_gates(gates, mooring.release.rules),
        resizes=resizes,
        delays=delays,
        node_delay=scale_delay,
        delays_of_pods=delays and gates[POD_DELAY_GATE],
        chooser=host.reserving(reserved) if host is not None else None,
    )


def memory_policy(
    config: KubeletConfig, mooring: MooringConfig, gates: FeatureGates, info: MachineInfo, reservation: Reservation
) -> MemoryPolicy | Fault | None:
    """Build the memory manager's policy: the policy, what is wrong, or None for policy ``None``."""
    name = config.memory_manager_policy
    if name == "None" or not gates.values.get("MemoryManager", True):  # see Settings.has_memory_manager
        return None
    if name == "BestEffort" and not mooring.release.rules.best_effort_memory_policy_unknown:
        return Fault(f'policy {quote(name)} is not available for platform "linux"', field="memoryManagerPolicy")
    if name != MEMORY_STATIC:
        return Fault(f"unknown policy: {quote(name)}", field="memoryManagerPolicy")
    ids = [node.node_id for node in info.topology]
    fixed = mooring.fixed_defects
    reserved = reserved_table(config.reserved_memory, ids, reservation.reserved, fixed)
    if isinstance(reserved, Fault):
        return reserved
    resizes = EXCLUSIVE_RESIZE in mooring.extensions and gates[MEMORY_RESIZE_GATE]
    older = mooring.release.rules
    return MemoryPolicy(
        default_machine_state(info, reserved), pod_level_gates(gates, older), fixed, resizes=resizes, older=older
    )


def pod_level_gates(gates: FeatureGates, older: ReleaseRules) -> PodLevelGates:
    """Return how pods with pod-level resources are treated.

    The managers do not know these resources up to v1.33 (rule pod-level-pods-by-containers), and up to v1.35 not while
    the gate is off (rule pod-level-pods-by-containers-without-gate; spec: releases.md sections 6 and 8).
    """
    is_on = gates["PodLevelResources"]
    unknown = older.pod_level_pods_by_containers or (older.pod_level_pods_by_containers_without_gate and not is_on)
    statuses = StatusSizes.NONE
    if older.status_resources_decide_size and gates["InPlacePodVerticalScaling"]:
        statuses = StatusSizes.APPS if older.status_of_init_containers_ignored else StatusSizes.APPS_AND_SIDECARS
    return PodLevelGates(is_on, gates["PodLevelResourceManagers"], unknown_to_managers=unknown, statuses=statuses)
