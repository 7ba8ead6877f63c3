"""Holding plugins to their budget of time: they work in a thread that is left alone when it is over.

A thread cannot be stopped from outside. One that does not come back keeps its plugin from being asked again, so that
there are never more of them than plugins; as long as it works it costs time, but no decision waits for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

from mooring.core.plugins import OutOfTimeError, Work


class Watchman:
    """Does work in a thread of its own, for a limited time; one for each configuration that is loaded."""

    def __init__(self) -> None:
        self._tasks: SimpleQueue[_Task | None] | None = None
        self._given_up: frozenset[str] = frozenset()
        self._lock = threading.Lock()

    def __call__(self, work: Work, budget: int) -> object:
        """Do some work.

        Args:
            work: asks plugins.
            budget: nanoseconds.

        Raises:
            OutOfTimeError: it took longer; whatever it comes to later counts for nothing.
        """
        answers: SimpleQueue[_Done] = SimpleQueue()
        with self._lock:
            if self._tasks is None:
                self._tasks = _new_thread()
            tasks = self._tasks
            tasks.put((work, answers))
            try:
                done = answers.get(timeout=budget / 1e9)
            except Empty:
                # The thread is stuck with its queue; the next work gets another. It ends if it ever comes back.
                self._tasks = None
                tasks.put(None)
                raise OutOfTimeError from None
        return done()

    def give_up(self, plugin: str) -> None:
        """Note that a plugin is not to be asked again, as long as this configuration is in force."""
        with self._lock:
            self._given_up |= {plugin}

    def has_given_up(self, plugin: str) -> bool:
        """Tell whether a plugin is not to be asked any more."""
        return plugin in self._given_up


_Done = Callable[[], object]
_Task = tuple[Work, "SimpleQueue[_Done]"]


def _new_thread() -> SimpleQueue[_Task | None]:
    tasks: SimpleQueue[_Task | None] = SimpleQueue()
    threading.Thread(target=_work, args=(tasks,), name="plugins", daemon=True).start()
    return tasks


def _work(tasks: SimpleQueue[_Task | None]) -> None:
    while (task := tasks.get()) is not None:
        work, answers = task
        answers.put(_outcome(work))


def _outcome(work: Work) -> _Done:
    try:
        found = work()
    except BaseException as error:  # noqa: BLE001 - it is raised again where somebody waits for it
        return _raising(error)
    return lambda: found


def _raising(error: BaseException) -> _Done:
    def again() -> object:
        raise error

    return again
