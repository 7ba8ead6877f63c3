"""``mooring fleet compare -o json`` and ``mooring fleet size -o json``: several simulations as a document."""

from __future__ import annotations

from collections.abc import Sequence

from mooring.documents.cluster.fleet import FatesPart, FleetComparisonDocument, TrialPart, UsePart, WaitedPart
from mooring.fleet.records import ORDER
from mooring.fleet.trials.ranking import ranked
from mooring.fleet.trials.running import Figures
from mooring.fleet.trials.sizing import Size


def comparison_document(work: str, figures: Sequence[Figures]) -> FleetComparisonDocument:
    """Return the document of a comparison; the best variant is the first of the ranking."""
    best = ranked(figures)
    return FleetComparisonDocument(
        work=work, trials=[_trial(one) for one in figures], best=best[0].variant if best else ""
    )


def sizes_document(work: str, sizes: Sequence[Size]) -> FleetComparisonDocument:
    """Return the document of sizes: every trial, and the group that needs the fewest nodes."""
    found = [one.fewest for one in sizes if one.fewest is not None]
    best = min(found, key=lambda one: one.nodes).variant if found else ""
    return FleetComparisonDocument(work=work, trials=[_trial(one) for size in sizes for one in size.tried], best=best)


def _trial(figures: Figures) -> TrialPart:
    return TrialPart(
        figures.variant,
        figures.seed,
        figures.nodes,
        FatesPart(*(figures.fates[fate] for fate in ORDER)),
        WaitedPart(*figures.waited),
        [UsePart(one.resource, one.offered, one.mean, one.most, one.stranded) for one in figures.uses],
    )
