"""The life of a kubelet beside a shadow: pods come and go, it is killed and stopped, and gets other configurations."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

from tests.e2e.containerd.runtime import Runtime
from tests.e2e.kubelet.apiserver import PODS, APIServer
from tests.e2e.kubelet.decided import KubeletOf, Played, Playing
from tests.e2e.kubelet.devices.cases import GPU, NIC, devices_on
from tests.e2e.kubelet.devices.plugin import DevicePlugin, plugins_on
from tests.e2e.kubelet.kubelet import Kubelet, kubelet_on
from tests.e2e.kubelet.patience import until
from tests.e2e.kubelet.shadow.refused import check_refused_start, remove_files_on_which_none_starts, started
from tests.e2e.kubelet.shadow.shadowing import ShadowProcess, shadowed
from tests.e2e.kubelet.shadow.topologies import Topology
from tests.e2e.kubelet.shadow.wanted import has_devices, random_pod

from mooring.inputs.machines.loader import load_machine

PODS_OF_A_LIFE = int(os.environ.get("MOORING_E2E_SHADOW_PODS") or 40)
SEED = int(os.environ.get("MOORING_E2E_SHADOW_SEED") or 1)
MOST_AT_ONCE = 10
"""Pods of a batch; the next one comes when it is judged."""
ALIVE = 24
"""About as many pods there are at a time, those that were refused included."""


class Between(Enum):
    """What happens between two rounds of pods."""

    KILLED = "kill -9, and a start"
    STOPPED = "SIGTERM, and a start"
    DRAINED = "drained, state files removed, another configuration"
    CHANGED = "state files removed under running pods, another configuration"


_ORDER = (Between.KILLED, Between.DRAINED, Between.STOPPED, Between.CHANGED)


@dataclass(frozen=True, slots=True)
class Life:
    """What came of it."""

    topology: Topology
    shadow: ShadowProcess
    pods: int
    with_devices: int
    restarts: int
    seconds: float

    def row(self) -> str:
        """Return it as a row of a table."""
        found = self.shadow.document
        verdicts = [found[name] for name in ("agreed", "differs", "unknown")]
        rate = round(60 * self.pods / self.seconds)
        release = self.topology.case.older or found["release"]
        name = self.topology.name.removesuffix("-older")
        cells = (release, name, self.pods, sum(verdicts), *verdicts, self.restarts, self.with_devices, rate)
        return f"| {' | '.join(map(str, cells))} |"


@dataclass(slots=True)
class _Churn:
    """Creates and deletes the pods of a node; all at random."""

    api: APIServer
    topology: Topology
    shadow: ShadowProcess
    drawn: random.Random
    created: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)
    with_devices: int = 0
    restarts: int = 0
    """Those that are judged."""

    def until_restarted(self) -> None:
        """Wait until the shadow has judged one more start of the kubelet, or several where one did not succeed."""
        until(lambda: self.shadow.decided("restarted") > self.restarts, "the restart is judged", pause=0.2)
        self.restarts = self.shadow.decided("restarted")

    def come_and_go(self, count: int) -> None:
        """Create as many pods, in batches, and wait until each batch is judged."""
        wanted = len(self.created) + count
        while len(self.created) < wanted:
            self.batch(min(self.drawn.randint(1, MOST_AT_ONCE), wanted - len(self.created)))
            until(lambda: not self.open(), f"the pods of {self.topology.name} are judged", pause=0.2)

    def batch(self, count: int) -> None:
        there = self.there()
        for _ in range(count):
            name = f"{self.topology.name}-{len(self.created)}"
            pod = random_pod(self.topology, name, self.drawn)
            self.api.create_pod(pod)
            self.with_devices += has_devices(pod)
            self.created.add(name)
            there.append(name)
            if self.drawn.random() < len(there) / (2 * ALIVE):
                self.delete(there.pop(self.drawn.randrange(len(there))))

    def open(self) -> set[str]:
        """Return the pods that are to be judged still: one that was deleted may never have been decided about."""
        return self.created - self.deleted - self.shadow.judged()

    def there(self) -> list[str]:
        return [one["metadata"]["name"] for one in self._pods() if "deletionTimestamp" not in one["metadata"]]

    def delete(self, name: str) -> None:
        self.api.delete(f"{PODS}/{name}")
        self.deleted.add(name)

    def drain(self) -> None:
        """Delete all pods, and wait until the kubelet has ended them."""
        for name in self.there():
            self.delete(name)
        until(lambda: not self._pods(), "all pods are gone")

    def _pods(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.api.get(PODS, fieldSelector=f"spec.nodeName={self.topology.name}")["items"]
        return found


@dataclass(frozen=True, slots=True)
class Lives:
    """Lets kubelets live; used by several threads at the same time."""

    api: APIServer
    kubelet_of: KubeletOf
    playing: Playing
    played: Played

    def live(self, topology: Topology, folder: Path) -> Life:
        """Let a kubelet decide about random pods.

        Args:
            topology: where, and with which configurations.
            folder: empty; the shadow's files go there.
        """
        case, drawn, begun = topology.case, random.Random(f"{topology.name}-{SEED}"), time.monotonic()  # noqa: S311
        rounds = max(len(_ORDER) + 1, PODS_OF_A_LIFE // 100)
        options = ["--kubelet-version", case.older] if case.older else []
        configurations = [case.policies]
        with self.playing() as node, contextlib.ExitStack() as stack:
            churn = None
            for number in range(rounds):
                after = _ORDER[number % len(_ORDER)] if number < rounds - 1 else Between.DRAINED
                with self._kubelet(
                    topology, node, configurations[-1], after, folder / f"kubelet-{number}.log"
                ) as kubelet:
                    if churn is None:
                        shadow = shadowed(self.api, kubelet, self.played(case), folder, *options)
                        churn = _Churn(self.api, topology, stack.enter_context(shadow), drawn)
                    else:
                        churn.until_restarted()
                    churn.come_and_go(PODS_OF_A_LIFE * (number + 1) // rounds - len(churn.created))
                    if after is Between.DRAINED:
                        churn.drain()
                if number < rounds - 1:
                    configurations.append(self._changed(topology, kubelet, node, configurations, after))
                    if after is not Between.DRAINED:
                        churn.batch(2)
        assert churn is not None
        seconds = time.monotonic() - begun
        return Life(topology, churn.shadow, len(churn.created), churn.with_devices, rounds - 1, seconds)

    @contextlib.contextmanager
    def _kubelet(
        self, topology: Topology, node: Runtime, policies: Mapping[str, Any], after: Between, log: Path
    ) -> Iterator[Kubelet]:
        case, machine = topology.case, self.played(topology.case)
        start = partial(
            kubelet_on,
            node,
            self.kubelet_of(case.older),
            case.name,
            {**case.reservations, **policies},
            machine=machine,
            kubeconfig=self.api.kubeconfig,
            ending=signal.SIGTERM if after in {Between.STOPPED, Between.DRAINED} else signal.SIGKILL,
        )
        with started(start) as kubelet, plugins_on(*_plugins(topology, kubelet)):
            until(lambda: self.api.has_node(case.name), "the node is registered")
            try:
                yield kubelet
            finally:
                shutil.copy(kubelet.folder / "kubelet.log", log)

    def _changed(
        self,
        topology: Topology,
        kubelet: Kubelet,
        node: Runtime,
        before: Sequence[Mapping[str, Any]],
        after: Between,
    ) -> Mapping[str, Any]:
        """Return the next configuration; where it is another one the state files are removed."""
        if after not in {Between.DRAINED, Between.CHANGED}:
            remove_files_on_which_none_starts(topology.case, kubelet, self.played(topology.case))
            return before[-1]
        changes = sum(one is not other for one, other in itertools.pairwise(before))
        wanted = topology.others[changes % len(topology.others)]
        if after is Between.DRAINED:
            case = topology.case
            found = {**case.reservations, **wanted}
            program = self.kubelet_of(case.older)
            check_refused_start(node, program, case, found, self.played(case), self.api.kubeconfig)
        for manager in ("cpu", "memory"):
            (kubelet.root / f"{manager}_manager_state").unlink(missing_ok=True)
        return wanted


def _plugins(topology: Topology, kubelet: Kubelet) -> list[DevicePlugin]:
    if not topology.has_devices:
        return []
    devices = devices_on(load_machine(topology.case.machine))
    return [DevicePlugin(kubelet.device_plugins, one, devices[one]) for one in (GPU, NIC)]


Living = Callable[[Topology], Life]
"""Returns the life of a kubelet; a fixture."""
