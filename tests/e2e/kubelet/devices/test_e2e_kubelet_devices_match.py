"""One claim for a GPU and CPUs: the real scheduler matches both by the standard attribute of NUMA nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from tests.e2e.folders import short_folder
from tests.e2e.kubelet.apiserver import APIServer, Ports, api_server
from tests.e2e.kubelet.cases import Wants, pod_of
from tests.e2e.kubelet.claimed import CASE, Claimed, claims_on
from tests.e2e.kubelet.claiming import CLAIMS, CLASS, GROUP, with_claims
from tests.e2e.kubelet.decided import Played, Playing
from tests.e2e.kubelet.devices.cases import GPU, devices_on
from tests.e2e.kubelet.devices.driver import (
    NUMA_NODE,
    Attributes,
    DeviceDriver,
    claim_for,
    drivers_on,
    numa_list,
    numa_number,
    request_of,
)
from tests.e2e.kubelet.patience import until
from tests.e2e.kubelet.test_e2e_kubelet_dra import unschedulable

from mooring.cluster.dra.devices import near_nodes, slices
from mooring.engine.core.topology import discover_topology
from mooring.engine.devicemanager.state import Device
from mooring.inputs.machines.loader import load_machine

GATE = "DRAListTypeAttributes"
DRIVER = "gpu.example.com"
INFO = load_machine(CASE.machine).info
GPUS = devices_on(load_machine(CASE.machine))[GPU]
NODE_OF = {device.id: device.numa[0] for device in GPUS if device.numa}


@pytest.fixture
def newer_api(cluster: APIServer, kube: Any) -> Iterator[APIServer]:  # noqa: ARG001 - the network is private from then on
    """An API server that takes lists as attributes."""
    with short_folder("kube-") as folder, api_server(kube, folder, Ports(22379, 22380, 26443), gates=[GATE]) as made:
        yield made


def gpus(claimed: Claimed, devices: Mapping[str, Attributes]) -> DeviceDriver:
    return DeviceDriver(DRIVER, CASE.name, claimed.node, claimed.both.kubelet, claimed.api, devices)


def create_pair(claimed: Claimed, name: str) -> dict[str, Any]:
    """Create a pod whose only claim is for a GPU and ten CPUs that match; the pod is not waited for."""
    requests = request_of("gpu", DRIVER.replace(".", "-")), request_of("cpus", CLASS, cpus=10)
    claimed.api.post(CLAIMS, claim_for(name, *requests, match=NUMA_NODE))
    return with_claims(pod_of(name, Wants("app")), {"both": name}, app=[{"name": "both"}])


def nodes_of(claimed: Claimed, place: str) -> set[int]:
    """Return the NUMA nodes of the CPUs that the runtime gave a container."""
    places = discover_topology(INFO).places
    return {places[cpu].numa for cpu in claimed.cpus(place)}


def gpu_of(claimed: Claimed, place: str) -> str:
    """Return the GPU that a container finds in its environment."""
    lines = claimed.inside(place, "env").splitlines()
    return dict(line.split("=", 1) for line in lines)["E2E_GPU"]


def test_the_claims_cpus_are_on_the_numa_node_of_its_gpu(
    api: APIServer, kube: Any, playing: Playing, played: Played
) -> None:
    with (
        claims_on(api, kube, playing, played) as claimed,
        drivers_on(gpus(claimed, {device.id: numa_number(device) for device in GPUS})),
    ):
        # CPUs 0 and 128 are reserved, and the pods that fill NUMA node 1 leave no room beside its GPU.
        claimed.claim("filling", ("all", 32))
        claimed.pod(with_claims(pod_of("filling", Wants("app")), {"cpus": "filling"}, app=[{"name": "cpus"}]))
        [filled] = nodes_of(claimed, "filling/app")
        for number in range(7):
            claimed.pod(create_pair(claimed, f"pair-{number}"))
        given = {number: gpu_of(claimed, f"pair-{number}/app") for number in range(7)}
        assert set(given.values()) == {gpu for gpu, node in NODE_OF.items() if node != filled}
        assert {number: nodes_of(claimed, f"pair-{number}/app") for number in given} == {
            number: {NODE_OF[gpu]} for number, gpu in given.items()
        }
        assert all(len(claimed.cpus(f"pair-{number}/app")) == 10 for number in given)
        claimed.api.create_pod(create_pair(claimed, "last"))
        until(lambda: unschedulable(claimed.api.pod("last")), "beside the GPU that is left there are no CPUs")


def test_lists_match_by_what_they_have_in_common(
    newer_api: APIServer, kube: Any, playing: Playing, played: Played
) -> None:
    near = near_nodes(INFO)
    [first, second, *_] = (device for device in GPUS if device.numa in ((5,), (2,)))
    listed = Device(first.id, near[first.numa[0]] if first.numa else None)
    with (
        claims_on(newer_api, kube, playing, played, "--numa-node-list", gates=[GATE]) as claimed,
        drivers_on(gpus(claimed, {first.id: numa_list(listed), second.id: numa_number(second)})),
    ):
        published = {
            device["name"]: device["attributes"][NUMA_NODE]
            for one in claimed.api.get(f"{GROUP}/resourceslices")["items"]
            for device in one["spec"].get("devices") or []
        }
        assert {name: one for name, one in published.items() if name.startswith("numa")} == {
            f"numa{node}": {"ints": list(nodes)} for node, nodes in near.items()
        }
        for number in range(2):
            claimed.pod(create_pair(claimed, f"pair-{number}"))
        for number in range(2):
            place = f"pair-{number}/app"
            [node] = nodes_of(claimed, place)
            # A number is a list of one; the distance of all NUMA nodes of a socket is the same here.
            assert node in near[NODE_OF[gpu_of(claimed, place)]]


def test_an_api_server_without_the_gate_takes_numbers_and_refuses_lists(api: APIServer) -> None:
    def answer(attributes: Attributes) -> Any:
        [made] = slices(DRIVER, "somewhere", [{"name": "gpu-0", "attributes": dict(attributes)}], 1)
        return api.cluster.http.post(f"{GROUP}/resourceslices", json=made, params={"dryRun": "All"})

    device = Device("gpu-0", (1,))
    assert answer(numa_number(device)).is_success
    refused = answer(numa_list(device))
    assert refused.status_code == 422
    assert "must specify one of" in refused.text, refused.text
