"""Whatever goes offline and comes back: nobody is given an offline CPU, nobody one of another, and all is as it was."""

from __future__ import annotations

import pickle
from dataclasses import replace

from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.laws.laws_whole_node import cpu_breaks
from tests.laws.strategies_resizing import (
    EXTENDED,
    requests_for,
    resizable_pods,
    resizing_configurations,
    roomy_machines,
)

from mooring.answers.base.plan_document import standing_fields
from mooring.documents.facts import fact_members
from mooring.engine.core.bits import NO_CPUS, CPUMask, list_text, members
from mooring.engine.core.config import ANYWHERE, CPU_HOTPLUG, NEVER, REPLACE, SAME_NODES, MooringConfig
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.machineinfo import MachineInfo
from mooring.engine.node import Node
from mooring.engine.node.hotplug import CPUsChanged, came_online, remembered, replanned, went_offline
from mooring.engine.node.resizing import reconcile, resize
from mooring.engine.node.settings import Settings, build_settings

Place = tuple[str, str]
"""Pod uid and container; the partition of a pod is under the empty name."""


def sets_of(node: Node) -> dict[Place, CPUMask]:
    held = {(uid, name): cpus for uid, mine in node.cpu.assignments.items() for name, cpus in mine.items()}
    return held | {(uid, ""): cpus for uid, cpus in node.cpu.pods.items()}


def some_of(data: st.DataObject, cpus: int, most: int = 6) -> int:
    some = st.lists(st.sampled_from(list(members(cpus))), min_size=1, max_size=most, unique=True)
    ids = data.draw(some) if cpus else []
    return sum(1 << cpu for cpu in ids)


class Story:
    """Pods come, go and are resized, while CPUs go offline and come back."""

    def __init__(self, data: st.DataObject, info: MachineInfo, rule: str) -> None:
        self.rule = rule
        config = data.draw(resizing_configurations(info))
        if data.draw(st.booleans()):
            config = replace(config, feature_gates={**config.feature_gates, "PodLevelResourceManagers": True})
        mooring = MooringConfig(EXTENDED.extensions | {CPU_HOTPLUG}, EXTENDED.fixed_defects, rule)
        understood = build_settings(config, mooring, info)
        assert isinstance(understood, Settings), understood
        node = Node.start(understood)
        assert isinstance(node, Node)
        self.node, self.count = node, 0
        self.own: dict[Place, int] = {}
        """What each container has when everything is online, as far as that is known."""

    @property
    def everything(self) -> int:
        topology = self.node.settings.topology
        assert topology is not None
        return topology.all_cpus

    def look(self, before: Node) -> None:
        """State the laws that hold after whatever happened."""
        node, state = self.node, self.node.cpu
        assert list(cpu_breaks(node)) == []
        had, has = sets_of(before), sets_of(node)
        kept_before = {uid: set(pairs) for uid, pairs in before.cpu.displaced.items()}
        for (uid, name), cpus in has.items():
            new = cpus & ~had.get((uid, name), 0)
            bubble = has.get((uid, ""), 0) | had.get((uid, ""), 0)
            assert not new & state.offline & ~bubble, f"{uid}/{name} is given the offline {list_text(new)}"
            for other, kept in kept_before.items():
                if other != uid and other in node.active and other in state.displaced:
                    assert not kept & set(members(new)), f"{uid}/{name} is given what {other} gets back"
        broken = standing_fields(node).get("broken", {})
        told = {(uid, name): CPUSet.parse(one.lost).mask for uid, sets in broken.items() for name, one in sets.items()}
        assert told == {place: cpus & state.offline for place, cpus in has.items() if cpus & state.offline}
        lost_ones = [lost for pairs in state.displaced.values() for lost in pairs]
        assert len(lost_ones) == len(set(lost_ones))
        for uid, pairs in state.displaced.items():
            held = 0
            for (owner, _), cpus in has.items():
                held |= cpus if owner == uid else 0
            for lost, stand_in in pairs.items():
                assert state.default >> lost & 1
                assert held >> stand_in & 1

    def admit(self, data: st.DataObject) -> None:
        self.count += 1
        before = self.node
        self.node, decision = before.admit(data.draw(resizable_pods(f"p{self.count}")))
        assert decision.endless is None
        if decision.admitted:
            mine = {place: cpus for place, cpus in sets_of(self.node).items() if place[0] == f"p{self.count}"}
            self.own |= mine
        self.look(before)

    def remove(self, data: st.DataObject) -> None:
        if not self.node.active:
            return
        uid, before = data.draw(st.sampled_from(sorted(self.node.active))), self.node
        self.node, _ = before.remove(uid)
        assert uid not in self.node.cpu.displaced
        self.own = {place: cpus for place, cpus in self.own.items() if place[0] != uid}
        self.look(before)
        if data.draw(st.booleans()):
            self._changes(*replanned(self.node))

    def resize_one(self, data: st.DataObject) -> None:
        if not self.node.active:
            return
        uid, before = data.draw(st.sampled_from(sorted(self.node.active))), self.node
        self.node, answer = resize(before, data.draw(requests_for(before.active[uid])))
        if answer.accepted:
            self._forget(uid)
        self.look(before)

    def time_passes(self) -> None:
        before = self.node
        for uid in before.cpu.pre_assignments:
            self._forget(uid)
        self.node = reconcile(before.at(before.moment.plus(10**10)))
        self.look(before)

    def _forget(self, uid: str) -> None:
        known = not self.node.cpu.offline and not self.node.cpu.displaced and not self.node.cpu.pre_assignments.get(uid)
        for place, cpus in sets_of(self.node).items():
            if place[0] == uid:
                self.own.pop(place, None)
                if known:
                    self.own[place] = cpus

    def offline(self, data: st.DataObject) -> None:
        before, held = self.node, self.node.cpu.held
        # Mostly CPUs that somebody has, and few enough of them that others can stand in.
        cpus = some_of(data, held, 2) if held and data.draw(st.integers(0, 3)) else some_of(data, self.everything)
        if self.everything & ~cpus & ~before.cpu.offline:
            after, change = went_offline(before, cpus)
            assert after.cpu.offline == before.cpu.offline | cpus
            self._changes(after, change)

    def online(self, data: st.DataObject) -> None:
        before, cpus = self.node, some_of(data, self.node.cpu.offline)
        after, change = came_online(before, cpus)
        assert after.cpu.offline == before.cpu.offline & ~cpus
        self._changes(after, change)

    def _changes(self, after: Node, change: CPUsChanged) -> None:
        before, self.node = self.node, after
        assert change.offline == after.cpu.offline
        facts = [fact_members(one) for one in change.broken]
        event(f"broken: {any('lost' in one for one in facts)}")
        event(f"replaced: {any('after' in one for one in facts)}")
        event(f"restored: {any(one.before != one.after for one in change.restored)}")
        had, has = sets_of(before), sets_of(after)
        assert {place: cpus.bit_count() for place, cpus in had.items()} == {
            place: cpus.bit_count() for place, cpus in has.items()
        }
        changed = {(one.pod, one.container) for one in change.broken}
        changed |= {(one.pod, one.container) for one in change.restored}
        assert {place for place in has if has[place] != had[place]} <= changed
        assert after.cpu.default.bit_count() == before.cpu.default.bit_count()
        if before.cpu.default & ~before.cpu.offline & ~after.cpu.offline:
            assert after.cpu.default & ~after.cpu.offline, "the shared pool is emptied by stand-ins"
        for fact in facts:
            place = fact["pod"], fact["container"]
            if "after" in fact:
                assert has[place] == CPUSet.parse(fact["after"]).mask
                self._stands_in_rightly(*place, has[place] & ~had[place])
            else:
                assert fact["why"]
        for back in change.restored:
            assert has[back.pod, back.container] == back.after
            assert not back.after & after.cpu.offline
        self.look(before)

    def _stands_in_rightly(self, uid: str, name: str, stand_ins: int) -> None:
        policy = self.node.settings.cpu
        assert policy is not None
        assert stand_ins
        assert self.rule != NEVER
        if policy.rules.whole_cores and (uid, "") not in sets_of(self.node):
            assert policy.topology.core_siblings(CPUMask(stand_ins)) == stand_ins
        if self.rule == SAME_NODES and (uid, name) in self.own:
            hint = self.node.stored_hints.get(uid, {}).get(name)
            nodes = hint.mask if hint is not None and hint.mask is not None else None
            near = policy.topology.cpus_in_numa(nodes) if nodes is not None else 0
            for cpus in policy.topology.numa.values():
                near |= cpus if cpus & self.own[uid, name] else 0
            assert not stand_ins & ~near

    def restart(self) -> None:
        before = self.node
        if not before.cpu.default:
            return
        found = before.restart()
        assert isinstance(found, tuple), found
        self.node, readmission = found
        if readmission.refused:
            event("a running pod is refused")
            self.node = before
            return
        assert (self.node.cpu.offline, self.node.cpu.displaced) == (before.cpu.offline, before.cpu.displaced)
        bare = replace(self.node.cpu, offline=NO_CPUS, displaced={})
        forgetful = replace(self.node, providers=replace(self.node.providers, cpu=bare))
        assert remembered(forgetful, before.cpu.offline, before.cpu.displaced) == self.node
        for uid in before.cpu.pre_assignments:
            self._forget(uid)

    def all_come_back(self) -> None:
        self._changes(*came_online(self.node, self.everything))
        assert not self.node.cpu.displaced
        assert not self.node.cpu.offline
        has = sets_of(self.node)
        for place, cpus in self.own.items():
            assert has[place] == cpus, f"{place} is not what it was"


@settings(deadline=None)
@given(st.data(), roomy_machines(), st.sampled_from(REPLACE))
def test_nobody_is_given_an_offline_cpu_and_all_is_as_it_was_when_all_are_back(
    data: st.DataObject, info: MachineInfo, rule: str
) -> None:
    story = Story(data, info, rule)
    for _ in range(data.draw(st.integers(1, 3))):
        story.admit(data)
    for _ in range(data.draw(st.integers(1, 12))):
        frozen, before = pickle.dumps(story.node), story.node
        match data.draw(st.integers(0, 11)):
            case 0 | 1:
                story.admit(data)
            case 2:
                story.remove(data)
            case 3:
                story.resize_one(data)
            case 4:
                story.time_passes()
            case 5:
                story.restart()
            case 6 | 7 | 8:
                story.offline(data)
            case _:
                story.online(data)
        assert pickle.dumps(before) == frozen
    story.all_come_back()


@settings(deadline=None)
@given(st.data(), roomy_machines(), st.sampled_from((SAME_NODES, ANYWHERE)))
def test_the_extension_changes_nothing_while_all_cpus_are_online(
    data: st.DataObject, info: MachineInfo, rule: str
) -> None:
    config = data.draw(resizing_configurations(info))
    extended = replace(EXTENDED, extensions=EXTENDED.extensions | {CPU_HOTPLUG}, replace_offline=rule)
    plain, other = build_settings(config, EXTENDED, info), build_settings(config, extended, info)
    assert isinstance(plain, Settings)
    assert isinstance(other, Settings)
    one, two = Node.start(plain), Node.start(other)
    assert isinstance(one, Node)
    assert isinstance(two, Node)
    for number in range(data.draw(st.integers(1, 5))):
        pod = data.draw(resizable_pods(f"p{number}"))
        one, first = one.admit(pod)
        two, second = two.admit(pod)
        assert (first, one.providers) == (second, two.providers)
        if number:
            one, _ = one.remove(f"p{number - 1}")
            two, _ = two.remove(f"p{number - 1}")
            two, _ = came_online(went_offline(two, some_of(data, one.cpu.default))[0], info_cpus(two))
            assert one.providers == two.providers


def info_cpus(node: Node) -> int:
    topology = node.settings.topology
    assert topology is not None
    return topology.all_cpus
