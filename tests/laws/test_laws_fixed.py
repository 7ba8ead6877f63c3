"""With all defects fixed a node keeps its laws whatever happens to it."""

from __future__ import annotations

import copy
import pickle

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.laws.laws_whole_node import cpu_breaks, placement_breaks
from tests.laws.stories import configurations, machines, pods

from mooring.engine.core.config import FIXABLE_DEFECTS, MooringConfig
from mooring.engine.core.decision import StartRefusal
from mooring.engine.core.machineinfo import MachineInfo
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import refusal_of, restart_kubelet, start_kubelet
from mooring.engine.node import Node


class Story(RuleBasedStateMachine):
    """Pods come and go, the kubelet restarts."""

    kubelet: Kubelet

    @initialize(data=st.data(), info=machines())
    def start(self, data: st.DataObject, info: MachineInfo) -> None:
        config = data.draw(configurations(info))
        found = start_kubelet(info, config, MooringConfig(fixed_defects=FIXABLE_DEFECTS), StateTexts())
        assert isinstance(found, Kubelet), found
        self.kubelet = found
        self.count = 0

    @property
    def node(self) -> Node:
        return self.kubelet.node

    @rule(data=st.data())
    def admit(self, data: st.DataObject) -> None:
        self.count += 1
        pod = data.draw(pods(f"u{self.count}"))
        before, frozen = self.node, pickle.dumps(self.node)
        self.kubelet, decision = self.kubelet.admit(pod)
        assert pickle.dumps(before) == frozen
        assert decision.endless is None
        assert list(placement_breaks(before.settings, pod, decision)) == []
        assert (self.node, decision) == before.admit(pod)
        assert copy.deepcopy(before).admit(pod) == (self.node, decision)
        assert decision.admitted == (pod.uid in self.node.active)
        undone, removal = self.node.remove(pod.uid)
        clean, _ = before.remove(pod.uid)
        assert (undone.cpu.default, undone.cpu.assignments) == (clean.cpu.default, clean.cpu.assignments)
        assert removal.shared_pool == clean.shared_pool

    @precondition(lambda self: self.node.active)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(self.node.active)))
        before, frozen = self.node, pickle.dumps(self.node)
        held = self.node.cpu.assignments.get(uid, {})
        self.kubelet, removal = self.kubelet.remove(uid)
        assert pickle.dumps(before) == frozen
        assert uid not in self.node.active
        assert uid not in self.node.cpu.assignments
        assert all(cpus & ~removal.released.mask == 0 for cpus in held.values())

    @precondition(lambda self: self.node.active)
    @rule(data=st.data())
    def come_back(self, data: st.DataObject) -> None:
        """A pod ends and the very same pod arrives again."""
        uid = data.draw(st.sampled_from(sorted(self.node.active)))
        pod = self.node.active[uid]
        self.kubelet, _ = self.kubelet.remove(uid)
        self.kubelet, _ = self.kubelet.admit(pod)

    @rule()
    def restart(self) -> None:
        before = self.kubelet
        found = restart_kubelet(before)
        if not before.node.cpu.default and before.node.cpu.assignments:
            # The one state that a kubelet makes and does not start on: everything is exclusive (strict reservation).
            assert refusal_of(found) == StartRefusal("start", "start cpu manager error: default cpuset cannot be empty")
            return
        assert isinstance(found, Kubelet), found
        assert found.files == before.files
        self.kubelet, readmission = found.readmit(before.node.active.values())
        assert readmission.refused == ()
        assert self.kubelet.files == before.files
        assert [*self.node.active.values()] == [*before.node.active.values()]
        again = before.node.restart()
        assert not isinstance(again, StartRefusal)
        assert again[1] == readmission
        assert (again[0].active, again[0].stored_hints) == (self.node.active, self.node.stored_hints)

    @invariant()
    def laws_hold(self) -> None:
        assert list(cpu_breaks(self.node)) == []


Story.TestCase.settings = settings(max_examples=45, stateful_step_count=14)
TestStory = Story.TestCase
