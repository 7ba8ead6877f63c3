"""What single events come to, on a node of 8 CPUs of which CPU 0 is reserved."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from tests.agent import small_node as small
from tests.agent.small_node import (
    CONFIG,
    STRICT,
    container,
    create,
    effects_of,
    ended,
    findings,
    guaranteed,
    running,
    sandbox,
    shared,
    small_state,
    started,
    tell,
    told,
    writes,
)

from mooring.agent.cgroups.protocol import CPUSetSeen, written_of
from mooring.agent.effects import (
    AgentReport,
    ClusterEvent,
    Evict,
    LiftQuota,
    Occasion,
    Persist,
    QuotaOf,
    ReportKind,
    Verify,
    WriteCPUSet,
)
from mooring.agent.nri.types import ContainerState, Event, LinuxResources
from mooring.agent.pods.source import CONFIG_SOURCE
from mooring.agent.reactor.containers import requested_containers
from mooring.agent.reactor.create_container import create_container
from mooring.agent.reactor.desired import expected, expected_lifts
from mooring.agent.reactor.hotplug import cpus_changed
from mooring.agent.reactor.lifecycle import (
    correct_deviation,
    correct_quota,
    needs_pod,
    state_change,
    stop_container,
    writes_done,
)
from mooring.agent.reactor.recovery import Stored, reconfigured, resume
from mooring.agent.reactor.response import Accepted, EventOutcome, Refused, unwritten
from mooring.agent.reactor.synchronize import synchronize, unknown_pods
from mooring.agent.reactor.update_container import update_container
from mooring.agent.reload import with_configuration
from mooring.agent.state import AgentState, Options, Phase, Setting
from mooring.engine.core.bits import list_text
from mooring.engine.core.config import CPU_HOTPLUG, KubeletConfig, MooringConfig
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import Endless, Observer
from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.core.moment import Moment
from mooring.engine.core.pod import ContainerKind, Pod, QoS
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.node import Decision
from mooring.service.agent_configuration import AgentConfiguration
from mooring.service.agent_options import AgentOptions

INIT, APP = ContainerKind.INIT, ContainerKind.APP


def adjusted(outcome: EventOutcome) -> LinuxResources:
    return small.adjustment_of(outcome).resources


def cpus_of(state: AgentState) -> dict[str, dict[str, str]]:
    """Return the CPUs that pods have for themselves, by container."""
    own = state.kubelet.node.cpu.assignments
    return {uid: {name: list_text(mask) for name, mask in held.items()} for uid, held in own.items()}


def resumed(state: AgentState, *, with_pods: bool = False) -> AgentState:
    """Return the state of an agent that starts with the files of another, and with its pods or without."""
    kubelet = state.kubelet
    found = Stored(kubelet.files, kubelet.node.active if with_pods else {})
    return resume(kubelet.info, kubelet.settings.config, kubelet.mooring, found).state


# Creation.


def test_a_guaranteed_container_gets_its_cpus_its_nodes_and_no_quota_anywhere() -> None:
    made = create(small_state(), guaranteed("a", "2"))
    assert adjusted(made) == LinuxResources(cpus="1-2", mems="0", quota=-1)
    assert effects_of(made, LiftQuota) == [
        LiftQuota(QuotaOf.POD, "a", "", 7, "/pods/a"),
        LiftQuota(QuotaOf.SANDBOX, "a", "", 7, "/s"),
    ]
    assert isinstance(made.effects[0], Persist)
    assert made.effects[0].state == made.state
    without = create(small_state(replace(CONFIG, cpu_cfs_quota=False)), guaranteed("a", "2"))
    assert (adjusted(without).quota, effects_of(without, LiftQuota)) == (None, [])


@pytest.mark.parametrize(
    "pod",
    [
        shared("s"),
        replace(guaranteed("a", "2"), qos=QoS.BURSTABLE),
        guaranteed("a", "2", annotations={"share": "true"}),
    ],
    ids=["best-effort", "burstable", "opted-out"],
)
def test_a_container_without_cpus_of_its_own_gets_the_pool_and_keeps_its_quota(pod: Pod) -> None:
    assert adjusted(create(small_state(options=Options(opt_out_annotation="share")), pod)) == LinuxResources(cpus="0-7")


def test_without_the_operators_word_the_opt_out_means_nothing_and_with_policy_none_nobody_is_pinned() -> None:
    pod = guaranteed("a", "2", annotations={"share": "true"})
    assert adjusted(create(small_state(), pod)).cpus == "1-2"
    assert adjusted(create(small_state(KubeletConfig()), pod)) == LinuxResources()


def test_a_running_container_of_the_shared_pool_is_moved_in_the_same_reply_and_verified_at_the_next_event() -> None:
    made = create(started(small_state(), shared("s")), guaranteed("a", "2"))
    [update] = small.updates_of(made)
    assert (update.container_id, update.resources) == ("s-main-0", LinuxResources(cpus="0,3-7"))
    assert not effects_of(made, Verify)
    after = tell(made.state, Event.POST_CREATE_CONTAINER, container("a"))
    assert effects_of(after, Verify) == [Verify(("s-main-0",))]
    assert not effects_of(tell(after.state, Event.START_CONTAINER, container("a", pid=4)), Verify)


def test_the_memory_of_an_init_container_goes_when_the_next_container_is_made() -> None:
    pod, state = guaranteed("a", "1", "1", "1", kinds=(INIT, INIT, APP)), small_state()
    for name, left in (("main", ["main", "c1", "c2"]), ("c1", ["c1", "c2"]), ("c2", ["c2"])):
        state = create(state, pod, name).state
        assert [*state.kubelet.node.memory.assignments["a"]] == left


def test_a_pod_that_is_known_by_its_containers_only_grows_or_keeps_what_it_has() -> None:
    for sizes, own in ((("2", "1"), {"main": "1-2", "c1": "3"}), (("5", "5"), {"main": "1,4-7"})):
        whole = guaranteed("a", *sizes)
        state = create(small_state(), replace(whole, containers=whole.containers[:1])).state
        made = create(state, whole, "c1")
        assert (cpus_of(made.state), isinstance(made.answer, Refused)) == ({"a": own}, len(own) == 1)
        assert (made.state.kubelet is state.kubelet) == (len(own) == 1)
        assert expected(made.state) == {}


def test_a_container_outside_the_specification_shares_the_pool() -> None:
    pod = guaranteed("a", "2")
    assert adjusted(create(started(small_state(), pod), pod, "debugger")) == LinuxResources(cpus="0,3-7")


# Refusals.


def test_a_rejected_pod_is_refused_with_the_kubelets_words_and_leaves_nothing_behind() -> None:
    made = create(small_state(), guaranteed("a", "8"))
    text = (
        "UnexpectedAdmissionError: Allocate failed due to not enough cpus available to satisfy request: "
        "requested=5, available=4, which is unexpected"
    )
    assert made.answer == Refused(text)
    assert not cpus_of(made.state)
    assert (findings(made), len(effects_of(made, ClusterEvent))) == ([ReportKind.REJECTED], 1)
    assert not effects_of(made, Evict)
    gone = tell(stop_container(made.state, container("a")).state, Event.REMOVE_CONTAINER, container("a"))
    assert (gone.state.containers, [*gone.state.held]) == ({}, ["a"])
    over = ended(gone.state, "a").state
    assert (over.held, over.sandboxes) == ({}, {})


def test_a_static_pod_is_asked_about_once_because_no_eviction_helps_it() -> None:
    pod = guaranteed("a", "8", annotations={CONFIG_SOURCE: "file"})
    first = create(small_state(options=Options(evict=True)), pod)
    assert len(effects_of(first, Evict)) == 1
    assert create(first.state, pod, life=1).effects == ()


def test_a_running_pod_without_a_place_is_evicted_at_the_next_chance() -> None:
    pods = {"a": guaranteed("a", "5"), "b": guaranteed("b", "4"), "c": guaranteed("c", "1")}
    made = synchronize(small_state(), [sandbox(uid) for uid in pods], [running(uid) for uid in pods], pods).state
    over = ended(replace(made, options=Options(evict=True)), "c")
    assert [one.pod.uid for one in effects_of(over, Evict)] == ["b"]
    assert not findings(over), "what was told is not told again"


def test_repeated_tries_cost_nothing_until_something_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    decide = Kubelet.decide

    def watched(self: Kubelet, pod: Pod, observer: Observer | None = None) -> tuple[Kubelet, Decision]:
        asked.append(pod.uid)
        return decide(self, pod, observer)

    monkeypatch.setattr(Kubelet, "decide", watched)
    first = create(started(small_state(), guaranteed("b", "3")), guaranteed("a", "6"))
    second = create(first.state, guaranteed("a", "6"), life=1)
    assert (second.answer, second.effects) == (first.answer, ())
    assert asked == ["b", "a"]
    freed = ended(second.state, "b").state
    assert len(CPUSet.parse(adjusted(create(freed, guaranteed("a", "6"), life=2)).cpus)) == 6
    assert asked == ["b", "a", "a"]


@pytest.mark.parametrize("defect", ["crash", "endless"])
def test_an_admission_without_a_result_is_a_refusal(monkeypatch: pytest.MonkeyPatch, defect: str) -> None:
    decide = Kubelet.decide

    def flawed(self: Kubelet, pod: Pod, observer: Observer | None = None) -> tuple[Kubelet, Decision]:
        if defect == "crash":
            raise KubeletCrashError("numbers wrap around")
        kubelet, decision = decide(self, pod, observer)
        return kubelet, replace(decision, admitted=False, endless=Endless("group-loop"))

    monkeypatch.setattr(Kubelet, "decide", flawed)
    texts = {
        "crash": "AdmissionCrash: numbers wrap around",
        "endless": "EndlessAdmission: the admission would never end (defect group-loop)",
    }
    assert create(small_state(), guaranteed("a")).answer == Refused(texts[defect])


# Updates, ends.


def test_a_resize_is_answered_with_our_cpus_and_without_a_quota() -> None:
    state = started(small_state(), guaranteed("a", "2"))
    made = update_container(state, sandbox("a"), container("a"), LinuxResources(shares=4096, quota=400_000))
    assert [update.resources for update in small.updates_of(made)] == [LinuxResources(cpus="1-2", mems="0", quota=-1)]
    assert Counter(lift.of for lift in effects_of(made, LiftQuota)) == Counter([QuotaOf.POD, QuotaOf.SANDBOX])
    assert len(effects_of(tell(state, Event.POST_UPDATE_CONTAINER, container("a")), LiftQuota)) == 2


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
    asked = container("s", state=said)
    made = update_container(small_state(), sandbox("s"), asked, LinuxResources(memory_limit=2**26))
    assert made.state.containers[asked.id].phase is phase


def test_an_update_that_names_no_cpus_is_answered_with_none_where_the_record_is_right() -> None:
    state = started(small_state(), shared("s"))
    record = container("s", resources=LinuxResources(cpus="0-7"))
    made = update_container(state, sandbox("s"), record, LinuxResources(memory_limit=2**26))
    assert made.answer == Accepted(), "a list could be done after a newer one"
    assert told(update_container(state, sandbox("s"), record, LinuxResources(cpus="3"))) == [("s-main-0", "0-7")]
    # The quota of a shared container is the kubelet's.
    made = update_container(state, sandbox("s"), container("s"), LinuxResources(shares=51, quota=5000))
    assert [update.resources for update in small.updates_of(made)] == [LinuxResources(cpus="0-7")]


def test_an_update_that_was_done_too_late_is_undone_as_soon_as_it_is_told() -> None:
    late = container("s", resources=LinuxResources(cpus="0-7"))
    state = started(small_state(), shared("s"))
    state = update_container(state, sandbox("s"), late, LinuxResources(cpus="3")).state
    done = tell(create(state, guaranteed("a", "2")).state, Event.POST_UPDATE_CONTAINER, late)
    assert writes(done) == [("s", "0,3-7")]
    again = create(done.state, shared("t"))
    assert told(again) == [(late.id, "0,3-7")], "the record is told anew though the pool is the same"


def test_the_pool_grows_by_cgroups_when_a_pod_ends_and_is_narrowed_again_though_the_record_is_right() -> None:
    state = started(started(small_state(), guaranteed("a", "2")), shared("s"))
    over = ended(state, "a")
    assert effects_of(over, WriteCPUSet) == [small.cpuset_write("s-main-0", 99, "", "0-7", "")]
    assert told(stop_container(over.state, container("nobody"))) == [("s-main-0", "0-7")]
    assert not cpus_of(over.state)
    made = create(over.state, guaranteed("b", "2"))
    assert (told(made), writes(made)) == ([("s-main-0", "0,3-7")], [("s", "0,3-7")])


def test_a_late_word_does_not_bring_an_ended_container_back_and_words_about_nobody_change_nothing() -> None:
    state = stop_container(create(small_state(), shared("s")).state, container("s")).state
    after = tell(state, Event.POST_START_CONTAINER, container("s")).state
    assert after.containers["s-main-0"].phase is Phase.ENDED
    for event in Event:
        assert state_change(state, event, None, None) == EventOutcome(state)
    assert stop_container(state, container("who")) == EventOutcome(state)


# The agent was away.


def test_a_container_that_nobody_saw_created_is_placed_when_it_starts_or_not_started() -> None:
    state, pod = started(small_state(), shared("s")), guaranteed("a", "2")
    made = container("a", pid=5)
    assert needs_pod(state, Event.START_CONTAINER, sandbox("a"), made)
    late = tell(state, Event.START_CONTAINER, made, pod)
    assert dict(writes(late)) == {"a": "1-2", "s": "0,3-7"}
    assert {one.of for one in effects_of(late, LiftQuota)} == {QuotaOf.CONTAINER, QuotaOf.POD, QuotaOf.SANDBOX}
    assert findings(late) == [ReportKind.FOUND_RUNNING]
    assert isinstance(tell(state, Event.START_CONTAINER, made, guaranteed("a", "8")).answer, Refused)


def test_one_that_was_stored_before_the_agent_came_is_placed_before_it_starts_or_refused_then() -> None:
    made, pod = container("a"), guaranteed("a", "2")
    assert needs_pod(small_state(), Event.POST_CREATE_CONTAINER, sandbox("a"), made)
    seen = tell(small_state(), Event.POST_CREATE_CONTAINER, made, pod).state
    assert told(stop_container(seen, container("nobody"))) == [("a-main-0", "1-2")]
    assert not needs_pod(seen, Event.START_CONTAINER, sandbox("a"), made)
    late = tell(seen, Event.START_CONTAINER, container("a", pid=5))
    assert effects_of(late, WriteCPUSet) == [small.cpuset_write("a-main-0", 5, "", "1-2", "0")]
    wide = tell(small_state(), Event.POST_CREATE_CONTAINER, made, guaranteed("a", "8"))
    assert wide.answer == Accepted()
    assert needs_pod(wide.state, Event.START_CONTAINER, sandbox("a"), made)
    start = tell(wide.state, Event.START_CONTAINER, container("a", pid=5), guaranteed("a", "8"))
    assert isinstance(start.answer, Refused)


def test_pods_that_run_unpinned_are_placed_exclusive_ones_first() -> None:
    pods = {"s": shared("s"), "a": guaranteed("a", "2")}
    sandboxes, containers = [sandbox("s"), sandbox("a")], [running("s"), running("a")]
    assert [one.uid for one in unknown_pods(small_state(), sandboxes, containers)] == ["s", "a"]
    made = synchronize(small_state(), sandboxes, containers, pods)
    assert [(one.container_id, one.resources) for one in small.updates_of(made)] == [
        ("a-main-0", LinuxResources(cpus="1-2", mems="0", quota=-1)),
        ("s-main-0", LinuxResources(cpus="0,3-7")),
    ]
    assert sorted(uid for uid, _ in writes(made)) == ["a", "s"]


def test_what_a_pod_had_comes_back_with_a_report_when_it_is_gone_known_or_not() -> None:
    before = started(small_state(), guaranteed("a", "2"))
    made = synchronize(before, [], [], {})
    assert not cpus_of(made.state)
    [report] = effects_of(made, AgentReport)
    assert (report.finding, report.message) == (
        ReportKind.POD_GONE,
        "pod a has no sandbox any more; CPUs 1-2 came back",
    )
    unknown = synchronize(resumed(before), [], [], {})
    assert (cpus_of(unknown.state), findings(unknown)) == ({}, [ReportKind.POD_GONE])
    # Without a description they stay while the sandbox does.
    assert cpus_of(synchronize(resumed(before), [sandbox("a")], [], {}).state) == {"a": {"main": "1-2"}}


def test_cpus_that_the_state_lost_are_taken_over_without_moving_anybody() -> None:
    listed = [running("a", cpus="5-6", mems="1"), running("b", cpus="2", mems="0")]
    pods = {"a": guaranteed("a", "2"), "b": guaranteed("b", "1")}
    made = synchronize(small_state(), [sandbox("a"), sandbox("b")], listed, pods)
    assert cpus_of(made.state) == {"a": {"main": "5-6"}, "b": {"main": "2"}}
    assert [update.resources for update in small.updates_of(made)] == [LinuxResources(quota=-1)] * 2
    assert findings(made).count(ReportKind.TAKEN_OVER) == 2


def test_cpus_of_a_pod_that_has_ended_are_taken_over_by_the_one_that_runs_on_them_now() -> None:
    """The folder cannot be written since: the old journal has the one, and nothing of the other."""
    old = started(started(small_state(), guaranteed("a", "2")), guaranteed("b", "1"))
    listed = [running("b", cpus="3", mems="0"), running("c", cpus="2,4", mems="0")]
    boxes = [sandbox("b"), sandbox("c")]
    made = synchronize(resumed(old, with_pods=True), boxes, listed, {"c": guaranteed("c", "2")})
    assert cpus_of(made.state) == {"b": {"main": "3"}, "c": {"main": "2,4"}}
    assert {ReportKind.POD_GONE, ReportKind.TAKEN_OVER} <= {*findings(made)}


def test_a_pool_of_as_many_cpus_as_a_pod_requests_is_not_taken_over_from_those_who_share_it() -> None:
    """With a CPU that is offline the engine would start on the rest of the pool."""
    mooring = MooringConfig(frozenset({CPU_HOTPLUG}))
    state = started(resume(small.INFO, STRICT, mooring).state, guaranteed("a", "4"))
    pool = state.kubelet.node.cpu.default
    gone = cpus_changed(state, 0xFF & ~(pool & -pool)).state
    left, own = list_text(pool & (pool - 1)), cpus_of(state)["a"]["main"]
    listed = [running("a", cpus=own, mems="0"), running("b", cpus=left), running("s", cpus=left)]
    pods = {"b": guaranteed("b", "2"), "s": shared("s")}
    made = synchronize(gone, [sandbox("a"), sandbox("b"), sandbox("s")], listed, pods).state
    assert "b" not in cpus_of(made)
    assert [str(expected(made)[f"{one}-main-0"].cpus) for one in "bs"] == [left, left]


@pytest.mark.parametrize("cpus", ["0-1", "1", "1-3", "nonsense", ""])
def test_cpus_that_the_engine_would_not_give_are_not_taken_over(cpus: str) -> None:
    made = synchronize(small_state(), [sandbox("a")], [running("a", cpus=cpus)], {"a": guaranteed("a", "2")})
    assert cpus_of(made.state) == {"a": {"main": "1-2"}}


def test_a_running_pod_that_cannot_be_placed_shares_the_pool_until_it_can() -> None:
    pods = {"a": guaranteed("a", "5"), "b": guaranteed("b", "4")}
    made = synchronize(small_state(), [sandbox("a"), sandbox("b")], [running("a"), running("b")], pods)
    found = [one.finding for one in effects_of(made, AgentReport) if one.uid == "b"]
    assert Counter(found) == Counter([ReportKind.UNPLACED, ReportKind.CPUSET_DIFFERED])
    assert str(expected(made.state)["b-main-0"].cpus) == str(made.state.kubelet.node.shared_pool)
    over = ended(made.state, "a")
    assert ReportKind.PLACED_LATE in findings(over)
    assert ([uid for uid, _ in writes(over)], list(cpus_of(over.state)["b"])) == (["b"], ["main"])
    assert {one.of for one in effects_of(over, LiftQuota)} == {*QuotaOf}


def test_a_container_that_joined_a_pod_and_found_no_room_is_placed_when_there_is_some() -> None:
    state = create(started(small_state(), guaranteed("a", "4")), guaranteed("b", "2")).state
    first = cpus_of(state)["b"]
    there = [running("a"), running("b"), running("b", "c1")]
    pods = {"a": guaranteed("a", "4"), "b": guaranteed("b", "2", "2")}
    made = synchronize(state, [sandbox("a"), sandbox("b")], there, pods)
    assert cpus_of(made.state)["b"] == first
    over = ended(made.state, "a")
    assert ReportKind.PLACED_LATE in findings(over)
    own = cpus_of(over.state)["b"]
    assert (own["main"], len(CPUSet.parse(own["c1"]))) == (first["main"], 2)
    assert str(expected(over.state)["b-c1-0"].cpus) == own["c1"]
    assert over.state.held == {}


def test_a_machine_with_other_cpus_makes_a_new_state() -> None:
    files = started(small_state(), guaranteed("a", "2")).kubelet.files
    assert files.cpu is not None
    texts = StateTexts(files.cpu.replace("0,3-7", "0,3-15"), files.memory)
    found = resume(small.INFO, CONFIG, MooringConfig(), Stored(texts))
    assert ReportKind.STATE_REFUSED in findings(found)
    assert not cpus_of(found.state)


# Verification, storing, configuration.


def test_a_deviation_is_written_again_and_the_runtime_is_told() -> None:
    state = started(small_state(), guaranteed("a", "2"))
    made = correct_deviation(state, "a-main-0", small.cpus("0-7"), small.nodes("0-1"))
    [write] = effects_of(made, WriteCPUSet)
    assert (write, write.occasion) == (small.cpuset_write("a-main-0", 99, "", "1-2", "0"), Occasion.CHECK)
    before, after = (Setting(small.cpus(cpus), small.nodes(mems)) for cpus, mems in (("0-7", "0-1"), ("1-2", "0")))
    done = writes_done(made, [written_of(CPUSetSeen(write, before, after, wrote=True))])
    [report] = effects_of(done, AgentReport)
    assert report.message == "main had CPUs 0-7 instead of 1-2 and memory nodes 0-1 instead of 0"
    assert told(stop_container(made.state, container("other"))) == [("a-main-0", "1-2")]
    for name, cpus in (("a-main-0", "1,2"), ("gone", "0-7")):
        assert correct_deviation(state, name, small.cpus(cpus), small.nodes("0")).effects == ()


def test_a_quota_that_is_back_is_lifted_where_it_is_not_wanted() -> None:
    state = started(small_state(), guaranteed("a", "2"))
    lifts = [*expected_lifts(state)]
    assert {lift.of for lift in lifts} == {*QuotaOf}
    assert lifts[0] in correct_quota(state, lifts[0], 200_000).effects
    assert correct_quota(small_state(), lifts[0], 200_000).effects == ()


@pytest.mark.parametrize("places", [True, False], ids=["places", "refuses"])
def test_without_a_writable_folder_pods_are_placed_or_refused_as_the_operator_wants(places: bool) -> None:
    state = small_state(options=Options(place_while_unwritable=places))
    made = create(state, guaranteed("a", "2"))
    after = unwritten(state, made, "a", "disk full")
    assert (after.answer == made.answer, after.state.kubelet is state.kubelet) == (places, not places)
    assert not effects_of(after, Persist)
    assert findings(after) == [ReportKind.STATE_UNWRITABLE]
    common = create(state, shared("s"))
    assert unwritten(state, common, "s", "disk full").answer == common.answer


def other_policy(state: AgentState, policy: str) -> AgentConfiguration:
    config = replace(state.kubelet.settings.config, topology_manager_policy=policy)
    return AgentConfiguration(AgentOptions(), config, state.kubelet.mooring)


def test_a_new_configuration_places_a_waiting_pod_that_runs_at_once_and_another_when_it_comes() -> None:
    # Five CPUs are more than one NUMA node has.
    pod, fresh = guaranteed("a", "5"), small_state(replace(CONFIG, topology_manager_policy="single-numa-node"))
    waiting = synchronize(fresh, [sandbox("a")], [running("a")], {"a": pod}).state
    facts: list[object] = []
    found = with_configuration(waiting, other_policy(waiting, "best-effort"), Moment(), facts.append)
    assert ([*waiting.held], found.state.held) == (["a"], {})
    [write] = effects_of(found, WriteCPUSet)
    assert len(write.cpus) == 5
    assert ReportKind.PLACED_LATE in findings(found)
    assert facts, "metrics hear of the admission"
    held = create(fresh, pod).state
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


def test_the_containers_of_a_sandbox_are_reported_as_they_were_asked_for() -> None:
    state = started(small_state(), guaranteed("a", "2"))
    [message] = requested_containers(state, "sandbox-a-0")
    assert (message.name, message.resources) == ("main", small.sizes(2))


def test_a_creation_that_is_reported_twice_does_not_hide_a_running_container() -> None:
    pod = shared("s")
    again = create_container(started(small_state(), pod), sandbox("s"), container("s"), pod)
    assert told(create(again.state, guaranteed("a", "2"))) == [("s-main-0", "0,3-7")]
