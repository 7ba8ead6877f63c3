"""Whatever happens to pods that are resized: nobody loses a CPU early, nobody has one of another, everything settles.

What has to come of a request, and when CPUs may go, is written down here a second time, from resize.md sections 4 and
5, without the engine's own arithmetic of delays.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from dataclasses import dataclass, replace

from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.laws.laws_whole_node import CONTESTED, DRAINED, ENDED_INIT, WIDER, cpu_breaks, memory_breaks
from tests.laws.laws_whole_node import weaknesses as weaknesses_of_both
from tests.laws.stories import machines
from tests.laws.strategies_resizing import (
    DELAYS,
    EXTENDED,
    requests_for,
    resizable_pods,
    resizing_configurations,
    roomy_machines,
)
from tests.node.resizable import retry

from mooring.engine.core.bits import CPUMask, list_text
from mooring.engine.core.config import FIXABLE_DEFECTS, KubeletConfig, MooringConfig
from mooring.engine.core.decision import StartRefusal
from mooring.engine.core.machineinfo import MachineInfo
from mooring.engine.core.moment import SECOND, Moment
from mooring.engine.core.pod import Container, Pod, QoS
from mooring.engine.node import Node
from mooring.engine.node.resizing import reconcile, resize
from mooring.engine.node.resources import (
    DEFERRED,
    EXCLUSIVE_CPUS,
    EXCLUSIVE_MEMORY,
    STATIC_CPUS,
    STATIC_MEMORY,
    Resize,
)
from mooring.engine.node.settings import Settings, build_settings
from mooring.engine.topologymanager.merge import SINGLE_NUMA_NODE

NANOSECONDS = dict(zip(DELAYS, (0, SECOND // 2, SECOND, 5 * SECOND), strict=True))
"""The node's own delays."""

Place = tuple[str, str]
"""Pod uid and container."""


def understood(info: MachineInfo, config: KubeletConfig) -> Settings:
    found = build_settings(config, EXTENDED, info)
    assert isinstance(found, Settings), found
    return found


def wanted(pod: Pod, name: str) -> int:
    """Return how many CPUs of its own a container asks for."""
    container = next(one for one in pod.containers if one.name == name)
    cpu = container.requests["cpu"]
    whole = pod.qos is QoS.GUARANTEED and pod.resources is None and cpu.milli % 1000 == 0
    return cpu.units if whole else 0


SOCKETS = "align-by-socket takes CPUs of the hint's sockets, outside of its nodes"
"""A restart asks for all nodes of these CPUs, which are more than a strict policy may admit."""


def weaknesses(node: Node) -> set[str]:
    """Return what a node shows of that which v1.37.1 does wrong without any resize."""
    known = weaknesses_of_both(node) if node.settings.memory is not None else set()
    if not node.cpu.default:
        known.add(DRAINED)
    if node.settings.cpu is not None and node.settings.cpu.rules.align_by_socket:
        known.add(SOCKETS)
    return known


def sets_of(node: Node) -> dict[Place, int]:
    return {(uid, name): cpus for uid, held in node.cpu.assignments.items() for name, cpus in held.items()}


def pending_of(node: Node) -> dict[Place, int]:
    return {(uid, name): one.cpus for uid, held in node.cpu.pre_assignments.items() for name, one in held.items()}


@dataclass(frozen=True)
class Promise:
    """A container keeps what it has until a moment of one boot."""

    until: Moment
    is_written: bool

    def is_over(self, now: Moment) -> bool:
        return now.boot == self.until.boot and now.since_boot - self.until.since_boot >= 0


class Story:
    """Pods come, go and are resized; time passes; the kubelet and the machine restart."""

    def __init__(self, data: st.DataObject, info: MachineInfo) -> None:
        self.info = info
        self.config = data.draw(resizing_configurations(info))
        node = Node.start(understood(info, self.config))
        assert isinstance(node, Node)
        self.node = self.fresh = node
        self.count = 0
        self.first: dict[Place, int] = {}
        self.promises: dict[Place, Promise] = {}
        self.contested = False
        for _ in range(data.draw(st.integers(1, 3))):
            self.admit(data)

    # What is known from outside.

    @property
    def now(self) -> Moment:
        return self.node.moment

    def delay(self, pod: Pod) -> tuple[int, bool]:
        """Return how long a pod's containers keep what they give back, and whether a restart knows of it."""
        if pod.scale_down_grace is not None:
            return pod.scale_down_grace * SECOND, True
        return NANOSECONDS[self.config.cpu_manager_policy_options["scale-delay-time"]], False

    def note(self) -> None:
        self.contested = self.contested or CONTESTED in weaknesses(self.node)
        held = sets_of(self.node)
        self.first = {place: cpus for place, cpus in self.first.items() if place in held}
        for place, cpus in held.items():
            self.first.setdefault(place, cpus)
        self.promises = {place: one for place, one in self.promises.items() if place in held}

    # What happens.

    def admit(self, data: st.DataObject) -> None:
        self.count += 1
        before = self.node
        self.node, decision = before.admit(data.draw(resizable_pods(f"p{self.count}")))
        assert decision.endless is None
        held = sets_of(self.node)
        assert all(held[place] == cpus for place, cpus in sets_of(before).items() if place[0] in before.active)
        self.note()

    def remove(self, data: st.DataObject) -> None:
        if not self.node.active:
            return
        uid = data.draw(st.sampled_from(sorted(self.node.active)))
        self.node, _ = self.node.remove(uid)
        assert uid not in {**self.node.cpu.assignments, **self.node.cpu.pre_assignments, **self.node.cpu.baselines}
        assert uid not in self.node.waiting
        self.note()

    def resize_one(self, data: st.DataObject) -> None:
        if not self.node.active:
            return
        uid = data.draw(st.sampled_from(sorted(self.node.active)))
        pod = data.draw(requests_for(self.node.active[uid]))
        before, frozen = self.node, pickle.dumps(self.node)
        self.node, answer = resize(before, pod)
        assert pickle.dumps(before) == frozen
        self.look_at(before, self.node, pod, answer)
        self.note()

    def retry(self) -> None:
        step, expected = self.node, [one for one in self.node.waiting.values() if one.reason == DEFERRED]
        after, answers = retry(self.node)
        assert sorted(one.uid for one in answers) == sorted(one.pod.uid for one in expected)
        for told in answers:
            pod, before = step.waiting[told.uid].pod, step
            step, answer = resize(step, pod)
            assert answer == told
            self.look_at(before, step, pod, answer)
            event(f"tried again: {answer.accepted}")
        assert step == after
        self.node = after
        self.note()

    def time_passes(self, half_seconds: int, *, looks: bool) -> None:
        before = self.node
        after = before.at(before.moment.plus(half_seconds * SECOND // 2))
        self.node = reconcile(after) if looks else after
        assert replace(self.node, providers=before.providers, moment=before.moment) == before
        held, pending = sets_of(self.node), pending_of(self.node)
        for place, cpus in sets_of(before).items():
            if held[place] != cpus:
                assert self.promises.pop(place).is_over(self.now), f"{place} loses CPUs early"
                assert held[place] == pending_of(before)[place]
                assert place not in pending
                event("a release after its delay")
        if looks:
            assert not [place for place, one in self.promises.items() if one.is_over(self.now)]

    def everything_settles(self) -> None:
        self.time_passes(20, looks=True)
        assert not self.node.cpu.pre_assignments
        for (uid, name), cpus in sets_of(self.node).items():
            if uid in self.node.active:
                assert cpus.bit_count() == wanted(self.node.active[uid], name) or self.node.active[uid].is_pod_level

    def restart(self, *, other_boot: bool, delay: str | None) -> None:
        before = self.node
        if other_boot:
            before = before.at(Moment(SECOND, f"{before.moment.boot}+"))
        config = self.config
        if delay is not None:
            options = {**config.cpu_manager_policy_options, "scale-delay-time": delay}
            config = replace(config, cpu_manager_policy_options=options)
        known = weaknesses(before)
        found = before.restart(understood(self.info, config))
        if isinstance(found, StartRefusal):
            assert DRAINED in known or self.contested, found.message
            return
        self.config = config
        self.node, readmission = found
        if readmission.refused:
            assert known & {ENDED_INIT, WIDER, SOCKETS} or self.contested, readmission.refused[0].message
            event("a running pod is refused")
        held, pending = sets_of(self.node), pending_of(self.node)
        for place, cpus in sets_of(before).items():
            if place[0] not in self.node.active:
                self.promises.pop(place, None)
                continue
            promise = self.promises.get(place)
            if promise is None:
                assert held[place] == cpus
                continue
            length, is_written = self.delay(self.node.active[place[0]])
            if promise.is_written and promise.until.boot == self.now.boot:
                assert (held[place], pending[place]) == (cpus, pending_of(before)[place])
            elif length:
                self.promises[place] = Promise(self.now.plus(length), is_written)
                assert held[place] == cpus
                self.check_shrink(place, cpus, pending[place], wanted(self.node.active[place[0]], place[1]))
            else:
                del self.promises[place]
                self.check_shrink(place, cpus, held[place], wanted(self.node.active[place[0]], place[1]))
        if not readmission.refused and ENDED_INIT not in known:
            assert self.node.memory == before.memory
        self.note()

    # What has to come of a request.

    def look_at(self, before: Node, after: Node, pod: Pod, answer: Resize) -> None:
        if not answer.accepted:
            assert after == replace(before, waiting=after.waiting)
            assert pod.uid not in after.waiting or after.waiting[pod.uid].pod == pod
            event(f"refused: {answer.rejection.reason if answer.rejection else 'nothing to do'}")
            return
        assert pod.uid not in after.waiting
        assert after.active[pod.uid] == pod
        self.check_memory(before, after, pod)
        self.check_alignment(before, after, pod)
        old, new = sets_of(before), sets_of(after)
        assert {*old} == {*new}
        for place, cpus in old.items():
            if place[0] != pod.uid:
                assert new[place] == cpus
        for container in pod.containers:
            if (pod.uid, container.name) in old:
                self.check_container(before, after, pod, container)

    def check_container(self, before: Node, after: Node, pod: Pod, container: Container) -> None:
        place = pod.uid, container.name
        old, new, pending = sets_of(before)[place], sets_of(after)[place], pending_of(after)
        asked = next(one for one in before.active[pod.uid].containers if one.name == container.name)
        need = wanted(pod, container.name)
        if asked.requests["cpu"] == container.requests["cpu"] or not need:
            assert new == old
            assert after.cpu.pre_assignments.get(place[0], {}).get(place[1]) == before.cpu.pre_assignments.get(
                place[0], {}
            ).get(place[1])
            return
        if need >= old.bit_count():
            event("grows" if need > old.bit_count() else "asks for all that it has")
            assert old & ~new == 0
            assert new.bit_count() == need
            assert place not in pending
            self.promises.pop(place, None)
            return
        length, is_written = self.delay(pod)
        event("shrinks later" if length else "shrinks at once")
        self.check_shrink(place, old, pending[place] if length else new, need)
        self.promises.pop(place, None)
        if length:
            assert new == old
            self.promises[place] = Promise(self.now.plus(length), is_written)
        else:
            assert place not in pending

    def check_shrink(self, place: Place, before: int, after: int, need: int) -> None:
        assert after & ~before == 0
        assert self.first[place] & ~after == 0
        assert after.bit_count() == need
        if need == self.first[place].bit_count():
            assert after == self.first[place]

    def check_memory(self, before: Node, after: Node, pod: Pod) -> None:
        """Blocks are as large as what is asked for, on the nodes that they had and perhaps further ones."""
        for uid, held in before.memory.assignments.items():
            for name, blocks in held.items():
                now = after.memory.assignments[uid][name]
                if uid != pod.uid or now == blocks:
                    assert now == blocks
                    continue
                asked = next(one for one in pod.containers if one.name == name)
                assert [block.size for block in now] == [asked.requests[block.type].units for block in now]
                assert {*blocks[0].numa} <= {*now[0].numa}
                event("memory grows" if blocks[0].numa == now[0].numa else "memory grows onto another node")

    def check_alignment(self, before: Node, after: Node, pod: Pod) -> None:
        """What the strictest policy put on one NUMA node stays on one."""
        if before.settings.topology_policy != SINGLE_NUMA_NODE:
            return
        for scope in (
            [{one.name for one in pod.containers}]
            if before.settings.pod_scope
            else [{one.name} for one in pod.containers]
        ):
            spans = [
                self.nodes_of(cpus for name, cpus in node.cpu.assignments.get(pod.uid, {}).items() if name in scope)
                for node in (before, after)
            ]
            assert spans[0] > 1 or spans[1] <= 1
            event(f"stays on one NUMA node: {spans}")

    def nodes_of(self, sets: Iterable[int]) -> int:
        """Return how many NUMA nodes some CPUs lie on."""
        topology, cpus = self.node.settings.topology, 0
        assert topology is not None
        for mask in sets:
            cpus |= mask
        return sum(1 for mask in topology.numa.values() if mask & cpus)

    # What always holds.

    def nothing_is_shared_or_lost(self) -> None:
        assert list(cpu_breaks(self.node)) == []
        if self.node.settings.memory is not None:
            assert [
                text for text in memory_breaks(self.node) if not (self.contested and "are charged for" in text)
            ] == []

    def first_cpus_stay(self) -> None:
        pending = pending_of(self.node)
        for place, cpus in sets_of(self.node).items():
            first = self.first[place]
            assert first & ~cpus == 0, f"{place} lost {list_text(first & ~cpus)}"
            assert self.node.cpu.baselines[place[0]][place[1]] == first or self.node.active[place[0]].is_pod_level
            if place in pending:
                assert first & ~pending[place] == 0
                assert pending[place] & ~cpus == 0
        assert {*pending} == {*self.promises}

    def whole_cores_stay_whole(self) -> None:
        policy = self.node.settings.cpu
        assert policy is not None
        cores = policy.topology.cores.values()
        is_even = len({mask.bit_count() for mask in cores}) == 1 and policy.reserved == policy.reserved_cores
        if policy.rules.whole_cores and is_even:
            for cpus in [*sets_of(self.node).values(), *pending_of(self.node).values()]:
                assert policy.topology.core_siblings(CPUMask(cpus)) == cpus

    def laws_hold(self) -> None:
        self.nothing_is_shared_or_lost()
        self.first_cpus_stay()
        self.whole_cores_stay_whole()

    def ends(self) -> None:
        for uid in list(self.node.active):
            self.node, _ = self.node.remove(uid)
        left = self.node.settled()
        assert left.cpu == replace(self.fresh.cpu, baselines={}, pre_assignments={})
        if not self.contested:
            assert left.memory == self.fresh.memory


STEPS = ("resize",) * 10 + ("time",) * 4 + ("restart", "restart", "admit", "admit", "remove", "retry", "settle")
HALF_SECONDS = st.sampled_from([0, 1, 1, 2, 3, 6, 10])


@settings(max_examples=40)
@given(st.data(), st.one_of(roomy_machines(), roomy_machines(), machines()))
def test_whatever_happens_to_resized_pods_the_laws_hold(data: st.DataObject, info: MachineInfo) -> None:
    story = Story(data, info)
    story.laws_hold()
    for step in data.draw(st.lists(st.sampled_from(STEPS), min_size=8, max_size=24)):
        if step == "resize":
            story.resize_one(data)
        elif step == "time":
            story.time_passes(data.draw(HALF_SECONDS), looks=data.draw(st.booleans()))
        elif step == "restart":
            story.restart(other_boot=data.draw(st.booleans()), delay=data.draw(st.sampled_from([None, None, *DELAYS])))
        elif step == "admit":
            story.admit(data)
        elif step == "remove":
            story.remove(data)
        elif step == "retry":
            story.retry()
        else:
            story.everything_settles()
        story.laws_hold()
    story.ends()


@settings(max_examples=30)
@given(st.data(), machines(), st.booleans(), st.booleans())
def test_without_the_extension_no_resize_changes_a_set(
    data: st.DataObject, info: MachineInfo, cpus: bool, memory: bool
) -> None:
    """Kubelet v1.37.1: the gates stop the refusals, and the managers look away."""
    config = data.draw(resizing_configurations(info))
    options = {name: on for name, on in config.cpu_manager_policy_options.items() if name != "scale-delay-time"}
    gates = {"CPUManagerPolicyAlphaOptions": True, EXCLUSIVE_CPUS: cpus, EXCLUSIVE_MEMORY: memory}
    config = replace(config, cpu_manager_policy_options=options, feature_gates=gates)
    node = Node.fresh(info, config, MooringConfig(fixed_defects=FIXABLE_DEFECTS))
    for number in range(3):
        node, _ = node.admit(data.draw(resizable_pods(f"p{number}")))
    for uid, before in node.active.items():
        asked = data.draw(requests_for(before))
        after, answer = resize(node, asked)
        assert after.providers == node.providers
        changed = {
            resource
            for old, new in zip(before.containers, asked.containers, strict=True)
            for resource in ("cpu", "memory")
            if old.requests[resource].nano != new.requests[resource].nano
        }
        refused = before.qos is QoS.GUARANTEED and (
            ("cpu" in changed and not cpus) or ("memory" in changed and not memory and config.reserved_memory != ())
        )
        texts = {STATIC_CPUS, STATIC_MEMORY}
        assert (answer.message in texts) == refused
        event(f"{uid in after.waiting}, {sorted(changed)}")
