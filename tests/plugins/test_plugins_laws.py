"""Whatever plugins do, a node keeps its laws."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace

from hypothesis import event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.laws.stories import configurations, machines, pods
from tests.plugins.hostile_plugins import hostile_plugins

from mooring.engine.core.bits import CPUMask, list_text
from mooring.engine.core.config import FIXABLE_DEFECTS, MooringConfig, PluginChoice
from mooring.engine.core.machineinfo import MachineInfo
from mooring.engine.core.pod import ContainerKind, Pod
from mooring.engine.cpumanager.policy import exclusive_cpus
from mooring.engine.extensions.owners import hidden_of, state_owner
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import NotStarted, restart_kubelet, start_kubelet
from mooring.engine.node import Decision, Node
from mooring.engine.plugins.facts import PluginsChose


def ownership_breaks(node: Node) -> Iterator[str]:
    """Nothing is owned twice, nothing is lost, what is reserved is nobody's; hidden threads are their pod's."""
    policy = node.settings.cpu
    assert policy is not None
    held = dict[str, CPUMask]()
    for owner, sets in node.cpu.assignments.items():
        for cpus in sets.values():
            held[state_owner(owner).root] = held.get(state_owner(owner).root, 0) | cpus
    owned = 0
    for uid, cpus in held.items():
        if cpus & owned:
            yield f"{uid} shares {list_text(cpus & owned)} with another pod"
        if cpus & node.cpu.default:
            yield f"{uid} holds {list_text(cpus & node.cpu.default)}, which is in the shared pool"
        if cpus & policy.reserved:
            yield f"{uid} holds the reserved {list_text(cpus & policy.reserved)}"
        owned |= cpus
    if owned | node.cpu.default != policy.shareable:
        yield f"{list_text((owned | node.cpu.default) ^ policy.shareable)} is lost or made up"
    for pod in node.active.values():
        yield from _breaks_inside(node, pod)


def _breaks_inside(node: Node, pod: Pod) -> Iterator[str]:
    """Containers that run at the same time share neither CPUs nor what is hidden for one of them."""
    running = 0
    assert node.settings.topology is not None
    topology = node.settings.topology
    for container in pod.containers:
        cpus = node.cpu.assignments.get(pod.uid, {}).get(container.name, 0)
        hidden = hidden_of(node.cpu, pod.uid, container.name)
        if cpus & hidden:
            yield f"{container.name} of {pod.uid} has {list_text(cpus & hidden)} and hides it"
        if hidden & ~topology.core_siblings(CPUMask(cpus)):
            yield f"{list_text(hidden)} is hidden for {container.name} of {pod.uid}, but is on other cores"
        if (cpus | hidden) & running:
            yield f"{container.name} of {pod.uid} shares {list_text((cpus | hidden) & running)}"
        if container.kind is not ContainerKind.INIT:
            running |= cpus | hidden


def placement_breaks(node: Node, pod: Pod, decision: Decision, facts: list[object]) -> Iterator[str]:
    """An admitted container has as many CPUs as it asks for, whole cores and near its hint where that is promised.

    Whole cores only where plugins chose: the kubelet's rules break them on cores of different sizes.
    """
    chose_cpus = [fact for fact in facts if isinstance(fact, PluginsChose) and not fact.as_hint]
    by_plugins = {(fact.container, fact.chosen.cpus) for fact in chose_cpus}
    policy = node.settings.cpu
    assert policy is not None
    for container in pod.containers if decision.admitted else ():
        cpus = decision.containers[container.name].cpus.mask
        need = exclusive_cpus(pod, container, policy.gates)
        if cpus.bit_count() != need:
            yield f"{container.name} asks for {need} and has {list_text(cpus)}"
        touched = cpus | hidden_of(node.cpu, pod.uid, container.name)
        chose = (container.name, cpus) in by_plugins
        if chose and policy.rules.whole_cores and policy.topology.core_siblings(touched) != touched:
            yield f"{container.name} has parts of cores: {list_text(cpus)}"
        hint = decision.affinity[container.name]
        if hint.mask is None or node.settings.topology_policy not in {"restricted", "single-numa-node"}:
            continue
        near = policy.topology.cpus_in_numa(hint.mask)
        if policy.rules.align_by_socket:
            near = CPUMask(sum(socket for socket in policy.topology.sockets.values() if socket & near))
        if cpus & ~near:
            yield f"{container.name} has {list_text(cpus & ~near)} outside of what its policy admitted"


def copied(node: Node) -> Node:
    """Return the node with a state that shares nothing with its own."""
    state = node.providers, node.stored_hints, node.active, node.started
    providers, hints, active, started = copy.deepcopy(state)
    return replace(node, providers=providers, stored_hints=hints, active=active, started=started)


class Story(RuleBasedStateMachine):
    """Pods come and go and the kubelet restarts, with plugins that keep no promise."""

    kubelet: Kubelet
    lies = False

    @initialize(data=st.data(), info=machines())
    def start(self, data: st.DataObject, info: MachineInfo) -> None:
        config = data.draw(configurations(info))
        plugins = PluginChoice(data.draw(hostile_plugins(lies=self.lies)))
        mooring = MooringConfig(fixed_defects=FIXABLE_DEFECTS, plugins=plugins)
        found = start_kubelet(info, config, mooring, StateTexts())
        assert isinstance(found, Kubelet), found
        self.kubelet, self.count = found, 0

    @property
    def node(self) -> Node:
        return self.kubelet.node

    @rule(data=st.data())
    def admit(self, data: st.DataObject) -> None:
        self.count += 1
        pod = data.draw(pods(f"u{self.count}"))
        before, kept = self.node, copied(self.node)
        facts: list[object] = []
        self.kubelet, decision = self.kubelet.admit(pod, facts.append)
        assert before == kept
        assert decision.endless is None
        assert decision.admitted == (pod.uid in self.node.active)
        breaks = list(placement_breaks(self.node, pod, decision, facts))
        assert not breaks, breaks
        if not self.lies:
            assert kept.admit(pod) == (self.node, decision)
        undone, clean = self.node.remove(pod.uid)[0].cpu, before.remove(pod.uid)[0].cpu
        assert (undone.default, undone.assignments) == (clean.default, clean.assignments)
        event(f"admitted: {decision.admitted}, plugins failed: {bool(decision.plugin_failures)}")

    @precondition(lambda self: self.node.active)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(self.node.active)))
        held = self.node.cpu.assignments.get(uid, {})
        self.kubelet, removal = self.kubelet.remove(uid)
        assert uid not in {state_owner(owner).root for owner in self.node.cpu.assignments}
        assert all(cpus & ~removal.released.mask == 0 for cpus in held.values())

    @rule()
    def restart(self) -> None:
        before = self.kubelet
        found = restart_kubelet(before)
        if not before.node.cpu.default and before.node.cpu.assignments:
            # The one state that a kubelet makes and does not start on: everything is exclusive (strict reservation).
            assert isinstance(found, NotStarted)
            return
        assert isinstance(found, Kubelet), found
        assert found.files == before.files
        self.kubelet, readmission = found.readmit(before.node.active.values())
        assert readmission.refused == ()
        assert self.kubelet.files == before.files

    @precondition(lambda self: self.node.settings.plugins is not None)
    @rule(data=st.data())
    def wait(self, data: st.DataObject) -> None:
        """Whatever order plugins give to waiting pods, none is lost."""
        plugins = self.node.settings.plugins
        assert plugins is not None
        waiting = [data.draw(pods(f"w{number}")) for number in range(3)]
        assert sorted(pod.uid for pod in plugins.ordered(waiting)) == [pod.uid for pod in waiting]

    @invariant()
    def laws_hold(self) -> None:
        breaks = list(ownership_breaks(self.node))
        assert not breaks, breaks


class LyingStory(Story):
    """The plugins answer the same question differently each time."""

    lies = True


Story.TestCase.settings = settings(max_examples=40, stateful_step_count=10)
LyingStory.TestCase.settings = settings(max_examples=40, stateful_step_count=10)
TestHostilePlugins = Story.TestCase
TestLyingPlugins = LyingStory.TestCase
