"""The smallest scenario that shows a difference: without the pods and steps that it does not need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mooring.answers.base.outcome import state_fields
from mooring.answers.base.replay.agreement import differences
from mooring.answers.base.replay.scenario import replay_scenario
from mooring.engine.kubelet.kubelet import StateTexts
from mooring.inputs.pods.pods import MIRROR
from mooring.inputs.pods.scenario import scenario
from mooring.published.objects import NodeFacts

_FILE_FIELDS: Final = frozenset(state_fields(StateTexts()))


def smallest(content: Mapping[str, Any], facts: NodeFacts) -> dict[str, Any]:
    """Return a scenario without the pods and steps that a difference does not need.

    If an outcome differs, state files are not expected: the fewest pods that show the outcome remain. If only state
    files differ, pods that these name remain, because without them every file differs. A scenario in which the engine
    differs in nothing is returned as it is: the difference is not the managers'.
    """
    least = dict(content)
    found = differing_fields(least, facts)
    if not found:
        return least
    named = ""
    if outcomes := found - _FILE_FIELDS:
        expected = [_without_files(one) for one in least["expect"].get("steps", ())]
        least["expect"] = {"steps": expected}
        found = outcomes
    else:
        named = str((content["files"], content["expect"]))
    for part in ("active", "steps"):
        position = 0
        while position < len(least[part]):
            if (fewer := _without(least, part, position, named)) and differing_fields(fewer, facts) & found:
                least = fewer
            else:
                position += 1
    return least


def _without(content: Mapping[str, Any], part: str, position: int, named: str) -> dict[str, Any] | None:
    """Return a scenario without a pod or step; None where it is about a pod that the state files name."""
    one = content[part][position]
    pod = one if part == "active" else one.get("admit")
    uid = uid_of(pod) if pod is not None else one.get("remove", "")
    if (named and (not uid or uid in named)) or (part == "steps" and len(content["steps"]) == 1):
        return None
    fewer = {**content, part: [*content[part][:position], *content[part][position + 1 :]]}
    if part == "steps":
        expected = content["expect"]["steps"]
        fewer["expect"] = {"steps": [*expected[:position], *expected[position + 1 :]]}
    return fewer


def _without_files(expected: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in expected.items() if name not in _FILE_FIELDS}


def differing_fields(content: Mapping[str, Any], facts: NodeFacts) -> set[str]:
    """Return the names of the fields in which the engine differs."""
    case = scenario(content, source="recording")
    answer = replay_scenario(case, {case.machine: facts.machine})
    if "expect" not in answer:
        return set()
    return {one.field.rpartition(".")[2] for one in differences(content["expect"], answer["expect"])}


def uid_of(pod: Mapping[str, Any]) -> str:
    """Return the uid that its kubelet knows a pod of a scenario by."""
    metadata = pod["metadata"]
    return str(metadata.get("annotations", {}).get(MIRROR) or metadata["uid"])
