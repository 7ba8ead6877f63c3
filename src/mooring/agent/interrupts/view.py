"""What the agent shows of interrupts: one value for status and metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mooring.core.cpuset import CPUSet
from mooring.core.machine import Finding
from mooring.extensions.interrupts import Why
from mooring.extensions.steering import NEW, Step


@dataclass(frozen=True, slots=True)
class InterruptView:
    """Interrupts at the newest look."""

    mode: str
    """``dry-run`` or ``on``."""
    steps: tuple[Step, ...] = ()
    """As they were after the look, the last of its writes included."""
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
        """Those that somebody else has moved."""
        return tuple(one for one in self.steps if one.place is None)

    def count(self, why: Why) -> int:
        """Return how many interrupts stand where they stand for this reason."""
        return sum(one.place is not None and one.place.why is why for one in self.steps)


def interrupt_fields(sight: InterruptView | None) -> dict[str, Any]:
    """Return the member ``interrupts`` of the status document; nothing while the agent does not look at them."""
    if sight is None:
        return {}
    return {
        "interrupts": {
            "mode": sight.mode,
            "total": sight.total,
            "managed": sight.count(Why.MANAGED),
            "noRoom": sight.count(Why.NO_ROOM),
            "moved": [_row(one, "original", one.original) for one in sight.moved],
            "pending": [_row(one, "wanted", one.write) for one in sight.pending],
            "leftAlone": [_row(one) for one in sight.alone],
            "findings": [finding.fields() for finding in sight.findings],
        }
    }


def _row(step: Step, other: str = "", cpus: CPUSet | None = None) -> dict[str, Any]:
    one = step.interrupt
    fields: dict[str, Any] = {"number": one.number, "name": one.name, "cpus": str(one.allowed)}
    if other:
        fields[other] = str(cpus)
    if step.place is not None:
        fields["why"] = step.place.why.value
    return fields
