"""What a trial came to, small enough to be sent from one process to another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mooring.core.decision import StartRefusal
from mooring.core.pod import Pod
from mooring.planner.compare.measures import Measures, digest, measure
from mooring.planner.compare.trace import Trace
from mooring.planner.compare.trial import run_trial
from mooring.planner.compare.variant import Variant


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a variant."""

    measures: Measures
    digest: str
    """Equal for variants that decide everything alike, see :func:`~mooring.planner.compare.measures.digest`."""
    admitted: frozenset[int] = frozenset()
    """Positions of the admitted pods among those of the trace."""
    refusal: StartRefusal | None = None
    """Set when the kubelet would not start, at first or again."""


def judge(trace: Trace, variant: Variant, shapes: Sequence[Pod]) -> Outcome:
    """Run a variant through the trace and measure what comes of it."""
    trial = run_trial(trace, variant)
    new = [admission for admission in trial.admissions if not admission.running]
    # Where plugins order the pods, none of them is there twice.
    places = {pod.uid: place for place, pod in enumerate(trace.pods)} if trace.waits else {}
    admitted = frozenset(places.get(one.pod.uid, place) for place, one in enumerate(new) if one.decision.admitted)
    return Outcome(measure(trace, trial, shapes), digest(trial), admitted, trial.refusal)
