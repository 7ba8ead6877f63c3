"""Feature gates: how a configuration sets those of kubelet v1.37.1, and what it refuses.

Source: pkg/features and component-base/featuregate of v1.37.1; spec: configuration.md section 2.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from mooring.core.kubelet_gates import KUBELET_GATES, Gate, Stage

DECODE_PREFIX = "failed to merge global and in-flight KubeletConfiguration while setting defaults, error: "
"""What stands before every gate error: gates are checked while the configuration is decoded."""

MANAGER_GATES = frozenset(
    {
        "CPUManagerPolicyOptions",
        "CPUManagerPolicyBetaOptions",
        "CPUManagerPolicyAlphaOptions",
        "TopologyManagerPolicyOptions",
        "TopologyManagerPolicyBetaOptions",
        "TopologyManagerPolicyAlphaOptions",
        "DisableCPUQuotaWithExclusiveCPUs",
        "PodLevelResources",
        "PodLevelResourcesFixKubeletQOSClass",
        "PodLevelResourcesFixDefaulting",
        "PodLevelResourceManagers",
        "InPlacePodVerticalScaling",
        "InPlacePodVerticalScalingInitContainers",
        "InPlacePodLevelResourcesVerticalScaling",
        "InPlacePodVerticalScalingExclusiveCPUs",
        "InPlacePodVerticalScalingExclusiveMemory",
        "InPlacePodVerticalScalingMemoryBackedVolumes",
        "CustomCPUCFSQuotaPeriod",
        "DynamicResourceAllocation",
        "KubeletPodResourcesGet",
        "KubeletPodResourcesDynamicResources",
        "KubeletPodResourcesListUseActivePods",
        "MemoryQoS",
        "WindowsCPUAndMemoryAffinity",
    }
)
"""The gates that concern the resource managers; all others only decide whether the kubelet starts."""

EXTENSION_GATES: Mapping[str, tuple[str, Gate]] = {
    "scale-down-delay": (
        "InPlacePodVerticalScalingExclusiveCPUsScaleDownDelay",
        Gate(False, Stage.ALPHA, needs=("InPlacePodVerticalScalingExclusiveCPUs",)),
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


_DEFAULTS = {name: gate.default for name, gate in KUBELET_GATES.items()}
_DEPENDENT = {name: gate for name, gate in KUBELET_GATES.items() if gate.needs}


def resolve_gates(configured: Mapping[str, bool], extensions: Collection[str] = ()) -> FeatureGates | str:
    """Return the gates, or the kubelet's error text.

    Where several gates are wrong the kubelet names them in random order; here they are sorted.

    Args:
        configured: the ``featureGates`` of the configuration.
        extensions: those of Mooring that are on; some bring a gate of their own.

    >>> resolve_gates({"CPUManager": True}).removeprefix(DECODE_PREFIX)
    'unrecognized feature gate: CPUManager'
    >>> resolve_gates({"NodeSwap": False}).removeprefix(DECODE_PREFIX)
    'cannot set feature gate NodeSwap to false, feature is locked to true'
    >>> gates = resolve_gates({"AllBeta": True, "MemoryQoS": False})
    >>> gates["PodLevelResourceManagers"], gates["MemoryQoS"]
    (True, False)
    """
    brought = {name: gate for extension, (name, gate) in EXTENSION_GATES.items() if extension in extensions}
    known = {**KUBELET_GATES, **brought} if brought else KUBELET_GATES
    errors = list(_setting_errors(configured, known))
    if not errors:
        values = _values(configured, known)
        errors = list(_unmet_needs(values, {**_DEPENDENT, **brought}))
        if not errors:
            return FeatureGates(values)
    return DECODE_PREFIX + (errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]")


def _setting_errors(configured: Mapping[str, bool], known: Mapping[str, Gate]) -> Iterator[str]:
    """Yield a text for every locked gate that is set to its other value; the first unknown gate ends the search."""
    for name in sorted(configured):
        gate = known.get(name)
        if gate is None:
            yield f"unrecognized feature gate: {name}"
            return
        if gate.locked and configured[name] != gate.default:
            wanted, fixed = str(configured[name]).lower(), str(gate.default).lower()
            yield f"cannot set feature gate {name} to {wanted}, feature is locked to {fixed}"


def _values(configured: Mapping[str, bool], known: Mapping[str, Gate]) -> dict[str, bool]:
    """Return every gate's value: its own setting comes before its stage's switch, and that before its default.

    No switch reaches a locked gate: locked gates are GA or deprecated.
    """
    values = dict(_DEFAULTS) if known is KUBELET_GATES else {name: gate.default for name, gate in known.items()}
    for stage, switch in SWITCHES.items():
        if switch in configured:
            values.update((name, configured[switch]) for name, gate in known.items() if gate.stage is stage)
    values.update(configured)
    return values


def _unmet_needs(values: Mapping[str, bool], dependent: Mapping[str, Gate]) -> Iterator[str]:
    for name in sorted(dependent):
        if values[name]:
            missing = [need for need in dependent[name].needs if not values[need]]
            if missing:
                yield f"{name} is enabled, but depends on features that are disabled: [{' '.join(missing)}]"
