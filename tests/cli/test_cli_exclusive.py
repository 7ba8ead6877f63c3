"""Why a pod shares, what gives it exclusive CPUs, and what an option or a device lacks to have an effect."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import EXAMPLES, NODE, PODS, Answered, mooring
from tests.cli.given import ALIGNED, SIXTEEN_CORES, STATIC, container, given, pod
from tests.values import cases

from mooring.engine.core.decision import DECIDED_REASONS, OTHER_REASONS
from mooring.explanations.codes import all_codes, reason_page, reasons

M8 = SIXTEEN_CORES


def app(folder: Path, *containers: Any, config: Any = None, machine: Any = M8, **spec: Any) -> tuple[str, ...]:
    """Return the options of a node and of a pod called app."""
    asked = pod("app") | {"spec": {"containers": containers} | spec}
    return given(folder, asked, machine=machine, kubelet=ALIGNED | (config or {}))


def explained(*options: str) -> Answered:
    return mooring("explain", "app", *options, columns=500)


BIG = container("engine", {"cpu": "2", "memory": "1Gi"})


@pytest.mark.parametrize(
    ("spec", "culprits", "asks", "name"),
    cases(__file__, "costs-of-the-class.yaml", "spec", "culprits", "asks", "name"),
)
def test_containers_and_fields_that_cost_the_class_are_named_with_a_tried_change(
    spec: dict[str, Any], culprits: str, asks: list[str], name: str, tmp_path: Path
) -> None:
    options = app(tmp_path, **spec)
    text = explained(*options).out
    assert f"its QoS class is Burstable {culprits}, and only Guaranteed pods get exclusive CPUs." in text, name
    assert "not run" not in text
    document = mooring("explain", "app", *options, "-o", "json").document
    assert culprits in document["why"]
    changes = [change["value"] for change in document["proposals"][0]["changes"]]
    assert changes == [f"default/{ask}" for ask in asks]
    words = [word for value in changes for word in ("--ask", value)]
    after = mooring("whatif", *options, *words, "-o", "json").document["after"]["pods"][0]
    assert after["code"] == "MOOR-161"
    assert any(place["cpus"] for place in after["containers"].values())


def test_pod_level_resources_are_named_as_what_decides(tmp_path: Path) -> None:
    pod_level = {"resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "2", "memory": "1Gi"}}}
    options = app(tmp_path, container("a"), **pod_level, config={"featureGates": {"PodLevelResourceManagers": True}})
    assert "(spec.resources has no memory limit)" in explained(*options).out
    assert "--set topologyManagerScope=pod --ask default/app:limits.memory=1Gi" in explained(*options).out


def test_a_pod_that_wants_no_whole_cpu_gets_general_advice_only(tmp_path: Path) -> None:
    options = app(tmp_path, container("small", None, {"cpu": "100m"}))
    assert "(small has no cpu and memory limits)" in explained(*options).out
    assert "help (general, not run): " in explained(*options).out


def test_the_goal_exclusive_is_searched_for_and_each_command_reaches_it(tmp_path: Path) -> None:
    uneven = container("a", {"cpu": "1500m", "memory": "1Gi"})
    options = app(tmp_path, uneven)
    assert "is admitted: nothing needs to change" in mooring("whatif", "app", *options).out
    assert "--goal exclusive" in mooring("whatif", "app", *options).out
    answer = mooring("whatif", "app", *options, "--goal", "exclusive", columns=300, code=0)
    assert "default/app has no exclusive CPUs [MOOR-165]" in answer.out
    assert "--ask default/app/a:limits.cpu=2" in answer.out
    reached = mooring("whatif", "app", *options, "--goal", "exclusive", "--ask", "app/a:limits.cpu=2")
    assert (reached.code, "nothing needs to change" in reached.out) == (0, True)


def test_the_goal_that_no_small_change_reaches_is_no(tmp_path: Path) -> None:
    answer = mooring("whatif", "app", *app(tmp_path, container("none")), "--goal", "exclusive")
    assert (answer.code, "No small change was found that gives it exclusive CPUs" in answer.out) == (1, True)
    assert mooring("whatif", *app(tmp_path, BIG), "--goal", "exclusive").code == 2


ALPHA = {"featureGates": {"CPUManagerPolicyAlphaOptions": True}}
MACHINES = {"M8": M8, "NPS2": "sockets=2 numa=4 cores=64 threads=2 memory=256Gi", "FLAT": "cores=8 memory=8Gi"}


@pytest.mark.parametrize(
    ("machine", "policy", "idle", "setting"),
    cases(__file__, "idle-settings.yaml", "machine", "policy", "idle", "set"),
)
def test_an_option_that_changes_nothing_is_named(
    tmp_path: Path, machine: str, policy: str, idle: bool, setting: str
) -> None:
    name, _, value = setting.partition("=")
    field, _, option = name.partition(".")
    given_option = {field: {option: value} if option else value}
    config = {"topologyManagerPolicy": policy, **ALPHA, **given_option}
    arguments = app(tmp_path, BIG, machine=MACHINES[machine], config=config)
    answer = mooring("plan", *arguments, "-o", "json")
    named = [one["subject"] for one in answer.document["findings"] if one["code"] == "MOOR-543"]
    assert (answer.code, named) == (0, [option or field] if idle else [])
    assert (f"note[MOOR-543]: {option or field}: has no effect: " in mooring("plan", *arguments).err) == idle


def unhealthy(folder: Path, devices: list[dict[str, Any]], asked: int, policy: str = "none") -> tuple[str, ...]:
    name = "example.com/stick"
    declared = {"apiVersion": "mooring/v1alpha1", "kind": "NodeDevices", "devices": {name: devices}}
    (folder / "devices.json").write_text(json.dumps(declared))
    wants = container("main", {"cpu": 1, "memory": "1Gi", name: asked})
    more = "--config", str(folder / "devices.json")
    return (*app(folder, wants, config={"topologyManagerPolicy": policy}), *more)


@pytest.mark.parametrize("policy", ["none", "restricted"])
def test_of_unhealthy_devices_the_plugin_is_the_remedy(tmp_path: Path, policy: str) -> None:
    sick = {"id": "d0", "unhealthy": True, "numa": [0]}
    alone = unhealthy(tmp_path, [sick], 1, policy)
    assert "but none of 1 is healthy" in explained(*alone).out
    for answer in (explained(*alone), mooring("whatif", "app", *alone, columns=500)):
        assert "[MOOR-139]" in answer.out
        assert "Start or repair their device plugin, then create the pod again" in answer.out
        assert "Request fewer" not in answer.out
    some = unhealthy(tmp_path, [sick, {"id": "d1", "numa": [0]}], 2, policy)
    answer = explained(*some)
    assert "but only 1 of 2 is healthy" in answer.out
    first = next(line for line in answer.out.splitlines() if line.startswith("help"))
    assert first.startswith("help: Start or repair their device plugin")


# ``mooring explain``: names, formats, exit codes.


def pods_file(folder: Path, *pods: tuple[str, str], more: Mapping[str, str] | None = None) -> str:
    """Write pods called web, each with its namespace and CPUs; the first one asks for more."""
    new = [kubectl_pod("web", "", "Pending", cpus, space) for space, cpus in pods]
    new[0]["spec"]["containers"][0]["resources"]["limits"].update(more or {})
    (folder / "pods.json").write_bytes(text_of(*new))
    return str(folder / "pods.json")


def test_a_container_is_explained_and_not_its_pod(tmp_path: Path) -> None:
    sizes = {"app": "2", "other": "3", "log": "500m"}
    containers = [container(name, {"cpu": cpu, "memory": "1Gi"}) for name, cpu in sizes.items()]
    node = app(tmp_path, *containers, config={"topologyManagerPolicy": "none"}, machine="sockets=2 cores=16")

    def said(name: str) -> tuple[str, str, list[str]]:
        found = mooring("explain", name, *node, "-o", "json").document
        return found["code"], found["why"], [one["code"] for one in found["remarks"]]

    of_pod = "Its 5 exclusive CPUs come from NUMA node 0; 1 other container runs in the shared pool."
    assert said("app") == ("MOOR-161", of_pod, ["MOOR-176"])
    assert said("app/app") == ("MOOR-161", "Its 2 exclusive CPUs come from NUMA node 0.", [])
    assert said("app/other") == ("MOOR-161", "Its 3 exclusive CPUs come from NUMA node 0.", [])
    assert said("app/log") == ("MOOR-165", "It runs in the shared pool: 500m is not a whole number of CPUs.", [])
    text = mooring("explain", "app/log", *node).out
    assert text.startswith(
        "ok[MOOR-165]: default/app/log is admitted\n  It runs in the shared pool: 500m is not a whole"
    )
    assert "exclusive CPUs come" not in text


def test_without_a_name_the_first_refused_pod_is_explained() -> None:
    answered = mooring("explain", *PODS, *NODE, "-o", "json", "--nearest", "0")
    assert (answered.code, answered.document["name"], answered.document["code"]) == (1, "inference", "MOOR-105")


def test_when_every_pod_runs_they_are_listed(tmp_path: Path) -> None:
    manifest = pods_file(tmp_path, ("a", "2"), ("b", "100m"))
    answered = mooring("explain", "-f", manifest, *NODE, "-o", "json")
    assert (answered.code, answered.document["kind"]) == (0, "ExplanationList")
    assert [one["code"] for one in answered.document["pods"]] == ["MOOR-161", "MOOR-165"]
    assert "a/web  [MOOR-161]" in mooring("explain", "-f", manifest, *NODE).out
    assert mooring("explain", "-f", manifest, *NODE, "-o", "svg").code == 2


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("core/upf-0", ("core", "upf-0", "")),
        ("upf-0", ("core", "upf-0", "")),
        ("upf-0/mesh", ("core", "upf-0", "mesh")),
        ("core/upf-0/mesh", ("core", "upf-0", "mesh")),
    ],
)
def test_a_pod_and_a_container_are_named_with_or_without_the_namespace(name: str, named: tuple[str, ...]) -> None:
    found = mooring("explain", name, *PODS, *NODE, "-o", "json").document
    assert (found["namespace"], found["name"], found["container"]) == named


def test_a_name_that_means_several_pods_is_reported_with_all_of_them(tmp_path: Path) -> None:
    manifest = pods_file(tmp_path, ("a", "2"), ("b", "2"))
    answered = mooring("explain", "web", "-f", manifest, *NODE, code=2)
    assert answered.complaint == "mooring: 'web' means 2 pods: a/web, b/web; name one of them"
    container = mooring("explain", "web/main", "-f", manifest, *NODE)
    assert container.complaint == "mooring: 'web/main' means 2 containers: a/web/main, b/web/main; name one of them"


@pytest.mark.parametrize("arguments", [(), ("web",), ("--machine", "small-1s8")])
def test_without_pods_and_kubectl_nothing_is_explained(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    assert "there is no pod to explain" in mooring("explain", *arguments, code=2).complaint


def test_a_pod_after_one_on_which_the_kubelet_crashes_is_asked_unless_the_plan_stops_there(tmp_path: Path) -> None:
    memory = {"memoryManagerPolicy": "Static", "kubeReserved": {"memory": "1Gi"}}
    reserved = {"reservedMemory": [{"numaNode": 0, "limits": {"memory": "1124Mi"}}]}
    manifest = pods_file(tmp_path, ("a", "1"), ("b", "1"), more={"hugepages-2Mi": "2Mi"})
    node = ("-f", manifest, *given(tmp_path, kubelet=STATIC | memory | reserved), "-o", "json", "--nearest", "0")
    crash, asked = mooring("explain", "a/web", *node), mooring("explain", "b/web", *node)
    unasked = mooring("explain", "b/web", *node, "--stop-at-crash")
    assert (crash.code, crash.document["verdict"], crash.document["code"]) == (1, "crash", "MOOR-152")
    assert (asked.code, asked.document["verdict"]) == (0, "admitted")
    assert (unasked.code, unasked.document["verdict"]) == (1, "not asked")


@pytest.mark.parametrize("code", [one for one in all_codes() if one.startswith("MOOR-1")])
def test_every_code_of_a_pod_is_explained_by_its_page(code: str) -> None:
    answered = mooring("explain", code.lower(), "-o", "json")
    assert (answered.code, answered.document["code"], answered.document["kind"]) == (0, code, "CodePage")
    assert mooring("explain", code).out == answered.document["text"]


def test_the_beginning_of_a_code_lists_the_codes_with_their_titles() -> None:
    listed = [line.partition("  ") for line in mooring("explain", "MOOR-").out.splitlines()]
    assert [code for code, _, _ in listed] == all_codes()
    assert all(mooring("explain", code).out.startswith(f"# {code}: {title}\n") for code, _, title in listed[::20])


# ``mooring explain REASON`` and ``mooring explain "MESSAGE"``: what is pasted from an event leads to the codes.


@pytest.mark.parametrize(("sentence", "leads_to"), cases(__file__, "pasted.yaml", "text", "leads"))
def test_a_message_that_is_pasted_leads_to_its_meaning(sentence: str, leads_to: str) -> None:
    answered = mooring("explain", sentence)
    assert (answered.code, leads_to in answered.out) == (0, True), answered


def test_a_message_names_only_the_codes_that_split_it() -> None:
    sentence = (
        "Allocate failed due to [memorymanager] preferred hint violates NUMA node allocation, which is unexpected"
    )
    assert re.findall(r"^\* (MOOR-\d+)", mooring("explain", sentence).out, re.MULTILINE) == ["MOOR-114"]


@pytest.mark.parametrize("reason", sorted({*DECIDED_REASONS, *OTHER_REASONS, "OutOfcpu", "OutOfnvidia.com/gpu"}))
def test_every_reason_of_an_admission_has_a_meaning(reason: str) -> None:
    answered = mooring("explain", reason)
    assert (answered.code, "## What it means\n" in answered.out) == (0, True), answered


def test_every_code_of_a_reason_has_a_page() -> None:
    assert set(re.findall(r"MOOR-\d+", "".join(reasons().values()))) <= set(all_codes())


def test_every_message_of_the_table_leads_to_its_own_reason() -> None:
    for reason, text in reasons().items():
        for message in re.findall(r"^\* `(.+?)`: ", text, re.MULTILINE):
            page = reason_page(f"so: {re.sub('%[dsv]', '7', message)}")
            assert page is not None
            assert reasons()[page.code] == text, (reason, message)


def test_the_name_of_a_pod_is_no_reason(tmp_path: Path) -> None:
    pods = (EXAMPLES / "pods.yaml").read_text(encoding="utf-8")
    file = tmp_path / "pods.yaml"
    file.write_text(pods.replace("timekeeper", "evicted"), encoding="utf-8")
    assert "## What it means" not in mooring("explain", "evicted", "-f", file, "--machine", "small-1s8").out


# Pods of a cluster as kubectl prints them: rejected ones are the question, ended ones and those of others are not.


CASE = Path(__file__).parent / "cases" / "pods-of-two-nodes"
NODE_PODS = ("--machine", "sockets=2 cores=16 threads=2 memory=64Gi", "--config", str(CASE / "kubelet.yaml"))
NOT_LOCAL = "Resources cannot be allocated with Topology locality"


def kubectl_pod(
    name: str, node: str = "n1", phase: str = "Running", cpus: int | str = 8, space: str = "ai", **status: str
) -> dict[str, Any]:
    """Return a Guaranteed pod as kubectl prints it."""
    amounts = {"cpu": str(cpus), "memory": "1Gi"}
    spec = {"containers": [{"name": "main", "resources": {"limits": amounts, "requests": amounts}}]}
    started = {} if phase == "Pending" else {"startTime": "2026-11-01T00:00:00Z"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": space, "uid": f"uid-{space}-{name}"},
        "spec": spec | ({"nodeName": node} if node else {}),
        "status": {"phase": phase, "qosClass": "Guaranteed"} | started | status,
    }


def rejected(name: str, node: str = "n1", cpus: int = 10, message: str = NOT_LOCAL) -> dict[str, Any]:
    """Return a pod that a kubelet rejected."""
    failed = {"reason": "TopologyAffinityError", "message": f"Pod was rejected: {message}"}
    return kubectl_pod(name, node, "Failed", cpus, **failed)


RUNNING = [kubectl_pod("db-0"), kubectl_pod("db-1")]
"""Each takes half a NUMA node, so that ten CPUs fit on neither."""


def text_of(*pods: Mapping[str, Any]) -> bytes:
    """Return a list of pods as kubectl prints it."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": pods}).encode()


def ask(verb: str, pods: list[dict[str, Any]], *options: str, source: str = "-f") -> Answered:
    """Ask about pods of standard input."""
    return mooring(verb, *options, source, "-", *NODE_PODS, stdin=text_of(*pods))


def verdicts(answered: Answered) -> list[tuple[str, bool]]:
    """Return the pods of a plan in order, each with whether it is admitted."""
    return [(one["name"], one["admitted"]) for one in answered.document["pods"]]


def codes(answered: Answered) -> list[str]:
    """Return the codes of the findings about the pods."""
    return [one["code"] for one in answered.document["findings"] if one["code"].startswith("MOOR-5")]


@pytest.mark.parametrize("name", ["trainer", "ai/trainer", "uid-ai-trainer", "ai/trainer/main"])
@pytest.mark.parametrize("source", ["-f", "--active"])
def test_a_rejected_pod_that_is_named_is_asked_about_beside_those_that_run(name: str, source: str) -> None:
    answered = ask("explain", [rejected("trainer"), *RUNNING], name, "-o", "json", source=source)
    document = answered.document
    assert (answered.code, document["name"], document["reason"]) == (1, "trainer", "TopologyAffinityError")
    assert document["message"] == NOT_LOCAL
    assert document["remarks"] == []


def test_a_rejected_pod_comes_before_pods_that_are_bound_to_no_node() -> None:
    pods = [
        kubectl_pod("arriving", phase="Pending"),
        kubectl_pod("anywhere", "", "Pending"),
        rejected("trainer", cpus=8),
        *RUNNING,
    ]
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
    ended = kubectl_pod("done", phase=phase, cpus=10, reason=reason)
    planned = ask("plan", [ended, *RUNNING], "-o", "json")
    assert (planned.code, verdicts(planned), codes(planned)) == (0, [("db-0", True), ("db-1", True)], ["MOOR-502"])
    assert "2 pods admitted, 0 rejected." in ask("plan", [ended, *RUNNING]).out
    for source in ("-f", "--active"):
        named = ask("explain", [ended, *RUNNING], "ai/done", source=source)
        assert (named.code, named.err) == (1, "")
        assert "ai/done is rejected" in named.out


def test_a_name_means_pods_that_have_ended_only_where_it_means_no_other() -> None:
    old = kubectl_pod("web", phase="Failed", reason="Evicted")
    old["metadata"] |= {"namespace": "old", "uid": "uid-old"}
    answered = ask("explain", [old, kubectl_pod("web")], "web", "-o", "json")
    assert (answered.document["namespace"], answered.document["uid"]) == ("ai", "uid-ai-web")


def test_beside_a_rejected_pod_that_is_named_others_that_were_rejected_are_left_out() -> None:
    pods = [rejected("trainer-1", cpus=6), rejected("trainer-2", cpus=8), *RUNNING]
    assert verdicts(ask("plan", pods, "-o", "json"))[2:] == [("trainer-1", True), ("trainer-2", True)]
    named = ask("explain", pods, "trainer-2")
    assert (named.code, "1 rejected by the kubelet (ai/trainer-1" in named.err) == (0, True)


def test_a_pod_that_is_being_deleted_keeps_what_it_has_until_it_has_ended() -> None:
    leaving = kubectl_pod("leaving")
    leaving["metadata"]["deletionTimestamp"] = "2026-11-02T00:00:00Z"
    assert ask("explain", [rejected("trainer"), leaving, kubectl_pod("db-1")], "trainer").code == 1
    assert ask("explain", [rejected("trainer"), kubectl_pod("db-1")], "trainer").code == 0


def test_a_pod_of_the_manifests_may_also_be_one_that_ended_among_the_active_ones(tmp_path: Path) -> None:
    new = tmp_path / "pod.json"
    new.write_bytes(text_of(rejected("trainer")))
    active = text_of(rejected("trainer"), *RUNNING)
    answered = mooring("explain", "trainer", "-f", new, "--active", "-", *NODE_PODS, stdin=active)
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
    failed = kubectl_pod("trainer", phase="Failed", cpus=10, reason=recorded[0], message=recorded[1])
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
    pods = [rejected("trainer"), *RUNNING, kubectl_pod("else", "n2")]
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
    given = (verb, "-f", CASE / "pods.yaml", *NODE_PODS, *more.get(verb, ()))
    refused = mooring(*given, code=2)
    assert "pods.yaml: -f: the pods are bound to 2 nodes (node-a, node-b); choose one with --node-name" in refused.err
    answered = mooring(*given, "--node-name", "node-a", code=0)
    assert "node node-a: 1 pod is bound to other nodes and left out" in answered.err
    assert "worker" not in answered.out


def test_manifests_with_pods_of_other_nodes_alone_say_so() -> None:
    refused = mooring("plan", "-f", CASE / "pods.yaml", *NODE_PODS, "--node-name", "node-c", code=2)
    assert refused.complaint.endswith(
        "there is no pod in the manifests; node node-c: 2 pods are bound to other nodes and left out; choose another "
        "node with --node-name"
    )


def test_pods_of_a_workload_are_bound_to_no_node() -> None:
    template = {"spec": kubectl_pod("x")["spec"] | {"nodeName": ""}}
    web = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"template": template}}
    answered = ask("plan", [web, kubectl_pod("db-0", "n2"), rejected("trainer", "n2")], "-o", "json")
    assert verdicts(answered) == [("web-0", True), ("db-0", True), ("trainer", False)]


def test_beside_a_pod_that_is_named_one_that_exists_may_stand_in_both_lists(tmp_path: Path) -> None:
    everything = tmp_path / "all.json"
    everything.write_bytes(text_of(rejected("trainer"), *RUNNING, kubectl_pod("arriving", phase="Pending", cpus=2)))
    twice = ("-f", everything, "--active", everything, *NODE_PODS)
    assert "ai/trainer is rejected" in mooring("explain", "ai/trainer", *twice, code=1).out
    assert "is also given with --active" in mooring("plan", *twice).err
