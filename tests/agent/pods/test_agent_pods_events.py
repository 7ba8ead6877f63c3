"""Events are counted up and do not flood."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.agent import eviction
from mooring.agent.effects import ClusterEvent, EventSubject

WEB = EventSubject("Pod", "web-0", "u", "shop")
HELD = ClusterEvent(WEB, "TopologyAffinityError", "Resources cannot be allocated with Topology locality")


def test_the_first_time_is_written_and_repeats_are_counted_at_growing_intervals() -> None:
    book = eviction.EventBook()
    written = [book.record(HELD, now, 7) for now in range(100)]
    counts = [(now, one.count) for now, one in enumerate(written) if one is not None]
    assert counts == [(0, 1), (10, 11), (30, 31), (70, 71)]
    assert {one.name for one in written if one is not None} == {"web-0.7"}


def test_a_count_that_nobody_repeats_is_written_when_it_is_due() -> None:
    book = eviction.EventBook()
    book.record(HELD, 0, 1)
    assert book.next_due() is None
    book.record(HELD, 1, 2)
    assert book.next_due() == eviction.FIRST_INTERVAL
    assert book.due(eviction.FIRST_INTERVAL - 1) == []
    assert book.due(eviction.FIRST_INTERVAL) == [eviction.EventWrite(HELD, 1, 2)]
    assert book.due(10**9) == []


def test_one_object_is_told_only_so_many_different_things() -> None:
    book = eviction.EventBook()
    written = [
        book.record(ClusterEvent(WEB, "Held", f"try {number}"), 0, number) for number in range(2 * eviction.BURST)
    ]
    assert sum(one is not None for one in written) == eviction.BURST
    other = EventSubject("Pod", "web-1", "v", "shop")
    assert book.record(ClusterEvent(other, "Held", "try 1"), 0, 99) is not None
    assert book.record(ClusterEvent(WEB, "Held", "later"), eviction.REFILL, 100) is not None
    assert book.record(ClusterEvent(WEB, "Held", "later still"), eviction.REFILL, 101) is None


@settings(max_examples=100)
@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 120)), max_size=200))
def test_nothing_is_counted_twice_or_lost(steps: list[tuple[int, float]]) -> None:
    book, now = eviction.EventBook(), 0.0
    happened: dict[str, int] = {}
    written: dict[str, int] = {}
    for number, (which, passed) in enumerate(steps):
        now += passed
        note = str(which)
        happened[note] = happened.get(note, 0) + 1
        one = book.record(ClusterEvent(WEB, "Held", note), now, number)
        for write in [*([one] if one else []), *book.due(now)]:
            assert write.count > written.get(write.event.note, 0)
            written[write.event.note] = write.count
    for write in book.due(now + 2 * eviction.LONGEST_INTERVAL):
        written[write.event.note] = write.count
    assert written == happened


def test_a_thousand_tries_in_a_day_are_written_a_few_dozen_times() -> None:
    book = eviction.EventBook()
    written = [book.record(HELD, 11.0 * number, number) for number in range(24 * 3600 // 11)]
    assert sum(one is not None for one in written) < 160


def test_what_is_remembered_is_bounded() -> None:
    book = eviction.EventBook()
    tries = [ClusterEvent(WEB, "Held", f"try {number}") for number in range(eviction.BURST)]
    assert all(book.record(one, 0, number) for number, one in enumerate(tries))
    assert book.record(ClusterEvent(WEB, "Held", "one more"), 0, eviction.BURST) is None
    for number in range(eviction.MOST_REMEMBERED):
        book.record(ClusterEvent(EventSubject("Pod", f"p{number}", f"u{number}", "n"), "Held", ""), 0, number)
    again = book.record(tries[0], 0, 0)
    assert again is not None, "neither the event nor what its pod has left is remembered"
    assert again.count == 1
