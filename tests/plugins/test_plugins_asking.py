"""Asking plugins: an answer of the right kind counts; any other is a failure that names plugin, point and reason."""

from __future__ import annotations

import math
import sys
from collections import UserDict
from threading import Event, Thread

import pytest
from tests.patience import until
from tests.plugins.made_plugins import POD, answering, cpus, free, host_on, plugin, raising, wanted

from mooring.engine.core.bits import CPUMask, NUMAMask
from mooring.engine.core.config import ChosenPlugin, OutOfTimeError, Watch, Work
from mooring.engine.cpumanager.policy import CPUsChosen
from mooring.engine.plugins import CPUSet, Room, Selected, Withheld
from mooring.engine.plugins.facts import PluginFailed, PluginFiltered, PluginMadeRoom, PluginScored
from mooring.engine.topologymanager.hints import Hint

ALL = "0-11"
LONGEST = "x" * 200
"""As much of a reason as is kept."""
SHOWN = "\N{REPLACEMENT CHARACTER}[8m\N{REPLACEMENT CHARACTER}too hot"
"""What is shown of an escape and of a sign that turns the direction of writing."""


def asked(*plugins: ChosenPlugin, watch: Watch | None = None) -> list[object]:
    """Ask about two CPUs, the order of pods and, where that can be chosen, NUMA nodes; return what was told."""
    facts: list[object] = []
    host = host_on(*plugins, watch=watch)
    host.chosen(free(ALL), wanted(2, ALL), facts.append)
    host.ordered([POD], facts.append)
    if host.has_point("choose_affinity"):
        hint = Hint(NUMAMask(1), preferred=True)
        host.affinity(POD, "app", "best-effort", hint, hint, facts.append)
    return facts


def failed(facts: list[object]) -> list[tuple[str, str, str]]:
    return [(fact.plugin, fact.point, fact.why) for fact in facts if isinstance(fact, PluginFailed)]


ONE = cpus("1").mask


@pytest.mark.parametrize(
    ("point", "answer", "told"),
    [
        ("filter_cpus", cpus("1"), PluginFiltered("uid", "app", "any", ONE, "")),
        ("filter_cpus", Withheld(cpus("1"), "too\n  hot"), PluginFiltered("uid", "app", "any", ONE, "too hot")),
        ("filter_cpus", Withheld(cpus("1"), "\x1b[8m\u202etoo\n hot"), PluginFiltered("uid", "app", "any", ONE, SHOWN)),
        ("filter_cpus", Withheld(cpus("1"), "x" * 999), PluginFiltered("uid", "app", "any", ONE, LONGEST)),
        ("post_filter", cpus("1"), PluginMadeRoom("uid", "app", "any", ONE, "")),
        ("post_filter", Room(cpus("1"), "why"), PluginMadeRoom("uid", "app", "any", ONE, "why")),
        ("pre_score", {1: 2.0**53}, PluginScored("uid", "app", "any", {2.0**53: ONE})),
        ("pre_score", {1: -3}, PluginScored("uid", "app", "any", {-3.0: ONE})),
    ],
)
def test_answers_of_the_right_kind_are_understood(point: str, answer: object, told: object) -> None:
    all_withheld = plugin("first", filter_cpus=answering(cpus(ALL)))
    others = [all_withheld] if point == "post_filter" else []
    assert told in asked(*others, ChosenPlugin("any", {}, {point: answering(answer)}))


@pytest.mark.parametrize("answer", [cpus("1-2"), Selected(cpus("1-2"))])
def test_a_selection_is_a_set_with_or_without_what_it_hides(answer: object) -> None:
    host = host_on(plugin("any", select_cpus=answering(answer)))
    assert host.chosen(free(ALL), wanted(2, ALL), None) == CPUsChosen(cpus("1-2").mask)


NO_SET = "where a CPUSet belongs"
NO_NODES = "it answered with a frozenset where a frozenset of NUMA nodes belongs"
TOO_FAR = "it scored with a number that is not between -2^53 and 2^53"


@pytest.mark.parametrize(
    ("point", "answer", "why"),
    [
        ("filter_cpus", {1, 2}, f"it answered with a set {NO_SET}"),
        ("filter_cpus", [1], f"it answered with a list {NO_SET}"),
        ("filter_cpus", CPUSet(CPUMask(-1)), f"it answered with a CPUSet {NO_SET}"),
        ("filter_cpus", Withheld(cpus("1"), 5), "it gave an int for a reason"),  # type: ignore[arg-type]  # the point
        ("post_filter", Room({1}), f"it answered with a set {NO_SET}"),  # type: ignore[arg-type]  # the point
        ("select_cpus", Selected(cpus("1"), 4), f"it answered with an int {NO_SET}"),  # type: ignore[arg-type]
        ("pre_score", UserDict({1: 1.0}), "it answered with a UserDict where a dict of CPUs and scores belongs"),
        ("pre_score", {True: 1.0}, "it scored a bool where the number of a CPU belongs"),
        ("pre_score", {1: True}, "it scored with a bool where a number belongs"),
        *(("pre_score", {1: far}, TOO_FAR) for far in (math.nan, math.inf, 10**400, -1.7e308)),
        (
            "pre_score",
            type("\x1b[8m\u202etoo\nhot", (), {})(),
            f"it answered with a {SHOWN} where a dict of CPUs and scores belongs",
        ),
        ("score_set", "high", "it scored with a str where a number belongs"),
        ("sort_pods", "ab", "it answered with a str where a list of uids belongs"),
        ("sort_pods", ["a", 1], "it answered with a list of other things than uids"),
        ("choose_affinity", {0}, "it answered with a set where a frozenset of NUMA nodes belongs"),
        *(("choose_affinity", frozenset({node}), NO_NODES) for node in (64, -1)),
    ],
)
def test_answers_of_a_wrong_kind_are_left_out_in_a_sentence(point: str, answer: object, why: str) -> None:
    all_withheld = plugin("first", filter_cpus=answering(cpus(ALL)))
    others = [all_withheld] if point == "post_filter" else []
    assert failed(asked(*others, ChosenPlugin("bad", {}, {point: answering(answer)}))) == [("bad", point, why)]


class Unprintable(Exception):  # noqa: N818 - a plugin names its errors as it likes
    """An error that cannot even be printed."""

    def __str__(self) -> str:
        raise RuntimeError


EXITS: type[Exception] = type("Exits", (Exception,), {"__str__": lambda _self: sys.exit(3)})
NO_NAME = type("NoName", (type,), {"__name__": property(lambda _cls: sys.exit(3))})


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("first\nsecond"), "it raised ValueError: first"),
        (ValueError(), "it raised ValueError: "),
        (SystemExit(3), "it raised SystemExit: 3"),
        (GeneratorExit(), "it raised GeneratorExit: "),
        (OutOfTimeError("mine"), "it raised OutOfTimeError: mine"),
        (Unprintable(), "it raised Unprintable: (it cannot be printed)"),
        (EXITS(), "it raised Exits: (it cannot be printed)"),
        (NO_NAME("E", (Exception,), {})("x"), "it raised (it cannot be printed): x"),
        (type("\x1b[8m\u202etoo\nhot", (Exception,), {})("\x1b[8m\u202etoo hot"), f"it raised {SHOWN}: {SHOWN}"),
        (ValueError("x" * 999), "it raised ValueError: " + LONGEST),
    ],
)
def test_whatever_a_plugin_raises_is_its_failure(error: BaseException, text: str) -> None:
    assert failed(asked(plugin("bad", pre_score=raising(error)))) == [("bad", "pre_score", text)]


def test_a_failure_is_no_longer_than_a_line() -> None:
    facts = asked(plugin("bad", select_cpus=answering(Selected(cpus("1-2"), CPUSet.of(*range(0, 9999, 2))))))
    (_, _, why), *_ = failed(facts)
    assert why.startswith("it hides the CPUs 0,2,4,")
    assert why.endswith(", of which some are given or not free")
    assert len(why) < 1010


def test_a_person_who_stops_the_program_is_no_plugins_failure() -> None:
    with pytest.raises(KeyboardInterrupt):
        asked(plugin("bad", pre_score=raising(KeyboardInterrupt())))


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
    last = plugin("last", pre_score=lambda **_asked: later.append("asked"))
    facts = asked(plugin("slow", pre_score=watch.block), last, watch=watch)
    late = PluginFailed("uid", "app", "slow", "pre_score", "it was not done after 50 ms")
    assert facts == [late]
    assert watch.given_up == ["slow"]
    watch.release.set()
    until(watch.ended.is_set, "the plugin comes back")
    assert (later, facts) == ([], [late])


class Direct(EndsWhenAsked):
    """A watch that waits for as long as it takes."""

    def __call__(self, work: Work, budget: int) -> object:  # noqa: ARG002 - no watch at all
        return work()


def test_who_was_given_up_is_left_out_and_named_once() -> None:
    watch = Direct()
    watch.give_up("slow")
    slow, quick = plugin("slow", pre_score=answering({1: 1.0})), plugin("quick", pre_score=answering({1: 2.0}))
    facts = asked(slow, quick, watch=watch)
    assert failed(facts) == [("slow", "pre_score", "it ran out of time before and is not asked any more")]
    assert PluginScored("uid", "app", "quick", {2.0: ONE}) in facts


def test_a_shipped_plugin_is_never_given_up() -> None:
    watch = EndsWhenAsked()
    slow = plugin("slow", pre_score=watch.block, is_shipped=True)
    facts = asked(slow, plugin("other", score_set=answering(1)), watch=watch)
    assert [name for name, _, _ in failed(facts)] == ["slow"]
    assert watch.given_up == []
    watch.release.set()


class Busy(EndsWhenAsked):
    """A watch on a machine that is too busy to begin with anything."""

    def __call__(self, work: Work, budget: int) -> object:  # noqa: ARG002 - nothing is done
        raise OutOfTimeError


def test_a_busy_machine_is_nobodys_fault() -> None:
    watch = Busy()
    facts = asked(plugin("one", pre_score=answering(None)), plugin("two", score_set=answering(1)), watch=watch)
    assert facts == [PluginFailed("uid", "app", "one, two", "", "no plugin was asked within 50 ms")]
    assert watch.given_up == []


def test_who_asks_hears_what_was_found_after_the_watch_and_in_its_order() -> None:
    class Silent(Direct):
        def __call__(self, work: Work, budget: int) -> object:
            told = list(facts)
            found = super().__call__(work, budget)
            assert facts == told, "nothing is told from inside the watch"
            return found

    facts: list[object] = []
    bad, stops = plugin("bad", pre_score=answering(5)), plugin("stops", pre_score=raising(KeyboardInterrupt("x")))
    host_on(bad, stops, watch=Silent()).chosen(free(ALL), wanted(2, ALL), facts.append)
    assert failed(facts) == [
        ("bad", "pre_score", "it answered with an int where a dict of CPUs and scores belongs"),
        ("stops", "pre_score", "it raised KeyboardInterrupt: x"),
    ]
