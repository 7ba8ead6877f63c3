"""Why pods were refused, or found no node: each answer once, for all pods and nodes that share it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from mooring.answers.base.answering import answered
from mooring.answers.base.explanation import story_of
from mooring.engine.kubelet.admit import AdmitMode
from mooring.fleet.history import NodeHistory
from mooring.fleet.records import Fate, Record
from mooring.fleet.simulation import SimulationResult
from mooring.fleet.states import SharedState
from mooring.fleet.waiting import waiting_kinds
from mooring.views.decision_rows import decision_view
from mooring.views.fleet import RefusalStory, WaitStory

MOST_REFUSALS: Final = 100
"""Refusals that are explained with a picture of the decision; those of most pods."""


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
    return [
        WaitStory(tuple((str(one.obstacle), len(one.nodes)) for one in kind.causes), kind.pods)
        for kind in waiting_kinds(result)
    ]
