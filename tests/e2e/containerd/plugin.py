"""A plugin in a thread beside a real containerd: it does what a table says and remembers what it saw."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.patience import until

from mooring.agent.nri.plugin import StopSignal, connect_to, run_plugin
from mooring.agent.nri.session import PluginOptions
from mooring.agent.nri.types import (
    ContainerAdjustment,
    ContainerUpdate,
    Event,
    LinuxResources,
    LostAnswer,
    NRIError,
    PodSandbox,
    RefusalError,
    Runtime,
    RuntimeContainer,
    SessionObserver,
)


@dataclass(slots=True)
class Watching:
    """Pins containers by their names and notes every call as ``(what, container or pod name)``."""

    pins: dict[str, str] = field(default_factory=dict)
    """CPU list by the container's name; without one a container is not touched."""
    mems: str = "0"
    also: list[ContainerUpdate] = field(default_factory=list)
    """Updates in the reply to the next creation or stop."""
    refuse: dict[str, str] = field(default_factory=dict)
    """Refusals by the container's name."""
    hold: threading.Event = field(default_factory=threading.Event)
    slow: str = ""
    """Name of the container whose creation waits for ``hold``."""
    seen: list[tuple[str, str]] = field(default_factory=list)
    asked: list[tuple[str, LinuxResources]] = field(default_factory=list)
    """What updates wanted, by the container's name."""
    synchronized: list[tuple[list[PodSandbox], list[RuntimeContainer]]] = field(default_factory=list)
    resized: list[PodSandbox] = field(default_factory=list)
    events: frozenset[Event] = frozenset(Event)

    def configure(self, config: str, runtime: str, version: str) -> frozenset[Event]:
        self.seen.append(("configure", f"{runtime} {version} {config}".strip()))
        return self.events

    def synchronize(
        self, pods: Sequence[PodSandbox], containers: Sequence[RuntimeContainer]
    ) -> Sequence[ContainerUpdate]:
        self.synchronized.append((list(pods), list(containers)))
        return self._taken()

    def create_container(
        self, _pod: PodSandbox, container: RuntimeContainer
    ) -> tuple[ContainerAdjustment, Sequence[ContainerUpdate]]:
        self.seen.append(("create", container.name))
        if container.name == self.slow:
            assert self.hold.wait(60)
        if container.name in self.refuse:
            raise RefusalError(self.refuse[container.name])
        cpus = self.pins.get(container.name, "")
        return ContainerAdjustment(LinuxResources(cpus=cpus, mems=self.mems if cpus else "")), self._taken()

    def update_container(
        self, _pod: PodSandbox, container: RuntimeContainer, resources: LinuxResources
    ) -> Sequence[ContainerUpdate]:
        self.seen.append(("update", container.name))
        self.asked.append((container.name, resources))
        cpus = self.pins.get(container.name)
        return [ContainerUpdate(container.id, LinuxResources(cpus=cpus))] if cpus else []

    def stop_container(self, _pod: PodSandbox, container: RuntimeContainer) -> Sequence[ContainerUpdate]:
        self.seen.append(("stop", container.name))
        return self._taken()

    def state_change(self, event: Event, pod: PodSandbox | None, container: RuntimeContainer | None) -> None:
        about = container or pod
        self.seen.append((event.name, about.name if about else ""))
        if event is Event.UPDATE_POD_SANDBOX and pod is not None:
            self.resized.append(pod)

    def _taken(self) -> list[ContainerUpdate]:
        taken, self.also = self.also, []
        return taken


@dataclass(slots=True)
class Noting(SessionObserver):
    """Remembers what the plugin tells about itself."""

    runtimes: list[Runtime] = field(default_factory=list)
    lost_answers: list[LostAnswer] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)
    losses: list[NRIError] = field(default_factory=list)
    ready: int = 0

    def connected(self, runtime: Runtime) -> None:
        self.runtimes.append(runtime)

    def synchronized(self, pods: int, containers: int) -> None:  # noqa: ARG002 - of SessionObserver
        self.ready += 1

    def lost(self, answer: LostAnswer) -> None:
        self.lost_answers.append(answer)

    def failed(self, method: str, error: Exception) -> None:  # noqa: ARG002 - of SessionObserver
        self.failures.append(error)

    def disconnected(self, why: NRIError, retry_in: float) -> None:  # noqa: ARG002 - of SessionObserver
        self.losses.append(why)


@contextlib.contextmanager
def plugged(socket: Path, handler: Watching, options: PluginOptions | None = None) -> Iterator[Noting]:
    """Run a plugin until the end of the block; inside, it is synchronized."""
    stop, observer = StopSignal(), Noting()
    thread = threading.Thread(
        target=run_plugin,
        args=(lambda: connect_to(str(socket)), handler, options or PluginOptions(budget=5.0), observer, stop),
        daemon=True,
    )
    thread.start()
    try:
        until(lambda: observer.ready, "the plugin is synchronized")
        yield observer
    finally:
        stop.set()
        handler.hold.set()
        thread.join(30)
        assert not thread.is_alive()
    assert observer.failures == []
