"""Writes to the API server that were given up, so that each is reported once.

The wish for an eviction comes again with every try of the kubelet, that for the taint with every check.
"""

from __future__ import annotations

from collections import OrderedDict

from mooring.agent.pods.events import EventWrite
from mooring.agent.pods.tasks import EvictionWrite, Task

MOST_EVICTIONS = 1024
"""Evictions that are remembered."""
_NODE = ""
"""Stands for the node among the uids of pods."""


class GivenUpWrites:
    """Evictions and the taint, with the words in which the newest failure was reported; one thread's alone."""

    def __init__(self) -> None:
        self._words: OrderedDict[str, str] = OrderedDict()

    def was_reported(self, task: Task, message: str, *, is_last: bool) -> bool:
        """Tell whether the same eviction, or the taint, was given up before with the same words.

        Args:
            task: that has failed; an event is never the same.
            message: that is about to be reported.
            is_last: whether it is given up now.
        """
        if isinstance(task.what, EventWrite):
            return False
        uid = _uid(task)
        before = self._words.get(uid)
        if is_last:
            self._words[uid] = message
            if len(self._words) > MOST_EVICTIONS:
                self._words.popitem(last=False)
        return before == message

    def done(self, task: Task) -> None:
        """Learn that a write was made: the next failure is reported again."""
        self._words.pop(_uid(task), None)


def _uid(task: Task) -> str:
    return task.what.about.uid if isinstance(task.what, EvictionWrite) else _NODE
