"""Every document of ``-o json`` is what its schema says, member by member."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import EXAMPLES, NODE, PODS, SMALL, mooring
from tests.cli.made_up_node import kubelet_pods, make_root, write_pods
from tests.documents.validation import complaints

from mooring.documents.schemas import kinds
from mooring.engine.checkpoint.cpu_file import cpu_state_text
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.cpumanager.state import CPUState

GOLDEN = Path(__file__).parent / "golden"
HUGE = "sockets=2 numa=4 cores=64 threads=2 memory=256Gi hugepages-2Mi=2048 distances=10,12,32"
AI = ("-f", str(EXAMPLES / "ai-pods.yaml"), "--machine", HUGE, "--config", str(EXAMPLES / "ai-kubelet.yaml"))
MEMORY = ("-f", str(GOLDEN / "memory-pods.yaml"), *NODE[:2], "--config", str(GOLDEN / "memory.yaml"))
CRASH = ("-f", str(GOLDEN / "crash-pods.yaml"), *NODE[:2], "--config", str(GOLDEN / "memory.yaml"))
RESIZING = (*NODE[:2], "--config", str(EXAMPLES / "resizing-kubelet.yaml"))
REFUSED = (*PODS, *NODE[:2], "--config", str(GOLDEN / "refused.yaml"))

LIVE = ("--cluster", str(EXAMPLES / "fleet" / "live.yaml"), "--config", str(EXAMPLES / "fleet" / "live-kubelet.yaml"))
TRAIN = ("-f", str(EXAMPLES / "fleet" / "train.yaml"))
FLEET = ("--cluster", str(EXAMPLES / "fleet" / "cluster.yaml"), "-f", str(EXAMPLES / "fleet" / "day.yaml"))

ENDLESS_CONFIG = """
kind: KubeletConfiguration
cpuManagerPolicy: static
cpuManagerPolicyOptions: {full-pcpus-only: "true", distribute-cpus-across-numa: "true"}
reservedSystemCPUs: "79"
"""
WIDE_CONFIG = """
kind: KubeletConfiguration
cpuManagerPolicy: static
topologyManagerPolicy: best-effort
topologyManagerPolicyOptions: {max-allowable-numa-nodes: "64"}
reservedSystemCPUs: "0"
"""

DOCUMENTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "plan": ("Plan", ("plan", *PODS, *NODE)),
    "plan-ai": ("Plan", ("plan", *AI)),
    "plan-memory": ("Plan", ("plan", *MEMORY)),
    "plan-crash": ("Plan", ("plan", *CRASH)),
    "plan-refused": ("Plan", ("plan", *REFUSED)),
    "plan-none": ("Plan", ("plan", *PODS, *SMALL)),
    "podresources": ("PodResources", ("plan", *PODS, *NODE, "-o", "podresources")),
    "podresources-ai": ("PodResources", ("plan", *AI, "-o", "podresources")),
    "podresources-memory": ("PodResources", ("plan", *MEMORY, "-o", "podresources")),
    "topology": ("Machine", ("topology",)),
    "version": ("Version", ("version",)),
    "topology-told": ("Machine", ("topology", "--machine", "xeonmax-9460-2s-snc4-flat")),
    "topology-hybrid": ("Machine", ("topology", "--machine", "i7-1370p")),
    "explain": ("Explanation", ("explain", *PODS, *NODE)),
    "explain-admitted": ("Explanation", ("explain", "core/upf-0", *PODS, *NODE)),
    "explain-memory": ("Explanation", ("explain", *MEMORY)),
    "explain-ai": ("Explanation", ("explain", *AI)),
    "explain-partition": ("Explanation", ("explain", "gateway", *AI)),
    "explain-crash": ("Explanation", ("explain", *CRASH)),
    "fleet": ("Fleet", ("fleet", "simulate", *FLEET)),
    "fleet-fit": ("FleetFit", ("fleet", "fit", *LIVE, *TRAIN)),
    "fleet-drain": ("FleetDrain", ("fleet", "drain", "worker-2", "worker-4", *LIVE)),
    "fleet-upgrade": ("FleetUpgrade", ("fleet", "upgrade", "1.37", *LIVE)),
    "fleet-size": ("FleetComparison", ("fleet", "size", *FLEET, "--group", "one-socket", "--most", "2")),
    "migrate": ("Migration", ("migrate", "--node", str(EXAMPLES / "node"))),
    "upgrade": ("Upgrade", ("upgrade", "--kubelet-version", "1.34", *PODS, *NODE)),
    "upgrade-ai": ("Upgrade", ("upgrade", "--kubelet-version", "1.33", "1.36", *AI)),
    "upgrade-refused": ("Upgrade", ("upgrade", "--kubelet-version", "1.31", *REFUSED)),
    "upgrade-cluster": ("UpgradeList", ("upgrade", "-f", str(GOLDEN / "cluster.yaml"), *NODE)),
    "explain-refused": ("Explanation", ("explain", *REFUSED)),
    "explain-code": ("CodePage", ("explain", "MOOR-580")),
    "whatif": ("WhatIf", ("whatif", *PODS, *NODE, "--set", "topologyManagerPolicy=restricted")),
    "whatif-refused": ("WhatIf", ("whatif", *PODS, *NODE, "--set", "reservedSystemCPUs=999")),
    "nearest": ("NearestChanges", ("whatif", "hpc/solver", *PODS, *NODE, "--limit", "2")),
    "capacity": ("Capacity", ("capacity", "core/upf", *PODS, *NODE)),
    "capacity-memory": ("Capacity", ("capacity", "--shape", "cpu=2,memory=1Gi", *MEMORY, "--limit", "5")),
    "capacity-ai": ("Capacity", ("capacity", "--shape", "cpu=2,memory=1Gi", *AI, "--limit", "3")),
    "capacity-largest": ("LargestRequests", ("capacity", *NODE)),
    "capacity-refused": ("Capacity", ("capacity", "core/upf", *REFUSED)),
    "resize": ("Resize", ("resize", "core/upf-0/forwarder", "--cpu", "20", *PODS, *NODE)),
    "resize-accepted": (
        "Resize",
        ("resize", "core/upf-0/forwarder", "--cpu", "20", "--memory", "20Gi", *PODS, *RESIZING),
    ),
    "resize-not-running": ("Resize", ("resize", "hpc/solver", "--cpu", "2", *PODS, *NODE)),
    "compare-releases": ("ReleaseComparison", ("compare", *PODS, *NODE, "--kubelet-version", "1.31,1.36,1.37")),
    "compare": ("Comparison", ("compare", *PODS, *NODE, "--vary", "topology-policy", "--jobs", "1")),
}
"""Name -> kind, and the command without its format where that is json."""


def printed(command: tuple[str | Path, ...]) -> Any:
    answered = mooring(*command, *(() if "-o" in command else ("-o", "json")))
    assert answered.code in (0, 1), answered.err
    return answered.document


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_is_what_its_schema_says(name: str) -> None:
    kind, command = DOCUMENTS[name]
    document = printed(command)
    assert document["kind"] == kind
    assert complaints(kind, document) == []


def test_a_plan_that_does_not_end_is_what_its_schema_says(tmp_path: Path) -> None:
    # Five single CPUs are left on each of four nodes (spec: vectors.md, D-loop).
    free = CPUSet.parse("0-4,10-14,20-24,30-34,79")
    state = CPUState("static", free.mask, {"stranger": {"c": (CPUSet.parse("0-79") - free).mask}})
    (tmp_path / "cpu_manager_state").write_text(cpu_state_text(state, pod_level=False, baselines=False), "utf-8")
    config, pods = tmp_path / "kubelet.yaml", tmp_path / "pods.yaml"
    config.write_text(ENDLESS_CONFIG, encoding="utf-8")
    limits = {"cpu": 14, "memory": "1Gi"}
    containers = [{"name": "c", "resources": {"limits": limits}}]
    named = [{"kind": "Pod", "metadata": {"name": name}, "spec": {"containers": containers}} for name in ("a", "b")]
    pods.write_text("---\n".join(f"{json.dumps(pod)}\n" for pod in named), encoding="utf-8")
    machine = "sockets=2 numa=4 cores=40 threads=2 memory=16Gi"
    asked = ("-f", pods, "--machine", machine, "--config", config, "--state", tmp_path)
    document = printed(("plan", *asked))
    assert "unasked" in document
    assert complaints("Plan", document) == []
    assert complaints("Explanation", printed(("explain", *asked))) == []


def test_a_plan_on_more_nodes_than_masks_can_list_is_what_its_schema_says(tmp_path: Path) -> None:
    config = tmp_path / "kubelet.yaml"
    config.write_text(WIDE_CONFIG, encoding="utf-8")
    asked = (*PODS, "--machine", "sockets=2 numa=32 cores=128 threads=2", "--config", config)
    document = printed(("plan", *asked))
    assert any("listed" in hints.get("cpu", {}) for pod in document["pods"] for hints in pod["hints"].values())
    assert complaints("Plan", document) == []
    assert complaints("Explanation", printed(("explain", *asked))) == []


@pytest.mark.parametrize("damage", ["none", "checksum", "torn"])
def test_a_diagnosis_is_what_its_schema_says(damage: str, tmp_path: Path) -> None:
    mooring("plan", *PODS, *NODE, "--save-state", tmp_path)
    file = tmp_path / "cpu_manager_state"
    text = file.read_text(encoding="utf-8")
    damaged = {"none": text, "checksum": text.replace('"checksum":', '"checksum":1'), "torn": text[: len(text) // 2]}
    file.write_text(damaged[damage], encoding="utf-8")
    for more in ((), ("--active", EXAMPLES / "pods.yaml"), ("--write",)):
        document = printed(("doctor", "--state", tmp_path, *NODE, *more))
        assert complaints("Diagnosis", document) == []


def test_documents_about_a_collected_node_are_what_their_schemas_say(tmp_path: Path) -> None:
    root, pods = make_root(tmp_path / "root"), write_pods(tmp_path / "pods.json", kubelet_pods())
    archive = tmp_path / "node.tar.gz"
    about = printed(("collect", "--root", root, "--no-kubectl", "--pods", pods, "--to", archive))
    assert complaints("NodeArchive", about) == []
    assert complaints("Plan", printed(("plan", *PODS, "--node", archive))) == []
    assert complaints("Machine", printed(("topology", "--node", archive))) == []
    running = printed(("explain", "--node", archive))
    assert (running["kind"], complaints("ExplanationList", running)) == ("ExplanationList", [])
    isolation = printed(("doctor", "--lint", "--node", archive))
    assert (isolation["kind"], complaints("Isolation", isolation)) == ("Isolation", [])


def test_every_kind_is_tested() -> None:
    here = {kind for kind, _ in DOCUMENTS.values()}
    # In tests/agent/outside/test_agent_status.py, tests/fleet/test_fleet_live_archive.py and tests/shadow.
    elsewhere = {"AgentStatus", "ClusterArchive", "Recording", "Shadow"}
    assert here | elsewhere | {"Diagnosis", "NodeArchive", "ExplanationList", "Isolation"} == set(kinds())
