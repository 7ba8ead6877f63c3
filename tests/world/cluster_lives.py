"""Lives of a cluster under a seed: what extenders promise, what kubelets make of it, and what holds in between."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from tests.world import apiserver, cluster
from tests.world.apiserver import LEASE, NODES, PODS, APIServer, LeaseWay
from tests.world.cluster import KINDS, Machine, Process, Replica, Scheduler, node_object, pod_object
from tests.world.connections import CurrentNetwork, Network
from tests.world.living import Life
from tests.world.threads import Current

from mooring.cluster.extender.options import ExtenderOptions, UnknownNodes
from mooring.engine.kubelet.admit import view_key
from mooring.published.facts_document import digest_of
from mooring.published.objects import GROUP, PLURALS, STATE, VERSION, state_of
from mooring.published.observation import EngineObserver
from mooring.service.apiserver import ClusterError

_QUIET = 130
"""Seconds without faults after which everybody has heard of everything, and what lists did not show has settled."""
_ASSUMED = 600.0
"""Seconds for which an extender counts a bind that is not confirmed."""
_SETTLING = 80.0
"""Seconds for which an extender reserves, at most, for a pod that is gone."""
_ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True)
class Promise:
    """A pod as an extender has bound it."""

    uid: str
    node: str
    program: object
    known: int
    """The version of the pods that the extender had heard of before it decided."""
    heard: int
    """The same of the states."""


class ClusterLife(Life):
    """One life."""

    STEPS, CALM = 60, 0.05
    RATES: ClassVar = {**apiserver.RATES, **cluster.RATES}
    MACHINES: ClassVar = ("plain", "aligned", "cores")
    OPTIONS: ClassVar = ExtenderOptions(assumed_for=_ASSUMED, unknown_nodes=UnknownNodes.DENY)
    MACHINE: ClassVar = Machine
    SCHEDULER: ClassVar = Scheduler

    def __init__(self, root: Path, seed: int, steps: int = 0, left_out: frozenset[str] = frozenset()) -> None:
        del root
        super().__init__(seed, steps, left_out)
        Current.threads, CurrentNetwork.network = self.threads, Network(self.faults)
        self.is_over = False
        self.server = server = APIServer(self.faults, self._bound)
        self.machines = {f"n{number}": self._machine(f"n{number}") for number in range(self.numbers.choice([1, 2, 3]))}
        self.replicas: list[Replica] = []
        for name in ("a", "b"):
            way = LeaseWay(server, lambda code, text: ClusterError(text, code=code))
            replica = Replica(Process(f"extender-{name}", lambda _process: None, self.threads), way)
            replica.process.main = partial(replica.run, server=server, options=self.OPTIONS)
            self.replicas.append(replica)
        self.publishers = [
            Process(f"publisher-{one.name}", one.publish, self.threads) for one in self.machines.values()
        ]
        self.scheduler = self.SCHEDULER(server, self.threads, self.replicas, [*self.machines], self._delete)
        self.promises: dict[str, Promise] = {}
        self.problems: list[str] = []
        self._pods = 0
        self._paused = 0.0

    def _machine(self, name: str) -> Machine:
        return self.MACHINE(name, self.numbers.choice(self.MACHINES), self.server, self.threads)

    @property
    def processes(self) -> list[Process]:
        return [*(one.process for one in self.replicas), *self.publishers]

    def start(self) -> None:
        self.server.put(LEASE, {"metadata": {"name": "extender"}, "spec": {}})
        outside = self.threads.outside
        for name, machine in self.machines.items():
            self.server.put(NODES, node_object(name))
            self.threads.spawn(outside, f"kubelet {name}", partial(machine.run, lambda: self.is_over))
        self.threads.spawn(outside, "scheduler", partial(self.scheduler.run, lambda: self.is_over))
        self.before_step()

    def leave(self) -> None:
        self.is_over = True

    def last_words(self) -> tuple[str, ...]:
        told = [f"{one.process.name}: {text}" for one in self.replicas for text in one.told[-20:]]
        return (*told, *(text for one in self.processes for text in one.program.tracebacks))

    # What happens.

    def before_step(self) -> None:
        """Start what has ended."""
        for one in self.processes:
            one.keep()

    def run_pods(self, numbers: random.Random) -> None:
        for _ in range(numbers.choice([1, 2, 3, 5])):
            self._pods += 1
            cpus = numbers.choice(
                [["1"], ["1"], ["2"], ["2"], ["3"], ["4"], ["1", "1"], ["2", "1"], ["1", "3"], ["6"], ["500m"]]
            )
            memory, priority = numbers.choice(["64Mi", "1Gi", "3Gi"]), numbers.choice([0, 0, 0, 9])
            self.server.put(PODS, pod_object(self._pods, cpus, memory, priority))
        self._rest(numbers)

    def run_foreign_pod(self, numbers: random.Random) -> None:
        """Run a pod that nobody has asked an extender about, as of a DaemonSet; perhaps one hears of it late."""
        if numbers.random() < 0.5:
            self.lag(numbers)
        machine = numbers.choice([*self.machines.values()])
        self._pods += 1
        pod = pod_object(self._pods, numbers.choice([["2"], ["4"], ["6"]]), "64Mi")
        pod["spec"]["nodeName"] = machine.name
        machine.surprises.append((self.server.put(PODS, pod), self.threads.now))
        self.run_pods(numbers)

    def delete_pod(self, numbers: random.Random) -> None:
        for _ in range(numbers.choice([1, 2, 4])):
            if pods := self._stored(lambda one: one["status"]["phase"] != "Failed"):
                self._delete(numbers.choice(pods))
        self._rest(numbers)

    def _delete(self, pod: dict[str, Any]) -> None:
        metadata = {**pod["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
        if "deletionTimestamp" in pod["metadata"]:
            return
        self.server.put(PODS, {**pod, "metadata": metadata})
        if not pod["spec"].get("nodeName") or pod["status"]["phase"] in _ENDED:
            self.server.delete(PODS, pod["metadata"]["name"])

    def finish_pod(self, numbers: random.Random) -> None:
        for pod in self._stored(lambda one: one["status"]["phase"] == "Running"):
            if "deletionTimestamp" not in pod["metadata"] and numbers.random() < 0.4:
                self.machines[pod["spec"]["nodeName"]].finish(pod["metadata"]["uid"])
        self._rest(numbers)

    def _stored(self, is_so: Any) -> list[dict[str, Any]]:
        return [one for one in self.server.objects[PODS].values() if is_so(one)]

    def _replica(self, numbers: random.Random) -> Replica:
        """Return one that decides, if there is such a one."""
        return numbers.choice([one for one in self.replicas if one.is_ready] or self.replicas)

    def kill_extender(self, numbers: random.Random) -> None:
        self._replica(numbers).process.end(numbers.choice([0.0, 2.0, 30.0]))
        self._rest(numbers)

    def stop_extender(self, numbers: random.Random) -> None:
        self._replica(numbers).process.stop.set()
        self._rest(numbers)

    def kill_publisher(self, numbers: random.Random) -> None:
        numbers.choice(self.publishers).end(numbers.choice([0.0, 2.0, 30.0]))
        self._rest(numbers)

    def pause(self, numbers: random.Random) -> None:
        """Let an extender stand still; with late requests for less than nobody else takes its Lease."""
        if self.threads.now - self._paused > 20.0:
            self._paused = self.threads.now
            self._replica(numbers).process.program.paused = self.threads.now + numbers.choice([0.2, 1.0, 2.0])
        self._rest(numbers)

    def cut_watches(self, numbers: random.Random) -> None:
        self.server.cut()
        if numbers.random() < 0.5:
            self.server.compact()
        self._rest(numbers)

    def lag(self, numbers: random.Random) -> None:
        """Let an extender's watches show nothing for a while; when it reads or lists it is told what is."""
        name = numbers.choice([self._replica(numbers), *self.replicas]).process.name
        self.server.lags[name] = self.threads.now + numbers.choice([3.0, 15.0, 60.0])

    def be_away(self, numbers: random.Random) -> None:
        self.server.away_until = self.threads.now + numbers.choice([0.5, 5.0, 30.0])
        self.server.cut()
        self._rest(numbers)

    def bar_lease(self, numbers: random.Random) -> None:
        way = self._replica(numbers).way
        way.is_barred = not way.is_barred
        self._rest(numbers)

    def slow_down(self, numbers: random.Random) -> None:
        numbers.choice([*self.machines.values()]).slow = numbers.choice([0.0, 0.1, 3.0, 20.0])

    def restart_kubelet(self, numbers: random.Random) -> None:
        numbers.choice([*self.machines.values()]).restart()

    def rest(self, numbers: random.Random) -> None:
        for _ in range(numbers.choice([1, 3, 12])):
            self._rest(numbers)

    def _rest(self, numbers: random.Random) -> None:
        self.threads.sleep(numbers.choice([0.0, 0.05, 0.5, 2.0, 6.0]))
        self.before_step()

    # Laws.

    def _bound(self, pod: dict[str, Any], node: str) -> None:
        """Hear that the server binds a pod; a thread of an extender is at work."""
        uid, program = pod["metadata"]["uid"], self.threads.task.program
        replica = next(one for one in self.replicas if one.process.program is program)
        if uid in self.promises and self.promises[uid].node != node:
            self.problems.append(f"{uid} was promised to {self.promises[uid].node} before {node}")
        self.promises[uid] = Promise(uid, node, program, *replica.known.get(uid, (0, 0)))
        machine = self.machines[node]
        there = self._stored(
            lambda one: (
                one["spec"].get("nodeName") == node
                and one["status"]["phase"] not in _ENDED
                and one["metadata"]["uid"] in self.promises.keys() - machine.refused.keys()
            )
        )
        config = KINDS[machine.kind]
        free = sum(len(core.thread_ids) for place in config.machine.topology for core in place.cores)
        free -= len(str(config.config.reserved_system_cpus).split(","))
        claims = self.claimed(machine, self.promises[uid].heard)
        free -= sum(claims.values())
        # What was promised before somebody heard of a claim may not come true, and need not be counted.
        there = [
            one
            for one in there
            if one["metadata"]["uid"] in machine.kubelet.node.active
            or self.claimed(machine, self.promises[one["metadata"]["uid"]].heard).keys() >= claims.keys()
        ]
        wanted = sum(map(_exclusive, [*there, pod]))
        if wanted > free and not any(version > self.promises[uid].known for version, _ in machine.refusals):
            self.problems.append(f"CPUs promised twice: {node} has {free}, its pods want {wanted}")

    def look(self) -> None:
        """Check what holds at every step."""
        for one in self.processes:
            self.hold(not one.program.failures, f"a thread of {one.name} has ended: {one.program.failures[:1]!r}")
        failures = self.threads.outside.failures
        self.hold(not failures, f"the world itself failed: {failures[:1]!r} {self.threads.outside.tracebacks[:1]}")
        for text in (*self.problems, *self.scheduler.wrong):
            self.hold(False, text)
        for machine in self.machines.values():
            self.hash.update(f"{machine.kubelet.files.cpu}{machine.refused}".encode())
            for uid, reason in machine.refused.items():
                promise = self.promises.get(uid)
                # Nobody can allow for pods that came or ended and were not heard of.
                is_excused = promise is None or self.is_surprised(machine, promise)
                self.hold(is_excused, f"a promise is broken: {uid} on {machine.name}, {reason}")

    def is_surprised(self, machine: Machine, promise: Promise) -> bool:
        """Tell whether something happened on a node before a pod came, of which nobody had heard who promised."""
        came = machine.came[promise.uid]
        unheard = [when for version, when in machine.refusals if version > promise.known and when < came]
        return bool(unheard) or any(version > promise.known and when <= came for version, when in machine.surprises)

    def claimed(self, _machine: Machine, _heard: int) -> dict[str, int]:
        """Return how many CPUs others than pods have on a node, as a state says of which was heard."""
        return {}

    def is_restless(self) -> bool:
        """Tell whether something still happens by itself."""
        return False

    def settle(self) -> None:
        """Let everything come to rest without faults, and check what must be so then."""
        self.faults.is_quiet = True
        self.server.away_until = 0.0
        self.server.lags.clear()
        self.server.cut()
        for replica in self.replicas:
            replica.way.is_barred = False
        for machine in self.machines.values():
            machine.slow = 0.0
        for number in range(_QUIET // 5):
            if number == 2:
                cluster.look_every(cluster.RARE_LOOKS)
            self.before_step()
            self.threads.sleep(5.0)
        while self.is_restless():
            self.threads.sleep(5.0)
        cluster.look_every(cluster.LOOKS)
        self.look()
        for text in self._problems():
            self.hold(False, text)
        self.faults.is_quiet = False

    def _problems(self) -> Iterator[str]:
        ready = [one for one in self.replicas if one.is_ready]
        if len(ready) != 1:
            yield f"{len(ready)} replicas decide"
        states = self.server.objects[f"apis/{GROUP}/{VERSION}/{PLURALS[STATE]}"]
        for name, machine in self.machines.items():
            if not machine.is_done:
                yield f"the kubelet of {name} has not seen all"
            seen = EngineObserver(name).observe(machine.kubelet).state
            if name not in states or _without_sequence(state_of(states[name])) != _without_sequence(seen):
                yield f"what {name} published is not what it is"
        for replica in self.replicas:
            yield from self._misjudged(replica)
            yield from self._unnamed(replica)
        for pod in self._stored(lambda one: not one["spec"].get("nodeName")):
            if fits := [one.name for one in self.machines.values() if one.would_admit(pod)]:
                yield f"waits for nothing: {pod['metadata']['name']}, which {fits} would admit"

    def _misjudged(self, replica: Replica) -> Iterator[str]:
        """Yield what an extender takes for possible that cannot be, and that it does not know what is."""
        extender = replica.extender
        assert extender is not None
        counts = extender.view.counts()
        if counts["unreadable"] or counts["unjudged"]:
            yield f"unjudged: {replica.process.name} {counts} {replica.told[-1:]}"
        if extender.failing.is_set() or any(one.defect.is_set() for one in extender.followers):
            yield f"failing: {replica.process.name}, {replica.told[-1:]}"
        for name, machine in self.machines.items():
            views = [one.key for one in extender.view.outlook(name).views]
            real = view_key(digest_of(KINDS[machine.kind]), machine.kubelet.node)
            if real not in views:
                yield f"not known: what {name} is by now, among {len(views)} ways that {replica.process.name} follows"
            elif len(views) > 1 and not counts["unconfirmed"]:
                yield f"not settled: {replica.process.name} takes {len(views)} ways of {name} for possible"

    def _unnamed(self, replica: Replica) -> Iterator[str]:
        """Yield reasons of broken promises of a living process that it has not counted."""
        extender = replica.extender
        assert extender is not None
        named = Counter[str]()
        for metric in extender.metrics.refusals.collect():
            named.update(
                {one.labels["reason"]: int(one.value) for one in metric.samples if one.name.endswith("_total")}
            )
        broken = Counter(
            machine.refused[uid]
            for machine in self.machines.values()
            for uid in machine.refused
            if uid in self.promises and self.promises[uid].program is replica.process.program
        )
        if named != broken:
            yield f"broken promises are not named: {dict(broken)} by {replica.process.name}, which counts {dict(named)}"

    def end(self) -> None:
        """End all pods, then everything: nothing stays behind."""
        self.settle()
        for pod in [*self.server.objects[PODS].values()]:
            self._delete(pod)
        self.settle()
        self.hold(not self.server.objects[PODS], f"pods are left: {[*self.server.objects[PODS]]}")
        for replica in self.replicas:
            extender = replica.extender
            assert extender is not None
            extender.view.prune()
            counts = extender.view.counts()
            if counts["pods"]:
                self.faults.is_quiet = True
                self.threads.sleep(_SETTLING)
                counts = extender.view.counts()
            self.hold(not counts["pods"], f"reservations of pods that are gone: {replica.process.name} {counts}")
        for text in self._problems():
            self.hold(False, text)
        self.faults.is_quiet = True
        for one in self.processes:
            one.stop.set()
            self.hold(self.threads.wait(partial(has_ended, one), 30.0), f"{one.name} does not end")
        self.look()
        holder = self.server.objects[LEASE]["extender"]["spec"].get("holderIdentity")
        self.hold(not holder, f"the Lease is left to {str(holder).partition('_')[0]}")
        self.say("end")


def has_ended(process: Process) -> bool:
    return process.task is None or process.task.is_over


def _exclusive(pod: dict[str, Any]) -> int:
    amounts = [one["resources"]["limits"]["cpu"] for one in pod["spec"]["containers"]]
    return sum(int(one) for one in amounts if one.isdigit())


def _without_sequence(state: Any) -> tuple[object, ...]:
    return state.facts, state.files, state.pods


ClusterLife.EVENTS = {
    "run pods": (30, ClusterLife.run_pods),
    "foreign pod": (5, ClusterLife.run_foreign_pod),
    "delete pod": (16, ClusterLife.delete_pod),
    "finish pod": (12, ClusterLife.finish_pod),
    "kill extender": (5, ClusterLife.kill_extender),
    "stop extender": (3, ClusterLife.stop_extender),
    "kill publisher": (4, ClusterLife.kill_publisher),
    "pause": (5, ClusterLife.pause),
    "cut watches": (3, ClusterLife.cut_watches),
    "server away": (3, ClusterLife.be_away),
    "watches lag": (6, ClusterLife.lag),
    "lease barred": (5, ClusterLife.bar_lease),
    "slow kubelet": (6, ClusterLife.slow_down),
    "restart kubelet": (4, ClusterLife.restart_kubelet),
    "clock jump": (2, ClusterLife.jump),
    "rest": (14, ClusterLife.rest),
}
