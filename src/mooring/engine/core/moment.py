"""The time, as the engine knows it: handed in from outside, never read.

Only time since boot counts, so that steps of the wall clock change nothing (KEP-6122).
"""

from __future__ import annotations

from mooring.lazy import dataclass

SECOND = 1_000_000_000
"""Nanoseconds."""


@dataclass(frozen=True, slots=True, order=True)
class Moment:
    """A point in time on one boot of a machine."""

    since_boot: int = 0
    """Nanoseconds since boot, without time spent in suspend."""
    boot: str = ""
    """Which boot; moments of different boots cannot be compared. Empty where unknown."""

    def plus(self, nanoseconds: int) -> Moment:
        """Return a later moment of the same boot.

        >>> Moment(5, "a").plus(7)
        Moment(since_boot=12, boot='a')
        """
        return Moment(self.since_boot + nanoseconds, self.boot)

    def has_come(self, now: Moment) -> bool:
        """Tell whether the moment is reached; one of another boot never is.

        >>> Moment(5, "a").has_come(Moment(5, "a")), Moment(5, "a").has_come(Moment(9, "b"))
        (True, False)
        """
        return self.boot == now.boot and now.since_boot >= self.since_boot
