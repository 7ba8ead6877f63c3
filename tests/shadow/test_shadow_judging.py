"""What a shadow says of a kubelet that decides as the engine, and of one that does not."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.cli.command import mooring
from tests.shadow.observing import PINNED, STATIC, Node, agreed, container, devices, node, said
from tests.shadow.test_shadow_watching import Publishing
from tests.values import refusal

from mooring.answers.base.agreement import FieldDifference, differences
from mooring.answers.base.scenario import replay_scenario
from mooring.answers.base.trace import load_machines
from mooring.engine.core.bits import CPUMask
from mooring.engine.core.config import KubeletConfig, ReservedMemory
from mooring.engine.devicemanager.state import Device, DeviceState
from mooring.engine.kubelet.events import Restart
from mooring.engine.kubelet.kubelet import StateTexts, cpu_text
from mooring.inputs.pods.pods import MIRROR
from mooring.inputs.pods.scenario import node_histories, scenario
from mooring.monitoring.shadow.judge import judge
from mooring.monitoring.shadow.judgement import Agreement, DifferenceCause, KubeletEvent
from mooring.monitoring.shadow.recording import minimal_scenario, recorded_scenario
from mooring.monitoring.shadow.unseen import ObservedNode

ALIGNED = replace(STATIC, topology_manager_policy="single-numa-node")
ALIGNED_CORES = replace(STATIC, cpu_manager_policy_options={"full-pcpus-only": "true"})
PACKED = replace(STATIC, cpu_manager_policy_options={"distribute-cpus-across-numa": "true"})

events = st.lists(
    st.one_of(
        st.tuples(st.just("admit"), st.sampled_from(["1", "2", "3", "6", "10", "1500m"])),
        st.tuples(st.just("end"), st.integers(0, 5)),
        st.tuples(st.just("finish"), st.integers(0, 5)),
        st.tuples(st.just("restart"), st.none()),
        st.tuples(st.just("observe"), st.none()),
    ),
    max_size=14,
)


def happened(watched: Node, event: str, value: object, number: int) -> None:
    running = [uid for uid in watched.kubelet.node.active if watched.objects[uid].get("status")]
    uid = f"pod-{number}"
    if event in {"admit", "ask"}:
        cpus, _, memory = str(value).partition("@")
        before, _, cpus = cpus.rpartition(">")
        watched.admit(uid, *cpus.split(), memory=memory or "1Mi", before=before)
        if event == "ask":
            watched.tell_later(uid)
    elif event in {"leave", "end", "finish"} and running:
        assert isinstance(value, int)
        gone = running[value % len(running)]
        if event == "leave":
            watched.leave(gone)
        else:
            watched.end(gone, released=event == "end")
    elif event == "delete":
        assert isinstance(value, int)
        there = {*watched.kubelet.node.active, *watched.asked}
        for name in [uid for uid in watched.objects if uid not in there][value:]:
            del watched.objects[name]
    elif event in {"restart", "become"}:
        watched.tell()
        assert value is None or isinstance(value, KubeletConfig)
        watched.restart(value)
    elif event in {"reconcile", "tell"}:
        getattr(watched, event)()


@settings(max_examples=60)
@given(st.sampled_from([STATIC, ALIGNED, PACKED]), events)
def test_a_kubelet_like_the_engine_agrees_in_everything(config: KubeletConfig, story: list[tuple[str, object]]) -> None:
    watched = node(config)
    before, looks = watched.observed(), list[ObservedNode]()
    unseen = 0
    for number, (event, value) in enumerate([*story, ("observe", None)]):
        unseen += event != "observe"
        if event == "observe" or unseen == 4:
            looks.append(watched.observed())
            unseen = 0
        if looks and (number % 5 == 4 or number == len(story)):
            assert [one.line() for one in said(before, *looks) if one.verdict is not Agreement.AGREED] == []
            before, looks = looks[-1], []
        happened(watched, event, value, number)


def observed_story(watched: Node) -> tuple[ObservedNode, ObservedNode]:
    before = watched.observed()
    watched.admit("first", "2")
    watched.admit("second", "3")
    watched.admit("large", "40")
    return before, watched.observed()


def test_a_kubelet_with_another_option_than_its_configuration_says_differs_where_it_first_does() -> None:
    before, after = observed_story(node(PACKED))
    facts = replace(before.facts, config=STATIC)
    judged = said(replace(before, facts=facts), replace(after, facts=facts))
    differing = [one for one in judged if one.verdict is Agreement.DIFFERS]
    assert [(one.uid, one.cause) for one in differing] == [("first", DifferenceCause.CPUS)]


@pytest.mark.parametrize(
    ("status", "cause"),
    [
        ({"phase": "Running"}, DifferenceCause.OUTCOME),
        ({"reason": "OutOfmemory"}, DifferenceCause.REASON),
        ({"message": "Pod was rejected: no"}, DifferenceCause.MESSAGE),
    ],
)
def test_another_refusal_differs(status: dict[str, str], cause: DifferenceCause) -> None:
    watched = node()
    before = watched.observed()
    watched.admit("large", "40")
    watched.objects["large"]["status"].update(status)
    [one] = said(before, watched.observed())
    assert (one.verdict, one.cause) == (Agreement.DIFFERS, cause)


def test_another_byte_in_a_state_file_differs() -> None:
    watched = node()
    before = watched.observed()
    watched.admit("web", "2")
    after = watched.observed()
    files = after.state.files
    assert files.cpu is not None
    changed = StateTexts(files.cpu.replace("{", "{ ", 1), files.memory)
    [one] = said(before, replace(after, state=replace(after.state, files=changed)))
    assert (one.verdict, one.cause) == (Agreement.DIFFERS, DifferenceCause.CPU_FILE)


def test_what_the_kubelet_has_not_decided_is_left_for_later() -> None:
    watched = node()
    before = watched.observed()
    watched.admit("large", "40")
    told = watched.objects["large"]["status"]
    watched.objects["large"]["status"] = {"phase": "Pending"}
    between = watched.observed()
    assert said(before, between) == []
    watched.objects["large"]["status"] = told
    [one] = said(between, watched.observed())
    assert (one.verdict, one.event) == (Agreement.AGREED, KubeletEvent.REFUSED)


def test_too_many_changes_at_once_cannot_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mooring.monitoring.shadow.orders.MOST_RUNS", 4)
    watched = node()
    before = watched.observed()
    for number in range(5):
        watched.admit(f"pod-{number}", "2")
    after = watched.observed()
    backwards = replace(after, pods=dict(reversed(list(after.pods.items()))))
    assert {one.cause for one in said(before, backwards)} == {DifferenceCause.ORDER}


def test_files_may_be_removed_before_a_restart_with_the_same_policy() -> None:
    watched = node()
    for uid, cpus in (("gone", "2"), ("first", "3"), ("second", "2")):
        watched.admit(uid, cpus, created=0)
    watched.end("gone")
    before = watched.observed()
    # Created in the same second: a kubelet asks about them in any order.
    watched.lose_cpu_file("second", "first")
    watched.restart()
    after = watched.observed()
    assert after.state.files != before.state.files
    assert agreed(before, after) == ["kubelet restarted"]


def test_a_static_pod_has_the_uid_of_its_manifest_and_comes_first_after_a_restart() -> None:
    watched = node(replace(STATIC, cpu_manager_policy="none"))
    watched.admit("web", "2")
    watched.admit("static", "3")
    # What the API server has is the mirror, which was made after the pod.
    watched.objects["static"]["metadata"] |= {"uid": "of the mirror", "annotations": {MIRROR: "static"}}
    before = watched.observed()
    assert before.pods.keys() == before.listed
    watched.lose_cpu_file("static", "web")
    watched.restart(STATIC)
    assert watched.kubelet.node.cpu.assignments["static"]["c0"] & 0b10, "the first that are free"
    assert agreed(before, watched.observed()) == ["kubelet restarted"]


def test_a_pod_that_runs_and_is_refused_by_the_next_kubelet_was_admitted_before() -> None:
    watched = node()
    before = watched.observed()
    assert watched.admit("wide", "10")
    assert watched.admit("web", "2")
    between = watched.observed()
    watched.lose_cpu_file()
    watched.restart(ALIGNED)
    assert watched.objects["wide"]["status"]["reason"] == "TopologyAffinityError"
    assert sorted(agreed(before, between, watched.observed())) == [
        "kubelet restarted",
        "web admitted",
        "wide admitted",
        "wide removed",
    ]


def test_a_refusal_at_a_start_may_be_told_after_what_else_the_start_changed() -> None:
    watched = node()
    watched.admit("wide", "10")
    watched.admit("web", "2")
    before = watched.observed()
    watched.lose_cpu_file()
    watched.restart(ALIGNED)
    watched.tell_later("wide")
    watched.objects["wide"]["status"] = {"phase": "Running", "qosClass": "Guaranteed"}
    early = watched.observed()
    watched.tell()
    start, rest = judge(before, early, watched.observed())
    assert {one.verdict for one in (*start.judgements, *rest.judgements)} == {Agreement.AGREED}
    assert start.has_restart


def test_of_a_deleted_pod_a_starting_kubelet_does_not_publish_the_refusal() -> None:
    watched = node()
    for uid, cpus in (("web", ["2"]), ("wide", ["2", "10"]), ("late", ["1"])):
        watched.admit(uid, *cpus)
    before = watched.observed()
    running = watched.objects["wide"]["status"]
    watched.objects["wide"]["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z"
    watched.lose_cpu_file()
    watched.restart(ALIGNED)
    assert watched.objects["wide"]["status"]["reason"] == "TopologyAffinityError"
    watched.objects["wide"]["status"] = running
    after = watched.observed()
    listed = (*after.state.pods, *(key for key in before.state.pods if key.uid == "wide"))
    ending = replace(after, state=replace(after.state, pods=listed))
    assert agreed(before, ending) == ["kubelet restarted"]
    # Of a pod that is not deleted it publishes it.
    del watched.objects["wide"]["metadata"]["deletionTimestamp"]
    lines = [one.line() for one in said(before, replace(ending, pods=watched.observed().pods))]
    assert [line.partition(":")[0] for line in lines] == ["differs"]


def test_files_that_are_removed_stay_removed_when_a_pod_ends_meanwhile() -> None:
    watched = node()
    for uid, created in (("gone", 0), ("second", 1), ("first", 1)):
        watched.admit(uid, "2", created=created)
    before = watched.observed()
    watched.objects["gone"]["status"]["phase"] = "Succeeded"
    watched.lose_cpu_file("first", "second")
    watched.restart()
    assert agreed(before, watched.observed()) == ["kubelet restarted", "gone removed"]


def test_a_kubelet_that_starts_has_no_devices_until_their_plugin_registers_again() -> None:
    watched = node(ALIGNED)
    watched.kubelet = watched.kubelet.with_devices(devices(gpu=1))
    before = watched.observed()
    watched.restart()
    unhealthy = DeviceState({"vendor.example/gpu": (Device("g0", (0,), healthy=False),)})
    watched.kubelet = watched.kubelet.with_devices(unhealthy)
    assert not watched.admit_pod("early", [], [container("c0", "2", gpu="1")])
    watched.kubelet = watched.kubelet.with_devices(devices(gpu=1)).settled()
    assert sorted(agreed(before, watched.observed())) == ["early refused", "kubelet restarted"]


def test_a_pod_that_was_asked_about_for_long_and_is_refused_in_the_end_is_judged() -> None:
    watched = node()
    watched.admit("web", "2")
    watched.admit("wide", "40")
    watched.tell_later("wide")
    before = watched.observed()
    assert before.waiting == {"wide"}
    watched.tell()
    assert agreed(before, watched.observed()) == ["wide refused"]


def test_a_pod_that_was_asked_about_and_is_gone_may_count() -> None:
    watched = node(replace(STATIC, cpu_manager_policy="none"))
    watched.admit("gone", "7")
    watched.tell_later("gone")
    before = watched.observed()
    watched.admit("large", "9")
    watched.tell()
    watched.end("gone")
    assert sorted(agreed(before, watched.observed())) == ["gone admitted", "large refused"]


def test_a_pod_that_came_was_asked_about_and_has_gone_may_count() -> None:
    watched = node(replace(STATIC, cpu_manager_policy="none"))
    before = watched.observed()
    watched.admit("gone", "7")
    watched.tell_later("gone")
    between = watched.observed()
    watched.admit("large", "9")
    watched.tell()
    watched.end("gone")
    watched.objects["gone"]["status"]["phase"] = "Failed"
    lines = [one.line() for one in said(before, between, watched.observed())]
    assert "agreed: default/large refused" in lines


def assigned(watched: Node, given: Mapping[str, CPUMask]) -> None:
    """Give the containers of the pod ``new`` these CPUs in place of those that they have."""
    state = watched.kubelet.node.cpu
    free = state.default | sum(state.assignments["new"].values())
    state = replace(state, assignments={"new": given}, default=free & ~sum(given.values()))
    providers = replace(watched.kubelet.node.providers, cpu=state)
    changed = replace(watched.kubelet, node=replace(watched.kubelet.node, providers=providers))
    watched.kubelet = replace(changed, cpu_file=cpu_text(changed.settings, state))


def test_a_pod_that_left_while_another_was_asked_about_leaves_the_order_unknown() -> None:
    """The kubelet releases what a pod had between two containers of the next one."""
    watched, alone = node(), node()
    watched.admit("gone", "2")
    before = watched.observed()
    for each in (watched, alone):
        each.admit("new", "4", before="2", created=1)
    watched.end("gone")
    cpu, later = (each.kubelet.node.cpu.assignments["new"] for each in (watched, alone))
    assert later["c0"] & ~cpu["c0"]
    assigned(watched, {"before": cpu["before"], "c0": later["c0"]})
    verdicts = {(one.verdict, one.cause) for one in said(before, watched.observed())}
    assert verdicts == {(Agreement.UNKNOWN, DifferenceCause.ORDER)}


@pytest.mark.parametrize(("second", "cause"), [("2", DifferenceCause.ORDER), ("3", DifferenceCause.CPUS)])
def test_the_next_container_gets_part_of_what_the_pod_that_left_had(second: str, cause: DifferenceCause) -> None:
    watched, empty = node(), node()
    watched.admit("gone", "4")
    before = watched.observed()
    watched.admit("new", "4", "2")
    watched.end("gone")
    empty.admit("first", second)
    freed = empty.kubelet.node.cpu.assignments["first"]["c0"]
    assigned(watched, {"c0": watched.kubelet.node.cpu.assignments["new"]["c0"], "c1": freed})
    assert cause in {one.cause for one in said(before, watched.observed())}


def test_a_pod_that_is_seen_to_leave_between_the_hints_and_the_cpus_of_the_next_one_is_no_difference() -> None:
    watched = node()
    watched.admit("gone", "2")
    before = watched.observed()
    early = node()
    early.admit("gone", "2")
    early.end("gone")
    watched.admit("new", "4", created=1)
    watched.end("gone")
    alone = node()
    alone.admit("new", "4")
    assert alone.kubelet.node.cpu.assignments["new"] != watched.kubelet.node.cpu.assignments["new"]
    assert sorted(agreed(before, early.observed(), watched.observed())) == ["gone removed", "new admitted"]


def test_a_pod_without_devices_for_it_is_not_refused_in_words_about_its_cpus() -> None:
    watched, empty = node(ALIGNED_CORES), node(ALIGNED_CORES)
    for each in (watched, empty):
        each.kubelet = each.kubelet.with_devices(devices(gpu=1))
    assert watched.admit_pod("holder", [], [container("c0", "500m", gpu="1")])
    before = watched.observed()
    for each in (watched, empty):
        assert not each.admit_pod("large", [], [container("c0", "1000", gpu="1")])
    words = [each.objects["large"]["status"]["reason"] for each in (watched, empty)]
    assert words == ["UnexpectedAdmissionError", "SMTAlignmentError"]
    watched.objects["large"]["status"] = empty.objects["large"]["status"]
    assert [one.verdict for one in said(before, watched.observed())] == [Agreement.DIFFERS]


def test_a_pod_of_the_first_list_finds_the_devices_of_a_pod_that_ended_before_the_start() -> None:
    watched = node(replace(STATIC, topology_manager_policy="best-effort"))
    watched.kubelet = watched.kubelet.with_devices(devices(gpu=2, nic=2))
    assert watched.admit_pod("stays", [], [container("c0", "1", gpu="2", nic="1")])
    assert watched.admit_pod("gone", [], [container("c0", "1", nic="1")])
    left = {"gone": watched.kubelet.node.providers.devices.held["gone"]}
    watched.end("gone")
    before = replace(watched.observed(), left=left)
    watched.restart()
    assert not watched.admit_pod("new", [], [container("c0", "7", gpu="2", nic="1")], is_listed=True)
    status = watched.objects["new"]["status"]
    # Both have none left: which of them the kubelet names is random.
    status["message"] = status["message"].replace("gpu. Requested: 2", "nic. Requested: 1")
    assert "nic. Requested: 1, Available: 0" in status["message"]
    assert sorted(agreed(before, watched.observed())) == ["kubelet restarted", "new refused"]


def test_of_several_pods_that_left_some_left_before_the_first_container_and_some_after_it() -> None:
    watched, between, empty = node(), node(), node()
    for each in (watched, between):
        for uid in ("a", "b"):
            each.admit(uid, "2")
    before = watched.observed()
    between.end("b")
    for each in (watched, between):
        each.admit("new", "2", "2")
    for uid in ("a", "b"):
        watched.end(uid)
    empty.admit("first", "2")
    first, freed = (each.kubelet.node.cpu.assignments[uid]["c0"] for each, uid in ((between, "new"), (empty, "first")))
    assigned(watched, {"c0": first, "c1": freed})
    assert {one.cause for one in said(before, watched.observed())} == {DifferenceCause.ORDER}


BOUND = replace(PINNED, topology_manager_policy="best-effort")


@pytest.mark.parametrize(("missing", "verdict"), [(33, Agreement.UNKNOWN), (34, Agreement.DIFFERS)])
@pytest.mark.parametrize("is_refused", [False, True])
def test_a_pod_that_left_during_a_refusal_leaves_the_order_open(
    missing: int, verdict: Agreement, *, is_refused: bool
) -> None:
    watched = node(BOUND)
    if is_refused:
        before = watched.observed()
        assert not watched.admit("gone", "6", "40")
    else:
        watched.admit("gone", "6")
        before = watched.observed()
    watched.admit("new", "2", "40")
    if not is_refused:
        watched.end("gone")
    status = watched.objects["new"]["status"]
    # Of NUMA node 0, which gives first, 7 CPUs are free then, not 1.
    assert "requested=39, available=6" in status["message"] or is_refused
    said_of_cpus = f"not enough cpus available to satisfy request: requested={missing}, available=6"
    status["message"] = f"Pod was rejected: Allocate failed due to {said_of_cpus}, which is unexpected"
    [judgement] = [one for one in said(before, watched.observed()) if one.uid == "new"]
    assert judgement.verdict is verdict


def test_a_pod_of_which_nothing_is_told_counts_when_a_starting_kubelet_refuses_another() -> None:
    """What is refused keeps its CPUs until all of the first list are asked about, and the next pod gets others."""
    watched = node()
    watched.admit("runs", "2")
    before = watched.observed()
    watched.restart()
    between = watched.observed()
    shared = {"name": "c0", "resources": {"requests": {"memory": "5Gi"}}}
    for uid, one in (("shared", shared), ("large", container("c0", "2", "4Gi")), ("next", container("c0", "2"))):
        watched.admit_pod(uid, [], [one], created=9, is_listed=True)
    assert watched.objects["large"]["status"]["reason"] == "OutOfmemory"
    del watched.objects["shared"]["status"]
    assert sorted(agreed(before, between, watched.observed())) == [
        "kubelet restarted",
        "large refused",
        "next admitted",
    ]


@pytest.mark.parametrize("starts", [False, True])
def test_memory_that_an_init_container_has_still_leaves_the_order_unknown(*, starts: bool) -> None:
    reserved = (ReservedMemory(0, {"memory": "100Mi"}),)
    threshold = {"memory.available": "100Mi"}
    config = replace(STATIC, memory_manager_policy="Static", reserved_memory=reserved, eviction_hard=threshold)
    watched = node(config)
    before = watched.observed()
    watched.admit_pod("first", [container("load", "1", "3Gi")], [container("c0", "1", "64Mi")], starts=starts)
    watched.admit("second", "1", memory="2Gi")
    lines = [one.line() for one in said(before, watched.observed())]
    if starts:
        assert lines == ["agreed: default/first admitted", "agreed: default/second admitted"]
    else:
        assert {line.partition(": ")[0] for line in lines} == {"cannot tell"}
        assert lines[0].endswith("an init container of another pod ran still")


def test_a_pod_that_the_kubelet_listed_before_anything_was_known_of_it_is_judged_later() -> None:
    watched = node()
    watched.admit("early", "2")
    before = watched.observed()
    watched.admit("late", "2")
    after = watched.observed()
    keys = tuple(replace(key, uid="") if key.name == "late" else key for key in after.state.pods)
    unknown = replace(after, state=replace(after.state, pods=keys), pods=before.pods, holding=before.holding)
    assert agreed(before, unknown, after) == ["late admitted"]


def test_a_state_file_seen_between_two_writes_of_the_kubelet_stands_for_no_moment() -> None:
    """The kubelet takes CPUs off the shared pool with one write, and gives them to a container with the next."""
    watched = node()
    watched.admit("early", "2")
    before = watched.observed()
    cpu = watched.kubelet.node.cpu
    torn = replace(cpu, default=CPUMask(cpu.default & ~0b110000))
    text = cpu_text(watched.kubelet.settings, torn)
    between = replace(before, state=replace(before.state, files=replace(before.state.files, cpu=text)))
    assert not watched.admit("refused", "40")
    watched.admit("late", "2")
    assert agreed(before, between, watched.observed()) == ["late admitted", "refused refused"]


# What is judged to agree replays: a recording begins where the judge began and ends where it ended.


BOUND_RECORDING = replace(PINNED, topology_manager_policy="restricted")
PODS = replace(BOUND_RECORDING, topology_manager_policy="single-numa-node", topology_manager_scope="pod")
NO_POLICY = replace(STATIC, cpu_manager_policy="none", max_pods=2)
CONFIGS = [STATIC, BOUND_RECORDING, PODS, replace(STATIC, topology_manager_policy="restricted")]

events_recording = st.lists(
    st.one_of(
        st.tuples(st.just("admit"), st.sampled_from(["1", "2", "6", "10", "1500m", "7 2", "2>2", "2@3Gi", "3@6Gi"])),
        st.tuples(st.just("ask"), st.sampled_from(["2", "10", "40", "7 12", "2@9Gi"])),
        st.tuples(st.just("leave"), st.integers(0, 5)),
        st.tuples(st.just("delete"), st.integers(0, 5)),
        st.tuples(st.just("become"), st.sampled_from([*CONFIGS, NO_POLICY])),
        st.tuples(st.sampled_from(["reconcile", "tell", "restart", "observe", "judge"]), st.none()),
    ),
    max_size=16,
)


def unlike(before: ObservedNode, *looks: ObservedNode) -> Iterator[tuple[str, list[FieldDifference]]]:
    """Yield what of the recordings between observations does not replay."""
    pods = {uid: one for look in (before, *looks) for uid, one in look.pods.items()}
    machine = before.facts.machine
    for interval in judge(before, *looks):
        said = [one.line() for one in interval.judgements if one.verdict is not Agreement.AGREED]
        content = recorded_scenario("it", interval, pods)
        if content is not None and not said:
            case = scenario(content, source="recording")
            answer = replay_scenario(case, {case.machine: machine})
            if found := differences(content["expect"], answer["expect"]):
                yield str(content["steps"]), found


@settings(max_examples=60)
@example(STATIC, [*[("admit", "1500m")] * 4, ("ask", "10"), ("observe", None), ("admit", "1")])  # it is refused later
@example(STATIC, [("admit", "2"), ("admit", "1500m"), *[("leave", 0), ("delete", 0), ("judge", None)] * 2])
@example(BOUND_RECORDING, [("ask", "7 12"), ("tell", None), ("reconcile", None)])  # part of it was given something
@example(BOUND_RECORDING, [("admit", "2"), ("leave", 0), ("judge", None), ("restart", None), ("reconcile", None)])
@example(BOUND_RECORDING, [("admit", "2>2"), ("judge", None), ("admit", "1")])  # memory of a container that has ended
@example(STATIC, [("admit", "2"), ("admit", "2"), ("judge", None), ("become", NO_POLICY)])
@given(st.sampled_from(CONFIGS), events_recording)
def test_what_agrees_replays(config: KubeletConfig, story: list[tuple[str, object]]) -> None:
    watched = node(config)
    before, looks = watched.observed(), list[ObservedNode]()
    for number, (event, value) in enumerate([*story, ("tell", None), ("judge", None)]):
        happened(watched, event, value, number)
        if event in {"observe", "judge"}:
            looks.append(watched.observed())
        if event == "judge":
            assert list(unlike(before, *looks)) == []
            before, looks = looks[-1], []


def test_a_pod_that_a_starting_kubelet_refuses_and_lists_still_has_left_the_recorded_files() -> None:
    watched = node(replace(BOUND_RECORDING, topology_manager_policy="single-numa-node"))
    for number, cpus in enumerate(["1", "2>2@3Gi", "1"]):
        happened(watched, "admit", cpus, number)
    before = watched.observed()
    watched.restart()
    assert watched.objects["pod-1"]["status"]["reason"] == "TopologyAffinityError", "its init container finds no memory"
    after = watched.observed()
    listed = (*after.state.pods, *(key for key in before.state.pods if key.uid == "pod-1"))
    assert list(unlike(before, replace(after, state=replace(after.state, pods=listed)))) == []


def test_the_smallest_scenario_of_a_different_file_has_the_pods_that_the_file_names() -> None:
    watched = node()
    watched.admit("pinned", "2")
    watched.admit("light", "1500m")
    before = watched.observed()
    watched.admit("app", "2")
    watched.admit("other", "500m")
    after = watched.observed()
    [interval] = judge(before, after)
    content = recorded_scenario("it", interval, after.pods)
    assert content is not None
    texts = content["expect"]["steps"][-1]
    texts["cpuManagerState"] = texts["cpuManagerState"].replace('"app":{"c0":"', '"app":{"c0":"99,')
    found = minimal_scenario(content, before.facts)
    assert [one["metadata"]["name"] for one in found["active"]] == ["pinned"]
    assert "app" in [one["admit"]["metadata"]["name"] for one in found["steps"]]


def test_a_state_file_that_nothing_explains_and_nothing_is_said_of_is_not_recorded() -> None:
    watched = node()
    before = watched.observed()
    assert not watched.admit("refused", "40")
    seen = watched.observed()
    cpu = watched.kubelet.node.cpu
    torn = cpu_text(watched.kubelet.settings, replace(cpu, default=CPUMask(cpu.default & ~0b110000)))
    between = replace(seen, state=replace(seen.state, files=replace(seen.state.files, cpu=torn)))
    [interval] = judge(before, between)
    assert not interval.fits
    assert recorded_scenario("it", replace(interval, judgements=()), seen.pods) is None
    assert recorded_scenario("it", interval, seen.pods) is not None


# Recordings as traces: put together again, compared over, and given to a cluster.


stories = st.lists(st.sampled_from(["1", "3", "6", "40", "1500m", "end", "restart", "away"]), min_size=1, max_size=10)
EVENTS = ["1", "3", "40", "end", "6", "away", "2", "restart", "10"]


def recorded(folder: Path, story: Sequence[str], name: str = "node") -> Publishing:
    """Record a node while pods come and go; ``away`` ends one while nothing is recorded."""
    watched = node(replace(STATIC, topology_manager_policy="best-effort"))
    found = Publishing(watched, folder / name)
    for number, event in enumerate(story):
        running = [uid for uid in watched.kubelet.node.active if watched.objects[uid]["status"]["phase"] == "Running"]
        if event in {"end", "away"}:
            if running:
                watched.end(running[0])
        elif event == "restart":
            watched.restart(replace(STATIC, topology_manager_policy="restricted"))
        else:
            watched.admit(f"{name}-pod-{number}", event)
        if event == "away":
            found.watch_anew()
        else:
            found.wait()
    return found


@settings(max_examples=12)
@given(stories)
def test_scenarios_put_together_end_as_the_last_one(tmp_path_factory: pytest.TempPathFactory, story: list[str]) -> None:
    folder = tmp_path_factory.mktemp("recorded")
    recorded(folder, [*story, "1"])
    [history] = node_histories(folder)
    last = json.loads(max(folder.glob("node/recording-*")).read_text().splitlines()[-1])
    answer = replay_scenario(history.scenario, load_machines([str(folder / "node" / "machines.jsonl")]))
    assert states(answer["expect"]["steps"][-1]) == states(last["expect"]["steps"][-1])
    assert [one.at for one in history.steps] == sorted(one.at for one in history.steps)


def states(step: dict[str, Any]) -> list[Any]:
    return [step["cpuManagerState"], step["memoryManagerState"]]


def test_a_restart_names_what_it_changed_alone(tmp_path: Path) -> None:
    recorded(tmp_path, ["1", "restart", "restart", "2"])
    [history] = node_histories(tmp_path)
    restarts = [one.step for one in history.steps if isinstance(one.step, Restart)]
    assert [one.kubelet.topology_manager_policy for one in restarts if one.kubelet is not None] == ["restricted"]


def test_a_fleet_does_the_recorded_work_on_the_recorded_nodes(tmp_path: Path) -> None:
    for name in ("node-1", "node-2"):
        recorded(tmp_path, EVENTS[:6], name)
    said = mooring("fleet", "simulate", "--trace", tmp_path, "-o", "json")
    assert said.err == ""
    document = json.loads(said.out)
    assert [(one["name"], one["nodes"]) for one in document["groups"]] == [("recorded-1", 2)]
    assert document["pods"]["ran"] + document["pods"]["runs"] == 6
    assert document["assumed"] == ["2 pods that a kubelet refused are left out"]
    assert mooring("fleet", "simulate").code == 2


def test_policies_are_compared_over_a_whole_recording(tmp_path: Path) -> None:
    recorded(tmp_path, EVENTS)
    said = mooring("compare", "--trace", tmp_path, "-o", "json")
    document = json.loads(said.out)
    as_given = next(one for one in document["variants"] if one["asGiven"])
    assert (as_given["name"], as_given["admitted"], sum(as_given["rejected"].values())) == ("node", 4, 2)
    recorded(tmp_path, EVENTS, "other")
    several = mooring("compare", "--trace", tmp_path)
    assert (several.code, "has recordings of several nodes: node, other" in several.err) == (2, True)
    assert mooring("compare", "--trace", tmp_path / "other").code == 1


def test_a_file_without_times_is_no_recording(tmp_path: Path) -> None:
    (tmp_path / "recording-000001.jsonl").write_text('{"id": "it", "machine": "cores=2", "steps": []}\n')
    assert "does not tell when it was observed" in refusal(node_histories, tmp_path)
    said = mooring("fleet", "simulate", "--trace", tmp_path)
    assert (said.code, said.err.count("\n")) == (2, 1)
