"""Clients that do to containerd what many kubelets at once would: pods come, change, restart and go, in no order."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import grpc
from tests.e2e.containerd.agent_process import whole_cpus
from tests.e2e.containerd.cri import CRIError, Pod
from tests.e2e.containerd.hanging import end_hanging
from tests.e2e.containerd.runtime import Runtime
from tests.patience import until

NO_ROOM = "not enough cpus available"
"""What the agent refuses a container with; a kubelet would fail the pod."""


@dataclass(slots=True)
class LivePod:
    """A pod of one client."""

    pod: Pod
    count: int
    """CPUs that each of its containers has for itself; 0 shares."""
    containers: dict[str, str] = field(default_factory=dict)
    """Ids by name."""
    attempts: int = 0


@dataclass(slots=True)
class Churn:
    """Everything that the clients share.

    Attributes:
        node: with the containerd.
        sizes: how many CPUs containers ask for, drawn evenly; 0 shares.
        limit: containers that live at once.
        sharing: of them those without CPUs of their own.
    """

    node: Runtime
    sizes: tuple[int, ...]
    limit: int
    sharing: int
    exclusive: dict[str, int] = field(default_factory=dict)
    """Every container ever that asked for CPUs of its own -> how many."""
    made: dict[str, str] = field(default_factory=dict)
    """Cgroup of every container ever; whether it runs may be unknown to clients whose call was interrupted."""
    live: dict[str, LivePod] = field(default_factory=dict)
    """By the id of the container."""
    steps: int = 0
    started: int = 0
    rejected: int = 0
    interrupted: int = 0
    """Calls that failed because containerd was away."""
    hanging: str = ""
    _next: int = 0
    _busy: int = 0
    _starting: set[str] = field(default_factory=set)
    """Ids of containers that clients start at this moment."""
    _is_failing: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _may: threading.Event = field(default_factory=threading.Event)
    _ending: threading.Event = field(default_factory=threading.Event)
    _is_away: threading.Event = field(default_factory=threading.Event)
    _clients: list[Future[None]] = field(default_factory=list)

    @contextlib.contextmanager
    def going_on(self, clients: int) -> Iterator[None]:
        """Let clients work until the end of the block; at the end no pod is left, and what failed in one is raised."""
        self._may.set()
        with ThreadPoolExecutor(clients) as pool:
            self._clients = [pool.submit(self._work, number) for number in range(clients)]
            self._is_failing = True
            try:
                yield
                self._is_failing = False
            finally:
                self._ending.set()
                self._may.set()
                if self.hanging:
                    self.raise_failures()
        self.raise_failures()

    def raise_failures(self) -> None:
        """Raise what a client died of, and tell a containerd that hangs."""
        if self.hanging:
            self._ending.set()
            what, self.hanging = self.hanging, ""
            raise end_hanging(self.node, what)
        for client in self._clients:
            if client.done():
                client.result()

    def until(self, condition: Callable[[], object], what: str, *, seconds: float = 120.0, pause: float = 0.02) -> None:
        """Wait for something unless a client fails meanwhile."""

        def is_so() -> bool:
            self.raise_failures()
            return bool(condition())

        until(is_so, what, seconds=seconds, pause=pause)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Let no client work until the end of the block."""
        self._may.clear()
        try:
            self.until(lambda: self._busy == 0, "every client has finished its step", seconds=2 * self.node.patience)
            yield
        finally:
            self._may.set()

    def all_started(self) -> Callable[[], bool]:
        """Return what tells whether the starts that are under way now have ended."""
        with self._lock:
            now = frozenset(self._starting)
        return lambda: now.isdisjoint(self._starting)

    @contextlib.contextmanager
    def _start(self, container: str) -> Iterator[None]:
        with self._lock:
            self._starting.add(container)
        try:
            yield
        finally:
            with self._lock:
                self._starting.remove(container)

    @contextlib.contextmanager
    def containerd_away(self) -> Iterator[None]:
        """Take calls that fail until the end of the block for what they are."""
        self._is_away.set()
        try:
            yield
        finally:
            self._is_away.clear()

    def _work(self, number: int) -> None:
        chance = random.Random(number)  # noqa: S311 - the same choices in every run
        pods: list[LivePod] = []
        while not self._ending.is_set():
            if not self._may.wait(0.1):
                continue
            with self._step():
                if not self._may.is_set():
                    continue
                try:
                    self._choose(chance, pods)
                except (CRIError, ValueError) as error:
                    self._judge(error)
        while pods and not self._is_failing:
            with self._step():
                self._remove(pods, pods[0])

    @contextlib.contextmanager
    def _step(self) -> Iterator[None]:
        with self._lock:
            self._busy += 1
        try:
            yield
        finally:
            with self._lock:
                self._busy -= 1
                self.steps += 1

    def _choose(self, chance: random.Random, pods: list[LivePod]) -> None:
        if not pods or (len(self.live) < self.limit and chance.random() < 0.9):
            self._make(chance, pods)
            return
        pod = chance.choice(pods)
        what = chance.random()
        if what < 0.5 or not pod.containers:
            self._remove(pods, pod)
        elif what < 0.75:
            # Another size of what is no CPU of its own; the cpuset stays the agent's.
            container = chance.choice([*pod.containers.values()])
            self.node.cri.update(container, memory_limit_in_bytes=chance.choice((64, 96)) * 2**20)
        else:
            self._restart(pod, chance.choice([*pod.containers]))

    def _make(self, chance: random.Random, pods: list[LivePod]) -> None:
        count = chance.choice(self.sizes)
        shared = sum(pod.count == 0 for pod in [*self.live.values()])
        if count == 0 and shared >= self.sharing:
            count = max(self.sizes)
        with self._lock:
            self._next += 1
            name = f"p{self._next}"
        # As a kubelet names them: the record of a container whose quota was lifted does not tell the pod's class.
        place = "kubepods" if count else "kubepods/besteffort"
        made = LivePod(
            self.node.cri.run_pod(name, f"uid-{name}", f"{self.node.cgroup_parent}/{place}/pod{name}"), count
        )
        pods.append(made)
        for number in range(chance.choice((1, 2, 3))):
            if not self._run(made, f"c{number}"):
                break

    def _run(self, pod: LivePod, name: str) -> bool:
        """Create and start a container; return False when there is no room for it."""
        resources = whole_cpus(pod.count) if pod.count else None
        try:
            made = self.node.cri.create(pod.pod, name, resources=resources, attempt=pod.attempts)
            pod.containers[name] = made
            self.made[made] = self.node.container_cgroup(pod.pod, made)
            if pod.count:
                self.exclusive[made] = pod.count
            # A container that was created while the agent was disconnected is refused here.
            with self._start(made):
                self.node.cri.start(made)
        except CRIError as error:
            if NO_ROOM not in str(error):
                raise
            self.rejected += 1
            return False
        self.live[made] = pod
        self.started += 1
        return True

    def _restart(self, pod: LivePod, name: str) -> None:
        """Let a container end and make it anew, as a kubelet does with one that died."""
        old = pod.containers.pop(name)
        self.live.pop(old, None)
        self.node.cri.stop(old)
        pod.attempts += 1
        self._run(pod, name)
        self.node.cri.remove(old)

    def _remove(self, pods: list[LivePod], pod: LivePod) -> None:
        for container in pod.containers.values():
            self.live.pop(container, None)
        # A test that has failed may have lost its runtime.
        while not (self._is_failing and self._ending.is_set()):
            try:
                self.node.cri.remove_pod(pod.pod.id)
                break
            except (CRIError, ValueError) as error:
                self._judge(error)
        pods.remove(pod)

    def _judge(self, error: Exception) -> None:
        """Return when a call failed because containerd is or was away; else raise what is wrong."""
        code = error.code() if isinstance(error, grpc.Call) else None
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            self.hanging = self.hanging or f"a call has no answer after {self.node.patience:g} s"
            raise error
        # A channel that was opened while containerd was away needs a moment to notice that it is back.
        is_reached = "failed to connect" not in str(error)
        if self.hanging or (is_reached and not self._is_away.is_set()):
            raise error
        self.interrupted += 1
        self._ending.wait(0.2)
