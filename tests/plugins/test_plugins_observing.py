"""What plugins are told after decisions: the difference between two states that were in force."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st
from tests.plugins.made_plugins import answering, choice, plugin, raising

from mooring.engine.core.bits import NO_CPUS, CPUMask
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.plugins import Change, CPUSet
from mooring.engine.plugins.asking import changes_between, notify
from mooring.engine.plugins.facts import PluginFailed


def state(assignments: Mapping[str, Mapping[str, CPUMask]], pods: Mapping[str, CPUMask] | None = None) -> CPUState:
    return CPUState("static", NO_CPUS, assignments, pods=pods or {})


def told(before: CPUState, after: CPUState) -> list[tuple[str, str, str, str]]:
    changes = changes_between(before, after)
    return [(point, one.uid, one.container, str(one.cpus)) for point, one in changes]


def test_who_got_cpus_and_whose_came_back_is_told() -> None:
    before = state({"a": {"x": CPUMask(0b11)}, "b": {"x": CPUMask(0b100)}})
    after = state({"b": {"x": CPUMask(0b1100)}, "c": {"x": CPUMask(0b1), "y": CPUMask(0b10)}})
    assert told(before, after) == [
        ("deallocated", "a", "x", "0-1"),
        ("allocated", "b", "x", "3"),
        ("allocated", "c", "x", "0"),
        ("allocated", "c", "y", "1"),
    ]


def test_a_container_that_moved_is_told_twice_and_the_partition_of_a_pod_has_no_container() -> None:
    assert told(
        state({"a": {"x": CPUMask(0b0011)}}), state({"a": {"x": CPUMask(0b0110)}}, {"b": CPUMask(0b11000)})
    ) == [("deallocated", "a", "x", "0"), ("allocated", "b", "", "3-4"), ("allocated", "a", "x", "2")]


def test_nothing_is_reported_of_a_state_that_stayed() -> None:
    one = state({"a": {"x": CPUMask(0b11)}})
    assert told(one, one) == told(one, state({"a": {"x": CPUMask(0b11)}})) == []


holdings = st.dictionaries(
    st.sampled_from("abc"), st.dictionaries(st.sampled_from("xy"), st.integers(0, 255), max_size=2), max_size=3
)


@given(before=holdings, after=holdings)
def test_what_is_told_makes_one_state_of_the_other(
    before: dict[str, dict[str, CPUMask]], after: dict[str, dict[str, CPUMask]]
) -> None:
    held = {(uid, name): CPUSet(cpus) for uid, sets in before.items() for name, cpus in sets.items()}
    for point, one in changes_between(state(before), state(after)):
        who = one.uid, one.container
        known = held.get(who, CPUSet())
        held[who] = known | one.cpus if point == "allocated" else known - one.cpus
    wanted = {(uid, name): CPUSet(cpus) for uid, sets in after.items() for name, cpus in sets.items()}
    assert {who: cpus for who, cpus in held.items() if cpus} == {who: cpus for who, cpus in wanted.items() if cpus}


def test_who_fails_to_listen_is_named_and_the_others_hear() -> None:
    heard: list[object] = []
    facts: list[object] = []
    plugins = choice(
        plugin("deaf", allocated=raising(OSError("deaf"))),
        plugin("hears", allocated=lambda **given: heard.append(given["change"])),
        plugin("talks", allocated=answering("whatever it returns"), deallocated=answering(5)),
        plugin("other", pre_score=raising(ValueError())),
    )
    notify(plugins, changes_between(state({"b": {"x": CPUMask(1)}}), state({"a": {"x": CPUMask(2)}})), facts.append)
    assert heard == [Change("a", "x", CPUSet.of(1))]
    assert facts == [PluginFailed("a", "x", "deaf", "allocated", "it raised OSError: deaf")]
