"""Why pods were refused, or found no node: each answer once, for all pods and nodes that share it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from mooring.fleet.history import NodeHistory
from mooring.fleet.nodes import Nodes
from mooring.fleet.records import Fate, Record
from mooring.fleet.scheduler.asked import PodDemand
from mooring.fleet.simulation import SimulationResult
from mooring.fleet.states import SharedState
from mooring.kubelet.admit import AdmitMode
from mooring.planner.answering import answered
from mooring.planner.explanation import story_of
from mooring.render.decision_rows import decision_view
from mooring.render.fleet import RefusalStory, WaitStory

MOST_REFUSALS: Final = 100
"""Refusals that are explained with a picture of the decision; those of most pods."""
MOST_WAITS: Final = 100
"""Kinds of pods for which the nodes are asked why none of them took one."""


def refusals(result: SimulationResult, history: NodeHistory, pictures: Mapping[bytes, int]) -> list[RefusalStory]:
    """Return the refusals that are explained.

    Args:
        result: of the simulation.
        history: of its nodes.
        pictures: numbers of the states that are drawn.
    """
    found: dict[tuple[bytes, bytes], list[Record]] = {}
    for record in result.records:
        state = history.refused.get(record.arrival.name)
        if record.fate is Fate.REFUSED and state is not None:
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
    settings = state.kubelet.settings
    view = decision_view(
        story_of(answer),
        sorted(node.node_id for node in state.kubelet.info.topology),
        settings.topology,
        [answer.remedy],
    )
    names = tuple(record.arrival.name for record in records)
    decision = answer.decision
    return RefusalStory(answer.code, decision.reason, decision.message, answer.why, answer.remedy, view, picture, names)


def waits(result: SimulationResult) -> list[WaitStory]:
    """Return why pods wait at the end, for each kind of them."""
    kinds: dict[object, list[Record]] = {}
    for record in result.records:
        if record.fate is Fate.WAITS:
            kinds.setdefault(record.arrival.asked.key, []).append(record)
    most = sorted(kinds.values(), key=lambda records: -len(records))[:MOST_WAITS]
    return [
        WaitStory(
            tuple(why_waits(result.nodes, records[0].arrival.asked).most_common()),
            tuple(record.arrival.name for record in records),
        )
        for records in most
    ]


def why_waits(nodes: Nodes, asked: PodDemand) -> Counter[str]:
    """Return why no node takes a pod: cause -> nodes."""
    table, found = nodes.table, Counter[str]()
    allowed = table.allowed(asked.fields)
    for place in range(len(table.members)):
        if not table.open[place]:
            found["are closed"] += 1
        elif not allowed[place]:
            found["are excluded by labels or taints"] += 1
        elif lacking := table.lacking(asked, place):
            found[f"lack {lacking}"] += 1
        else:
            code = nodes.would(place, asked).code
            found[f"would refuse it ({code})" if code else "would take it"] += 1
    return found
