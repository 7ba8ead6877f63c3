"""Pictures of nodes in their states: one for each state that several nodes may have had, as many as a page can bear."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from mooring.answers.base.plan import Plan
from mooring.answers.base.views.picture import owners_of, plan_view
from mooring.explain.phrases import size
from mooring.fleet.cluster import NodeGroup
from mooring.fleet.history import NodeHistory
from mooring.fleet.simulation import SimulationResult
from mooring.fleet.states import SharedState
from mooring.views.build import CPUOwner
from mooring.views.fleet import StatePicture

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


def kind_names(result: SimulationResult) -> dict[str, str]:
    """Return what pods of each shape are called in pictures, by the shape's name in states."""
    names: dict[str, str] = {}
    for arrival in result.work.arrivals:
        names.setdefault(arrival.asked.shape.key.hex(), requests_text(arrival.asked.requests))
    return names


def requests_text(requests: Mapping[str, int]) -> str:
    """Return requests in a few words.

    >>> requests_text({"cpu": 4000, "memory": 2**30, "example.com/gpu": 1})
    '4 CPU 1 GiB 1 gpu'
    """
    words = [f"{requests['cpu'] / 1000:g} CPU"] if requests.get("cpu") else []
    words += [size(requests["memory"])] if requests.get("memory") else []
    words += [
        f"{amount} {name.rpartition('/')[2]}" for name, amount in sorted(requests.items()) if "/" in name and amount
    ]
    return " ".join(words) or "no requests"


def groups_of(result: SimulationResult, history: NodeHistory) -> dict[bytes, NodeGroup]:
    """Return the group of the nodes that had each state."""
    members = result.nodes.table.members
    found = {state.key: members[place].group for seen in history.moments for place, state in enumerate(seen.states)}
    for record in result.records:
        state = history.refused.get(record.arrival.name)
        if state is not None and record.node is not None:
            found[state.key] = members[record.node].group
    return found


def pictures(result: SimulationResult, history: NodeHistory, states: Iterable[SharedState]) -> list[StatePicture]:
    """Return the pictures of states, in their order; pods are called by what they request, and numbered."""
    names, groups = kind_names(result), groups_of(result, history)
    found = []
    for state in states:
        group = groups[state.key]
        plan = Plan(group.machine, None, (), state.kubelet, ())
        owners = [_named(owner, names) for owner in owners_of(plan, state.kubelet)]
        view = replace(plan_view(plan, owners), name=group.name)
        found.append(StatePicture(view, {owner.uid: owner.mark for owner in reversed(view.owners)}))
    return found


def _named(owner: CPUOwner, names: Mapping[str, str]) -> CPUOwner:
    kind, _, count = owner.uid.partition(".")
    container = owner.label.partition("/")[2]
    label = f"{names.get(kind, 'pod')} #{int(count or 0) + 1}"
    return replace(owner, label=f"{label}/{container}" if container else label)
