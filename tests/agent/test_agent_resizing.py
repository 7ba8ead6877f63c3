"""Resizes of running containers: what single updates come to on a node of 8 CPUs, of which CPU 0 is reserved."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.agent import small_node as small
from tests.agent.small_node import (
    CONFIG,
    DELAYING,
    EXTENDED,
    GIB,
    LATE,
    RESIZING,
    START,
    container,
    create,
    effects_of,
    ended,
    findings,
    guaranteed,
    resizable,
    running,
    sandbox,
    shared,
    sizes,
    started,
    stored,
    writes,
)

from mooring.agent.effects import ClusterEvent, LiftQuota, Persist, ReportKind, ResizeAnswered
from mooring.agent.nri.types import ContainerState, Event, LinuxResources, PodSandbox, RuntimeContainer
from mooring.agent.reactor.hotplug import cpus_changed
from mooring.agent.reactor.lifecycle import state_change, stop_container
from mooring.agent.reactor.recovery import Stored
from mooring.agent.reactor.response import Accepted, EventOutcome, Refused, unwritten
from mooring.agent.reactor.synchronize import synchronize
from mooring.agent.reactor.update_container import is_due, reclaiming_writes, released, update_container
from mooring.agent.reload import with_configuration
from mooring.agent.state import AgentState, LastSeen, Options
from mooring.engine.core.bits import list_text
from mooring.engine.core.config import CPU_HOTPLUG, KubeletConfig
from mooring.engine.core.moment import SECOND, Moment
from mooring.engine.core.pod import Container as PodContainer
from mooring.engine.core.pod import Pod, QoS
from mooring.service.agent_configuration import AgentConfiguration

SOON = START.plus(SECOND)


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
    return {one.container_id: one.resources for one in small.updates_of(outcome)}


def answers(outcome: EventOutcome) -> list[str]:
    return [effect.result for effect in effects_of(outcome, ResizeAnswered)]


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


STRICT = replace(DELAYING, cpu_manager_policy_options={"strict-cpu-reservation": "true"})


def test_a_container_grows_at_once_and_the_shared_pool_makes_room_in_the_same_reply() -> None:
    found = update(two(), "a", sizes(4))
    assert updates(found) == {
        "a-main-0": LinuxResources(cpus="1-4", quota=-1),
        "s-main-0": LinuxResources(cpus="0,5-7"),
    }
    assert answers(found) == ["accepted"]
    assert isinstance(found.effects[0], Persist)
    assert [str(one.requests["cpu"]) for one in found.state.kubelet.node.active["a"].containers] == ["4"]
    assert [one.cgroup for one in effects_of(found, LiftQuota)] == ["/pods/a", "/s"]


def test_a_growth_that_would_empty_the_shared_pool_under_its_users_is_refused() -> None:
    state = two(resizable(STRICT))
    found = update(state, "a", sizes(7))
    assert small.refusal_of(found) == (
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


def test_a_release_is_due_when_its_delay_is_over_and_not_before() -> None:
    state = shrinking()
    early = LATE.plus(-1)
    for now in (early, Moment(LATE.since_boot * 9, "boot-2"), Moment(0, "boot-1")):
        assert not is_due(state, now), "neither another boot nor a clock that stands releases anything"
    assert is_due(state, LATE)
    assert released(state, early).state.kubelet is state.kubelet


def test_cpus_are_taken_from_the_container_before_others_get_them() -> None:
    state = shrinking()
    assert reclaiming_writes(state, LATE) == {("a", "main"): (small.cpuset_write("a-main-0", 99, "", "1-2", "0"),)}
    found = released(state, LATE)
    assert dict(writes(found)) == {"a": "1-2", "s": "0,3-7"}
    assert isinstance(found.effects[0], Persist)
    assert (cpus(found.state, "a"), pending(found.state, "a")) == (0b110, {})
    # The runtime hears of it with the next reply.
    reply = update(found.state, "s", LinuxResources(shares=4))
    assert updates(reply) == {"s-main-0": LinuxResources(cpus="0,3-7"), "a-main-0": LinuxResources(cpus="1-2")}


# Refusals.


def test_below_its_first_cpus_a_container_does_not_go_and_everything_stays() -> None:
    state = two()
    found = update(state, "a", sizes(1))
    assert small.refusal_of(found).startswith(
        "Infeasible: prohibitedCPUAllocation Error: Skip resize, Not allowed to reduce container exclusively "
        "allocated pool below original, (requested CPUs = 1, allocated CPUs = 2, original CPUs = 2"
    )
    assert answers(found) == ["infeasible"]
    [told] = effects_of(found, ClusterEvent)
    assert (told.reason, told.about.uid) == ("ResizeInfeasible", "a")
    assert found.state.kubelet.node.providers == state.kubelet.node.providers
    assert found.state.containers == state.containers
    assert found.state.kubelet.node.active == state.kubelet.node.active
    # A kubelet that asks again is no news, and a request that is withdrawn is forgotten.
    again = update(found.state, "a", sizes(1), SOON)
    assert (answers(again), effects_of(again, ClusterEvent), effects_of(again, Persist)) == (["infeasible"], [], [])
    assert "a" in again.state.kubelet.node.waiting
    assert "a" not in update(again.state, "a", sizes(2)).state.kubelet.node.waiting


@pytest.mark.parametrize("gates", [{small.CPU_GATE: True}, {}], ids=["gate", "no-gate"])
def test_without_the_extension_the_cpus_stay_and_nothing_is_refused(gates: dict[str, bool]) -> None:
    state = two(resizable(replace(CONFIG, feature_gates=gates), mooring=replace(EXTENDED, extensions=frozenset())))
    for wanted in (1, 4, 100):
        found = update(state, "a", sizes(wanted))
        assert updates(found)["a-main-0"] == LinuxResources(quota=-1), "what is on record stays"
        assert found.state.kubelet is state.kubelet


def test_sizes_of_pods_without_cpus_of_their_own_are_taken_as_they_are() -> None:
    containers = (PodContainer("main", requests=small.amounts("1")),)
    state = started(resizable(), Pod("b", "b", containers=containers, qos=QoS.BURSTABLE))
    found = update(state, "b", LinuxResources(shares=3072, quota=0, period=100_000))
    assert updates(found) == {}
    assert str(found.state.kubelet.node.active["b"].containers[0].requests["cpu"]) == "3"


def test_memory_grows_over_further_nodes_and_never_shrinks() -> None:
    found = update(two(), "a", sizes(2, 5 * GIB))
    assert updates(found)["a-main-0"].mems == "0,1"
    refused = update(found.state, "a", sizes(2, GIB))
    assert "Not allowed to reduce container exclusively allocated memory" in small.refusal_of(refused)


def test_while_the_folder_cannot_be_written_a_growth_is_refused_where_creations_are() -> None:
    state = two(resizable(options=Options(place_while_unwritable=False)))
    grown = update(state, "a", sizes(4))
    assert isinstance(unwritten(state, grown, "a", "full").answer, Refused)
    assert isinstance(unwritten(grown.state, update(grown.state, "a", sizes(2)), "a", "full").answer, Accepted)


# CPUs that are released at once are for those that wait.


def test_a_container_that_runs_unplaced_gets_cpus_that_a_resize_releases_in_the_same_reply() -> None:
    state = update(started(resizable(RESIZING), guaranteed("a", "2")), "a", sizes(6)).state
    live = [listed(state, "a", 6), running("w", cpus="0,7", mems="0")]
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
    return create(state, guaranteed("a", str(cpus)), life=1)


@pytest.mark.parametrize(("count", "answered"), [(1, ["infeasible"]), (2, [])], ids=["forbidden", "the-old-size"])
def test_one_that_may_not_have_its_new_size_starts_with_what_it_had(count: int, answered: list[str]) -> None:
    found = made_again(two(), count)
    assert (small.adjustment_of(found).resources.cpus, answers(found)) == ("1-2", answered)


@pytest.mark.parametrize("restarted", [False, True], ids=["removed", "agent-restarted"])
def test_one_whose_last_life_nobody_tells_of_any_more_gets_its_new_size_too(*, restarted: bool) -> None:
    state = stop_container(two(), container("a", pid=99)).state
    state = state_change(state, Event.REMOVE_CONTAINER, sandbox("a"), container("a")).state
    if restarted:
        state = again(state, START).state
    found = create(state, guaranteed("a", "4"), life=1)
    assert (small.adjustment_of(found).resources.cpus, answers(found)) == ("1-4", ["accepted"])


# Restarts of the agent.


def listed(state: AgentState, uid: str, requested: int, name: str = "main") -> RuntimeContainer:
    """Return a container as the runtime lists it: with the sizes of the last update and what is on record."""
    record = state.containers[f"{uid}-{name}-0"].record
    mems = list_text(record.mems) or "0"
    resources = replace(sizes(requested), cpus=str(record.cpus), mems=mems, quota=-1)
    return container(uid, name, state=ContainerState.RUNNING, pid=99, resources=resources)


def again(state: AgentState, now: Moment, **requested: int) -> EventOutcome:
    """Start anew from the journal of a state, and be told what runs: with these sizes, or those of the engine."""
    fresh = resizable(state.kubelet.settings.config, replace(stored(state), last_seen=LastSeen()))
    live = [
        listed(state, one.uid, requested.get(one.uid, cpus(state, one.uid, one.name).bit_count()), one.name)
        if cpus(state, one.uid, one.name)
        else running(one.uid, one.name, str(one.record.cpus))
        for one in state.containers.values()
    ]
    return synchronize(fresh, [*state.sandboxes.values()], live, {}, None, now)


@pytest.mark.parametrize("how", ["restart", "configuration"])
def test_the_nodes_delay_begins_anew_after_a_restart_and_under_another_configuration(how: str) -> None:
    options = AgentConfiguration(kubelet=replace(DELAYING, max_pods=50), mooring=EXTENDED)
    state = shrinking()
    found = again(state, SOON, a=2) if how == "restart" else with_configuration(state, options, SOON)
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
    found = again(graceful(), now, a=2).state
    assert (cpus(found, "a"), pending(found, "a")) == (0b11110, {"main": 0b110})
    assert not is_due(found, due.plus(-1)) or due == now
    assert is_due(found, due)
    assert cpus(released(found, due).state, "a") == 0b110


def test_nothing_is_released_before_the_runtime_has_told_what_runs() -> None:
    fresh = resizable(RESIZING, stored(graceful()))
    assert pending(fresh, "a")
    assert not is_due(fresh, LATE.plus(SECOND))
    assert pending(released(fresh, LATE.plus(SECOND)).state, "a")


def test_a_missed_resize_that_cannot_be_is_reported_and_the_cpus_stay() -> None:
    found = again(two(), SOON, a=1)
    assert (cpus(found.state, "a"), findings(found)) == (0b110, [ReportKind.RESIZE_MISSED])


def test_a_missed_resize_without_room_is_made_up_for_when_a_pod_leaves() -> None:
    state = started(started(resizable(RESIZING), guaranteed("a", "2")), guaranteed("b", "4"))
    found = again(state, SOON, a=4)
    assert cpus(found.state, "a") == 0b110
    left = ended(found.state, "b")
    assert (cpus(left.state, "a"), answers(left), writes(left)) == (0b11110, ["accepted"], [("a", "1-4")])


@pytest.mark.parametrize("order", [1, -1], ids=["left-over-first", "left-over-last"])
def test_a_container_left_over_by_a_restart_of_the_runtime_does_not_resize_its_successor(order: int) -> None:
    state = update(started(resizable(RESIZING), guaranteed("a", "2")), "a", sizes(4)).state
    left = container("a", life=9, state=ContainerState.CREATED, resources=replace(sizes(2), cpus="1-2", quota=-1))
    found = synchronize(state, [sandbox("a")], [left, listed(state, "a", 4)][::order], {}, None, START)
    assert (cpus(found.state, "a"), answers(found)) == (0b11110, [])


@pytest.mark.parametrize("first", small.STARTS)
def test_a_container_that_was_made_with_other_sizes_while_the_agent_was_away_gets_these(first: Event) -> None:
    state = update(started(resizable(RESIZING), guaranteed("a", "2")), "a", sizes(4)).state
    state = synchronize(stop_container(state, container("a")).state, [sandbox("a")], [], {}, None, START).state
    made = container("a", life=1, resources=sizes(2), pid=7)
    told = state_change(state, first, sandbox("a"), made, guaranteed("a", "2"), now=START)
    assert (cpus(told.state, "a"), answers(told)) == (0b110, ["accepted"])


# Resizes that no journal has, because the folder could not be written: after a restart every container stays.


EARLY = LATE.plus(-1)


def two_of_their_own(config: KubeletConfig = DELAYING) -> AgentState:
    """Return a state with ``a`` on CPU 1 and ``b`` on CPUs 2-3."""
    return started(started(resizable(config), guaranteed("a", "1")), guaranteed("b", "2"))


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
    fresh = resizable(written.kubelet.settings.config, stored(written))
    live = [listed(state, uid, count) for uid, count in {**requested, **new}.items()]
    pods = {uid: guaranteed(uid, str(count)) for uid, count in new.items()}
    return synchronize(fresh, [sandbox(uid) for uid in {**requested, **new}], live, pods, None, now)


@pytest.mark.parametrize("config", [DELAYING, RESIZING], ids=["delay", "at-once"])
def test_a_container_that_grew_keeps_the_cpus_that_it_runs_on(config: KubeletConfig) -> None:
    before = two_of_their_own(config)
    without_b = ended(update(before, "a", sizes(3)).state, "b").state
    found = restarted(before, without_b, {"a": 3})
    assert writes(found) == [("a", "1,4-5")]
    assert (cpus(found.state, "a"), pending(found.state, "a"), answers(found)) == (0b110010, {}, ["accepted"])
    assert findings(found) == [ReportKind.POD_GONE, ReportKind.TAKEN_OVER]
    assert found.state.kubelet.node.cpu.baselines["a"] == {"main": 0b10}
    assert not updates(found), "the runtime knows what the disk does not"
    fresh = resizable(config, stored(found.state)).kubelet.node.cpu
    assert fresh.assignments == found.state.kubelet.node.cpu.assignments, "it is in the next journal"
    assert fresh.default == found.state.kubelet.node.cpu.default


def test_a_release_that_was_pending_gets_its_delay() -> None:
    before = two_of_their_own()
    shrinking = update(update(before, "a", sizes(4)).state, "a", sizes(2)).state
    found = restarted(before, shrinking, {"a": 2, "b": 2})
    assert dict(writes(found))["a"] == "1,4-6"
    assert pending(found.state, "a") == pending(shrinking, "a")
    assert cpus(released(found.state, EARLY).state, "a") == 0b1110010
    assert cpus(released(found.state, EARLY.plus(5 * SECOND)).state, "a") == 0b10010


@pytest.mark.parametrize("is_pending", [False, True], ids=["before-the-shrink", "while-its-release-was-pending"])
def test_released_cpus_stay_with_the_container_that_got_them(*, is_pending: bool) -> None:
    """Whatever the journal has: the state from before the shrink, or the release."""
    grown = update(two_of_their_own(), "a", sizes(3)).state
    shrunk = update(grown, "a", sizes(1)).state
    assert pending(shrunk, "a") == {"main": 0b10}
    state = started(released(shrunk, LATE).state, guaranteed("c", "2"))
    assert cpus(state, "c") == 0b110000
    found = restarted(shrunk if is_pending else grown, state, {"a": 1, "b": 2}, LATE, c=2)
    assert dict(writes(found)) == {"a": "1", "b": "2-3", "c": "4-5"}
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
    live = [listed(shrinking, "a", 1), listed(shrinking, "a", 1, "c1")]
    fresh = resizable(RESIZING, stored(shrinking), mooring=mooring)
    found = synchronize(fresh, [sandbox("a")], live, {}, None, EARLY).state
    assert (cpus(found, "a"), pending(found, "a")) == (0b1010, {"main": 0b10})


def test_released_cpus_stay_with_a_container_that_grew_onto_them() -> None:
    before = update(two_of_their_own(), "a", sizes(3)).state
    shrunk = released(update(before, "a", sizes(1)).state, LATE).state
    state = update(shrunk, "b", sizes(4), LATE).state
    assert cpus(state, "b") == 0b111100
    assert dict(writes(restarted(before, state, {"b": 4, "a": 1}, LATE))) == {"a": "1", "b": "2-5"}


@pytest.mark.parametrize("recorded", ["1,3-4", "0-1,4", "4-6", "1,4", ""])
def test_cpus_that_the_engine_would_not_give_are_not_taken_over(recorded: str) -> None:
    state = two_of_their_own()
    odd = replace(listed(state, "a", 3), resources=replace(sizes(3), cpus=recorded, mems="0", quota=-1))
    live = [odd, listed(state, "b", 2)]
    found = synchronize(resizable(stored=stored(state)), [sandbox("a"), sandbox("b")], live, {}, None, EARLY)
    assert ReportKind.TAKEN_OVER not in findings(found)
    assert cpus(found.state, "a") == 0b110010


# Pods that no journal has, and a pod source that is behind a resize.


A = guaranteed("a", "1", "1")


def beside(count: int) -> tuple[AgentState, AgentState]:
    """Grow ``a``, beside which a pod has been; return the state, and the one without that pod."""
    state = update(started(started(resizable(), guaranteed("z", "1")), A), "a", sizes(count)).state
    return state, ended(state, "z").state


def test_a_pod_that_no_journal_has_keeps_cpus_whose_release_is_pending_for_a_full_delay() -> None:
    state = ended(update(beside(4)[0], "a", sizes(2)).state, "z").state
    assert cpus(state, "a") == 0b1110100
    found = synchronize(resizable(), [sandbox("a")], [listed(state, "a", 2)], {"a": A}, None, EARLY)
    assert writes(found) == [("a", "2,4-6")]
    kept = pending(found.state, "a")["main"]
    assert kept.bit_count() == 2
    assert kept & ~cpus(found.state, "a") == 0
    assert cpus(released(found.state, EARLY).state, "a") == 0b1110100
    assert cpus(released(found.state, EARLY.plus(5 * SECOND)).state, "a") == kept


@pytest.mark.parametrize(("recorded", "other"), [("2-5", "2-5"), ("1-7", "")], ids=["with-another", "alone"])
def test_one_that_runs_in_the_shared_pool_takes_nothing_of_it_over(recorded: str, other: str) -> None:
    fresh = resizable(replace(RESIZING, cpu_manager_policy_options={"strict-cpu-reservation": "true"}))
    live = [replace(running("a"), resources=replace(sizes(1), cpus=recorded, mems="0", quota=-1))]
    if other:
        live.append(replace(running("s"), resources=LinuxResources(cpus=other, shares=2)))
    known = {"a": guaranteed("a", "1"), "s": shared("s")}
    found = synchronize(fresh, [sandbox("a"), sandbox("s")][: len(live)], live, known, None, EARLY)
    assert ReportKind.TAKEN_OVER not in findings(found)
    assert cpus(found.state, "a").bit_count() == 1


def test_the_last_cpus_of_the_pool_that_are_online_are_not_taken_over() -> None:
    config = replace(RESIZING, cpu_manager_policy_options={"strict-cpu-reservation": "true"})
    mooring = replace(EXTENDED, extensions=EXTENDED.extensions | {CPU_HOTPLUG})
    state = cpus_changed(resizable(config, mooring=mooring), 0b11100111).state
    live = [replace(running("a", cpus="1-2,5-7", mems="0"), resources=replace(sizes(5), cpus="1-2,5-7", quota=-1))]
    found = synchronize(state, [sandbox("a")], live, {"a": guaranteed("a", "5")}, None, EARLY)
    assert ReportKind.TAKEN_OVER not in findings(found)
    assert cpus(found.state, "a") == 0


def test_all_cpus_but_the_reserved_ones_are_taken_over() -> None:
    live = [replace(running("a"), resources=replace(sizes(7), cpus="1-7", mems="0", quota=-1))]
    found = synchronize(resizable(), [sandbox("a")], live, {"a": guaranteed("a", "7")}, None, EARLY)
    assert ReportKind.TAKEN_OVER in findings(found)
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
