"""Work that no answer waits for: each check that was asked for is made once, and none is lost."""

from __future__ import annotations

import threading

import pytest
from tests.agent.nri.runtime_side import TIMEOUT
from tests.patience import until

from mooring.agent.executor import PendingChecks, WorkQueue


def test_work_is_done_in_order_and_a_failure_does_not_end_it() -> None:
    done: list[int] = []
    failures: list[Exception] = []
    work = WorkQueue(failures.append)
    work.put(lambda: done.append(1))
    work.put(lambda: 1 // 0)
    work.put(lambda: done.append(2))
    work.start()
    work.finish(60)
    assert done == [1, 2]
    assert [type(each) for each in failures] == [ZeroDivisionError]


def test_who_finds_no_room_is_told_so_and_does_not_wait() -> None:
    held = threading.Event()
    work = WorkQueue(lambda _: None, size=1)
    assert work.put(lambda: held.wait(60))
    assert not work.put(lambda: None)
    assert work.dropped == 1
    work.start()
    held.set()
    work.finish(60)


class Watched:
    """A lock that tells whether a thread has had to wait for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.was_waited_for = False

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self.was_waited_for = True
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_who_was_asked_for_is_looked_at_once_whoever_comes_first() -> None:
    made: list[tuple[str, ...]] = []
    checks = PendingChecks(made.append)
    checks.run_all()
    checks.add(("a", "b"))
    checks.add(("c",))
    checks.run_all()
    checks.run(("a", "b"))
    checks.run(("c",))
    assert made == [("a", "b", "c")]


def test_who_is_asked_for_again_while_somebody_looks_is_looked_at_again() -> None:
    made: list[tuple[str, ...]] = []

    def verify(ids: tuple[str, ...]) -> None:
        made.append(ids)
        if len(made) == 1:
            checks.add(("a",))

    checks = PendingChecks(verify)
    checks.add(("a", "b"))
    checks.run(("a", "b"))
    checks.run(("a",))
    assert made == [("a", "b"), ("a",)]


def test_a_look_that_somebody_else_makes_is_waited_for_and_not_made_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[str, ...]] = []
    began, go_on = threading.Event(), threading.Event()
    order: list[str] = []

    def verify(ids: tuple[str, ...]) -> None:
        began.set()
        assert go_on.wait(TIMEOUT)
        made.append(ids)
        order.append("looked")

    def confirm() -> None:
        checks.run_all()
        order.append("confirmed")

    locks: list[Watched] = []

    def lock() -> Watched:
        locks.append(Watched())
        return locks[-1]

    monkeypatch.setattr(f"{PendingChecks.__module__}.Lock", lock)
    checks = PendingChecks(verify)
    checks.add(("a",))
    first = threading.Thread(target=checks.run, args=(("a",),))
    first.start()
    assert began.wait(TIMEOUT)
    second = threading.Thread(target=confirm)
    second.start()
    until(lambda: any(one.was_waited_for for one in locks) or order, "the second waits, or has not waited")
    go_on.set()
    first.join(TIMEOUT)
    second.join(TIMEOUT)
    assert (made, order) == ([("a",)], ["looked", "confirmed"])


def test_a_look_that_fails_is_not_made_for_ever() -> None:
    def verify(_ids: tuple[str, ...]) -> None:
        raise OSError("broken")

    checks = PendingChecks(verify)
    checks.add(("a",))
    with pytest.raises(OSError, match="broken"):
        checks.run(("a",))
    checks.run_all()
