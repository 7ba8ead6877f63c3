"""What the report of a simulated cluster shows: figures, nodes over time, pictures of their states, pods.

``mooring fleet simulate -o html``: the report of a simulated cluster as one page.

What is large is compressed; the page's script decompresses pictures when they are opened.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from msgspec import structs

from mooring.answers.base.answering import Answer
from mooring.engine.core.errors import clean
from mooring.explanations.phrases import duration, requests_text, size
from mooring.fleet.answer import created, joined_periods
from mooring.fleet.documents import FleetDocument
from mooring.fleet.relocation.moves import cause_words
from mooring.fleet.report.charts import HeatMap, TimeChart, TimeSeries, heatmap_svg, time_chart_svg
from mooring.fleet.work import REMADE, PodPhase, Record
from mooring.views.decision import DecisionView
from mooring.views.html.document import page_text, script_text
from mooring.views.report import UNSAFE
from mooring.views.svg.decision import decision_svg
from mooring.views.svg.elements import PATTERNS, style_sheet
from mooring.views.svg.picture import svg_text
from mooring.views.view import NodeView


@dataclass(frozen=True, slots=True)
class NodesOverTime:
    """Every node at every moment."""

    names: tuple[str, ...]
    rows: tuple[tuple[int, ...], ...]
    """Places of the nodes of each row of the heat maps."""
    moments: tuple[float, ...]
    """Seconds since the beginning."""
    shares: Mapping[str, bytes]
    """Resource -> requested percent, a byte each, the moments of a node together."""
    states: bytes
    """Number of the picture, from 1; 0 for a state that is not drawn. Two bytes each, low byte first."""
    distinct: int
    """States that the nodes had."""


@dataclass(frozen=True, slots=True)
class RefusalStory:
    """Why a node in some state refused pods of some shape."""

    answer: Answer
    decision: DecisionView
    picture: int
    """Number of the picture of the node before; 0 for none."""
    pods: tuple[str, ...]
    """Names of the pods that were refused so; the picture of the decision names the first."""


@dataclass(frozen=True, slots=True)
class FleetView:
    """The whole report."""

    document: FleetDocument
    heats: tuple[HeatMap, ...]
    """One for each resource of :attr:`NodesOverTime.shares`, in that order."""
    nodes: NodesOverTime
    pictures: tuple[NodeView, ...]
    """Of states that several nodes may have had."""
    pods: tuple[Record, ...]
    refusals: tuple[RefusalStory, ...]


SCRIPTS: Final = ("theme.js", "words.js", "fleet-data.js", "fleet-nodes.js", "fleet-pods.js", "fleet-map.js")
"""The parts of the script, in their order; together they are one module."""
_PICTURE_WIDTH: Final = 1144
_MOST_LISTED: Final = 1000
"""Rows of the table of pods; the others are found by their name."""
_MOST_ROWS: Final = 20
_MOST_SERIES: Final = 7
"""Causes of refusals that have a colour of their own."""
_PERCENT: Final = 100


def fleet_page_text(view: FleetView) -> str:
    """Return the page; the same view gives the same text."""
    document = view.document
    unhappy = list(_unhappy(view.pods))
    return page_text(
        "fleet.html",
        f"\n{script_text(SCRIPTS)}",
        title=f"{document.cluster}: {document.work}",
        fleet=document,
        view=view,
        data=json.dumps(_data(view), separators=(",", ":")).translate(UNSAFE),
        patterns=PATTERNS,
        heats=[
            (name, heatmap_svg(heat, alone=False)) for name, heat in zip(view.nodes.shares, view.heats, strict=True)
        ],
        lines=[time_chart_svg(line) for line in timelines(document)],
        unhappy=unhappy[:_MOST_LISTED],
        unlisted=max(0, len(unhappy) - _MOST_LISTED),
        created=created(document.pods),
        fates=list(structs.asdict(document.pods).items()),
        duration=duration,
        requests=requests_text,
        periods=list(joined_periods(document.periods, document.samples, _MOST_ROWS)),
        aligned=(document.aligned.get("1", 0), sum(document.aligned.values())),
    )


def _unhappy(pods: Iterable[Record]) -> Iterator[tuple[Record, int]]:
    """Yield pods that were refused or wait: once with all that were made in their place, and how many these are."""
    found: dict[str, list[Record]] = {}
    for pod in pods:
        if pod.fate in (PodPhase.REFUSED, PodPhase.WAITS):
            found.setdefault(pod.arrival.name.partition(REMADE)[0], []).append(pod)
    for same in found.values():
        yield same[-1] if same[-1].fate is PodPhase.WAITS else same[0], len(same)


def _amount(resource: str, amount: float) -> str:
    if resource == "cpu":
        return f"{amount / 1000:g} CPUs"
    return size(round(amount)) if resource == "memory" or resource.startswith("hugepages-") else f"{amount:g}"


def _data(view: FleetView) -> dict[str, Any]:
    nodes = view.nodes
    refused = {name: place for place, one in enumerate(view.refusals) for name in one.pods}
    waiting = {name: place for place, one in enumerate(view.document.waits) for name in one.pods}
    stories = {PodPhase.REFUSED: refused, PodPhase.WAITS: waiting}
    pods = [[*_pod(pod), stories.get(pod.fate, {}).get(pod.arrival.name, -1)] for pod in view.pods]
    return {
        "apiVersion": "mooring/v1alpha1",
        "kind": "FleetReport",
        "nodes": [clean(name) for name in nodes.names],
        "rows": [list(row) for row in nodes.rows],
        "moments": [round(moment, 3) for moment in nodes.moments],
        "shares": {name: _packed(shares) for name, shares in nodes.shares.items()},
        "states": _packed(nodes.states),
        "pictures": [_picture(svg_text(one, _PICTURE_WIDTH)) for one in view.pictures],
        "marks": [{owner.uid: owner.mark for owner in reversed(one.owners)} for one in view.pictures],
        "pods": _packed(json.dumps(pods, separators=(",", ":")).encode()),
        "refusals": [
            {
                "code": one.answer.code,
                "reason": clean(one.answer.decision.reason),
                "message": clean(one.answer.decision.message),
                "why": clean(one.answer.why),
                "remedy": clean(one.answer.remedy),
                "decision": _picture(decision_svg(one.decision)),
                "picture": one.picture,
                "first": clean(one.pods[0]),
                "count": len(one.pods),
            }
            for one in view.refusals
        ],
        "waits": [[(cause_words(one), one.nodes) for one in kind.causes] for kind in view.document.waits],
    }


def _pod(pod: Record) -> list[object]:
    created, admitted, ended = (
        None if at is None else round(at, 3) for at in (pod.arrival.at, pod.admitted, pod.ended)
    )
    place, requests = -1 if pod.node is None else pod.node, requests_text(pod.arrival.asked.requests)
    return [clean(pod.arrival.name), pod.fate.value, place, pod.place, created, admitted, ended, pod.code, requests]


def _picture(svg: str) -> str:
    # The styles of the page have the rules of the pictures, and the policy allows no other style element.
    return _packed(svg.replace(style_sheet(), "").replace(PATTERNS, "").encode())


def _packed(data: bytes) -> str:
    return b64encode(zlib.compress(data, 9)).decode()


def timelines(document: FleetDocument) -> Iterator[TimeChart]:
    """Yield what the page shows over time."""
    samples, periods = document.samples, document.periods
    moments = tuple(sample.at for sample in samples)
    yield TimeChart(
        "Pods",
        moments,
        (
            TimeSeries("on nodes", "exclusive-0", tuple(float(one.running) for one in samples)),
            TimeSeries("waiting for a node", "exclusive-1", tuple(float(one.waiting) for one in samples)),
        ),
    )
    # A period belongs to the sample at its end; steps are drawn from their beginning.
    starts = tuple(one.begins for one in periods[1:])
    if starts:
        if any(one.refused for one in periods):
            yield _refusals(document, starts)
        late = tuple(one.waited.percentile99 for one in periods[1:])
        median = tuple(one.waited.median for one in periods[1:])
        rest = tuple(high - low for high, low in zip(late, median, strict=True))
        series = (TimeSeries("median", "exclusive-2", median), TimeSeries("up to 99 %", "exclusive-9", rest))
        yield TimeChart("Time from creation to admission", starts, series, duration)
    for use in document.uses:
        used = tuple(sample.used[use.resource] / use.offered * _PERCENT for sample in samples)
        lost = tuple(sample.stranded[use.resource] / use.offered * _PERCENT for sample in samples)
        yield TimeChart(
            f"{clean(use.resource)} of {_amount(use.resource, use.offered)}",
            moments,
            (TimeSeries("requested", "exclusive-0", used), TimeSeries("stranded", "exclusive-5", lost)),
            lambda value: f"{value:.0f} %",
            _PERCENT,
        )


def _refusals(document: FleetDocument, starts: tuple[float, ...]) -> TimeChart:
    """Return the refusals of each period by group and code; rare ones are one series."""
    total: dict[tuple[str, str], int] = {}
    for period in document.periods:
        for one in period.refused:
            total[one.group, one.code] = total.get((one.group, one.code), 0) + one.pods
    ranked = sorted(total, key=lambda key: -total[key])
    known = ranked if len(ranked) <= _MOST_SERIES else ranked[: _MOST_SERIES - 1]
    found = []
    for place, key in enumerate(known):
        values = tuple(
            float(sum(one.pods for one in period.refused if (one.group, one.code) == key))
            for period in document.periods[1:]
        )
        found.append(TimeSeries(f"{clean(key[0])} {key[1]}", f"exclusive-{place}", values))
    if len(known) < len(ranked):
        rest = tuple(
            float(sum(one.pods for one in period.refused if (one.group, one.code) not in known))
            for period in document.periods[1:]
        )
        found.append(TimeSeries("other causes", "exclusive-6", rest))
    return TimeChart("Refused by kubelets, by group and cause", starts, tuple(found))
