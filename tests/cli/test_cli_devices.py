"""``--devices``: who decides about devices, in every verb about a node."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import NODE as NODE_RESOURCES
from tests.cli.command import PODS, mooring
from tests.cli.given import ALIGNED, given, pod
from tests.documents.validation import complaints
from tests.values import unpack

GPU = "vendor.example/gpu"
GPUS = {GPU: [{"id": f"gpu-{number}", "numa": [number]} for number in range(2)]}
OFFERED: dict[str, Any] = {"apiVersion": "mooring/v1alpha1", "kind": "NodeDevices", "devices": GPUS}
EXTENSION = {"apiVersion": "mooring/v1alpha1", "kind": "MooringConfiguration", "extensions": ["device-alignment"]}


def options(folder: Path, *pods: dict[str, Any], more: tuple[dict[str, Any], ...] = (OFFERED,)) -> tuple[str, ...]:
    return given(folder, *pods, machine="sockets=2 cores=16 threads=1", kubelet=ALIGNED, more=more)


PAIR = pod("db", 6, uid="db"), pod("train", 4, uid="train", limits={GPU: 1})
"""The first takes most of a NUMA node, the second wants CPUs beside a GPU."""


@pytest.fixture
def node(tmp_path: Path) -> tuple[str, ...]:
    return options(tmp_path, *PAIR)


@pytest.mark.parametrize("verb", ["plan", "explain", "whatif", "show", "compare"])
def test_the_kubelet_merges_and_the_agent_follows(node: tuple[str, ...], verb: str) -> None:
    assert mooring(verb, *node).code == 0
    assert mooring(verb, *node, "--devices", "kubelet").code == 0
    followed = mooring(verb, *node, "--devices", "follow")
    if verb == "plan":
        assert (followed.code, "MOOR-136" in followed.out) == (1, True)
    if verb in ("explain", "whatif"):
        assert "--devices follow" in " ".join(followed.out.split())
        assert "hold gpu-1" in " ".join(followed.out.split())


def test_the_configuration_says_it_where_no_option_does(tmp_path: Path) -> None:
    extended = options(tmp_path, *PAIR, more=(OFFERED, EXTENSION))
    assert mooring("plan", *extended).code == 1
    assert mooring("plan", *extended, "--devices", "kubelet").code == 0


def test_what_needs_several_numa_nodes_is_not_aligned_and_what_needs_several_sockets_is(tmp_path: Path) -> None:
    node = options(tmp_path, pod("train", 10, uid="train", limits={GPU: 2}))
    told = mooring("whatif", *node, "--set", "topologyManagerPolicy=restricted", columns=160, code=0).out.splitlines()
    place = next(line.rindex("aligned") for line in told if "aligned" in line)
    column = " ".join(line[place:].strip() for line in told)
    assert "2 NUMA nodes, 2 needed 2 NUMA nodes with its devices, 2 needed" in column
    assert "socket" not in column


def test_a_change_that_holds_other_devices_has_a_document_with_a_schema(node: tuple[str, ...]) -> None:
    held = ["--hold", "train:vendor.example/gpu=gpu-1"]
    answer = mooring("whatif", *node, "--devices", "follow", *held, "-o", "json", code=0)
    assert complaints(answer.document["kind"], answer.document) == []
    assert [change["kind"] for change in answer.document["changes"]] == ["devices"]


# PCI devices with class, NUMA node and PCIe root: in ``mooring topology`` and in the picture of a node.


MACHINES = Path(__file__).resolve().parents[3] / "shared/machines"
NAME = "32em64t-2n8c+dax+nvme+mic+dimms"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Return the recorded machine with its PCI devices below the roots of its two sockets."""
    if not MACHINES.is_dir():
        pytest.skip("the recorded machines are not here")
    unpack(MACHINES / NAME / f"{NAME}.tar.gz", tmp_path / "m")
    (root,) = (path.parent for path in (tmp_path / "m").rglob("sys") if path.is_dir())
    links = root / "sys/bus/pci/devices"
    links.mkdir(parents=True)
    for address, told in json.loads((MACHINES / NAME / "pci-devices.json").read_bytes()).items():
        place = f"devices/pci0000:{'80' if address[5:7] >= '80' else '00'}/{address}"
        (root / "sys" / place).mkdir(parents=True)
        for file in ("class", "vendor", "device", "numa_node"):
            (root / "sys" / place / file).write_text(f"{told[file]}\n", encoding="utf-8")
        (links / address).symlink_to(f"../../../{place}")
    return root


def test_the_text_lists_what_pods_are_given_by_node_and_root(machine: Path) -> None:
    text = mooring("topology", "--machine", machine).out
    rows = [line.split() for line in text.partition("Devices on the PCI bus")[2].splitlines()]
    assert ["NIC", "0000:82:00.0", "1", "pci0000:80", "15b3:1003"] in rows
    assert ["co-processor", "0000:83:00.0", "1", "pci0000:80", "8086:225c"] in rows
    assert ["NVMe", "0000:00:02.0", "unknown", "pci0000:00", "8086:0953"] in rows


def test_the_document_has_every_device(machine: Path) -> None:
    devices = mooring("topology", "--machine", machine, "-o", "json").document["pciDevices"]
    recorded = json.loads((MACHINES / NAME / "pci-devices.json").read_bytes())
    assert {one["address"] for one in devices} == recorded.keys()
    assert {one["kind"] for one in devices} == {"", "NIC", "NVMe", "VGA", "co-processor"}
    assert {one["pcieRoot"] for one in devices} == {"pci0000:00", "pci0000:80"}


def test_a_collected_archive_has_the_same_devices(machine: Path, tmp_path: Path) -> None:
    packed = tmp_path / "node.tar.gz"
    assert mooring("collect", "--root", machine, "--no-kubectl", "--to", packed).code == 0
    of_archive = mooring("topology", "--machine", packed, "-o", "json").document["pciDevices"]
    assert of_archive == mooring("topology", "--machine", machine, "-o", "json").document["pciDevices"]


def test_the_picture_has_devices_below_their_root_in_the_box_of_their_node(machine: Path, tmp_path: Path) -> None:
    pods = tmp_path / "pod.yaml"
    pods.write_text("{kind: Pod, metadata: {name: a}, spec: {containers: [{name: c}]}}", encoding="utf-8")
    drawn = mooring("show", "--machine", machine, "-f", pods).out
    near, far = (" ".join(line[start : start + 36] for line in drawn.splitlines()[3:12]) for start in (0, 38))
    assert "NIC · pci0000:00" in near
    assert "02:00.0" in near
    assert "co-processor · pci0000:80" in far
    picture = mooring("show", "--machine", machine, "-f", pods, "-o", "svg").out
    assert "NIC 0000:82:00.0 · PCIe root pci0000:80 · NUMA node 1 · not offered to pods" in picture


# ``-o resources``: capacity and allocatable as the kubelet reports them in its Node object.


CONFIG = """apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cpuManagerPolicy: static
kubeReserved: {cpu: 500m, memory: 1Gi}
systemReserved: {cpu: 500m}
evictionHard: {memory.available: 512Mi}
maxPods: 42
"""
DEVICES = """apiVersion: mooring/v1alpha1
kind: NodeDevices
devices:
  vendor.example/gpu:
    - {id: gpu0, numa: [0]}
    - {id: gpu1, numa: [0], unhealthy: true}
"""


def rows(text: str) -> dict[str, list[str]]:
    return {words[0]: words[1:] for line in text.splitlines() if (words := line.split()) and len(words) == 4}


@pytest.mark.parametrize("verb", ["show", "topology"])
def test_reservations_thresholds_huge_pages_and_unhealthy_devices_are_no_capacity(verb: str, tmp_path: Path) -> None:
    config, devices = tmp_path / "kubelet.yaml", tmp_path / "devices.yaml"
    config.write_text(CONFIG, encoding="utf-8")
    devices.write_text(DEVICES, encoding="utf-8")
    machine = ("--machine", "sockets=1 cores=8 memory=16Gi hugepages-1Gi=2")
    answered = mooring(verb, *machine, "--config", config, "--config", devices, "-o", "resources", code=0)
    assert rows(answered.out) == {
        "resource": ["capacity", "allocatable", "requested"],
        "cpu": ["8", "7", "0"],
        "memory": ["16Gi", "12800Mi", "0"],
        "hugepages-1Gi": ["2Gi", "2Gi", "0"],
        "pods": ["42", "42", "0"],
        "vendor.example/gpu": ["2", "1", "0"],
    }


def test_requests_are_those_of_the_pods_that_are_admitted() -> None:
    answered = mooring("show", *PODS, *NODE_RESOURCES, "-o", "resources")
    assert (answered.code, rows(answered.out)["pods"]) == (1, ["110", "110", "8"])


@pytest.mark.parametrize("verb", ["show", "topology"])
def test_a_kubelet_that_does_not_start_has_no_allocatable(verb: str) -> None:
    answered = mooring(verb, "--machine", "cores=4", *NODE_RESOURCES[2:], "-o", "resources")
    assert (answered.code, "would not start" in answered.out) == (1, True), answered
