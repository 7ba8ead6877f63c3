"""The feature gates that decide what a pod becomes on its way to the kubelet."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from mooring.core.config import MIXED_CPUS, SCALE_DOWN_DELAY
from mooring.core.gates import EXTENSION_GATES

DELAY_GATE = EXTENSION_GATES[SCALE_DOWN_DELAY][0]


@dataclass(frozen=True, slots=True)
class PodGates:
    """Gates that change defaults and QoS class of a pod; the defaults are those of v1.37.1."""

    pod_level_resources: bool = True
    """PodLevelResources: ``spec.resources`` counts at all."""
    qos_fix: bool = True
    """PodLevelResourcesFixKubeletQOSClass: an empty ``spec.resources`` does not decide the QoS class."""
    defaulting_fix: bool = True
    """PodLevelResourcesFixDefaulting: the API server fills pod-level limits too, and fills requests without a
    limit."""
    knows_delay: bool = False
    """Extension scale-down-delay: there is a field ``spec.scaleDownGracePeriodSeconds`` (KEP-6122)."""
    delay: bool = False
    """InPlacePodVerticalScalingExclusiveCPUsScaleDownDelay: new pods may have that field."""
    knows_mixing: bool = False
    """Extension mixed-cpus: there are annotations for containers that use the shared pool besides their own CPUs."""

    @staticmethod
    def of(feature_gates: Mapping[str, bool], extensions: Collection[str] = ()) -> PodGates:
        """Return the gates as ``featureGates`` of a configuration sets them, and the extensions of Mooring's own.

        >>> PodGates.of({"PodLevelResources": False}).pod_level_resources
        False
        """
        return PodGates(
            feature_gates.get("PodLevelResources", True),
            feature_gates.get("PodLevelResourcesFixKubeletQOSClass", True),
            feature_gates.get("PodLevelResourcesFixDefaulting", True),
            knows_delay=SCALE_DOWN_DELAY in extensions,
            delay=SCALE_DOWN_DELAY in extensions
            and feature_gates.get(DELAY_GATE, feature_gates.get("AllAlpha", False)),
            knows_mixing=MIXED_CPUS in extensions,
        )
