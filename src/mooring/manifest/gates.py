"""The feature gates that decide what a pod becomes on its way to the kubelet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


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

    @staticmethod
    def of(feature_gates: Mapping[str, bool]) -> PodGates:
        """Return the gates as ``featureGates`` of a configuration sets them.

        >>> PodGates.of({"PodLevelResources": False}).pod_level_resources
        False
        """
        return PodGates(
            feature_gates.get("PodLevelResources", True),
            feature_gates.get("PodLevelResourcesFixKubeletQOSClass", True),
            feature_gates.get("PodLevelResourcesFixDefaulting", True),
        )
