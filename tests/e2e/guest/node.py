"""A node inside the guest: runtime and agent as processes, and the kubelet's part played by the scenario.

:meth:`Node.come_up` starts both; nobody ends them, because the guest ends. :meth:`Node.run_sandbox` makes the pod's
control group with its quota, as the kubelet does, and runs the sandbox; then come :meth:`Node.create` and
``node.cri.start``. Everything may be slow here: patience is minutes. Runtime and driver of control groups are
containerd and cgroupfs unless said otherwise (:mod:`tests.e2e.guest.runtimes`, :mod:`tests.e2e.guest.groups`).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from tests import patience
from tests.e2e.containerd.cri import MESSAGES, Client, Pod
from tests.e2e.containerd.images import BUSYBOX
from tests.e2e.guest.groups import CGROUPS, CONTROLLERS, Driver
from tests.e2e.guest.report import OVERLAY
from tests.e2e.guest.runtimes import NRI_SOCKET, RUN, SOCKET, Runtime, containerd

from mooring.agent.pods.source import quota_of, shares_of
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Machine
from mooring.service.agent_status import ask_machine, ask_status

SYSTEM_CPUS = "0-1"
"""Where everything but containers runs, as on a node with reserved CPUs. It makes an emulated guest faster too: each
CPU that a process has run on has translations of its memory to keep.
"""
POD_RESOURCES = RUN / "kubelet.sock"
"""Where a scenario may play the kubelet that tells the devices of its pods."""
STATUS = str(RUN / "status.sock")
PATIENCE = 600.0
"""Seconds. Alone on two cores an emulated guest needs a tenth of it, but it may not be alone."""
until = partial(patience.until, seconds=PATIENCE, pause=0.2)
_AGENT_WORDS = (sys.executable, "-m", "mooring", "agent", "--config", str(RUN / "agent.yaml"))
_AGENT = f"""\
---
kind: AgentConfiguration
apiVersion: mooring/v1alpha1
stateDir: /run/mooring
nriSocket: {NRI_SOCKET}
statusSocket: {STATUS}
podResourcesSocket: ""
kubeletPodResourcesSocket: {POD_RESOURCES}
metricsAddress: ""
replyBudget: 60s
logLevel: debug
"""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A pod with one container."""

    name: str
    cpu: str = ""
    """In thousandths or whole; empty for none."""
    memory: int = 0
    """Bytes."""
    limited: bool = True
    """Whether requests are limits too, which makes the pod Guaranteed."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    handler: str = ""
    """OCI runtime; empty for the usual one."""
    uid: str = ""
    """Made of the name unless it is given."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "uid", self.uid or f"uid-{self.name}")

    @property
    def milli(self) -> int:
        return int(self.cpu[:-1]) if self.cpu.endswith("m") else 1000 * int(self.cpu or 0)

    @property
    def exclusive(self) -> int:
        """How many CPUs of its own it is to get."""
        return self.milli // 1000 if self.limited and self.milli % 1000 == 0 else 0

    @property
    def quota(self) -> str:
        """What the kubelet writes into ``cpu.max``."""
        return f"{self.milli * 100} 100000" if self.limited and self.cpu else "max 100000"

    @property
    def quality(self) -> str:
        """Its QoS class in small letters."""
        return "guaranteed" if self.cpu and self.limited else "burstable" if self.cpu else "besteffort"

    @property
    def cgroup(self) -> str:
        """The pod's group as the kubelet's cgroupfs driver names it."""
        return Driver().pod(self.uid, self.quality)

    def resources(self) -> dict[str, int]:
        """Return what the kubelet asks the runtime for."""
        found = {"cpu_shares": shares_of(self.milli), "cpu_period": 100_000}
        if self.limited and self.cpu:
            found |= {"cpu_quota": quota_of(self.milli), "memory_limit_in_bytes": self.memory}
        return found

    def manifest(self) -> dict[str, Any]:
        """Return the pod as the API server has it."""
        amounts = {"cpu": self.cpu, "memory": str(self.memory)} if self.cpu else {}
        resources = {"requests": amounts, **({"limits": amounts} if self.limited else {})} if amounts else {}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": self.name, "namespace": "default", "uid": self.uid},
            "spec": {"containers": [{"name": "app", "image": BUSYBOX, "resources": resources}]},
        }


@dataclass(slots=True)
class Running:
    """A pod that runs."""

    wanted: Wanted
    sandbox: Pod
    driver: Driver
    prefix: str
    """Of the runtime's groups."""
    container: str = ""
    """Id."""

    @property
    def cgroup(self) -> Path:
        """The container's group."""
        return self.driver.container(self.sandbox.cgroup_parent, self.container, self.prefix)


@dataclass(slots=True)
class Node:
    """The runtime and the agent."""

    runtime: Runtime = field(default_factory=containerd)
    driver: Driver = field(default_factory=Driver)
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _client: list[Client] = field(default_factory=list)

    def come_up(self, *documents: Mapping[str, Any]) -> None:
        """Start both, and import the image; the agent goes by these documents, a KubeletConfiguration at least."""
        RUN.mkdir(parents=True, exist_ok=True)
        Path("/var/run").mkdir(exist_ok=True)
        subprocess.run(["/bin/busybox", "insmod", OVERLAY], check=True)
        subprocess.run(["/bin/busybox", "mount", "--make-rshared", "/"], check=True)
        for name, content in (("passwd", "root:x:0:0:root:/root:/bin/sh\n"), ("hosts", "127.0.0.1 localhost\n")):
            Path("/etc").mkdir(exist_ok=True)
            Path("/etc", name).write_text(content)
        Path("/etc/resolv.conf").touch()
        if not self.driver.systemd:
            (CGROUPS / "cgroup.subtree_control").write_text(CONTROLLERS)
            _stay_on(SYSTEM_CPUS)
        for path, text in self.runtime.files.items():
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_text(text)
        self.configure(*documents)
        if self.runtime.before:
            self._import()
        self.start_runtime()
        if not self.runtime.before:
            self._import()
        self.start_agent()
        self.until_ready()

    def _import(self) -> None:
        for words in self.runtime.imports:
            done = subprocess.run(words, check=False, capture_output=True, text=True, env=_environment())
            assert done.returncode == 0, (words, done.stderr)

    def configure(self, *documents: Mapping[str, Any]) -> None:
        """Write the agent's file: these documents and its own."""
        texts = [json.dumps(one) for one in documents]
        (RUN / "agent.yaml").write_text("\n---\n".join(texts) + f"\n{_AGENT}")

    @property
    def cri(self) -> Client:
        """The kubelet's side; the same client as long as the runtime runs."""
        if not self._client:
            self._client.append(Client(SOCKET, timeout=PATIENCE, stops_first=self.runtime.stops_first))
        return self._client[0]

    def start_runtime(self) -> None:
        before = self.log("runtime").count(self.runtime.served)
        self._start("runtime", self.runtime.command)

        def serves() -> bool:
            assert self._processes["runtime"].poll() is None, self.log("runtime")[-3000:]
            return SOCKET.exists() and self.log("runtime").count(self.runtime.served) > before

        until(serves, f"{self.runtime.name} serves")

    def kill_runtime(self) -> None:
        """End the runtime as a crash does; its containers live on."""
        for client in self._client:
            client.close()
        self._client.clear()
        self._kill("runtime")

    def start_agent(self) -> None:
        """Start the agent; it need not be ready at once (:meth:`until_ready`)."""
        self._start("agent", _AGENT_WORDS)

    def kill_agent(self) -> None:
        """End the agent as a crash does."""
        self._kill("agent")

    def leave(self) -> str:
        """End the agent, let it give everything back, as for good, and return what it says."""
        process = self._processes["agent"]
        process.terminate()
        assert process.wait(PATIENCE) == 0, self.log("agent")[-3000:]
        left = subprocess.run(
            [*_AGENT_WORDS, "--leave"],
            capture_output=True,
            text=True,
            check=False,
            env=_environment(),
            timeout=PATIENCE,
        )
        assert left.returncode == 0, left.stderr
        return left.stdout

    def status(self) -> dict[str, Any]:
        """Return what the agent says of itself; a guest that is slow is asked again."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                return ask_status(STATUS)
            except InputError:
                if time.monotonic() > end:
                    raise

    def machine(self) -> Machine:
        """Return the machine as the agent's engine sees it."""
        return ask_machine(STATUS)

    def until_ready(self) -> None:
        until(self.is_ready, "the agent is ready")

    def is_ready(self) -> bool:
        process = self._processes["agent"]
        assert process.poll() is None, f"the agent has ended with {process.returncode}: {self.log('agent')[-3000:]}"
        with suppress(InputError):
            return bool(ask_status(STATUS)["ready"])
        return False

    def log(self, name: str) -> str:
        """Return what ``runtime`` or ``agent`` has said."""
        path = RUN / f"{name}.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def diagnosis(self) -> str:
        """Say what became of the processes, and what they said last."""
        ends = {name: process.poll() for name, process in self._processes.items()}
        return "\n".join(
            f"{name}: {'runs' if end is None else f'ended with {end}'}\n{self.log(name)[-2000:]}"
            for name, end in ends.items()
        )

    def run_sandbox(self, wanted: Wanted) -> Running:
        """Make the pod's group with its quota, and run its sandbox."""
        group = self.driver.pod(wanted.uid, wanted.quality)
        self.driver.make(group)
        if wanted.limited and wanted.cpu:
            self.driver.limit(group, wanted.milli)
        sandbox = self.cri.run_pod(
            wanted.name,
            wanted.uid,
            group,
            resources=wanted.resources(),
            annotations=wanted.annotations,
            handler=wanted.handler,
        )
        return Running(wanted, sandbox, self.driver, self.runtime.prefix)

    def create(
        self,
        running: Running,
        command: Sequence[str] = (),
        mounts: Mapping[str, str] | None = None,
        attempt: int = 0,
    ) -> None:
        """Create the container: here the agent decides. ``mounts`` are the guest's folders by path in the container."""
        resources = running.wanted.resources()
        running.container = self.cri.create(
            running.sandbox, "app", resources=resources, command=command, mounts=mounts, attempt=attempt
        )

    def resize(self, running: Running, cpu: str) -> None:
        """Change the size of a pod's container as the kubelet does: by one call, for whole settings without a cpuset.

        The pod's quota is wide enough before the container's is, and for as long as it is.

        Raises:
            CRIError: the agent refuses.
        """
        after = replace(running.wanted, cpu=cpu)
        if after.milli > running.wanted.milli:
            self.driver.limit(running.sandbox.cgroup_parent, after.milli)
        self.cri.update(running.container, **after.resources())
        if after.milli < running.wanted.milli:
            self.driver.limit(running.sandbox.cgroup_parent, after.milli)
        running.wanted = after

    def stop(self, running: Running) -> None:
        """Stop the pod: here its CPUs come back."""
        if self.runtime.stops_first:
            self.cri.stop(running.container)
        self.cri.call("StopPodSandbox", MESSAGES["SandboxId"](pod_sandbox_id=running.sandbox.id), "Empty")

    def remove(self, running: Running) -> None:
        """Remove what is left of a pod that was stopped."""
        self.cri.call("RemovePodSandbox", MESSAGES["SandboxId"](pod_sandbox_id=running.sandbox.id), "Empty")

    def _start(self, name: str, words: Sequence[str]) -> None:
        with (RUN / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=_environment(), start_new_session=True
            )
        # As their units have it. When a container's memory node is full the kernel takes the largest process that may
        # use the node, and that would be one of these.
        Path(f"/proc/{self._processes[name].pid}/oom_score_adj").write_text("-999", encoding="ascii")

    def _kill(self, name: str) -> None:
        process = self._processes[name]
        process.send_signal(signal.SIGKILL)
        process.wait()


def _environment() -> dict[str, str]:
    # All CPUs of an emulated guest are one thread of the host: with more they only take turns.
    return {**os.environ, "GOMAXPROCS": "2", "GOGC": "400"}


def _stay_on(cpus: str) -> None:
    group = CGROUPS / "system"
    group.mkdir(exist_ok=True)
    (group / "cpuset.cpus").write_text(cpus)
    (group / "cgroup.procs").write_text(str(os.getpid()))
