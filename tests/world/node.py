"""A node of a world: kernel, runtime and agent, which come and go; the agent is Mooring's own, whole."""

from __future__ import annotations

import random
import shutil
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from tests.agent.cgroups.made_up_tree import V2
from tests.agent.nri.runtime_side import RuntimeSide, about
from tests.agent.simulated_runtime import KilledError, Process, Runtime, Stage
from tests.world.connections import CurrentNetwork, MemorySocket, Network
from tests.world.files import WIRE_RATES, CurrentFiles, Disk, Faults, Files
from tests.world.kernel import ALL, Kernel
from tests.world.threads import Current, Program, Task, Threads

from mooring.agent import agent as agent_module
from mooring.agent.agent import Agent
from mooring.agent.cgroups.files import find_layout
from mooring.agent.cgroups.protocol import KernelCGroups
from mooring.agent.nri.messages import StateChangeEventMessage, SynchronizeRequestMessage, UpdateContainerRequestMessage
from mooring.agent.nri.methods import resources_from, resources_to
from mooring.agent.nri.types import (
    ContainerAdjustment,
    ContainerUpdate,
    Event,
    LinuxResources,
    NRIError,
    PodSandbox,
    RefusalError,
    RemoteError,
    RuntimeContainer,
)
from mooring.agent.reactor.recovery import Stored
from mooring.agent.startup import Startup, with_known_cpus
from mooring.agent.state import AgentState
from mooring.agent.store import Store
from mooring.engine.core.bits import list_text
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.machine import Machine
from mooring.engine.kubelet.kubelet import StateTexts
from mooring.inputs.machines.loader import load_machine
from mooring.service import daemon
from mooring.service.agent_configuration import AgentConfiguration, load_agent_configuration
from mooring.service.logs import Log

from tests.agent.nri.runtime_side import container_to, pod_to, update_from  # isort: skip

MACHINE = "sockets=1 numa=2 cores=8 threads=1 memory=16Gi"
NOBODY = RuntimeContainer("nobody", "none", "none")
PERIOD = 0.5
TIMEOUT = 2.0
"""Seconds that the runtime waits for an answer."""
CONFIGURATION = """\
kind: KubeletConfiguration
cpuManagerPolicy: static
reservedSystemCPUs: "0"
{kubelet}
---
kind: AgentConfiguration
stateDir: {folder}/state
nriSocket: {folder}/run/nri.sock
assignedDir: {folder}/assigned/mooring
statusSocket: ""
metricsAddress: ""
podResourcesSocket: ""
failClosed: {closed}
{agent}
"""
PLAIN = """\
---
kind: MooringConfiguration
fixedDefects: [pod-restart]
"""
RESIZING = """\
cpuManagerPolicyOptions: {scale-delay-time: "5s"}
featureGates: {CPUManagerPolicyAlphaOptions: true, InPlacePodVerticalScalingExclusiveCPUs: true}
---
kind: MooringConfiguration
extensions: [exclusive-resize, scale-down-delay, assigned-cpuset]
fixedDefects: [pod-restart]
"""
HOTPLUG = """\
---
kind: MooringConfiguration
extensions: [cpu-hotplug, assigned-cpuset]
cpuHotplug: {replace: same-nodes}
fixedDefects: [pod-restart]
"""
KINDS = {"plain": (PLAIN, ""), "resizing": (RESIZING, "assigned: all"), "hotplug": (HOTPLUG, "assigned: all")}


class WorldLog(Log):
    """Keeps what was logged as an error."""

    def __init__(self) -> None:
        super().__init__("world")
        self.errors: list[str] = []
        self.lines: deque[str] = deque(maxlen=400)

    def _log(self, level: int, event: str, fields: dict[str, object], error: BaseException | None = None) -> None:
        self.lines.append(f"{Current.threads.now:.3f} {event} {fields}")
        if level >= 40:
            self.errors.append(f"{event}: {error!r}")


class Wire:
    """The agent as a plugin of the runtime, by frames; an answer that does not come ends the connection."""

    def __init__(self, world: Node, trunk: MemorySocket) -> None:
        self._world = world
        self.side = RuntimeSide(trunk)  # type: ignore[arg-type]

    @property
    def is_lost(self) -> bool:
        return self.side.connection.lost is not None

    def introduce(self) -> bool:
        """Wait for the registration and configure the plugin; tell whether that was done."""
        side = self.side
        self._world.threads.wait(lambda: not side.registered.empty() or self.is_lost, 5.0)
        if side.registered.empty():
            side.close()
            return False
        try:
            side.configure()
        except NRIError:
            side.close()
            return False
        return True

    def synchronize(
        self, pods: Sequence[PodSandbox], containers: Sequence[RuntimeContainer]
    ) -> Sequence[ContainerUpdate]:
        request = SynchronizeRequestMessage(pods=map(pod_to, pods), containers=map(container_to, containers))
        return _updates(self._call("Synchronize", request, "SynchronizeResponse"))

    def create_container(
        self, pod: PodSandbox, container: RuntimeContainer
    ) -> tuple[ContainerAdjustment, Sequence[ContainerUpdate]]:
        reply = self._call("CreateContainer", about(pod, container), "CreateContainerResponse")
        given = resources_from(reply.adjust.linux.resources)
        self._world.decided(container.id, given.cpus)
        return ContainerAdjustment(resources=given), _updates(reply)

    def update_container(
        self, pod: PodSandbox, container: RuntimeContainer, resources: LinuxResources
    ) -> Sequence[ContainerUpdate]:
        request = UpdateContainerRequestMessage(
            pod=pod_to(pod), container=container_to(container), linux_resources=resources_to(resources)
        )
        return _updates(self._call("UpdateContainer", request))

    def stop_container(self, pod: PodSandbox, container: RuntimeContainer) -> Sequence[ContainerUpdate]:
        return _updates(self._call("StopContainer", about(pod, container)))

    def state_change(self, event: Event, pod: PodSandbox | None, container: RuntimeContainer | None) -> None:
        request = StateChangeEventMessage(event=int(event))
        if pod is not None:
            request.pod.CopyFrom(pod_to(pod))
        if container is not None:
            request.container.CopyFrom(container_to(container))
        self._call("StateChange", request)

    def _call(self, method: str, message: Any, reply: str = "UpdatesResponse") -> Any:
        began, slowed = self._world.threads.now, self._slowed()
        try:
            return self.side.call(method, message, reply, TIMEOUT)
        except RemoteError as error:
            raise RefusalError(str(error)) from None
        except NRIError:
            self.side.close()
            raise KilledError from None
        finally:
            if method != "Synchronize" and slowed == self._slowed():
                # For that one a late answer is better than none.
                self._world.slowest = max(self._world.slowest, self._world.threads.now - began)

    def _slowed(self) -> int:
        """Return how often the connection itself was slow."""
        return sum(one.startswith(("delay", "pieces", *WIRE_RATES)) for one in self._world.faults.happened)


def _updates(reply: Any) -> list[ContainerUpdate]:
    return [update_from(one) for one in reply.update]


class WatchedStore(Store):
    """The agent's store; what a reader may find after it is noted."""

    def write(self, state: AgentState) -> str:
        tried = state.kubelet.files, frozenset({**state.remembered, **state.kubelet.node.active})
        WatchedStore.readable.append(tried)
        WatchedStore.writing += 1
        WatchedStore.most = max(WatchedStore.most, WatchedStore.writing)
        problem = super().write(state)
        WatchedStore.writing -= 1
        if not problem:
            WatchedStore.readable = [tried]
        return problem

    readable: ClassVar[list[tuple[StateTexts, frozenset[str]]]] = []
    """The record that was acknowledged last, and those after it that were not; of this world."""
    writing: ClassVar[int] = 0
    """Threads that write a record now."""
    most: ClassVar[int] = 0


@dataclass
class Node:
    """Everything of one node under one seed."""

    root: Path
    seed: int
    kind: str
    faults: Faults
    threads: Threads
    runtime: Runtime = field(default_factory=Runtime)
    agent: Agent | None = None
    program: Program | None = None
    log: WorldLog = field(default_factory=WorldLog)
    promised: dict[str, str] = field(default_factory=dict)
    """CPUs of containers as the runtime was answered, by id."""
    waiting: list[MemorySocket] = field(default_factory=list)
    is_closed: bool = False
    boots: int = 0
    slowest: float = 0.0
    """Seconds of the slowest answer, over connections that were not slow themselves."""
    period: float = PERIOD
    """Seconds between two looks of the agent."""

    def __post_init__(self) -> None:
        self.disk = Disk(self.root / "state")
        self.kernel = Kernel(self.runtime, self.root)
        self.files = Files(self.root, self.disk, self.kernel, self.faults)
        self.network = Network(self.faults)
        Current.threads, CurrentFiles.files, CurrentNetwork.network = self.threads, self.files, self.network
        WatchedStore.readable = []
        # The agent's own store, watched.
        setattr(agent_module, "Store", WatchedStore)  # noqa: B010 - the agent does not offer it
        shutil.rmtree(self.root, ignore_errors=True)
        for folder in ("state", "run", "assigned", "sys/fs/cgroup/pods", "proc/self", "sys/devices/system/cpu"):
            (self.root / folder).mkdir(parents=True)
        (self.root / "proc/self/mountinfo").write_text(V2)
        (self.root / "sys/fs/cgroup/cgroup.controllers").write_text("cpuset cpu\n")
        self.is_closed = random.Random(f"{self.seed}/closed").random() < 0.5  # noqa: S311 - repeatable
        self.kernel.show_online(ALL)
        self.network.listening[f"{self.root}/run/nri.sock"] = self.waiting.append
        self._boot()

    def decided(self, container: str, cpus: str) -> None:
        self.promised[container] = cpus

    # The agent.

    def start(self) -> bool:
        """Start an agent; tell whether it came up."""
        found = Store(self.disk.folder).read()
        self.lost = not self._is_readable(found)
        # What was read may be on no disk yet, so that a power loss may still return to what was acknowledged before.
        WatchedStore.readable = [*WatchedStore.readable, (found.texts, frozenset(found.pods))]
        WatchedStore.writing = WatchedStore.most = 0
        program = self.program = Program("agent")
        self.log = WorldLog()
        made: list[Agent] = []

        def main() -> None:
            agent = Agent(self._startup(), self.log)
            made.append(agent)
            agent.start()
            try:
                while not agent.is_over:
                    self.threads.sleep(self.period)
                    if self.ends is program:
                        return
                    agent.reconcile()
            finally:
                agent.close()

        main_task = self.main = self.threads.spawn(program, "main", main)
        self.threads.wait(lambda: bool(made) or main_task.is_over, 120.0)
        self.agent = made[0] if made else None
        return self.agent is not None

    def _is_readable(self, found: Stored) -> bool:
        allowed = WatchedStore.readable
        return not allowed or (found.texts, frozenset(found.pods)) in allowed

    main: Task | None = None
    """The first thread of the newest agent: its process ends with it."""
    lost: bool = False
    """Whether the newest agent has found another journal than was acknowledged."""
    ends: Program | None = None
    """The program that is asked to end."""

    def kill(self) -> None:
        """Kill the agent."""
        if self.program is not None:
            self.threads.kill(self.program)
            self.files.end(self.program)
            self.network.end(self.program)
        self.agent = None

    def lose_power(self) -> None:
        """Everything stops; what was not on the disk is gone, and so are all containers."""
        self.kill()
        if isinstance(self.runtime.plugin, Wire):
            self.runtime.plugin.side.close()
        self.runtime.plugin = None
        for one in (self.runtime.sandboxes, self.runtime.processes, self.promised):
            one.clear()
        for group in (self.runtime.stopped, self.runtime.silent, self.runtime.unlisted, self.runtime.failed):
            group.clear()
        self.waiting.clear()
        self.disk.lose_power(self.faults.numbers("power"))
        shutil.rmtree(self.root / "assigned")
        (self.root / "assigned").mkdir()
        self._boot()

    def forget(self) -> None:
        """Kill the agent and remove its state."""
        self.kill()
        for file in self.disk.folder.iterdir():
            file.unlink()
        self.disk.settle()
        WatchedStore.readable = []

    def _boot(self) -> None:
        self.boots += 1
        daemon.BOOT_ID = self.root / "boot_id"
        daemon.BOOT_ID.write_text(f"boot-{self.boots}\n")
        daemon._boot.cache_clear()  # noqa: SLF001 - a process of the product lives in one boot only

    def _startup(self) -> Startup:
        configuration, machine = with_known_cpus(_configured(self._text(), str(self.root)), self._machine())
        root = str(self.root) if self.kind == "hotplug" else ""
        cgroups = KernelCGroups(find_layout(self.root))
        return Startup(configuration, lambda: configuration, machine, cgroups, "edge-7", root)

    def _text(self) -> str:
        kubelet, agent = KINDS.get(self.kind, (PLAIN, f"claimsSocket: {self.root}/run/claims.sock"))
        return CONFIGURATION.format(
            folder=self.root, kubelet=kubelet, agent=agent, closed="true" if self.is_closed else "false"
        )

    def _machine(self) -> Machine:
        machine = _machine()
        there = CPUSet.parse(list_text(self.kernel.online))
        nodes = tuple(
            replace(one, cores=tuple(core for core in one.cores if core.thread_ids[0] in there))
            for one in machine.info.topology
        )
        return replace(machine, info=replace(machine.info, num_cores=len(there), topology=nodes))

    # The runtime.

    def serve(self) -> None:
        """Take the newest connection of an agent, if there is one."""
        if isinstance(self.runtime.plugin, Wire) and self.runtime.plugin.is_lost:
            self.runtime.plugin = None
        while self.waiting and self.runtime.plugin is None:
            trunk = self.waiting.pop(0)
            if trunk.other is None or trunk.other.is_closed:
                continue
            wire = Wire(self, trunk)
            if wire.introduce():
                try:
                    self.runtime.connect(wire)
                except RefusalError:
                    wire.side.close()
                    self.runtime.plugin = None

    def have_one_reply(self) -> None:
        """Ask about a container that nobody knows: any reply brings the runtime's record up to date."""
        wire = self.runtime.plugin
        if isinstance(wire, Wire):
            self.runtime.deliver(wire.stop_container(PodSandbox("none", "none", "none", "default"), NOBODY))

    def running(self) -> list[Process]:
        return [one for one in self.runtime.processes.values() if one.stage is Stage.RUNNING]


@cache
def _machine() -> Machine:
    return load_machine(MACHINE)


@cache
def _configured(text: str, folder: str) -> AgentConfiguration:
    file = Path(folder).parent / f"{Path(folder).name}.yaml"
    file.write_text(text, encoding="utf-8")
    return load_agent_configuration(str(file), None)
