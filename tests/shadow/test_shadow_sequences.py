"""Long sequences of events on a kubelet that is the engine: a shadow differs in no decision.

Pods come, end and leave things behind, some with memory on several NUMA nodes, with init containers that take their
time or with devices of which the kubelet draws. The kubelet starts again with its state files, without one or both of
them, or with another configuration; pods of one second are asked about in any order then. New pods can wait
for it: those that it refuses keep what they were given until it has asked about all. Observations are rare: much
happens between two of them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.plans import started_kubelet
from tests.shadow.observing import STATIC, Node, container, said
from tests.shadow.test_shadow_judging import unlike

from mooring.engine.core.config import KubeletConfig, ReservedMemory
from mooring.engine.devicemanager.state import Device, DeviceState
from mooring.engine.kubelet.start import NotStarted, restart_kubelet
from mooring.inputs.machines.compact import parse_compact
from mooring.monitoring.shadow.judgement import Agreement, Judgement
from mooring.monitoring.shadow.unseen import ObservedNode

MACHINE = parse_compact("sockets=2 numa=4 cores=8 threads=2 memory=16Gi").info
GPU = "vendor.example/gpu"
DEVICES = DeviceState({GPU: tuple(Device(f"g{number}", (number // 2,)) for number in range(8))})
BASE = replace(
    STATIC,
    memory_manager_policy="Static",
    reserved_memory=(ReservedMemory(0, {"memory": "100Mi"}),),
    eviction_hard={"memory.available": "100Mi"},
)
CONFIGURATIONS = (
    replace(BASE, topology_manager_policy="best-effort"),
    replace(BASE, topology_manager_policy="restricted", topology_manager_scope="pod"),
    replace(BASE, topology_manager_policy="single-numa-node"),
    replace(
        BASE,
        topology_manager_policy="best-effort",
        cpu_manager_policy_options={"full-pcpus-only": "true", "distribute-cpus-across-numa": "true"},
    ),
    replace(BASE, topology_manager_policy="single-numa-node", memory_manager_policy="None", reserved_memory=()),
)
STEPS = 60


@dataclass
class Sequence:
    """Random events on one node."""

    drawn: random.Random
    claimed: str = ""
    """Topology policy that the kubelet is said to have; empty for its own."""
    watched: Node = field(init=False)
    ran: set[str] = field(default_factory=set)
    """Uids of pods that ran at some time."""
    second: int = 0
    midway: list[ObservedNode] = field(default_factory=list)
    """What was seen while a kubelet that had started was asked about its first list."""

    def __post_init__(self) -> None:
        started = started_kubelet(MACHINE, self.drawn.choice(CONFIGURATIONS))
        self.watched = Node(started.with_devices(DEVICES))

    def judged(self, steps: int) -> Iterator[Judgement]:
        """Let events happen, and judge every few of them."""
        for looks in self.windows(steps):
            yield from said(*looks)

    def windows(self, steps: int) -> Iterator[list[ObservedNode]]:
        """Let events happen, and give the observations that are judged together; each begins where one ended."""
        looks = [self.observed()]
        for look in self.looks(steps):
            looks.append(look)
            # A shadow waits until pods that were listed are decided about.
            if (len(looks) > 4 or self.drawn.random() < 0.2) and look not in self.midway:
                yield looks
                looks = [look]

    def looks(self, steps: int) -> Iterator[ObservedNode]:
        """Let events happen, and observe some of what they bring about."""
        for _ in range(steps):
            yield from self._happened()
            self.ran |= {uid for uid in self.watched.objects if self._runs(uid)}
            if self.drawn.random() < 0.6:
                yield self.observed()

    def observed(self) -> ObservedNode:
        """Return what is seen; the record of devices names pods that are gone."""
        seen = self.watched.observed()
        if self.claimed:
            config = replace(seen.facts.config, topology_manager_policy=self.claimed)
            seen = replace(seen, facts=replace(seen.facts, config=config))
        held = seen.state.devices.held
        devices = replace(seen.state.devices, held={uid: held[uid] for uid in held if uid in seen.listed}, drawn={})
        left = {uid: held[uid] for uid in held if uid not in seen.listed}
        return replace(seen, state=replace(seen.state, devices=devices), left=left)

    def _happened(self) -> list[ObservedNode]:
        kind, watched = self.drawn.random(), self.watched
        there = [uid for uid in watched.kubelet.node.active if self._runs(uid)]
        if kind < 0.65:
            self._admit()
        elif kind < 0.9 and there:
            end = self.drawn.choice((watched.end, lambda uid: watched.end(uid, released=False), watched.leave))
            end(self.drawn.choice(there))
        elif kind < 0.95 and there:
            watched.start(self.drawn.choice(there))
        elif kind >= 0.95:
            return [self.observed(), *self._restarted(), self.observed()]
        return []

    def _admit(self, *, is_listed: bool = False) -> None:
        drawn, watched = self.drawn, self.watched
        self.second += not is_listed and drawn.random() < 0.3
        devices = watched.kubelet.node.providers.devices
        uid = f"pod-{len(watched.objects)}"
        containers = [self._container(f"c{number}") for number in range(drawn.choice((1, 1, 2, 3)))]
        before = [container("before", "2", "64Mi")] if drawn.random() < 0.2 else []
        names = [one["name"] for one in (*before, *containers)]
        taken = {name: {GPU: frozenset(drawn.sample([one.id for one in DEVICES.devices[GPU]], 4))} for name in names}
        watched.kubelet = watched.kubelet.with_devices(replace(devices, drawn={uid: taken}))
        starts = drawn.random() < 0.6
        watched.admit_pod(uid, before, containers, created=self.second, starts=starts, is_listed=is_listed)

    def _container(self, name: str) -> dict[str, Any]:
        drawn = self.drawn
        cpu = drawn.choice(("1", "2", "2", "3", "4", "8", "16", "20", "1500m", "500m"))
        found = container(name, cpu, drawn.choice(("64Mi", "512Mi", "3Gi", "5Gi")))
        if drawn.random() < 0.2:
            found["resources"]["limits"][GPU] = drawn.choice(("1", "1", "2", "3"))
        return found

    def _runs(self, uid: str) -> bool:
        return bool(self.watched.objects[uid]["status"]["phase"] == "Running")

    def _restarted(self) -> list[ObservedNode]:
        """Start the kubelet again, and return what is seen before it has asked about all of its first list."""
        drawn, watched = self.drawn, self.watched
        removed = drawn.choice(((), ("cpu", "memory"), ("cpu",), ("memory",)))
        config: KubeletConfig | None = drawn.choice((None, *CONFIGURATIONS)) if len(removed) == 2 else None
        active = watched.kubelet.node.active
        uids = [uid for uid in active if self._runs(uid)]
        drawn.shuffle(uids)
        uids.sort(key=lambda uid: watched.objects[uid]["metadata"]["creationTimestamp"])
        node = replace(watched.kubelet.node, active={uid: active[uid] for uid in uids})
        kubelet = replace(watched.kubelet, node=node)
        kubelet = replace(kubelet, cpu_file=None) if "cpu" in removed else kubelet
        watched.kubelet = replace(kubelet, memory_file=None) if "memory" in removed else kubelet
        if isinstance(restart_kubelet(watched.kubelet, config), NotStarted):
            # What an operator does then.
            watched.kubelet = replace(kubelet, cpu_file=None, memory_file=None)
        watched.restart(config)
        for uid in uids:
            if not self._runs(uid) and drawn.random() < 0.5:
                # Its refusal is told when more has happened.
                watched.tell_later(uid)
                watched.objects[uid]["status"] = {"phase": "Running", "qosClass": "Guaranteed"}
        self.second += 1
        looks = []
        for _ in range(drawn.choice((0, 0, 2, 4, 6))):
            if drawn.random() < 0.2:
                looks.append(self.observed())
            self._admit(is_listed=True)
        watched.tell()
        # The API server does not tell of pods of one second in the order in which the kubelet is asked about them.
        told = list(watched.objects.items())
        drawn.shuffle(told)
        watched.objects = dict(told)
        self.midway = looks
        return looks


def sequence(seed: int, claimed: str = "") -> Sequence:
    return Sequence(random.Random(seed), claimed)  # noqa: S311 - no secret


@pytest.mark.long
@settings(max_examples=7, suppress_health_check=[HealthCheck.too_slow])
@example(75)  # a refused pod of a first list has devices that the next one wants
@example(1030)  # an observation in the middle of a first list fits no order
@example(1062)  # a refused pod that nothing was known of before the start explains something before it, too
@example(121)  # devices of a pod that came and went, and a refusal that only another order explains
@example(195)  # pods ended before the start, and their requests do not count, though the files have what they held
@example(421)  # many observations until all of a first list has been asked about
@example(498)  # what a refused pod left behind tells when it was asked about
@example(590)  # pods of a first list came and went, and what one left behind shows that they were asked about
@given(st.integers(0, 2**32))
def test_a_shadow_differs_in_no_decision_of_a_long_sequence(seed: int) -> None:
    judged = list(sequence(seed).judged(STEPS))
    assert [one.line() for one in judged if one.verdict is Agreement.DIFFERS] == []


@pytest.mark.long
@settings(max_examples=5, suppress_health_check=[HealthCheck.too_slow])
@example(136)  # of what a refused pod left behind nothing else is asked for again
@example(141)  # a pod that the node resources check refused left something behind, and goes by a step
@given(st.integers(0, 2**32))
def test_what_agrees_in_a_long_sequence_replays(seed: int) -> None:
    assert [found for looks in sequence(seed).windows(STEPS) for found in unlike(*looks)] == []


def test_it_can_tell_nearly_always_and_then_differs_in_no_decision() -> None:
    judged = [one for seed in range(8) for one in sequence(seed).judged(STEPS)]
    assert [one.line() for one in judged if one.verdict is Agreement.DIFFERS] == []
    unknown = [one.line() for one in judged if one.verdict is Agreement.UNKNOWN]
    assert len(judged) > 300
    assert len(unknown) <= 0.01 * len(judged), unknown


def test_a_kubelet_with_another_policy_than_it_says_differs_in_long_sequences() -> None:
    assert any(one.verdict is Agreement.DIFFERS for seed in range(4) for one in sequence(seed, "none").judged(STEPS))


@pytest.mark.long
def test_the_sequences_have_what_makes_orders_matter() -> None:
    causes = {"groups": 0, "devices": 0, "refused again": 0, "left behind": 0, "midway": 0}
    for seed in range(24):
        if all(causes.values()):
            break
        found = sequence(seed)
        for look in found.looks(STEPS):
            causes["groups"] += '"cells":[0,1]' in (look.state.files.memory or "")
            causes["devices"] += bool(look.state.devices.held)
            causes["refused again"] += any(one.reason and uid in found.ran for uid, one in look.pods.items())
            causes["left behind"] += bool(look.left)
            causes["midway"] += look in found.midway
    assert all(causes.values()), causes
