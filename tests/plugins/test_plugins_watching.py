"""Holding plugins to their budget of time, in threads."""

from __future__ import annotations

import threading
from threading import Event

import pytest
from tests.patience import until

from mooring.engine.core.config import OutOfTimeError
from mooring.engine.plugins.loading import Watchman

MINUTE = 60 * 10**9


def threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "plugins"}


def test_work_that_is_done_gives_its_answer_and_its_errors() -> None:
    watch = Watchman()
    assert watch(lambda: 5, MINUTE) == 5
    with pytest.raises(ZeroDivisionError):
        watch(lambda: 1 // 0, MINUTE)
    with pytest.raises(SystemExit):
        watch(lambda: exec("raise SystemExit"), MINUTE)  # noqa: S102 - a lambda cannot raise
    assert watch(lambda: 6, MINUTE) == 6


def test_work_is_done_in_one_thread_that_is_not_the_callers() -> None:
    watch = Watchman()
    first, second = watch(threading.get_ident, MINUTE), watch(threading.get_ident, MINUTE)
    assert first == second != threading.get_ident()


def test_a_thread_that_is_stuck_is_left_and_ends_when_it_comes_back() -> None:
    watch, release, stuck = Watchman(), Event(), Event()

    def block() -> str:
        stuck.set()
        release.wait()
        return "late"

    before = threads()
    with pytest.raises(OutOfTimeError):
        watch(block, 10**6)
    until(stuck.is_set, "the work has begun")
    left = threads() - before
    assert len(left) == 1
    assert watch(lambda: "other work", MINUTE) == "other work"
    release.set()
    until(lambda: not any(thread.is_alive() for thread in left), "the thread ends")
    assert watch(lambda: "more work", MINUTE) == "more work"


def test_who_was_given_up_stays_so_for_this_watch_only() -> None:
    watch = Watchman()
    assert not watch.has_given_up("slow")
    watch.give_up("slow")
    assert watch.has_given_up("slow")
    assert not watch.has_given_up("other")
    assert not Watchman().has_given_up("slow")
