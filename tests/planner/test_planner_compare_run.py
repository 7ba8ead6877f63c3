"""What is compared: legal combinations, ranks, groups; and the same answer from any number of processes."""

from __future__ import annotations

import gc
import os
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from itertools import groupby
from multiprocessing import active_children

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from tests.patience import until
from tests.planner.compared import FIGURES, SMALL, STATIC, container, machine, pod, pods, trace, varied

from mooring.answers.base.trace import shapes
from mooring.answers.compare import answer as run
from mooring.answers.compare.answer import Comparison, compare
from mooring.answers.compare.measures import (
    MEASURES,
    AlignedContainersPart,
    VariantOutcome,
    VariantPart,
    judge,
    rank_key,
)
from mooring.answers.compare.trial import StrandedCPUsPart
from mooring.answers.compare.variant import ALL_OPTIONS, Dimension, Variant, changes_between, option_sets
from mooring.engine.core.config import KubeletConfig, MooringConfig
from mooring.engine.core.pod import Pod, QoS
from mooring.engine.kubelet.kubelet import StateTexts
from mooring.engine.kubelet.start import refusal_of, start_kubelet

ASKED = trace([*pods(3, 8, 2), pod("with-init", 2, init=4), pod("huge", 40)])


def test_all_options_are_all_sets_of_cpu_options_times_policies_scopes_and_topology_options() -> None:
    made = list(option_sets(STATIC, ALL_OPTIONS, 4))
    assert len(made) == 2**6 * 4 * 2 * 2
    assert len({repr(one) for one in made}) == len(made)


def test_the_legal_combinations_are_those_with_which_the_kubelet_starts() -> None:
    small = machine(SMALL)
    variants = varied(small, STATIC, *ALL_OPTIONS)
    starts = [
        refusal_of(start_kubelet(small.info, one.config, MooringConfig(), StateTexts())) is None for one in variants
    ]
    found = compare(trace(pods(2)), variants)
    assert len(found.variants) == sum(starts) == 392
    assert sum(one.count for one in found.document.left_out) == len(variants) - sum(starts)
    legal = {repr(one.config) for one, yes in zip(variants, starts, strict=True) if yes}
    assert {repr(one.config) for one in found.variants} == legal


def test_an_option_that_needs_a_gate_gets_it_and_others_do_not() -> None:
    made = list(option_sets(STATIC, [Dimension.CPU_OPTIONS], 4))
    alpha = {"align-by-socket", "distribute-cpus-across-cores"}
    for one in made:
        needs = bool(alpha & set(one.cpu_manager_policy_options))
        assert dict(one.feature_gates) == ({"CPUManagerPolicyAlphaOptions": True} if needs else {})
    off = replace(STATIC, feature_gates={"CPUManagerPolicyBetaOptions": False})
    gates = [
        dict(one.feature_gates)
        for one in option_sets(off, [Dimension.CPU_OPTIONS], 4)
        if set(one.cpu_manager_policy_options) == {"distribute-cpus-across-numa"}
    ]
    assert gates == [{"CPUManagerPolicyBetaOptions": True}]


def test_machines_of_many_nodes_get_room_where_the_topology_manager_looks() -> None:
    wide = machine("sockets=2 numa=16 cores=32 memory=64Gi")
    found = compare(trace(pods(2)), varied(wide, STATIC, Dimension.TOPOLOGY_POLICY))
    assert len(found.variants) == 4
    room = {dict(one.config.topology_manager_policy_options).get("max-allowable-numa-nodes") for one in found.variants}
    assert room == {None, "16"}


def test_a_configuration_that_is_given_stays_even_if_the_kubelet_refuses_it() -> None:
    wrong = replace(STATIC, cpu_manager_policy_options={"no-such-option": "true"})
    found = compare(trace(pods(2)), [Variant("wrong", machine(), wrong), Variant("right", machine(), STATIC)])
    assert [one.name for one in found.variants] == ["right", "wrong"]
    assert not found.document.variants[1].starts
    assert found.document.left_out == []
    assert found.is_yes


@pytest.mark.parametrize(
    ("dimension", "settings_found"),
    [
        (Dimension.CPU_POLICY, {"none", "static"}),
        (Dimension.MEMORY_POLICY, {"None", "Static"}),
        (Dimension.TOPOLOGY_SCOPE, {"container", "pod"}),
        (Dimension.TOPOLOGY_POLICY, {"none", "best-effort", "restricted", "single-numa-node"}),
    ],
    ids=lambda value: value.value if isinstance(value, Dimension) else "",
)
def test_a_dimension_takes_all_its_values(dimension: Dimension, settings_found: set[str]) -> None:
    field = {
        Dimension.CPU_POLICY: "cpu_manager_policy",
        Dimension.MEMORY_POLICY: "memory_manager_policy",
        Dimension.TOPOLOGY_SCOPE: "topology_manager_scope",
        Dimension.TOPOLOGY_POLICY: "topology_manager_policy",
    }[dimension]
    assert {getattr(one, field) for one in option_sets(STATIC, [dimension], 4)} == settings_found


def test_changes_lead_from_the_given_configuration_to_the_combination() -> None:
    for one in option_sets(STATIC, ALL_OPTIONS, 4):
        changes = changes_between(STATIC, one)
        assert (changes == ()) == (replace(one, feature_gates={}) == STATIC)
        assert [(change.after, change.before) for change in changes_between(one, STATIC)] == [
            (change.before, change.after) for change in changes
        ]


def measures() -> st.SearchStrategy[VariantPart]:
    small = st.integers(0, 2)
    none = st.just(0)
    return st.builds(
        lambda **figures: structs.replace(FIGURES, **figures),
        admitted=small,
        lost=small,
        exclusive_containers=st.integers(1, 3),
        aligned=st.builds(AlignedContainersPart, small, small, small, small, none, none),
        spread=st.sampled_from([1.0, 1.333, 1.5, 2.0]),
        stranded=st.builds(StrandedCPUsPart, small, none, none, none),
        memory_nodes_beyond_need=small,
    )


@given(measures(), measures(), st.sampled_from(sorted(MEASURES)))
@settings(deadline=None, max_examples=100)
def test_what_is_nowhere_worse_is_never_ranked_behind(one: VariantPart, other: VariantPart, by: str) -> None:
    values = [(one.lost,), *(value(one) for value in MEASURES.values())]
    others = [(other.lost,), *(value(other) for value in MEASURES.values())]
    if all(left <= right for left, right in zip(values, others, strict=True)):
        assert rank_key(one, by) <= rank_key(other, by)
    if one.lost < other.lost:
        assert rank_key(one, by) < rank_key(other, by), "no measure outweighs a running pod"
    if one.lost == other.lost and MEASURES[by](one) < MEASURES[by](other):
        assert rank_key(one, by) < rank_key(other, by)


@cache
def compared(jobs: int = 1) -> Comparison:
    variants = varied(machine(), STATIC, Dimension.CPU_OPTIONS, Dimension.TOPOLOGY_POLICY)
    return compare(ASKED, variants, jobs=jobs)


@pytest.mark.parametrize("by", sorted(MEASURES))
def test_entries_are_in_the_order_of_their_keys(by: str) -> None:
    variants = varied(machine(), STATIC, Dimension.TOPOLOGY_SCOPE, Dimension.TOPOLOGY_POLICY)
    found = compare(ASKED, variants, by=by)
    keys = [rank_key(one, by) for one in found.document.variants]
    assert keys == sorted(keys)


def test_a_group_decides_alike_and_is_led_by_what_changes_least() -> None:
    variants = compared().document.variants
    assert [one.group for one in variants] == sorted(one.group for one in variants)
    for _, found in groupby(variants, key=lambda one: one.group):
        group = list(found)
        assert len({one.figures for one in group}) == 1
        changes = [len(one.changes) for one in group]
        assert changes == sorted(changes)


def test_pods_that_nobody_admits_are_named() -> None:
    assert compared().document.never_admitted == ["default/huge"]
    assert not compared().is_yes


def test_every_pod_is_admitted_or_has_a_reason() -> None:
    for found in compared().document.variants:
        assert found.admitted + sum(found.rejected.values()) == len(ASKED.pods) == 5


def test_without_room_for_a_trace_nothing_was_asked() -> None:
    found = compare(trace(pods(2)), [Variant("x", machine(), KubeletConfig(cpu_manager_policy="static"))])
    (one,) = found.document.variants
    assert (one.rejected, one.is_yes) == ({"not asked": 1}, False)


class StopWatchingError(Exception):
    """Stands for an interrupt, which a test cannot raise without ending the run."""


def spread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let worker processes take part however little there is to do."""
    monkeypatch.setattr(run, "FEW", 0)


def test_any_number_of_processes_gives_the_same_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    spread(monkeypatch)
    assert compared(jobs=2).document == compared().document


@pytest.mark.long
def test_an_interrupt_ends_all_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    spread(monkeypatch)

    def interrupted(outcomes: Iterable[VariantOutcome]) -> Iterator[VariantOutcome]:
        yield next(iter(outcomes))
        assert len(active_children()) == 2
        raise StopWatchingError

    variants = varied(machine(), STATIC, *ALL_OPTIONS)
    with pytest.raises(StopWatchingError):
        compare(ASKED, variants, jobs=2, watch=interrupted)
    gc.collect()
    until(lambda: not active_children(), "no worker is left")


@pytest.mark.long
def test_workers_that_are_killed_change_nothing_in_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    spread(monkeypatch)

    def killed(outcomes: Iterable[VariantOutcome]) -> Iterator[VariantOutcome]:
        for number, outcome in enumerate(outcomes):
            yield outcome
            if number == 0:
                for process in active_children():
                    process.kill()

    variants = varied(machine(), STATIC, *ALL_OPTIONS)
    assert compare(ASKED, variants, jobs=2, watch=killed).document == compare(ASKED, variants).document


def test_where_no_process_can_be_started_the_answer_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    spread(monkeypatch)

    def refused() -> int:
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(os, "fork", refused)
    variants = varied(machine(), STATIC, Dimension.TOPOLOGY_POLICY, Dimension.CPU_OPTIONS)
    assert compare(ASKED, variants, jobs=2).document == compare(ASKED, variants).document


def test_combinations_that_share_runs_have_the_outcomes_that_they_have_alone() -> None:
    """Two containers tell the scopes apart, 12 CPUs beside a full node the distances; one in 23 is run alone."""
    variants = varied(machine(), STATIC, *ALL_OPTIONS)
    two = Pod("uid-two", "two", containers=(container("a", 5), container("b", 5)), qos=QoS.GUARANTEED)
    asked = trace([*pods(7, 12), two])
    groups: dict[Hashable, dict[int, Variant]] = {}
    for position, variant in enumerate(variants):
        groups.setdefault(variant.shared_by, {})[position] = variant
    together: dict[int, VariantOutcome] = {}
    for members in groups.values():
        together |= judge(asked, members, shapes(asked))
    alone = {
        position: judge(asked, {position: variants[position]}, shapes(asked))[position]
        for position in range(0, len(variants), 23)
    }
    assert {position: together[position] for position in alone} == alone
    assert len(groups) < len(variants)
