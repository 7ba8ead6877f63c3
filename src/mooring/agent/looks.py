"""Looks at containers that were asked for: each is made once, whoever comes to it first."""

from __future__ import annotations

from collections.abc import Callable, Collection
from threading import Lock


class Looks:
    """Containers that are to be verified."""

    def __init__(self, verify: Callable[[tuple[str, ...]], object]) -> None:
        """Have nobody to look at.

        Args:
            verify: looks at containers and puts right what differs; may ask for further looks.
        """
        self._verify = verify
        self._looking = Lock()
        """Held while somebody looks; taken before the next, never within it."""
        self._lock = Lock()
        self._asked: dict[str, int] = {}
        """By container: a number that tells the newest request from those before it."""
        self._requests = 0

    def ask(self, container_ids: Collection[str]) -> None:
        """Remember that these are to be looked at after now."""
        with self._lock:
            self._requests += 1
            self._asked.update(dict.fromkeys(container_ids, self._requests))

    def make(self, container_ids: Collection[str]) -> None:
        """Look at those of them at whom nobody has looked since they were asked for."""
        with self._looking:
            with self._lock:
                due = {one: self._asked[one] for one in container_ids if one in self._asked}
            try:
                if due:
                    self._verify(tuple(due))
            finally:
                with self._lock:
                    # Who was asked for again meanwhile may have been looked at too early.
                    self._asked = {one: asked for one, asked in self._asked.items() if due.get(one) != asked}

    def make_all(self) -> None:
        """Return once everybody asked for so far was looked at; a look that somebody else makes is waited for."""
        with self._lock:
            due = tuple(self._asked)
        if due:
            self.make(due)
