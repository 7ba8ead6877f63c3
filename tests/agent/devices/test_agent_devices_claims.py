"""Claims to CPUs together with devices: memory follows both, and both count as aligned."""

from __future__ import annotations

from dataclasses import replace

from msgspec import to_builtins
from tests.agent.devices.test_agent_devices_reactor import GPU, node, policy
from tests.agent.small_node import INFO, container, guaranteed, sandbox
from tests.documents.validation import complaints
from tests.render.pictured import terminal_text

from mooring.agent.reactor.create_container import create_container, nodes_of_claim, prepare_claim
from mooring.agent.reactor.response import Adjusted, EventOutcome, Refused
from mooring.agent.state import AgentState, DevicesFound
from mooring.agent.status.api import ALL, device_gauges
from mooring.agent.status.document import devices_of_pod, status_document
from mooring.agent.status.snapshot import Snapshot
from mooring.answers.status.text import status_text
from mooring.documents.status import AgentCountsPart
from mooring.engine.core.bits import CPUMask
from mooring.engine.core.machine import Machine
from mooring.engine.devicemanager.state import Device
from mooring.engine.node.claims import Claim, Share
from mooring.service.agent_status import read_status
from mooring.views.status import status_view

NO_COUNTS = AgentCountsPart(0, 0.0, 0, 0, 0, 0, 0)

DRIVER, VARIABLE = "cpu.mooring.dev", "MOORING_CLAIM_U_1_0"
FAST = Claim("u-1", "default", "fast", (Share("cpus", "numa1", 2, CPUMask(0xF0)),))
POD = guaranteed("a", "500m")


def prepared() -> AgentState:
    return prepare_claim(node(policy("restricted")), FAST, [POD.uid]).state


def create(state: AgentState, gpu: int) -> EventOutcome:
    nodes = nodes_of_claim(state, "default", "fast", "numa1")
    held = {DRIVER: (Device("node-1/numa1", nodes),), GPU: (Device(f"gpu{gpu}", (gpu,)),)}
    told = container(POD.uid, claims=(VARIABLE,))
    return create_container(state, sandbox(POD.uid), told, POD, devices=DevicesFound({"main": held}))


def counted(state: AgentState, kind: str) -> dict[str, float]:
    families = {family.name: family for family in device_gauges(state)}
    return {one.labels["resource"]: one.value for one in families[f"mooring_agent_{kind}_containers"].samples}


def test_memory_follows_the_cpus_of_a_claim_and_the_gpu_beside_them() -> None:
    made = create(prepared(), 1)
    assert isinstance(made.answer, Adjusted)
    assert (made.answer.adjustment.resources.cpus, made.answer.adjustment.resources.mems) == ("4-5", "1")
    devices, fit = devices_of_pod(made.state, POD)["main"]
    assert (fit, {one.resource for one in devices}) == ("aligned", {DRIVER, GPU})
    assert counted(made.state, "aligned") == {"cpu": 1, "memory": 1, DRIVER: 1, GPU: 1, ALL: 1}


def test_a_claim_to_cpus_on_another_node_than_the_gpu_is_refused_with_both_in_words() -> None:
    refused = create(prepared(), 0)
    assert isinstance(refused.answer, Refused)
    text = (
        "(MOOR-137; main: cpu.mooring.dev node-1/numa1 is near NUMA node 1 and nvidia.com/gpu gpu0 is near NUMA node 0)"
    )
    assert refused.answer.text.endswith(text)


def test_a_claim_has_its_cpus_where_the_agent_gave_them_and_others_are_none() -> None:
    state = prepared()
    assert nodes_of_claim(state, "default", "fast", "numa1") == (1,)
    assert nodes_of_claim(state, "default", "fast", "numa0") is None
    assert nodes_of_claim(state, "shop", "fast", "numa1") is None


def test_where_nothing_is_aligned_that_is_counted() -> None:
    state = replace(prepared(), kubelet=prepare_claim(node(), FAST, [POD.uid]).state.kubelet)
    made = create(state, 0)
    assert isinstance(made.answer, Adjusted)
    assert devices_of_pod(made.state, POD)["main"][1] == "elsewhere"
    assert counted(made.state, "unaligned")[ALL] == 1


def test_status_text_and_picture_show_devices_with_their_nodes_and_holders() -> None:
    state = create(prepared(), 1).state
    document = to_builtins(status_document(Snapshot(Machine("m", INFO), state), NO_COUNTS))
    assert complaints("AgentStatus", document) == []
    text = status_text(read_status(document))
    assert "default/name-a main cpu.mooring.dev node-1/numa1 1 nvidia.com/gpu gpu1 1" in " ".join(text.split())
    drawn = terminal_text(status_view(Machine("m", INFO), read_status(document)), width=100)
    assert "gpu1" in drawn
