"""The bench: everything that is needed to run any of the trials."""

from __future__ import annotations

from dataclasses import dataclass

from mooring.core.pod import Pod
from mooring.planner.compare.outcome import Outcome, judge
from mooring.planner.compare.trace import Trace
from mooring.planner.compare.variant import Variant


@dataclass(frozen=True, slots=True)
class Bench:
    """What is compared, sent whole to every worker."""

    trace: Trace
    variants: tuple[Variant, ...]
    shapes: tuple[Pod, ...]
    """Of the pods in the trace."""

    def outcome(self, position: int) -> Outcome:
        """Run one variant through the trace."""
        return judge(self.trace, self.variants[position], self.shapes)

    @property
    def work(self) -> int:
        """Steps of all trials together."""
        return len(self.variants) * (len(self.trace.steps) + len(self.trace.active))
