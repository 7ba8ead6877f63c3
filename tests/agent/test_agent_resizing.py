"""Resizes of running containers: what single updates come to on a node of 8 CPUs, of which CPU 0 is reserved."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.agent.small_node import (
    CONFIG,
    CPU_GATE,
    DELAYING,
    EXTENDED,
    GIB,
    LATE,
    RESIZING,
    START,
    adjustment_of,
    amounts,
    container,
    cpuset_write,
    guaranteed,
    refusal_of,
    resizable,
    running,
    sandbox,
    shared,
    sized,
    sizes,
    updates_of,
)

from mooring.agent.effects import AgentReport, ClusterEvent, LiftQuota, Persist, ReportKind, ResizeAnswered, WriteCPUSet
from mooring.agent.journal import (
    JournalWriter,
    read_journal,
)
from mooring.agent.nri.types import ContainerState, Event, LinuxResources, PodSandbox, RuntimeContainer
from mooring.agent.reactor.create_container import create_container
from mooring.agent.reactor.hotplug import cpus_changed
from mooring.agent.reactor.lifecycle import end_sandbox, state_change, stop_container
from mooring.agent.reactor.recovery import Stored
from mooring.agent.reactor.response import Accepted, EventOutcome, Refused, unwritten
from mooring.agent.reactor.synchronize import synchronize
from mooring.agent.reactor.update_container import is_due, reclaiming_writes, released, update_container
from mooring.agent.reload import with_configuration
from mooring.agent.state import AgentState, Options
from mooring.engine.core.bits import list_text
from mooring.engine.core.config import CPU_HOTPLUG, KubeletConfig
from mooring.engine.core.moment import SECOND, Moment
from mooring.engine.core.pod import Container as PodContainer
from mooring.engine.core.pod import Pod, QoS
from mooring.service.agent_configuration import AgentConfiguration

SOON = START.plus(SECOND)


def started(state: AgentState, pod: Pod, name: str = "main") -> AgentState:
    """Return the state with one more container that runs, as a runtime and a kubelet make it."""
    spec = next(one for one in pod.containers if one.name == name)
    limit = spec.limits.get("cpu")
    asked = sizes(limit.milli / 1000) if limit is not None else LinuxResources(shares=2)
    made = create_container(state, sandbox(pod.uid), container(pod.uid, name, resources=asked), pod)
    record = adjustment_of(made).resources
    told = container(
        pod.uid,
        name,
        resources=replace(asked, cpus=record.cpus, mems=record.mems, quota=record.quota or asked.quota),
        pid=99,
    )
    state = made.state
    for event in (Event.POST_CREATE_CONTAINER, Event.START_CONTAINER, Event.POST_START_CONTAINER):
        state = state_change(state, event, sandbox(pod.uid), told).state
    return state


def update(
    state: AgentState,
    uid: str,
    asked: LinuxResources,
    now: Moment = START,
    name: str = "main",
    target: Pod | None = None,
    place: PodSandbox | None = None,
) -> EventOutcome:
    before = state.containers[f"{uid}-{name}-0"].record
    told = container(
        uid, name, pid=99, resources=replace(asked, cpus=str(before.cpus), mems=list_text(before.mems), quota=-1)
    )
    return update_container(state, place or sandbox(uid), told, asked, target, now)


def updates(outcome: EventOutcome) -> dict[str, LinuxResources]:
    return {one.container_id: one.resources for one in updates_of(outcome)}


def answers(outcome: EventOutcome) -> list[str]:
    return [effect.result for effect in outcome.effects if isinstance(effect, ResizeAnswered)]


def cpus(state: AgentState, uid: str, name: str = "main") -> int:
    return state.kubelet.node.cpu.assignments.get(uid, {}).get(name, 0)


def pending(state: AgentState, uid: str) -> dict[str, int]:
    return {name: pre.cpus for name, pre in state.kubelet.node.cpu.pre_assignments.get(uid, {}).items()}


def two(state: AgentState | None = None) -> AgentState:
    """Return a state with ``a`` on CPUs 1-2 and ``s`` in the shared pool."""
    return started(started(state or resizable(), shared("s")), guaranteed("a", "2"))


def shrinking(state: AgentState | None = None) -> AgentState:
    """Return a state with ``a`` on CPUs 1-4, of which it gives back 3-4 five seconds after the start."""
    return update(update(two(state), "a", sizes(4)).state, "a", sizes(2)).state


# Growing.


def test_a_container_grows_at_once_and_the_shared_pool_makes_room_in_the_same_reply() -> None:
    found = update(two(), "a", sizes(4))
    assert updates(found) == {
        "a-main-0": LinuxResources(cpus="1-4", quota=-1),
        "s-main-0": LinuxResources(cpus="0,5-7"),
    }
    assert answers(found) == ["accepted"]
    assert isinstance(found.effects[0], Persist)
    assert [str(one.requests["cpu"]) for one in found.state.kubelet.node.active["a"].containers] == ["4"]


def test_a_growth_that_would_empty_the_shared_pool_under_its_users_is_refused() -> None:
    state = two(resizable(replace(DELAYING, cpu_manager_policy_options={"strict-cpu-reservation": "true"})))
    found = update(state, "a", sizes(7))
    assert found.answer == Refused(
        "Deferred: no CPU is left in the shared pool for containers without CPUs of their own"
    )
    assert found.state.kubelet is state.kubelet


def test_sizes_that_say_nothing_new_are_no_resize() -> None:
    state = two()
    for same in (sizes(2), LinuxResources(shares=0, quota=0), LinuxResources()):
        found = update(state, "a", same)
        assert answers(found) == []
        assert found.state.kubelet is state.kubelet
        assert updates(found)["a-main-0"].cpus == "", "what is on record stays"


# Shrinking.


def test_a_shrink_without_delay_gives_the_cpus_to_the_pool_in_the_same_reply() -> None:
    grown = update(two(resizable(RESIZING)), "a", sizes(4)).state
    found = update(grown, "a", sizes(3))
    assert updates(found) == {
        "a-main-0": LinuxResources(cpus="1-3", quota=-1),
        "s-main-0": LinuxResources(cpus="0,4-7"),
    }


def test_a_shrink_with_a_delay_moves_nobody_and_lifts_the_quota_as_long_as_the_cpus_are_there() -> None:
    grown = update(two(), "a", sizes(4)).state
    found = update(grown, "a", sizes(2))
    assert updates(found) == {"a-main-0": LinuxResources(quota=-1)}
    assert (cpus(found.state, "a"), pending(found.state, "a")) == (0b11110, {"main": 0b110})
    assert found.state.kubelet.node.cpu.default == 0b11100001


def test_a_release_is_due_when_its_delay_is_over_and_not_before() -> None:
    state = shrinking()
    assert not is_due(state, LATE.plus(-1))
    assert is_due(state, LATE)
    assert released(state, LATE.plus(-1)).state.kubelet is state.kubelet


def test_neither_another_boot_nor_a_clock_that_stands_releases_anything() -> None:
    state = shrinking()
    assert not is_due(state, Moment(LATE.since_boot * 9, "boot-2"))
    assert not is_due(state, Moment(0, "boot-1"))


def test_cpus_are_taken_from_the_container_before_others_get_them() -> None:
    state = shrinking()
    assert reclaiming_writes(state, LATE) == {("a", "main"): (cpuset_write("a-main-0", 99, "", "1-2", "0"),)}
    found = released(state, LATE)
    writes = [effect for effect in found.effects if isinstance(effect, WriteCPUSet)]
    assert {one.container_id: str(one.cpus) for one in writes} == {"a-main-0": "1-2", "s-main-0": "0,3-7"}
    assert isinstance(found.effects[0], Persist)
    assert (cpus(found.state, "a"), pending(found.state, "a")) == (0b110, {})


def test_the_runtime_hears_of_a_release_with_the_next_reply() -> None:
    after = released(shrinking(), LATE).state
    found = update(after, "s", LinuxResources(shares=4))
    assert updates(found) == {"s-main-0": LinuxResources(cpus="0,3-7"), "a-main-0": LinuxResources(cpus="1-2")}


def test_cpus_that_cannot_be_taken_back_stay_with_their_container() -> None:
    state = shrinking()
    found = released(state, LATE, {("a", "main")})
    assert (cpus(found.state, "a"), pending(found.state, "a")) == (0b11110, {"main": 0b110})
    assert found.state.kubelet.node.cpu.default == state.kubelet.node.cpu.default


def test_another_pod_does_not_get_cpus_before_they_are_released() -> None:
    state = shrinking()
    wide = guaranteed("b", "4")
    assert isinstance(create_container(state, sandbox("b"), sized("b", 4), wide).answer, Refused)
    late = create_container(released(state, LATE).state, sandbox("b"), sized("b", 4), wide)
    assert adjustment_of(late).resources.cpus == "4-7"


def test_growing_back_before_the_end_drops_the_release() -> None:
    found = update(shrinking(), "a", sizes(4), SOON)
    assert (cpus(found.state, "a"), pending(found.state, "a")) == (0b11110, {})
    assert not is_due(found.state, LATE.plus(SECOND))


def test_another_shrink_begins_a_full_delay() -> None:
    found = update(shrinking(), "a", sizes(3), SOON)
    assert pending(found.state, "a") == {"main": 0b1110}
    assert not is_due(found.state, LATE)
    assert is_due(found.state, LATE.plus(SECOND))


def test_the_call_for_another_resource_leaves_the_delay_alone() -> None:
    found = update(shrinking(), "a", sizes(2, GIB // 2), SOON)
    assert pending(found.state, "a") == {"main": 0b110}
    assert is_due(found.state, LATE)


def test_a_pod_that_ends_takes_its_release_along() -> None:
    found = end_sandbox(shrinking(), sandbox("a"))
    assert pending(found.state, "a") == {}
    assert found.state.kubelet.node.cpu.default == 0b11111111
    assert not is_due(found.state, LATE)


def test_a_pods_own_delay_wins_over_the_nodes() -> None:
    pod = replace(guaranteed("a", "2"), scale_down_grace=9)
    grown = update(started(resizable(), pod), "a", sizes(4)).state
    state = update(grown, "a", sizes(2)).state
    assert not is_due(state, START.plus(9 * SECOND - 1))
    assert is_due(state, START.plus(9 * SECOND))


# Refusals.


def test_below_its_first_cpus_a_container_does_not_go_and_everything_stays() -> None:
    state = two()
    found = update(state, "a", sizes(1))
    assert refusal_of(found).startswith(
        "Infeasible: prohibitedCPUAllocation Error: Skip resize, Not allowed to reduce container exclusively "
        "allocated pool below original, (requested CPUs = 1, allocated CPUs = 2, original CPUs = 2"
    )
    assert answers(found) == ["infeasible"]
    [told] = [effect for effect in found.effects if isinstance(effect, ClusterEvent)]
    assert (told.reason, told.about.uid) == ("ResizeInfeasible", "a")
    assert found.state.kubelet.node.providers == state.kubelet.node.providers
    assert found.state.containers == state.containers
    assert found.state.kubelet.node.active == state.kubelet.node.active


def test_a_kubelet_that_asks_again_is_refused_again_and_that_is_no_news() -> None:
    once = update(two(), "a", sizes(1)).state
    again = update(once, "a", sizes(1), SOON)
    assert isinstance(again.answer, Refused)
    assert [effect for effect in again.effects if isinstance(effect, ClusterEvent | Persist)] == []
    assert answers(again) == ["infeasible"]


def test_a_request_that_is_withdrawn_is_forgotten() -> None:
    once = update(two(), "a", sizes(1)).state
    assert "a" in once.kubelet.node.waiting
    assert "a" not in update(once, "a", sizes(2)).state.kubelet.node.waiting


def test_a_refused_resize_of_one_container_leaves_the_others_release_alone() -> None:
    pod = guaranteed("a", "1", "1")
    state = started(started(resizable(), pod), pod, "c1")
    state = update(state, "a", sizes(2)).state
    state = update(state, "a", sizes(1)).state
    assert list(pending(state, "a")) == ["main"]
    found = update(state, "a", sizes(7), SOON, name="c1")
    assert isinstance(found.answer, Refused)
    assert found.state.kubelet.node.providers == state.kubelet.node.providers


@pytest.mark.parametrize("gates", [{CPU_GATE: True}, {}], ids=["gate", "no-gate"])
def test_without_the_extension_the_cpus_stay_and_nothing_is_refused(gates: dict[str, bool]) -> None:
    state = two(resizable(replace(CONFIG, feature_gates=gates), mooring=replace(EXTENDED, extensions=frozenset())))
    for wanted in (1, 4, 100):
        found = update(state, "a", sizes(wanted))
        assert updates(found)["a-main-0"] == LinuxResources(quota=-1), "what is on record stays"
        assert found.state.kubelet is state.kubelet


def test_sizes_of_pods_without_cpus_of_their_own_are_taken_as_they_are() -> None:
    burstable = Pod("b", "b", containers=(PodContainer("main", requests=amounts("1")),), qos=QoS.BURSTABLE)
    state = started(resizable(), burstable)
    found = update(state, "b", LinuxResources(shares=3072, quota=0, period=100_000))
    assert updates(found) == {}
    assert str(found.state.kubelet.node.active["b"].containers[0].requests["cpu"]) == "3"


def test_what_the_api_server_says_is_taken_word_for_word_where_it_agrees() -> None:
    target = guaranteed("a", "4000m")
    assert str(update(two(), "a", sizes(4), target=target).state.kubelet.node.active["a"].containers[0].requests["cpu"])
    other = update(two(), "a", sizes(3), target=target).state.kubelet.node.active["a"].containers[0]
    assert other.requests["cpu"].milli == 3000


def test_memory_grows_over_further_nodes_and_never_shrinks() -> None:
    found = update(two(), "a", sizes(2, 5 * GIB))
    assert updates(found)["a-main-0"].mems == "0,1"
    refused = update(found.state, "a", sizes(2, GIB))
    assert "Not allowed to reduce container exclusively allocated memory" in refusal_of(refused)


def test_while_the_folder_cannot_be_written_a_growth_is_refused_where_creations_are() -> None:
    state = two(resizable(options=Options(place_while_unwritable=False)))
    grown = update(state, "a", sizes(4))
    assert isinstance(unwritten(state, grown, "a", "full").answer, Refused)
    assert isinstance(unwritten(grown.state, update(grown.state, "a", sizes(2)), "a", "full").answer, Accepted)


# CPUs that are released at once are for those that wait.


def test_a_container_that_runs_unplaced_gets_cpus_that_a_resize_releases_in_the_same_reply() -> None:
    state = update(started(resizable(RESIZING), guaranteed("a", "2")), "a", sizes(6)).state
    record = replace(sizes(6), cpus="1-6", mems="0", quota=-1)
    live = [running("a", cpus="1-6", mems="0"), running("w", cpus="0,7", mems="0")]
    live[0] = replace(live[0], resources=record)
    waiting = synchronize(state, [sandbox("a"), sandbox("w")], live, {"w": guaranteed("w", "2")}).state
    assert (cpus(waiting, "w"), [*waiting.held]) == (0, ["w"])
    shrunk = update(waiting, "a", sizes(4))
    assert (cpus(shrunk.state, "w").bit_count(), [*shrunk.state.held]) == (2, [])
    assert updates(shrunk)["w-main-0"].cpus == list_text(cpus(shrunk.state, "w"))


def test_a_container_that_lost_an_offline_cpu_gets_one_that_its_own_resize_releases() -> None:
    mooring = replace(EXTENDED, extensions=EXTENDED.extensions | {CPU_HOTPLUG})
    state = update(started(resizable(RESIZING, mooring=mooring), guaranteed("a", "1")), "a", sizes(3)).state
    lost = cpus_changed(state, 0b11111101).state
    assert (cpus(lost, "a"), lost.kubelet.node.cpu.offline) == (0b1110, 0b10)
    assert cpus(update(lost, "a", sizes(2)).state, "a") == 0b1100


# A container that is made again, as with resizePolicy RestartContainer.


def made_again(state: AgentState, cpus: int) -> EventOutcome:
    state = stop_container(state, container("a", pid=99)).state
    return create_container(
        state, sandbox("a"), container("a", life=1, resources=sizes(cpus)), guaranteed("a", str(cpus)), None, START
    )


def test_a_container_that_is_made_again_larger_keeps_its_cpus_and_gets_more() -> None:
    found = made_again(two(), 4)
    assert adjustment_of(found).resources == LinuxResources(cpus="1-4", mems="0", quota=-1)
    assert [one.resources.cpus for one in updates_of(found) if one.container_id == "s-main-0"] == ["0,5-7"]


def test_one_that_may_not_have_its_new_size_starts_with_what_it_had() -> None:
    found = made_again(two(), 1)
    assert adjustment_of(found).resources.cpus == "1-2"
    assert answers(found) == ["infeasible"]


def test_one_of_the_old_size_is_no_resize() -> None:
    assert answers(made_again(two(), 2)) == []


@pytest.mark.parametrize("restarted", [False, True], ids=["removed", "agent-restarted"])
def test_one_whose_last_life_nobody_tells_of_any_more_gets_its_new_size_too(*, restarted: bool) -> None:
    state = stop_container(two(), container("a", pid=99)).state
    state = state_change(state, Event.REMOVE_CONTAINER, sandbox("a"), container("a")).state
    if restarted:
        state = again(state, START).state
    larger = container("a", life=1, resources=sizes(4))
    found = create_container(state, sandbox("a"), larger, guaranteed("a", "4"), None, START)
    assert (adjustment_of(found).resources.cpus, answers(found)) == ("1-4", ["accepted"])


# Restarts of the agent.


def again(state: AgentState, now: Moment, *, sizes_of: dict[str, LinuxResources] | None = None) -> EventOutcome:
    """Start anew from the journal of a state, and be told what runs."""
    journal = read_journal(JournalWriter().text(state))
    fresh = resizable(state.kubelet.settings.config, Stored(journal.texts, journal.pods))
    live = [
        replace(
            running(one.uid, one.name, str(one.record.cpus), list_text(one.record.mems)),
            resources=(sizes_of or {}).get(
                one.uid,
                replace(
                    sizes(2) if one.uid == "a" else one.asked,
                    cpus=str(one.record.cpus),
                    mems=list_text(one.record.mems),
                ),
            ),
        )
        for one in state.containers.values()
    ]
    return synchronize(fresh, [*state.sandboxes.values()], live, {}, None, now)


def test_the_nodes_delay_begins_anew_after_a_restart() -> None:
    found = again(shrinking(), SOON)
    assert (cpus(found.state, "a"), pending(found.state, "a")) == (0b11110, {"main": 0b110})
    assert not is_due(found.state, LATE)
    assert is_due(found.state, LATE.plus(SECOND))


def graceful() -> AgentState:
    """Return a state with ``a`` on CPUs 1-4, of which it gives back 3-4, with the pod's own delay."""
    pod = replace(guaranteed("a", "2"), scale_down_grace=5)
    return update(update(started(resizable(RESIZING), pod), "a", sizes(4)).state, "a", sizes(2)).state


@pytest.mark.parametrize(
    ("now", "due"),
    [(SOON, LATE), (LATE.plus(SECOND), LATE.plus(SECOND)), (Moment(SECOND, "boot-2"), Moment(6 * SECOND, "boot-2"))],
    ids=["goes-on", "is-over", "another-boot"],
)
def test_the_pods_delay_goes_on_after_a_restart_and_anew_after_a_boot(now: Moment, due: Moment) -> None:
    found = again(graceful(), now)
    assert (cpus(found.state, "a"), pending(found.state, "a")) == (0b11110, {"main": 0b110})
    assert not is_due(found.state, due.plus(-1)) or due == now
    assert is_due(found.state, due)
    assert cpus(released(found.state, due).state, "a") == 0b110


def test_nothing_is_released_before_the_runtime_has_told_what_runs() -> None:
    state = graceful()
    journal = read_journal(JournalWriter().text(state))
    fresh = resizable(RESIZING, Stored(journal.texts, journal.pods))
    assert pending(fresh, "a")
    assert not is_due(fresh, LATE.plus(SECOND))
    assert pending(released(fresh, LATE.plus(SECOND)).state, "a")


def test_a_resize_while_the_agent_was_away_is_made_up_for() -> None:
    found = again(two(), SOON, sizes_of={"a": replace(sizes(4), cpus="1-2", mems="0", quota=-1)})
    assert updates(found)["a-main-0"].cpus == "1-4"
    assert cpus(found.state, "a") == 0b11110


def test_a_missed_resize_that_cannot_be_is_reported_and_the_cpus_stay() -> None:
    found = again(two(), SOON, sizes_of={"a": replace(sizes(1), cpus="1-2", mems="0", quota=-1)})
    assert cpus(found.state, "a") == 0b110
    reports = [effect for effect in found.effects if isinstance(effect, AgentReport)]
    assert [one.finding for one in reports] == [ReportKind.RESIZE_MISSED]


def test_a_missed_resize_without_room_is_made_up_for_when_a_pod_leaves() -> None:
    state = started(started(resizable(RESIZING), guaranteed("a", "2")), guaranteed("b", "4"))
    found = again(
        state,
        SOON,
        sizes_of={
            "a": replace(sizes(4), cpus="1-2", mems="0", quota=-1),
            "b": replace(sizes(4), cpus="3-6", mems="0", quota=-1),
        },
    )
    assert cpus(found.state, "a") == 0b110
    left = end_sandbox(found.state, sandbox("b"))
    assert cpus(left.state, "a") == 0b11110
    assert answers(left) == ["accepted"]
    assert [str(one.cpus) for one in left.effects if isinstance(one, WriteCPUSet)] == ["1-4"]


@pytest.mark.parametrize("order", [1, -1], ids=["left-over-first", "left-over-last"])
def test_a_container_left_over_by_a_restart_of_the_runtime_does_not_resize_its_successor(order: int) -> None:
    state = update(started(resizable(RESIZING), guaranteed("a", "2")), "a", sizes(4)).state
    resources = replace(sizes(4), cpus="1-4", quota=-1)
    runs = container("a", state=ContainerState.RUNNING, pid=99, resources=resources)
    left = container("a", life=9, state=ContainerState.CREATED, resources=replace(sizes(2), cpus="1-2", quota=-1))
    found = synchronize(state, [sandbox("a")], [left, runs][::order], {}, None, START)
    assert cpus(found.state, "a") == 0b11110
    assert not [effect for effect in found.effects if isinstance(effect, ResizeAnswered)]


@pytest.mark.parametrize("first", [Event.POST_CREATE_CONTAINER, Event.START_CONTAINER, Event.POST_START_CONTAINER])
def test_a_container_that_was_made_with_other_sizes_while_the_agent_was_away_gets_these(first: Event) -> None:
    state = update(started(resizable(RESIZING), guaranteed("a", "2")), "a", sizes(4)).state
    state = synchronize(stop_container(state, container("a")).state, [sandbox("a")], [], {}, None, START).state
    made = container("a", life=1, resources=sizes(2), pid=7)
    told = state_change(state, first, sandbox("a"), made, guaranteed("a", "2"), now=START)
    assert cpus(told.state, "a") == 0b110
    assert [effect.result for effect in told.effects if isinstance(effect, ResizeAnswered)] == ["accepted"]


def test_under_another_configuration_the_nodes_delay_begins_anew() -> None:
    state = shrinking()
    options = AgentConfiguration(kubelet=replace(DELAYING, max_pods=50), mooring=EXTENDED)
    found = with_configuration(state, options, SOON)
    assert (cpus(found.state, "a"), pending(found.state, "a")) == (0b11110, {"main": 0b110})
    assert not is_due(found.state, LATE)
    assert is_due(found.state, LATE.plus(SECOND))


def test_quotas_of_pod_and_sandbox_are_lifted_again_after_a_resize() -> None:
    lifts = [effect for effect in update(two(), "a", sizes(4)).effects if isinstance(effect, LiftQuota)]
    assert [one.cgroup for one in lifts] == ["/pods/a", "/s"]


# Resizes that no journal has, because the folder could not be written: after a restart every container stays.


EARLY = LATE.plus(-1)


def two_of_their_own(config: KubeletConfig = DELAYING) -> AgentState:
    """Return a state with ``a`` on CPU 1 and ``b`` on CPUs 2-3."""
    return started(started(resizable(config), guaranteed("a", "1")), guaranteed("b", "2"))


def listed(state: AgentState, uid: str, requested: int) -> RuntimeContainer:
    """Return a container as the runtime lists it: with the sizes of the last update and what is on record."""
    record = state.containers[f"{uid}-main-0"].record
    resources = replace(sizes(requested), cpus=str(record.cpus), mems="0", quota=-1)
    return container(uid, state=ContainerState.RUNNING, pid=99, resources=resources)


def restarted(
    written: AgentState, state: AgentState, requested: dict[str, int], now: Moment = EARLY, **new: int
) -> EventOutcome:
    """Restart the agent from the journal of an earlier state.

    Args:
        written: the last that the disk took.
        state: what the agent knew when it ended.
        requested: CPUs by pod.
        now: the moment of the restart.
        new: pods that the journal does not have, with their CPUs.
    """
    journal = read_journal(JournalWriter().text(written))
    stored = Stored(journal.texts, journal.pods, last_seen=journal.last_seen)
    fresh = resizable(written.kubelet.settings.config, stored)
    live = [listed(state, uid, count) for uid, count in {**requested, **new}.items()]
    pods = {uid: guaranteed(uid, str(count)) for uid, count in new.items()}
    return synchronize(fresh, [sandbox(uid) for uid in {**requested, **new}], live, pods, None, now)


def written_cpus(outcome: EventOutcome) -> dict[str, str]:
    return {one.container_id[0]: str(one.cpus) for one in outcome.effects if isinstance(one, WriteCPUSet)}


def reports(outcome: EventOutcome) -> list[ReportKind]:
    return [one.finding for one in outcome.effects if isinstance(one, AgentReport)]


@pytest.mark.parametrize("config", [DELAYING, RESIZING], ids=["delay", "at-once"])
def test_a_container_that_grew_keeps_the_cpus_that_it_runs_on(config: KubeletConfig) -> None:
    before = two_of_their_own(config)
    grown = update(before, "a", sizes(3)).state
    assert cpus(grown, "a") == 0b110010
    without_b = end_sandbox(grown, sandbox("b")).state
    found = restarted(before, without_b, {"a": 3})
    assert written_cpus(found) == {"a": "1,4-5"}
    assert (cpus(found.state, "a"), pending(found.state, "a"), answers(found)) == (0b110010, {}, ["accepted"])
    assert reports(found) == [ReportKind.POD_GONE, ReportKind.TAKEN_OVER]
    assert found.state.kubelet.node.cpu.baselines["a"] == {"main": 0b10}
    assert not updates_of(found), "the runtime knows what the disk does not"


def test_what_was_recovered_is_in_the_next_journal() -> None:
    before = two_of_their_own()
    grown = update(before, "a", sizes(3)).state
    found = restarted(before, grown, {"a": 3, "b": 2}).state
    journal = read_journal(JournalWriter().text(found))
    fresh = resizable(stored=Stored(journal.texts, journal.pods))
    assert fresh.kubelet.node.cpu.assignments == found.kubelet.node.cpu.assignments
    assert fresh.kubelet.node.cpu.default == found.kubelet.node.cpu.default


def test_a_release_that_was_pending_gets_its_delay() -> None:
    before = two_of_their_own()
    shrinking = update(update(before, "a", sizes(4)).state, "a", sizes(2)).state
    found = restarted(before, shrinking, {"a": 2, "b": 2})
    assert written_cpus(found)["a"] == "1,4-6"
    assert pending(found.state, "a") == pending(shrinking, "a")
    assert cpus(released(found.state, EARLY).state, "a") == 0b1110010
    assert cpus(released(found.state, EARLY.plus(5 * SECOND)).state, "a") == 0b10010


def test_released_cpus_stay_with_the_container_that_got_them() -> None:
    before = update(two_of_their_own(), "a", sizes(3)).state
    shrunk = released(update(before, "a", sizes(1)).state, LATE).state
    state = started(shrunk, guaranteed("c", "2"))
    assert cpus(state, "c") == 0b110000
    found = restarted(before, state, {"a": 1, "b": 2}, LATE, c=2)
    assert written_cpus(found) == {"a": "1", "b": "2-3", "c": "4-5"}


def test_cpus_whose_delay_ended_after_the_journal_stay_with_the_container_that_got_them() -> None:
    before = update(update(two_of_their_own(), "a", sizes(3)).state, "a", sizes(1)).state
    assert pending(before, "a") == {"main": 0b10}
    state = started(released(before, LATE).state, guaranteed("c", "2"))
    assert cpus(state, "c") == 0b110000
    found = restarted(before, state, {"a": 1, "b": 2}, LATE, c=2)
    assert written_cpus(found) == {"a": "1", "b": "2-3", "c": "4-5"}
    assert pending(found.state, "a") == {}


def test_a_growth_that_is_taken_up_again_leaves_the_shared_pool_a_cpu() -> None:
    """The journal is damaged; the state file has six CPUs, the pod was granted seven, and the pool has one."""
    config = replace(RESIZING, cpu_manager_policy_options={"strict-cpu-reservation": "true"})
    written = started(started(resizable(config), shared("s")), guaranteed("a", "6"))
    live = [listed(written, "a", 7), running("s", cpus="3")]
    pods = {"a": guaranteed("a", "7"), "s": shared("s")}
    fresh = resizable(config, Stored(written.kubelet.files))
    found = synchronize(fresh, [sandbox("a"), sandbox("s")], live, pods, None, EARLY).state
    assert (cpus(found, "a"), found.kubelet.node.cpu.default) == (0b11110110, 0b1000)


def test_an_offline_cpu_that_is_to_be_released_is_no_release_that_has_ended() -> None:
    mooring = replace(EXTENDED, extensions=EXTENDED.extensions | {CPU_HOTPLUG})
    held = replace(guaranteed("a", "1", "1"), scale_down_grace=5)
    first = started(started(resizable(RESIZING, mooring=mooring), held), held, "c1")
    grown = update(first, "a", sizes(2)).state
    shrinking = update(cpus_changed(grown, 0b11110111).state, "a", sizes(1)).state
    assert (cpus(shrinking, "a"), pending(shrinking, "a")) == (0b1010, {"main": 0b10})
    journal = read_journal(JournalWriter().text(shrinking))
    stored = Stored(journal.texts, journal.pods, offline=journal.offline)
    live = [listed(shrinking, "a", 1), replace(listed(shrinking, "a", 1), id="a-c1-0", name="c1")]
    live[1] = replace(live[1], resources=replace(sizes(1), cpus="2", mems="0", quota=-1))
    found = synchronize(resizable(RESIZING, stored, mooring=mooring), [sandbox("a")], live, {}, None, EARLY)
    assert (cpus(found.state, "a"), pending(found.state, "a")) == (0b1010, {"main": 0b10})


def test_released_cpus_stay_with_a_container_that_grew_onto_them() -> None:
    before = update(two_of_their_own(), "a", sizes(3)).state
    shrunk = released(update(before, "a", sizes(1)).state, LATE).state
    state = update(shrunk, "b", sizes(4), LATE).state
    assert cpus(state, "b") == 0b111100
    assert written_cpus(restarted(before, state, {"b": 4, "a": 1}, LATE)) == {"a": "1", "b": "2-5"}


@pytest.mark.parametrize("recorded", ["1,3-4", "0-1,4", "4-6", "1,4", ""])
def test_cpus_that_the_engine_would_not_give_are_not_taken_over(recorded: str) -> None:
    state = two_of_their_own()
    odd = replace(listed(state, "a", 3), resources=replace(sizes(3), cpus=recorded, mems="0", quota=-1))
    journal = read_journal(JournalWriter().text(state))
    fresh = resizable(stored=Stored(journal.texts, journal.pods))
    found = synchronize(fresh, [sandbox("a"), sandbox("b")], [odd, listed(state, "b", 2)], {}, None, EARLY)
    assert ReportKind.TAKEN_OVER not in reports(found)
    assert cpus(found.state, "a") == 0b110010


# Pods that no journal has, and a pod source that is behind a resize.


A = guaranteed("a", "1", "1")


def test_a_pod_that_no_journal_has_keeps_the_cpus_of_a_resize_that_its_source_does_not_know() -> None:
    beside = started(started(resizable(), guaranteed("z", "1")), A)
    state = end_sandbox(update(beside, "a", sizes(3)).state, sandbox("z")).state
    assert cpus(state, "a") == 0b110100
    found = synchronize(resizable(), [sandbox("a")], [listed(state, "a", 3)], {"a": A}, None, EARLY)
    assert written_cpus(found) == {"a": "2,4-5"}
    assert ReportKind.TAKEN_OVER in reports(found)
    assert str(found.state.kubelet.node.active["a"].containers[0].requests["cpu"]) == "3"


def test_a_pod_that_no_journal_has_keeps_cpus_whose_release_is_pending_for_a_full_delay() -> None:
    beside = started(started(resizable(), guaranteed("z", "1")), A)
    shrinking = update(update(beside, "a", sizes(4)).state, "a", sizes(2)).state
    state = end_sandbox(shrinking, sandbox("z")).state
    assert cpus(state, "a") == 0b1110100
    found = synchronize(resizable(), [sandbox("a")], [listed(state, "a", 2)], {"a": A}, None, EARLY)
    assert written_cpus(found) == {"a": "2,4-6"}
    kept = pending(found.state, "a")["main"]
    assert kept.bit_count() == 2
    assert kept & ~cpus(found.state, "a") == 0
    assert cpus(released(found.state, EARLY).state, "a") == 0b1110100
    assert cpus(released(found.state, EARLY.plus(5 * SECOND)).state, "a") == kept


@pytest.mark.parametrize(("recorded", "other"), [("2-5", "2-5"), ("1-7", "")], ids=["with-another", "alone"])
def test_one_that_runs_in_the_shared_pool_takes_nothing_of_it_over(recorded: str, other: str) -> None:
    pool = {"strict-cpu-reservation": "true"}
    fresh = resizable(replace(RESIZING, cpu_manager_policy_options=pool))
    resources = replace(sizes(1), cpus=recorded, mems="0", quota=-1)
    live = [container("a", state=ContainerState.RUNNING, pid=99, resources=resources)]
    if other:
        beside = LinuxResources(cpus=other, shares=2)
        live.append(container("s", state=ContainerState.RUNNING, pid=98, resources=beside))
    known = {"a": guaranteed("a", "1"), "s": shared("s")}
    boxes = [sandbox(one.pod_sandbox_id.split("-")[1]) for one in live]
    found = synchronize(fresh, boxes, live, {one.uid: known[one.uid] for one in boxes}, None, EARLY)
    assert ReportKind.TAKEN_OVER not in reports(found)
    assert cpus(found.state, "a").bit_count() == 1


def test_the_last_cpus_of_the_pool_that_are_online_are_not_taken_over() -> None:
    config = replace(RESIZING, cpu_manager_policy_options={"strict-cpu-reservation": "true"})
    mooring = replace(EXTENDED, extensions=EXTENDED.extensions | {CPU_HOTPLUG})
    state = cpus_changed(resizable(config, mooring=mooring), 0b11100111).state
    live = [replace(running("a", cpus="1-2,5-7", mems="0"), resources=replace(sizes(5), cpus="1-2,5-7", quota=-1))]
    found = synchronize(state, [sandbox("a")], live, {"a": guaranteed("a", "5")}, None, EARLY)
    assert ReportKind.TAKEN_OVER not in reports(found)
    assert cpus(found.state, "a") == 0


def test_all_cpus_but_the_reserved_ones_are_taken_over() -> None:
    live = [replace(running("a"), resources=replace(sizes(7), cpus="1-7", mems="0", quota=-1))]
    found = synchronize(resizable(), [sandbox("a")], live, {"a": guaranteed("a", "7")}, None, EARLY)
    assert ReportKind.TAKEN_OVER in reports(found)
    assert (cpus(found.state, "a"), found.state.kubelet.node.cpu.default) == (0b11111110, 1)


def test_a_container_that_joins_its_pod_takes_no_cpus_of_a_resized_one() -> None:
    """The pod was known from its running containers; now a source names the others too, with sizes from before."""
    state = started(resizable(), guaranteed("a", "1"))
    grown = update(state, "a", sizes(3)).state
    joined = started(grown, A, "c1")
    assert cpus(joined, "a") == cpus(grown, "a")
    assert pending(joined, "a") == {}
    assert cpus(joined, "a", "c1").bit_count() == 1
    assert [str(one.requests["cpu"]) for one in joined.kubelet.node.active["a"].containers] == ["3", "1"]
