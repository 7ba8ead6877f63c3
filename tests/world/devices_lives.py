"""Lives of a cluster whose pods have claims: what extenders promise of CPUs beside devices, and of those left."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from typing import Any, ClassVar, cast

from msgspec.structs import replace
from tests.world.apiserver import PODS
from tests.world.claims import CLAIMS
from tests.world.claims import DRIVER as CPU_DRIVER
from tests.world.cluster import Machine, Scheduler, pod_object
from tests.world.cluster_lives import ClusterLife, Promise
from tests.world.devices import (
    CLASS,
    CLASSES,
    ClaimScheduler,
    DeviceMachine,
    allocation,
    claim_object,
    control,
    free,
    names_of,
    results,
    users,
)

from mooring.engine.extensions.owners import claims_of
from mooring.published.objects import PATHS, STATE


class DeviceLife(ClusterLife):
    """One life."""

    MACHINES: ClassVar = ("devices", "devices", "plain")
    OPTIONS: ClassVar = replace(ClusterLife.OPTIONS, device_claims=True)
    MACHINE: ClassVar[type[Machine]] = DeviceMachine
    SCHEDULER: ClassVar[type[Scheduler]] = ClaimScheduler

    @property
    def nodes(self) -> list[DeviceMachine]:
        return [cast("DeviceMachine", one) for one in self.machines.values()]

    def start(self) -> None:
        cast("ClaimScheduler", self.scheduler).machines = {one.name: one for one in self.nodes}
        self.server.put(CLASSES, CLASS)
        tidy = partial(control, self.server, self.threads.sleep, lambda: self.is_over)
        self.threads.spawn(self.threads.outside, "controller", tidy)
        super().start()

    # What happens.

    def run_users(self, numbers: random.Random) -> None:
        """Run pods with claims of their own, by template, or of another pod."""
        for _ in range(numbers.choice([1, 2, 3])):
            self._pods += 1
            cpus = numbers.choice([["1"], ["2"], ["3"], ["4"], ["2", "1"], ["500m"]])
            pod = pod_object(self._pods, cpus, "64Mi", numbers.choice([0, 0, 0, 9]))
            asked: dict[str, Any] = {"name": "gpu", "resourceClaimTemplateName": "each"}
            there = [*self.server.objects[CLAIMS]]
            kind = numbers.random()
            if kind < 0.2 and there:
                asked = {"name": "gpu", "resourceClaimName": numbers.choice(there)}
            elif kind < 0.6:
                asked = {"name": "gpu", "resourceClaimName": f"own-{self._pods}"}
                self.server.put(CLAIMS, claim_object(f"own-{self._pods}", numbers.choice([1, 1, 2]), self._uid(pod)))
            self._put_user(pod, asked)
        self._rest(numbers)

    @staticmethod
    def _uid(pod: dict[str, Any]) -> str:
        return str(pod["metadata"]["uid"])

    def _put_user(self, pod: dict[str, Any], asked: dict[str, Any]) -> None:
        first, *others = pod["spec"]["containers"]
        first = {**first, "resources": {**first["resources"], "claims": [{"name": "gpu"}]}}
        spec = {**pod["spec"], "containers": [first, *others], "resourceClaims": [asked]}
        self.server.put(PODS, {**pod, "spec": spec})

    def allocate_first(self, numbers: random.Random) -> None:
        """Allocate a claim before its pod comes."""
        machine = numbers.choice(self.nodes)
        found = free(self.server, machine)
        if not found:
            return
        self._pods += 1
        name, count = f"first-{self._pods}", min(numbers.choice([1, 1, 2]), len(found))
        pod = pod_object(self._pods, [numbers.choice(["1", "2", "3"])], "64Mi")
        made = {"allocation": allocation(machine.name, numbers.sample(found, count))}
        self.server.put(CLAIMS, {**claim_object(name, count, self._uid(pod)), "status": made})
        # Nobody tidies up what no pod has had: the pod comes at once, and its claim goes with it.
        self._put_user(pod, {"name": "gpu", "resourceClaimName": name})
        self._rest(numbers)

    def take_cpus(self, numbers: random.Random) -> None:
        """Let a node's driver give a claim its CPUs at once; some time a pod with that claim comes."""
        machine, count = numbers.choice(self.nodes), numbers.choice([1, 1, 2, 3])
        self._pods += 1
        name, numa = f"cpus-{self._pods}-", numbers.choice([0, 1])
        if not machine.take(name, count, numa):
            return
        made = {"allocation": allocation(machine.name, [f"numa{numa}"], CPU_DRIVER)}
        self.server.put(CLAIMS, {**claim_object(name), "status": made})
        self._rest(numbers)
        if numbers.random() < 0.6:
            self._put_user(pod_object(self._pods, ["500m"], "64Mi"), {"name": "gpu", "resourceClaimName": name})

    def release_cpus(self, numbers: random.Random) -> None:
        """Delete a claim that no pod uses; its CPUs are free again."""
        named = {name for pod in self.server.objects[PODS].values() for name in names_of(pod)}
        unused = [name for name in self.server.objects[CLAIMS] if name.startswith("cpus-") and name not in named]
        if unused:
            self._release(numbers.choice(unused))
        self._rest(numbers)

    def _release(self, name: str) -> None:
        self.server.delete(CLAIMS, name)
        for machine in self.nodes:
            machine.release(name)

    # Laws.

    bound_at = 0.0
    """When a pod was bound last."""

    def _bound(self, pod: dict[str, Any], node: str) -> None:
        self.bound_at = self.threads.now
        super()._bound(pod, node)

    def is_restless(self) -> bool:
        # Pods that wait hand devices on to one another.
        return self.threads.now - self.bound_at < 15.0

    def is_surprised(self, machine: Machine, promise: Promise) -> bool:
        assert isinstance(machine, DeviceMachine)
        text, came = self._state(machine, promise.heard), machine.came[promise.uid]
        turns = [(name in text) != is_there for name, is_there, when in machine.turns if when <= came]
        return any(turns) or super().is_surprised(machine, promise)

    def _state(self, machine: Machine, heard: int) -> str:
        """Return the state of a node as it was published at a version."""
        changes = self.server.history[PATHS[STATE]]
        mine = [one for one in changes if one.version <= heard and one.object["metadata"]["name"] == machine.name]
        return str(mine[-1].object) if mine else ""

    def claimed(self, machine: Machine, heard: int) -> dict[str, int]:
        text = self._state(machine, heard)
        held = claims_of(machine.kubelet.node.cpu)
        return {uid: one.cpus.bit_count() for uid, one in held.items() if uid in text}

    def look(self) -> None:
        super().look()
        for machine in self.nodes:
            for text in machine.problems():
                self.hold(False, text)

    def _problems(self) -> Iterator[str]:
        scheduler = cast("ClaimScheduler", self.scheduler)
        for text in super()._problems():
            # One that has let go of what it had is asked about again before long.
            if not (text.startswith("waits for nothing") and self.threads.now - scheduler.changed < 60.0):
                yield text

    def end(self) -> None:
        for pod in [*self.server.objects[PODS].values()]:
            self._delete(pod)
        self.settle()
        for name in [one for one in self.server.objects[CLAIMS] if one.startswith("cpus-")]:
            self._release(name)
        super().end()
        left = [one for one in self.server.objects[CLAIMS].values() if results(one) or users(one)]
        self.hold(not left, f"allocated to pods that are gone: {left[:1]}")
        for machine in self.nodes:
            node = machine.kubelet.node
            self.hold(not node.cpu.assignments, f"CPUs of nobody on {machine.name}: {node.cpu.assignments}")
            self.hold(not node.providers.devices.held, f"devices of nobody on {machine.name}")


DeviceLife.EVENTS = {
    **ClusterLife.EVENTS,
    "run pods": (16, DeviceLife.run_pods),
    "run users": (24, DeviceLife.run_users),
    "allocate first": (10, DeviceLife.allocate_first),
    "take CPUs": (8, DeviceLife.take_cpus),
    "release CPUs": (5, DeviceLife.release_cpus),
}
