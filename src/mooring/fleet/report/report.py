"""The report of a simulation: all that its page shows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from mooring.fleet.answer import FleetAnswer
from mooring.fleet.answer_document import fleet_document
from mooring.fleet.history import NodeHistory
from mooring.fleet.records import Fate
from mooring.fleet.report.explanations import refusals, waits
from mooring.fleet.report.heat import CPU, heat_map, rows_of, shares_of
from mooring.fleet.report.pictures import chosen, pictures, requests_text
from mooring.fleet.work import REMADE
from mooring.views.fleet import FleetPagePod, FleetView, NodesOverTime
from mooring.views.svg.heatmap import HeatMap

MOST_RESOURCES: Final = 6
"""Resources that have a heat map."""
MOST_PODS: Final = 100_000
"""Pods that the page knows; those that were refused or wait come first."""


def heat_of(answer: FleetAnswer, history: NodeHistory) -> HeatMap:
    """Return the heat map of the CPUs, for a picture of its own."""
    shares = shares_of(answer.result, history.moments, CPU)
    moments = [seen.at for seen in history.moments]
    return heat_map(answer.result, rows_of(answer.result, shares), shares, moments, CPU)


def fleet_view(answer: FleetAnswer, history: NodeHistory) -> FleetView:
    """Return the report.

    Args:
        answer: of the simulation.
        history: of its nodes.
    """
    result, moments = answer.result, [seen.at for seen in history.moments]
    resources = sorted((use.resource for use in answer.uses), key=lambda name: (name != CPU, name))[:MOST_RESOURCES]
    shares = {name: shares_of(result, history.moments, name) for name in resources}
    rows = rows_of(result, shares[CPU])
    states = chosen(history)
    places = {key: place for place, key in enumerate(states, 1)}
    drawn = np.array([[places.get(state.key, 0) for state in seen.states] for seen in history.moments], np.uint16)
    return FleetView(
        document=fleet_document(answer),
        heats=tuple(heat_map(result, rows, shares[name], moments, name) for name in resources),
        nodes=NodesOverTime(
            names=tuple(member.name for member in result.nodes.table.members),
            rows=tuple(rows.rows),
            moments=tuple(moments),
            shares={name: (np.nan_to_num(shares[name]) * 100).round().astype(np.uint8).tobytes() for name in resources},
            states=drawn.T.astype("<u2").tobytes(),
            distinct=len({state.key for seen in history.moments for state in seen.states}),
        ),
        pictures=tuple(pictures(result, history, states.values())),
        pods=tuple(_pods(answer)),
        refusals=tuple(refusals(result, history, places)),
        waits=tuple(waits(result)),
    )


def _pods(answer: FleetAnswer) -> Iterator[FleetPagePod]:
    """Yield the pods of the page, in the order of creation."""
    records = answer.result.records
    if len(records) > MOST_PODS:
        calm = (Fate.RAN, Fate.RUNS, Fate.LEFT, Fate.EVICTED)
        kept = sorted(range(len(records)), key=lambda place: (records[place].fate in calm, place))[:MOST_PODS]
        records = tuple(records[place] for place in sorted(kept))
    for record in records:
        yield FleetPagePod(
            record.arrival.name,
            record.arrival.name.partition(REMADE)[0],
            record.fate.value,
            record.node,
            record.place,
            record.arrival.at,
            record.admitted,
            record.ended,
            record.code,
            requests_text(record.arrival.asked.requests),
        )
