"""Asking a plugin: an answer of the right kind comes back, or a failure that names it; telling plugins of decisions."""

from __future__ import annotations

import math
from collections import UserDict
from collections.abc import Mapping
from threading import Event, Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.patience import until
from tests.plugins.made_plugins import answering, choice, cpus, plugin, raising

from mooring.engine.core.bits import NO_CPUS, CPUMask
from mooring.engine.core.config import UNWATCHED, ChosenPlugin, OutOfTimeError, Watch, Work
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.plugins import Change, CPUSet, Room, Selected, Withheld
from mooring.engine.plugins.asking import (
    LONGEST_REASON,
    Asking,
    BadAnswerError,
    Understand,
    as_cpus,
    as_nodes,
    as_order,
    as_room,
    as_score,
    as_scores,
    as_selected,
    as_withheld,
    changes_between,
    notify,
)
from mooring.engine.plugins.facts import PluginFailed

UNDERSTOOD: list[tuple[Understand[object], object, object]] = [
    (as_cpus, cpus("1-3"), cpus("1-3")),
    (as_withheld, cpus("1"), Withheld(cpus("1"))),
    (as_withheld, Withheld(cpus("1"), "too\n  hot"), Withheld(cpus("1"), "too hot")),
    (as_withheld, Withheld(cpus("1"), "x" * 999), Withheld(cpus("1"), "x" * LONGEST_REASON)),
    (as_room, cpus("1"), Room(cpus("1"))),
    (as_room, Room(cpus("1"), "why"), Room(cpus("1"), "why")),
    (as_selected, cpus("1"), Selected(cpus("1"))),
    (as_selected, Selected(cpus("1"), cpus("2")), Selected(cpus("1"), cpus("2"))),
    (as_scores, {1: 2, 3: 0.5}, {1: 2.0, 3: 0.5}),
    (as_score, -3, -3.0),
    (as_score, 2.0**53, 2.0**53),
    (as_order, ["b", "a"], ["b", "a"]),
    (as_order, ("b", "a"), ["b", "a"]),
    (as_nodes, frozenset({0, 63}), frozenset({0, 63})),
    (as_nodes, frozenset(), frozenset()),
]

REFUSED: list[tuple[Understand[object], object, str]] = [
    (as_cpus, {1, 2}, "it answered with a set where a CPUSet belongs"),
    (as_cpus, CPUSet(CPUMask(-1)), "it answered with a CPUSet where a CPUSet belongs"),
    (as_withheld, [1], "it answered with a list where a CPUSet belongs"),
    (as_withheld, Withheld(cpus("1"), 5), "it gave an int for a reason"),  # type: ignore[arg-type]  # the point
    (as_room, Room({1}), "it answered with a set where a CPUSet belongs"),  # type: ignore[arg-type]  # the point
    (as_selected, Selected(cpus("1"), 4), "it answered with an int where a CPUSet belongs"),  # type: ignore[arg-type]
    (as_scores, UserDict({1: 1.0}), "it answered with a UserDict where a dict of CPUs and scores belongs"),
    (as_scores, {True: 1.0}, "it scored a bool where the number of a CPU belongs"),
    (as_scores, {1: math.nan}, "it scored with a number that is not between -2^53 and 2^53"),
    (as_score, math.inf, "it scored with a number that is not between -2^53 and 2^53"),
    (as_score, 10**400, "it scored with a number that is not between -2^53 and 2^53"),
    (as_score, -1.7e308, "it scored with a number that is not between -2^53 and 2^53"),
    (as_score, True, "it scored with a bool where a number belongs"),
    (as_order, "ab", "it answered with a str where a list of uids belongs"),
    (as_order, ["a", 1], "it answered with a list of other things than uids"),
    (as_nodes, {0}, "it answered with a set where a frozenset of NUMA nodes belongs"),
    (as_nodes, frozenset({64}), "it answered with a frozenset where a frozenset of NUMA nodes belongs"),
    (as_nodes, frozenset({-1}), "it answered with a frozenset where a frozenset of NUMA nodes belongs"),
]


@pytest.mark.parametrize(("understand", "answer", "understood"), UNDERSTOOD)
def test_answers_of_the_right_kind_are_understood(
    understand: Understand[object], answer: object, understood: object
) -> None:
    assert understand(answer) == understood


@pytest.mark.parametrize(("understand", "answer", "why"), REFUSED)
def test_answers_of_a_wrong_kind_are_refused_in_a_sentence(
    understand: Understand[object], answer: object, why: str
) -> None:
    with pytest.raises(BadAnswerError) as caught:
        understand(answer)
    assert str(caught.value) == why


def asking(*plugins: ChosenPlugin, watch: Watch = UNWATCHED) -> tuple[Asking, list[object]]:
    facts: list[object] = []
    return Asking(choice(*plugins, watch=watch), "uid", "app", facts.append), facts


class Unprintable(Exception):  # noqa: N818 - a plugin names its errors as it likes
    """An error that cannot even be printed."""

    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("first\nsecond"), "it raised ValueError: first"),
        (ValueError(), "it raised ValueError: "),
        (SystemExit(3), "it raised SystemExit: 3"),
        (GeneratorExit(), "it raised GeneratorExit: "),
        (OutOfTimeError("mine"), "it raised OutOfTimeError: mine"),
        (Unprintable(), "it raised Unprintable: (it cannot be printed)"),
        (ValueError("x" * 999), "it raised ValueError: " + "x" * LONGEST_REASON),
    ],
)
def test_whatever_a_plugin_raises_is_its_failure(error: BaseException, text: str) -> None:
    bad = plugin("bad", pre_score=raising(error), filter_cpus=answering(None))
    asks, facts = asking(bad)
    assert asks.ask(bad, "pre_score", as_scores) is None
    assert facts == [PluginFailed("uid", "app", "bad", "pre_score", text)]
    assert asks.of("filter_cpus") == []


def test_a_person_who_stops_the_program_is_no_plugins_failure() -> None:
    bad = plugin("bad", pre_score=raising(KeyboardInterrupt()))
    asks, facts = asking(bad)
    with pytest.raises(KeyboardInterrupt):
        asks.ask(bad, "pre_score", as_scores)
    assert facts == []


def test_no_opinion_is_no_failure() -> None:
    quiet = plugin("quiet", pre_score=answering(None))
    asks, facts = asking(quiet)
    assert asks.ask(quiet, "pre_score", as_scores) is None
    assert (facts, asks.of("pre_score")) == ([], [quiet])


class EndsWhenAsked:
    """A watch for which the time is over as soon as a plugin has begun to work."""

    def __init__(self) -> None:
        self.begun, self.release, self.ended = Event(), Event(), Event()
        self.given_up: list[str] = []

    def __call__(self, work: Work, budget: int) -> object:  # noqa: ARG002 - ends by an event
        def run() -> None:
            try:
                work()
            except OutOfTimeError:
                pass
            finally:
                self.ended.set()

        Thread(target=run, daemon=True).start()
        until(self.begun.is_set, "the plugin is asked")
        raise OutOfTimeError

    def give_up(self, plugin: str) -> None:
        self.given_up.append(plugin)

    def has_given_up(self, plugin: str) -> bool:
        return plugin in self.given_up

    def block(self, **_asked: object) -> object:
        """Be a plugin that works until it is released, and then answers."""
        self.begun.set()
        self.release.wait()
        return {1: 1.0}


def test_who_is_not_done_in_time_is_given_up_and_its_late_answer_counts_for_nothing() -> None:
    watch = EndsWhenAsked()
    later: list[str] = []
    slow = plugin("slow", pre_score=watch.block)
    last = plugin("last", pre_score=lambda **_asked: later.append("asked"))
    asks, facts = asking(slow, last, watch=watch)

    def work() -> list[object]:
        return [asks.ask(one, "pre_score", as_scores) for one in asks.of("pre_score")]

    assert asks.within_budget(work) is None
    failed = PluginFailed("uid", "app", "slow", "pre_score", "it was not done after 50 ms")
    assert facts == [failed]
    assert watch.given_up == ["slow"]
    watch.release.set()
    until(watch.ended.is_set, "the plugin comes back")
    assert (later, facts) == ([], [failed])


def test_who_was_given_up_is_left_out_and_named() -> None:
    watch = EndsWhenAsked()
    watch.give_up("slow")
    slow, quick = plugin("slow", pre_score=answering({1: 1.0})), plugin("quick", pre_score=answering({1: 2.0}))
    asks, facts = asking(slow, quick, watch=watch)
    assert asks.of("pre_score") == asks.of("pre_score") == [quick]
    why = "it ran out of time before and is not asked any more"
    assert facts == [PluginFailed("uid", "app", "slow", "pre_score", why)]


def test_a_shipped_plugin_is_never_given_up() -> None:
    watch = EndsWhenAsked()
    slow = plugin("slow", pre_score=watch.block, is_shipped=True)
    asks, facts = asking(slow, plugin("other", score_set=answering(1)), watch=watch)
    assert asks.within_budget(lambda: asks.ask(slow, "pre_score", as_scores)) is None
    assert watch.given_up == []
    assert [type(fact) for fact in facts] == [PluginFailed]
    watch.release.set()


class Busy(EndsWhenAsked):
    """A watch on a machine that is too busy to begin with anything."""

    def __call__(self, work: Work, budget: int) -> object:  # noqa: ARG002 - nothing is done
        raise OutOfTimeError


def test_a_busy_machine_is_nobodys_fault() -> None:
    watch = Busy()
    asks, facts = asking(plugin("one", pre_score=answering(None)), plugin("two", score_set=answering(1)), watch=watch)
    assert asks.within_budget(lambda: 1) is None
    assert facts == [PluginFailed("uid", "app", "one, two", "", "no plugin was asked within 50 ms")]
    assert watch.given_up == []


def test_who_asks_hears_what_was_found_in_the_order_in_which_it_was() -> None:
    class Direct(EndsWhenAsked):
        def __call__(self, work: Work, budget: int) -> object:  # noqa: ARG002 - no watch at all
            told = list(facts)
            found = work()
            assert facts == told, "nothing is told from inside the watch"
            return found

    bad, stops = plugin("bad", pre_score=answering(5)), plugin("stops", pre_score=raising(KeyboardInterrupt("x")))
    asks, facts = asking(bad, stops, watch=Direct())
    assert asks.within_budget(lambda: [asks.ask(one, "pre_score", as_scores) for one in (bad, stops)]) == [None, None]
    assert [(fact.plugin, fact.why) for fact in facts if isinstance(fact, PluginFailed)] == [
        ("bad", "it answered with an int where a dict of CPUs and scores belongs"),
        ("stops", "it raised KeyboardInterrupt: x"),
    ]


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
