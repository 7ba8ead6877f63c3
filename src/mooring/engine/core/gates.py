"""Feature gates: what one is, how a configuration sets those of a release, and what it refuses.

Source: component-base/featuregate of v1.37.1; spec: configuration.md section 2, releases.md section 2.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from enum import Enum

from mooring.engine.core.decision import Cause, Fault
from mooring.lazy import dataclass

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


@dataclass(frozen=True, slots=True)
class KnownGates:
    """The gates that a release of the kubelet recognises."""

    gates: Mapping[str, Gate]
    defaults: Mapping[str, bool]
    dependent: Mapping[str, Gate]
    """Those that need others."""

    @staticmethod
    def of(gates: Mapping[str, Gate]) -> KnownGates:
        """Return the gates with what every configuration asks about them."""
        defaults = {name: gate.default for name, gate in gates.items()}
        return KnownGates(gates, defaults, {name: gate for name, gate in gates.items() if gate.needs})

    def and_more(self, gates: Mapping[str, Gate]) -> KnownGates:
        """Return these gates and some that no release has."""
        return KnownGates.of({**self.gates, **gates}) if gates else self


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
    configured: Mapping[str, bool], release: KnownGates, extensions: Collection[str] = ()
) -> FeatureGates | tuple[Fault, ...]:
    """Return the gates, or what the kubelet finds wrong with them.

    Where several gates are wrong the kubelet names them in random order; here they are sorted.

    Args:
        configured: the ``featureGates`` of the configuration.
        release: the gates of the kubelet's release.
        extensions: those of Mooring that are on; some bring a gate of their own.

    >>> known = KnownGates.of({"NodeSwap": Gate(True, Stage.GA, locked=True), "MemoryQoS": Gate(True, Stage.BETA)})
    >>> [fault.text for fault in resolve_gates({"CPUManager": True}, known)]
    ['unrecognized feature gate: CPUManager']
    >>> [fault.text for fault in resolve_gates({"NodeSwap": False}, known)]
    ['cannot set feature gate NodeSwap to false, feature is locked to true']
    >>> gates = resolve_gates({"MemoryQoS": False}, known)
    >>> gates["NodeSwap"], gates["MemoryQoS"], gates["OfALaterRelease"]
    (True, False, False)
    """
    brought = dict(EXTENSION_GATES[extension] for extension in extensions if extension in EXTENSION_GATES)
    known = release.and_more(brought) if brought else release
    faults = tuple(_setting_faults(configured, known.gates))
    if faults:
        return faults
    # Every gate's value: its own setting comes before its stage's switch, and that before its default.
    #
    # No switch reaches a locked gate: locked gates are GA or deprecated.
    values = dict(known.defaults)
    for stage, switch in SWITCHES.items():
        if switch in configured:
            values.update((name, configured[switch]) for name, gate in known.gates.items() if gate.stage is stage)
    values.update(configured)
    return tuple(_unmet_needs(values, known.dependent)) or FeatureGates(values)


def _setting_faults(configured: Mapping[str, bool], known: Mapping[str, Gate]) -> Iterator[Fault]:
    """Yield every locked gate that is set to its other value; the first unknown gate ends the search."""
    for name in sorted(configured):
        gate = known.get(name)
        if gate is None:
            yield Fault(f"unrecognized feature gate: {name}", Cause.GATE, "featureGates", (name,))
            return
        if gate.locked and configured[name] != gate.default:
            wanted, fixed = str(configured[name]).lower(), str(gate.default).lower()
            text = f"cannot set feature gate {name} to {wanted}, feature is locked to {fixed}"
            yield Fault(text, Cause.GATE, "featureGates", (name,), (wanted, fixed))


def _unmet_needs(values: Mapping[str, bool], dependent: Mapping[str, Gate]) -> Iterator[Fault]:
    for name in sorted(dependent):
        if values[name]:
            missing = [need for need in dependent[name].needs if not values[need]]
            if missing:
                text = f"{name} is enabled, but depends on features that are disabled: [{' '.join(missing)}]"
                yield Fault(text, Cause.GATE, "featureGates")
