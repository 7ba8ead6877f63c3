"""The agent as a process: what it tells its service manager, its folder's lock, its configuration."""

from __future__ import annotations

import importlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.agent.nri.runtime_side import RuntimeSide
from tests.agent.process import PATIENCE, Manager, World, agent_in, begun
from tests.agent.small_node import CONFIG, INFO, create, ended, guaranteed, running, sandbox
from tests.agent.whole_agent import Node, counted, pod, start, until
from tests.cli.command import EXECUTED
from tests.documents.validation import complaints
from tests.plugins.installed_plugins import install

from mooring.agent.agent import Agent
from mooring.agent.nri.types import Event
from mooring.agent.reactor.recovery import resume
from mooring.agent.reactor.synchronize import synchronize
from mooring.answers.status import status_text
from mooring.engine.core.config import MooringConfig
from mooring.inputs.configuration.mooring_config import plugin_choice
from mooring.service.agent_status import read_status
from mooring.service.daemon import SOCKET, WATCHDOG

AT_ONCE = "import mooring.agent.command as agent; agent._WAITING = 0.0; from mooring.command.main import main; main()"
"""A program in which nobody waits ten seconds for a runtime."""

FROZEN = """
import gc, pathlib
from mooring.agent.agent import Agent
from mooring.command.main import main
def start(agent, start=Agent.start):
    pathlib.Path("FILE").write_text(str(gc.get_freeze_count()))
    start(agent)
Agent.start = start
main()
"""
"""A program that writes down how many objects the garbage collector leaves out before it talks to the runtime."""


@pytest.mark.long
def test_the_service_manager_hears_how_the_agent_is_from_the_start_to_the_end(tmp_path: Path) -> None:
    # The kernel keeps ten words for one who does not listen for a while, and more are lost.
    said = {SOCKET: str(tmp_path / "notify"), WATCHDOG: "4000000"}
    with Manager(tmp_path / "notify") as manager, agent_in(tmp_path, environment=said) as (agent, listening):
        agent.start()
        runtime = listening.next()
        assert "READY=1" not in manager.until("STATUS=not ready: the runtime has not synchronized yet")
        World().synchronize(runtime)
        manager.until("READY=1")
        manager.until("STATUS=ready")
        manager.until("WATCHDOG=1")
        runtime.close()
        manager.until("STATUS=not ready: the runtime is not connected")
        World().synchronize(listening.next())
        manager.until("STATUS=ready")
        assert agent.process is not None
        agent.configure("onRejection: evict")
        agent.process.send_signal(signal.SIGHUP)
        manager.until("RELOADING=1\nMONOTONIC_USEC=")
        manager.until("READY=1")
        # The agent may have seen the file before the signal came, which asks for it all the same.
        assert agent.status["configuration"]["generation"] in (2, 3)
        assert agent.status["node"] == "edge-9"
        assert agent.end() == 0
        manager.until("STOPPING=1")
    assert not (tmp_path / "status.sock").exists()
    assert (tmp_path / "state").is_dir()
    assert [line["event"] for line in agent.log][-1] == "agent stopped"


@pytest.mark.long
def test_a_start_without_a_runtime_is_done_after_a_while_and_says_what_is_missing(tmp_path: Path) -> None:
    said = {SOCKET: str(tmp_path / "notify")}
    with Manager(tmp_path / "notify") as manager, agent_in(tmp_path, environment=said) as (agent, _listening):
        (tmp_path / "nri.sock").unlink()
        agent.program = (sys.executable, "-c", AT_ONCE)
        agent.start()
        manager.until("READY=1")
        missing = "STATUS=not ready: the runtime is not connected"
        if not any(missing in said for said in manager.heard):
            manager.until(missing)
        assert agent.end(signal.SIGINT) == 0


@pytest.mark.long
def test_no_reply_waits_for_garbage_collection_of_modules_and_classes(tmp_path: Path) -> None:
    with agent_in(tmp_path) as (agent, listening):
        agent.program = (sys.executable, "-c", FROZEN.replace("FILE", str(tmp_path / "frozen")))
        begun(agent, listening)
        assert int((tmp_path / "frozen").read_text()) > 10_000


def test_a_second_agent_is_refused_in_one_line_and_a_killed_one_does_not_stand_in_the_way(tmp_path: Path) -> None:
    with agent_in(tmp_path) as (agent, listening):
        world, runtime = begun(agent, listening)
        assert world.create(runtime, "own", 2) == "1-2"
        assert agent.refused() == (
            f"mooring: {tmp_path / 'state'}: another agent uses this folder; stop it, or give each its own"
        )
        assert agent.end(signal.SIGKILL) == -signal.SIGKILL
        (tmp_path / "state" / ".journal.json.4711-1").write_text("half a journal")
        agent.start()
        assert world.synchronize(listening.next()) == []
        agent.until_ready()
        assert agent.status["cpus"]["exclusive"] == "1-2"
        assert not list((tmp_path / "state").glob(".*")), "what a killed writer left is gone"


@pytest.mark.long
def test_an_agent_beside_a_kubelet_that_places_cpus_itself_does_not_begin(tmp_path: Path) -> None:
    kubelet = tmp_path / "kubelet.yaml"
    kubelet.write_text(
        "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\ncpuManagerPolicy: static\n"
    )
    with agent_in(tmp_path, more=f"kubeletConfig: {kubelet}") as (agent, _listening):
        line = agent.refused()
    assert line.startswith(f"mooring: {kubelet}: cpuManagerPolicy: is static on this node, so kubelet and agent")
    assert not (tmp_path / "state").exists(), "nothing is written before"


def test_a_connection_of_the_runtime_that_is_none_is_reported_in_one_line(tmp_path: Path) -> None:
    with agent_in(tmp_path, environment={"NRI_PLUGIN_SOCKET": "none"}) as (agent, _listening):
        agent.start()
        assert agent.process is not None
        assert agent.process.wait(PATIENCE) == 2
        agent.process = None
    (line,) = (tmp_path / "log").read_text().splitlines()
    assert line == "mooring: NRI_PLUGIN_SOCKET=none is not a socket; start the agent without it"


_AT_REGISTRATION = """
import os, sys
from mooring.agent.nri.session import Session

def register(session):
    exec({executed!r}, names := {{"sys": sys}})
    print(*sorted(name for name in names["executed"] if name.split(".")[0] in {heavy!r} or name in {own!r}))
    sys.stdout.flush()
    os._exit(0)

Session.register = register
from mooring.command.main import run
run(["agent", "--config", "/nowhere/agent.yaml"])
"""
HEAVY = {"asyncio", "grpc", "http", "msgspec", "prometheus_client", "rich", "ssl", "h11", "yaml"}
OWN = {f"mooring.{room}" for room in ("checkpoint", "discovery", "explain", "kubelet", "manifest", "node", "planner")}


def test_an_agent_that_the_runtime_starts_registers_before_it_imports_or_reads_anything_else() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        done = subprocess.run(
            [sys.executable, "-c", _AT_REGISTRATION.format(heavy=HEAVY, own=OWN, executed=EXECUTED)],
            env={**os.environ, "NRI_PLUGIN_SOCKET": str(ours.fileno()), "NRI_PLUGIN_IDX": "50"},
            pass_fds=[ours.fileno()],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
    assert (done.stdout, done.stderr) == ("\n", "")


# The agent with plugins: they hear what was stored, their failures are shown, waiting pods come in their order.


SHOWN = "deaf\N{REPLACEMENT CHARACTER}[8m\N{REPLACEMENT CHARACTER}"
NAMES = {"hears": "Hears", "flawed": "Flawed", "backwards": "Backwards", "good": "Good"}
WITH_PLUGINS = """\
podResourcesSocket: ""
---
kind: MooringConfiguration
extensions: [plugins]
pluginBudget: 10s
plugins: [{names}]
"""


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "package", monkeypatch, NAMES)


def agent_with(node: Node, names: str) -> tuple[Agent, RuntimeSide]:
    return node.connected(WITH_PLUGINS.format(names=names))


def test_plugins_hear_who_got_cpus_and_whose_came_back(node: Node) -> None:
    _, runtime = agent_with(node, "hears")
    own = start(node, runtime, "own", 2)
    runtime.stop(pod("own"), own)
    runtime.state_change(Event.STOP_POD_SANDBOX, pod("own"))
    heard = importlib.import_module("made_up_plugins").HEARD
    until(lambda: len(heard) == 2, "both are told")
    assert [(point, container, cpus) for point, _, container, cpus in heard] == [
        ("allocated", "own", "1-2"),
        ("deallocated", "own", "1-2"),
    ]


def test_what_plugins_do_wrong_is_in_metrics_and_status_and_nobody_is_refused(node: Node) -> None:
    agent, runtime = agent_with(node, "good, flawed")
    assert [one["failures"] for one in node.status["plugins"]] == [0, 0]
    # The other plugin's answer counts: the highest CPUs.
    assert node.cpus(start(node, runtime, "own", 2)) == "6-7"
    until(lambda: node.status["plugins"][1].get("lastFailure", {}).get("point") == "allocated", "it was told, too")
    status = node.status
    assert complaints("AgentStatus", status) == []
    good, flawed = status["plugins"]
    assert good == {"name": "good", "placement": "cpu-manager", "givenUp": False, "failures": 0}
    assert flawed["failures"] >= 2
    assert flawed["lastFailure"] == {"point": "allocated", "why": f"it raised OSError: {SHOWN}"}
    assert counted(agent, "plugin_failures_total", plugin="flawed", point="allocated") == 1
    assert counted(agent, "plugin_failures_total", plugin="flawed", point="pre_score") >= 1
    text = " ".join(status_text(read_status(status)).split())
    assert f"the last at allocated: it raised OSError: {SHOWN}" in text


def test_without_plugins_the_status_says_nothing_of_them(node: Node) -> None:
    node.connected()
    assert "plugins" not in node.status


@pytest.mark.parametrize(("names", "first"), [([], "b"), (["good"], "b"), (["backwards"], "c")])
def test_pods_that_wait_are_asked_for_in_the_order_of_plugins(names: list[str], first: str) -> None:
    plugins = plugin_choice({"plugins": names})
    mooring = MooringConfig(frozenset({"plugins"}), frozenset({"pod-restart"}), plugins=plugins)
    state = create(resume(INFO, CONFIG, mooring).state, guaranteed("a", "6")).state
    pods = {uid: guaranteed(uid, "5") for uid in "bc"}
    waiting = synchronize(state, [*map(sandbox, "abc")], [*map(running, "abc")], pods).state
    after = ended(waiting, "a").state
    assert ({*waiting.held}, {*after.held}) == ({"b", "c"}, {"b", "c"} - {first})


def test_a_reload_makes_plugins_anew_or_is_refused(node: Node) -> None:
    agent, _ = agent_with(node, "good")
    before = agent.holder.state.kubelet.settings.plugins
    assert before is not None
    assert before.choice.watch is not None
    before.choice.watch.give_up("good")
    assert node.status["plugins"][0]["givenUp"]
    agent.reload()
    agent.reconcile()
    assert node.status["configuration"]["generation"] == 2
    assert not node.status["plugins"][0]["givenUp"]
    file = node.folder / "agent.yaml"
    file.write_text(file.read_text(encoding="utf-8").replace("plugins: [good]", "plugins: [nobody]"), encoding="utf-8")
    agent.reload()
    agent.reconcile()
    assert "the plugin 'nobody' is not installed" in node.status["configuration"]["refusal"]
    assert [one["name"] for one in node.status["plugins"]] == ["good"]
