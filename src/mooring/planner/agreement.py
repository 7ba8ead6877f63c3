"""Comparing answers with a recording, field by field.

Only what the kubelet itself does not determine is excused, as the recordings' own description lists it: the order of
the memory blocks of a container with several memory types, the choice among equal devices, the order of messages about
several feature gates, and which of several bad options is named where the recording lists alternatives.

Source: docs/reference/scenarios.md, "What is excused".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

_MEMORY_STATES = frozenset({"memoryManagerState", "memoryManagerStateAdmitted"})


@dataclass(frozen=True, slots=True)
class Difference:
    """One field in which an answer departs from the recording."""

    field: str
    """Path of the field, such as ``steps[2].containers.c0.cpus``."""
    recorded: Any
    answered: Any
    """:data:`ABSENT` when the answer lacks the field."""


ABSENT = "(absent)"
"""Stands for a field that one side lacks."""


def differences(recorded: Mapping[str, Any], answered: Mapping[str, Any]) -> list[Difference]:
    """Return every recorded field in which the answer departs; fields that were not recorded are not compared."""
    return list(_fields(recorded, answered, recorded))


def _fields(
    recorded: Mapping[str, Any], answered: Mapping[str, Any], expect: Mapping[str, Any]
) -> Iterator[Difference]:
    for name, value in recorded.items():
        if name in ("nondeterministic", "startErrorAlternatives"):
            continue
        if name not in answered:
            yield Difference(name, value, ABSENT)
        elif name in ("steps", "readmitted"):
            yield from _items(name, value, answered[name], expect)
        elif name in ("start", "afterReadmission", "files") and isinstance(answered[name], Mapping):
            yield from _below(name, _fields(value, answered[name], expect))
        elif not _agree(name, value, answered[name], expect):
            yield from _leaves(name, value, answered[name])


def _items(name: str, recorded: list[Any], answered: list[Any], expect: Mapping[str, Any]) -> Iterator[Difference]:
    for position, value in enumerate(recorded):
        field = f"{name}[{position}]"
        if position >= len(answered):
            yield Difference(field, value, ABSENT)
        elif value is not None:
            yield from _below(field, _fields(value, answered[position], expect))
    for position in range(len(recorded), len(answered)):
        yield Difference(f"{name}[{position}]", ABSENT, answered[position])


def _below(prefix: str, found: Iterator[Difference]) -> Iterator[Difference]:
    for difference in found:
        yield Difference(f"{prefix}.{difference.field}", difference.recorded, difference.answered)


def _leaves(name: str, recorded: Any, answered: Any) -> Iterator[Difference]:
    """Point at the innermost members that differ, so that a person sees one CPU set and not a whole mapping."""
    if not (isinstance(recorded, Mapping) and isinstance(answered, Mapping)):
        yield Difference(name, recorded, answered)
        return
    for member in sorted({*recorded, *answered}):
        left, right = recorded.get(member, ABSENT), answered.get(member, ABSENT)
        if left != right:
            yield from _leaves(f"{name}.{member}", left, right)


def _agree(name: str, recorded: Any, answered: Any, expect: Mapping[str, Any]) -> bool:
    if recorded == answered:
        return True
    if name == "startError":
        alternatives = expect.get("startErrorAlternatives", ())
        return answered in alternatives or _gate_messages(recorded) == _gate_messages(answered) != frozenset()
    if name in _MEMORY_STATES:
        return _blocks_sorted(recorded) == _blocks_sorted(answered) is not None
    if name == "devices" and "devices.ids" in expect.get("nondeterministic", ()):
        return _without_ids(recorded) == _without_ids(answered)
    return False


def _gate_messages(text: str) -> frozenset[str]:
    """Return the set of messages about gate dependencies, whose order is random in the kubelet."""
    return frozenset(re.findall(r"(\w+) is enabled, but depends on features that are disabled", text))


def _blocks_sorted(text: Any) -> Any:
    """Return what a memory state file says, with each container's blocks in a fixed order; None when it says nothing.

    Checksums are left out: they cover the text, and so the order.
    """
    try:
        data = msgspec.json.decode(msgspec.json.decode(text)["data"])
        for entries in (data.get("entries") or {}).values():
            for blocks in entries.values():
                blocks.sort(key=lambda block: block["type"])
        for entry in (data.get("podEntries") or {}).values():
            entry["memoryBlocks"].sort(key=lambda block: block["type"])
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError):
        return None
    return data


def _without_ids(devices: Any) -> Any:
    try:
        return {
            container: {resource: held["numa"] for resource, held in resources.items()}
            for container, resources in devices.items()
        }
    except (AttributeError, KeyError, TypeError):
        return None
