"""Work that no answer waits for."""

from __future__ import annotations

import threading

from mooring.agent.executor import Afterwards


def test_work_is_done_in_order_and_a_failure_does_not_end_it() -> None:
    done: list[int] = []
    failures: list[Exception] = []
    afterwards = Afterwards(failures.append)
    afterwards.put(lambda: done.append(1))
    afterwards.put(lambda: 1 // 0)
    afterwards.put(lambda: done.append(2))
    afterwards.start()
    afterwards.finish(20)
    assert done == [1, 2]
    assert [type(each) for each in failures] == [ZeroDivisionError]


def test_who_finds_no_room_is_told_so_and_does_not_wait() -> None:
    held = threading.Event()
    afterwards = Afterwards(lambda _: None, size=1)
    assert afterwards.put(lambda: held.wait(20))
    assert not afterwards.put(lambda: None)
    assert afterwards.dropped == 1
    afterwards.start()
    held.set()
    afterwards.finish(20)
