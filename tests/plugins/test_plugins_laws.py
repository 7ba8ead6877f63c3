"""Whatever plugins do, a node keeps its laws."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace

from hypothesis import event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.laws.laws_whole_node import cpu_breaks, placement_breaks
from tests.laws.stories import configurations, machines, pods
from tests.plugins.hostile_plugins import hostile_plugins

from mooring.engine.core.bits import CPUMask, list_text
from mooring.engine.core.config import FIXABLE_DEFECTS, MooringConfig, PluginChoice
from mooring.engine.core.machineinfo import MachineInfo
from mooring.engine.core.pod import Pod
from mooring.engine.extensions.owners import hidden_of, state_owner
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import NotStarted, restart_kubelet, start_kubelet
from mooring.engine.node import Node
from mooring.engine.plugins.facts import PluginsChose


def whole_core_breaks(node: Node, pod: Pod, facts: list[object]) -> Iterator[str]:
    """Containers whose CPUs plugins chose have whole cores where they are promised.

    The kubelet's rules break that on cores of different sizes.
    """
    chose = {
        (fact.container, fact.chosen.cpus) for fact in facts if isinstance(fact, PluginsChose) and not fact.as_hint
    }
    policy = node.settings.cpu
    assert policy is not None
    for name, cpus in node.cpu.assignments.get(pod.uid, {}).items() if policy.rules.whole_cores else ():
        touched = CPUMask(cpus | hidden_of(node.cpu, pod.uid, name))
        if (name, cpus) in chose and policy.topology.core_siblings(touched) != touched:
            yield f"{name} has parts of cores: {list_text(cpus)}"


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
        breaks = [
            *placement_breaks(self.node.settings, pod, decision, strict=True),
            *whole_core_breaks(self.node, pod, facts),
        ]
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
        breaks = list(cpu_breaks(self.node))
        assert not breaks, breaks


class LyingStory(Story):
    """The plugins answer the same question differently each time."""

    lies = True


Story.TestCase.settings = settings(max_examples=40, stateful_step_count=10)
LyingStory.TestCase.settings = settings(max_examples=40, stateful_step_count=10)
TestHostilePlugins = Story.TestCase
TestLyingPlugins = LyingStory.TestCase
