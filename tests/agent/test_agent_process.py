"""The agent as a process: what it tells its service manager, its folder's lock, its configuration."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from itertools import groupby
from pathlib import Path

import pytest
from tests.agent.process import PATIENCE, Manager, World, agent_in, begun
from tests.agent.whole_agent import until
from tests.cli.command import EXECUTED

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


@pytest.mark.long
def test_changes_of_the_file_are_taken_up_or_refused_while_containers_run(tmp_path: Path) -> None:
    with agent_in(tmp_path) as (agent, listening):
        world, runtime = begun(agent, listening)
        world.create(runtime, "own", 2)
        agent.until_ready()
        agent.configure("onRejectoin: evict")
        until(lambda: agent.status["configuration"]["refusal"], "the mistake was seen", seconds=PATIENCE)
        refusal = agent.status["configuration"]["refusal"]
        assert refusal == f"{agent.file}:14:1: onRejectoin: is not known; did you mean onRejection?"
        assert agent.status["ready"], "the old configuration goes on"
        agent.configure("logLevel: debug")
        assert agent.process is not None
        agent.process.send_signal(signal.SIGHUP)
        until(lambda: agent.status["configuration"]["generation"] >= 2, "the good one is in force", seconds=PATIENCE)
        assert agent.status["configuration"]["refusal"] == ""
        agent.configure("pluginIndex: '07'")
        agent.process.send_signal(signal.SIGHUP)
        until(
            lambda: "needs a restart" in agent.status["configuration"]["refusal"],
            "the restart is asked for",
            seconds=PATIENCE,
        )
        assert agent.end() == 0
    events = [line["event"] for line in agent.log if "configuration" in line["event"]]
    # A file that the agent has seen before the signal came is read, and told of, twice.
    assert [event for event, _ in groupby(events)] == [
        "configuration change refused",
        "configuration reloaded",
        "configuration change refused",
    ]


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
