"""No merge is computed again to explain it, and what is said of one provider alone agrees with a merge of it alone."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import to_builtins
from tests.explain.refused_starts import recorded_starts
from tests.explain.situations import container, planned, pod, policy, simple, told, with_memory

from mooring.answers.base.pods import explanation_document
from mooring.engine.core.bits import NUMAMask
from mooring.engine.core.decision import Cause, Fault, StartRefusal
from mooring.engine.memorymanager.state import MemoryState
from mooring.engine.node.facts import HintsGiven
from mooring.engine.topologymanager.facts import HintsMerged
from mooring.engine.topologymanager.hints import NOT_POSSIBLE, Hints
from mooring.engine.topologymanager.merge import is_admitted, merge
from mooring.engine.topologymanager.wide import AnyHints, Demand, Family
from mooring.explanations.chapters import MOST_TRIED, opinions_of, preferred_around
from mooring.explanations.codes import remedy
from mooring.explanations.lines import story_lines
from mooring.inputs.machines.compact import parse_compact
from mooring.views.decision import decision_view

POLICIES = ("best-effort", "restricted", "single-numa-node")


@contextmanager
def merges_counted() -> Iterator[list[str]]:
    """Collect the policy of every call of ``mooring.engine.topologymanager.merge.merge``, whoever makes it."""
    calls: list[str] = []
    wanted = merge.__code__

    def trace(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code is wanted:
            calls.append(frame.f_locals["policy"])

    before = sys.getprofile()
    sys.setprofile(trace)
    try:
        yield calls
    finally:
        sys.setprofile(before)


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("scope", ["container", "pod"])
def test_no_merge_is_computed_twice_to_explain_it(name: str, scope: str) -> None:
    pods = [
        simple("one", "4", "8Gi"),
        pod("pair", container("left", "2"), container("right", "2")),
        simple("wide", "6", "20Gi"),
        simple("huge", "12", "30Gi"),
    ]
    with merges_counted() as calls:
        plan = planned(with_memory(policy(name, scope)), pods)
        asked = len(calls)
        facts = [fact for answer in plan.answers for fact in answer.facts]
        topology = plan.kubelet.settings.topology
        for place in range(len(plan.answers)):
            story = told(plan, place)
            assert story_lines(story, topology)
            assert decision_view(story, (0, 1), topology).panels
            to_builtins(explanation_document(story, plan.machine.name, topology))
    assert len(calls) == asked == sum(1 for fact in facts if isinstance(fact, HintsMerged)) > 0


NODES = 0b1111
FOUR_NODES = replace(parse_compact("sockets=4 cores=8 memory=16Gi"), findings=())
SETTINGS = {
    name: planned(replace(policy(name), reserved_system_cpus="0"), [], FOUR_NODES).kubelet.settings for name in POLICIES
}
masks = st.integers(1, NODES)
listed = st.builds(
    lambda preferred, others, any_: Hints(tuple(sorted(preferred)), tuple(sorted(others - preferred)), any_),
    st.sets(masks, max_size=4),
    st.sets(masks, max_size=4),
    st.sampled_from([(), (True,)]),
)
described = st.builds(
    lambda need, weights, smallest, barred, rule: Family(
        NUMAMask(NODES),
        (Demand(need, tuple(weights)),),
        smallest,
        barred=frozenset(barred),
        sockets=rule[0],
        span=rule[1],
    ),
    st.integers(1, 12),
    st.lists(st.integers(0, 4), min_size=4, max_size=4),
    st.integers(1, 4),
    st.sets(masks, max_size=3),
    st.sampled_from([((), 0), ((0b0011, 0b1100), 1), ((0b0101, 0b1010), 2)]),
)


@pytest.mark.parametrize("name", POLICIES)
@given(hints=listed | described)
def test_a_provider_suffices_alone_when_a_merge_of_its_hints_alone_is_admitted(name: str, hints: AnyHints) -> None:
    settings = SETTINGS[name]
    [opinion] = opinions_of(
        [HintsGiven("uid", "c", {"example.com/nic": hints})], settings, name, MemoryState("None", {}, {})
    )
    alone = merge(name, [hints or NOT_POSSIBLE], settings.numa)
    assert opinion.suffices == is_admitted(name, alone)
    if opinion.suffices and not opinion.indifferent and name == "restricted":
        assert alone.mask is not None
        assert opinion.together & alone.mask == alone.mask


# A preferred set around a NUMA node is sought among the sizes that can be preferred only.


@given(st.data(), st.integers(2, 7))
def test_no_larger_set_is_preferred(data: st.DataObject, count: int) -> None:
    nodes = st.integers(1, (1 << count) - 1)
    sockets = tuple(data.draw(st.lists(nodes, min_size=1, max_size=3)))
    weights = tuple(data.draw(st.lists(st.integers(0, 4), min_size=count, max_size=count)))
    family = Family(
        NUMAMask((1 << count) - 1),
        (Demand(data.draw(st.integers(1, 9)), weights),),
        data.draw(st.integers(1, count)),
        sockets=sockets,
        span=data.draw(st.integers(1, 3)),
    )
    for node in range(count):
        every = [
            mask
            for size in range(1, count + 1)
            for mask in islice(family.of_size(size, 1 << node), MOST_TRIED)
            if family.prefers(mask)
        ]
        assert list(preferred_around(family, 1 << node)) == every


# Advice about kubelets that do not start: for every recorded text that can be mended, and with nothing left open.


WITHOUT_ADVICE = Path(__file__).with_name("speaking-refusals.txt").read_text(encoding="utf-8").splitlines()
"""Texts that say themselves what is wrong with one field."""

FILES = (
    "admission-config-errors",
    "state-files",
    "admission-numa-large",
    "admission-lifecycle-restart",
    "real-kubelet",
)


@cache
def refusals(name: str) -> tuple[StartRefusal, ...]:
    return tuple(start.refusal for start in recorded_starts(f"{name}.jsonl.gz") if start.error)


@pytest.mark.parametrize("name", FILES)
def test_every_recorded_refusal_says_itself_what_is_wrong_or_has_advice(name: str) -> None:
    silent = {
        refusal.message
        for refusal in refusals(name)
        if not remedy(refusal) and not any(text in refusal.message for text in WITHOUT_ADVICE)
    }
    assert silent == set()


@pytest.mark.parametrize("name", FILES)
def test_advice_is_whole_sentences_that_name_the_manager(name: str) -> None:
    for refusal in refusals(name):
        text = remedy(refusal)
        assert text == "" or (text[0].isupper() and text.endswith("."))
        assert "{noun}" not in text
        assert "{what}" not in text
        for manager, other in (("cpu", "memory"), ("memory", "cpu")):
            if refusal.message.startswith(f"start {manager} manager error"):
                assert f"{other}_manager_state" not in text


@pytest.mark.parametrize(
    ("fault", "advice"),
    [
        (Fault("", Cause.UNKNOWN_TOPOLOGY_OPTION, names=("x",)), "Known are prefer-closest-numa-nodes and"),
        (Fault("", Cause.CPUS_NOT_ONLINE), "Name only CPUs that are online"),
        (
            Fault("", Cause.POLICY_CHANGED, names=("memory",)),
            "Another policy wrote the state file. Drain the node and delete the memory manager's state file",
        ),
        (Fault("", Cause.FILE_CONTRADICTS, names=("cpu",)), "The state file contradicts itself"),
        (Fault("", Cause.CPUS_CHANGED, names=("cpu",)), "The CPUs or the reservation differ"),
        (Fault("the sky is falling"), ""),
    ],
)
def test_advice(fault: Fault, advice: str) -> None:
    text = remedy(StartRefusal.of("start", fault))
    assert text.startswith(advice)
    assert bool(text) == bool(advice)
