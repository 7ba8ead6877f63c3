"""When to write: soon after a change, one write for a burst of them, now and then without one, later after failures."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from mooring.service.cluster.watching import pause_before

LEAST_WAKING: Final = 5.0
"""Seconds between two times at which waiting pods are tried again: each time the scheduler tries all of them."""


@dataclass(frozen=True, slots=True)
class Rhythm:
    """The operator's choice, in seconds."""

    gathering: float = 0.2
    """After the first change of a burst, in which the others come."""
    least: float = 1.0
    """Between two writes."""
    heartbeat: float = 300.0
    """Between two writes when nothing changes."""
    waking: float | None = None
    """Least between two times at which waiting pods are tried again; None for never (see ``waking.py``)."""


@dataclass(frozen=True, slots=True)
class Pace:
    """What was written when, on a clock that only goes forward.

    >>> pace = Pace(Rhythm()).changed(100.0)
    >>> pace.due, pace.changed(100.1).due, pace.written(100.2).changed(100.3).due
    (100.2, 100.2, 101.2)
    """

    rhythm: Rhythm
    first: float | None = None
    """When the oldest change came that is not written."""
    last: float | None = None
    """When the last write succeeded."""
    failures: int = 0
    barred: float = 0.0
    """Before that nobody is asked again."""

    @property
    def due(self) -> float | None:
        """When the next write is due; None when there is nothing to write."""
        if self.first is not None:
            wanted = self.first + self.rhythm.gathering
            if self.last is not None:
                wanted = max(wanted, self.last + self.rhythm.least)
        elif self.last is not None:
            wanted = self.last + self.rhythm.heartbeat
        else:
            return None
        return max(wanted, self.barred)

    def changed(self, now: float) -> Pace:
        """Return the pace after a change."""
        return self if self.first is not None else replace(self, first=now)

    def written(self, now: float) -> Pace:
        """Return the pace after a write of everything."""
        return Pace(self.rhythm, last=now)

    def failed(self, now: float, node: str, pause: float = 0.0) -> Pace:
        """Return the pace after a write that failed.

        Args:
            now: the time.
            node: of whom; nodes differ a little in how long they wait.
            pause: seconds that the server wants.
        """
        failures = self.failures + 1
        return replace(
            self,
            first=now if self.first is None else self.first,
            failures=failures,
            barred=now + max(pause_before(failures, node), pause),
        )
