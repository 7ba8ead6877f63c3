"""Feature gates of the managers in kubelet v1.37.1: defaults, locks, needs (configuration.md section 2)."""

from __future__ import annotations

import pytest
from tests.faults import read_text

from mooring.engine.core.release import FeatureGates, resolve_gates
from mooring.engine.releases.gates import known_gates

V137 = known_gates("1.37")

LOCKED = {
    "CPUManagerPolicyOptions",
    "DisableCPUQuotaWithExclusiveCPUs",
    "DynamicResourceAllocation",
    "InPlacePodVerticalScaling",
    "InPlacePodVerticalScalingInitContainers",
    "KubeletPodResourcesDynamicResources",
    "KubeletPodResourcesGet",
    "TopologyManagerPolicyOptions",
}


def error(**configured: bool) -> str:
    resolved = resolve_gates(configured, V137)
    return read_text(resolved)


@pytest.mark.parametrize("name", sorted([*LOCKED, "NodeSwap", "UserNamespacesSupport", "DRAExtendedResource"]))
def test_locked_gates_take_their_own_value_only(name: str) -> None:
    assert isinstance(resolve_gates({name: True}, V137), FeatureGates)
    assert error(**{name: False}) == f"cannot set feature gate {name} to false, feature is locked to true"


def test_needs_are_checked_one_by_one_and_together() -> None:
    needed = "is enabled, but depends on features that are disabled: [PodLevelResources]"
    others = {
        "PodLevelResourcesFixDefaulting": False,
        "PodLevelResourcesFixKubeletQOSClass": False,
        "InPlacePodLevelResourcesVerticalScaling": False,
    }
    assert isinstance(resolve_gates({"PodLevelResources": False, **others}, V137), FeatureGates)
    text = error(PodLevelResources=False, PodLevelResourceManagers=True, **others)
    assert text == f"PodLevelResourceManagers {needed}"
    names = [
        "InPlacePodLevelResourcesVerticalScaling",
        "PodLevelResourcesFixDefaulting",
        "PodLevelResourcesFixKubeletQOSClass",
    ]
    assert error(PodLevelResources=False) == f"[{', '.join(f'{name} {needed}' for name in names)}]"


def test_every_locked_gate_is_named_before_needs_are_checked() -> None:
    refused = error(NodeSwap=False, NodeDeclaredFeatures=False, PodLevelResources=False)
    locked = ["NodeDeclaredFeatures", "NodeSwap"]
    texts = [f"cannot set feature gate {name} to false, feature is locked to true" for name in locked]
    assert refused == f"[{', '.join(texts)}]"
