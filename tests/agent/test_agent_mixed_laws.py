"""The random lives of the reactor's laws, with mixed containers among them.

No exclusive CPU of anybody else is ever in a mixed container's set, a restart changes nothing, and at the end
everything has come back.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from operator import or_

from hypothesis import event, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule
from tests.agent.test_agent_reactor_laws import AgentLives, any_pods

from mooring.agent.reactor.desired import DesiredSettings
from mooring.engine.core.config import MIXED_CPUS
from mooring.engine.node.isolation import ANNOTATION


class MixedLives(AgentLives):
    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        super().begin(data)
        extended = replace(self.world.mooring, extensions=frozenset({MIXED_CPUS}))
        self.world = replace(self.world, mooring=extended)
        self._connect()

    @rule(data=st.data(), derived=st.booleans())
    def run_pod(self, data: st.DataObject, *, derived: bool) -> None:
        uid = f"pod{self.runtime.next_number}"
        pod = data.draw(any_pods(uid))
        if data.draw(st.integers(0, 2)):
            pod = replace(pod, annotations={**pod.annotations, ANNOTATION: "true"})
        self.world.pods[uid] = pod
        if derived and pod.resources is None:
            self.world.without_source.add(uid)
        self.runtime.run_sandbox(uid, pod.name, dict(pod.annotations))

    @invariant()
    def no_exclusive_cpu_of_another_pod_is_in_a_mixed_containers_set(self) -> None:
        if self.agent is None:
            return
        wanted = DesiredSettings.now(self.agent.state)
        node = self.agent.state.kubelet.node
        for uid, pod in node.active.items():
            of_others = 0
            for other, held in node.cpu.assignments.items():
                of_others |= 0 if other == uid else reduce(or_, held.values(), 0)
            for one in pod.containers:
                if wanted.is_mixed(uid, one.name):
                    event("mixed")
                    cpus = wanted.of(uid, one.name).cpus.mask
                    assert cpus == node.cpu.assignments[uid][one.name] | node.cpu.default
                    assert not cpus & of_others


TestMixedLives = MixedLives.TestCase
TestMixedLives.settings = settings(deadline=None, max_examples=30, stateful_step_count=40)
