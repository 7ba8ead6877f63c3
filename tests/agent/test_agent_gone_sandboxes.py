"""Pods whose sandbox went without a word of the runtime do not keep what they had."""

from __future__ import annotations

from dataclasses import replace

from tests.agent.small_node import container, guaranteed, running, sandbox, shared, small_state

from mooring.agent.nri.types import LinuxResources
from mooring.agent.reactor.container_start import create_container
from mooring.agent.reactor.effects import AgentReport, ReportKind, WriteCPUSet
from mooring.agent.reactor.lifecycle import end_gone_sandboxes
from mooring.agent.reactor.records import as_requested
from mooring.agent.reactor.synchronize import synchronize
from mooring.agent.reactor.values import AgentState
from mooring.core.bits import list_text


def two_pods() -> AgentState:
    """Return a node with a pod of two CPUs and one in the shared pool, both running."""
    boxes = [sandbox("own"), replace(sandbox("other"), cgroups_path="/t")]
    made = [running("own", cpus="1-2"), running("other", cpus="0,3-7")]
    return synchronize(small_state(), boxes, made, {"own": guaranteed("own", "2"), "other": shared("other")}).state


def pool(state: AgentState) -> str:
    return list_text(state.kubelet.node.cpu.default)


def test_a_vanished_sandbox_gives_back_what_its_pod_had_and_widens_the_pool() -> None:
    before = two_pods()
    assert pool(before) == "0,3-7"
    told = end_gone_sandboxes(before, ["sandbox-own-0"])
    assert pool(told.state) == "0-7"
    assert set(told.state.sandboxes) == {"sandbox-other-0"}
    assert [str(effect.cpus) for effect in told.effects if isinstance(effect, WriteCPUSet)] == ["0-7"]
    assert [effect.finding for effect in told.effects if isinstance(effect, AgentReport)] == [ReportKind.POD_GONE]


def test_a_sandbox_that_is_known_no_more_changes_nothing() -> None:
    before = two_pods()
    after = end_gone_sandboxes(before, ["somebody"]).state
    assert (after.kubelet, after.sandboxes, after.containers) == (before.kubelet, before.sandboxes, before.containers)


def test_a_sandbox_in_which_a_container_is_being_made_stays() -> None:
    state = create_container(small_state(), sandbox("a"), container("a"), guaranteed("a", "2")).state
    assert pool(end_gone_sandboxes(state, ["sandbox-a-0"]).state) == "0,3-7"


def test_a_container_is_derived_from_what_its_creation_asked_for() -> None:
    state = create_container(small_state(), sandbox("a"), container("a"), guaranteed("a", "1")).state
    record = container("a", resources=LinuxResources(cpus="1", quota=-1))
    assert as_requested(state, [record])[0].resources == container("a").resources
    stranger = container("b", resources=LinuxResources(quota=-1))
    assert as_requested(state, [stranger]) == [stranger]
