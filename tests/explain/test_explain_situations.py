"""Explanations: each of the situations in which people ask why, told by its facts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import to_builtins
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
from tests.planner.doctor_nodes import CONFIG, MACHINE
from tests.plans import refused_plan, started_plan

from mooring.answers.base.plan import Question, make_plan
from mooring.answers.base.pods import explain, explanation_document
from mooring.engine.checkpoint.cpu_file import cpu_state_text
from mooring.engine.core.bits import NO_CPUS, CPUMask, NUMAMask
from mooring.engine.core.config import (
    CPU_HOTPLUG,
    DEVICE_ALIGNMENT,
    DeviceAlignment,
    DeviceAlignments,
    KubeletConfig,
    MooringConfig,
)
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.machine import Machine
from mooring.engine.core.machineinfo import Core, MachineInfo, NUMANode
from mooring.engine.core.pod import Container, ContainerKind, Pod, QoS
from mooring.engine.core.quantity import Quantity
from mooring.engine.cpumanager.facts import PodShareCut
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.devicemanager.state import Device
from mooring.engine.extensions.owners import claim_key, entry_of
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import start_kubelet
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


WIDE = [*FULL, simple("wide", "6")]
WHOLE_CORES = {name: policy(name, full_pcpus_only="true") for name in ("none", "restricted")}
WITH_MEMORY = with_memory(policy("best-effort"))
BUDGET = [pod_level("budget", "4", container("app", "4"), Container("helper"))]
NICS = [simple(name, "2", nics="1") for name in ("one", "two", "three")]


@pytest.mark.parametrize(
    ("config", "pods", "code", "reason"),
    [
        (policy("single-numa-node"), WIDE, "MOOR-103", "TopologyAffinityError"),
        (policy("single-numa-node"), [simple("huge", "10")], "MOOR-102", "TopologyAffinityError"),
        (policy("best-effort"), WIDE, "MOOR-161", ""),
        (with_memory(policy("restricted")), [simple("wide", "2", "20Gi")], "MOOR-108", "TopologyAffinityError"),
        (WHOLE_CORES["none"], [simple("odd", "3")], "MOOR-121", "SMTAlignmentError"),
        (WHOLE_CORES["restricted"], [simple("odd", "3")], "MOOR-121", "SMTAlignmentError"),
        (
            WHOLE_CORES["none"],
            [simple("one", "6"), simple("two", "6"), simple("many", "4")],
            "MOOR-122",
            "SMTAlignmentError",
        ),
        (with_pod_level(policy("best-effort", "pod")), BUDGET, "MOOR-123", "EmptyPodSharedPoolError"),
        (with_pod_level(policy("restricted", "pod")), BUDGET, "MOOR-123", "TopologyAffinityError"),
        (
            WITH_MEMORY,
            [simple("one", "2", "12Gi"), simple("two", "2", "12Gi"), simple("wide", "2", "6Gi")],
            "MOOR-114",
            "UnexpectedAdmissionError",
        ),
        (WITH_MEMORY, [simple("wide", "2", "40Gi")], "MOOR-111", "UnexpectedAdmissionError"),
        (policy("restricted"), NICS, "MOOR-131", "TopologyAffinityError"),
    ],
)
def test_the_code_names_the_cause_and_not_the_kubelets_reason(
    config: KubeletConfig, pods: list[Pod], code: str, reason: str
) -> None:
    nics = {"example.com/nic": (Device("nic-0", (0,)), Device("nic-1", (1,)))}
    story = told(planned(config, pods, devices=nics))
    assert (story.why.code, story.reason) == (code, reason)


def test_restricted_refuses_more_nodes_than_an_empty_machine_needs() -> None:
    story = told(planned(policy("restricted"), [*FULL, simple("wide", "6")]))
    chapter = last_of(story)
    assert story.why.code == "MOOR-104"
    assert (merge(chapter).rule, merge(chapter).choices) == ("narrowest", (0b11,))
    assert merge(chapter).result == Hint(NUMAMask(0b11), preferred=False)
    assert not merge(chapter).admitted
    assert opinion(chapter).preferred == ()


def test_where_cores_differ_the_size_that_counts_is_called_the_average() -> None:
    threads = ((0, 1, 2, 3), (4, 5), (6, 7), (8, 9))
    cores = tuple(Core(number, own, 0) for number, own in enumerate(threads))
    uneven = Machine("uneven", MachineInfo(10, 1, 2**34, (NUMANode(0, 2**34, cores=cores),)))
    config = replace(policy("none", full_pcpus_only="true"), reserved_system_cpus="4-5")
    story = told(planned(config, [simple("odd", "3")], uneven))
    assert "whole cores of 2 (the average of this machine's cores): request 2 or 4." in story.why.sentence


@pytest.mark.parametrize("name", ["restricted", "single-numa-node"])
def test_a_numa_node_of_a_memory_group_serves_nobody_else(name: str) -> None:
    grouped = planned(with_memory(policy("best-effort")), [simple("wide", "10", "20Gi")])
    story = told(planned(with_memory(policy(name)), [simple("small", "2", "4Gi")], files=grouped.files))
    chapter = last_of(story)
    assert (story.verdict, story.why.code) == (PodVerdict.REJECTED, "MOOR-114")
    assert opinion(chapter, "memory").groups == ((0, 1),)
    assert "NUMA nodes 0-1 serve memory as one group" in text_of(story)


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


@pytest.mark.parametrize(
    ("config", "remedy"),
    [
        (with_pod_level(STATIC), "set cpu and memory in spec.resources, with requests equal to the limits."),
        (STATIC, "remove spec.resources, and give every container"),
    ],
)
def test_a_burstable_pod_with_own_resources_is_not_told_of_containers_alone(config: KubeletConfig, remedy: str) -> None:
    limits = {"cpu": Quantity.parse("4"), "memory": Quantity.parse("2Gi")}
    whole = pod_level("whole", "2", container("app", "2"))
    assert whole.resources is not None
    burstable = replace(whole, qos=QoS.BURSTABLE, resources=replace(whole.resources, limits=limits))
    found = told(planned(config, [burstable]))
    assert found.why.code == "MOOR-164"
    assert remedy in found.why.remedy


# Which device ties a pod to which NUMA node, and why CPUs and memory could not follow it.


NIC = "example.com/nic"
FOLLOW, REQUIRE = DeviceAlignment.FOLLOW, DeviceAlignment.REQUIRE


def story(
    config: KubeletConfig,
    pods: Sequence[Pod],
    *nodes: int,
    default: DeviceAlignment = FOLLOW,
    machine: Machine = TWO_NODES,
) -> Story:
    """Tell the story of the last pod on a node whose NICs are on these NUMA nodes."""
    mooring = MooringConfig(frozenset({DEVICE_ALIGNMENT}), device_alignments=DeviceAlignments(default))
    nics = tuple(Device(f"nic-{number}", (node,)) for number, node in enumerate(nodes))
    return told(started_plan(Question(machine, config, mooring, tuple(pods), devices={NIC: nics})))


def lines(found: Story) -> list[str]:
    return [line.text for one in story_lines(found, None) for line in (one, *one.children) if not line.detail]


def test_an_admitted_pod_says_which_device_it_followed() -> None:
    found = story(policy("restricted"), [simple("a", "4", nics="1")], 1)
    assert found.why.sentence == (
        "Its 4 exclusive CPUs come from NUMA node 1. It gets nic-0 of example.com/nic on NUMA node 1, which CPUs and "
        "memory follow."
    )
    assert f"{NIC}: nic-0 on NUMA node 1, which CPUs and memory follow" in lines(found)


def test_cpus_are_not_free_where_the_device_is() -> None:
    found = story(policy("single-numa-node"), [simple("big", "6"), simple("a", "4", nics="1")], 0)
    assert found.why.code == "MOOR-136"
    assert found.why.sentence == (
        "Container app holds example.com/nic nic-0 on NUMA node 0, but can get 4 exclusive CPUs only on node 1; "
        "single-numa-node requires one place for all of them."
    )
    assert "topologyManagerPolicy best-effort" in found.why.remedy


def test_what_requires_alignment_is_refused_under_none_in_the_words_of_restricted() -> None:
    found = story(STATIC, [simple("big", "6"), simple("a", "4", nics="1")], 0, default=REQUIRE)
    assert (found.why.code, found.verdict) == ("MOOR-136", "rejected")
    assert "restricted requires one place" in found.why.sentence
    assert found.why.remedy.endswith("(deviceAlignment follow instead of require).")


def test_what_follows_is_admitted_elsewhere_under_none_and_says_so() -> None:
    found = story(STATIC, [simple("big", "6"), simple("a", "4", nics="1")], 0)
    assert found.verdict == "admitted"
    assert found.why.sentence.endswith(
        "on NUMA node 0, which CPUs and memory cannot all follow; best-effort admits that."
    )


def test_too_few_cpus_on_any_node_are_no_matter_of_devices() -> None:
    found = story(policy("single-numa-node"), [simple("big", "6"), simple("a", "8", nics="1")], 1)
    assert found.why.code != "MOOR-136"


def test_held_devices_without_a_common_node_are_named_with_their_nodes() -> None:
    drivers = {"gpu.example.org": (Device("pool/0", (0,)),), "nic.example.org": (Device("pool/7", (1,)),)}
    claimed = {"a": {"app": {driver: frozenset({found[0].id}) for driver, found in drivers.items()}}}
    mooring = MooringConfig(frozenset({DEVICE_ALIGNMENT}))
    question = Question(TWO_NODES, policy("single-numa-node"), mooring, (simple("a", "2"),), devices=drivers)
    found = told(started_plan(replace(question, claimed=claimed)))
    assert found.why.code == "MOOR-137"
    assert found.why.sentence == (
        "Container app holds gpu.example.org pool/0 on NUMA node 0 and nic.example.org pool/7 on NUMA node 1: no set "
        "of NUMA nodes suits all of them, which single-numa-node requires."
    )
    assert told(started_plan(replace(question, mooring=MooringConfig(), claimed=claimed))).verdict == "admitted"


def test_cpus_away_from_a_device_are_remarked_with_what_helps() -> None:
    drivers = {"gpu.example.org": (Device("pool/1", (1,)),)}
    claimed = {"a": {"app": {"gpu.example.org": frozenset({"pool/1"})}}}
    asked = Question(TWO_NODES, STATIC, MooringConfig(), (simple("a", "2"),), devices=drivers, claimed=claimed)
    kubelet = told(started_plan(asked))
    [remark] = [one for one in kubelet.remarks if one.code == "MOOR-190"]
    assert remark.sentence == "app is not beside pool/1 on NUMA node 1 (gpu.example.org)"
    assert "--devices follow" in remark.remedy
    follows = told(started_plan(replace(asked, mooring=MooringConfig(frozenset({DEVICE_ALIGNMENT})))))
    assert [one.code for one in follows.remarks if one.code == "MOOR-190"] == []


# Claims of dynamic resource allocation in a story: those in the way of a refused pod, and those of the pod.


NODE: KubeletConfig = replace(CONFIG, memory_manager_policy="None", reserved_memory=())
"""CPU 0 is reserved; 1 to 3 can be had."""


def pod_claims(cpus: int, *, claims: tuple[str, ...] = (), uid: str = "asked") -> Pod:
    amounts = {"cpu": Quantity.parse(str(cpus)), "memory": Quantity.parse("64Mi")}
    app = Container("app", requests=amounts, limits=amounts)
    return Pod(uid, uid, "shop", (app,), QoS.GUARANTEED, claims=claims)


def claims_state(**held: int) -> CPUState:
    """Return a state in which claims, by name, hold CPUs."""
    taken = reduce(int.__or__, held.values(), 0)
    entries = {
        claim_key(f"uid-{name}"): {entry_of("shop", name, "numa0", "fast"): CPUMask(cpus)}
        for name, cpus in held.items()
    }
    return CPUState("static", CPUMask(0b1111 & ~taken), entries)


def story_claims(state: CPUState, asked: Pod, *, config: KubeletConfig = NODE, before: tuple[Pod, ...] = ()) -> Story:
    files = StateTexts(cpu_state_text(state, pod_level=False, baselines=False))
    plan = make_plan(Question(Machine("small", MACHINE), config, pods=(*before, asked), files=files))
    return explain(plan, asked)


def told_claims(found: Story) -> list[str]:
    return [line.text for line in walk(story_lines(found, None))]


def test_a_plan_names_claims_of_which_nothing_tells_what_they_get() -> None:
    files = StateTexts(cpu_state_text(claims_state(known=0b0010), pod_level=False, baselines=False))
    pods = (
        pod_claims(0, claims=("known",), uid="one"),
        pod_claims(0, claims=("known", "other"), uid="two"),
        pod_claims(9, claims=("no",)),
    )
    more = (
        replace(pod_claims(0, claims=("a",), uid="three"), unmade_claims=("made",)),
        *(pod_claims(0, claims=(uid,), uid=uid) for uid in ("gpu.example", "cpu.mooring.dev")),
    )
    claimed = {one.uid: {"app": {one.uid: frozenset({"n/d"})}} for one in more[1:]}
    question = Question(Machine("small", MACHINE), NODE, pods=(*pods, *more), files=files, claimed=claimed)
    found = [one for one in make_plan(question).findings if one.code == "MOOR-549"]
    assert [(one.subject, one.message.partition(":")[0]) for one in found] == [
        ("shop/two", "claims other"),
        ("shop/three", "claims a, made"),
        ("shop/cpu.mooring.dev", "claims cpu.mooring.dev"),
    ]


FIRST = (pod_claims(2, uid="first"),)


@pytest.mark.parametrize(
    ("held", "cpus", "before", "in_the_way", "line"),
    [
        ({"one": 0b0010, "two": 0b0100}, 3, (), "one two", "2 claims hold CPUs that the pod needs: it would be admi"),
        ({"one": 0b0010, "two": 0b1100}, 2, (), "two", "1 claim holds CPUs that the pod needs: it would be admitted "),
        ({"one": 0b0010}, 4, (), "", "claims hold 1 CPU of the node"),
        ({"one": 0b0010}, 2, FIRST, "", "claims hold 1 CPU of the node"),
    ],
    ids=["all", "only those that have to go", "it would never fit", "others took the rest"],
)
def test_claims_without_which_a_refused_pod_would_be_admitted_are_told(
    held: dict[str, int], cpus: int, before: tuple[Pod, ...], in_the_way: str, line: str
) -> None:
    found = story_claims(claims_state(**held), pod_claims(cpus), before=before)
    assert found.verdict == "rejected"
    assert [claim.name for claim in found.claims.in_the_way] == in_the_way.split()
    lines = told_claims(found)
    assert any(one.startswith(line) for one in lines)
    assert any("that the pod needs" in one for one in lines) == bool(in_the_way)


def test_a_pod_is_told_what_it_has_by_its_claims_and_which_hold_nothing_here() -> None:
    found = story_claims(claims_state(one=0b0110), pod_claims(1, claims=("one", "gpu")))
    assert found.admitted
    lines = told_claims(found)
    assert "its claim shop/one holds CPUs 1-2" in lines
    assert "request fast: CPUs 1-2 of numa0" in lines
    assert "no CPUs of this node are held for shop/gpu, which the pod names as claims" in lines
    document = to_builtins(explanation_document(found, "small", None))
    assert document["claims"] == {
        "own": [{"uid": "uid-one", "namespace": "shop", "name": "one", "cpus": "1-2"}],
        "inTheWay": [],
    }


def test_cpus_that_are_offline_stay_so_while_claims_are_thought_away() -> None:
    files = StateTexts(cpu_state_text(claims_state(one=0b0010), pod_level=False, baselines=False))
    mooring = MooringConfig(extensions=frozenset({CPU_HOTPLUG}), replace_offline="never")
    question = Question(
        Machine("small", MACHINE), NODE, mooring, pods=(pod_claims(2),), files=files, offline=CPUSet.of(3)
    )
    assert [claim.name for claim in explain(make_plan(question), pod_claims(2)).claims.in_the_way] == ["one"]


@given(st.lists(st.integers(0, 3), min_size=4, max_size=4), st.integers(1, 3))
def test_without_the_claims_the_pod_is_admitted_and_with_any_of_them_it_is_not(owners: list[int], need: int) -> None:
    held: dict[str, int] = {}
    for cpu, owner in enumerate(owners):
        if owner and cpu:
            held[f"c{owner}"] = held.get(f"c{owner}", 0) | 1 << cpu
    state = claims_state(**held)
    found = story_claims(state, pod_claims(need))
    start = start_kubelet(MACHINE, NODE, Question(Machine("small", MACHINE), NODE).mooring, StateTexts(_text(state)))
    assert isinstance(start, Kubelet)
    free = start
    for claim in found.claims.in_the_way:
        free = free.release(claim.uid)
    if found.claims.in_the_way:
        assert not found.admitted
        assert free.decide(pod_claims(need))[1].admitted
        for spared in found.claims.in_the_way:
            rest = start
            for claim in found.claims.in_the_way:
                rest = rest if claim is spared else rest.release(claim.uid)
            assert not rest.decide(pod_claims(need))[1].admitted
    elif not found.admitted:
        for name in held:
            free = free.release(f"uid-{name}")
        assert not free.decide(pod_claims(need))[1].admitted


def _text(state: CPUState) -> str:
    return cpu_state_text(state, pod_level=False, baselines=False)
