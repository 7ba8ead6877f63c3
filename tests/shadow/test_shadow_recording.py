"""What is judged to agree replays: a recording begins where the judge began and ends where it ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.shadow.observing import PINNED, STATIC, Node, node

from mooring.answers.base.agreement import FieldDifference, differences
from mooring.answers.base.scenario import replay_scenario
from mooring.engine.core.bits import CPUMask
from mooring.engine.core.config import KubeletConfig
from mooring.engine.kubelet.kubelet import cpu_text
from mooring.inputs.pods.scenario import scenario
from mooring.monitoring.shadow.judge import judge
from mooring.monitoring.shadow.judgement import Agreement
from mooring.monitoring.shadow.recording import minimal_scenario, recorded_scenario
from mooring.monitoring.shadow.unseen import ObservedNode

BOUND = replace(PINNED, topology_manager_policy="restricted")
PODS = replace(BOUND, topology_manager_policy="single-numa-node", topology_manager_scope="pod")
NO_POLICY = replace(STATIC, cpu_manager_policy="none", max_pods=2)
CONFIGS = [STATIC, BOUND, PODS, replace(STATIC, topology_manager_policy="restricted")]

events = st.lists(
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


def happened(watched: Node, event: str, value: object, number: int) -> None:
    running = [uid for uid in watched.kubelet.node.active if watched.objects[uid].get("status")]
    uid = f"pod-{number}"
    if event in {"admit", "ask"}:
        cpus, _, memory = str(value).partition("@")
        before, _, cpus = cpus.rpartition(">")
        watched.admit(uid, *cpus.split(), memory=memory or "1Mi", before=before)
        if event == "ask":
            watched.tell_later(uid)
    elif event == "leave" and running:
        assert isinstance(value, int)
        watched.leave(running[value % len(running)])
    elif event == "delete":
        assert isinstance(value, int)
        gone = [uid for uid in watched.objects if uid not in watched.kubelet.node.active and uid not in watched.asked]
        for name in gone[value:]:
            del watched.objects[name]
    elif event in {"restart", "become"}:
        watched.tell()
        assert value is None or isinstance(value, KubeletConfig)
        watched.restart(value)
    elif event in {"reconcile", "tell"}:
        getattr(watched, event)()


@settings(max_examples=60)
@example(STATIC, [*[("admit", "1500m")] * 4, ("ask", "10"), ("observe", None), ("admit", "1")])  # it is refused later
@example(STATIC, [("admit", "2"), ("admit", "1500m"), *[("leave", 0), ("delete", 0), ("judge", None)] * 2])
@example(BOUND, [("ask", "7 12"), ("tell", None), ("reconcile", None)])  # part of it was given something
@example(BOUND, [("admit", "2"), ("leave", 0), ("judge", None), ("restart", None), ("reconcile", None)])
@example(BOUND, [("admit", "2>2"), ("judge", None), ("admit", "1")])  # memory of a container that has ended
@example(STATIC, [("admit", "2"), ("admit", "2"), ("judge", None), ("become", NO_POLICY)])
@given(st.sampled_from(CONFIGS), events)
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
    watched = node(replace(BOUND, topology_manager_policy="single-numa-node"))
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
