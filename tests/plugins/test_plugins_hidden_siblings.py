"""The plugin hidden-siblings: one thread of each core, and the others are nobody's as long as the container runs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import to_builtins
from tests.plans import started_kubelet, started_plan
from tests.plugins.plugged_nodes import (
    STATIC,
    WHOLE,
    breaks,
    container,
    cpus_of,
    machine_named,
    named,
    node_on,
    plugged,
    pod,
)

from mooring.answers.base.picture import plan_view
from mooring.answers.base.plan import Plan, Question
from mooring.answers.base.plan_document import plan_document
from mooring.answers.base.pods import explain
from mooring.answers.base.rows import plan_rows
from mooring.answers.doctor.diagnosis import diagnose
from mooring.answers.doctor.lint import assignments_of
from mooring.documents.of_kubelet import pod_resources_document
from mooring.engine.core.bits import CPUMask
from mooring.engine.core.config import KubeletConfig
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.machine import Machine
from mooring.engine.core.pod import ContainerKind, Pod, PodResources
from mooring.engine.core.quantity import Quantity
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.extensions.owners import without_hidden
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.kubelet.start import restart_kubelet
from mooring.explanations.lines import story_lines
from mooring.explanations.story import walk

SMT = "sockets=2 cores=8 threads=2 memory=16Gi"
"""Eight cores; CPUs n and n + 8 share one."""
SINGLE = replace(WHOLE, topology_manager_policy="single-numa-node")


def hiding(name: str, *cpus: int) -> Pod:
    return pod(name, *cpus, hide_siblings="true")


def planned(*pods: Pod, machine: Machine | None = None) -> Plan:
    return started_plan(Question(machine or machine_named(SMT), STATIC, plugged("hidden-siblings"), tuple(pods)))


@pytest.mark.parametrize("config", [STATIC, WHOLE, SINGLE])
def test_a_container_gets_one_thread_of_each_core_and_nobody_the_others(config: KubeletConfig) -> None:
    kubelet, decision = node_on(SMT, "hidden-siblings", config=config).admit(hiding("web", 3))
    cpus = cpus_of(decision)
    cores = {cpu % 8 for cpu in cpus}
    assert len(cpus) == len(cores) == 3
    siblings = CPUSet.from_ids(cpu + 8 if cpu < 8 else cpu - 8 for cpu in cpus)
    assert decision.hidden == {"c0": siblings}
    assert not CPUSet(kubelet.node.cpu.default) & (cpus | siblings)
    assert not list(breaks(kubelet.node))


def test_whole_cores_may_be_an_odd_number_of_cpus_where_siblings_are_hidden() -> None:
    _, without = node_on(SMT, "hidden-siblings", config=WHOLE).admit(pod("web", 3))
    assert without.reason == "SMTAlignmentError"
    _, hidden = node_on(SMT, "hidden-siblings", config=WHOLE).admit(hiding("web", 3))
    assert len(cpus_of(hidden)) == 3


def test_hints_count_cores_and_not_threads() -> None:
    """Four cores a NUMA node, one of them with the reserved CPU: three fit, four do not."""
    kubelet = node_on(SMT, "hidden-siblings", config=replace(SINGLE, kube_reserved={"cpu": "2"}))
    _, fits = kubelet.admit(hiding("web", 4))
    assert fits.admitted
    _, wide = kubelet.admit(hiding("web", 5))
    assert wide.reason == "TopologyAffinityError"


def test_a_kubelet_without_the_plugin_gives_them_back() -> None:
    kubelet, _ = node_on(SMT, "hidden-siblings").admit(hiding("web", 3))
    text = kubelet.files.cpu
    assert text is not None
    assert '"hidden:web"' in text
    plain, _ = started_kubelet(kubelet.info, STATIC, plugged("kubelet-rules"), kubelet.files).readmit([])
    assert not plain.settled().node.cpu.assignments


def test_default_on_hides_unless_the_pod_says_no() -> None:
    kubelet = node_on(SMT, named("hidden-siblings", default="on"))
    kubelet, yes = kubelet.admit(pod("yes", 2))
    assert yes.hidden
    _, no = kubelet.admit(pod("no", 2, hide_siblings="false"))
    assert not no.hidden


def test_half_used_cores_are_left_to_others() -> None:
    kubelet, half = node_on(SMT, "hidden-siblings").admit(pod("half", 1))
    kubelet, decision = kubelet.admit(hiding("web", 7))
    assert not {cpu % 8 for cpu in cpus_of(half)} & {cpu % 8 for cpu in cpus_of(decision)}
    _, more = kubelet.admit(hiding("more", 1))
    assert not more.admitted


def test_a_pod_with_resources_as_a_whole_is_refused_with_the_annotation() -> None:
    config = replace(STATIC, feature_gates={"PodLevelResourceManagers": True}, topology_manager_policy="best-effort")
    config = replace(config, topology_manager_scope="pod")
    own = {"cpu": Quantity.parse("4"), "memory": Quantity.parse("1Gi")}
    one = replace(hiding("web", 4), resources=PodResources(own, own))
    _, decision = node_on(SMT, "hidden-siblings", config=config).admit(one)
    assert not decision.admitted


def test_a_container_with_hidden_siblings_cannot_be_resized() -> None:
    config = replace(STATIC, feature_gates={"InPlacePodVerticalScalingExclusiveCPUs": True})
    mooring = plugged("hidden-siblings", extensions=frozenset({"exclusive-resize"}))
    kubelet, _ = started_kubelet(machine_named(SMT).info, config, mooring).admit(hiding("web", 2))
    after, resize = kubelet.resize(hiding("web", 3))
    assert "hidden siblings" in str(resize)
    assert after.node.cpu == kubelet.node.cpu


def test_pictures_tables_and_documents_call_them_what_they_are() -> None:
    plan = planned(hiding("web", 2), pod("other", 2))
    assert [owner.label for owner in plan_view(plan).owners] == [
        "default/web/c0",
        "default/web/c0 (hidden siblings)",
        "default/other/c0",
    ]
    assert [row.alignment for row in plan_rows(plan, wide=False)] == [
        "one thread of a core, one L3",
        "whole cores, one L3",
    ]
    assert to_builtins(plan_document(plan))["pods"][0]["hidden"] == {"c0": str(plan.answers[0].decision.hidden["c0"])}
    assert "default/web/c0 (hidden siblings)" in [holder.label for _, holder in assignments_of(plan).holders]
    story = explain(plan, plan.answers[0].pod)
    assert not story.remarks
    told = [line.text for line in walk(story_lines(story, None))]
    assert any(line.startswith("hidden-siblings withholds") for line in told)
    assert any("on the same cores stay idle" in line for line in told)


def test_podresources_has_the_cpus_of_the_container_only() -> None:
    plan = planned(hiding("web", 2))
    assert plan.kubelet is not None
    listed = to_builtins(pod_resources_document(plan.kubelet.node))["List"]["pod_resources"][0]["containers"][0][
        "cpu_ids"
    ]
    assert listed == [str(cpu) for cpu in plan.answers[0].decision.containers["c0"].cpus]


def test_an_owner_of_hidden_threads_is_no_stranger_in_the_files() -> None:
    one = hiding("web", 2)
    files = planned(one).files
    question = Question(machine_named(SMT), STATIC, plugged("hidden-siblings"), (), files=files, active=(one,))
    again = started_plan(question)
    assert again.files == files
    assert not [finding for finding in again.findings if finding.code == "MOOR-505"]
    assert not diagnose(replace(question, files=replace(files, memory=None))).all_problems


def test_what_others_of_the_pod_have_by_then_is_not_the_pools_when_a_container_goes() -> None:
    """An app without the wish took over hidden threads of an init container, whose entry goes."""
    state = CPUState(
        "static",
        CPUMask(0b1),
        {
            "web": {"init": CPUMask(0b10), "app": CPUMask(0b110)},
            "hidden:web": {"init": CPUMask(0b100), "other": CPUMask(0b1000)},
        },
    )
    after = without_hidden(state, "web", "init")
    assert after.default == 0b1
    assert after.assignments["hidden:web"] == {"other": 0b1000}


STEPS = st.lists(
    st.tuples(st.integers(1, 5), st.sampled_from(["true", "false", ""]), st.integers(0, 3), st.booleans()),
    min_size=1,
    max_size=14,
)


@pytest.mark.parametrize("machine", [SMT, "i7-1370p", "epyc-7763-2s-nps4"])
@pytest.mark.parametrize("config", [STATIC, WHOLE, SINGLE])
@given(steps=STEPS, default=st.sampled_from(["on", "off"]))
@settings(max_examples=20, deadline=None)
def test_courses_keep_the_ledger(
    machine: str, config: KubeletConfig, steps: list[tuple[int, str, int, bool]], default: str
) -> None:
    """Law: nothing owned twice or lost, hidden threads nobody's, all back in the end, a restart changes nothing."""
    # On uneven cores the kubelet's own rules give CPUs twice; core-kinds counts for those who have no wish, too.
    kubelet = empty = node_on(machine, "core-kinds", named("hidden-siblings", default=default), config=config)
    for index, (count, wish, init, leaves) in enumerate(steps):
        one = pod(f"pod-{index}", count, **({"hide_siblings": wish} if wish else {}))
        if init:
            one = replace(one, containers=(container("init", init, ContainerKind.INIT), *one.containers))
        kubelet, _ = kubelet.admit(one)
        assert not list(breaks(kubelet.node.settled()))
        if leaves and one.uid in kubelet.node.active:
            kubelet, _ = kubelet.remove(one.uid)
            assert not list(breaks(kubelet.node))
    kubelet = kubelet.settled()
    start = restart_kubelet(kubelet)
    assert isinstance(start, Kubelet), start
    again, _ = start.readmit(kubelet.node.active.values())
    assert again.node.cpu.assignments == kubelet.node.cpu.assignments
    assert again.node.cpu.default == kubelet.node.cpu.default
    _all_leave(kubelet, empty)


def _all_leave(kubelet: Kubelet, empty: Kubelet) -> None:
    for uid in list(kubelet.node.active):
        kubelet, _ = kubelet.remove(uid)
    assert kubelet.node.cpu.default == empty.node.cpu.default
    assert not kubelet.node.cpu.assignments
