"""``--active`` with the pods of a whole cluster takes those of one node."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.cli.command import NODE, Answered, mooring

SHAPE = {"limits": {"cpu": 2, "memory": "1Gi"}}
NEW = {"kind": "Pod", "metadata": {"name": "new"}, "spec": {"containers": [{"name": "app", "resources": SHAPE}]}}


def pod(name: str, node: str = "", phase: str = "Running", *, started: bool = True) -> dict[str, Any]:
    """Return a pod as kubectl prints it."""
    spec = {"containers": [{"name": "app", "resources": SHAPE}]} | ({"nodeName": node} if node else {})
    status = {"phase": phase} | ({"startTime": "2026-11-01T00:00:00Z"} if started else {})
    return {"kind": "Pod", "metadata": {"name": name}, "spec": spec, "status": status}


def plan(folder: Path, pods: list[dict[str, Any]], *options: str) -> Answered:
    """Plan one more pod after the active ones."""
    (folder / "active.json").write_text(json.dumps({"kind": "PodList", "items": pods}), encoding="utf-8")
    (folder / "new.json").write_text(json.dumps(NEW), encoding="utf-8")
    given = ("-f", folder / "new.json", "--active", folder / "active.json", *NODE)
    return mooring("plan", *given, "-o", "json", *options)


def standing(answered: Answered) -> list[tuple[str, bool]]:
    """Return the pods in order, each with whether it ran already."""
    return [(one["name"], one.get("running", False)) for one in answered.document["pods"]]


def told(answered: Answered) -> list[str]:
    """Return what is said about pods that do not run on the node."""
    return [f"{one['subject']}: {one['message']}" for one in answered.document["findings"] if one["code"] == "MOOR-513"]


def test_pods_of_other_nodes_are_left_out_and_counted(tmp_path: Path) -> None:
    answered = plan(tmp_path, [pod("a", "n1"), pod("b", "n2"), pod("c", "n3")], "--node-name", "n1")
    assert standing(answered) == [("a", True), ("new", False)]
    assert told(answered) == ["node n1: 2 pods are bound to other nodes and left out"]


def test_pending_pods_are_asked_and_not_taken_as_running(tmp_path: Path) -> None:
    pods = [
        pod("a", "n1"),
        pod("unbound", "", "Pending", started=False),
        pod("arriving", "n1", "Pending", started=False),
        pod("pulling", "n1", "Pending"),
        pod("elsewhere", "n2", "Pending", started=False),
    ]
    answered = plan(tmp_path, pods, "--node-name", "n1")
    assert standing(answered) == [
        ("a", True),
        ("pulling", True),
        ("arriving", False),
        ("new", False),
        ("unbound", False),
    ]
    assert told(answered) == [
        "node n1: 1 pod is bound to other nodes and left out; 2 pods are pending and not counted as running"
    ]


def test_finished_pods_are_left_out(tmp_path: Path) -> None:
    answered = plan(tmp_path, [pod("a", "n1"), pod("done", "n1", "Succeeded"), pod("failed", "n1", "Failed")])
    assert standing(answered) == [("a", True), ("new", False)]


def test_the_only_node_of_the_pods_needs_no_name(tmp_path: Path) -> None:
    answered = plan(tmp_path, [pod("a", "n1"), pod("b", "n1"), pod("static")])
    assert standing(answered) == [("a", True), ("b", True), ("static", True), ("new", False)]
    assert told(answered) == []


def test_pods_of_several_nodes_need_a_name(tmp_path: Path) -> None:
    refused = plan(tmp_path, [pod("a", "n1"), pod("b", "n2")])
    assert refused.code == 2
    assert "the pods are bound to 2 nodes (n1, n2); choose one with --node-name" in refused.complaint
