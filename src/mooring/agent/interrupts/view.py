"""What the agent shows of interrupts: one value for status and metrics."""

from __future__ import annotations

from dataclasses import dataclass

from mooring.core.machine import Finding
from mooring.extensions.interrupts import Why
from mooring.extensions.steering import NEW, Step


@dataclass(frozen=True, slots=True)
class InterruptView:
    """Interrupts at the newest check."""

    mode: str
    """``dry-run`` or ``on``."""
    steps: tuple[Step, ...] = ()
    """As they were after the check, the last of its writes included."""
    findings: tuple[Finding, ...] = ()
    """What is in the way."""

    @property
    def total(self) -> int:
        """How many interrupts there are."""
        return sum(step.interrupt.number != NEW for step in self.steps)

    @property
    def moved(self) -> tuple[Step, ...]:
        """Those that are not where they were before the agent came."""
        return tuple(one for one in self.steps if one.place is not None and one.interrupt.allowed != one.original)

    @property
    def pending(self) -> tuple[Step, ...]:
        """Those that would be written, or could not be."""
        return tuple(one for one in self.steps if one.write is not None)

    @property
    def alone(self) -> tuple[Step, ...]:
        """Those that another program has moved."""
        return tuple(one for one in self.steps if one.place is None)

    def count(self, why: Why) -> int:
        """Return how many interrupts stand where they stand for this reason."""
        return sum(one.place is not None and one.place.why is why for one in self.steps)
