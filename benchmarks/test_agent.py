"""The agent's part of a CreateContainer: decision, answer and effects, with 250 containers that run already."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture
from shapes import machine, pod, whole

from mooring.agent.journal import JournalWriter
from mooring.agent.nri.types import ContainerState, Event, LinuxResources, PodSandbox, RuntimeContainer
from mooring.agent.reactor.create_container import create_container
from mooring.agent.reactor.desired import expected
from mooring.agent.reactor.lifecycle import state_change
from mooring.agent.reactor.recovery import Stored, resume
from mooring.agent.reactor.response import Adjusted, EventOutcome
from mooring.agent.reactor.synchronize import synchronize
from mooring.agent.state import AgentState
from mooring.agent.store import Store
from mooring.engine.core.bits import list_text
from mooring.engine.core.config import MooringConfig
from mooring.engine.core.pod import Container, Pod

RUNNING = 250
EXCLUSIVE = 40
"""Of them, with 4 CPUs each on a machine of 256; the others share."""


def sandbox(uid: str) -> PodSandbox:
    return PodSandbox(f"sandbox-{uid}", uid, uid, "default", cgroup_parent=f"/kubepods/pod{uid}")


def container(uid: str, **fields: object) -> RuntimeContainer:
    made = RuntimeContainer(f"{uid}-main", f"sandbox-{uid}", "main", resources=LinuxResources(quota=400_000))
    return replace(made, **fields)  # type: ignore[arg-type]


def busy() -> AgentState:
    config = whole("best-effort", 256)
    state = resume(machine(8), config, MooringConfig(fixed_defects=frozenset({"pod-restart"}))).state
    for number in range(RUNNING):
        uid = f"pod{number}"
        asked = pod(uid) if number < EXCLUSIVE else Pod(uid, uid, containers=(Container("main"),))
        made = create_container(state, sandbox(uid), container(uid), asked)
        assert isinstance(made.answer, Adjusted)
        record = made.answer.adjustment.resources
        state = made.state
        for event in (Event.POST_CREATE_CONTAINER, Event.START_CONTAINER, Event.POST_START_CONTAINER):
            state = state_change(state, event, sandbox(uid), container(uid, pid=9, resources=record)).state
    return state


@pytest.fixture(scope="module")
def state() -> AgentState:
    return busy()


def test_create_exclusive_container_and_move_210_shared_ones(benchmark: BenchmarkFixture, state: AgentState) -> None:
    made: EventOutcome = benchmark(create_container, state, sandbox("asked"), container("asked"), pod("asked"))
    assert isinstance(made.answer, Adjusted)
    assert len(made.answer.updates) == RUNNING - EXCLUSIVE


def test_create_shared_container(benchmark: BenchmarkFixture, state: AgentState) -> None:
    asked = Pod("asked", "asked", containers=(Container("main"),))
    made: EventOutcome = benchmark(create_container, state, sandbox("asked"), container("asked"), asked)
    assert isinstance(made.answer, Adjusted)


def test_refuse_a_pod_again(benchmark: BenchmarkFixture, state: AgentState) -> None:
    refused = create_container(state, sandbox("asked"), container("asked"), pod("asked", 200)).state
    made: EventOutcome = benchmark(create_container, refused, sandbox("asked"), container("asked"), pod("asked", 200))
    assert made.effects == ()


def test_journal_text(benchmark: BenchmarkFixture, state: AgentState) -> None:
    writer = JournalWriter()
    writer.text(state)
    assert benchmark(writer.text, state)


def test_write_the_folder(benchmark: BenchmarkFixture, state: AgentState, tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert benchmark(store.write, state) == ""


def test_expected_cpusets(benchmark: BenchmarkFixture, state: AgentState) -> None:
    assert len(benchmark(expected, state)) == RUNNING


def test_reconcile_after_a_restart(benchmark: BenchmarkFixture, state: AgentState) -> None:
    kubelet = state.kubelet
    stored = Stored(kubelet.files, kubelet.node.active)
    wanted = expected(state)
    listed = [
        container(
            one.uid,
            state=ContainerState.RUNNING,
            pid=9,
            resources=LinuxResources(cpus=str(wanted[one.id].cpus), mems=list_text(wanted[one.id].mems), quota=-1),
        )
        for one in state.containers.values()
    ]
    sandboxes = [sandbox(one.uid) for one in state.containers.values()]

    def again() -> EventOutcome:
        begun = resume(kubelet.info, kubelet.settings.config, kubelet.mooring, stored).state
        return synchronize(begun, sandboxes, listed, {})

    made = benchmark(again)
    assert made.state.kubelet.files == kubelet.files
