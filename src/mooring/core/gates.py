"""Feature gates of kubelet v1.37.1, as far as the resource managers depend on them.

Source: pkg/features and component-base/featuregate of v1.37.1; spec: configuration.md section 2.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum

from mooring.core.gatenames import KUBELET_GATES

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
    """One feature gate."""

    default: bool
    stage: Stage
    locked: bool = False
    """Whether it can be set to its default only."""
    needs: str = ""
    """A gate without which this one may not be on."""


GATES: Mapping[str, Gate] = {
    "CPUManagerPolicyOptions": Gate(True, Stage.GA, locked=True),
    "CPUManagerPolicyBetaOptions": Gate(True, Stage.BETA),
    "CPUManagerPolicyAlphaOptions": Gate(False, Stage.ALPHA),
    "TopologyManagerPolicyOptions": Gate(True, Stage.GA, locked=True),
    "TopologyManagerPolicyBetaOptions": Gate(True, Stage.BETA),
    "TopologyManagerPolicyAlphaOptions": Gate(False, Stage.ALPHA),
    "DisableCPUQuotaWithExclusiveCPUs": Gate(True, Stage.DEPRECATED, locked=True),
    "PodLevelResources": Gate(True, Stage.BETA),
    "PodLevelResourcesFixKubeletQOSClass": Gate(True, Stage.BETA, needs="PodLevelResources"),
    "PodLevelResourcesFixDefaulting": Gate(True, Stage.BETA, needs="PodLevelResources"),
    "PodLevelResourceManagers": Gate(False, Stage.BETA, needs="PodLevelResources"),
    "InPlacePodVerticalScaling": Gate(True, Stage.GA, locked=True),
    "InPlacePodVerticalScalingInitContainers": Gate(True, Stage.GA, locked=True),
    "InPlacePodLevelResourcesVerticalScaling": Gate(True, Stage.BETA, needs="PodLevelResources"),
    "InPlacePodVerticalScalingExclusiveCPUs": Gate(False, Stage.ALPHA),
    "InPlacePodVerticalScalingExclusiveMemory": Gate(False, Stage.ALPHA),
    "InPlacePodVerticalScalingMemoryBackedVolumes": Gate(False, Stage.ALPHA),
    "CustomCPUCFSQuotaPeriod": Gate(True, Stage.GA),
    "DynamicResourceAllocation": Gate(True, Stage.GA, locked=True),
    "KubeletPodResourcesGet": Gate(True, Stage.GA, locked=True),
    "KubeletPodResourcesDynamicResources": Gate(True, Stage.GA, locked=True),
    "KubeletPodResourcesListUseActivePods": Gate(True, Stage.DEPRECATED),
    "MemoryQoS": Gate(True, Stage.BETA),
    "WindowsCPUAndMemoryAffinity": Gate(False, Stage.ALPHA),
}
"""The gates that matter here, as they stand in v1.37.1."""

EXTENSION_GATES: Mapping[str, tuple[str, Gate]] = {
    "scale-down-delay": (
        "InPlacePodVerticalScalingExclusiveCPUsScaleDownDelay",
        Gate(False, Stage.ALPHA, needs="InPlacePodVerticalScalingExclusiveCPUs"),
    ),
}
"""Gates that v1.37.1 does not know and that an extension of Mooring brings: extension -> name and gate (KEP-6122)."""

SWITCHES: Mapping[Stage, str] = {Stage.ALPHA: "AllAlpha", Stage.BETA: "AllBeta"}
"""The gates that set all gates of one stage (component-base/featuregate); other stages have none."""

REMOVED_GATES = frozenset({"CPUManager", "MemoryManager", "TopologyManager"})
"""Gates of older kubelets that v1.37.1 does not know any more."""


@dataclass(frozen=True, slots=True)
class FeatureGates:
    """The gates as they stand after the configuration."""

    values: Mapping[str, bool]

    def __getitem__(self, name: str) -> bool:
        return self.values[name]


def resolve_gates(configured: Mapping[str, bool], extensions: Collection[str] = ()) -> FeatureGates | str:
    """Return the gates, or the kubelet's error text.

    Gates that the kubelet knows but the managers do not read are accepted and have no effect: neither their locks
    nor what they need is checked. So AllAlpha without AllBeta is accepted here, whereas the kubelet refuses it: some
    alpha gates of the scheduler need GenericWorkload, a beta gate that is off.

    Args:
        configured: the ``featureGates`` of the configuration.
        extensions: those of Mooring that are on; some bring a gate of their own.

    >>> resolve_gates({"CPUManager": True}).removeprefix(DECODE_PREFIX)
    'unrecognized feature gate: CPUManager'
    >>> gates = resolve_gates({"AllBeta": True, "MemoryQoS": False, "EventedPLEG": True})
    >>> gates["PodLevelResourceManagers"], gates["MemoryQoS"]
    (True, False)
    """
    known = {**GATES, **{name: gate for extension, (name, gate) in EXTENSION_GATES.items() if extension in extensions}}
    for name in sorted(configured):
        gate = known.get(name)
        if gate is None and name not in KUBELET_GATES:
            return f"{DECODE_PREFIX}unrecognized feature gate: {name}"
        if gate is not None and gate.locked and configured[name] != gate.default:
            wanted, fixed = str(configured[name]).lower(), str(gate.default).lower()
            return f"{DECODE_PREFIX}cannot set feature gate {name} to {wanted}, feature is locked to {fixed}"
    values = {name: _value(name, gate, configured) for name, gate in known.items()}
    unmet = [
        f"{name} is enabled, but depends on features that are disabled: [{gate.needs}]"
        for name, gate in known.items()
        if gate.needs and values[name] and not values[gate.needs]
    ]
    if unmet:
        return DECODE_PREFIX + (unmet[0] if len(unmet) == 1 else f"[{', '.join(unmet)}]")
    return FeatureGates(values)


def _value(name: str, gate: Gate, configured: Mapping[str, bool]) -> bool:
    """Return a gate's value: its own setting comes before its stage's switch, and that before its default.

    No lock is looked at: a locked gate is GA or deprecated, so no switch reaches it, and its own setting was checked.
    """
    if name in configured:
        return configured[name]
    switch = SWITCHES.get(gate.stage)
    return gate.default if switch is None else configured.get(switch, gate.default)
