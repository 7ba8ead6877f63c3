"""Explanations: each of the situations in which people ask why, told by its facts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from tests.explain.situations import (
    FOUR_CACHES,
    STATIC,
    TWO_NODES,
    container,
    planned,
    pod,
    pod_level,
    policy,
    simple,
    told,
    with_memory,
    with_pod_level,
)
from tests.plans import refused_plan

from mooring.answers.base.plan import Question
from mooring.engine.core.bits import NO_CPUS, CPUMask, NUMAMask
from mooring.engine.core.config import KubeletConfig, MooringConfig
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.machine import Machine
from mooring.engine.core.machineinfo import Core, MachineInfo, NUMANode
from mooring.engine.core.pod import Container, ContainerKind, QoS
from mooring.engine.core.quantity import Quantity
from mooring.engine.cpumanager.facts import CPUPinningFailed, PodShareCut, WholeCoresChecked
from mooring.engine.devicemanager.facts import DevicesTaken
from mooring.engine.devicemanager.state import Device
from mooring.engine.memorymanager.facts import MemoryAssigned
from mooring.engine.topologymanager.facts import HintsMerged
from mooring.engine.topologymanager.hints import Hint
from mooring.explanations.lines import story_lines
from mooring.explanations.story import NO, Chapter, Opinion, PodVerdict, Story, Taking, walk

FULL = [simple("one", "4"), simple("two", "4")]
"""Leaves 2 CPUs on NUMA node 0 and 4 on NUMA node 1."""


def takings(chapters: Iterable[Chapter]) -> list[Taking]:
    return [step for chapter in chapters for step in chapter.steps if isinstance(step, Taking)]


def opinion(chapter: Chapter, resource: str = "cpu") -> Opinion:
    return next(one for one in chapter.opinions if one.resource == resource)


def merge(chapter: Chapter) -> HintsMerged:
    assert chapter.merge is not None
    return chapter.merge


def last_of(story: Story) -> Chapter:
    return story.chapters[-1]


def text_of(story: Story) -> str:
    return "\n".join(line.text for line in walk(story_lines(story, TWO_NODES_TOPOLOGY)))


TWO_NODES_PLAN = planned(STATIC, [])
assert TWO_NODES_PLAN.kubelet is not None
TWO_NODES_TOPOLOGY = TWO_NODES_PLAN.kubelet.settings.topology


def test_single_numa_node_refuses_what_no_node_has_free() -> None:
    story = told(planned(policy("single-numa-node"), [*FULL, simple("wide", "6")]))
    chapter = last_of(story)
    assert (story.verdict, story.why.code, story.reason) == (PodVerdict.REJECTED, "MOOR-103", "TopologyAffinityError")
    assert opinion(chapter).free == {0: {"cpu": 2}, 1: {"cpu": 4}}
    assert (opinion(chapter).narrowest, opinion(chapter).suffices) == (2, False)
    assert (merge(chapter).rule, merge(chapter).admitted, merge(chapter).choices) == ("filtered", False, None)
    assert "free: 4 on NUMA node 1, 2 on NUMA node 0" in text_of(story)


def test_single_numa_node_refuses_what_no_node_has_at_all() -> None:
    story = told(planned(policy("single-numa-node"), [simple("huge", "10")]))
    assert story.why.code == "MOOR-102"
    assert opinion(last_of(story)).preferred == (0b11,)


def test_restricted_refuses_more_nodes_than_an_empty_machine_needs() -> None:
    story = told(planned(policy("restricted"), [*FULL, simple("wide", "6")]))
    chapter = last_of(story)
    assert story.why.code == "MOOR-104"
    assert (merge(chapter).rule, merge(chapter).choices) == ("narrowest", (0b11,))
    assert merge(chapter).result == Hint(NUMAMask(0b11), preferred=False)
    assert not merge(chapter).admitted
    assert opinion(chapter).preferred == ()


def test_best_effort_takes_it_and_the_spread_is_remarked() -> None:
    story = told(planned(policy("best-effort"), [*FULL, simple("wide", "6")]))
    assert (story.admitted, story.why.code) == (True, "MOOR-161")
    assert (merge(last_of(story)).result.preferred, merge(last_of(story)).admitted) == (False, True)
    assert "MOOR-171" in [remark.code for remark in story.remarks]


def test_policy_none_asks_nobody() -> None:
    story = told(planned(policy("none"), [*FULL, simple("wide", "6")]))
    assert story.admitted
    assert (last_of(story).merge, last_of(story).opinions) == (None, ())
    [taking] = takings(story.chapters)
    assert [run.place for run in taking.runs] == ["anywhere"]


def test_cpus_and_memory_that_lie_apart_pull_the_pod_apart() -> None:
    config = with_memory(policy("restricted"))
    story = told(planned(config, [simple("wide", "2", "20Gi")]))
    chapter = last_of(story)
    assert story.why.code == "MOOR-108"
    assert opinion(chapter).preferred == (0b01, 0b10)
    assert opinion(chapter, "memory").preferred == (0b11,)
    assert all(one.suffices for one in chapter.opinions)


@pytest.mark.parametrize("name", ["none", "best-effort", "restricted", "single-numa-node"])
def test_an_odd_number_of_cpus_is_refused_under_every_policy(name: str) -> None:
    story = told(planned(policy(name, full_pcpus_only="true"), [simple("odd", "3")]))
    checked = last_of(story).steps[-1]
    assert (story.why.code, story.reason) == ("MOOR-121", "SMTAlignmentError")
    assert isinstance(checked, WholeCoresChecked)
    assert (checked.need, checked.group, checked.passed) == (3, 2, False)


def test_where_cores_differ_the_size_that_counts_is_called_the_average() -> None:
    threads = ((0, 1, 2, 3), (4, 5), (6, 7), (8, 9))
    cores = tuple(Core(number, own, 0) for number, own in enumerate(threads))
    uneven = Machine("uneven", MachineInfo(10, 1, 2**34, (NUMANode(0, 2**34, cores=cores),)))
    config = replace(policy("none", full_pcpus_only="true"), reserved_system_cpus="4-5")
    story = told(planned(config, [simple("odd", "3")], uneven))
    assert "whole cores of 2 (the average of this machine's cores): request 2 or 4." in story.why.sentence


def test_too_few_whole_cores_are_counted() -> None:
    pods = [simple("one", "6"), simple("two", "6"), simple("many", "4")]
    story = told(planned(policy("none", full_pcpus_only="true"), pods))
    checked = last_of(story).steps[-1]
    assert (story.why.code, story.reason) == ("MOOR-122", "SMTAlignmentError")
    assert isinstance(checked, WholeCoresChecked)
    assert (checked.need, checked.available) == (4, 2)
    assert "Request fewer CPUs" in story.why.remedy


def test_a_pod_whose_containers_leave_nothing_to_share_is_refused() -> None:
    budget = pod_level("budget", "4", container("app", "4"), Container("helper"))
    story = told(planned(with_pod_level(policy("best-effort", "pod")), [budget]))
    assert (story.why.code, story.reason) == ("MOOR-123", "EmptyPodSharedPoolError")
    [chapter] = story.chapters
    assert chapter.failed
    assert isinstance(chapter.steps[-1], CPUPinningFailed)
    refused = told(planned(with_pod_level(policy("restricted", "pod")), [budget]))
    assert (refused.why.code, refused.reason) == ("MOOR-123", "TopologyAffinityError")


@pytest.mark.parametrize("name", ["restricted", "single-numa-node"])
def test_a_numa_node_of_a_memory_group_serves_nobody_else(name: str) -> None:
    grouped = planned(with_memory(policy("best-effort")), [simple("wide", "10", "20Gi")])
    story = told(planned(with_memory(policy(name)), [simple("small", "2", "4Gi")], files=grouped.files))
    chapter = last_of(story)
    assert (story.verdict, story.why.code) == (PodVerdict.REJECTED, "MOOR-114")
    assert opinion(chapter, "memory").groups == ((0, 1),)
    assert "NUMA nodes 0-1 serve memory as one group" in text_of(story)


def test_memory_that_no_group_can_give_is_refused_after_the_merge() -> None:
    pods = [simple("one", "2", "12Gi"), simple("two", "2", "12Gi"), simple("wide", "2", "6Gi")]
    story = told(planned(with_memory(policy("best-effort")), pods))
    assert (story.why.code, story.reason) == ("MOOR-114", "UnexpectedAdmissionError")
    assert opinion(last_of(story), "memory").nothing_fits
    assert isinstance(last_of(story).steps[-1], MemoryAssigned)


def test_more_memory_than_there_is_has_another_code() -> None:
    story = told(planned(with_memory(policy("best-effort")), [simple("wide", "2", "40Gi")]))
    assert story.why.code == "MOOR-111"


def test_an_init_container_pins_the_app_to_a_full_node() -> None:
    setup = container("setup", "1", kind=ContainerKind.INIT)
    story = told(planned(policy("single-numa-node"), [simple("one", "4"), pod("pinned", setup, container("app", "4"))]))
    first, second = story.chapters
    [taking] = takings([first])
    assert story.why.code == "MOOR-105"
    assert taking.taken.bit_count() == 1
    assert (second.failed, opinion(second).bound) == (True, 0b01)
    assert opinion(second).free[1] == {"cpu": 8}
    # The chapter that binds is told, though nothing was refused in it.
    lines = story_lines(story, TWO_NODES_TOPOLOGY)
    assert [line.detail for line in lines] == [False, False]


def test_strict_reservation_on_an_old_state_file_is_a_kubelet_that_does_not_start() -> None:
    old = planned(policy("none"), FULL)
    strict = policy("none", strict_cpu_reservation="true")
    plan = refused_plan(Question(TWO_NODES, strict, MooringConfig(), tuple(FULL), files=old.files))
    story = told(plan, 0)
    assert (story.verdict, story.admitted, story.chapters) == (PodVerdict.NOT_STARTED, False, ())
    assert story.why.code == plan.refusal.code == "MOOR-263"
    assert "some of strictly reserved cpus" in story.message
    assert story.why.remedy == plan.remedy != ""


def test_an_uncore_split_is_remarked() -> None:
    config = KubeletConfig(
        cpu_manager_policy="static",
        reserved_system_cpus="0",
        cpu_manager_policy_options={"prefer-align-cpus-by-uncorecache": "true"},
    )
    pods = [*(simple(f"p{number}", "3") for number in range(4)), simple("split", "3")]
    story = told(planned(config, pods, FOUR_CACHES))
    [taking] = takings(story.chapters)
    assert [pick.rule for run in taking.runs for pick in run.picks] == ["cores"]
    split = next(remark for remark in story.remarks if remark.code == "MOOR-172")
    assert "3 uncore caches although 1" in split.sentence
    # The first one had a whole part of a cache, and nothing is to be remarked.
    assert "MOOR-172" not in [remark.code for remark in told(planned(config, pods[:1], FOUR_CACHES)).remarks]


def test_the_remainder_of_a_distribution_is_reported() -> None:
    config = policy("none", distribute_cpus_across_numa="true")
    story = told(planned(config, [simple("uneven", "9")]))
    [taking] = takings(story.chapters)
    [run] = taking.runs
    assert run.distribution is not None
    assert (run.distribution.share, run.distribution.rest) == (4, 1)
    shares = [(pick.rule, pick.node, pick.cpus.bit_count()) for pick in run.picks]
    assert shares == [("share", 0, 4), ("share", 1, 4), ("rest", run.distribution.takers[0], 1)]
    assert "MOOR-174" in [remark.code for remark in story.remarks]


def test_scope_decides_whether_containers_are_asked_one_by_one() -> None:
    pair = pod("pair", container("left", "5"), container("right", "5"))
    apart = told(planned(policy("single-numa-node", "container"), [pair]))
    together = told(planned(policy("single-numa-node", "pod"), [pair]))
    assert apart.admitted
    assert [merge(chapter).result.mask for chapter in apart.chapters] == [0b01, 0b10]
    assert (together.why.code, [chapter.container for chapter in together.chapters]) == ("MOOR-102", [""])
    assert together.chapters[0].request.need == 10
    assert together.unreached == ("left", "right")


def test_a_partition_is_divided_among_the_containers() -> None:
    own = pod_level("own", "4", container("app", "2"), Container("helper"))
    story = told(planned(with_pod_level(policy("restricted", "pod")), [own]))
    whole, app, helper = story.chapters
    cuts = [step for chapter in (app, helper) for step in chapter.steps if isinstance(step, PodShareCut)]
    [bubble] = takings([whole])
    assert story.why.code == "MOOR-162"
    assert [cut.exclusive for cut in cuts] == [True, False]
    assert cuts[0].cpus | cuts[1].cpus == bubble.taken
    assert [run.place for taking in takings([app]) for run in taking.runs] == ["partition"]


def test_devices_are_reported_with_their_numa_nodes() -> None:
    nics = {"example.com/nic": (Device("nic-0", (0,)), Device("nic-1", (1,)))}
    pods = [simple("one", "2", nics="1"), simple("two", "2", nics="1"), simple("three", "2", nics="1")]
    plan = planned(policy("restricted"), pods, devices=nics)
    given, refused = told(plan, 1), told(plan)
    [taken] = [step for step in last_of(given).steps if isinstance(step, DevicesTaken)]
    assert (taken.taken, taken.near) == (("nic-1",), 0b10)
    assert opinion(last_of(given), "example.com/nic").free == {0: {"example.com/nic": 0}, 1: {"example.com/nic": 1}}
    assert refused.why.code == "MOOR-131"


def test_a_story_about_one_container_leaves_the_others_out() -> None:
    from mooring.answers.base.pods import explain  # noqa: PLC0415 - the others ask for whole pods

    pair = pod("pair", container("left", "2"), container("right", "2"))
    plan = planned(policy("restricted"), [pair])
    assert [chapter.container for chapter in explain(plan, pair, "right").chapters] == ["right"]


def test_the_refusing_line_is_marked() -> None:
    story = told(planned(policy("single-numa-node"), [*FULL, simple("wide", "6")]))
    marked = [line for line in walk(story_lines(story, TWO_NODES_TOPOLOGY)) if line.mark == NO]
    assert marked[-1].text.startswith("single-numa-node rejects: ")


def test_taking_says_what_was_inside_the_hint_and_what_was_not() -> None:
    story = told(planned(policy("best-effort"), [*FULL, simple("three", "3"), simple("wide", "3")]))
    [taking] = takings(story.chapters)
    assert isinstance(taking, Taking)
    picked = NO_CPUS
    for run in taking.runs:
        for pick in run.picks:
            assert not pick.cpus & ~run.candidates
            picked |= pick.cpus
    assert CPUSet(picked) == CPUSet(CPUMask(taking.taken))


def test_the_machine_of_the_situations_has_two_nodes() -> None:
    assert len(TWO_NODES.info.topology) == 2


@pytest.mark.parametrize(
    ("config", "remedy"),
    [
        (with_pod_level(STATIC), "set cpu and memory in spec.resources, with requests equal to the limits."),
        (STATIC, "remove spec.resources, and give every container"),
    ],
)
def test_a_burstable_pod_with_its_own_resources_is_not_told_about_containers_alone(
    config: KubeletConfig, remedy: str
) -> None:
    limits = {"cpu": Quantity.parse("4"), "memory": Quantity.parse("2Gi")}
    whole = pod_level("whole", "2", container("app", "2"))
    assert whole.resources is not None
    burstable = replace(whole, qos=QoS.BURSTABLE, resources=replace(whole.resources, limits=limits))
    found = told(planned(config, [burstable]))
    assert found.why.code == "MOOR-164"
    assert remedy in found.why.remedy
