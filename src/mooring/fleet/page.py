"""``mooring fleet simulate -o html``: a simulated cluster as one page: figures, nodes over time, why pods were refused.

A refusal is explained once for all pods and nodes that share it. Of states that several nodes may have had a picture is
drawn once, of as many as a page can bear. What is large is compressed; the page's script decompresses pictures when
they are opened.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Final

import numpy as np
from msgspec import structs

from mooring.answers.base.answering import answered
from mooring.answers.base.picture import owners_of, plan_view
from mooring.answers.base.plan import Plan
from mooring.answers.base.pods import story_of
from mooring.engine.core.errors import clean
from mooring.engine.kubelet.admit import AdmitMode
from mooring.explanations.phrases import duration, requests_text
from mooring.fleet.charts import CPU, heat_map, rows_of, shares_of, time_chart_svg
from mooring.fleet.cluster import PodPhase, Record
from mooring.fleet.documents import FleetDocument
from mooring.fleet.nodes import NodeHistory, cause_words
from mooring.fleet.simulation import Simulation, with_pods
from mooring.fleet.states import SharedState
from mooring.fleet.text import amount_words, joined_periods, unhappy
from mooring.views.decision import decision_view
from mooring.views.html import page_text, script_text
from mooring.views.report import UNSAFE
from mooring.views.svg.decision import decision_svg
from mooring.views.svg.elements import PATTERNS, style_sheet
from mooring.views.svg.picture import svg_text
from mooring.views.view import NodeView

SCRIPTS: Final = ("theme.js", "words.js", "fleet-data.js", "fleet-nodes.js", "fleet-pods.js", "fleet-map.js")
"""The parts of the script, in their order; together they are one module."""
_PICTURE_WIDTH: Final = 1144
_MOST_LISTED: Final = 1000
"""Rows of the table of pods; the others are found by their name."""
_MOST_ROWS: Final = 20
_MOST_SERIES: Final = 7
"""Causes of refusals that have a colour of their own."""
_PERCENT: Final = 100
MOST_REFUSALS: Final = 100
"""Refusals that are explained with a picture of the decision; those of most pods."""
MOST_STATES: Final = 500
"""States that are drawn."""
MOST_RESOURCES: Final = 6
"""Resources that have a heat map."""
MOST_PODS: Final = 100_000
"""Pods that the page knows; those that were refused or wait come first."""


def fleet_page_text(answer: FleetDocument, result: Simulation, history: NodeHistory) -> str:
    """Return the page; the same simulation gives the same text.

    Args:
        answer: of the simulation, without single pods.
        result: of the simulation.
        history: of its nodes.
    """
    document, members = with_pods(answer, result), result.nodes.table.members
    moments, pods = [at for at, *_ in history.moments], _pods(result.records)
    resources = sorted((use.resource for use in answer.uses), key=lambda name: (name != CPU, name))[:MOST_RESOURCES]
    shares = {name: shares_of(result, history.moments, name) for name in resources}
    rows, states = rows_of(result, shares[CPU]), _chosen(history)
    places = {key: place for place, key in enumerate(states, 1)}
    # Two bytes for each state, low byte first: the number of its picture, 0 for one that is not drawn.
    drawn = np.array([[places.get(state.key, 0) for state in seen] for *_, seen in history.moments], np.uint16)
    pictures = _pictures(result, history, states.values())
    # The refusals that are explained: pods of one shape that nodes in one state refused
    alike: dict[tuple[bytes, bytes], list[Record]] = {}
    for record in result.records:
        state = history.refused.get(record.arrival.name)
        if record.fate is PodPhase.REFUSED and state is not None:
            alike.setdefault((state.key, record.arrival.asked.shape.key), []).append(record)
    refused = sorted(alike.values(), key=lambda records: -len(records))[:MOST_REFUSALS]
    stories = {
        PodPhase.REFUSED: {record.arrival.name: place for place, one in enumerate(refused) for record in one},
        PodPhase.WAITS: {name: place for place, one in enumerate(document.waits) for name in one.pods},
    }
    told = []
    for pod in pods:
        times = (None if at is None else round(at, 3) for at in (pod.arrival.at, pod.admitted, pod.ended))
        name, node = pod.arrival.name, -1 if pod.node is None else pod.node
        about = pod.code, requests_text(pod.arrival.asked.requests), stories.get(pod.fate, {}).get(name, -1)
        told.append([clean(name), pod.fate.value, node, pod.place, *times, *about])
    percents = {name: (np.nan_to_num(found) * 100).round().astype(np.uint8) for name, found in shares.items()}
    data = {
        "apiVersion": "mooring/v1alpha1",
        "kind": "FleetReport",
        "nodes": [clean(member.name) for member in members],
        "rows": [list(row) for row in chain.from_iterable(rows.values())],
        "moments": [round(moment, 3) for moment in moments],
        "shares": {name: _packed(found.tobytes()) for name, found in percents.items()},
        "states": _packed(drawn.T.astype("<u2").tobytes()),
        "pictures": [_picture(svg_text(one, _PICTURE_WIDTH)) for one in pictures],
        "marks": [{owner.uid: owner.mark for owner in reversed(one.owners)} for one in pictures],
        "pods": _packed(json.dumps(told, separators=(",", ":")).encode()),
        "refusals": [_refusal(one, history.refused[one[0].arrival.name], places) for one in refused],
        "waits": [[(cause_words(one), one.nodes) for one in kind.causes] for kind in document.waits],
    }
    # Pods that were refused or wait: once with all that were made in their place, and how many these are.
    together = unhappy(pods, (PodPhase.REFUSED, PodPhase.WAITS)).values()
    rows_of_pods = [(one[-1] if one[-1].fate is PodPhase.WAITS else one[0], len(one)) for one in together]
    return page_text(
        "fleet.html",
        f"\n{script_text(SCRIPTS)}",
        title=f"{document.cluster}: {document.work}",
        fleet=document,
        nodes=[member.name for member in members],
        states=(len(pictures), len({state.key for *_, seen in history.moments for state in seen})),
        known=len(pods),
        data=json.dumps(data, separators=(",", ":")).translate(UNSAFE),
        patterns=PATTERNS,
        heats=[(name, heat_map(result, rows, shares[name], moments, name, alone=False)) for name in resources],
        lines=list(_timelines(document)),
        unhappy=rows_of_pods[:_MOST_LISTED],
        unlisted=max(0, len(rows_of_pods) - _MOST_LISTED),
        created=document.pods.created,
        fates=list(structs.asdict(document.pods).items()),
        duration=duration,
        requests=requests_text,
        periods=list(joined_periods(document.periods, document.samples, _MOST_ROWS)),
        aligned=(document.aligned.get("1", 0), sum(document.aligned.values())),
    )


def _refusal(records: Sequence[Record], state: SharedState, places: Mapping[bytes, int]) -> dict[str, Any]:
    """Return why a node in a state refused these pods; the picture of the decision names the first."""
    first = records[0].arrival
    namespace, _, name = first.name.partition("/")
    pod = replace(first.asked.shape.pod, namespace=namespace, name=name, uid=first.name)
    _, answer = answered(state.kubelet, pod, AdmitMode.MANAGERS)
    nodes = sorted(node.node_id for node in state.kubelet.info.topology)
    view = decision_view(story_of(answer), nodes, state.kubelet.settings.topology, [answer.remedy])
    return {
        "code": answer.code,
        "reason": clean(answer.decision.reason),
        "message": clean(answer.decision.message),
        "why": clean(answer.why),
        "remedy": clean(answer.remedy),
        "decision": _picture(decision_svg(view)),
        "picture": places.get(state.key, 0),
        "first": clean(first.name),
        "count": len(records),
    }


def _chosen(history: NodeHistory) -> dict[bytes, SharedState]:
    """Return the states to draw: those that refused pods, then those of the end, then those that lasted longest."""
    refusing = Counter(state.key for state in history.refused.values())
    last = Counter(state.key for state in history.moments[-1][-1]) if history.moments else Counter[bytes]()
    long = Counter(state.key for *_, seen in history.moments for state in seen)
    known = {state.key: state for state in history.refused.values()}
    known.update((state.key, state) for *_, seen in history.moments for state in seen)
    order = [key for ranked in (refusing, last, long) for key, _ in ranked.most_common()]
    return {key: known[key] for key in list(dict.fromkeys(order))[:MOST_STATES]}


def _pictures(result: Simulation, history: NodeHistory, states: Iterable[SharedState]) -> list[NodeView]:
    """Return the pictures of states, in their order; pods are called by what they request, and numbered."""
    names: dict[str, str] = {}
    for arrival in result.work.arrivals:
        names.setdefault(arrival.asked.shape.key.hex(), requests_text(arrival.asked.requests))
    members = result.nodes.table.members
    groups = {state.key: members[place].group for *_, seen in history.moments for place, state in enumerate(seen)}
    for record in result.records:
        refusing = history.refused.get(record.arrival.name)
        if refusing is not None and record.node is not None:
            groups[refusing.key] = members[record.node].group
    found = []
    for state in states:
        group = groups[state.key]
        plan = Plan(group.machine, (), state.kubelet, state.kubelet, ())
        owners = []
        for owner in owners_of({}, state.kubelet):
            kind, _, count = owner.uid.partition(".")
            _, slash, container = owner.label.partition("/")
            label = f"{names.get(kind, 'pod')} #{int(count or 0) + 1}"
            owners.append(replace(owner, label=f"{label}{slash}{container}"))
        found.append(replace(plan_view(plan, owners), name=group.name))
    return found


def _pods(records: Sequence[Record]) -> Sequence[Record]:
    """Return the pods of the page, in the order of creation."""
    if len(records) <= MOST_PODS:
        return records
    calm = (PodPhase.RAN, PodPhase.RUNS, PodPhase.LEFT, PodPhase.EVICTED)
    kept = sorted(range(len(records)), key=lambda place: (records[place].fate in calm, place))[:MOST_PODS]
    return [records[place] for place in sorted(kept)]


def _picture(svg: str) -> str:
    # The styles of the page have the rules of the pictures, and the policy allows no other style element.
    return _packed(svg.replace(style_sheet(), "").replace(PATTERNS, "").encode())


def _packed(data: bytes) -> str:
    return b64encode(zlib.compress(data, 9)).decode()


def _timelines(document: FleetDocument) -> Iterator[str]:
    """Yield the pictures of what the page shows over time."""
    samples, periods = document.samples, document.periods
    moments = [sample.at for sample in samples]
    running = "on nodes", "exclusive-0", [float(one.running) for one in samples]
    waiting = "waiting for a node", "exclusive-1", [float(one.waiting) for one in samples]
    yield time_chart_svg("Pods", moments, (running, waiting))
    # A period belongs to the sample at its end; steps are drawn from their beginning.
    starts = [one.begins for one in periods[1:]]
    if starts:
        if any(one.refused for one in periods):
            yield _refusals_svg(document, starts)
        median = [one.waited.median for one in periods[1:]]
        rest = [one.waited.percentile99 - one.waited.median for one in periods[1:]]
        series = ("median", "exclusive-2", median), ("up to 99 %", "exclusive-9", rest)
        yield time_chart_svg("Time from creation to admission", starts, series, duration)
    for use in document.uses:
        used, lost = (
            [amounts[use.resource] / use.offered * _PERCENT for amounts in found]
            for found in ([one.used for one in samples], [one.stranded for one in samples])
        )
        amount = amount_words(use.resource, use.offered) + (" CPUs" if use.resource == CPU else "")
        series = ("requested", "exclusive-0", used), ("stranded", "exclusive-5", lost)
        yield time_chart_svg(
            f"{clean(use.resource)} of {amount}", moments, series, lambda value: f"{value:.0f} %", _PERCENT
        )


def _refusals_svg(document: FleetDocument, starts: Sequence[float]) -> str:
    """Return the refusals of each period by group and code; rare ones are one series."""
    total: Counter[tuple[str, str]] = Counter()
    for period in document.periods:
        for one in period.refused:
            total[one.group, one.code] += one.pods
    ranked = [key for key, _ in total.most_common()]
    known = ranked if len(ranked) <= _MOST_SERIES else ranked[: _MOST_SERIES - 1]

    def counts(keys: Sequence[tuple[str, str]]) -> list[float]:
        return [
            float(sum(one.pods for one in period.refused if (one.group, one.code) in keys))
            for period in document.periods[1:]
        ]

    found = [(f"{clean(key[0])} {key[1]}", f"exclusive-{place}", counts([key])) for place, key in enumerate(known)]
    if rare := ranked[len(known) :]:
        found.append(("other causes", "exclusive-6", counts(rare)))
    return time_chart_svg("Refused by kubelets, by group and cause", starts, found)
