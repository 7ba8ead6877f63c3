"""``--devices``: who decides about devices, in every verb about a node."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.command import mooring
from tests.documents.validation import complaints

MACHINE = ["--machine", "sockets=2 cores=16 threads=1"]
NODE = """apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cpuManagerPolicy: static
topologyManagerPolicy: single-numa-node
reservedSystemCPUs: "0"
---
apiVersion: mooring/v1alpha1
kind: NodeDevices
devices:
  vendor.example/gpu: [{id: gpu-0, numa: [0]}, {id: gpu-1, numa: [1]}]
"""
EXTENSION = """---
apiVersion: mooring/v1alpha1
kind: MooringConfiguration
extensions: [device-alignment]
"""
POD = """---
apiVersion: v1
kind: Pod
metadata: {{name: {0}, uid: {0}}}
spec: {{containers: [{{name: main, resources: {{limits: {{cpu: "{1}", memory: 1Gi{2}}}}}}}]}}
"""


@pytest.fixture
def node(tmp_path: Path) -> list[str]:
    """Return the options of a node whose first NUMA node is taken, and of a pod that wants CPUs beside a GPU."""
    (tmp_path / "config.yaml").write_text(NODE)
    (tmp_path / "extended.yaml").write_text(NODE + EXTENSION)
    (tmp_path / "pods.yaml").write_text(POD.format("db", 6, "") + POD.format("train", 4, ", vendor.example/gpu: 1"))
    return [*MACHINE, "-f", str(tmp_path / "pods.yaml"), "--config", str(tmp_path / "config.yaml")]


@pytest.mark.parametrize("verb", ["plan", "explain", "whatif", "show", "compare"])
def test_the_kubelet_merges_and_the_agent_follows(node: list[str], verb: str) -> None:
    assert mooring(verb, *node).code == 0
    assert mooring(verb, *node, "--devices", "kubelet").code == 0
    followed = mooring(verb, *node, "--devices", "follow")
    if verb == "plan":
        assert (followed.code, "MOOR-136" in followed.out) == (1, True)
    if verb in ("explain", "whatif"):
        assert "--devices follow" in " ".join(followed.out.split())
        assert "hold gpu-1" in " ".join(followed.out.split())


def test_the_configuration_says_it_where_no_option_does(node: list[str], tmp_path: Path) -> None:
    extended = [*node, "--config", str(tmp_path / "extended.yaml")]
    extended[extended.index("--config") : extended.index("--config") + 2] = []
    assert mooring("plan", *extended).code == 1
    assert mooring("plan", *extended, "--devices", "kubelet").code == 0


def test_capacity_counts_what_fits_beside_devices(node: list[str]) -> None:
    found = {}
    for choice in ("kubelet", "follow"):
        answer = mooring("capacity", "train", *node, "--devices", choice, "-o", "json")
        assert complaints(answer.document["kind"], answer.document) == []
        found[choice] = answer.document["count"]
    assert found == {"kubelet": 1, "follow": 0}


def test_a_change_that_holds_other_devices_has_a_document_with_a_schema(node: list[str]) -> None:
    held = ["--hold", "train:vendor.example/gpu=gpu-1"]
    answer = mooring("whatif", *node, "--devices", "follow", *held, "-o", "json")
    assert answer.code == 0
    assert complaints(answer.document["kind"], answer.document) == []
    assert [change["kind"] for change in answer.document["changes"]] == ["devices"]
