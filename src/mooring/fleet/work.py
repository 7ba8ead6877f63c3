"""The work of a cluster: pods with the time at which each comes, how long it runs, and what makes it anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mooring.core.errors import InputError
from mooring.fleet.scheduler.asked import PodDemand


@dataclass(frozen=True, slots=True)
class PodArrival:
    """A pod that is created."""

    name: str
    """``namespace/name``; unique in its work."""
    asked: PodDemand
    at: float
    """Seconds since the beginning."""
    runs: float | None = None
    """Seconds from its admission to its end; None for a pod that does not end by itself."""
    leaves: float | None = None
    """When it is deleted wherever it is; None for never."""
    owner: str = ""
    """Controller that makes a new pod when this one fails; empty for a pod of its own."""


@dataclass(frozen=True, slots=True)
class Work:
    """Pods in the order in which they come."""

    name: str
    arrivals: tuple[PodArrival, ...]
    findings: tuple[str, ...] = field(default=(), compare=False)
    """What was assumed or left out while it was read."""

    @property
    def ends(self) -> float:
        """The last time that it names."""
        return max((max(one.at, one.leaves or 0.0) for one in self.arrivals), default=0.0)


def work_of(name: str, arrivals: Sequence[PodArrival], findings: Sequence[str] = ()) -> Work:
    """Return arrivals as work, in the order of their times.

    Raises:
        InputError: two pods have one name, or one ends before it begins.
    """
    seen: set[str] = set()
    for one in arrivals:
        if one.name in seen:
            raise InputError("is there twice", source=name, field=one.name, remedy="give each pod its own name")
        if one.leaves is not None and one.leaves < one.at:
            raise InputError(
                f"ends at {one.leaves:g} s, before it begins at {one.at:g} s",
                source=name,
                field=one.name,
                remedy="correct its times",
            )
        seen.add(one.name)
    return Work(name, tuple(sorted(arrivals, key=lambda one: one.at)), tuple(findings))
