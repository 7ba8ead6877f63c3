"""Lives of pods on a runtime with a socket, as a kubelet makes them live."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.agent.simulated_runtime import Stage
from tests.agent.wire.wired_runtime import WiredRuntime

from mooring.agent.nri.types import LinuxResources, RefusalError

SHARED = LinuxResources(shares=2)


def whole(cpus: int) -> LinuxResources:
    """Return what the kubelet asks for a container with so many CPUs as requests and limits; 0 is best-effort."""
    if not cpus:
        return SHARED
    return LinuxResources(shares=1024 * cpus, quota=100_000 * cpus, period=100_000, memory_limit=2**28)


@dataclass
class Kubelet:
    """Runs pods and takes them away again."""

    wired: WiredRuntime
    annotations: dict[str, str] = field(default_factory=dict)
    """Of every pod; long ones make long messages."""
    containers: int = 0
    """How many were made."""
    refused: int = 0
    exclusive: dict[str, int] = field(default_factory=dict)
    """How many CPUs a container asked for, by its id, while it lives."""

    def run(self, uid: str, *cpus: int) -> str:
        """Run a pod with a container for each number of CPUs; return its sandbox."""
        sandbox = self.wired.does(lambda runtime: runtime.run_sandbox(uid, f"name-{uid}", self.annotations))
        for number, count in enumerate(cpus):
            self.start(sandbox, f"c{number}", count)
        return sandbox

    def start(self, sandbox: str, name: str, cpus: int) -> str | None:
        """Create and start a container; return its id, or None when it was refused."""
        made = self.wired.does(lambda runtime: runtime.create(sandbox, name, whole(cpus)))
        self.containers += 1
        if made is None:
            self.refused += 1
            return None
        self.wired.does(lambda runtime: runtime.store(made))
        if not self.wired.does(lambda runtime: runtime.make_task(made)):
            self.refused += 1
            self.wired.does(lambda runtime: runtime.remove(made))
            return None
        self.wired.does(lambda runtime: runtime.started(made))
        if cpus:
            self.exclusive[made] = cpus
        return made

    def resize(self, container: str, shares: int) -> None:
        """Update a container's shares; a refusal counts and changes nothing."""
        try:
            self.wired.does(lambda runtime: runtime.update(container, LinuxResources(shares=shares)))
        except RefusalError:
            self.refused += 1

    def stop(self, container: str) -> None:
        """Stop and remove a container."""
        self.exclusive.pop(container, None)
        self.wired.does(lambda runtime: runtime.exit(container))
        self.wired.does(lambda runtime: runtime.remove(container))

    def end(self, sandbox: str) -> None:
        """Stop and remove a pod, as the kubelet does: containers, sandbox, and then what is left of both."""
        mine = [made for made in self.wired.runtime.processes.values() if made.sandbox == sandbox]
        for made in mine:
            self.exclusive.pop(made.id, None)
            if made.stage is not Stage.EXITED:
                self.wired.does(lambda runtime, made=made: runtime.exit(made.id))  # type: ignore[misc]
        self.wired.does(lambda runtime: runtime.stop_sandbox(sandbox))
        for made in mine:
            self.wired.does(lambda runtime, made=made: runtime.remove(made.id))  # type: ignore[misc]
        self.wired.does(lambda runtime: runtime.remove_sandbox(sandbox))

    def end_all(self) -> None:
        """Take every pod away."""
        for sandbox in [*self.wired.runtime.sandboxes]:
            self.end(sandbox)
