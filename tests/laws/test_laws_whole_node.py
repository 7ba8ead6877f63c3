"""CPUs, memory, huge pages, devices and whole pods together keep the laws, whatever happens to the node.

With every defect fixed a law breaks only where v1.37.1 is wrong in a way that has no name yet
(:func:`laws_whole_node.weaknesses`): each further break of a node with the defects has its named one.
"""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace

from hypothesis import event, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.laws.laws_whole_node import (
    CONTESTED,
    DRAINED,
    ENDED_INIT,
    FORGOTTEN,
    UNPLACED,
    UNTAKEN,
    WIDER,
    all_breaks,
    weaknesses,
)
from tests.laws.strategies_whole_node import (
    MIB,
    NIC,
    Hardware,
    configurations,
    hardware,
    other_configurations,
    pods,
    quantities,
)
from tests.node.nodes import machine
from tests.node.podlevel_nodes import fresh, managed, whole

from mooring.engine.core.config import FIXABLE_DEFECTS, KubeletConfig, MooringConfig
from mooring.engine.core.decision import StartRefusal
from mooring.engine.core.pod import Container, Pod, QoS
from mooring.engine.devicemanager.state import Device
from mooring.engine.node import Node
from mooring.engine.node.settings import Settings, build_settings

LAST = Pod("last", "last", containers=(Container("c"),))
"""Asks for nothing; with it everybody looks for stale state."""


def understood(
    hard: Hardware, config: KubeletConfig, fixed: frozenset[str], extensions: frozenset[str] = frozenset()
) -> Settings:
    found = build_settings(config, MooringConfig(extensions, fixed), hard.info)
    assert isinstance(found, Settings), found
    return found


def started(
    hard: Hardware, config: KubeletConfig, fixed: frozenset[str], extensions: frozenset[str] = frozenset()
) -> Node:
    node = Node.start(understood(hard, config, fixed, extensions))
    assert isinstance(node, Node), node
    return node.with_devices(hard.devices)


def emptied(node: Node) -> Node:
    for uid in list(node.active):
        node, _ = node.remove(uid)
    return node.decide(LAST)[0].remove(LAST.uid)[0]


class WholeNode(RuleBasedStateMachine):
    """Pods come and go, their containers start, the kubelet restarts with the same or another configuration."""

    node: Node
    fresh: Node
    hard: Hardware
    extensions: frozenset[str] = frozenset()

    @initialize(hard=hardware(), config=configurations())
    def start(self, hard: Hardware, config: KubeletConfig) -> None:
        self.hard, self.fresh = hard, started(hard, config, FIXABLE_DEFECTS, self.extensions)
        self.node, self.count = self.fresh, 0
        self.waiting: set[str] = set()
        self.contested = False

    def note(self) -> None:
        self.contested = self.contested or CONTESTED in weaknesses(self.node)

    @rule(data=st.data())
    def admit(self, data: st.DataObject) -> None:
        self.count += 1
        pod = data.draw(pods(f"p{self.count}"))
        before, frozen = self.node, pickle.dumps(self.node)
        self.node, decision = before.decide(pod)
        assert decision.endless is None
        assert pickle.dumps(before) == frozen
        assert copy.deepcopy(before).decide(pod) == (self.node, decision)
        assert replace(before, swept=None).decide(pod) == (self.node, decision)
        assert replace(self.node, swept=None).settled() == self.node.settled()
        assert decision.admitted == (pod.uid in self.node.active)
        if decision.admitted:
            self.waiting.add(pod.uid)
        self.note()

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def containers_start(self, data: st.DataObject) -> None:
        """Init containers end when the containers after them are created, and give their memory back."""
        uid = data.draw(st.sampled_from(sorted(self.waiting)))
        self.waiting.discard(uid)
        before = self.node
        self.node = before.start_containers(uid)
        assert (self.node.cpu, self.node.providers.devices) == (before.cpu, before.providers.devices)
        self.note()

    @precondition(lambda self: self.node.active)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(self.node.active)))
        self.waiting.discard(uid)
        before, facts = self.node, list[object]()
        self.node, removal = before.remove(uid)
        assert before.remove(uid, facts.append) == (self.node, removal)
        few = replace(before, active={known: pod for known, pod in before.active.items() if known < uid})
        assert few.settled() == replace(few, swept=None).settled(facts.append)
        assert uid not in {**self.node.cpu.assignments, **self.node.cpu.pods}
        assert uid not in {**self.node.memory.assignments, **self.node.memory.pods}
        assert removal.shared_pool == self.node.shared_pool

    @precondition(lambda self: self.node.active)
    @rule(data=st.data())
    def come_back(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(self.node.active)))
        pod = self.node.active[uid]
        node, _ = self.node.remove(uid)
        node = node.settled()
        self.node, decision = node.admit(pod)
        assert replace(node, swept=None).admit(pod) == (self.node, decision)
        self.waiting.discard(uid)
        self.note()
        event(f"comes back: {decision.admitted}")

    @rule()
    def restart(self) -> None:
        before, known = self.node, weaknesses(self.node)
        found = before.restart()
        if isinstance(found, StartRefusal):
            assert DRAINED in known or self.contested, found.message
            event(f"refused: {DRAINED if DRAINED in known else CONTESTED}")
            return
        self.node, readmission = found
        self.waiting &= set(self.node.active)
        if readmission.refused:
            assert known & {ENDED_INIT, UNPLACED, UNTAKEN, WIDER}, readmission.refused[0].message
            event("a running pod is refused")
        elif ENDED_INIT not in known:
            assert (self.node.cpu, self.node.memory) == (before.cpu, before.memory)
            assert self.node.providers.devices == before.providers.devices
            assert [*self.node.active] == [*before.active]
        self.note()

    @rule(data=st.data())
    def restart_with_another_configuration(self, data: st.DataObject) -> None:
        before = self.node
        other = understood(
            self.hard,
            data.draw(other_configurations(before.settings.config)),
            before.settings.fixed_defects,
            self.extensions,
        )
        found = before.restart(other)
        if isinstance(found, StartRefusal):
            known = weaknesses(before)
            loses_pods = before.settings.pod_level.managers and not other.pod_level.managers
            forgotten = loses_pods and bool(before.cpu.pods or before.memory.pods)
            assert forgotten or DRAINED in known or self.contested, found.message
            event(f"refused: {FORGOTTEN if forgotten else 'otherwise'}")
            return
        self.node = found[0]
        self.waiting &= set(self.node.active)
        self.note()

    @invariant()
    def laws_hold(self) -> None:
        broken = [text for text in all_breaks(self.node) if not (self.contested and "are charged for" in text)]
        assert broken == []

    def teardown(self) -> None:
        if not hasattr(self, "fresh"):
            return
        left = emptied(self.node)
        assert left.cpu == replace(self.fresh.cpu, baselines=left.cpu.baselines)
        assert not any(left.cpu.baselines.values())
        assert not left.providers.devices.held
        assert (left.memory.assignments, left.memory.pods) == ({}, {})
        if not self.contested:
            assert left.memory.nodes == self.fresh.memory.nodes


WholeNode.TestCase.settings = settings(max_examples=60, stateful_step_count=20)
TestWholeNode = WholeNode.TestCase


# With the defects of v1.37.1.


def test_a_restart_rejects_a_pod_whose_devices_another_got_before_its_containers_were_created() -> None:
    """Source: kubelet v1.37.1, topologymanager scope_pod.go (allocatePod asks CPU and memory manager only)."""
    amounts, nics = quantities({"cpu": 2, "memory": 64 * MIB}), quantities({NIC: 2})
    waiting = whole("2", Container("a", requests=nics, limits=nics), memory="64Mi", uid="waiting")
    plain = Container("a", requests={**amounts, **nics}, limits={**amounts, **nics})
    node = fresh(managed("single-numa-node", memory=True), machine(2, 4, threads=1), *FIXABLE_DEFECTS)
    node = node.with_devices({NIC: (Device("nic0", (1,)), Device("nic1", (1,)))})
    for pod in (waiting, Pod("other", "other", containers=(plain,), qos=QoS.GUARANTEED)):
        node, decision = node.admit(pod)
        assert decision.admitted
    assert UNTAKEN in weaknesses(node)
    again = node.restart()
    assert not isinstance(again, StartRefusal)
    assert [one.uid for one in again[1].refused] == ["waiting"]


@given(hard=hardware(), config=configurations(), data=st.data())
def test_a_container_that_an_empty_node_refuses_is_refused_by_one_with_pods(
    hard: Hardware, config: KubeletConfig, data: st.DataObject
) -> None:
    node = empty = started(hard, config, frozenset())
    for number in range(data.draw(st.integers(1, 4))):
        node, _ = node.decide(data.draw(pods(f"p{number}")))
    if data.draw(st.booleans()) and node.active:
        node, _ = node.remove(data.draw(st.sampled_from(sorted(node.active))))
    asked = data.draw(pods("asked"))
    asked = replace(asked, containers=asked.containers[-1:])
    assert empty.decide(asked)[1].admitted or not node.decide(asked)[1].admitted
