"""Hidden siblings on a live node: they stay with their container through a reconciliation, and go with it."""

from __future__ import annotations

from dataclasses import replace

from tests.agent.small_node import CONFIG, INFO, guaranteed, running, sandbox

from mooring.agent.effects import AgentReport, ReportKind
from mooring.agent.reactor.placing import place
from mooring.agent.reactor.recovery import resume
from mooring.agent.reactor.synchronize import synchronize
from mooring.agent.state import AgentState
from mooring.engine.core.config import MooringConfig
from mooring.engine.core.machineinfo import Core
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.kubelet.start import restart_kubelet
from mooring.inputs.configuration.mooring_config import plugin_choice

HIDE = {"mooring/hide-siblings": "true"}
CORES = tuple(Core(number, (2 * number, 2 * number + 1), 0) for number in range(4))
SMT = replace(INFO, topology=(replace(INFO.topology[0], cores=CORES[:2]), replace(INFO.topology[1], cores=CORES[2:])))
"""Eight CPUs on four cores: 0 and 1 share one, and so on."""


def placed() -> AgentState:
    """Return a state in which pod a has one thread each of two cores, and nobody the others."""
    mooring = MooringConfig(frozenset({"plugins"}), plugins=plugin_choice({"plugins": ["hidden-siblings"]}))
    state = place(resume(SMT, CONFIG, mooring, None, None).state, guaranteed("a", "2", annotations=HIDE)).state
    assert state.kubelet.node.cpu.assignments == {"a": {"main": 0b01010000}, "hidden:a": {"main": 0b10100000}}
    return state


def gone(effects: object) -> list[AgentReport]:
    return [one for one in effects if isinstance(one, AgentReport) and one.finding is ReportKind.POD_GONE]  # type: ignore[attr-defined]


def test_a_reconciliation_keeps_them_while_the_pod_has_a_sandbox() -> None:
    state = placed()
    outcome = synchronize(state, [sandbox("a")], [running("a")], {"a": guaranteed("a", "2", annotations=HIDE)})
    assert outcome.state.kubelet.node.cpu.assignments == state.kubelet.node.cpu.assignments
    assert not gone(outcome.effects)


def test_they_come_back_with_a_pod_that_is_gone_and_are_told_once() -> None:
    outcome = synchronize(placed(), [], [], {})
    assert outcome.state.kubelet.node.cpu.assignments == {}
    assert outcome.state.kubelet.node.cpu.default == 0b11111111
    assert [report.uid for report in gone(outcome.effects)] == ["a"]


def test_an_agent_that_starts_anew_finds_them_in_its_journal() -> None:
    state = placed()
    files = state.kubelet.files
    started = restart_kubelet(state.kubelet)
    assert isinstance(started, Kubelet)
    assert started.files == files
    assert started.node.cpu.assignments == state.kubelet.node.cpu.assignments
