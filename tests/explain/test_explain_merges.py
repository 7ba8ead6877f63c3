"""No merge is computed again to explain it, and what is said of one provider alone agrees with a merge of it alone."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import to_builtins
from tests.explain.situations import container, planned, pod, policy, simple, told, with_memory

from mooring.answers.explain.document import explanation_document
from mooring.engine.core.bits import NUMAMask
from mooring.engine.memorymanager.state import MemoryState
from mooring.engine.node.facts import HintsGiven
from mooring.engine.topologymanager import merge as topology_merge
from mooring.engine.topologymanager.facts import HintsMerged
from mooring.engine.topologymanager.hints import NOT_POSSIBLE, Hints
from mooring.engine.topologymanager.wide import AnyHints, Demand, Family, SocketRule
from mooring.explanations.lines import story_lines
from mooring.explanations.opinions import opinions_of
from mooring.inputs.machines.compact import parse_compact
from mooring.views.decision import decision_view

POLICIES = ("best-effort", "restricted", "single-numa-node")


@contextmanager
def merges_counted() -> Iterator[list[str]]:
    """Collect the policy of every call of ``mooring.engine.topologymanager.merge.merge``, whoever makes it."""
    calls: list[str] = []
    wanted = topology_merge.merge.__code__

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
    lambda need, weights, smallest, barred, sockets: Family(
        NUMAMask(NODES), (Demand(need, tuple(weights)),), smallest, barred=frozenset(barred), sockets=sockets
    ),
    st.integers(1, 12),
    st.lists(st.integers(0, 4), min_size=4, max_size=4),
    st.integers(1, 4),
    st.sets(masks, max_size=3),
    st.sampled_from([None, SocketRule((0b0011, 0b1100), 1), SocketRule((0b0101, 0b1010), 2)]),
)


@pytest.mark.parametrize("name", POLICIES)
@given(hints=listed | described)
def test_a_provider_suffices_alone_when_a_merge_of_its_hints_alone_is_admitted(name: str, hints: AnyHints) -> None:
    settings = SETTINGS[name]
    [opinion] = opinions_of(
        [HintsGiven("uid", "c", {"example.com/nic": hints})], settings, name, MemoryState("None", {}, {})
    )
    alone = topology_merge.merge(name, [hints or NOT_POSSIBLE], settings.numa)
    assert opinion.suffices == alone.admitted
    if opinion.suffices and not opinion.indifferent and name == "restricted":
        assert alone.hint.mask is not None
        assert opinion.together & alone.hint.mask == alone.hint.mask
