"""The comparison with a recording finds every change, and excuses exactly what the kubelet leaves open."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.planner.recordings import recorded
from tests.values import cases

from mooring.answers.base.agreement import ABSENT, FieldDifference, differences

Path = tuple[str | int, ...]

NOTES = ("nondeterministic", "startErrorAlternatives")
"""Members of an outcome that speak about it and are no answers."""

SAMPLES = {
    "admission-config-errors.jsonl.gz": (0, 254, 638),
    "admission-cpu-distributed.jsonl.gz": (1, 228),
    "admission-devices.jsonl.gz": (3, 100),
    "admission-lifecycle-restart.jsonl.gz": (0, 32, 500),
    "admission-memory.jsonl.gz": (5, 700),
    "admission-numa-large.jsonl.gz": (60,),
    "admission-podlevel.jsonl.gz": (20, 900),
    "admission-topology.jsonl.gz": (7, 800),
    "real-kubelet.jsonl.gz": (0,),
    "state-files.jsonl.gz": (217, 400),
}
MEMBERS = [*NOTES, "steps", "readmitted", "start", "startError", "devices", "memoryManagerState", "c"]

LEAVES = 120
"""Leaves that are changed in each scenario."""


@cache
def outcomes(name: str) -> list[dict[str, Any]]:
    wanted = SAMPLES[name]
    return [one["expect"] for index, one in enumerate(islice(recorded(name), max(wanted) + 1)) if index in wanted]


def leaves(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the path of everything that is neither a mapping nor a list with members."""
    if isinstance(value, dict) and value:
        for name in value:
            if name not in NOTES:
                yield from leaves(value[name], (*path, name))
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from leaves(item, (*path, index))
    else:
        yield path


def changed(value: Any) -> Any:
    """Return another value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, str):
        return value[:-1] if value else "0"
    return [] if value is None else None


def with_change(answer: Any, path: Path, change: Callable[[Any], Any] = changed) -> Any:
    """Return a copy of the answer with one member changed."""
    mutant = copy.deepcopy(answer)
    place = mutant
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = change(place[path[-1]])
    return mutant


def field_name(path: Path) -> str:
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def names_its_place(found: list[FieldDifference], path: Path) -> bool:
    """Tell whether a difference points at the path, or at the whole value that is shown there."""
    return any(field_name(path).startswith(field) for field, *_ in found)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_recording_agrees_with_itself_and_every_changed_leaf_is_found_and_named(name: str) -> None:
    for outcome in outcomes(name):
        assert differences(outcome, copy.deepcopy(outcome)) == []
        paths = [path for path in leaves(outcome) if not left_open(outcome, path)]
        for path in paths[:: max(1, len(paths) // LEAVES)]:
            if gives_nothing(outcome, path):
                continue
            assert names_its_place(differences(outcome, with_change(outcome, path)), path), field_name(path)


def left_open(outcome: dict[str, Any], path: Path) -> bool:
    return "devices" in path and "ids" in path and "devices.ids" in outcome.get("nondeterministic", ())


def gives_nothing(outcome: dict[str, Any], path: Path) -> bool:
    """Tell whether the leaf is a step that was not observable: nothing is compared there."""
    return path[0] == "steps" and len(path) == 2 and outcome["steps"][path[1]] in (None, {})


@pytest.mark.parametrize("name", SAMPLES)
def test_every_dropped_field_and_missing_and_additional_steps_are_found(name: str) -> None:
    for outcome in outcomes(name):
        for field in outcome.keys() - NOTES:
            answer = {known: value for known, value in outcome.items() if known != field}
            assert (field, outcome[field], ABSENT) in differences(outcome, answer)
        steps = outcome.get("steps", [])
        for index in range(len(steps)):
            answer = {**outcome, "steps": steps[:index]}
            expected = [(f"steps[{at}]", steps[at], ABSENT) for at in range(index, len(steps))]
            assert differences(outcome, answer) == expected
        if steps:
            longer = {**outcome, "steps": [*steps, steps[-1]]}
            assert differences(outcome, longer) == [(f"steps[{len(steps)}]", ABSENT, steps[-1])]


def steps(step: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"steps": [step], **more}


@pytest.mark.parametrize(
    ("outcome", "answer", "fields", "name"),
    cases(__file__, "differing-answers.yaml", "recorded", "answered", "fields", "name"),
)
def test_what_differs_is_pointed_at_and_what_was_not_recorded_is_not_compared(
    outcome: dict[str, Any], answer: dict[str, Any], fields: list[Any], name: str
) -> None:
    found = [["ABSENT" if value is ABSENT else value for value in one] for one in differences(outcome, answer)]
    assert [one if isinstance(fields[place], list) else one[0] for place, one in enumerate(found)] == fields, name


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(MEMBERS), inner, max_size=4),
    max_leaves=12,
)


@given(JSON.filter(lambda value: isinstance(value, dict)), JSON.filter(lambda value: isinstance(value, dict)))
def test_any_two_documents_can_be_compared(outcome: dict[str, Any], answer: dict[str, Any]) -> None:
    found = differences(outcome, answer)
    if all(name in NOTES or (name in answer and outcome[name] == answer[name]) for name in outcome):
        assert found == []
    assert differences(outcome, copy.deepcopy(outcome)) == []


def test_a_state_text_nested_deeply_is_a_difference_like_any_other() -> None:
    deep = json.dumps({"data": "[" * 5000 + "]" * 5000})
    assert differences({"memoryManagerState": deep}, {"memoryManagerState": ""}) != []


# What is excused.

GATES = (
    "error: [A is enabled, but depends on features that are disabled: [X, Y], "
    "B is enabled, but depends on features that are disabled: [X]]"
)


def test_gate_messages_may_come_in_any_order() -> None:
    swapped = (
        "error: [B is enabled, but depends on features that are disabled: [X], "
        "A is enabled, but depends on features that are disabled: [Y, X]]"
    )
    assert differences({"startError": GATES}, {"startError": swapped}) == []


@pytest.mark.parametrize(
    "text",
    [
        GATES.replace("error", "Error"),
        GATES.replace("[X, Y]", "[X]"),
        GATES.replace("B is", "C is"),
        "error: A is enabled, but depends on features that are disabled: [X, Y]",
    ],
)
def test_nothing_else_about_gate_messages_may_differ(text: str) -> None:
    assert differences({"startError": GATES}, {"startError": text}) != []


def test_any_recorded_alternative_of_a_refusal_will_do_and_no_other() -> None:
    outcome = {"startError": "a", "startErrorAlternatives": ["b", "a"], "nondeterministic": ["startError"]}
    assert differences(outcome, {"startError": "b"}) == []
    assert differences(outcome, {"startError": "c"}) == [("startError", "a", "c")]


def memory_state(*blocks: dict[str, Any], checksum: int = 1, policy: str = "Static", pod: str = "u") -> str:
    """Return the text of a memory state file with these blocks of one container and of one pod."""
    machine = {"0": {"numberOfAssignments": 1, "memoryMap": {}, "cells": [0]}}
    state = {"machineState": machine, "entries": {pod: {"c": list(blocks)}}}
    data = {"policyName": "Static", **state, "podEntries": {pod: {"memoryBlocks": list(blocks)}}}
    outer = {"policyName": policy, **state, "checksum": checksum}
    return json.dumps({**outer, "data": json.dumps(data), "dataChecksum": checksum + len(blocks)})


def without_data(text: str) -> str:
    """Return a memory state file as kubelets before 1.37 write it; what is no such file is returned as it is."""
    return re.sub(r', "data": .*', "}", text)


MEMORY = {"numaAffinity": [0], "type": "memory", "size": 512}
HUGE = {"numaAffinity": [0], "type": "hugepages-2Mi", "size": 1024}
FIELDS = ("memoryManagerState", "memoryManagerStateAdmitted")


@pytest.mark.parametrize("field", FIELDS)
def test_memory_blocks_of_a_container_may_come_in_any_order(field: str) -> None:
    left, right = memory_state(MEMORY, HUGE, checksum=1), memory_state(HUGE, MEMORY, checksum=2)
    assert differences({field: left}, {field: right}) == []
    assert differences({field: without_data(left)}, {field: without_data(right)}) == []


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize(
    "text",
    [
        memory_state(MEMORY, HUGE, checksum=2),
        memory_state(HUGE, {**MEMORY, "size": 513}, checksum=2),
        memory_state(HUGE, {**MEMORY, "numaAffinity": [1]}, checksum=2),
        memory_state(HUGE, MEMORY, HUGE, checksum=2),
        memory_state(HUGE, MEMORY, checksum=2, policy="None"),
        memory_state(HUGE, MEMORY, checksum=2, pod="v"),
        memory_state(HUGE),
        memory_state(MEMORY, HUGE).replace('{"policyName"', '{ "policyName"', 1),
        "",
        "{}",
        "[]",
    ],
)
def test_nothing_else_about_memory_state_may_differ(field: str, text: str) -> None:
    state = memory_state(MEMORY, HUGE)
    assert differences({field: state}, {field: text}) == [(field, state, text)]
    older, other = without_data(state), without_data(text)
    assert differences({field: older}, {field: other}) == [(field, older, other)]


def test_the_order_of_memory_blocks_is_no_excuse_for_the_cpu_state() -> None:
    left, right = memory_state(MEMORY, HUGE, checksum=1), memory_state(HUGE, MEMORY, checksum=2)
    assert differences({"cpuManagerState": left}, {"cpuManagerState": right}) != []


def test_which_of_equal_devices_is_open_only_where_it_was_seen_to_be() -> None:
    left, right, other_node = (
        {"devices": {"c": {"r": {"ids": [name], "numa": [[node]]}}}} for name, node in (("a", 0), ("b", 0), ("a", 1))
    )
    is_open = steps(left, nondeterministic=["devices.ids"])
    assert differences(is_open, steps(right)) == []
    assert differences(steps(left), steps(right)) != []
    assert differences(steps(left, nondeterministic=["memoryManagerState"]), steps(right)) != []
    assert differences(is_open, steps(other_node)) != []
    assert differences(is_open, steps({"devices": {"c": {}}})) != []
