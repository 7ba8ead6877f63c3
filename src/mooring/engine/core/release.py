"""A kubelet release as the engine knows it: its name, the rules of older kubelets that it still follows, feature gates.

The engine's own rules are those of the newest known release, which may be a preview. What an older kubelet does
otherwise is a named rule: a field of :class:`ReleaseRules`. The code beside the rule it changes reads that name and
compares no version numbers. Which release follows which rule, with the source, is in :mod:`mooring.engine.releases`,
and so are the feature gates, policy options and state file formats of each release. Here is what a gate is, how a
configuration sets those of a release, and what it refuses.

Source: component-base/featuregate of v1.37.1; spec: releases.md, configuration.md section 2.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields
from enum import Enum

from mooring.engine.core.decision import Cause, Fault
from mooring.lazy import dataclass


@dataclass(frozen=True, slots=True)
class ReleaseRules:
    """Rules of older kubelets; every rule that is off is decided as the newest known release does.

    The defaults are those of :data:`NEWEST`, which follows the rules that a preview drops.

    >>> {*ReleaseRules(device_hints_over_all_nodes=True).names()} - {*ReleaseRules().names()}
    {'device-hints-over-all-nodes'}
    """

    spread_by_cpu_number: bool = True
    average_sizes: bool = True
    uncore_by_average_size: bool = True
    distribute_ignores_hint_width: bool = True
    saved_combo: bool = True
    group_loop: bool = True
    claim_loop: bool = True
    huge_amounts_wrap: bool = True
    hints_without_score: bool = True
    pod_allocation_not_restored: bool = True
    pod_allocation_not_rolled_back: bool = True
    pod_memory_not_restored: bool = True
    pod_memory_of_app_types: bool = True
    restart_blocks_against_pod: bool = True
    gauges_by_difference: bool = True
    resize_names_policies: bool = True
    resize_retried_with_resources_only: bool = True
    json_texts_of_go_126: bool = True
    swap_behavior_needs_gate: bool = True
    certificate_algorithms_unknown: bool = True
    smt_check_before_existing: bool = False
    distribute_ignores_sockets: bool = False
    distribute_claims_full_share: bool = False
    empty_memory_request_is_served: bool = False
    empty_pod_resources_decide_qos: bool = False
    reserved_cpu_not_rounded: bool = False
    resize_asks_like_admission: bool = False
    memory_pinning_counted_first: bool = False
    device_hints_over_all_nodes: bool = False
    resize_beyond_node_refused: bool = False
    pod_level_pods_by_containers_without_gate: bool = False
    status_resources_decide_size: bool = False
    static_policies_refuse_every_resize: bool = False
    resize_leaves_eviction_threshold: bool = False
    resize_counts_sidecars_alone: bool = False
    partial_uncore_rounds_down: bool = False
    pod_level_pods_by_containers: bool = False
    pod_level_pods_admitted_without_gate: bool = False
    huge_page_limits_beside_requests: bool = False
    static_memory_policy_not_asked: bool = False
    status_of_init_containers_ignored: bool = False
    huge_page_requests_of_containers: bool = False
    eviction_defaults_not_merged: bool = False
    uncore_alignment_not_counted: bool = False
    alignment_not_counted_at_start: bool = False
    exclusive_cpus_summed_at_start: bool = False
    capitalized_topology_option_texts: bool = False
    static_cpu_policy_not_asked: bool = False
    smt_text_needs_free_cores: bool = False
    violating_hints_accepted: bool = False
    memory_file_compared_by_number: bool = False
    best_effort_memory_policy_unknown: bool = False
    machine_not_read_for_policy_none: bool = False
    pod_resources_unknown: bool = False
    gates_checked_after_decoding: bool = False
    default_pod_sysctls_unknown: bool = False
    memory_throttling_needs_no_gate: bool = False
    memory_reservation_policy_unknown: bool = False
    image_minimum_gc_age_not_checked: bool = False
    log_query_text_names_handler: bool = False
    run_once_accepted: bool = False
    resizes_exclusive_cpus: bool = False
    """Whether exclusive CPUs change with a resize by their gate alone (KEP-5554): in no known release. It is no rule of
    an older kubelet; a release that does it is an entry in :mod:`mooring.engine.releases.catalog`."""

    def names(self) -> tuple[str, ...]:
        """Return the names of the rules that are on, with hyphens."""
        return tuple(field.name.replace("_", "-") for field in fields(self) if getattr(self, field.name))


NEWEST_RULES = ReleaseRules()
"""The rules of :data:`NEWEST`."""


@dataclass(frozen=True, slots=True)
class Release:
    """A minor release of the kubelet.

    >>> str(NEWEST), str(Release("1.38", "v1.38.0-beta.0"))
    ('v1.37.2', 'v1.38.0-beta.0, a preview')
    """

    name: str
    """Such as ``1.34``; the key of every table in :mod:`mooring.engine.releases`."""
    tag: str
    """The patch release whose sources and recordings the rules are from, such as ``v1.34.4``."""
    rules: ReleaseRules = NEWEST_RULES
    """What this release decides otherwise than the newest known one."""

    @property
    def is_preview(self) -> bool:
        """Whether the release may still change before it is out."""
        return "-" in self.tag

    def __str__(self) -> str:
        return f"{self.tag}, a preview" if self.is_preview else self.tag


NEWEST = Release("1.37", "v1.37.2")
"""The newest release that is out: it decides where none is named."""


DECODE_PREFIX = "failed to merge global and in-flight KubeletConfiguration while setting defaults, error: "
"""What stands before every gate error: gates are checked while the configuration is decoded."""


class Stage(Enum):
    """How far a feature has come."""

    ALPHA = "alpha"
    BETA = "beta"
    GA = "GA"
    DEPRECATED = "deprecated"


@dataclass(frozen=True, slots=True)
class Gate:
    """One feature gate of one release."""

    default: bool
    stage: Stage
    locked: bool = False
    """Whether it can be set to its default only."""
    needs: tuple[str, ...] = ()
    """Gates without which this one may not be on, sorted."""


MANAGER_GATES = frozenset(
    {
        "CPUManagerPolicyOptions", "CPUManagerPolicyBetaOptions", "CPUManagerPolicyAlphaOptions",
        "TopologyManagerPolicyOptions", "TopologyManagerPolicyBetaOptions", "TopologyManagerPolicyAlphaOptions",
        "DisableCPUQuotaWithExclusiveCPUs", "PodLevelResources", "PodLevelResourcesFixKubeletQOSClass",
        "PodLevelResourcesFixDefaulting", "PodLevelResourceManagers", "InPlacePodVerticalScaling",
        "InPlacePodVerticalScalingInitContainers", "InPlacePodLevelResourcesVerticalScaling",
        "InPlacePodVerticalScalingExclusiveCPUs", "InPlacePodVerticalScalingExclusiveMemory",
        "InPlacePodVerticalScalingMemoryBackedVolumes", "CustomCPUCFSQuotaPeriod", "DynamicResourceAllocation",
        "KubeletPodResourcesGet", "KubeletPodResourcesDynamicResources", "KubeletPodResourcesListUseActivePods",
        "MemoryQoS", "WindowsCPUAndMemoryAffinity",
    },
)  # fmt: skip
"""The gates that concern the resource managers; all others only decide whether the kubelet starts."""

_ON_WITHOUT_GATE = frozenset({"DynamicResourceAllocation", "InPlacePodVerticalScaling", "NodeSwap"})
"""Features that every known release has, and whose gates are gone from 1.38 on."""

EXTENSION_GATES: Mapping[str, tuple[str, Gate]] = {
    "scale-down-delay": (
        "InPlacePodVerticalScalingExclusiveCPUsScaleDownDelay",
        Gate(False, Stage.ALPHA, needs=("InPlacePodVerticalScalingExclusiveCPUs",)),
    )
}
"""Gates that no kubelet knows and that an extension of Mooring brings: extension -> name and gate (KEP-6122)."""

SWITCHES: Mapping[Stage, str] = {Stage.ALPHA: "AllAlpha", Stage.BETA: "AllBeta"}
"""The gates that set all gates of one stage (component-base/featuregate); other stages have none."""


@dataclass(frozen=True, slots=True)
class FeatureGates:
    """The gates as they stand after the configuration."""

    values: Mapping[str, bool]

    def __getitem__(self, name: str) -> bool:
        """Return whether a feature is on. A gate that the release does not recognise came later, or is always on."""
        return self.values.get(name, name in _ON_WITHOUT_GATE)


def resolve_gates(
    configured: Mapping[str, bool], release: Mapping[str, Gate], extensions: Collection[str] = ()
) -> FeatureGates | tuple[Fault, ...]:
    """Return the gates, or what the kubelet finds wrong with them.

    Where several gates are wrong the kubelet names them in random order; here they are sorted.

    Args:
        configured: the ``featureGates`` of the configuration.
        release: the gates of the kubelet's release.
        extensions: those of Mooring that are on; some bring a gate of their own.

    >>> known = {"NodeSwap": Gate(True, Stage.GA, locked=True), "MemoryQoS": Gate(True, Stage.BETA)}
    >>> [fault.text for fault in resolve_gates({"CPUManager": True}, known)]
    ['unrecognized feature gate: CPUManager']
    >>> [fault.text for fault in resolve_gates({"NodeSwap": False}, known)]
    ['cannot set feature gate NodeSwap to false, feature is locked to true']
    >>> gates = resolve_gates({"MemoryQoS": False}, known)
    >>> gates["NodeSwap"], gates["MemoryQoS"], gates["OfALaterRelease"]
    (True, False, False)
    """
    brought = dict(EXTENSION_GATES[extension] for extension in extensions if extension in EXTENSION_GATES)
    known = {**release, **brought} if brought else release
    # Every locked gate that is set to its other value; the first unknown gate ends the search.
    faults: list[Fault] = []
    for name in sorted(configured):
        gate = known.get(name)
        if gate is None:
            faults.append(Fault(f"unrecognized feature gate: {name}", Cause.GATE, "featureGates", (name,)))
            break
        if gate.locked and configured[name] != gate.default:
            wanted, fixed = str(configured[name]).lower(), str(gate.default).lower()
            text = f"cannot set feature gate {name} to {wanted}, feature is locked to {fixed}"
            faults.append(Fault(text, Cause.GATE, "featureGates", (name,), (wanted, fixed)))
    if faults:
        return tuple(faults)
    # Every gate's value: its own setting comes before its stage's switch, and that before its default.
    #
    # No switch reaches a locked gate: locked gates are GA or deprecated.
    values = {name: gate.default for name, gate in known.items()}
    for stage, switch in SWITCHES.items():
        if switch in configured:
            values.update((name, configured[switch]) for name, gate in known.items() if gate.stage is stage)
    values.update(configured)
    unmet = tuple(
        Fault(
            f"{name} is enabled, but depends on features that are disabled: [{' '.join(missing)}]",
            Cause.GATE,
            "featureGates",
        )
        for name in sorted(name for name, gate in known.items() if gate.needs and values[name])
        if (missing := [need for need in known[name].needs if not values[need]])
    )
    return unmet or FeatureGates(values)
