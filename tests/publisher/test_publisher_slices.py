"""Devices of dynamic resource allocation as a publisher sees them: slices of the node, holders of the kubelet."""

from __future__ import annotations

from typing import Any

import pytest

from mooring.engine.core.machine import PCIDevice
from mooring.engine.devicemanager.state import Device
from mooring.published import kubelet_source
from mooring.published.kubelet_source import KubeletAndSlices, ListedSlices
from mooring.published.naming import device_state
from mooring.published.objects import PodKey
from mooring.service.apiserver import ClusterError
from mooring.service.podresources import ListedClaimDevice, ListedContainer, ListedPod

DRIVER = "gpu.example.com"
PCI = (PCIDevice("0000:3b:00.0", "030200", "10de", "2330", 1, "pci0000:3a"),)


def test_holders_are_those_that_the_kubelet_lists_with_and_without_a_uid() -> None:
    def pod(name: str, device: str) -> ListedPod:
        claimed = ListedClaimDevice("shop", "claim", DRIVER, "n", device)
        return ListedPod("shop", name, (ListedContainer("app", 0, dynamic=(claimed,)),))

    offered = {DRIVER: (Device("n/g0", (0,)), Device("n/g1", (1,)), Device("n/g2", (1,)))}
    keys = [PodKey("shop", "web", "u1"), PodKey("shop", "db", "")]
    state = device_state(offered, [pod("web", "g1"), pod("db", "g2")], keys, ())
    assert state.held_by("u1", "app", DRIVER) == {"n/g1"}
    assert state.available(DRIVER) == {"n/g0"}


def test_a_device_that_no_slice_lists_any_more_is_not_free_for_others() -> None:
    claimed = ListedClaimDevice("shop", "claim", DRIVER, "n", "gone")
    pods = [ListedPod("shop", "web", (ListedContainer("app", 0, dynamic=(claimed,)),))]
    state = device_state({}, pods, [PodKey("shop", "web", "u1")], ())
    assert state.devices == {DRIVER: (Device("n/gone", healthy=False),)}


class Cluster:
    """What :class:`ListedSlices` uses of a way to the API server."""

    http: Any = None

    def close(self) -> None:
        pass


def test_slices_are_listed_now_and_then_and_kept_while_the_api_server_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    attributes = {"resource.kubernetes.io/pciBusID": {"string": "0000:3b:00.0"}}
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": "n", "pool": pool, "devices": [{"name": "g", "attributes": attributes}]}
    asked: list[str] = []
    answers: list[Any] = [[{"metadata": {"name": "s"}, "spec": spec}], ClusterError("away")]

    def objects(_http: object, path: str, query: dict[str, str]) -> Any:
        asked.append(f"{path}?{query['fieldSelector']}")
        answer = answers.pop(0)
        if isinstance(answer, ClusterError):
            raise answer
        return answer

    monkeypatch.setattr(kubelet_source, "objects_at", objects)
    now = 0.0
    listed = ListedSlices(Cluster, "n", PCI, clock=lambda: now)  # type: ignore[arg-type]
    expected = {DRIVER: (Device("n/g", (1,)),)}
    assert listed() == expected
    now = kubelet_source.LISTING - 1
    assert listed() == expected
    now = kubelet_source.LISTING + 1
    assert listed() == expected
    assert asked == [f"{kubelet_source.SLICES}?spec.nodeName=n"] * 2


def test_a_kubelets_devices_are_those_of_plugins_and_of_slices() -> None:
    class Kubelet:
        def listed(self) -> bytes:
            return b"list"

        def devices(self) -> dict[str, tuple[Device, ...]]:
            return {"v/gpu": (Device("a"),)}

    both = KubeletAndSlices(Kubelet(), lambda: {DRIVER: (Device("n/g"),)})
    assert (both.listed(), both.devices()) == (b"list", {DRIVER: (Device("n/g"),), "v/gpu": (Device("a"),)})
