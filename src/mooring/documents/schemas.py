"""JSON Schemas of the documents, made from their structs: draft 2020-12, each whole in itself.

A schema names every member that this release prints and no other: ``additionalProperties`` is false everywhere.

    python -m mooring.documents.schemas FOLDER     writes them as KIND.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from mooring.engine.core.errors import InputError

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_CLASSES: Final[Mapping[str, str]] = {
    "AgentStatus": "mooring.documents.status:StatusDocument",
    "Capacity": "mooring.answers.capacity.answer:CapacityDocument",
    "ClusterArchive": "mooring.documents.machine:ClusterArchiveDocument",
    "CodePage": "mooring.documents.explanation:CodePageDocument",
    "Comparison": "mooring.answers.compare.answer:ComparisonDocument",
    "Diagnosis": "mooring.answers.doctor.answer:DiagnosisDocument",
    "Explanation": "mooring.documents.explanation:ExplanationDocument",
    "ExplanationList": "mooring.documents.explanation:ExplanationListDocument",
    "Fleet": "mooring.fleet.documents:FleetDocument",
    "FleetComparison": "mooring.fleet.documents:FleetComparisonDocument",
    "FleetDrain": "mooring.fleet.documents:FleetDrainDocument",
    "FleetFit": "mooring.fleet.documents:FleetFitDocument",
    "FleetUpgrade": "mooring.fleet.documents:FleetUpgradeDocument",
    "Isolation": "mooring.answers.doctor.answer:IsolationDocument",
    "LargestRequests": "mooring.answers.capacity.answer:LargestRequestsDocument",
    "Machine": "mooring.documents.machine:MachineDocument",
    "Migration": "mooring.answers.migrate.migration:MigrationDocument",
    "NearestChanges": "mooring.documents.explanation:NearestChangesDocument",
    "NodeArchive": "mooring.documents.machine:NodeArchiveDocument",
    "Plan": "mooring.documents.plan:PlanDocument",
    "PodResources": "mooring.documents.of_kubelet:PodResourcesDocument",
    "Recording": "mooring.monitoring.shadow.judge:RecordingDocument",
    "ReleaseComparison": "mooring.answers.compare.answer:ReleaseComparisonDocument",
    "Resize": "mooring.answers.resize.answer:ResizeDocument",
    "Shadow": "mooring.published.shadow_document:ShadowDocument",
    "Upgrade": "mooring.answers.upgrade.answer:UpgradeDocument",
    "UpgradeList": "mooring.answers.upgrade.answer:UpgradeListDocument",
    "Version": "mooring.command.version:VersionDocument",
    "WhatIf": "mooring.documents.explanation:WhatIfDocument",
}
_FACT: Final = "Fact"
_REFERENCE: Final = "#/$defs/"


def kinds() -> tuple[str, ...]:
    """Return every kind of document in text order.

    >>> "Plan" in kinds()
    True
    """
    return tuple(_CLASSES)


def document_type(kind: str) -> type[Any]:
    """Return the struct of a kind of document.

    Raises:
        InputError: there is no such kind.
    """
    if kind not in _CLASSES:
        raise InputError("is not a kind of document", source=kind, remedy=f"kinds are {', '.join(kinds())}")
    module, _, name = _CLASSES[kind].partition(":")
    found: type[Any] = getattr(import_module(module), name)
    return found


def schema(kind: str) -> dict[str, Any]:
    """Return the schema of a kind of document.

    Raises:
        InputError: there is no such kind.

    >>> schema("Plan")["properties"]["kind"]
    {'const': 'Plan'}
    """
    root = document_type(kind)
    # The schemas of a struct, of all that it can contain, and of what they only name
    from msgspec.json import schema_components  # noqa: PLC0415 - not for the names of the kinds

    from mooring.documents import facts, plan  # noqa: PLC0415 - as above

    structs = [root, plan.HintPart, plan.HintDigest, plan.HintFamily]
    described = facts.fact_structs() if root.__name__ == "ExplanationDocument" else []
    _, found = schema_components([*structs, *described], ref_template=_REFERENCE + "{name}")
    if described:
        found[_FACT] = {
            "description": "What the engine found or chose.",
            "oneOf": [{"$ref": _REFERENCE + one.__name__} for one in described],
        }
    definitions = {name: _constants(_with_defaults_required(one)) for name, one in found.items()}
    head = definitions.pop(root.__name__)
    # Those that the schema names, directly or through others, in text order
    reached: set[str] = set()
    pending = list(_references(head))
    while pending:
        name = pending.pop()
        if name not in reached:
            reached.add(name)
            pending += _references(definitions[name])
    named = {name: definitions[name] for name in sorted(reached)}
    return {"$schema": DIALECT, "$id": f"{kind}.json", **head, "title": kind, "$defs": named}


def write_schemas(folder: Path) -> None:
    """Write every schema into a folder as ``KIND.json``."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind in kinds():
        text = json.dumps(schema(kind), indent=2, ensure_ascii=False)
        (folder / f"{kind}.json").write_text(f"{text}\n", encoding="utf-8")


def _with_defaults_required(found: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an object: what has a default while it is computed is never absent when it is printed."""
    members = found.get("properties", {})
    always = {name for name, one in members.items() if "default" in one}
    for name in always:
        del members[name]["default"]
    required = always.union(found.get("required", ()))
    return {**found, "required": [name for name in members if name in required]} if required else found


def _constants(part: Any) -> Any:
    """Return a schema in which an enumeration of one value is that value."""
    if isinstance(part, list):
        return [_constants(one) for one in part]
    if not isinstance(part, dict):
        return part
    if isinstance(part.get("enum"), list) and len(part["enum"]) == 1:
        return {"const": part["enum"][0], **{name: one for name, one in part.items() if name != "enum"}}
    return {name: _constants(one) for name, one in part.items()}


def _references(part: Any) -> Iterable[str]:
    if isinstance(part, dict):
        if "$ref" in part:
            yield part["$ref"].removeprefix(_REFERENCE)
        for one in part.values():
            yield from _references(one)
    elif isinstance(part, list):
        for one in part:
            yield from _references(one)


if __name__ == "__main__":
    write_schemas(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
