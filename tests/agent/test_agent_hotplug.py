"""CPUs that go offline and come back, in the agent's heart: who is told what, and in which order."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.agent.small_node import CONFIG, INFO, amounts, container, guaranteed, running, sandbox, shared

from mooring.agent.effects import AgentReport, ClusterEvent, Persist, ReturnCPUs, WriteCPUSet
from mooring.agent.journal import JournalWriter, read_journal
from mooring.agent.nri.types import ContainerState, Event, LinuxResources
from mooring.agent.reactor.create_container import create_container
from mooring.agent.reactor.desired import DesiredSettings
from mooring.agent.reactor.hotplug import cpus_changed, is_news
from mooring.agent.reactor.lifecycle import state_change
from mooring.agent.reactor.recovery import Stored, reconfigured, resume
from mooring.agent.reactor.response import Adjusted, EventOutcome
from mooring.agent.reactor.synchronize import synchronize
from mooring.agent.state import AgentState
from mooring.agent.status.snapshot import overlaps
from mooring.engine.core.config import CPU_HOTPLUG, MIXED_CPUS, MooringConfig
from mooring.engine.core.pod import Pod
from mooring.engine.node.isolation import ANNOTATION

ALL = 0xFF
EXTENDED = MooringConfig(frozenset({CPU_HOTPLUG, MIXED_CPUS}), frozenset({"pod-restart"}))
NEVER = replace(EXTENDED, replace_offline="never")


def begun(mooring: MooringConfig = EXTENDED, stored: Stored | None = None) -> AgentState:
    return resume(INFO, CONFIG, mooring, stored).state


def live(state: AgentState, pod: Pod) -> AgentState:
    """Create a container and let it run."""
    made = create_container(state, sandbox(pod.uid), container(pod.uid), pod)
    assert isinstance(made.answer, Adjusted)
    told = container(pod.uid, pid=99, resources=made.answer.adjustment.resources)
    after = made.state
    for event in (Event.POST_CREATE_CONTAINER, Event.START_CONTAINER, Event.POST_START_CONTAINER):
        after = state_change(after, event, sandbox(pod.uid), told).state
    return after


def peopled(mooring: MooringConfig = EXTENDED) -> AgentState:
    """Return a node with ``s`` in the shared pool, listed first, and ``a`` on CPUs 1-2."""
    return live(live(begun(mooring), shared("s")), guaranteed("a", "2"))


def without(*cpus: int) -> int:
    return ALL & ~sum(1 << cpu for cpu in cpus)


def writes(outcome: EventOutcome) -> list[tuple[str, str]]:
    return [(one.container_id[0], str(one.cpus)) for one in outcome.effects if isinstance(one, WriteCPUSet)]


def cpus_of(state: AgentState, uid: str) -> str:
    return str(DesiredSettings.now(state).of(uid, "main").cpus)


def test_what_stands_in_leaves_the_pool_before_its_new_owner_gets_it() -> None:
    found = cpus_changed(peopled(), without(2))
    assert writes(found) == [("s", "0,4-7"), ("a", "1,3")]
    assert isinstance(found.effects[0], Persist)


def test_when_the_cpu_is_back_its_owner_gives_up_the_stand_in_before_the_pool_gets_it() -> None:
    away = cpus_changed(peopled(), without(2)).state
    found = cpus_changed(away, ALL)
    assert writes(found) == [("a", "1-2"), ("s", "0,3-7")]
    [returned] = [one for one in found.effects if isinstance(one, ReturnCPUs)]
    assert str(returned.cpus) == "2"
    assert {one.container_id for one in returned.below} == {"s-main-0", "a-main-0"}
    assert found.effects.index(returned) < min(
        found.effects.index(one) for one in found.effects if isinstance(one, WriteCPUSet)
    )


def test_without_a_stand_in_a_container_runs_on_what_is_left_to_it_and_gets_its_own_back() -> None:
    away = cpus_changed(peopled(NEVER), without(2))
    assert writes(away) == [("a", "1")]
    assert away.state.kubelet.node.cpu.assignments["a"]["main"] == 0b110
    assert writes(cpus_changed(away.state, ALL)) == [("a", "1-2")]


def test_who_lost_all_of_its_cpus_runs_in_the_pool() -> None:
    away = cpus_changed(peopled(NEVER), without(1, 2)).state
    assert cpus_of(away, "a") == "0,3-7"
    assert overlaps(away, {}) == ()


def test_a_cpu_of_the_pool_is_missed_by_those_who_share_and_by_mixed_containers() -> None:
    state = live(peopled(), guaranteed("m", "2", annotations={ANNOTATION: "true"}))
    away = cpus_changed(state, without(7)).state
    assert (cpus_of(away, "s"), cpus_of(away, "m"), cpus_of(away, "a")) == ("0,3,6", "0,3-6", "1-2")


def test_nobody_is_placed_on_a_cpu_that_is_offline() -> None:
    state = live(cpus_changed(peopled(), without(5)).state, guaranteed("b", "3"))
    assert cpus_of(state, "b") == "4,6-7"


def test_what_is_known_changes_nothing_and_neither_do_cpus_that_the_machine_never_had() -> None:
    state = cpus_changed(peopled(), without(7)).state
    for online in (without(7), without(7) | 1 << 40):
        assert not is_news(state, online)
        found = cpus_changed(state, online)
        assert (found.effects, found.state) == ((), state)


def test_without_the_extension_no_cpu_is_missed() -> None:
    plain = live(begun(MooringConfig(fixed_defects=EXTENDED.fixed_defects)), guaranteed("a", "2"))
    assert not is_news(plain, 1)
    assert cpus_changed(plain, 1).effects == ()


def test_the_log_and_the_pod_hear_of_it() -> None:
    away = cpus_changed(peopled(), without(2))
    assert [one.message for one in away.effects if isinstance(one, AgentReport)] == [
        "CPUs 2 went offline; offline are 2",
        "main lost CPUs 2 of 1-2, which are offline; 3 replace them",
    ]
    assert [(one.about.name, one.reason) for one in away.effects if isinstance(one, ClusterEvent)] == [
        ("name-a", "CPUsReplaced")
    ]
    back = cpus_changed(away.state, ALL)
    assert [one.message for one in back.effects if isinstance(one, AgentReport)] == [
        "CPUs 2 came online; all are online",
        "main has all of its CPUs again, 1-2 instead of 1,3",
    ]
    broken = cpus_changed(peopled(NEVER), without(2))
    assert [one.reason for one in broken.effects if isinstance(one, ClusterEvent)] == ["CPUsOffline"]


def test_a_pod_that_ends_leaves_cpus_that_stand_in_for_those_who_lost_theirs() -> None:
    state = live(peopled(), guaranteed("b", "1"))
    assert (cpus_of(state, "a"), cpus_of(state, "b")) == ("1-2", "3")
    away = cpus_changed(state, without(2)).state
    assert cpus_of(away, "a") == "1"
    gone = state_change(away, Event.STOP_POD_SANDBOX, sandbox("b"), None)
    assert cpus_of(gone.state, "a") == "1,3"


# Over restarts.


def stored(state: AgentState) -> Stored:
    journal = read_journal(JournalWriter().text(state))
    return Stored(journal.texts, journal.pods, (), journal.claim_users, journal.offline, journal.displaced)


def test_the_journal_keeps_what_is_offline_and_what_stands_in() -> None:
    away = cpus_changed(peopled(), without(2, 7)).state
    again = begun(stored=stored(away))
    cpu = again.kubelet.node.cpu
    assert (cpu.offline, cpu.displaced) == (0x84, {"a": {2: 3}})
    assert cpu.assignments == away.kubelet.node.cpu.assignments
    assert not is_news(again, without(2, 7))


def test_a_journal_from_before_has_nothing_offline() -> None:
    journal = read_journal(JournalWriter().text(peopled()))
    assert (journal.offline, journal.displaced) == (0, {})
    assert '"offline"' not in JournalWriter().text(peopled())


def test_after_a_restart_with_the_cpu_back_its_owner_has_its_own_again() -> None:
    away = cpus_changed(peopled(), without(2)).state
    again = cpus_changed(begun(stored=stored(away)), ALL).state
    listed = [
        replace(running("a", cpus="1,3", mems="0"), resources=LinuxResources(cpus="1,3", mems="0", quota=-1)),
        running("s", cpus="0,4-7"),
    ]
    found = synchronize(again, [sandbox("a"), sandbox("s")], listed, {"s": shared("s")})
    assert (cpus_of(found.state, "a"), cpus_of(found.state, "s")) == ("1-2", "0,3-7")


def restarted(state: AgentState) -> AgentState:
    """Return the state of a new agent, with the journal and the runtime's record."""
    listed = [
        container(
            uid, state=ContainerState.RUNNING, pid=99, resources=LinuxResources(cpus=cpus_of(state, uid), mems="0")
        )
        for uid in state.kubelet.node.active
    ]
    return synchronize(begun(stored=stored(state)), [*state.sandboxes.values()], listed, {}).state


def overflowing() -> AgentState:
    """Return a state with ``a`` on two CPUs of node 0, which its hint names, and on one of node 1."""
    state = live(live(live(begun(), guaranteed("b", "1")), guaranteed("c", "3")), guaranteed("a", "3"))
    return state_change(state, Event.STOP_POD_SANDBOX, sandbox("c"), None).state


def with_far_memory() -> AgentState:
    """Return a state with ``a`` on two CPUs of node 0, and with memory and the hint of both nodes."""
    pod = guaranteed("a")
    sizes = amounts("2", "5Gi")
    return live(begun(), replace(pod, containers=(replace(pod.containers[0], requests=sizes, limits=sizes),)))


@pytest.mark.parametrize(
    ("state", "hint", "had", "left"),
    [(overflowing(), 0b1, "2-3,7", "4-5,7"), (with_far_memory(), 0b11, "1-2", "1")],
    ids=["cpus-beyond-the-hint", "hint-beyond-the-cpus"],
)
def test_what_replaces_a_lost_cpu_is_the_same_after_a_restart(
    state: AgentState, hint: int, had: str, left: str
) -> None:
    assert state.kubelet.node.stored_hints["a"]["main"].mask == hint
    assert cpus_of(state, "a") == had
    lost = cpus_changed(state, without(2, 3)).state
    assert cpus_of(lost, "a") == left
    assert cpus_of(restarted(lost), "a") == left
    assert cpus_of(cpus_changed(restarted(state), without(2, 3)).state, "a") == left


def test_another_configuration_forgets_nothing_that_is_offline() -> None:
    away = cpus_changed(peopled(), without(2)).state
    found = reconfigured(away, replace(CONFIG, max_pods=50), EXTENDED)
    assert found.state.kubelet.node.cpu.displaced == {"a": {2: 3}}  # type: ignore[union-attr]
    assert found.state.kubelet.node.cpu.offline == 0b100  # type: ignore[union-attr]
    off = reconfigured(away, CONFIG, replace(EXTENDED, extensions=frozenset()))
    assert off.state.kubelet.node.cpu.offline == 0  # type: ignore[union-attr]
