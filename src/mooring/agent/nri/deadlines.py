"""Answering in time: whoever comes first, the handler or the clock, answers a request; the other one is told so.

A runtime that waits too long gives its plugin up and goes on without it, which would let a container start anywhere.
So a request that is not answered within a budget is answered by a thread of its own, while the handler still works.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Turn:
    """The right to answer one request; only one can have it."""

    arrived: float
    deadline: float
    expire: Callable[[], None]
    """Answers instead of the handler."""
    _taken: threading.Lock = field(default_factory=threading.Lock)

    @property
    def taken(self) -> bool:
        """Whether somebody has taken it."""
        return self._taken.locked()

    def take(self) -> bool:
        """Return whether the caller is the one that answers."""
        return self._taken.acquire(blocking=False)


class Deadlines:
    """Runs what is due, in a thread of its own, until it is stopped."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._turns: set[Turn] = set()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="nri-deadlines", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; what is not due yet never comes due."""
        with self._changed:
            self._stopped = True
            self._changed.notify()
        if self._thread.ident is not None and threading.current_thread() is not self._thread:
            self._thread.join()

    def begin(self, budget: float, expire: Callable[[], None]) -> Turn:
        """Return a turn that expires after ``budget`` seconds unless somebody takes it before."""
        now = self._clock()
        turn = Turn(now, now + budget, expire)
        with self._changed:
            self._turns.add(turn)
            self._changed.notify()
        return turn

    def end(self, turn: Turn) -> bool:
        """Take a turn and return whether it was still to be had."""
        with self._changed:
            self._turns.discard(turn)
        return turn.take()

    def since(self, turn: Turn) -> float:
        """Return the seconds since a request arrived."""
        return self._clock() - turn.arrived

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._stopped:
                    return
                now = self._clock()
                due = [turn for turn in self._turns if turn.deadline <= now]
                self._turns.difference_update(due)
                if not due:
                    nearest = min((turn.deadline for turn in self._turns), default=None)
                    self._changed.wait(None if nearest is None else nearest - now)
            for turn in due:
                if turn.take():
                    turn.expire()
