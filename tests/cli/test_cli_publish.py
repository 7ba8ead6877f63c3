"""``mooring publish``: what it prints, what it writes, and how it fails."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml
from tests.agent.pods.fault_injector import Fault, FaultInjector, kubeconfig
from tests.cli.command import EXAMPLES, PODS, mooring
from tests.cli.command import NODE as NODE_REPORT
from tests.cli.given import STATIC, given, pod, written
from tests.patience import until

from mooring.published.facts_document import facts_of
from mooring.published.objects import state_of

MACHINE = "cores=8 memory=8Gi l3=1"
STATE = "PATCH /apis/mooring.dev/v1alpha1/nodestates/node-1"
FACTS = "/apis/mooring.dev/v1alpha1/nodefacts"


@pytest.fixture
def config(tmp_path: Path) -> str:
    return given(tmp_path)[-1]


def described(config: str, *more: str) -> tuple[str, ...]:
    return "publish", "--machine", MACHINE, "--config", config, "--node-name", "node-1", *more


def items(text: str) -> list[dict[str, Any]]:
    document = yaml.safe_load(text)
    assert (document["apiVersion"], document["kind"]) == ("v1", "List")
    found: list[dict[str, Any]] = document["items"]
    return found


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_dry_run_prints_the_objects(config: str, form: str) -> None:
    answered = mooring(*described(config, "--dry-run", "-o", form))
    facts, state, topology = items(answered.out)
    assert answered.code == 0
    assert facts_of(facts).config.cpu_manager_policy == "static"
    assert state_of(state).facts == facts["metadata"]["name"]
    assert topology["metadata"]["name"] == "node-1"
    assert state["status"] == {"exclusiveCPUs": {"allocatable": 7, "available": 7}}


def test_dry_run_is_the_same_each_time(config: str) -> None:
    first, second = (mooring(*described(config, "--dry-run", "-o", "yaml")) for _ in range(2))
    assert first.out == second.out


def test_dry_run_for_people_is_a_table(config: str) -> None:
    answered = mooring(*described(config, "--dry-run"))
    assert "7 of 7 CPUs are available for exclusive use" in answered.out
    assert answered.out.splitlines()[-2].split() == ["node-0", "cpu", "7", "7", "8"]


def test_running_pods_take_their_part(config: str, tmp_path: Path) -> None:
    asked = pod("a", 3) | {"metadata": {"name": "a", "namespace": "shop", "uid": "u"}}
    written(tmp_path / "pods.json", asked)
    answered = mooring(*described(config, "--active", str(tmp_path / "pods.json"), "--dry-run", "-o", "json"))
    state = items(answered.out)[1]
    assert state["status"]["exclusiveCPUs"]["available"] == 4
    assert state["spec"]["pods"] == [{"namespace": "shop", "name": "a", "uid": "u"}]


def test_described_node_is_written_once(config: str, tmp_path: Path) -> None:
    with FaultInjector(node="node-1") as cluster:
        answered = mooring(*described(config, "--kubeconfig", str(cluster.kubeconfig(tmp_path / "kubeconfig"))))
        assert (answered.code, answered.out) == (0, "node-1 is published.\n")
        assert len(cluster.asked(STATE)) == 1


def test_waiting_pods_are_tried_again_when_it_is_asked_for(config: str, tmp_path: Path) -> None:
    with FaultInjector(node="node-1") as cluster:
        file = str(cluster.kubeconfig(tmp_path / "kubeconfig"))
        assert mooring(*described(config, "--kubeconfig", file)).code == 0
        assert not cluster.asked("PATCH /api/v1/nodes/node-1")
        assert mooring(*described(config, "--kubeconfig", file, "--wake")).code == 0
        (request,) = cluster.asked("PATCH /api/v1/nodes/node-1")
    assert list(request.body["metadata"]["annotations"]) == ["mooring.dev/room"]


def test_metrics_are_served_where_it_is_asked_for(config: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    words = ["--kubeconfig", str(kubeconfig(tmp_path / "kubeconfig", 1)), "--state", str(tmp_path)]
    words += ["--pod-resources", str(tmp_path / "none.sock"), "--metrics-address", f"127.0.0.1:{port}"]
    command = [sys.executable, "-m", "mooring", *described(config, *words)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL) as process:
        try:
            until(lambda: blind_looks(url) >= 1, "a publisher without a kubelet counts its looks")
            answer = httpx2.get(f"{url}/metrics")
            assert httpx2.get(f"{url}/other").status_code == 404
        finally:
            process.send_signal(signal.SIGTERM)
    assert process.returncode == 0
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "last_write_age" not in answer.text


def blind_looks(url: str) -> float:
    try:
        lines = httpx2.get(f"{url}/metrics").text.splitlines()
    except httpx2.ConnectError:
        return 0
    return next(float(line.split()[1]) for line in lines if line.startswith("mooring_publish_blind_looks_total "))


def test_refused_write_is_one_line(config: str, tmp_path: Path) -> None:
    with FaultInjector(node="node-1") as cluster:
        cluster.fail(STATE, Fault(403))
        answered = mooring(*described(config, "--kubeconfig", str(cluster.kubeconfig(tmp_path / "kubeconfig"))))
    assert (answered.code, answered.out) == (2, "")
    assert answered.err.startswith("mooring: mooring publish: status 403: ")
    assert answered.err.count("\n") == 1


def test_kubelet_that_would_not_start_is_a_no(config: str) -> None:
    bad = Path(config).with_name("bad.yaml")
    bad.write_text("{kind: KubeletConfiguration, cpuManagerPolicy: static}", encoding="utf-8")
    refused = mooring("publish", "--machine", MACHINE, "--config", str(bad), "--dry-run", code=1)
    assert refused.out.startswith("The kubelet would not start: ")


def test_kubelet_that_is_away_is_one_line(config: str, tmp_path: Path) -> None:
    answered = mooring(
        *described(config, "--dry-run", "--state", str(tmp_path), "--pod-resources", str(tmp_path / "s.sock")), code=2
    )
    assert "s.sock: List: " in answered.err
    assert answered.err.count("\n") == 1


def test_a_kubelet_of_an_unknown_release_is_a_warning(config: str, tmp_path: Path) -> None:
    socket_file = str(tmp_path / "s.sock")
    asked = described(config, "--dry-run", "--state", str(tmp_path), "--pod-resources", socket_file)
    answered = mooring(*asked, "--kubelet-version", "1.99")
    assert answered.err.startswith("warning[MOOR-580]: kubelet 1.99: is newer than ")
    talos = tmp_path / "talos.yaml"
    talos.write_text("version: v1alpha1\nmachine: {kubelet: {image: 'kubelet:v1.98.0'}}\n", encoding="utf-8")
    named = mooring(*described(str(talos), "--dry-run", "--state", str(tmp_path), "--pod-resources", socket_file))
    assert "warning[MOOR-580]: kubelet v1.98.0: is newer than " in named.err


@pytest.mark.parametrize(
    ("status", "content", "is_told"),
    [
        (200, {"status": {"nodeInfo": {"kubeletVersion": "v1.99.2+k3s1"}}}, True),
        (200, {"status": {}}, False),
        (200, {"status": {"nodeInfo": {"kubeletVersion": 7}}}, False),
        (200, [], False),
        *((status, {}, False) for status in (403, 404, 500)),
    ],
)
def test_the_node_object_names_the_release_of_its_kubelet_where_it_can_be_read(
    status: int, content: object, is_told: bool, config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reply(_injector: FaultInjector, request: Any) -> tuple[int, Any]:
        return (status, content) if request.path == "/api/v1/nodes/node-1" else (200, {"items": []})

    monkeypatch.setattr("tests.agent.pods.fault_injector.reply", reply)
    with FaultInjector(node="node-1") as cluster:
        words = ["--kubeconfig", str(cluster.kubeconfig(tmp_path / "kubeconfig")), "--state", str(tmp_path)]
        words += ["--pod-resources", str(tmp_path / "none.sock")]
        answered = mooring(*described(config, "--once", *words), code=2)
    assert ("warning[MOOR-580]: kubelet v1.99.2+k3s1: is newer than " in answered.err) is is_told
    assert ("MOOR-580" in answered.err) is is_told


@pytest.mark.parametrize("more", [(), ("--dry-run", "--state", ".", "--pod-resources", "s.sock")])
def test_unknown_fields_are_refused_with_strict(tmp_path: Path, more: tuple[str, ...]) -> None:
    file = tmp_path / "kubelet.yaml"
    file.write_text("{kind: KubeletConfiguration, cpuManagerPolicie: static}")
    answered = mooring(*described(str(file), "--strict", *more))
    assert (answered.code, answered.err.count("\n")) == (2, 1)
    assert "cpuManagerPolicie" in answered.err


@pytest.fixture
def pruned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[list[dict[str, Any]]], list[Any]]:
    """Prune facts with this metadata; return what was deleted."""
    lists: dict[str, Any] = {"/apis/mooring.dev/v1alpha1/nodestates": [{"spec": {"facts": "used"}}]}
    deleted: list[Any] = []

    def reply(_injector: FaultInjector, request: Any) -> tuple[int, Any]:
        if request.method == "DELETE":
            deleted.append((request.path, request.body["preconditions"]["uid"]))
            return 200, {}
        return 200, {"items": lists[request.path], "metadata": {}}

    monkeypatch.setattr("tests.agent.pods.fault_injector.reply", reply)
    monkeypatch.setattr(
        "tests.agent.pods.fault_injector._Handler.do_DELETE", lambda handler: handler.answer(), raising=False
    )

    def prune(facts: list[dict[str, Any]]) -> list[Any]:
        lists[FACTS] = [{"metadata": {**one, "uid": f"u-{one['name']}"}} for one in facts]
        with FaultInjector() as cluster:
            answered = mooring("publish", "--prune", "--kubeconfig", str(cluster.kubeconfig(tmp_path / "kubeconfig")))
        assert (answered.code, answered.out) == (0, f"Facts removed: {len(deleted)}.\n")
        return deleted

    return prune


def test_prune_removes_old_facts_that_nobody_names(pruned: Callable[[list[dict[str, Any]]], list[Any]]) -> None:
    old, new = "2020-01-01T00:00:00Z", "2999-01-01T00:00:00Z"
    facts = [("used", old), ("unused", old), ("young", new), ("odd", "yesterday")]
    deleted = pruned([{"name": name, "creationTimestamp": made} for name, made in facts])
    assert deleted == [(f"{FACTS}/unused", "u-unused")]


def test_prune_removes_young_facts_where_there_are_many(pruned: Callable[[list[dict[str, Any]]], list[Any]]) -> None:
    times = [f"2999-01-01T00:00:{second:02}Z" for second in range(10)]
    facts = [
        {"name": f"{node or 'old'}-{second}", "creationTimestamp": time, "labels": {"mooring.dev/node": node}}
        for node in ("forger", "")
        for second, time in enumerate(times)
    ]
    deleted = pruned([*facts, {"name": "honest", "creationTimestamp": times[0], "labels": {"mooring.dev/node": "n"}}])
    assert {name for name, _ in deleted} == {f"{FACTS}/forger-0", f"{FACTS}/forger-1"}


def test_prune_without_a_server_is_one_line(tmp_path: Path) -> None:
    answered = mooring("publish", "--prune", "--kubeconfig", str(kubeconfig(tmp_path / "kubeconfig", 1)), code=2)
    assert "may this account list and delete facts?" in answered.err


# ``mooring migrate``: checks, what becomes of running containers, steps, and the way back.


NODE = ("--node", EXAMPLES / "node")


def on_node(folder: Path, **config: object) -> tuple[str | Path, ...]:
    """Return the options of a node on which the pod runs, placed by a kubelet with the static policy."""
    made = given(folder, machine="sockets=1 cores=4 threads=1 memory=8Gi", kubelet=STATIC | config)
    running, state = written(folder / "pod.yaml", pod("big", 2, uid="u1")), folder / "kubelet"
    assert mooring("plan", "-f", running, *made, "--save-state", state).code == 0
    return (*made, "--state", state, "--active", running)


def test_every_container_of_the_example_node_keeps_its_cpus() -> None:
    found = mooring("migrate", *NODE, "-o", "json")
    assert (found.code, found.document["passed"], found.document["way"]) == (0, True, "in place")
    containers = found.document["containers"]
    assert {one["outcome"] for one in containers} == {"kept"}
    assert all(one["before"] == one["after"] and one["runsOn"] == one["after"]["cpus"] for one in containers)
    assert [check["name"] for check in found.document["checks"]] == [
        "state files",
        "kubelet",
        "agent",
        "pods",
        "rollback",
    ]


def test_the_agents_file_is_one_with_which_the_agent_decides_as_the_kubelet_did(tmp_path: Path) -> None:
    node = on_node(tmp_path, cpuManagerPolicyOptions={"full-pcpus-only": "true"}, topologyManagerPolicy="restricted")
    first = mooring("migrate", *node, "-o", "json").document["steps"][0]
    [(path, text)] = first["files"].items()
    kubelet, agent = yaml.safe_load_all(text)
    assert path == "/etc/mooring/agent.yaml"
    assert kubelet["cpuManagerPolicyOptions"] == {"full-pcpus-only": "true"}
    assert (kubelet["cpuManagerPolicy"], kubelet["topologyManagerPolicy"]) == ("static", "restricted")
    assert agent == {
        "apiVersion": "mooring/v1alpha1",
        "kind": "AgentConfiguration",
        "kubeletConfig": "/var/lib/kubelet/config.yaml",
    }


def test_the_kubelet_would_not_start_on_state_files_that_are_left(tmp_path: Path) -> None:
    steps = mooring("migrate", *on_node(tmp_path), "-o", "json").document["steps"]
    [step] = [one for one in steps if one["title"] == "Disable the kubelet's own managers"]
    assert any(
        'configured policy "none" differs from state checkpoint policy "static"' in one for one in step["outcome"]
    )
    assert "rm -f /var/lib/kubelet/cpu_manager_state /var/lib/kubelet/memory_manager_state" in step["commands"]


def test_a_container_that_cannot_keep_its_cpus_is_said_to_move(tmp_path: Path) -> None:
    """It was resized meanwhile, which the kubelet's static policy does not follow."""
    node = on_node(tmp_path)
    written(tmp_path / "pod.yaml", pod("big", 3, uid="u1"))
    found = mooring("migrate", *node, "-o", "json").document
    [one] = found["containers"]
    assert (one["outcome"], one["before"]["cpus"], one["after"]["cpus"]) == ("moved", "1-2", "1-3")
    assert "default/big/app moves while it runs: CPUs 1-2 before, CPUs 1-3 afterwards." in mooring("migrate", *node).out


def test_a_pod_that_the_agent_cannot_place_fails_a_check(tmp_path: Path) -> None:
    node = on_node(tmp_path)
    written(tmp_path / "pod.yaml", pod("big", 4, uid="u1"))
    answered = mooring("migrate", *node, "-o", "json")
    assert (answered.code, answered.document["passed"]) == (1, False)
    failed = {check["name"]: check["message"] for check in answered.document["checks"] if not check["passed"]}
    assert "the agent cannot place default/big (UnexpectedAdmissionError" in failed["pods"]
    assert mooring("migrate", *node).out.count("FAILED") == len(failed)


def test_a_corrupt_state_file_stops_the_migration(tmp_path: Path) -> None:
    node = on_node(tmp_path)
    file = tmp_path / "kubelet" / "cpu_manager_state"
    file.write_text(file.read_text().replace("1-2", "1-3"))
    assert "FAILED state files" in mooring("migrate", *node, code=1).out


def test_drained_pods_are_placed_anew_and_the_way_back_needs_no_state_files(tmp_path: Path) -> None:
    found = mooring("migrate", *on_node(tmp_path), "--drain", "-o", "json").document
    assert (found["way"], found["containers"][0]["after"]["cpus"]) == ("drain", "1-2")
    assert found["steps"][1]["commands"] == ["kubectl drain NODE --ignore-daemonsets"]
    assert not [word for step in found["rollback"] for word in step["commands"] if "cpu_manager_state" in word]


def test_a_kubelet_that_manages_nothing_has_nothing_to_migrate(tmp_path: Path) -> None:
    node = on_node(tmp_path)
    given(tmp_path, kubelet={})
    answered = mooring("migrate", *node[:4], "--active", tmp_path / "pod.yaml", code=2)
    assert "there is nothing to migrate" in answered.complaint


def test_commands_are_whole_at_any_width(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    commands = [one for step in mooring("migrate", *NODE, "-o", "json").document["steps"] for one in step["commands"]]
    assert max(map(len, commands)) > 100
    mooring("migrate", *NODE, "--to", tmp_path / "steps.txt")
    for text in (mooring("migrate", *NODE).out, (tmp_path / "steps.txt").read_text()):
        lines = {line.strip() for line in text.splitlines()}
        assert [one for one in commands if one not in lines] == []


# ``-o html`` of plan and show: one document, the same from both, with the usual exit codes.


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("report") / "report.html"
    answered = mooring("show", *PODS, *NODE_REPORT, "-o", "html", "--to", file)
    assert (answered.code, answered.out, answered.err) == (1, "", "")
    return file.read_text("utf-8")


def test_plan_and_show_write_the_same_report(page: str) -> None:
    assert mooring("plan", *PODS, *NODE_REPORT, "-o", "html").out == page


def test_a_dash_writes_to_standard_output(page: str) -> None:
    assert mooring("show", *PODS, *NODE_REPORT, "-o", "html", "--to", "-").out == page


def test_a_machine_alone_is_a_report_too(tmp_path: Path) -> None:
    mooring("show", "--machine", "small-1s8", "-o", "html", "--to", tmp_path / "small.html", code=0)
    assert 'data-cpu="7"' in (tmp_path / "small.html").read_text("utf-8")


def test_a_kubelet_that_does_not_start_is_reported_in_the_report(tmp_path: Path) -> None:
    node = given(tmp_path, kubelet={"cpuManagerPolicy": "static"})
    answered = mooring("plan", *PODS, *node, "-o", "html", code=1)
    assert "The kubelet would not start. " in answered.out
    assert "not asked" in answered.out
