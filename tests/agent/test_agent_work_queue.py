"""Work that no answer waits for."""

from __future__ import annotations

import threading

from mooring.agent.executor import WorkQueue


def test_work_is_done_in_order_and_a_failure_does_not_end_it() -> None:
    done: list[int] = []
    failures: list[Exception] = []
    work = WorkQueue(failures.append)
    work.put(lambda: done.append(1))
    work.put(lambda: 1 // 0)
    work.put(lambda: done.append(2))
    work.start()
    work.finish(20)
    assert done == [1, 2]
    assert [type(each) for each in failures] == [ZeroDivisionError]


def test_who_finds_no_room_is_told_so_and_does_not_wait() -> None:
    held = threading.Event()
    work = WorkQueue(lambda _: None, size=1)
    assert work.put(lambda: held.wait(20))
    assert not work.put(lambda: None)
    assert work.dropped == 1
    work.start()
    held.set()
    work.finish(20)
