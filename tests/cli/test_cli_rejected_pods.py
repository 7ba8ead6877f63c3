"""Pods of a cluster as kubectl prints them: rejected ones are the question, ended ones and those of others are not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import Answered, mooring

CASE = Path(__file__).parent / "cases" / "pods-of-two-nodes"
NODE = ("--machine", "sockets=2 cores=16 threads=2 memory=64Gi", "--config", str(CASE / "kubelet.yaml"))
NOT_LOCAL = "Resources cannot be allocated with Topology locality"


def pod(name: str, node: str = "n1", phase: str = "Running", cpus: int = 8, **status: str) -> dict[str, Any]:
    """Return a Guaranteed pod as kubectl prints it."""
    amounts = {"cpu": str(cpus), "memory": "1Gi"}
    spec = {"containers": [{"name": "main", "resources": {"limits": amounts, "requests": amounts}}]}
    started = {} if phase == "Pending" else {"startTime": "2026-11-01T00:00:00Z"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ai", "uid": f"uid-{name}"},
        "spec": spec | ({"nodeName": node} if node else {}),
        "status": {"phase": phase, "qosClass": "Guaranteed"} | started | status,
    }


def rejected(name: str, node: str = "n1", cpus: int = 10, message: str = NOT_LOCAL) -> dict[str, Any]:
    """Return a pod that a kubelet rejected."""
    failed = {"reason": "TopologyAffinityError", "message": f"Pod was rejected: {message}"}
    return pod(name, node, "Failed", cpus, **failed)


RUNNING = [pod("db-0"), pod("db-1")]
"""Each takes half a NUMA node, so that ten CPUs fit on neither."""


def text_of(*pods: Mapping[str, Any]) -> bytes:
    """Return a list of pods as kubectl prints it."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": pods}).encode()


def ask(verb: str, pods: list[dict[str, Any]], *options: str, source: str = "-f") -> Answered:
    """Ask about pods of standard input."""
    return mooring(verb, *options, source, "-", *NODE, stdin=text_of(*pods))


def verdicts(answered: Answered) -> list[tuple[str, bool]]:
    """Return the pods of a plan in order, each with whether it is admitted."""
    return [(one["name"], one["admitted"]) for one in answered.document["pods"]]


def codes(answered: Answered) -> list[str]:
    """Return the codes of the findings about the pods."""
    return [one["code"] for one in answered.document["findings"] if one["code"].startswith("MOOR-5")]


@pytest.mark.parametrize("name", ["trainer", "ai/trainer", "uid-trainer", "ai/trainer/main"])
@pytest.mark.parametrize("source", ["-f", "--active"])
def test_a_rejected_pod_that_is_named_is_asked_about_beside_those_that_run(name: str, source: str) -> None:
    answered = ask("explain", [rejected("trainer"), *RUNNING], name, "-o", "json", source=source)
    document = answered.document
    assert (answered.code, document["name"], document["reason"]) == (1, "trainer", "TopologyAffinityError")
    assert document["message"] == NOT_LOCAL
    assert document["remarks"] == []


@pytest.mark.parametrize("reason", ["TopologyAffinityError", "OutOfvendor.example/nic", "NodeAffinity", "ProcMount"])
def test_plan_counts_pods_that_a_kubelet_rejected_for_any_reason_after_those_that_run(reason: str) -> None:
    failed = pod("trainer", phase="Failed", cpus=10, reason=reason)
    answered = ask("plan", [failed, *RUNNING], "-o", "json")
    assert answered.code == 1
    assert verdicts(answered) == [("db-0", True), ("db-1", True), ("trainer", False)]


def test_a_rejected_pod_comes_before_pods_that_are_bound_to_no_node() -> None:
    pods = [pod("arriving", phase="Pending"), pod("anywhere", "", "Pending"), rejected("trainer", cpus=8), *RUNNING]
    asked = [name for name, _ in verdicts(ask("plan", pods, "-o", "json"))]
    assert asked == ["arriving", "db-0", "db-1", "trainer", "anywhere"]


def test_with_active_a_rejected_pod_does_not_run_and_one_line_says_so() -> None:
    answered = ask("explain", [rejected("trainer"), *RUNNING], source="--active")
    assert answered.code == 0
    assert "ai/trainer" not in answered.out
    assert answered.err == (
        "note[MOOR-502]: pods: 1 pod is left out: 1 rejected by the kubelet (ai/trainer: TopologyAffinityError); "
        "mooring explain NAMESPACE/POD asks about one\n"
    )


@pytest.mark.parametrize("status", [("Failed", "Evicted"), ("Failed", ""), ("Succeeded", "")])
def test_a_pod_that_has_ended_is_no_question_unless_it_is_named(status: tuple[str, str]) -> None:
    phase, reason = status
    ended = pod("done", phase=phase, cpus=10, reason=reason)
    planned = ask("plan", [ended, *RUNNING], "-o", "json")
    assert (planned.code, verdicts(planned), codes(planned)) == (0, [("db-0", True), ("db-1", True)], ["MOOR-502"])
    assert "2 pods admitted, 0 rejected." in ask("plan", [ended, *RUNNING]).out
    for source in ("-f", "--active"):
        named = ask("explain", [ended, *RUNNING], "ai/done", source=source)
        assert (named.code, named.err) == (1, "")
        assert "ai/done is rejected" in named.out


def test_a_name_means_pods_that_have_ended_only_where_it_means_no_other() -> None:
    old = pod("web", phase="Failed", reason="Evicted")
    old["metadata"] |= {"namespace": "old", "uid": "uid-old"}
    answered = ask("explain", [old, pod("web")], "web", "-o", "json")
    assert (answered.document["namespace"], answered.document["uid"]) == ("ai", "uid-web")


def test_beside_a_rejected_pod_that_is_named_others_that_were_rejected_are_left_out() -> None:
    pods = [rejected("trainer-1", cpus=6), rejected("trainer-2", cpus=8), *RUNNING]
    assert verdicts(ask("plan", pods, "-o", "json"))[2:] == [("trainer-1", True), ("trainer-2", True)]
    named = ask("explain", pods, "trainer-2")
    assert (named.code, "1 rejected by the kubelet (ai/trainer-1" in named.err) == (0, True)


def test_a_pod_that_is_named_is_asked_about_on_its_own_node() -> None:
    pods = [rejected("trainer"), *RUNNING, pod("else", "n2", cpus=14), rejected("other", "n2", cpus=2)]
    for source in ("-f", "--active"):
        here = ask("explain", pods, "ai/trainer", source=source)
        assert (here.code, "8 on NUMA node 1, 7 on NUMA node 0" in here.out) == (1, True)
        assert "warning[MOOR-513]: node n1: 2 pods are bound to other nodes and left out\n" in here.err
        there = ask("explain", pods, "ai/other", source=source)
        assert (there.code, "ai/other is admitted" in there.out) == (0, True)


def test_a_pod_that_is_being_deleted_keeps_what_it_has_until_it_has_ended() -> None:
    leaving = pod("leaving")
    leaving["metadata"]["deletionTimestamp"] = "2026-11-02T00:00:00Z"
    assert ask("explain", [rejected("trainer"), leaving, pod("db-1")], "trainer").code == 1
    assert ask("explain", [rejected("trainer"), pod("db-1")], "trainer").code == 0


def test_a_pod_of_the_manifests_may_also_be_one_that_ended_among_the_active_ones(tmp_path: Path) -> None:
    new = tmp_path / "pod.json"
    new.write_bytes(text_of(rejected("trainer")))
    active = text_of(rejected("trainer"), *RUNNING)
    answered = mooring("explain", "trainer", "-f", new, "--active", "-", *NODE, stdin=active)
    assert (answered.code, "ai/trainer is rejected" in answered.out) == (1, True)


@pytest.mark.parametrize(
    ("recorded", "said"),
    [
        (("TopologyAffinityError", f"Pod was rejected: {NOT_LOCAL}"), ""),
        (("TopologyAffinityError", f"Pod {NOT_LOCAL}"), ""),
        (("TopologyAffinityError", ""), ""),
        (
            ("OutOfcpu", "Pod was rejected: Too\nmuch\x1b[31m"),
            "records OutOfcpu “Too much�[31m”, and here it is rejected",
        ),
        (("NodeShutdown", ""), "records NodeShutdown, a check of the kubelet that is not made here"),
        (("Evicted", "low on memory"), "records Evicted “low on memory”, which is no admission reason"),
    ],
)
def test_what_the_status_records_is_compared_with_the_answer(recorded: tuple[str, str], said: str) -> None:
    failed = pod("trainer", phase="Failed", cpus=10, reason=recorded[0], message=recorded[1])
    told = ask("explain", [failed, *RUNNING], "trainer").out
    assert (" ".join(told.split()).find(said) >= 0) if said else "MOOR-519" not in told
    remarks = ask("explain", [failed, *RUNNING], "trainer", "-o", "json").document["remarks"]
    assert [one["code"] for one in remarks] == (["MOOR-519"] if said else [])


def test_where_the_answer_differs_plan_says_so_in_text_and_document() -> None:
    said = (
        f"its status records TopologyAffinityError “{NOT_LOCAL}”, and here it is admitted: release, configuration, "
        "state or other pods were not the same then"
    )
    assert ask("plan", [rejected("trainer")]).err == f"warning[MOOR-519]: ai/trainer: {said}\n"
    found = ask("plan", [rejected("trainer")], "-o", "json").document["findings"]
    assert {"severity": "warning", "subject": "ai/trainer", "message": said, "code": "MOOR-519"} in found


def test_after_a_change_the_status_is_compared_no_more() -> None:
    changed = ask("whatif", [rejected("trainer"), *RUNNING], "--ask", "ai/trainer:cpu=8", source="--active")
    assert (changed.code, changed.err, "trainer" in changed.out) == (0, "", True)


def test_commands_that_are_printed_name_the_pod_where_nothing_else_does() -> None:
    pods = [rejected("trainer"), *RUNNING, pod("else", "n2")]
    lines = ask("whatif", pods, "ai/trainer", source="--active").out.replace("\\\n", "").splitlines()
    commands = [line for line in lines if "mooring whatif" in line]
    assert commands
    assert all("ai/trainer" in command and "--node-name n1" in command for command in commands)


def test_capacity_counts_pods_like_one_that_was_rejected() -> None:
    answered = ask("capacity", [rejected("trainer", cpus=4), *RUNNING], "ai/trainer", "-o", "json", source="--active")
    assert (answered.code, len(answered.document["replicas"]) > 1) == (0, True)


@pytest.mark.parametrize("verb", ["plan", "explain", "whatif", "capacity", "compare", "upgrade", "show"])
def test_pods_of_two_nodes_are_never_planned_on_one(verb: str) -> None:
    more = {"upgrade": ("--kubelet-version", "1.34"), "compare": ("--vary", "topology-policy")}
    given = (verb, "-f", CASE / "pods.yaml", *NODE, *more.get(verb, ()))
    refused = mooring(*given)
    assert refused.code == 2
    assert "pods.yaml: -f: the pods are bound to 2 nodes (node-a, node-b); choose one with --node-name" in refused.err
    answered = mooring(*given, "--node-name", "node-a")
    assert answered.code == 0
    assert "node node-a: 1 pod is bound to other nodes and left out" in answered.err
    assert "worker" not in answered.out


def test_manifests_with_pods_of_other_nodes_alone_say_so() -> None:
    refused = mooring("plan", "-f", CASE / "pods.yaml", *NODE, "--node-name", "node-c")
    assert refused.code == 2
    assert refused.complaint.endswith(
        "there is no pod in the manifests; node node-c: 2 pods are bound to other nodes and left out; choose another "
        "node with --node-name"
    )


def test_pods_of_a_workload_are_bound_to_no_node() -> None:
    template = {"spec": pod("x")["spec"] | {"nodeName": ""}}
    web = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"template": template}}
    answered = ask("plan", [web, pod("db-0", "n2"), rejected("trainer", "n2")], "-o", "json")
    assert verdicts(answered) == [("web-0", True), ("db-0", True), ("trainer", False)]


def test_beside_a_pod_that_is_named_one_that_exists_may_stand_in_both_lists(tmp_path: Path) -> None:
    everything = tmp_path / "all.json"
    everything.write_bytes(text_of(rejected("trainer"), *RUNNING, pod("arriving", phase="Pending", cpus=2)))
    twice = ("-f", everything, "--active", everything, *NODE)
    explained = mooring("explain", "ai/trainer", *twice)
    assert explained.code == 1
    assert "ai/trainer is rejected" in explained.out
    assert "is also given with --active" in mooring("plan", *twice).err
