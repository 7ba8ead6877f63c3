"""The whole agent on frames of a runtime, with a made-up cgroup tree and a state folder of its own."""

from __future__ import annotations

import json
import logging
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import structlog
from tests.agent.cgroups.made_up_tree import MadeUpMachine, made_up_machine
from tests.agent.nri.runtime_side import TIMEOUT, RuntimeSide

from mooring.agent.agent import Agent
from mooring.agent.cgroups.protocol import CGroups
from mooring.agent.cgroups.unseen import UnseenCGroups
from mooring.agent.configuration import load_agent_configuration
from mooring.agent.nri.errors import RemoteError
from mooring.agent.nri.observer import Loss, LostAnswer
from mooring.agent.nri.plugin import Given
from mooring.agent.nri.types import Container, ContainerState, Event, LinuxResources, PodSandbox
from mooring.agent.setting_up import Beginning
from mooring.agent.status import ask_status
from mooring.core.errors import InputError
from mooring.discovery.loader import load_machine

MACHINE = "sockets=1 numa=2 cores=8 threads=1 memory=16Gi"
CONFIGURATION = """\
kind: KubeletConfiguration
cpuManagerPolicy: static
reservedSystemCPUs: "0"
---
kind: AgentConfiguration
stateDir: {folder}/state
nriSocket: {folder}/nri.sock
statusSocket: {folder}/status.sock
podResourcesSocket: ""
metricsAddress: 127.0.0.1:0
replyBudget: 20s
{more}
"""


def until(condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < end, f"still not: {what}"
        threading.Event().wait(0.005)


class Listening:
    """A runtime's socket: takes connections of plugins and answers their registration."""

    def __init__(self, path: Path) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen()
        self.made: queue.SimpleQueue[RuntimeSide] = queue.SimpleQueue()
        threading.Thread(target=self._accept, daemon=True).start()

    def next(self, name: str = "mooring") -> RuntimeSide:
        """Return the connection of the next plugin, registered and configured."""
        runtime = self.made.get(timeout=TIMEOUT)
        assert runtime.registered.get(timeout=TIMEOUT) == ("50", name)
        runtime.configure()
        return runtime

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                trunk, _ = self._listener.accept()
            except OSError:
                return
            self.made.put(RuntimeSide(trunk))


@dataclass
class Node:
    """A machine with a runtime, on which agents come and go."""

    folder: Path
    tree: MadeUpMachine
    listening: Listening
    agents: list[Agent] = field(default_factory=list)

    def agent(self, more: str = "", given: Given | None = None, cgroups: CGroups | None = None) -> Agent:
        """Start an agent."""
        file = self.folder / "agent.yaml"
        file.write_text(CONFIGURATION.format(folder=self.folder, more=more), encoding="utf-8")
        load = partial(load_agent_configuration, str(file))
        made = Agent(
            Beginning(load(), load, load_machine(MACHINE), cgroups or self.tree.cgroups, "edge-7"),
            structlog.get_logger("test"),
            given,
        )
        self.agents.append(made)
        made.start()
        return made

    def running(self, container: Container, cpus: str, quota: int | None = None) -> Container:
        """Make the cgroups of a pod with a container that runs, and return the container's message."""
        for path in (f"pods/{container.name}", f"pods/{container.name}/s"):
            self.tree.group(path, cpuset_cpus="0-7")
        self.tree.group(container.cgroups_path, cpuset_cpus=cpus)
        return replace(
            container,
            pid=77,
            state=ContainerState.RUNNING,
            resources=replace(container.resources, cpus=cpus, quota=quota),
        )

    def cpus(self, container: Container) -> str:
        return self.tree.text("cpuset", container.cgroups_path, "cpuset.cpus")

    def write(self, container_id: str, path: str, cpus: str) -> None:
        """Change a cgroup past everybody, as a runtime's update does."""
        file = self.tree.folder("cpuset", path) / "cpuset.cpus"
        assert file.is_file(), container_id
        file.write_text(f"{cpus}\n", encoding="utf-8")

    @property
    def status(self) -> dict[str, Any]:
        return ask_status(str(self.folder / "status.sock"))


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    root = logging.getLogger()
    handlers = root.handlers
    tree = made_up_machine(tmp_path / "root", 2)
    made = Node(tmp_path, tree, Listening(tmp_path / "nri.sock"))
    yield made
    for agent in made.agents:
        agent.close()
    made.listening.close()
    root.handlers = handlers
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("mooring-")]


def pod(name: str) -> PodSandbox:
    return PodSandbox(
        f"sandbox-{name}", f"uid-{name}", name, "default", cgroup_parent=f"/pods/{name}", cgroups_path=f"/pods/{name}/s"
    )


def whole(name: str, cpus: int) -> Container:
    """Return a container as its creation asks for it: with whole CPUs, or best-effort."""
    asked = LinuxResources(shares=1024 * cpus, quota=100_000 * cpus, period=100_000, memory_limit=2**28)
    return Container(
        f"c-{name}",
        f"sandbox-{name}",
        name,
        resources=asked if cpus else LinuxResources(shares=2),
        cgroups_path=f"/pods/{name}/c-{name}",
    )


def start(node: Node, runtime: RuntimeSide, name: str, cpus: int) -> Container:
    """Create and start a container as a runtime does, and return its message while it runs."""
    asked = whole(name, cpus)
    runtime.state_change(Event.RUN_POD_SANDBOX, pod(name))
    reply = runtime.create(pod(name), asked)
    for update in reply.update:
        name_of_other = update.container_id.removeprefix("c-")
        node.write(update.container_id, f"/pods/{name_of_other}/{update.container_id}", update.linux.resources.cpu.cpus)
    cpu = reply.adjust.linux.resources.cpu
    running = node.running(asked, cpu.cpus, cpu.quota.value if cpu.HasField("quota") else asked.resources.quota)
    runtime.state_change(Event.POST_CREATE_CONTAINER, pod(name), running)
    runtime.state_change(Event.START_CONTAINER, pod(name), running)
    runtime.state_change(Event.POST_START_CONTAINER, pod(name), running)
    return running


def test_a_life_of_an_exclusive_and_a_shared_pod_moves_the_shared_one_off_and_back(node: Node) -> None:
    agent = node.agent()
    runtime = node.listening.next()
    runtime.synchronize()
    shared = start(node, runtime, "shared", 0)
    assert node.cpus(shared) == "0-7"
    own = start(node, runtime, "own", 2)
    assert (node.cpus(own), node.cpus(shared)) == ("1-2", "0,3-7")
    assert (agent.snapshot.overlaps(), node.status["ready"]) == ((), True)
    assert node.status["cpus"]["exclusive"] == "1-2"
    runtime.stop(pod("own"), own)
    runtime.state_change(Event.STOP_POD_SANDBOX, pod("own"))
    assert node.cpus(shared) == "0-7"


def test_a_killed_agent_comes_back_to_the_same_placement_and_moves_who_came_meanwhile(node: Node) -> None:
    node.agent()
    runtime = node.listening.next()
    runtime.synchronize()
    own = start(node, runtime, "own", 2)
    runtime.close()
    node.agents.pop().close()
    stray = node.running(whole("stray", 0), "0-7")
    again = node.agent()
    runtime = node.listening.next()
    reply = runtime.synchronize([pod("own"), pod("stray")], [own, stray])
    assert [(one.container_id, one.linux.resources.cpu.cpus) for one in reply.update] == [("c-stray", "0,3-7")]
    assert set(again.snapshot.state.containers if again.snapshot.state else ()) == {"c-own", "c-stray"}
    assert node.cpus(own) == "1-2"


def test_a_connection_that_breaks_is_made_again_and_everything_is_told_anew(node: Node) -> None:
    agent = node.agent()
    runtime = node.listening.next()
    runtime.synchronize()
    own = start(node, runtime, "own", 2)
    runtime.close()
    runtime = node.listening.next()
    assert list(runtime.synchronize([pod("own")], [own]).update) == []
    until(lambda: agent.snapshot.runtime.synchronized, "connected again")
    assert agent.metrics.counts().reconnects == 1


def test_a_pod_without_room_is_refused_with_the_kubelets_reason_and_message(node: Node) -> None:
    node.agent()
    runtime = node.listening.next()
    runtime.synchronize()
    with pytest.raises(RemoteError) as raised:
        runtime.create(pod("wide"), whole("wide", 8))
    assert raised.value.message.startswith("UnexpectedAdmissionError: Allocate failed due to not enough cpus available")
    assert [held["name"] for held in node.status["held"]] == ["wide"]
    assert node.status["counts"]["rejections"] == 1


@pytest.mark.parametrize("places", [True, False], ids=["places", "refuses"])
def test_an_agent_whose_folder_cannot_be_written_goes_on_or_refuses_as_it_was_told(node: Node, places: bool) -> None:
    (node.folder / "state").write_text("a file where a folder should be", encoding="utf-8")
    agent = node.agent(f"placeWhileUnwritable: {str(places).lower()}")
    runtime = node.listening.next()
    runtime.synchronize()
    if places:
        assert node.cpus(start(node, runtime, "own", 2)) == "1-2"
    else:
        with pytest.raises(RemoteError, match="StateUnwritable"):
            runtime.create(pod("own"), whole("own", 2))
    assert any("the state cannot be written" in reason for reason in node.status["reasons"])
    (node.folder / "state").unlink()
    agent.holder.write_again()
    assert node.status["ready"]
    assert json.loads((node.folder / "state" / "journal.json").read_text())["kind"] == "AgentJournal"


def test_a_cpuset_that_somebody_changed_is_put_right_and_reported(node: Node) -> None:
    agent = node.agent()
    runtime = node.listening.next()
    runtime.synchronize()
    own = start(node, runtime, "own", 2)
    node.write(own.id, own.cgroups_path, "0-7")
    agent.verify_all()
    assert node.cpus(own) == "1-2"
    assert agent.metrics.counts().repairs == 1
    agent.verify_all()
    assert agent.metrics.counts().repairs == 1


def test_the_snapshot_has_what_the_kernel_shows(node: Node) -> None:
    agent = node.agent()
    runtime = node.listening.next()
    runtime.synchronize()
    own, shared = start(node, runtime, "own", 2), start(node, runtime, "shared", 0)
    agent.verify_all()
    assert {one: str(seen.cpus) for one, seen in agent.snapshot.effective.items()} == {
        own.id: "1-2",
        shared.id: "0,3-7",
    }


def test_on_a_simulated_machine_nothing_is_said_to_be_the_kernels_word(node: Node) -> None:
    agent = node.agent(cgroups=UnseenCGroups())
    runtime = node.listening.next()
    runtime.synchronize()
    start(node, runtime, "own", 2)
    agent.verify_all()
    assert agent.snapshot.effective == {}


def test_an_answer_that_came_too_late_is_put_right_by_the_cgroup(node: Node) -> None:
    agent = node.agent()
    runtime = node.listening.next()
    runtime.synchronize()
    shared = start(node, runtime, "shared", 0)
    runtime.create(pod("own"), whole("own", 2))
    # The runtime had given up, so that it did not do what the answer said.
    agent.listener.lost(LostAnswer("CreateContainer", "sandbox-own", "c-own", 21.0, Loss.LATE, refused=True))
    assert node.cpus(shared) == "0,3-7"


@pytest.mark.parametrize("ends", ["runtime", "agent"])
def test_an_agent_that_the_runtime_started_talks_over_the_given_connection_until_one_ends(
    node: Node, ends: str
) -> None:
    ours, theirs = socket.socketpair()
    agent = node.agent(given=Given(ours, "pinner", "07"))
    runtime = RuntimeSide(theirs)
    assert runtime.registered.get(timeout=TIMEOUT) == ("07", "pinner")
    runtime.configure()
    runtime.synchronize()
    assert node.cpus(start(node, runtime, "own", 2)) == "1-2"
    assert not agent.is_over
    if ends == "runtime":
        runtime.close()
    else:
        agent.close()
    until(lambda: agent.is_over, "the agent has nobody to talk to")


def test_a_second_agent_on_the_same_folder_is_refused_and_leaves_the_first_alone(node: Node) -> None:
    node.agent()
    with pytest.raises(InputError, match="another agent uses this folder"):
        node.agent()
    assert node.status["kind"] == "AgentStatus"


def test_another_policy_in_the_file_is_taken_up_while_containers_run(node: Node) -> None:
    agent = node.agent()
    runtime = node.listening.next()
    runtime.synchronize()
    own = start(node, runtime, "own", 2)
    file = node.folder / "agent.yaml"
    file.write_text(file.read_text() + "onRejection: evict\nlogLevel: error\n", encoding="utf-8")
    agent.reload()
    agent.look_after()
    assert agent.snapshot.configuration.generation == 2
    assert agent.holder.state.options.evict
    file.write_text(file.read_text().replace('"0"', '"0-1"'), encoding="utf-8")
    agent.reload()
    agent.look_after()
    assert agent.snapshot.configuration.generation == 2
    assert agent.snapshot.configuration.refusal
    assert node.cpus(own) == "1-2"
