"""With devices the agent decides what ``plan --devices follow`` says: the kubelet beside it has given them before.

Whatever the agent learns late, nothing of a pod moves that runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hypothesis import assume, event, given, settings
from hypothesis import strategies as st
from tests.agent.simulated_agent import Disk, SimulatedAgent, World
from tests.agent.simulated_runtime import Runtime
from tests.laws.strategies_whole_node import GPU, Hardware, configurations, hardware, pods
from tests.laws.test_laws_device_alignment import beside

from mooring.agent.nri.types import LinuxResources
from mooring.agent.reactor.devices import without_devices
from mooring.agent.state import DevicesFound
from mooring.engine.core.config import DEVICE_ALIGNMENT, DeviceAlignment, DeviceAlignments, KubeletConfig, MooringConfig
from mooring.engine.core.pod import Pod
from mooring.engine.core.quantity import Quantity
from mooring.engine.devicemanager.state import DeviceState
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import start_kubelet

ALIGNMENTS = (DeviceAlignment.FOLLOW, DeviceAlignment.REQUIRE, DeviceAlignment.FOLLOW, DeviceAlignment.IGNORE)
FIXED = frozenset({"pod-restart"})
LATE = DevicesFound({}, "the kubelet does not tell", ("vendor.example/gpu",))


def started(hard: Hardware, config: KubeletConfig, mooring: MooringConfig) -> Kubelet:
    found = start_kubelet(hard.info, config, mooring, StateTexts())
    assume(found is not None)
    assert isinstance(found, Kubelet)
    return found.with_devices(DeviceState(hard.devices))


class Nodes:
    """A plan, and beside it the two programs of a live node: the kubelet that gives devices, and the agent."""

    def __init__(self, hard: Hardware, config: KubeletConfig, default: DeviceAlignment) -> None:
        mooring = MooringConfig(frozenset({DEVICE_ALIGNMENT}), FIXED, device_alignments=DeviceAlignments(default))
        self.plan = started(hard, config, mooring)
        self.kubelet = started(hard, beside(config), MooringConfig(fixed_defects=FIXED))
        self.runtime = Runtime()
        self.world = World(hard.info, config, mooring=mooring)
        self.agent = SimulatedAgent(self.world, self.runtime, Disk())
        self.runtime.connect(self.agent)
        self.sandboxes: dict[str, str] = {}

    def remove(self, uid: str) -> None:
        self.runtime.stop_sandbox(self.sandboxes.pop(uid))
        self.plan, _ = self.plan.remove(uid)
        self.kubelet, _ = self.kubelet.remove(uid)

    def admit(self, pod: Pod, *, late: bool) -> None:
        """Let a pod come, and compare; late devices are known when its last container starts."""
        self.world.pods[pod.uid] = without_devices(pod)
        self.plan, decision = self.plan.admit(pod)
        self.kubelet, given_devices = self.kubelet.admit(pod)
        # With an empty shared pool the agent goes its own way: where the kubelet widens, somebody may have to wait.
        assume(not decision.admitted or self.plan.node.cpu.default)
        if not given_devices.admitted:
            assert not decision.admitted
            self.plan, self.kubelet = self.plan.settled(), self.kubelet.settled()
            return
        known = DevicesFound(given_devices.devices)
        if any(one.numa for held in known.held.values() for devices in held.values() for one in devices):
            event("with devices")
        self.world.devices[pod.uid] = LATE if late else known
        sandbox = self.runtime.run_sandbox(pod.uid, pod.name, {})
        refusals = len(self.runtime.refusals)
        made = self._create(sandbox, pod)
        if late:
            # Without its devices it may have been refused, and is tried again.
            self.world.devices[pod.uid] = known
            made = made if all(made) else self._create(sandbox, pod)
            begun = all(made) and self._begin([one for one in made if one])
        else:
            begun = all(made)
        assert begun is decision.admitted
        if decision.admitted:
            event("admitted late" if late else "admitted")
            self.sandboxes[pod.uid] = sandbox
            return
        event("refused")
        assert decision.rejection is not None
        assert self.runtime.refusals[refusals:][-1].startswith(f"{decision.reason}: {decision.message}".strip(": "))
        self.runtime.stop_sandbox(sandbox)
        self.plan, self.kubelet = self.plan.settled(), self.kubelet.remove(pod.uid)[0].settled()

    def _create(self, sandbox: str, pod: Pod) -> list[str | None]:
        made: list[str | None] = []
        for one in pod.containers:
            made.append(self.runtime.create(sandbox, one.name, LinuxResources()))
            if made[-1] is None:
                break
        return made

    def _begin(self, containers: list[str]) -> bool:
        for one in containers:
            self.runtime.store(one)
        return all(self.runtime.make_task(one) for one in containers)

    def differences(self) -> Iterator[tuple[object, object]]:
        live, plan = self.agent.state.kubelet.settled().node, self.plan.settled().node
        for uid in self.sandboxes:
            yield live.cpu.assignments.get(uid), plan.cpu.assignments.get(uid)
            yield live.memory.assignments.get(uid), plan.memory.assignments.get(uid)
        yield live.cpu.default, plan.cpu.default


@given(hardware(), configurations(), st.sampled_from(ALIGNMENTS), st.data())
@settings(deadline=None, max_examples=100)
def test_the_agent_beside_a_kubelet_decides_what_the_plan_says_for_the_same_devices(
    hard: Hardware, config: KubeletConfig, default: DeviceAlignment, data: st.DataObject
) -> None:
    nodes = Nodes(hard, config, default)
    for number in range(data.draw(st.integers(1, 6))):
        if nodes.sandboxes and data.draw(st.integers(0, 3)) == 0:
            nodes.remove(data.draw(st.sampled_from(sorted(nodes.sandboxes))))
        nodes.admit(with_gpu(data.draw(pods(f"pod{number}"))), late=False)
        for live, planned in nodes.differences():
            assert live == planned


def with_gpu(pod: Pod) -> Pod:
    """Return the pod with a GPU for its last container."""
    *others, last = pod.containers
    one = {GPU: Quantity.parse("1")}
    return replace(
        pod, containers=(*others, replace(last, requests={**last.requests, **one}, limits={**last.limits, **one}))
    )


@given(hardware(), configurations(), st.data())
@settings(deadline=None, max_examples=60)
def test_devices_that_are_known_when_a_pod_starts_place_it_as_if_they_had_been_known_before(
    hard: Hardware, config: KubeletConfig, data: st.DataObject
) -> None:
    nodes = Nodes(hard, config, DeviceAlignment.FOLLOW)
    for number in range(data.draw(st.integers(1, 3))):
        # While several are made, more may be known of the later ones: they are placed one by one.
        pod = data.draw(pods(f"pod{number}"))
        nodes.admit(replace(pod, containers=pod.containers[-1:]), late=True)
        for live, planned in nodes.differences():
            assert live == planned


@given(hardware(), configurations(), st.data())
@settings(deadline=None, max_examples=60)
def test_nothing_that_runs_moves_for_devices_told_later(
    hard: Hardware, config: KubeletConfig, data: st.DataObject
) -> None:
    nodes = Nodes(hard, config, DeviceAlignment.FOLLOW)
    for number in range(data.draw(st.integers(1, 3))):
        nodes.admit(data.draw(pods(f"pod{number}")), late=False)
    for one in [*nodes.runtime.processes.values()]:
        if one.stage.value == "making":
            nodes.runtime.store(one.id)
            nodes.runtime.make_task(one.id)
            nodes.runtime.started(one.id)
    before = {one.id: one.cgroup for one in nodes.runtime.processes.values() if one.runs}
    for uid, found in [*nodes.world.devices.items()]:
        other = data.draw(st.sampled_from(["forgotten", "unhealthy", "elsewhere", "unknown"]))
        event(other)
        nodes.world.devices[uid] = {
            "forgotten": DevicesFound(),
            "unknown": replace(found, unknown="the kubelet does not list it"),
            "unhealthy": changed(found, healthy=False),
            "elsewhere": changed(found, numa=(0,)),
        }[other]
    nodes.agent.look_at_devices()
    nodes.agent.next_reply()
    assert {one.id: one.cgroup for one in nodes.runtime.processes.values() if one.runs} == before
    reports = nodes.agent.counts["devices-changed"]
    nodes.agent.look_at_devices()
    assert nodes.agent.counts["devices-changed"] == reports


def changed(found: DevicesFound, **fields: object) -> DevicesFound:
    """Return what was found with every device changed."""
    return DevicesFound(
        {
            container: {
                resource: tuple(replace(one, **fields) for one in devices)  # type: ignore[arg-type]
                for resource, devices in resources.items()
            }
            for container, resources in found.held.items()
        }
    )
