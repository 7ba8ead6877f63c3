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

from mooring.engine.core.errors import clean
from mooring.explanations.phrases import duration, size
from mooring.fleet.documents import FleetDocument
from mooring.fleet.report.charts import HeatMap, TimeChart, TimeSeries, heatmap_svg, time_chart_svg
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
class StatePicture:
    """The picture of a state that several nodes may have had."""

    view: NodeView
    marks: Mapping[str, str]
    """Name of a pod in the state -> its letters in the picture."""


@dataclass(frozen=True, slots=True)
class FleetPagePod:
    """One pod."""

    name: str
    first: str
    """Name of the pod for which it was made anew, or its own."""
    fate: str
    node: int | None
    """Place of its node, also of the one that refused it."""
    state_name: str
    """Its name in the state of its node."""
    created: float
    admitted: float | None
    ended: float | None
    code: str
    requests: str


@dataclass(frozen=True, slots=True)
class RefusalStory:
    """Why a node in some state refused pods of some shape."""

    code: str
    reason: str
    """The kubelet's reason."""
    message: str
    """The kubelet's message."""
    why: str
    remedy: str
    decision: DecisionView
    picture: int
    """Number of the picture of the node before; 0 for none."""
    pods: tuple[str, ...]
    """Names of the pods that were refused so; the picture of the decision names the first."""


@dataclass(frozen=True, slots=True)
class WaitStory:
    """Why pods of one kind found no node."""

    causes: tuple[tuple[str, int], ...]
    """Cause, and number of nodes."""
    pods: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FleetView:
    """The whole report."""

    document: FleetDocument
    heats: tuple[HeatMap, ...]
    """One for each resource of :attr:`NodesOverTime.shares`, in that order."""
    nodes: NodesOverTime
    pictures: tuple[StatePicture, ...]
    pods: tuple[FleetPagePod, ...]
    refusals: tuple[RefusalStory, ...]
    waits: tuple[WaitStory, ...]


SCRIPTS: Final = ("theme.js", "words.js", "fleet-data.js", "fleet-nodes.js", "fleet-pods.js", "fleet-map.js")
"""The parts of the script, in their order; together they are one module."""
_PICTURE_WIDTH: Final = 1144
_MOST_LISTED: Final = 1000
"""Rows of the table of pods; the others are found by their name."""
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
        created=sum(getattr(document.pods, name) for name in document.pods.__struct_fields__),
        fates=[(name, getattr(document.pods, name)) for name in document.pods.__struct_fields__],
        amount=_amount,
        duration=duration,
        periods=list(_table(document)),
        aligned=(document.aligned.get("1", 0), sum(document.aligned.values())),
    )


def _unhappy(pods: Iterable[FleetPagePod]) -> Iterator[tuple[FleetPagePod, int]]:
    """Yield the pods that were refused or wait, with how often; those that were made anew for one are not listed."""
    found: dict[str, list[FleetPagePod]] = {}
    for pod in pods:
        if pod.fate in ("refused", "waits"):
            found.setdefault(pod.first, []).append(pod)
    for same in found.values():
        yield same[-1] if same[-1].fate == "waits" else same[0], len(same)


def _amount(resource: str, amount: float) -> str:
    if resource == "cpu":
        return f"{amount / 1000:g} CPUs"
    return size(round(amount)) if resource == "memory" or resource.startswith("hugepages-") else f"{amount:g}"


def _data(view: FleetView) -> dict[str, Any]:
    nodes = view.nodes
    refused = {name: place for place, one in enumerate(view.refusals) for name in one.pods}
    waiting = {name: place for place, one in enumerate(view.waits) for name in one.pods}
    stories = {"refused": refused, "waits": waiting}
    pods = [[*_pod(pod), stories.get(pod.fate, {}).get(pod.name, -1)] for pod in view.pods]
    return {
        "apiVersion": "mooring/v1alpha1",
        "kind": "FleetReport",
        "nodes": [clean(name) for name in nodes.names],
        "rows": [list(row) for row in nodes.rows],
        "moments": [round(moment, 3) for moment in nodes.moments],
        "shares": {name: _packed(shares) for name, shares in nodes.shares.items()},
        "states": _packed(nodes.states),
        "pictures": [_picture(svg_text(one.view, _PICTURE_WIDTH)) for one in view.pictures],
        "marks": [dict(one.marks) for one in view.pictures],
        "pods": _packed(json.dumps(pods, separators=(",", ":")).encode()),
        "refusals": [
            {
                "code": one.code,
                "reason": clean(one.reason),
                "message": clean(one.message),
                "why": clean(one.why),
                "remedy": clean(one.remedy),
                "decision": _picture(decision_svg(one.decision)),
                "picture": one.picture,
                "first": clean(one.pods[0]),
                "count": len(one.pods),
            }
            for one in view.refusals
        ],
        "waits": [list(one.causes) for one in view.waits],
    }


def _pod(pod: FleetPagePod) -> list[object]:
    return [
        clean(pod.name),
        pod.fate,
        -1 if pod.node is None else pod.node,
        pod.state_name,
        round(pod.created, 3),
        None if pod.admitted is None else round(pod.admitted, 3),
        None if pod.ended is None else round(pod.ended, 3),
        pod.code,
        pod.requests,
    ]


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


@dataclass(frozen=True, slots=True)
class PeriodRow:
    """Several periods as a row of the table."""

    until: str
    running: int
    waiting: int
    admitted: int
    refused: Mapping[str, int]
    waited: str


_MOST_ROWS: Final = 20


def _table(document: FleetDocument) -> Iterator[PeriodRow]:
    """Yield what the lines show, as rows to be read."""
    together = -(-len(document.periods) // _MOST_ROWS) or 1
    for first in range(0, len(document.periods), together):
        periods = document.periods[first : first + together]
        last = document.samples[first + len(periods) - 1]
        refused: dict[str, int] = {}
        for one in (one for period in periods for one in period.refused):
            key = f"{one.group} {one.code}"
            refused[key] = refused.get(key, 0) + one.pods
        waited = max(period.waited.percentile99 for period in periods)
        admitted = sum(period.admitted for period in periods)
        yield PeriodRow(
            duration(periods[-1].ends),
            last.running,
            last.waiting,
            admitted,
            refused,
            duration(waited) if admitted else "–",
        )
