"""Many lives of containers through real frames, with the agent as a process of its own: it does not grow or drift.

The tests take a hundred; ``MOORING_SOAK=100000`` takes as many (12 minutes or more), and ``-s`` prints the figures.

The simulated runtime is behind a socket: it takes plugins, speaks real frames, and gives up whoever is too slow. As
containerd does: a plugin registers, is configured and told what there is, one plugin after another; from then on each
call waits for its answer, and a plugin that is silent for too long loses its connection while the runtime goes on.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import socket
import sys
import tempfile
import threading
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
from google.protobuf.message import DecodeError
from tests.agent.nri.runtime_side import RuntimeSide, about, container_to, pod_to, update_from
from tests.agent.process import PATIENCE, AgentProcess
from tests.agent.simulated_runtime import KilledError, Runtime, Stage
from tests.agent.whole_agent import until, whole

from mooring.agent.nri import messages
from mooring.agent.nri.methods import EVENT_METHODS, resources_from, resources_to
from mooring.agent.nri.types import (
    CallTimeoutError,
    ConnectionLostError,
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
from mooring.agent.nri.types import Runtime as Introduction
from mooring.engine.core.cpuset import CPUSet

_METHODS = {event: method for method, event in EVENT_METHODS.items()}
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Manners:
    """How a runtime behaves."""

    introduction: Introduction
    timeout: float = 2.0
    """Seconds that it waits for an answer."""
    registration_timeout: float = 5.0
    """Seconds that a new connection may be silent; the next one waits so long."""
    split: int = 0
    """Pods and containers in a part of a Synchronize; 0 for all in one."""


NEW = Manners(Introduction("containerd", "v2.4.2", "v0.12.3"), split=3)


@dataclass(slots=True, eq=False)
class Link:
    """A plugin at the other end of a connection, as the simulated runtime calls it."""

    side: RuntimeSide
    manners: Manners
    heard: Callable[[str, str], object]
    """Is told the method and text of every refusal that the caller may ignore."""
    waits: array[float]
    """Gets the seconds for which an answer was waited."""

    def configure(self) -> None:
        """Wait for the registration and answer it with a Configure.

        Raises:
            KilledError: the plugin is gone or silent.
            RefusalError: it does not want to.
        """
        end = time.monotonic() + self.manners.registration_timeout
        while self.side.registered.empty():
            if self.side.connection.lost is not None or time.monotonic() > end:
                raise KilledError
            threading.Event().wait(0.002)
        said = self.manners.introduction
        message = messages.ConfigureRequestMessage(
            runtime_name=said.name,
            runtime_version=said.version,
            NRI_version=said.nri_version,
            request_timeout=int(self.manners.timeout * 1000),
        )
        self._call("Configure", message, "ConfigureResponse")

    def synchronize(
        self, pods: Sequence[PodSandbox], containers: Sequence[RuntimeContainer]
    ) -> Sequence[ContainerUpdate]:
        things: list[PodSandbox | RuntimeContainer] = [*pods, *containers]
        size = self.manners.split or max(len(things), 1)
        parts = [things[start : start + size] for start in range(0, len(things), size)] or [[]]
        reply: Any = None
        for number, part in enumerate(parts):
            message = messages.SynchronizeRequestMessage(
                pods=[pod_to(one) for one in part if isinstance(one, PodSandbox)],
                containers=[container_to(one) for one in part if isinstance(one, RuntimeContainer)],
                more=number + 1 < len(parts),
            )
            reply = self._call("Synchronize", message, "SynchronizeResponse")
        return [update_from(one) for one in reply.update]

    def create_container(
        self, pod: PodSandbox, container: RuntimeContainer
    ) -> tuple[ContainerAdjustment, Sequence[ContainerUpdate]]:
        reply = self._call("CreateContainer", about(pod, container), "CreateContainerResponse")
        adjustment = ContainerAdjustment(resources_from(reply.adjust.linux.resources))
        return adjustment, [update_from(one) for one in reply.update]

    def update_container(
        self, pod: PodSandbox, container: RuntimeContainer, resources: LinuxResources
    ) -> Sequence[ContainerUpdate]:
        message = messages.UpdateContainerRequestMessage(
            pod=pod_to(pod), container=container_to(container), linux_resources=resources_to(resources)
        )
        reply = self._call("UpdateContainer", message, "UpdatesResponse")
        return [update_from(one) for one in reply.update]

    def stop_container(self, pod: PodSandbox, container: RuntimeContainer) -> Sequence[ContainerUpdate]:
        try:
            reply = self._call("StopContainer", about(pod, container), "UpdatesResponse")
        except RefusalError as refusal:
            self.heard("StopContainer", str(refusal))
            return ()
        return [update_from(one) for one in reply.update]

    def state_change(self, event: Event, pod: PodSandbox | None, container: RuntimeContainer | None) -> None:
        message = messages.ContainerRequestMessage()
        if pod is not None:
            message.pod.CopyFrom(pod_to(pod))
        if container is not None:
            message.container.CopyFrom(container_to(container))
        try:
            self._call(_METHODS[event], message, "UpdatesResponse")
        except RefusalError as refusal:
            self.heard(event.name, str(refusal))
            if event is Event.START_CONTAINER:
                raise

    def close(self) -> None:
        self.side.close()

    def _call(self, method: str, message: Any, reply: str) -> Any:
        began = time.monotonic()
        try:
            return self.side.call(method, message, reply, self.manners.timeout)
        except RemoteError as error:
            raise RefusalError(error.message) from error
        except DecodeError as error:
            raise RefusalError("the answer cannot be read") from error
        except CallTimeoutError as error:
            self.side.close()
            raise KilledError from error
        except ConnectionLostError as error:
            raise KilledError from error
        finally:
            self.waits.append(time.monotonic() - began)


@dataclass
class WiredRuntime:
    """A runtime with a socket. Everything that it does happens under :attr:`lock`, one thing after another."""

    path: Path
    manners: Manners
    runtime: Runtime = field(default_factory=Runtime)
    lock: threading.RLock = field(default_factory=threading.RLock)
    synchronized: int = 0
    """How many plugins were told everything."""
    heard: list[tuple[str, str]] = field(default_factory=list)
    """Refusals that a runtime only writes into its log."""
    waits: array[float] = field(default_factory=lambda: array("d"))
    """Seconds for which each answer was waited."""

    def __post_init__(self) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self.path))
        self._listener.listen()
        self._link: Link | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._accept, name="wired-runtime", daemon=True)
        self._thread.start()

    def does(self, work: Callable[[Runtime], _Result]) -> _Result:
        """Do something as the runtime; what waits behind it are new plugins."""
        with self.lock:
            return work(self.runtime)

    def close(self) -> None:
        """Hang up on everybody."""
        self._closed = True
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(60)
        assert not self._thread.is_alive()
        if self._link is not None:
            self._link.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                trunk, _ = self._listener.accept()
            except OSError:
                return
            self._take(Link(RuntimeSide(trunk), self.manners, self._hear, self.waits))

    def _hear(self, method: str, text: str) -> None:
        self.heard.append((method, text))

    def _take(self, link: Link) -> None:
        try:
            link.configure()
            with self.lock:
                # It is the same plugin: of the connection before, nobody hears any more.
                if self._link is not None:
                    self._link.close()
                self._link = link
                self.runtime.connect(link)
                if self.runtime.plugin is link:
                    self.synchronized += 1
        except (KilledError, NRIError):
            if self.runtime.plugin is link:
                self.runtime.plugin = None
            link.close()


# Lives of pods on a runtime with a socket, as a kubelet makes them live.


@dataclass
class Kubelet:
    """Runs pods and takes them away again."""

    wired: WiredRuntime
    containers: int = 0
    """How many were made."""
    refused: int = 0
    exclusive: dict[str, int] = field(default_factory=dict)
    """How many CPUs a container asked for, by its id, while it lives."""

    def run(self, uid: str, *cpus: int) -> str:
        """Run a pod with a container for each number of CPUs; return its sandbox."""
        sandbox = self.wired.does(lambda runtime: runtime.run_sandbox(uid, f"name-{uid}", {}))
        for number, count in enumerate(cpus):
            self.start(sandbox, f"c{number}", count)
        return sandbox

    def start(self, sandbox: str, name: str, cpus: int) -> str | None:
        """Create and start a container; return its id, or None when it was refused."""
        refused = len(self.wired.runtime.refusals)
        made = self.wired.does(lambda runtime: runtime.bring_up(sandbox, name, whole("", cpus).resources))
        self.containers += 1
        if len(self.wired.runtime.refusals) > refused:
            self.refused += 1
            if made is not None:
                self.wired.does(lambda runtime: runtime.remove(made))
            return None
        if cpus and made is not None:
            self.exclusive[made] = cpus
        return made

    def end(self, sandbox: str) -> None:
        """Stop and remove a pod, as the kubelet does: containers, sandbox, and then what is left of both."""
        for container in self.wired.does(lambda runtime: runtime.end_pod(sandbox)):
            self.exclusive.pop(container, None)

    def end_all(self) -> None:
        """Take every pod away."""
        for sandbox in [*self.wired.runtime.sandboxes]:
            self.end(sandbox)


LIVES = int(os.environ.get("MOORING_SOAK", "100"))
MOST_MEMORY = 120 * 2**20
"""Bytes that the agent may have resident at any moment."""
GROWTH = 6 * 2**20
"""Bytes by which its memory may have grown between the end of the first tenth and the end."""
PODS = 8
"""Pods at once."""
SAMPLES = min(200, LIVES // 5)
"""Looks at the agent."""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder on the disk, or below the one that the environment names: on a tmpfs the disk is not timed."""
    place = os.environ.get("MOORING_SOAK_FOLDER")
    if not place:
        yield tmp_path
        return
    made = Path(tempfile.mkdtemp(prefix="soak-", dir=place))
    yield made
    shutil.rmtree(made)


CONFIGURATION = """\
kind: KubeletConfiguration
cpuManagerPolicy: static
topologyManagerPolicy: best-effort
reservedSystemCPUs: "0"
---
kind: AgentConfiguration
stateDir: {state}
nriSocket: {folder}/nri.sock
assignedDir: {folder}/assigned
statusSocket: {folder}/status.sock
podResourcesSocket: {folder}/pods.sock
metricsAddress: 127.0.0.1:0
replyBudget: 60s
logLevel: info
"""
MACHINE = "sockets=1 numa=2 cores=16 threads=1 memory=32Gi"


@contextmanager
def running(folder: Path) -> Iterator[AgentProcess]:
    """Run an agent until the end of the block; then it ends at SIGTERM with code 0, without internal errors."""
    made = AgentProcess(folder, folder / "state", machine=MACHINE, configuration=CONFIGURATION)
    made.start()
    try:
        made.until_ready()
        yield made
    finally:
        code = made.end()
    assert code == 0, made.log[-10:]
    assert [line for line in made.log if line["level"] == "error"] == []


def resident(agent: AgentProcess) -> int:
    """Return the resident memory of an agent in bytes."""
    assert agent.process is not None
    status = Path(f"/proc/{agent.process.pid}/status").read_text(encoding="ascii")
    return int(re.findall(r"VmRSS:\s*(\d+)", status)[0]) * 1024


def of_process(agent: AgentProcess, what: str) -> int:
    """Return how many threads (``task``) or open files and sockets (``fd``) an agent has."""
    assert agent.process is not None
    return sum(1 for _ in Path(f"/proc/{agent.process.pid}/{what}").iterdir())


@pytest.mark.long
def test_memory_is_flat_and_nothing_drifts_over_many_lives_on_the_wire(folder: Path) -> None:
    draw = random.Random(1)  # noqa: S311 - the same lives every time
    # Nobody is given up for what the machine is slow at.
    wired = WiredRuntime(folder / "nri.sock", replace(NEW, timeout=PATIENCE, registration_timeout=PATIENCE))
    kubelet = Kubelet(wired)
    memory: list[int] = []
    began = time.monotonic()
    try:
        with running(folder) as agent:
            handles, pod = (of_process(agent, "task"), of_process(agent, "fd")), 0
            while kubelet.containers < LIVES:
                if len(wired.runtime.sandboxes) >= PODS:
                    kubelet.end(next(iter(wired.runtime.sandboxes)))
                pod += 1
                kubelet.run(f"pod{pod}", *draw.choice(((0,), (1,), (2,), (3,), (1, 1), (0, 0), (12,))))
                if kubelet.containers >= len(memory) * LIVES / SAMPLES:
                    memory.append(resident(agent))
                    assert wrong(kubelet, agent) == []
            kubelet.end_all()
            memory.append(resident(agent))
            status = agent.status
            assert (status["pods"], status["held"], status["cpus"]["shared"]) == ([], [], "0-15")
            # Whoever asked last for the status may still be served.
            until(
                lambda: (of_process(agent, "task"), of_process(agent, "fd")) <= handles,
                "threads and sockets are as at first",
            )
    finally:
        wired.close()
    took = time.monotonic() - began
    sys.stdout.write(_figures(kubelet, memory, took, status["counts"]))
    assert max(memory) < MOST_MEMORY
    assert memory[-1] - memory[len(memory) // 10] < GROWTH
    assert wired.heard == []
    assert wired.synchronized == 1


def wrong(kubelet: Kubelet, agent: AgentProcess) -> list[str]:
    """Return what contradicts: the agent's word and the runtime's record, sizes, and containers on others' CPUs."""
    live = {one.id: one for one in kubelet.wired.runtime.processes.values() if one.stage is not Stage.EXITED}
    status = agent.status
    said = {one["id"]: one["told"]["cpus"] for pod in status["pods"] for one in pod["containers"] if "id" in one}
    had = {one.id: one.record.cpus for one in live.values()}
    found = [
        f"{one}: {said.get(one)} {had.get(one)}" for one in said.keys() | had.keys() if said.get(one) != had.get(one)
    ]
    cpus = {one.id: CPUSet.parse(one.cgroup.cpus) for one in live.values() if one.runs}
    for one, count in kubelet.exclusive.items():
        if len(cpus[one]) != count:
            found.append(f"{one} has {cpus[one]} and asked for {count}")
        found += [f"{one} and {other} overlap" for other in cpus if other != one and cpus[one] & cpus[other]]
    return found


def _figures(kubelet: Kubelet, memory: list[int], took: float, counts: dict[str, object]) -> str:
    waits = sorted(kubelet.wired.waits)
    at = {share: 1000 * waits[int(share * (len(waits) - 1))] for share in (0.5, 0.9, 0.99, 0.999, 1.0)}
    words = ", ".join(f"{'max' if share == 1 else f'p{100 * share:g}'} {found:.2f} ms" for share, found in at.items())
    tenths = [memory[part * (len(memory) - 1) // 10] >> 10 for part in range(11)]
    return (
        f"\n{kubelet.containers} lives, {kubelet.refused} refused, {len(waits)} requests, "
        f"{kubelet.containers / took:.0f} lives/s\n"
        f"resident: {max(memory) >> 10} KiB at most; after each tenth {tenths} KiB\n"
        f"replies as the runtime waits for them: {words}\nas the agent counts them: {counts}\n"
    )
