"""The report of a simulation: all that its page shows.

The nodes of a simulation as the rows of a heat map: group by group, the most used ones first.

Why pods were refused, or found no node: each answer once, for all pods and nodes that share it.

Pictures of nodes in their states: one for each state that several nodes may have had, as many as a page can bear.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from mooring.answers.base.answering import answered
from mooring.answers.base.picture import owners_of, plan_view
from mooring.answers.base.plan import Plan
from mooring.answers.base.pods import story_of
from mooring.engine.core.errors import clean
from mooring.engine.kubelet.admit import AdmitMode
from mooring.explanations.phrases import requests_text
from mooring.fleet.answer import with_pods
from mooring.fleet.documents import FleetDocument
from mooring.fleet.nodes import NodeHistory, NodesSeen
from mooring.fleet.report.charts import HeatGroup, HeatMap, HeatRow, group_label, rows_for
from mooring.fleet.report.page import FleetView, NodesOverTime, RefusalStory
from mooring.fleet.simulation import Simulation
from mooring.fleet.states import SharedState
from mooring.fleet.work import PodPhase, Record
from mooring.inputs.node_groups import NodeGroup
from mooring.views.build import CPUOwner
from mooring.views.decision import decision_view
from mooring.views.view import NodeView

Shares = npt.NDArray[np.float64]
CPU: Final = "cpu"


NodeRows = dict[str, list[tuple[int, ...]]]
"""Group -> the places of the nodes of each of its rows in the heat maps."""


def shares_of(result: Simulation, moments: Sequence[NodesSeen], resource: str) -> Shares:
    """Return the requested share of a resource, nodes over moments; nothing where a node offers none."""
    table = result.nodes.table
    offered = table.row(table.offered, resource)
    used = np.stack([seen.used[table.resources[resource]] for seen in moments], axis=1)
    return np.where(offered[:, None] > 0, used / np.maximum(offered, 1)[:, None], np.nan)


def rows_of(result: Simulation, shares: Shares) -> NodeRows:
    """Return the rows; nodes of a group are ordered by what is requested of their CPUs over time."""
    mean = np.nan_to_num(shares).mean(axis=1)
    groups: dict[str, list[int]] = {}
    for place, member in enumerate(result.nodes.table.members):
        groups.setdefault(member.group.name, []).append(place)
    counts = rows_for([len(places) for places in groups.values()])
    found: NodeRows = {}
    for (name, places), count in zip(groups.items(), counts, strict=True):
        ordered = sorted(places, key=lambda place: (-mean[place], place))
        edges = [len(ordered) * row // count for row in range(count + 1)]
        found[name] = [tuple(ordered[first:end]) for first, end in pairwise(edges)]
    return found


def heat_map(result: Simulation, rows: NodeRows, shares: Shares, moments: Sequence[float], resource: str) -> HeatMap:
    """Return the heat map of a resource; a row of several nodes shows their mean."""
    members = result.nodes.table.members
    groups = []
    for name, places in rows.items():
        found = []
        for row in places:
            known = shares[list(row)]
            known = known[~np.isnan(known[:, 0])]
            values = tuple(float(share) for share in known.mean(axis=0)) if len(known) else (None,) * len(moments)
            first = members[row[0]].name
            found.append(HeatRow(clean(first if len(row) == 1 else f"{first} and {len(row) - 1} more"), values))
        groups.append(HeatGroup(group_label(clean(name), sum(map(len, places)), len(places)), tuple(found)))
    title = f"{clean(result.cluster.name)}: {resource} of the nodes over time"
    line = f"{clean(result.work.name)}, {result.strategy.name}; rows are nodes, the most used ones of a group first"
    return HeatMap(title, line, tuple(moments), tuple(groups))


MOST_REFUSALS: Final = 100
"""Refusals that are explained with a picture of the decision; those of most pods."""


def refusals(result: Simulation, history: NodeHistory, pictures: Mapping[bytes, int]) -> list[RefusalStory]:
    """Return the refusals that are explained.

    Args:
        result: of the simulation.
        history: of its nodes.
        pictures: numbers of the states that are drawn.
    """
    found: dict[tuple[bytes, bytes], list[Record]] = {}
    for record in result.records:
        state = history.refused.get(record.arrival.name)
        if record.fate is PodPhase.REFUSED and state is not None:
            found.setdefault((state.key, record.arrival.asked.shape.key), []).append(record)
    most = sorted(found.values(), key=lambda records: -len(records))[:MOST_REFUSALS]
    found_states = [history.refused[records[0].arrival.name] for records in most]
    return [
        _refusal(records, state, pictures.get(state.key, 0)) for records, state in zip(most, found_states, strict=True)
    ]


def _refusal(records: list[Record], state: SharedState, picture: int) -> RefusalStory:
    namespace, _, name = records[0].arrival.name.partition("/")
    pod = replace(records[0].arrival.asked.shape.pod, namespace=namespace, name=name, uid=records[0].arrival.name)
    _, answer = answered(state.kubelet, pod, AdmitMode.MANAGERS)
    nodes = sorted(node.node_id for node in state.kubelet.info.topology)
    view = decision_view(story_of(answer), nodes, state.kubelet.settings.topology, [answer.remedy])
    return RefusalStory(answer, view, picture, tuple(record.arrival.name for record in records))


MOST_STATES: Final = 500
"""States that are drawn."""


def chosen(history: NodeHistory) -> dict[bytes, SharedState]:
    """Return the states to draw: those that refused pods, then those of the end, then those that lasted longest."""
    refusing = Counter(state.key for state in history.refused.values())
    last = Counter(state.key for state in history.moments[-1].states) if history.moments else Counter[bytes]()
    long = Counter(state.key for seen in history.moments for state in seen.states)
    known = {state.key: state for state in history.refused.values()}
    known.update((state.key, state) for seen in history.moments for state in seen.states)
    order = [key for ranked in (refusing, last, long) for key, _ in ranked.most_common()]
    return {key: known[key] for key in list(dict.fromkeys(order))[:MOST_STATES]}


def kind_names(result: Simulation) -> dict[str, str]:
    """Return what pods of each shape are called in pictures, by the shape's name in states."""
    names: dict[str, str] = {}
    for arrival in result.work.arrivals:
        names.setdefault(arrival.asked.shape.key.hex(), requests_text(arrival.asked.requests))
    return names


def groups_of(result: Simulation, history: NodeHistory) -> dict[bytes, NodeGroup]:
    """Return the group of the nodes that had each state."""
    members = result.nodes.table.members
    found = {state.key: members[place].group for seen in history.moments for place, state in enumerate(seen.states)}
    for record in result.records:
        state = history.refused.get(record.arrival.name)
        if state is not None and record.node is not None:
            found[state.key] = members[record.node].group
    return found


def pictures(result: Simulation, history: NodeHistory, states: Iterable[SharedState]) -> list[NodeView]:
    """Return the pictures of states, in their order; pods are called by what they request, and numbered."""
    names, groups = kind_names(result), groups_of(result, history)
    found = []
    for state in states:
        group = groups[state.key]
        plan = Plan(group.machine, (), state.kubelet, state.kubelet, ())
        owners = [_named(owner, names) for owner in owners_of(plan, state.kubelet)]
        found.append(replace(plan_view(plan, owners), name=group.name))
    return found


def _named(owner: CPUOwner, names: Mapping[str, str]) -> CPUOwner:
    kind, _, count = owner.uid.partition(".")
    container = owner.label.partition("/")[2]
    label = f"{names.get(kind, 'pod')} #{int(count or 0) + 1}"
    return replace(owner, label=f"{label}/{container}" if container else label)


MOST_RESOURCES: Final = 6
"""Resources that have a heat map."""
MOST_PODS: Final = 100_000
"""Pods that the page knows; those that were refused or wait come first."""


def heat_of(result: Simulation, history: NodeHistory) -> HeatMap:
    """Return the heat map of the CPUs, for a picture of its own."""
    shares = shares_of(result, history.moments, CPU)
    moments = [seen.at for seen in history.moments]
    return heat_map(result, rows_of(result, shares), shares, moments, CPU)


def fleet_view(answer: FleetDocument, result: Simulation, history: NodeHistory) -> FleetView:
    """Return the report.

    Args:
        answer: of the simulation, without single pods.
        result: of the simulation.
        history: of its nodes.
    """
    moments = [seen.at for seen in history.moments]
    resources = sorted((use.resource for use in answer.uses), key=lambda name: (name != CPU, name))[:MOST_RESOURCES]
    shares = {name: shares_of(result, history.moments, name) for name in resources}
    rows = rows_of(result, shares[CPU])
    states = chosen(history)
    places = {key: place for place, key in enumerate(states, 1)}
    drawn = np.array([[places.get(state.key, 0) for state in seen.states] for seen in history.moments], np.uint16)
    return FleetView(
        document=with_pods(answer, result),
        heats=tuple(heat_map(result, rows, shares[name], moments, name) for name in resources),
        nodes=NodesOverTime(
            names=tuple(member.name for member in result.nodes.table.members),
            rows=tuple(chain.from_iterable(rows.values())),
            moments=tuple(moments),
            shares={name: (np.nan_to_num(shares[name]) * 100).round().astype(np.uint8).tobytes() for name in resources},
            states=drawn.T.astype("<u2").tobytes(),
            distinct=len({state.key for seen in history.moments for state in seen.states}),
        ),
        pictures=tuple(pictures(result, history, states.values())),
        pods=tuple(_pods(result.records)),
        refusals=tuple(refusals(result, history, places)),
    )


def _pods(records: Sequence[Record]) -> Sequence[Record]:
    """Return the pods of the page, in the order of creation."""
    if len(records) <= MOST_PODS:
        return records
    calm = (PodPhase.RAN, PodPhase.RUNS, PodPhase.LEFT, PodPhase.EVICTED)
    kept = sorted(range(len(records)), key=lambda place: (records[place].fate in calm, place))[:MOST_PODS]
    return [records[place] for place in sorted(kept)]
