"""What every daemon does to its process while it starts."""

from __future__ import annotations

import gc
import weakref

from mooring.service.daemon import settle, uncollected


def test_the_collector_is_off_during_a_start_and_leaves_out_what_a_settled_daemon_has() -> None:
    before = gc.get_freeze_count()
    with uncollected():
        assert not gc.isenabled()
        settle()
        assert gc.isenabled()
        assert gc.get_freeze_count() > before
    assert (gc.isenabled(), gc.get_freeze_count()) == (True, 0)


def test_cycles_that_were_left_out_are_freed_by_a_whole_collection() -> None:
    class Knot:
        def __init__(self) -> None:
            self.own = self

    knot = Knot()
    gone = weakref.ref(knot)
    try:
        settle()
        del knot
        settle()
        assert gone() is not None
        settle(whole=True)
        assert gone() is None
    finally:
        gc.unfreeze()
