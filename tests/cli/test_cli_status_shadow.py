"""``mooring status --shadow``: what a shadow has counted, from its folder."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import Answered, mooring
from tests.cli.made_up_node import SECRET, kubelet_pods, make_root

from mooring.engine.checkpoint.device_file import HeldDevices, device_record, device_text
from mooring.monitoring.shadow.judge import (
    add,
    new_tally,
    write_counts,
)
from mooring.monitoring.shadow.judgement import Agreement, DifferenceCause, Judgement, KubeletEvent
from mooring.service.grpc_socket import Method, serve
from mooring.service.logs import Log
from mooring.service.messages import (
    PODRESOURCES_SERVICE,
    AllocatableResourcesRequestMessage,
    AllocatableResourcesResponseMessage,
    ContainerDevicesMessage,
    ListPodResourcesRequestMessage,
    NUMANodeMessage,
    TopologyInfoMessage,
)
from mooring.service.podresources import DevicePluginOptionsMessage

AGREED = Judgement(Agreement.AGREED, KubeletEvent.ADMITTED, "1", "default/web")
DIFFERS = Judgement(Agreement.DIFFERS, KubeletEvent.ADMITTED, "2", "default/db", DifferenceCause.CPUS, "2-3", "4-5")


def counted(folder: Path, *judgements: Judgement) -> Path:
    tally = new_tally("node-1", "v1.37.1", "2026-01-01T00:00:00Z")
    add(tally, judgements, "2026-01-01T00:00:01Z")
    write_counts(folder, tally)
    return folder


@pytest.mark.parametrize(("judgements", "code"), [([AGREED], 0), ([AGREED, DIFFERS], 1)])
def test_counts_of_a_folder_are_shown(judgements: list[Judgement], code: int, tmp_path: Path) -> None:
    answered = mooring("status", "--shadow", counted(tmp_path, *judgements), code=code)
    assert f"agreed 1, differs {code}, cannot tell 0" in answered.out
    assert ("default/db admitted: cpus: the kubelet has 2-3, the engine 4-5" in answered.out) == bool(code)


def test_the_document_is_that_of_the_shadow(tmp_path: Path) -> None:
    found = mooring("status", "--shadow", counted(tmp_path, AGREED), "-o", "json").document
    assert (found["kind"], found["node"], found["agreed"]) == ("Shadow", "node-1", 1)


def test_a_folder_without_counts_is_an_error_in_one_line(tmp_path: Path) -> None:
    answered = mooring("status", "--shadow", tmp_path, code=2)
    assert answered.complaint == (
        f"mooring: {tmp_path}: there is no counts.json; name the folder that mooring shadow --folder writes"
    )


# Devices of a node without a declaration: from the kubelet's record and its answer, from claims and slices.


GPU = "vendor.example/gpu"
DRIVER = "gpu.example.com"
UID = "00000000-0000-0000-0000-00000000000{}"
NEW = """
kind: Pod
metadata: {name: new}
spec: {containers: [{name: c, resources: {limits: {cpu: 1, memory: 1Gi, vendor.example/gpu: 1}}}]}
"""


def pods_with_claims() -> list[dict[str, Any]]:
    """Return pod 0 with a claim, pod 1 with a device of a plugin, the claim and the slice of the node."""
    pods: list[dict[str, Any]] = kubelet_pods(2)["items"]
    pods[0]["spec"]["resourceClaims"] = [{"name": SECRET, "resourceClaimName": "gpu-claim"}]
    resources = pods[1]["spec"]["containers"][0]["resources"]
    resources["limits"] = resources["requests"] = {**resources["limits"], GPU: "1"}
    results = [{"request": "r", "driver": DRIVER, "pool": "edge-7", "device": "d0"}]
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "gpu-claim", "namespace": "customer", "annotations": {"a": SECRET}},
        "status": {"allocation": {"devices": {"results": results, "config": [SECRET]}}},
    }
    devices = [
        {"name": "d0", "attributes": {"resource.kubernetes.io/numaNode": {"int": 1}, "uuid": {"string": SECRET}}},
        {"name": "d1", "attributes": {"resource.kubernetes.io/pciBusID": {"string": "0000:3b:00.0"}}},
    ]
    pool = {"name": "edge-7", "generation": 1, "resourceSliceCount": 1}
    spec: dict[str, Any] = {"driver": DRIVER, "nodeName": "edge-7", "pool": pool, "devices": devices}
    offered: dict[str, Any] = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "s"},
        "spec": spec,
    }
    other = {**offered, "spec": {**spec, "nodeName": "other", "pool": {**pool, "name": "other"}}}
    return [*pods, claim, offered, other]


class Node:
    """A computer with a kubelet's record of devices; pod 1 holds g2."""

    def __init__(self, folder: Path) -> None:
        self.root = make_root(folder / "root")
        self.kubelet = self.root / "var/lib/kubelet"
        self.record = self.kubelet / "device-plugins/kubelet_internal_checkpoint"
        self.record.parent.mkdir(parents=True)
        held = HeldDevices(UID.format(1), "app", GPU, {1: ("g2",)}, b"\x0a\x13" + SECRET[:19].encode())
        self.record.write_text(device_text([held], {GPU: ["g0", "g1", "g2"]}), encoding="utf-8")
        self.pods, self.new = folder / "pods.json", folder / "new.yaml"
        self.pods.write_text(json.dumps({"kind": "List", "items": pods_with_claims()}), encoding="utf-8")
        self.new.write_text(NEW, encoding="utf-8")
        self.archive = folder / "node.tar.gz"

    def collect(self, *more: str) -> Answered:
        where = ("--root", self.root, "--no-kubectl", "--node-name", "edge-7", "--pods", self.pods)
        return mooring("collect", *where, "--to", self.archive, *more, code=0)

    def packed(self, name: str) -> str:
        with tarfile.open(self.archive) as archive:
            found = archive.extractfile(f"mooring-node/{name}")
            assert found is not None
            return found.read().decode()

    def plan(self, *more: str | Path) -> Answered:
        return mooring("plan", "--node", self.archive, "-f", self.new, *more)


@pytest.fixture
def node(tmp_path_factory: pytest.TempPathFactory) -> Node:
    # A socket's path is short.
    return Node(tmp_path_factory.mktemp("n"))


@pytest.fixture
def answering(node: Node) -> Iterator[None]:
    """Let the kubelet answer GetAllocatableResources: g0 and g1 are near node 0, g2 near node 1."""

    def answer(_request: AllocatableResourcesRequestMessage) -> AllocatableResourcesResponseMessage:
        devices = [
            ContainerDevicesMessage(
                resource_name=GPU, device_ids=ids, topology=TopologyInfoMessage(nodes=[NUMANodeMessage(ID=number)])
            )
            for number, ids in enumerate((["g0", "g1"], ["g2"]))
        ]
        return AllocatableResourcesResponseMessage(devices=devices)

    socket = node.kubelet / "pod-resources/kubelet.sock"
    socket.parent.mkdir()
    methods = {"GetAllocatableResources": Method(AllocatableResourcesRequestMessage, answer)}
    end = serve(str(socket), PODRESOURCES_SERVICE, methods, Log("test"))
    yield
    end()


@pytest.mark.usefixtures("answering")
def test_an_archive_has_devices_and_holders_with_no_declaration(node: Node) -> None:
    node.collect()
    answered = node.plan()
    assert answered.code == 0, answered
    assert "warning[MOOR-525]" not in answered.err
    words = " ".join(answered.out.split())
    assert (
        f"{GPU}: g0 (NUMA 0) held by default/new/c; g1 (NUMA 0) free; g2 (NUMA 1) held by customer/shop-1/app" in words
    )
    assert f"{DRIVER}: edge-7/d0 (NUMA 1) held by customer/shop-0/app; edge-7/d1 (NUMA 1) free" in words


def test_without_the_kubelets_answer_a_plan_says_whose_nodes_it_does_not_know(node: Node) -> None:
    node.collect()
    assert f"warning[MOOR-525]: {GPU}: the NUMA node of 2 devices of 3 is not known (g0, g1)" in node.plan().err


def test_the_record_is_packed_without_what_the_plugin_answered_and_keeps_a_wrong_checksum(node: Node) -> None:
    node.collect()
    packed = device_record(node.packed("kubelet/kubelet_internal_checkpoint"))
    assert (packed.problem, packed.held[0].answer, packed.held[0].ids) == ("", b"", frozenset({"g2"}))
    text = node.record.read_text(encoding="utf-8")
    node.record.write_text(text.replace('"g0"', '"g9"'), encoding="utf-8")
    node.collect()
    assert device_record(node.packed("kubelet/kubelet_internal_checkpoint")).problem == "checkpoint is corrupted"


def test_nothing_secret_of_claims_and_slices_is_packed(node: Node) -> None:
    node.collect()
    claims = json.loads(node.packed("claims.json"))["items"]
    assert SECRET not in json.dumps(claims)
    assert [one["kind"] for one in claims] == ["ResourceClaim", "ResourceSlice"]
    assert "numaNode" in json.dumps(claims)


def test_an_anonymous_archive_hides_names_of_claims_and_of_the_node_and_decides_the_same(node: Node) -> None:
    node.collect("--anonymous")
    for name in ("claims.json", "pods.json"):
        text = node.packed(name)
        assert not any(word in text for word in ("edge-7", "gpu-claim", "customer"))
    assert f"{DRIVER}: node-1/d0 (NUMA 1) held by namespace-1/pod-1/app" in " ".join(node.plan().out.split())


def test_claims_and_slices_stand_beside_the_pods_of_active(node: Node) -> None:
    config = node.root / "etc/kubernetes/kubelet.yaml"
    where = ("--machine", node.root, "--config", config, "--node-name", "edge-7")
    answered = mooring("plan", "-f", node.new, "--active", node.pods, *where)
    assert f"{DRIVER}: edge-7/d0 (NUMA 1) held by customer/shop-0/app" in " ".join(answered.out.split()), answered
    assert "MOOR-503" not in answered.err


def test_the_doctor_reads_the_record_of_an_archive(node: Node) -> None:
    text = node.record.read_text(encoding="utf-8")
    node.record.write_text(text.replace('"g0"', '"g9"'), encoding="utf-8")
    node.collect()
    problems = mooring("doctor", "--node", node.archive, "-o", "json").document["problems"]
    assert "MOOR-347" in {one["code"] for one in problems}


@pytest.mark.usefixtures("answering")
def test_a_plugin_that_chooses_itself_is_named_and_its_declared_rule_is_taken(node: Node) -> None:
    def options(_request: ListPodResourcesRequestMessage) -> DevicePluginOptionsMessage:
        return DevicePluginOptionsMessage(get_preferred_allocation_available=True)

    socket = node.record.with_name("vendor-gpu.sock")
    methods = {"GetDevicePluginOptions": Method(ListPodResourcesRequestMessage, options)}
    end = serve(str(socket), "v1beta1.DevicePlugin", methods, Log("test"))
    node.collect()
    end()
    told = {one["code"]: one for one in node.plan("-o", "json").document["findings"]}["MOOR-526"]
    assert told["subject"] == GPU
    assert "chooses among equally near devices itself" in told["message"]
    declared = node.new.with_name("rule.yaml")
    rule = {"apiVersion": "mooring/v1alpha1", "kind": "NodeDevices", "devices": {GPU: {"preferred": "packed"}}}
    declared.write_text(json.dumps(rule), encoding="utf-8")
    config = node.root / "etc/kubernetes/kubelet.yaml"
    given = ("--config", config, "--config", declared)
    assert "MOOR-526" not in {one["code"] for one in node.plan(*given, "-o", "json").document["findings"]}
    answered = node.plan(*given)
    assert f"{GPU}: g0 (NUMA 0) held by default/new/c; g1 (NUMA 0) free" in " ".join(answered.out.split())
