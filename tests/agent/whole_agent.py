"""A whole agent on frames of a runtime, with a made-up cgroup tree and a state folder of its own."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests import patience
from tests.agent.cgroups.made_up_tree import MadeUpMachine
from tests.agent.nri.runtime_side import TIMEOUT, RuntimeSide
from tests.cli.command import mooring

from mooring.agent.agent import Agent
from mooring.agent.cgroups.protocol import CGroups
from mooring.agent.conflicts import KubeletFinder
from mooring.agent.nri.session import Session
from mooring.agent.nri.types import ContainerState, Event, LinuxResources, PodSandbox, RuntimeContainer
from mooring.agent.reconcile import ONLINE
from mooring.agent.startup import Startup, with_known_cpus
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.machine import Machine
from mooring.inputs.machines.loader import load_machine
from mooring.service.agent_configuration import AgentConfiguration, load_agent_configuration
from mooring.service.agent_status import ask_status
from mooring.service.logs import Log

until = partial(patience.until, seconds=TIMEOUT)
NODE = "edge-7"
MACHINE = "sockets=1 numa=2 cores=8 threads=1 memory=16Gi"
CONFIGURATION = """\
kind: KubeletConfiguration
cpuManagerPolicy: static
reservedSystemCPUs: "0"
{kubelet}
---
kind: AgentConfiguration
stateDir: {folder}/state
nriSocket: {folder}/nri.sock
assignedDir: {folder}/assigned
statusSocket: {folder}/status.sock
metricsAddress: 127.0.0.1:0
replyBudget: 60s
{more}
"""


class Listening:
    """A runtime's socket: takes connections of plugins and answers their registration."""

    def __init__(self, path: Path, patience: float = TIMEOUT) -> None:
        self._patience = patience
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen()
        self.made: queue.SimpleQueue[RuntimeSide] = queue.SimpleQueue()
        threading.Thread(target=self._accept, daemon=True).start()

    def next(self, name: str = "mooring") -> RuntimeSide:
        """Return the connection of the next plugin, registered and configured."""
        runtime = self.made.get(timeout=self._patience)
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
    kubelet: str = ""
    """More fields of the KubeletConfiguration."""
    online: str = ""
    """CPUs that the kernel shows as online, where it shows any; others it does not describe."""
    beside: KubeletFinder | None = None
    """Looks for a kubelet, where there is one to look for."""
    root: str = ""
    """Where the agent finds the machine's files, if not where it shows which CPUs are online."""

    def agent(self, more: str = "", given: Session | None = None, cgroups: CGroups | None = None) -> Agent:
        """Start an agent."""
        made = Agent(self.beginning(more, cgroups), Log("test"), given)
        self.agents.append(made)
        made.start()
        return made

    def connected(self, more: str = "") -> tuple[Agent, RuntimeSide]:
        """Start an agent, and return it with the runtime's side of its connection after an empty Synchronize."""
        made, runtime = self.agent(more), self.listening.next()
        runtime.synchronize()
        return made, runtime

    def restarted(self, runtime: RuntimeSide, more: str = "") -> RuntimeSide:
        """End the newest agent and start another; return the runtime's side of its connection before Synchronize."""
        self.agents.pop().close()
        runtime.close()
        self.agent(more)
        return self.listening.next()

    def beginning(self, more: str = "", cgroups: CGroups | None = None) -> Startup:
        """Write a configuration, and return what an agent begins with."""
        file = self.folder / "agent.yaml"
        if "podResourcesSocket" not in more:
            more += '\npodResourcesSocket: ""'
        file.write_text(CONFIGURATION.format(folder=self.folder, kubelet=self.kubelet, more=more), encoding="utf-8")

        def load() -> AgentConfiguration:
            return load_agent_configuration(str(file), None if self.beside is None else self.beside.flags())

        configuration, machine = with_known_cpus(load(), self._machine())
        root = self.root or (str(self.tree.root) if self.online else "")
        return Startup(configuration, load, machine, cgroups or self.tree.cgroups, NODE, root, self.beside)

    def show_online(self, cpus: str) -> None:
        """Let the kernel show these CPUs, from one moment to the next."""
        self.online = cpus
        file = self.tree.root / ONLINE
        file.parent.mkdir(parents=True, exist_ok=True)
        beside = file.with_name(".online")
        beside.write_text(f"{cpus}\n", encoding="ascii")
        beside.replace(file)

    def _machine(self) -> Machine:
        """Return the machine as it is described while some CPUs are offline: without them."""
        machine = load_machine(MACHINE)
        if not self.online:
            return machine
        there = CPUSet.parse(self.online)
        nodes = tuple(
            replace(one, cores=tuple(core for core in one.cores if core.thread_ids[0] in there))
            for one in machine.info.topology
        )
        return replace(machine, info=replace(machine.info, num_cores=len(there), topology=nodes))

    def running(self, container: RuntimeContainer, cpus: str, quota: int | None = None) -> RuntimeContainer:
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

    def cpus(self, container: RuntimeContainer) -> str:
        return self.tree.text("cpuset", container.cgroups_path, "cpuset.cpus")

    def write(self, container_id: str, path: str, cpus: str) -> None:
        """Change a cgroup past everybody, as a runtime's update does."""
        assert (self.tree.folder("cpuset", path) / "cpuset.cpus").is_file(), container_id
        self.tree.put("cpuset", path, "cpuset.cpus", cpus)

    def container(self, name: str) -> dict[str, Any]:
        """Return what the status says of a container."""
        return next(one for each in self.status["pods"] for one in each["containers"] if one["name"] == name)

    @property
    def status(self) -> dict[str, Any]:
        return ask_status(str(self.folder / "status.sock"))


def pod(name: str) -> PodSandbox:
    return PodSandbox(
        f"sandbox-{name}", f"uid-{name}", name, "default", cgroup_parent=f"/pods/{name}", cgroups_path=f"/pods/{name}/s"
    )


def whole(name: str, cpus: int) -> RuntimeContainer:
    """Return a container as its creation asks for it: with whole CPUs, or best-effort."""
    asked = LinuxResources(shares=1024 * cpus, quota=100_000 * cpus, period=100_000, memory_limit=2**28)
    return RuntimeContainer(
        f"c-{name}",
        f"sandbox-{name}",
        name,
        resources=asked if cpus else LinuxResources(shares=2),
        cgroups_path=f"/pods/{name}/c-{name}",
    )


def rest(node: Node) -> None:
    """Wait until the newest agent has done what it has put off, so that it looks at nothing that is changed next."""
    done = threading.Event()
    assert node.agents[-1].work.put(done.set)
    assert done.wait(TIMEOUT), "the agent is still busy"


def start(
    node: Node, runtime: RuntimeSide, name: str, cpus: int, annotations: Mapping[str, str] | None = None
) -> RuntimeContainer:
    """Create and start a container as a runtime does, and return its message while it runs and the agent rests."""
    asked, place = whole(name, cpus), replace(pod(name), annotations=annotations or {})
    runtime.state_change(Event.RUN_POD_SANDBOX, place)
    # A look that was put off must not come between the answer and what the runtime does of it, however long that takes.
    rest(node)
    reply = runtime.create(place, asked)
    for update in reply.update:
        name_of_other = update.container_id.removeprefix("c-")
        node.write(update.container_id, f"/pods/{name_of_other}/{update.container_id}", update.linux.resources.cpu.cpus)
    cpu = reply.adjust.linux.resources.cpu
    running = node.running(asked, cpu.cpus, cpu.quota.value if cpu.HasField("quota") else asked.resources.quota)
    runtime.state_change(Event.POST_CREATE_CONTAINER, place, running)
    runtime.state_change(Event.START_CONTAINER, place, running)
    runtime.state_change(Event.POST_START_CONTAINER, place, running)
    rest(node)
    return running


def listing(*containers: RuntimeContainer) -> tuple[list[PodSandbox], list[RuntimeContainer]]:
    """Return what Synchronize says where these run, each in a pod of its own."""
    return [pod(one.name) for one in containers], [*containers]


def leave(
    node: Node, monkeypatch: pytest.MonkeyPatch, *listed: RuntimeContainer, root: str = ""
) -> tuple[list[str], dict[str, Any]]:
    """Let an agent leave for good while these run; return what it says, and the CPUs of its updates by container."""
    load = partial(load_agent_configuration, str(node.folder / "agent.yaml"))
    startup = Startup(load(), load, load_machine(MACHINE), node.tree.cgroups, NODE, root)
    monkeypatch.setattr("mooring.agent.uninstall.read_startup", lambda _asked: startup)
    with ThreadPoolExecutor(1) as thread:
        leaving = thread.submit(mooring, "agent", "--config", "agent.yaml", "--leave")
        runtime = node.listening.next("mooring-update")
        updates = runtime.synchronize(*listing(*listed)).update
        left = leaving.result(TIMEOUT)
    runtime.close()
    says = left.out.splitlines()
    assert left.code == (len(says) > 1)
    return says, {one.container_id: one.linux.resources.cpu for one in updates}


def until_reconciled(agent: Agent, condition: Callable[[], object], what: str) -> None:
    """Let the agent reconcile again and again until something is so."""

    def holds() -> object:
        agent.reconcile()
        return condition()

    until(holds, what)


def counted(agent: Agent, name: str, **labels: str) -> float:
    """Return the value of a metric of the agent; 0 where there is no such series."""
    inner = ",".join(f'{key}="{text}"' for key, text in labels.items())
    line = f"mooring_agent_{name}{{{inner}}} " if labels else f"mooring_agent_{name} "
    return next((float(one.removeprefix(line)) for one in agent.metrics.text().splitlines() if one.startswith(line)), 0)
