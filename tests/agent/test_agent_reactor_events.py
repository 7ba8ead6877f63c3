"""What single events come to, on a node of 8 CPUs of which CPU 0 is reserved."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from tests.agent.small_node import (
    CONFIG,
    STRICT,
    adjustment_of,
    container,
    cpus,
    cpuset_write,
    guaranteed,
    nodes,
    refusal_of,
    running,
    sandbox,
    shared,
    small_state,
    updates_of,
)

from mooring.agent.cgroups.cpuset import Cpuset
from mooring.agent.cgroups.protocol import CPUSetWritten, written_of
from mooring.agent.effects import (
    AgentReport,
    ClusterEvent,
    Effect,
    Evict,
    LiftQuota,
    Occasion,
    Persist,
    QuotaOf,
    ReportKind,
    Verify,
    WriteCPUSet,
)
from mooring.agent.nri.types import ContainerState, Event, LinuxResources, RuntimeContainer
from mooring.agent.pods.source import CONFIG_SOURCE
from mooring.agent.reactor.containers import requested_containers
from mooring.agent.reactor.create_container import create_container
from mooring.agent.reactor.desired import expected, expected_lifts
from mooring.agent.reactor.hotplug import cpus_changed
from mooring.agent.reactor.lifecycle import (
    correct_deviation,
    correct_quota,
    end_missing_sandboxes,
    needs_pod,
    state_change,
    stop_container,
    writes_done,
)
from mooring.agent.reactor.recovery import Stored, reconfigured, resume
from mooring.agent.reactor.response import Accepted, Adjusted, EventOutcome, Refused, unwritten
from mooring.agent.reactor.synchronize import synchronize, unknown_pods
from mooring.agent.reactor.update_container import update_container
from mooring.agent.reload import with_configuration
from mooring.agent.state import AgentState, Options, Phase
from mooring.engine.core.bits import list_text
from mooring.engine.core.config import CPU_HOTPLUG, KubeletConfig, MooringConfig
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import Endless, Observer, StartRefusal
from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.core.moment import Moment
from mooring.engine.core.pod import ContainerKind, Pod, QoS
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.node import Decision
from mooring.service.agent_configuration import AgentConfiguration
from mooring.service.agent_options import AgentOptions, OnRejection

INIT, APP = ContainerKind.INIT, ContainerKind.APP


def create(state: AgentState, pod: Pod, name: str = "main", life: int = 0) -> EventOutcome:
    return create_container(state, sandbox(pod.uid), container(pod.uid, name, life), pod)


def tell(state: AgentState, event: Event, made: RuntimeContainer, pod: Pod | None = None) -> EventOutcome:
    return state_change(state, event, sandbox(made.pod_sandbox_id.split("-")[1]), made, pod)


def started(state: AgentState, pod: Pod, name: str = "main") -> AgentState:
    """Return the state with one more container that runs."""
    made = create(state, pod, name)
    state, record = made.state, adjustment_of(made).resources
    told = container(pod.uid, name, resources=replace(record, quota=record.quota or 100_000), pid=99)
    for event in (Event.POST_CREATE_CONTAINER, Event.START_CONTAINER, Event.POST_START_CONTAINER):
        state = tell(state, event, told).state
    return state


def kinds(effects: tuple[Effect, ...], kind: type) -> list[Effect]:
    return [effect for effect in effects if isinstance(effect, kind)]


def adjusted(outcome: EventOutcome) -> LinuxResources:
    return adjustment_of(outcome).resources


# Creation.


def test_a_guaranteed_container_gets_its_cpus_its_nodes_and_no_quota() -> None:
    made = create(small_state(), guaranteed("a", "2"))
    assert adjusted(made) == LinuxResources(cpus="1-2", mems="0", quota=-1)


def test_the_quota_of_pod_and_sandbox_is_lifted_before_the_reply() -> None:
    lifts = kinds(create(small_state(), guaranteed("a", "2")).effects, LiftQuota)
    assert lifts == [LiftQuota(QuotaOf.POD, "a", "", 7, "/pods/a"), LiftQuota(QuotaOf.SANDBOX, "a", "", 7, "/s")]


def test_nobody_lifts_quotas_where_the_node_has_none() -> None:
    state = small_state(replace(small_state().kubelet.settings.config, cpu_cfs_quota=False))
    made = create(state, guaranteed("a", "2"))
    assert adjusted(made).quota is None
    assert not kinds(made.effects, LiftQuota)


def test_the_state_is_written_first() -> None:
    made = create(small_state(), guaranteed("a"))
    assert isinstance(made.effects[0], Persist)
    assert made.effects[0].state == made.state


def test_a_shared_container_gets_the_pool_and_keeps_its_quota() -> None:
    assert adjusted(create(small_state(), shared("s"))) == LinuxResources(cpus="0-7")


def test_a_running_container_of_the_shared_pool_is_moved_in_the_same_reply() -> None:
    made = create(started(small_state(), shared("s")), guaranteed("a", "2"))
    [update] = updates_of(made)
    assert (update.container_id, update.resources) == ("s-main-0", LinuxResources(cpus="0,3-7"))


def test_an_update_is_verified_at_the_next_event() -> None:
    made = create(started(small_state(), shared("s")), guaranteed("a", "2"))
    assert not kinds(made.effects, Verify)
    after = tell(made.state, Event.POST_CREATE_CONTAINER, container("a"))
    assert kinds(after.effects, Verify) == [Verify(("s-main-0",))]
    assert not kinds(tell(after.state, Event.START_CONTAINER, container("a", pid=4)).effects, Verify)


def test_a_container_that_is_being_made_is_no_part_of_updates_and_repaired_when_it_starts() -> None:
    state = create(small_state(), shared("s")).state
    made = create(state, guaranteed("a", "2"))
    assert updates_of(made) == ()
    late = tell(made.state, Event.START_CONTAINER, container("s", pid=5, resources=LinuxResources(cpus="0-7")))
    assert kinds(late.effects, WriteCPUSet) == [cpuset_write("s-main-0", 5, "", "0,3-7", "")]


def test_the_record_of_a_repaired_container_follows_with_the_next_reply() -> None:
    state = create(create(small_state(), shared("s")).state, guaranteed("a", "2")).state
    old = container("s", pid=5, resources=LinuxResources(cpus="0-7"))
    state = tell(state, Event.START_CONTAINER, old).state
    after = tell(state, Event.POST_START_CONTAINER, old)
    stop = stop_container(after.state, container("a"))
    assert [update.resources.cpus for update in updates_of(stop)] == ["0,3-7"]


def test_a_message_older_than_the_last_answer_is_not_believed() -> None:
    state = create(started(small_state(), shared("s")), guaranteed("a", "2")).state
    narrow = container("s", pid=5, resources=LinuxResources(cpus="0,3-7"))
    state = tell(state, Event.STOP_POD_SANDBOX, container("a")).state
    told = stop_container(state, container("other"))
    assert [update.resources.cpus for update in updates_of(told)] == ["0-7"]
    state = tell(told.state, Event.POST_START_CONTAINER, narrow).state
    made = create(state, guaranteed("b", "2")).answer
    assert isinstance(made, Adjusted)
    assert [update.resources.cpus for update in made.updates] == ["0,3-7"], "it runs on 0-7, whatever the message said"


def test_a_container_about_to_run_is_told_and_written() -> None:
    state = create(small_state(), shared("s")).state
    state = tell(state, Event.START_CONTAINER, container("s", pid=5, resources=LinuxResources(cpus="0-7"))).state
    made = create(state, guaranteed("a", "2"))
    assert kinds(made.effects, WriteCPUSet) == [cpuset_write("s-main-0", 5, "", "0,3-7", "")]


def test_later_containers_of_a_pod_read_their_place() -> None:
    pod = guaranteed("a", "2", "1")
    first = create(small_state(), pod)
    second = create(first.state, pod, "c1")
    assert (adjusted(first).cpus, adjusted(second).cpus) == ("1-2", "3")
    assert second.state.kubelet.node.cpu is first.state.kubelet.node.cpu


def test_a_container_that_comes_back_keeps_the_place_of_its_pod() -> None:
    pod = guaranteed("a", "2")
    state = started(small_state(), pod)
    state = stop_container(state, container("a")).state
    assert adjusted(create(state, pod, life=1)).cpus == "1-2"


def test_the_memory_of_an_init_container_goes_when_the_next_container_is_made() -> None:
    pod = guaranteed("a", "1", "1", "1", kinds=(INIT, INIT, APP))
    state = create(small_state(), pod).state
    assert [*state.kubelet.node.memory.assignments["a"]] == ["main", "c1", "c2"]
    state = create(state, pod, "c1").state
    assert [*state.kubelet.node.memory.assignments["a"]] == ["c1", "c2"]
    state = create(state, pod, "c2").state
    assert [*state.kubelet.node.memory.assignments["a"]] == ["c2"]


def test_a_pod_that_is_known_by_its_containers_only_grows() -> None:
    whole = guaranteed("a", "2", "1")
    first = replace(whole, containers=whole.containers[:1])
    state = create(small_state(), first).state
    made = create(state, whole, "c1")
    assert adjusted(made).cpus == "3"
    assert expected(made.state) == {}
    assert made.state.kubelet.node.cpu.assignments["a"] == {"main": 0b110, "c1": 0b1000}


def test_a_pod_that_cannot_grow_keeps_what_it_has() -> None:
    whole = guaranteed("a", "5", "5")
    state = create(small_state(), replace(whole, containers=whole.containers[:1])).state
    made = create(state, whole, "c1")
    assert isinstance(made.answer, Refused)
    assert made.state.kubelet is state.kubelet


def test_a_container_outside_the_specification_shares_the_pool() -> None:
    pod = guaranteed("a", "2")
    assert adjusted(create(started(small_state(), pod), pod, "debugger")) == LinuxResources(cpus="0,3-7")


def test_an_opted_out_pod_shares_the_pool_where_the_operator_allows_it() -> None:
    pod = guaranteed("a", "2", annotations={"mooring/share": "true"})
    allowed = small_state(options=Options(opt_out_annotation="mooring/share"))
    assert adjusted(create(allowed, pod)) == LinuxResources(cpus="0-7")
    assert adjusted(create(small_state(), pod)).cpus == "1-2"


# Refusals.


def test_a_rejected_pod_is_refused_with_the_kubelets_words() -> None:
    made = create(small_state(), guaranteed("a", "8"))
    text = (
        "UnexpectedAdmissionError: Allocate failed due to not enough cpus available to satisfy request: "
        "requested=5, available=4, which is unexpected"
    )
    assert made.answer == Refused(text)
    assert not made.state.kubelet.node.cpu.assignments
    reports = kinds(made.effects, AgentReport)
    assert [report.finding for report in reports if isinstance(report, AgentReport)] == [ReportKind.REJECTED]
    assert len(kinds(made.effects, ClusterEvent)) == 1
    assert not kinds(made.effects, Evict)


def test_a_rejected_pod_is_evicted_where_the_operator_wants_it() -> None:
    pod = guaranteed("a", "8")
    made = create(small_state(options=Options(evict=True)), pod)
    assert [effect.pod for effect in kinds(made.effects, Evict) if isinstance(effect, Evict)] == [pod]


def test_every_try_of_a_rejected_pod_asks_for_its_eviction_and_says_nothing_else() -> None:
    pod = guaranteed("a", "8")
    first = create(small_state(options=Options(evict=True)), pod)
    again = create(first.state, pod, life=1)
    assert again.effects == tuple(kinds(first.effects, Evict))
    freed = state_change(started(again.state, shared("s")), Event.STOP_POD_SANDBOX, sandbox("s"), None).state
    assert create(freed, pod, life=2).effects == again.effects, "judged anew with the same words"


def test_a_static_pod_is_asked_about_once_because_no_eviction_helps_it() -> None:
    pod = guaranteed("a", "8", annotations={CONFIG_SOURCE: "file"})
    first = create(small_state(options=Options(evict=True)), pod)
    assert len(kinds(first.effects, Evict)) == 1
    assert create(first.state, pod, life=1).effects == ()


def test_a_pod_that_is_held_already_is_evicted_when_the_operator_changes_his_mind() -> None:
    pod = guaranteed("a", "8")
    held = create(small_state(), pod).state
    kubelet = held.kubelet
    options = AgentOptions(on_rejection=OnRejection.EVICT)
    new = AgentConfiguration(options, kubelet.settings.config, kubelet.mooring)
    again = create(with_configuration(held, new, Moment()).state, pod, life=1)
    assert [one.pod for one in again.effects if isinstance(one, Evict)] == [pod]


def test_a_running_pod_without_a_place_is_evicted_at_the_next_chance() -> None:
    pods = {"a": guaranteed("a", "5"), "b": guaranteed("b", "4"), "c": guaranteed("c", "1")}
    there = [sandbox(uid) for uid in pods]
    made = synchronize(small_state(), there, [running(uid) for uid in pods], pods).state
    evicting = replace(made, options=Options(evict=True))
    over = state_change(evicting, Event.STOP_POD_SANDBOX, sandbox("c"), None)
    assert [one.pod.uid for one in over.effects if isinstance(one, Evict)] == ["b"]
    assert not kinds(over.effects, AgentReport), "what was told is not told again"


def test_repeated_tries_cost_nothing_until_something_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    decide = Kubelet.decide

    def watched(self: Kubelet, pod: Pod, observer: Observer | None = None) -> tuple[Kubelet, Decision]:
        asked.append(pod.uid)
        return decide(self, pod, observer)

    monkeypatch.setattr(Kubelet, "decide", watched)
    state = started(small_state(), guaranteed("b", "3"))
    first = create(state, guaranteed("a", "6"))
    second = create(first.state, guaranteed("a", "6"), life=1)
    assert first.answer == second.answer
    assert second.effects == ()
    assert asked == ["b", "a"]
    freed = state_change(second.state, Event.STOP_POD_SANDBOX, sandbox("b"), None).state
    assert len(CPUSet.parse(adjusted(create(freed, guaranteed("a", "6"), life=2)).cpus)) == 6
    assert asked == ["b", "a", "a"]


def test_what_a_refused_container_leaves_behind_is_nothing() -> None:
    made = create(small_state(), guaranteed("a", "8"))
    stop = stop_container(made.state, container("a"))
    gone = tell(stop.state, Event.REMOVE_CONTAINER, container("a"))
    assert not gone.state.containers
    assert "a" in gone.state.held
    over = state_change(gone.state, Event.STOP_POD_SANDBOX, sandbox("a"), None)
    assert not over.state.held
    assert not over.state.sandboxes


def test_an_empty_shared_pool_refuses_sharers_instead_of_widening() -> None:
    state = started(small_state(STRICT), guaranteed("a", "7"))
    assert create(state, shared("s")).answer == Refused(
        "EmptySharedPool: no CPU is left in the shared pool for containers without CPUs of their own"
    )


def test_a_pod_that_would_empty_the_pool_under_its_sharers_waits_for_their_end() -> None:
    state = started(small_state(STRICT), shared("s"))
    made = create(state, guaranteed("a", "7"))
    assert refusal_of(made).startswith("EmptySharedPool: ")
    later = state_change(made.state, Event.STOP_POD_SANDBOX, sandbox("s"), None).state
    assert adjusted(create(later, guaranteed("a", "7"), life=1)).cpus == "1-7"


# Updates, ends.


def test_a_resize_is_answered_with_our_cpus_and_without_a_quota() -> None:
    state = started(small_state(), guaranteed("a", "2"))
    made = update_container(state, sandbox("a"), container("a"), LinuxResources(shares=4096, quota=400_000))
    assert [update.resources for update in updates_of(made)] == [LinuxResources(cpus="1-2", mems="0", quota=-1)]
    lifts = [lift.of for lift in kinds(made.effects, LiftQuota) if isinstance(lift, LiftQuota)]
    assert Counter(lifts) == Counter([QuotaOf.POD, QuotaOf.SANDBOX])


@pytest.mark.parametrize(
    ("said", "phase"),
    [
        (ContainerState.STOPPED, Phase.ENDED),
        (ContainerState.CREATED, Phase.CREATED),
        (ContainerState.RUNNING, Phase.RUNNING),
    ],
    ids=lambda one: one.name,
)
def test_an_update_of_a_container_that_is_not_known_does_not_make_it_run(said: ContainerState, phase: Phase) -> None:
    asked = replace(container("s"), state=said)
    made = update_container(small_state(), sandbox("s"), asked, LinuxResources(memory_limit=2**26))
    assert made.state.containers[asked.id].phase is phase


def test_the_quota_of_a_shared_container_is_the_kubelets() -> None:
    state = started(small_state(), shared("s"))
    made = update_container(state, sandbox("s"), container("s"), LinuxResources(shares=51, quota=5000))
    assert [update.resources for update in updates_of(made)] == [LinuxResources(cpus="0-7")]


def test_an_update_that_names_no_cpus_is_answered_with_none_where_the_record_is_right() -> None:
    state = started(small_state(), shared("s"))
    record = container("s", resources=LinuxResources(cpus="0-7"))
    made = update_container(state, sandbox("s"), record, LinuxResources(memory_limit=2**26))
    assert made.answer == Accepted(), "a list could be done after a newer one"
    named = update_container(state, sandbox("s"), record, LinuxResources(cpus="3"))
    assert [update.resources.cpus for update in updates_of(named)] == ["0-7"]


def test_an_update_that_was_done_too_late_is_undone_as_soon_as_it_is_told() -> None:
    state = started(small_state(), shared("s"))
    late = container("s", resources=LinuxResources(cpus="0-7"))
    state = update_container(state, sandbox("s"), late, LinuxResources(cpus="3")).state
    state = create(state, guaranteed("a", "2")).state
    done = tell(state, Event.POST_UPDATE_CONTAINER, late)
    assert [
        (one.container_id, str(one.cpus)) for one in kinds(done.effects, WriteCPUSet) if isinstance(one, WriteCPUSet)
    ] == [(late.id, "0,3-7")]
    again = create(done.state, shared("t"))
    told = [(update.container_id, update.resources.cpus) for update in updates_of(again)]
    assert told == [(late.id, "0,3-7")], "the record is told anew though the pool is the same"


def test_the_pods_quota_is_lifted_again_after_a_resize() -> None:
    state = started(small_state(), guaranteed("a", "2"))
    assert len(kinds(tell(state, Event.POST_UPDATE_CONTAINER, container("a")).effects, LiftQuota)) == 2


def test_the_pool_grows_by_cgroups_when_a_pod_ends() -> None:
    state = started(started(small_state(), guaranteed("a", "2")), shared("s"))
    over = state_change(state, Event.STOP_POD_SANDBOX, sandbox("a"), None)
    assert kinds(over.effects, WriteCPUSet) == [cpuset_write("s-main-0", 99, "", "0-7", "")]
    stop = stop_container(over.state, container("nobody"))
    assert [(one.container_id, one.resources.cpus) for one in updates_of(stop)] == [("s-main-0", "0-7")]
    assert not over.state.kubelet.node.cpu.assignments


def test_a_pod_with_two_sandboxes_ends_with_the_second() -> None:
    state = started(small_state(), guaranteed("a", "2"))
    state = state_change(state, Event.RUN_POD_SANDBOX, sandbox("a", 1), None).state
    state = state_change(state, Event.STOP_POD_SANDBOX, sandbox("a", 0), None).state
    assert "a" in state.kubelet.node.active
    state = state_change(state, Event.REMOVE_POD_SANDBOX, sandbox("a", 1), None).state
    assert "a" not in state.kubelet.node.active


def test_a_pod_without_containers_keeps_what_it_has_until_its_sandbox_ends() -> None:
    pod = guaranteed("a", "1", "1")
    state = started(started(small_state(), pod), pod, "c1")
    for name in ("main", "c1"):
        state = stop_container(state, container("a", name)).state
        state = tell(state, Event.REMOVE_CONTAINER, container("a", name)).state
    assert (state.containers, len(state.kubelet.node.cpu.assignments["a"])) == ({}, 2)
    assert "a" not in end_missing_sandboxes(state, ["sandbox-a-0"]).state.kubelet.node.active


def test_a_pod_in_crash_loop_back_off_keeps_its_cpus_when_a_dead_container_is_removed() -> None:
    pod = guaranteed("a", "4")
    state = stop_container(started(small_state(), pod), container("a")).state
    given = state.kubelet.node.cpu.assignments
    # Neither runtime lists containers that have ended to an agent that connects again.
    state = synchronize(state, [sandbox("a")], [], {}).state
    state = tell(state, Event.REMOVE_CONTAINER, container("a")).state
    assert state.kubelet.node.cpu.assignments == given
    # A creation that fails in the runtime is undone there.
    state = create_container(state, sandbox("a"), container("a", life=1), pod).state
    state = stop_container(state, container("a", life=1)).state
    state = tell(state, Event.REMOVE_CONTAINER, container("a", life=1)).state
    assert state.kubelet.node.cpu.assignments == given


def test_a_late_word_does_not_bring_an_ended_container_back() -> None:
    state = create(small_state(), shared("s")).state
    state = stop_container(state, container("s")).state
    after = tell(state, Event.POST_START_CONTAINER, container("s")).state
    assert after.containers["s-main-0"].phase is Phase.ENDED


def test_words_about_nobody_change_nothing() -> None:
    state = small_state()
    for event in Event:
        assert state_change(state, event, None, None) == EventOutcome(state)
    assert stop_container(state, container("who")) == EventOutcome(state)


# The agent was away.


def test_a_container_that_nobody_saw_created_is_placed_when_it_starts() -> None:
    state, pod = started(small_state(), shared("s")), guaranteed("a", "2")
    made = container("a", pid=5)
    assert needs_pod(state, Event.START_CONTAINER, sandbox("a"), made)
    late = tell(state, Event.START_CONTAINER, made, pod)
    writes = {one.container_id: str(one.cpus) for one in late.effects if isinstance(one, WriteCPUSet)}
    assert writes == {"a-main-0": "1-2", "s-main-0": "0,3-7"}
    lifted = {one.of for one in late.effects if isinstance(one, LiftQuota)}
    assert lifted == {QuotaOf.CONTAINER, QuotaOf.POD, QuotaOf.SANDBOX}
    assert [one.finding for one in late.effects if isinstance(one, AgentReport)] == [ReportKind.FOUND_RUNNING]


def test_one_that_cannot_be_placed_is_not_started() -> None:
    late = tell(small_state(), Event.START_CONTAINER, container("a", pid=5), guaranteed("a", "8"))
    assert isinstance(late.answer, Refused)


def test_pods_that_run_unpinned_are_placed_exclusive_ones_first() -> None:
    pods = {"s": shared("s"), "a": guaranteed("a", "2")}
    sandboxes, containers = [sandbox("s"), sandbox("a")], [running("s"), running("a")]
    assert [one.uid for one in unknown_pods(small_state(), sandboxes, containers)] == ["s", "a"]
    made = synchronize(small_state(), sandboxes, containers, pods)
    assert [(one.container_id, one.resources) for one in updates_of(made)] == [
        ("a-main-0", LinuxResources(cpus="1-2", mems="0", quota=-1)),
        ("s-main-0", LinuxResources(cpus="0,3-7")),
    ]
    written = [one.container_id for one in made.effects if isinstance(one, WriteCPUSet)]
    assert Counter(written) == Counter(["a-main-0", "s-main-0"])


def test_a_pod_that_is_gone_gives_its_place_back_with_a_report() -> None:
    before = started(small_state(), guaranteed("a", "2"))
    made = synchronize(before, [], [], {})
    assert not made.state.kubelet.node.cpu.assignments
    [report] = [one for one in made.effects if isinstance(one, AgentReport)]
    assert (report.finding, report.message) == (
        ReportKind.POD_GONE,
        "pod a has no sandbox any more; CPUs 1-2 came back",
    )


def test_entries_of_pods_that_nobody_knows_come_back_with_a_report() -> None:
    before = started(small_state(), guaranteed("a", "2"))
    resumed = resume(
        before.kubelet.info, before.kubelet.settings.config, before.kubelet.mooring, Stored(before.kubelet.files)
    ).state
    made = synchronize(resumed, [], [], {})
    assert not made.state.kubelet.node.cpu.assignments
    assert [one.finding for one in made.effects if isinstance(one, AgentReport)] == [ReportKind.POD_GONE]


def test_entries_of_a_pod_without_description_stay_while_its_sandbox_does() -> None:
    before = started(small_state(), guaranteed("a", "2"))
    resumed = resume(
        before.kubelet.info, before.kubelet.settings.config, before.kubelet.mooring, Stored(before.kubelet.files)
    ).state
    made = synchronize(resumed, [sandbox("a")], [], {})
    assert made.state.kubelet.node.cpu.assignments == {"a": {"main": 0b110}}


def test_cpus_that_the_state_lost_are_taken_over_without_moving_anybody() -> None:
    listed = [running("a", cpus="5-6", mems="1"), running("b", cpus="2", mems="0")]
    pods = {"a": guaranteed("a", "2"), "b": guaranteed("b", "1")}
    made = synchronize(small_state(), [sandbox("a"), sandbox("b")], listed, pods)
    assert made.state.kubelet.node.cpu.assignments == {"a": {"main": 0b1100000}, "b": {"main": 0b100}}
    assert [update.resources for update in updates_of(made)] == [LinuxResources(quota=-1)] * 2
    assert [one.finding for one in made.effects if isinstance(one, AgentReport)].count(ReportKind.TAKEN_OVER) == 2


def test_cpus_of_a_pod_that_has_ended_are_taken_over_by_the_one_that_runs_on_them_now() -> None:
    """The folder cannot be written since: the old journal has the one, and nothing of the other."""
    old = started(started(small_state(), guaranteed("a", "2")), guaranteed("b", "1"))
    files = old.kubelet.files
    resumed = resume(
        old.kubelet.info, old.kubelet.settings.config, old.kubelet.mooring, Stored(files, old.kubelet.node.active)
    ).state
    listed = [running("b", cpus="3", mems="0"), running("c", cpus="2,4", mems="0")]
    made = synchronize(resumed, [sandbox("b"), sandbox("c")], listed, {"c": guaranteed("c", "2")})
    assert made.state.kubelet.node.cpu.assignments == {"b": {"main": 0b1000}, "c": {"main": 0b10100}}
    found = [one.finding for one in made.effects if isinstance(one, AgentReport)]
    assert {ReportKind.POD_GONE, ReportKind.TAKEN_OVER} <= {*found}


def test_a_pool_of_as_many_cpus_as_a_pod_requests_is_not_taken_over_from_those_who_share_it() -> None:
    """With a CPU that is offline the engine would start on the rest of the pool."""
    mooring = MooringConfig(frozenset({CPU_HOTPLUG}))
    fresh = resume(small_state().kubelet.info, STRICT, mooring).state
    state = started(fresh, guaranteed("a", "4"))
    pool = state.kubelet.node.cpu.default
    gone = cpus_changed(state, 0xFF & ~(pool & -pool)).state
    left, own = list_text(pool & (pool - 1)), list_text(state.kubelet.node.cpu.assignments["a"]["main"])
    listed = [running("a", cpus=own, mems="0"), running("b", cpus=left), running("s", cpus=left)]
    pods = {"b": guaranteed("b", "2"), "s": shared("s")}
    made = synchronize(gone, [sandbox("a"), sandbox("b"), sandbox("s")], listed, pods).state
    assert "b" not in made.kubelet.node.cpu.assignments
    assert [str(expected(made)[f"{one}-main-0"].cpus) for one in "bs"] == [left, left]


@pytest.mark.parametrize("cpus", ["0-1", "1", "1-3", "nonsense", ""])
def test_cpus_that_the_engine_would_not_give_are_not_taken_over(cpus: str) -> None:
    made = synchronize(small_state(), [sandbox("a")], [running("a", cpus=cpus)], {"a": guaranteed("a", "2")})
    assert made.state.kubelet.node.cpu.assignments == {"a": {"main": 0b110}}


def test_a_running_pod_that_cannot_be_placed_shares_the_pool_until_it_can() -> None:
    pods = {"a": guaranteed("a", "5"), "b": guaranteed("b", "4")}
    sandboxes = [sandbox("a"), sandbox("b")]
    made = synchronize(small_state(), sandboxes, [running("a"), running("b")], pods)
    found = [one.finding for one in made.effects if isinstance(one, AgentReport) and one.uid == "b"]
    assert Counter(found) == Counter([ReportKind.UNPLACED, ReportKind.CPUSET_DIFFERED])
    assert str(expected(made.state)["b-main-0"].cpus) == str(made.state.kubelet.node.shared_pool)
    over = state_change(made.state, Event.STOP_POD_SANDBOX, sandbox("a"), None)
    assert ReportKind.PLACED_LATE in [one.finding for one in over.effects if isinstance(one, AgentReport)]
    [write] = kinds(over.effects, WriteCPUSet)
    assert isinstance(write, WriteCPUSet)
    assert len(over.state.kubelet.node.cpu.assignments["b"]) == 1
    assert {one.of for one in over.effects if isinstance(one, LiftQuota)} == {*QuotaOf}


def test_a_container_that_joined_a_pod_and_found_no_room_is_placed_when_there_is_some() -> None:
    state = create(started(small_state(), guaranteed("a", "4")), guaranteed("b", "2")).state
    both = guaranteed("b", "2", "2")
    first = state.kubelet.node.cpu.assignments["b"]["main"]
    there = [running("a"), running("b"), running("b", "c1")]
    made = synchronize(state, [sandbox("a"), sandbox("b")], there, {"a": guaranteed("a", "4"), "b": both})
    assert made.state.kubelet.node.cpu.assignments["b"] == {"main": first}
    over = state_change(made.state, Event.STOP_POD_SANDBOX, sandbox("a"), None)
    assert ReportKind.PLACED_LATE in [one.finding for one in over.effects if isinstance(one, AgentReport)]
    own = over.state.kubelet.node.cpu.assignments["b"]
    assert (own["main"], own["c1"].bit_count()) == (first, 2)
    assert expected(over.state)["b-c1-0"].cpus == CPUSet(own["c1"])
    assert over.state.held == {}


def test_a_machine_with_other_cpus_makes_a_new_state() -> None:
    before = started(small_state(), guaranteed("a", "2"))
    assert before.kubelet.files.cpu is not None
    texts = StateTexts(before.kubelet.files.cpu.replace("0,3-7", "0,3-15"), before.kubelet.files.memory)
    resumed = resume(before.kubelet.info, before.kubelet.settings.config, MooringConfig(), Stored(texts))
    reports = [report.finding for report in resumed.effects if isinstance(report, AgentReport)]
    assert ReportKind.STATE_REFUSED in reports
    assert not resumed.state.kubelet.node.cpu.assignments


# Verification, storing, configuration.


def test_a_deviation_is_written_again_and_the_runtime_is_told() -> None:
    state = started(small_state(), guaranteed("a", "2"))
    made = correct_deviation(state, "a-main-0", cpus("0-7"), nodes("0-1"))
    [write] = made.effects
    assert isinstance(write, WriteCPUSet)
    assert (write, write.occasion) == (cpuset_write("a-main-0", 99, "", "1-2", "0"), Occasion.CHECK)
    before, after = (Cpuset(CPUSet.parse(cpus), nodes(mems)) for cpus, mems in (("0-7", "0-1"), ("1-2", "0")))
    done = writes_done(made, [written_of(CPUSetWritten(write, before, after, wrote=True))])
    [report] = [one for one in done.effects if isinstance(one, AgentReport)]
    assert report.message == "main had CPUs 0-7 instead of 1-2 and memory nodes 0-1 instead of 0"
    stop = stop_container(made.state, container("other"))
    assert [one.resources.cpus for one in updates_of(stop)] == ["1-2"]


def test_what_is_right_by_now_is_no_deviation() -> None:
    state = started(small_state(), guaranteed("a", "2"))
    assert correct_deviation(state, "a-main-0", cpus("1,2"), nodes("0")).effects == ()
    assert correct_deviation(state, "gone", cpus("0-7"), nodes("0")).effects == ()


def test_a_quota_that_is_back_is_lifted_where_it_is_not_wanted() -> None:
    state = started(small_state(), guaranteed("a", "2"))
    lifts = [*expected_lifts(state)]
    assert {lift.of for lift in lifts} == {*QuotaOf}
    assert lifts[0] in correct_quota(state, lifts[0], 200_000).effects
    assert correct_quota(small_state(), lifts[0], 200_000).effects == ()


def test_without_a_writable_folder_pods_are_placed_all_the_same() -> None:
    state = small_state()
    made = create(state, guaranteed("a", "2"))
    after = unwritten(state, made, "a", "disk full")
    assert after.answer == made.answer
    assert not kinds(after.effects, Persist)
    assert kinds(after.effects, AgentReport)


def test_or_refused_where_the_operator_wants_it() -> None:
    state = small_state(options=Options(place_while_unwritable=False))
    made = create(state, guaranteed("a", "2"))
    after = unwritten(state, made, "a", "disk full")
    assert isinstance(after.answer, Refused)
    assert after.state.kubelet is state.kubelet
    common = create(state, shared("s"))
    assert unwritten(state, common, "s", "disk full").answer == common.answer


def test_a_new_configuration_leaves_everybody_where_they_are() -> None:
    state = started(small_state(), guaranteed("a", "2"))
    config = replace(state.kubelet.settings.config, topology_manager_policy="restricted")
    made = reconfigured(state, config, state.kubelet.mooring)
    assert isinstance(made, EventOutcome)
    assert made.state.kubelet.node.active == state.kubelet.node.active
    assert expected(made.state) == expected(state)


def other_policy(state: AgentState, policy: str) -> AgentConfiguration:
    kubelet = state.kubelet
    config = replace(kubelet.settings.config, topology_manager_policy=policy)
    return AgentConfiguration(AgentOptions(), config, kubelet.mooring)


def test_a_running_pod_that_waits_for_a_place_still_waits_after_a_new_configuration() -> None:
    pods = {"a": guaranteed("a", "5"), "b": guaranteed("b", "4")}
    there = [running("a"), running("b")]
    waiting = synchronize(small_state(), [sandbox("a"), sandbox("b")], there, pods).state
    assert [*waiting.held] == ["b"]
    reloaded = with_configuration(waiting, other_policy(waiting, "restricted"), Moment()).state
    assert [*reloaded.held] == ["b"]
    assert reloaded.held["b"].rejection != waiting.held["b"].rejection, "it was asked for anew"
    over = state_change(reloaded, Event.STOP_POD_SANDBOX, sandbox("a"), None)
    assert over.state.held == {}
    assert str(expected(over.state)["b-main-0"].cpus) == "4-7"


def test_a_new_configuration_places_a_waiting_running_pod() -> None:
    # Five CPUs are more than one NUMA node has.
    config = replace(CONFIG, topology_manager_policy="single-numa-node")
    waiting = synchronize(small_state(config), [sandbox("a")], [running("a")], {"a": guaranteed("a", "5")}).state
    assert [*waiting.held] == ["a"]
    facts: list[object] = []
    found = with_configuration(waiting, other_policy(waiting, "best-effort"), Moment(), facts.append)
    assert found.state.held == {}
    [write] = kinds(found.effects, WriteCPUSet)
    assert isinstance(write, WriteCPUSet)
    assert len(write.cpus) == 5
    assert ReportKind.PLACED_LATE in [one.finding for one in found.effects if isinstance(one, AgentReport)]
    assert facts, "metrics hear of the admission"


def test_a_pod_that_is_held_back_is_judged_anew_after_a_new_configuration() -> None:
    config = replace(CONFIG, topology_manager_policy="single-numa-node")
    pod = guaranteed("a", "5")
    held = create(small_state(config), pod).state
    reloaded = with_configuration(held, other_policy(held, "best-effort"), Moment()).state
    assert [*reloaded.held] == ["a"]
    assert len(CPUSet.parse(adjusted(create(reloaded, pod, life=1)).cpus)) == 5


def test_who_waits_is_judged_anew_even_where_the_engine_starts_on_that_state(monkeypatch: pytest.MonkeyPatch) -> None:
    state = create(small_state(), guaranteed("a", "8")).state
    kubelet = state.kubelet
    monkeypatch.setattr("mooring.agent.reactor.recovery.start_kubelet", lambda *_: kubelet)
    made = reconfigured(state, kubelet.settings.config, kubelet.mooring)
    assert isinstance(made, EventOutcome)
    held, node = made.state.held["a"], made.state.kubelet.node
    assert held.rejection == state.held["a"].rejection
    assert held.cpu is not node.cpu
    assert held.memory is not node.memory


def test_a_configuration_that_does_not_fit_the_state_is_refused() -> None:
    state = started(small_state(), guaranteed("a", "2"))
    config = replace(state.kubelet.settings.config, cpu_manager_policy="none")
    assert isinstance(reconfigured(state, config, state.kubelet.mooring), StartRefusal)
    found = with_configuration(state, AgentConfiguration(AgentOptions(), config, state.kubelet.mooring), Moment())
    assert found.state is state
    assert 'configured policy "none" differs' in refusal_of(found)


def test_with_policy_none_nobody_is_pinned() -> None:
    assert adjusted(create(small_state(KubeletConfig()), guaranteed("a", "2"))) == LinuxResources()


def test_the_containers_of_a_sandbox_are_reported_as_they_were_asked_for() -> None:
    state = started(small_state(), guaranteed("a", "2"))
    [message] = requested_containers(state, "sandbox-a-0")
    assert (message.name, message.resources) == ("main", LinuxResources(quota=100_000))


def test_a_burstable_pod_runs_in_the_pool() -> None:
    assert adjusted(create(small_state(), replace(guaranteed("a", "2"), qos=QoS.BURSTABLE))).cpus == "0-7"


def test_a_creation_that_is_reported_twice_does_not_hide_a_running_container() -> None:
    pod = shared("s")
    again = create(started(small_state(), pod), pod)
    made = create(again.state, guaranteed("a", "2"))
    assert [one.container_id for one in updates_of(made)] == ["s-main-0"]


def test_an_admission_in_which_the_kubelet_crashes_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object) -> None:
        raise KubeletCrashError("numbers wrap around")

    monkeypatch.setattr(Kubelet, "decide", crash)
    assert create(small_state(), guaranteed("a")).answer == Refused("AdmissionCrash: numbers wrap around")


def test_an_admission_without_an_end_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    decide = Kubelet.decide

    def endless(self: Kubelet, pod: Pod, observer: Observer | None = None) -> tuple[Kubelet, Decision]:
        kubelet, decision = decide(self, pod, observer)
        return kubelet, replace(decision, admitted=False, endless=Endless("group-loop"))

    monkeypatch.setattr(Kubelet, "decide", endless)
    text = "EndlessAdmission: the admission would never end (defect group-loop)"
    assert create(small_state(), guaranteed("a")).answer == Refused(text)


def test_a_pool_that_grew_by_cgroups_and_shrinks_again_is_narrowed_though_the_record_is_right() -> None:
    state = started(started(small_state(), shared("s")), guaranteed("a", "2"))
    state = stop_container(state, container("nobody")).state
    state = state_change(state, Event.STOP_POD_SANDBOX, sandbox("a"), None).state
    made = create(state, guaranteed("b", "2"))
    assert [one.resources.cpus for one in updates_of(made)] == ["0,3-7"]
    assert kinds(made.effects, WriteCPUSet) == [cpuset_write("s-main-0", 99, "", "0,3-7", "")]


def test_one_that_was_stored_before_the_agent_came_is_placed_before_it_starts() -> None:
    pod = guaranteed("a", "2")
    assert needs_pod(small_state(), Event.POST_CREATE_CONTAINER, sandbox("a"), container("a"))
    made = tell(small_state(), Event.POST_CREATE_CONTAINER, container("a"), pod)
    stop = stop_container(made.state, container("nobody"))
    assert [(one.container_id, one.resources.cpus) for one in updates_of(stop)] == [("a-main-0", "1-2")]
    assert not needs_pod(made.state, Event.START_CONTAINER, sandbox("a"), container("a"))
    late = tell(made.state, Event.START_CONTAINER, container("a", pid=5))
    assert kinds(late.effects, WriteCPUSet) == [cpuset_write("a-main-0", 5, "", "1-2", "0")]


def test_one_that_was_stored_and_has_no_place_is_refused_when_it_starts() -> None:
    pod = guaranteed("a", "8")
    made = tell(small_state(), Event.POST_CREATE_CONTAINER, container("a"), pod)
    assert made.answer == Accepted()
    assert needs_pod(made.state, Event.START_CONTAINER, sandbox("a"), container("a"))
    assert isinstance(tell(made.state, Event.START_CONTAINER, container("a", pid=5), pod).answer, Refused)
