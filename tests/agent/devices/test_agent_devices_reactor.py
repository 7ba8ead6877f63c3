"""CPUs and memory follow the devices that an event brings, on a node of 8 CPUs in two NUMA nodes."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from msgspec import to_builtins
from tests.agent import small_node as small
from tests.agent.nri.runtime_side import TIMEOUT
from tests.agent.small_node import (
    CONFIG,
    INFO,
    adjustment_of,
    container,
    create,
    effects_of,
    events,
    guaranteed,
    refusal_of,
    sandbox,
)
from tests.documents.validation import complaints
from tests.render.pictured import terminal_text

from mooring.agent.devices import DeviceAccess
from mooring.agent.effects import AgentReport, ClusterEvent, Evict, ReportKind
from mooring.agent.metrics import ALL, device_gauges
from mooring.agent.nri.types import Event
from mooring.agent.reactor.create_container import nodes_of_claim, prepare_claim
from mooring.agent.reactor.hotplug import devices_learned, is_news_of_devices
from mooring.agent.reactor.lifecycle import state_change
from mooring.agent.reactor.recovery import reconfigured
from mooring.agent.reactor.response import Adjusted, EventOutcome, Refused
from mooring.agent.state import AgentState, DevicesFound, Options
from mooring.agent.status import Snapshot, devices_of_pod, status_document
from mooring.answers.status import status_text
from mooring.documents.status import AgentCountsPart
from mooring.engine.core.bits import CPUMask
from mooring.engine.core.config import DEVICE_ALIGNMENT, DeviceAlignment, DeviceAlignments, KubeletConfig, MooringConfig
from mooring.engine.core.machine import Machine
from mooring.engine.core.pod import Pod
from mooring.engine.devicemanager.state import Device
from mooring.engine.node.claims import Claim, Share
from mooring.service.agent_status import read_status
from mooring.service.logs import Log
from mooring.views.build import status_view

GPU = "nvidia.com/gpu"
NEAR_1 = DevicesFound({"main": {GPU: (Device("gpu1", (1,)),)}})
NEAR_0 = DevicesFound({"main": {GPU: (Device("gpu0", (0,)),)}})
UNKNOWN = DevicesFound({}, "the kubelet does not know the pod yet", (GPU,))


def node(
    config: KubeletConfig = CONFIG, default: DeviceAlignment = DeviceAlignment.FOLLOW, options: Options | None = None
) -> AgentState:
    mooring = MooringConfig(
        frozenset({DEVICE_ALIGNMENT}), frozenset({"pod-restart"}), device_alignments=DeviceAlignments(default)
    )
    return small.resizable(config, None, options, mooring)


def policy(name: str) -> KubeletConfig:
    return replace(CONFIG, topology_manager_policy=name)


def begin(state: AgentState, pod: Pod, devices: DevicesFound | None = None) -> EventOutcome:
    told = container(pod.uid, pid=9, cgroups_path="/c")
    return state_change(state, Event.START_CONTAINER, sandbox(pod.uid), told, None, None, devices)


def begun(devices: DevicesFound) -> AgentState:
    """Return a state in which the pod runs that was created with these devices."""
    return begin(create(node(), POD, devices=devices).state, POD).state


def cpus(state: AgentState, pod: Pod, name: str = "main") -> int:
    return state.kubelet.node.cpu.assignments.get(pod.uid, {}).get(name, 0)


def reports(outcome: EventOutcome) -> list[tuple[ReportKind, str]]:
    return [(one.finding, one.message) for one in effects_of(outcome, AgentReport)]


def placed(outcome: EventOutcome) -> tuple[str, str]:
    """Return CPUs and memory nodes with which a container is created."""
    return adjustment_of(outcome).resources.cpus, adjustment_of(outcome).resources.mems


POD = guaranteed("a", "2")


def test_cpus_and_memory_are_near_the_device_and_without_one_where_they_always_were() -> None:
    near = create(node(), POD, devices=NEAR_1)
    assert (placed(near), placed(create(node(), POD))) == (("4-5", "1"), ("1-2", "0"))
    after = reconfigured(near.state, policy("restricted"), near.state.kubelet.mooring)
    assert after.state.kubelet.node.providers.devices == near.state.kubelet.node.providers.devices  # type: ignore[union-attr]
    # What a pod held is free for the next one.
    other = create(small.ended(near.state, "a").state, guaranteed("b", "4"), devices=NEAR_1)
    assert placed(other) == ("4-7", "1")
    assert set(other.state.kubelet.node.providers.devices.held) == {"b"}


@pytest.mark.parametrize("evict", [False, True])
def test_what_cannot_be_aligned_is_refused_held_and_evicted_as_configured(*, evict: bool) -> None:
    state = node(policy("restricted"), options=Options(evict=evict))
    refused = create(create(state, guaranteed("b", "4"), devices=NEAR_1).state, POD, devices=NEAR_1)
    assert "TopologyAffinityError" in refusal_of(refused)
    assert POD.uid in refused.state.held
    assert len(effects_of(refused, Evict)) == evict
    told = [one.note for one in effects_of(refused, ClusterEvent)]
    assert "NUMA node 1" in told[0]
    assert GPU in told[0]
    # It is asked about again when it has another device.
    assert isinstance(create(refused.state, POD, devices=NEAR_1).answer, Refused)
    assert isinstance(create(refused.state, POD, devices=NEAR_0).answer, Adjusted)


def test_unknown_devices_are_done_without_and_that_is_said_once() -> None:
    first = create(node(), POD, devices=UNKNOWN)
    assert cpus(first.state, POD) == 0b110
    text = "default/name-a: decided without all of its devices: the kubelet does not know the pod yet (MOOR-624)"
    assert (ReportKind.DEVICES_UNKNOWN, text) in reports(first)
    assert events(first) == ["DevicesUnknown"]
    assert reports(create(first.state, POD, devices=replace(UNKNOWN, unknown="no answer"))) == []


def test_devices_that_require_alignment_are_waited_for_and_nobody_is_evicted_for_that() -> None:
    waits = create(node(default=DeviceAlignment.REQUIRE, options=Options(evict=True)), POD, devices=UNKNOWN)
    assert refusal_of(waits).startswith("DevicesUnknown: its devices require alignment and are not all known: ")
    assert not effects_of(waits, Evict)
    assert not waits.state.kubelet.node.active
    assert cpus(create(waits.state, POD, devices=NEAR_1).state, POD) == 0b110000


def test_a_pod_waits_for_a_claim_of_an_unknown_driver_when_any_class_requires_alignment() -> None:
    asked = replace(POD, annotations={"mooring/device-alignment": "nics=require"})
    found = DevicesFound({}, "claim nic is not told", ("",))
    assert isinstance(create(node(), asked, devices=found).answer, Refused)
    assert isinstance(create(node(), asked, devices=replace(found, missing=("nvidia.com/gpu",))).answer, Adjusted)


def test_a_container_that_is_made_meanwhile_moves_with_its_pod() -> None:
    pod = guaranteed("a", "1", "1")
    created = create(node(), pod, devices=UNKNOWN).state
    both = replace(NEAR_1, held={**NEAR_1.held, "c1": {GPU: (Device("gpu3", (1,)),)}})
    second = create(created, pod, "c1", devices=both).state
    assert (cpus(second, pod), cpus(second, pod, "c1")) == (1 << 4, 1 << 5)


def test_a_start_is_refused_when_what_is_known_now_cannot_be_aligned() -> None:
    state = create(node(policy("single-numa-node")), guaranteed("b", "4"), devices=NEAR_1).state
    begun = begin(create(state, POD, devices=UNKNOWN).state, POD, NEAR_1)
    assert isinstance(begun.answer, Refused)
    assert POD.uid in begun.state.held


def test_nothing_moves_once_a_program_runs_and_that_is_said_with_the_numa_nodes() -> None:
    state = begun(UNKNOWN)
    assert is_news_of_devices(state, {POD.uid: NEAR_1})
    learned = devices_learned(state, {POD.uid: NEAR_1})
    assert cpus(learned.state, POD) == 0b110
    text = (
        "default/name-a: main has CPUs 1-2 on NUMA node 0 and memory of NUMA node 0, and nvidia.com/gpu gpu1 is near "
        "NUMA node 1; nothing moves while it runs (MOOR-625)"
    )
    assert (ReportKind.DEVICES_ELSEWHERE, text) in reports(learned)
    assert not learned.state.without_devices
    assert not is_news_of_devices(learned.state, {POD.uid: NEAR_1})
    assert reports(devices_learned(learned.state, {POD.uid: NEAR_1})) == []


LOST = "nvidia.com/gpu gpu1 of main is not healthy any more, or not reported"
MOVED = "nvidia.com/gpu gpu1 of main was near NUMA node 1 and is near NUMA node 0"


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (DevicesFound({"main": {GPU: (Device("gpu1", (1,), healthy=False),)}}), LOST),
        (DevicesFound({}), LOST),
        (DevicesFound({"main": {GPU: (Device("gpu1", (0,)),)}}), MOVED),
        # A kubelet that does not answer takes nothing away.
        (UNKNOWN, ""),
    ],
    ids=["unhealthy", "forgotten", "moved", "unknown"],
)
def test_what_becomes_of_a_device_in_use_moves_nothing_and_is_said_once(now: DevicesFound, said: str) -> None:
    state = begun(NEAR_1)
    assert is_news_of_devices(state, {POD.uid: now}) is bool(said)
    if said:
        learned = devices_learned(state, {POD.uid: now})
        assert cpus(learned.state, POD) == 0b110000
        assert (ReportKind.DEVICES_CHANGED, f"default/name-a: {said} (MOOR-626)") in reports(learned)
        told = [(one.reason, one.note) for one in effects_of(learned, ClusterEvent)]
        assert ("DevicesChanged", f"{said} (MOOR-626)") in told
        assert not is_news_of_devices(learned.state, {POD.uid: now})


# Claims to CPUs together with devices: memory follows both, and both count as aligned.


NO_COUNTS = AgentCountsPart(0, 0.0, 0, 0, 0, 0, 0)

DRIVER, VARIABLE = "cpu.mooring.dev", "MOORING_CLAIM_U_1_0"
FAST = Claim("u-1", "default", "fast", (Share("cpus", "numa1", 2, CPUMask(0xF0)),))
CLAIMING = guaranteed("a", "500m")


def prepared() -> AgentState:
    return prepare_claim(node(policy("restricted")), FAST, [CLAIMING.uid]).state


def created_with(state: AgentState, gpu: int) -> EventOutcome:
    nodes = nodes_of_claim(state, "default", "fast", "numa1")
    held = {DRIVER: (Device("node-1/numa1", nodes),), GPU: (Device(f"gpu{gpu}", (gpu,)),)}
    return create(state, CLAIMING, claims=(VARIABLE,), devices=DevicesFound({"main": held}))


def counted(state: AgentState, kind: str) -> dict[str, float]:
    families = {family.name: family for family in device_gauges(state)}
    return {one.labels["resource"]: one.value for one in families[f"mooring_agent_{kind}_containers"].samples}


def test_memory_follows_the_cpus_of_a_claim_and_the_gpu_beside_them() -> None:
    made = created_with(prepared(), 1)
    assert placed(made) == ("4-5", "1")
    devices, fit = devices_of_pod(made.state, CLAIMING)["main"]
    assert (fit, {one.resource for one in devices}) == ("aligned", {DRIVER, GPU})
    assert counted(made.state, "aligned") == {"cpu": 1, "memory": 1, DRIVER: 1, GPU: 1, ALL: 1}


def test_a_claim_to_cpus_on_another_node_than_the_gpu_is_refused_with_both_in_words() -> None:
    refused = created_with(prepared(), 0)
    text = (
        "(MOOR-137; main: cpu.mooring.dev node-1/numa1 is near NUMA node 1 and nvidia.com/gpu gpu0 is near NUMA node 0)"
    )
    assert refusal_of(refused).endswith(text)


def test_a_claim_has_its_cpus_where_the_agent_gave_them_and_others_are_none() -> None:
    state = prepared()
    assert nodes_of_claim(state, "default", "fast", "numa1") == (1,)
    assert nodes_of_claim(state, "default", "fast", "numa0") is None
    assert nodes_of_claim(state, "shop", "fast", "numa1") is None


def test_where_nothing_is_aligned_that_is_counted() -> None:
    state = replace(prepared(), kubelet=prepare_claim(node(), FAST, [CLAIMING.uid]).state.kubelet)
    made = created_with(state, 0)
    assert isinstance(made.answer, Adjusted)
    assert devices_of_pod(made.state, CLAIMING)["main"][1] == "elsewhere"
    assert counted(made.state, "unaligned")[ALL] == 1


def test_status_text_and_picture_show_devices_with_their_nodes_and_holders() -> None:
    state = created_with(prepared(), 1).state
    document = to_builtins(status_document(Snapshot(Machine("m", INFO), state), NO_COUNTS))
    assert complaints("AgentStatus", document) == []
    text = status_text(read_status(document))
    assert "default/name-a main cpu.mooring.dev node-1/numa1 1 nvidia.com/gpu gpu1 1" in " ".join(text.split())
    assert "gpu1" in terminal_text(status_view(Machine("m", INFO), read_status(document)), width=100)


# When the agent looks again at what pods hold: soon while something is unknown, then less and less often.


@dataclass
class Asked:
    """Takes the place of a kubelet that tells nothing, and of the state's holder."""

    state: AgentState
    now: float = 0.0
    looks: list[float] = field(default_factory=list)

    def of_all(self, pods: Any, _missing: Any, _timeout: float) -> dict[str, DevicesFound]:
        return dict.fromkeys(pods, UNKNOWN)

    def close(self) -> None:
        pass


def looks(asked: Asked, seconds: float) -> list[float]:
    """Return when the agent looks, which it could twice a second."""
    instead: Any = asked
    made = DeviceAccess(instead, instead, None, instead, Log("test"), clock=lambda: asked.now)
    done = threading.Event()

    def look() -> None:
        asked.looks.append(asked.now)
        done.set()

    made.look = look  # type: ignore[method-assign]
    while asked.now < seconds:
        asked.now += 0.5
        if made.reconcile():
            assert done.wait(TIMEOUT)
            done.clear()
    made.close(TIMEOUT)
    return asked.looks


@pytest.mark.parametrize(
    ("is_known", "when"),
    [(False, [1.0, 3.0, 7.0, 15.0, 25.0, 35.0]), (True, [10.0, 20.0, 30.0, 40.0])],
    ids=["unknown-soon-and-then-less-often", "known-every-ten-seconds"],
)
def test_when_the_agent_looks_again(*, is_known: bool, when: list[float]) -> None:
    state = create(node(), guaranteed("a", "2"), devices=UNKNOWN).state
    assert looks(Asked(replace(state, without_devices={}) if is_known else state), 40) == when
