"""Print how long the agent takes to answer a runtime on which 16 clients create, replace and remove containers.

Two processes: the agent with its state folder, and a runtime (this one), which like every NRI runtime passes on one
request at a time, whichever client comes next. 256 CPUs; most containers get exclusive ones. The agent's state is on
disk before a reply, so now and then the disk alone is measured: 4 KiB in a new file, fsync, rename, in the same folder.

    PYTHONPATH=. .venv/bin/python benchmarks/replies_at_churn.py [REQUESTS [FOLDER ...]]

``chrt -f 50`` before it keeps other programs from the CPUs, and not from the disk.
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from replies_with_devices import kept, spread
from startup import Watched
from tests.agent.process import PATIENCE
from tests.agent.wire.wired_runtime import NEW, Kubelet, WiredRuntime, running

CLIENTS = 16
SIZES = (0, 1, 1, 2)
"""CPUs that containers ask for; 0 shares."""
MACHINE = "sockets=2 numa=2 cores=128 threads=2 memory=512Gi"
EVERY = 10
"""Requests between two writes of the disk alone."""


class Client:
    """Has one pod at a time, whose containers come, are replaced and go."""

    def __init__(self, number: int, kubelet: Kubelet) -> None:
        self._draw = random.Random(number)  # noqa: S311 - the same choices in every run
        self._number, self._kubelet = number, kubelet
        self._sandbox, self._pods = "", 0
        self._sizes, self._containers = list[int](), list[str]()
        self.creations: list[int] = []
        """Which of all requests were CreateContainer."""

    def step(self) -> None:
        """Do one of these, as chance wants it."""
        if not self._sandbox:
            self._pods += 1
            self._sandbox = self._kubelet.run(f"pod-{self._number}-{self._pods}")
            self._sizes = self._draw.choices(SIZES, k=4)
        elif len(self._containers) < len(self._sizes) and self._draw.random() < 0.6:
            self._containers.append(self._started(len(self._containers)))
        elif self._containers and self._draw.random() < 0.7:
            place = self._draw.randrange(len(self._containers))
            self._kubelet.stop(self._containers[place])
            self._containers[place] = self._started(place)
        else:
            self._kubelet.end(self._sandbox)
            self._sandbox, self._containers = "", []

    def _started(self, place: int) -> str:
        self.creations.append(len(self._kubelet.wired.waits))
        made = self._kubelet.start(self._sandbox, f"c{place}", self._sizes[place])
        assert made is not None
        return made


@dataclass(frozen=True, slots=True)
class Found:
    """What one run showed, in milliseconds."""

    replies: list[float]
    creations: list[float]
    """Those to CreateContainer."""
    disk: list[float]
    cpu: float
    """Of the agent, for a reply."""


def replies(folder: Path, requests: int) -> Found:
    """Let the clients work until so many requests were answered."""
    wired = WiredRuntime(folder / "nri.sock", replace(NEW, timeout=PATIENCE, registration_timeout=PATIENCE))
    kubelet, disk = Kubelet(wired), list[float]()
    draw = random.Random(0)  # noqa: S311 - as above
    clients = [Client(number, kubelet) for number in range(CLIENTS)]
    try:
        with running(folder, MACHINE) as agent:
            assert agent.process is not None
            watched = Watched(agent.process.pid)
            for client in clients:
                for _ in range(4):
                    client.step()
            first, before = len(wired.waits), watched.cpu()
            while len(wired.waits) - first < requests:
                draw.choice(clients).step()
                if len(wired.waits) - first >= EVERY * len(disk):
                    disk.append(kept(folder))
            waits, cpu = wired.waits[first:], watched.cpu() - before
    finally:
        wired.close()
    times = [1000 * one for one in waits]
    creations = [times[one - first] for client in clients for one in client.creations if one >= first]
    return Found(times, creations, disk, 1000 * cpu / len(times))


def main(requests: int, places: Sequence[str]) -> None:
    """Measure and print."""
    for place in places:
        folder = Path(tempfile.mkdtemp(prefix="mooring-", dir=place))
        try:
            found = replies(folder, requests)
        finally:
            shutil.rmtree(folder)
        sys.stdout.write(
            f"{place}: all replies {spread(found.replies)}; CreateContainer {spread(found.creations)}; "
            f"disk alone {spread(found.disk)}; {found.cpu:.2f} ms of CPU a reply\n"
        )


if __name__ == "__main__":
    memory = "/dev/shm"  # noqa: S108 - mkdtemp makes it private
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 4000, sys.argv[2:] or [tempfile.gettempdir(), memory])
