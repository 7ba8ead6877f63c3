"""Feature gates of kubelet v1.37.1, as far as the resource managers depend on them.

Source: pkg/features of v1.37.1; spec: configuration.md section 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

DECODE_PREFIX = "failed to merge global and in-flight KubeletConfiguration while setting defaults, error: "
"""What stands before every gate error: gates are checked while the configuration is decoded."""


@dataclass(frozen=True, slots=True)
class Gate:
    """One feature gate."""

    default: bool
    locked: bool = False
    """Whether it can be set to its default only."""
    needs: str = ""
    """A gate without which this one may not be on."""


GATES: Mapping[str, Gate] = {
    "CPUManagerPolicyOptions": Gate(True, locked=True),
    "CPUManagerPolicyBetaOptions": Gate(True),
    "CPUManagerPolicyAlphaOptions": Gate(False),
    "TopologyManagerPolicyOptions": Gate(True, locked=True),
    "TopologyManagerPolicyBetaOptions": Gate(True),
    "TopologyManagerPolicyAlphaOptions": Gate(False),
    "DisableCPUQuotaWithExclusiveCPUs": Gate(True, locked=True),
    "PodLevelResources": Gate(True),
    "PodLevelResourcesFixKubeletQOSClass": Gate(True, needs="PodLevelResources"),
    "PodLevelResourcesFixDefaulting": Gate(True, needs="PodLevelResources"),
    "PodLevelResourceManagers": Gate(False, needs="PodLevelResources"),
    "InPlacePodVerticalScaling": Gate(True, locked=True),
    "InPlacePodVerticalScalingInitContainers": Gate(True, locked=True),
    "InPlacePodLevelResourcesVerticalScaling": Gate(True, needs="PodLevelResources"),
    "InPlacePodVerticalScalingExclusiveCPUs": Gate(False),
    "InPlacePodVerticalScalingExclusiveMemory": Gate(False),
    "InPlacePodVerticalScalingMemoryBackedVolumes": Gate(False),
    "CustomCPUCFSQuotaPeriod": Gate(True),
    "DynamicResourceAllocation": Gate(True, locked=True),
    "KubeletPodResourcesGet": Gate(True, locked=True),
    "KubeletPodResourcesDynamicResources": Gate(True, locked=True),
    "KubeletPodResourcesListUseActivePods": Gate(True),
    "MemoryQoS": Gate(True),
    "WindowsCPUAndMemoryAffinity": Gate(False),
}
"""The gates that matter here, with their defaults in v1.37.1."""

REMOVED_GATES = frozenset({"CPUManager", "MemoryManager", "TopologyManager"})
"""Gates of older kubelets that v1.37.1 does not know any more."""


@dataclass(frozen=True, slots=True)
class FeatureGates:
    """The gates as they stand after the configuration."""

    values: Mapping[str, bool]

    def __getitem__(self, name: str) -> bool:
        return self.values[name]


def resolve_gates(configured: Mapping[str, bool], others: frozenset[str] = frozenset()) -> FeatureGates | str:
    """Return the gates, or the kubelet's error text.

    Args:
        configured: the ``featureGates`` of the configuration.
        others: names of real gates that the managers do not read; they are accepted and have no effect.

    >>> resolve_gates({"CPUManager": True})
    'failed to merge global and in-flight KubeletConfiguration while setting defaults, error: unrecognized feature
    gate: CPUManager'
    """
    values = {name: gate.default for name, gate in GATES.items()}
    for name in sorted(configured):
        if name in others:
            continue
        gate = GATES.get(name)
        if gate is None:
            return f"{DECODE_PREFIX}unrecognized feature gate: {name}"
        if gate.locked and configured[name] != gate.default:
            wanted, fixed = str(configured[name]).lower(), str(gate.default).lower()
            return f"{DECODE_PREFIX}cannot set feature gate {name} to {wanted}, feature is locked to {fixed}"
        values[name] = configured[name]
    unmet = [
        f"{name} is enabled, but depends on features that are disabled: [{gate.needs}]"
        for name, gate in GATES.items()
        if gate.needs and values[name] and not values[gate.needs]
    ]
    if unmet:
        return DECODE_PREFIX + (unmet[0] if len(unmet) == 1 else f"[{', '.join(unmet)}]")
    return FeatureGates(values)
