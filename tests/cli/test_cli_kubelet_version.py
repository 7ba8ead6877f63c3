"""The kubelet's release decides, wherever it comes from, and the answer names it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import EXAMPLES, mooring
from tests.cli.made_up_node import make_root

CONFIG = """\
kind: KubeletConfiguration
cpuManagerPolicy: static
reservedSystemCPUs: "0"
cpuManagerPolicyOptions: {strict-cpu-reservation: "true"}
featureGates: {CPUManagerPolicyAlphaOptions: true}
"""
POD: dict[str, Any] = {
    "kind": "Pod",
    "metadata": {"name": "small"},
    "spec": {
        "containers": [{"name": "c", "resources": {"limits": {"cpu": "2", "memory": "64Mi"}}}],
    },
}
MACHINE = "sockets=1 numa=1 cores=4 threads=2 memory=16Gi"


@pytest.fixture
def asked(tmp_path: Path) -> tuple[str | Path, ...]:
    """Arguments that describe a node whose option kubelet 1.31 does not know."""
    config, pod = tmp_path / "kubelet.yaml", tmp_path / "pod.json"
    config.write_text(CONFIG, encoding="utf-8")
    pod.write_text(json.dumps(POD), encoding="utf-8")
    return ("-f", pod, "--config", config, "--machine", MACHINE)


@pytest.mark.parametrize(
    ("verb", "more"), [("plan", ()), ("explain", ("small",)), ("whatif", ()), ("capacity", ("small",))]
)
def test_an_older_release_decides_and_is_named(verb: str, more: tuple[str, ...], asked: tuple[str | Path, ...]) -> None:
    for version, tag in (("1.32", "v1.32.13"), ("v1.31.9-eks-1-31-23", "v1.31.14")):
        answered = mooring(verb, *more, *asked, "--kubelet-version", version)
        assert f"ubelet {tag}" in answered.out
        document = mooring(verb, *more, *asked, "--kubelet-version", version, "-o", "json").document
        assert document["kubelet"] == tag
    assert mooring("plan", *asked, "--kubelet-version", "1.31").code == 1
    assert mooring("plan", *asked, "--kubelet-version", "1.32").code == 0


def test_the_newest_release_is_named_in_documents_only(asked: tuple[str | Path, ...]) -> None:
    assert "1.37" not in mooring("plan", *asked).out
    assert mooring("plan", *asked, "-o", "json").document["kubelet"] == "v1.37.2"


@pytest.mark.parametrize("form", ["terminal", "svg", "html"])
def test_pictures_name_the_release(form: str, asked: tuple[str | Path, ...]) -> None:
    assert "kubelet v1.34.4" in mooring("show", *asked, "--kubelet-version", "1.34", "-o", form).out
    assert "kubelet v1.31.14 would not start" in mooring("show", *asked, "--kubelet-version", "1.31").out


def test_doctor_decides_as_the_release(asked: tuple[str | Path, ...], tmp_path: Path) -> None:
    state = tmp_path / "state"
    mooring("plan", *asked, "--save-state", state)
    node = asked[2:]
    assert mooring("doctor", "--state", state, *node).code == 0
    answered = mooring("doctor", "--state", state, *node, "--kubelet-version", "1.31", "-o", "json")
    assert answered.document["kubelet"] == "v1.31.14"


@pytest.mark.parametrize(
    ("version", "told"),
    [
        (
            "1.30",
            "older than all known releases (1.31, 1.32, 1.33, 1.34, 1.35, 1.36, 1.37, 1.38); add --nearest-release",
        ),
        ("nonsense", "'nonsense' is not a kubelet version"),
    ],
)
def test_what_is_no_known_release_is_refused_in_one_line(
    version: str, told: str, asked: tuple[str | Path, ...]
) -> None:
    answered = mooring("plan", *asked, "--kubelet-version", version)
    assert (answered.code, len(answered.err.splitlines())) == (2, 1)
    assert told in answered.err


def test_the_nearest_release_is_taken_with_a_warning(asked: tuple[str | Path, ...]) -> None:
    answered = mooring("plan", *asked, "--kubelet-version", "v1.30.6-gke.100", "--nearest-release", "-o", "json")
    assert answered.document["kubelet"] == "v1.31.14"
    assert "MOOR-580" in {finding["code"] for finding in answered.document["findings"]}


def test_the_archive_names_the_release_and_the_option_wins(tmp_path: Path) -> None:
    root, archive = make_root(tmp_path / "root"), tmp_path / "old.tar.gz"
    mooring("collect", "--root", root, "--no-kubectl", "--kubelet-version", "v1.36.3-eks-1", "--to", archive)
    asked = ("show", "--node", archive)
    assert "kubelet v1.36.3" in mooring(*asked).out
    assert "MOOR-580" not in mooring(*asked).err
    assert "kubelet v1.35.4" in mooring(*asked, "--kubelet-version", "1.35").out


def nodes(**versions: str) -> list[object]:
    return [
        {"kind": "Node", "metadata": {"name": name}, "status": {"nodeInfo": {"kubeletVersion": version}}}
        for name, version in versions.items()
    ]


def test_nodes_among_the_running_pods_name_the_release(asked: tuple[str | Path, ...], tmp_path: Path) -> None:
    listed = tmp_path / "cluster.json"
    running = {**POD, "metadata": {"name": "runs", "uid": "u"}, "spec": {**POD["spec"], "nodeName": "n1"}}
    both = nodes(n1="v1.34.2+k3s1", n2="v1.36.1")
    listed.write_text(json.dumps({"kind": "List", "items": [*both, running]}), encoding="utf-8")
    plan = ("plan", *asked, "-o", "json", "--active", listed)
    assert mooring(*plan).document["kubelet"] == "v1.34.4"
    listed.write_text(json.dumps({"kind": "List", "items": both}), encoding="utf-8")
    assert "2 nodes have kubelets of different versions" in mooring(*plan).err
    assert mooring(*plan, "--node-name", "n2").document["kubelet"] == "v1.36.3"


@pytest.mark.parametrize("more", [(), ("--kubelet-version", "1.34")])
def test_a_node_that_a_list_of_nodes_does_not_have_is_refused(
    more: tuple[str, ...], asked: tuple[str | Path, ...], tmp_path: Path
) -> None:
    listed = tmp_path / "cluster.json"
    spec = {"nodeName": "gpu-7", "containers": [{"name": "c"}]}
    running = {"kind": "Pod", "metadata": {"name": "runs", "uid": "u"}, "spec": spec}
    listed.write_text(
        json.dumps({"kind": "List", "items": [*nodes(worker1="v1.34.2", worker2="v1.36.1"), running]}), encoding="utf-8"
    )
    plan = ("plan", *asked, *more, "--active", listed, "--node-name")
    missing = mooring(*plan, "workr2")
    assert (missing.code, missing.out) == (2, "")
    assert missing.complaint.endswith(
        "cluster.json: --node-name: 'workr2' is not among the nodes given; did you mean worker2?"
    )
    assert mooring(*plan, "n3").complaint.endswith("; known are gpu-7, worker1, worker2")
    assert mooring(*plan, "gpu-7").code == 0


def test_the_kubelet_of_this_computer_decides_where_no_other_machine_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "kubelet"
    program.write_text("#!/bin/sh\necho Kubernetes v1.35.2\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    asked = ("plan", "-f", EXAMPLES / "pods.yaml", "-o", "json")
    assert mooring(*asked).document["kubelet"] == "v1.35.4"
    assert mooring(*asked, "--machine", MACHINE).document["kubelet"] == "v1.37.2"


TALOS = """\
version: v1alpha1
machine:
  kubelet:
    image: ghcr.io/siderolabs/kubelet:%s
    extraConfig: {cpuManagerPolicy: static, systemReserved: {cpu: 500m}}
"""


def test_the_file_of_a_vendor_names_the_release_unless_an_option_or_a_node_does(tmp_path: Path) -> None:
    config, pod, node = tmp_path / "talos.yaml", tmp_path / "pod.json", tmp_path / "node.json"
    pod.write_text(json.dumps(POD), encoding="utf-8")
    found = {"kind": "Node", "metadata": {"name": "n1"}, "status": {"nodeInfo": {"kubeletVersion": "v1.34.4"}}}
    node.write_text(json.dumps({"apiVersion": "v1", **found}), encoding="utf-8")
    asked = ("plan", "-f", pod, "--config", config, "--machine", MACHINE, "-o", "json")

    def decided(version: str, *more: str | Path) -> tuple[str, bool]:
        config.write_text(TALOS % version, encoding="utf-8")
        answered = mooring(*asked, *more)
        return answered.document["kubelet"], "MOOR-580" in json.dumps(answered.document)

    assert decided("v1.36.0") == ("v1.36.3", False)
    assert decided("v1.36.0", "--active", node) == ("v1.34.4", False)
    assert decided("v1.30.0", "--kubelet-version", "1.35") == ("v1.35.4", False)
    assert decided("v1.99.0") == decided("mine") == ("v1.37.2", True)
    assert decided("v1.30.0", "--nearest-release") == ("v1.31.14", True)
    refused = mooring(*asked)
    assert refused.code == 2
    assert "talos.yaml:4:5: kubelet v1.30.0 is older than all known releases" in refused.err
