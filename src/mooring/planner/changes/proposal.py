"""What the search for the nearest change finds."""

from __future__ import annotations

from dataclasses import dataclass

from mooring.node import Decision
from mooring.planner.changes.change import Change
from mooring.planner.changes.cost import Cost
from mooring.planner.changes.writing import written


@dataclass(frozen=True, slots=True)
class Proposal:
    """Changes that together admit a pod and leave everybody else admitted, as running the engine showed."""

    changes: tuple[Change, ...]
    """To be made together, on the question that was searched."""
    cost: Cost
    text: str
    """One sentence, such as ``Let container app of default/web-0 ask for 6 CPUs instead of 8.``"""
    decision: Decision
    """The engine's answer for the pod when they are made."""

    @property
    def options(self) -> tuple[tuple[str, str], ...]:
        """The options of ``mooring whatif`` that make the changes, each with its value."""
        return tuple(written(change) for change in self.changes)
