"""The agent decides what the planner says for the same pods in the same order."""

from __future__ import annotations

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.agent.simulated_agent import Disk, SimulatedAgent, World
from tests.agent.simulated_runtime import Runtime
from tests.laws.strategies_whole_node import configurations, hardware, pods

from mooring.agent.nri.types import LinuxResources
from mooring.agent.reactor.desired import DesiredSettings
from mooring.engine.core.config import MooringConfig
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import start_kubelet


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_lives_of_pods_get_the_planners_decisions(data: st.DataObject) -> None:
    machine, config = data.draw(hardware()), data.draw(configurations())
    planned = start_kubelet(machine.info, config, MooringConfig(fixed_defects=frozenset({"pod-restart"})), StateTexts())
    assume(isinstance(planned, Kubelet))
    assert isinstance(planned, Kubelet)
    assert isinstance(planned, Kubelet)
    runtime = Runtime()
    world = World(machine.info, config)
    agent = SimulatedAgent(world, runtime, Disk())
    runtime.connect(agent)
    sandboxes: dict[str, str] = {}
    for number in range(data.draw(st.integers(1, 8))):
        if sandboxes and data.draw(st.integers(0, 3)) == 0:
            uid = data.draw(st.sampled_from(sorted(sandboxes)))
            runtime.stop_sandbox(sandboxes.pop(uid))
            planned, _ = planned.remove(uid)
        pod = data.draw(pods(f"pod{number}"))
        world.pods[pod.uid] = pod
        planned, decision = planned.admit(pod)
        sandbox = runtime.run_sandbox(pod.uid, pod.name, {})
        refusals = len(runtime.refusals)
        # With an empty shared pool the agent goes its own way: where the kubelet widens, somebody may have to wait.
        assume(not decision.admitted or planned.node.cpu.default)
        for one in pod.containers:
            made = runtime.create(sandbox, one.name, LinuxResources())
            assert (made is not None) is decision.admitted
            if made is None:
                break
        if decision.admitted:
            sandboxes[pod.uid] = sandbox
            assert agent.state.kubelet.node.cpu.assignments.get(pod.uid) == planned.node.cpu.assignments.get(pod.uid)
            assert agent.state.kubelet.node.memory.assignments.get(pod.uid) == planned.node.memory.assignments.get(
                pod.uid
            )
            wanted = DesiredSettings.by(agent.state.kubelet)
            for name, placement in decision.containers.items():
                if placement.cpus:
                    assert str(wanted.of(pod.uid, name).cpus) == str(placement.cpus)
        elif decision.rejection is not None:
            assert runtime.refusals[refusals:] == [f"{decision.reason}: {decision.message}".removesuffix(": ")]
    assert agent.state.kubelet.settled().node.cpu == planned.settled().node.cpu
