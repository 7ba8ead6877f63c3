"""Schemas made from the structs: valid, closed, whole in themselves, with every description."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
from dataclasses import fields, is_dataclass
from inspect import getmembers, isclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator
from tests.documents.validation import complaints

import mooring.engine.cpumanager.facts as cpu_facts
import mooring.engine.devicemanager.facts as device_facts
import mooring.engine.extensions.facts as extension_facts
import mooring.engine.memorymanager.facts as memory_facts
import mooring.engine.node.facts as node_facts
import mooring.engine.plugins.facts as plugin_facts
import mooring.engine.topologymanager.facts as topology_facts
from mooring.answers.doctor.lint import Assignments, isolation_document
from mooring.documents.facts import fact_members, fact_types
from mooring.documents.schemas import document_type, kinds, schema
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding


@pytest.mark.parametrize("kind", kinds())
def test_a_schema_is_valid_closed_and_whole(kind: str) -> None:
    found = schema(kind)
    Draft202012Validator.check_schema(found)
    assert (found["$id"], found["title"]) == (f"{kind}.json", kind)
    named = {part["$ref"] for part in _objects(found) if "$ref" in part}
    assert named == {f"#/$defs/{name}" for name in found["$defs"]}
    for part in _objects(found):
        if isinstance(part.get("properties"), dict):
            assert part.get("additionalProperties") is False, part
            assert set(part.get("required", [])) <= set(part["properties"]), part


def test_members_are_those_of_the_golden_file() -> None:
    """Within a version members are added, and none is renamed, removed or moved: change the file only to add some."""
    found = {kind: members(schema(kind)) for kind in kinds()}
    shown = "".join(f"{kind}\n" + "".join(f"  {line}\n" for line in lines) for kind, lines in found.items())
    assert shown == MEMBERS.read_text("utf-8")


@pytest.mark.parametrize("kind", kinds())
def test_each_document_names_its_version_and_kind(kind: str) -> None:
    found = schema(kind)
    assert found["properties"]["apiVersion"] == {"const": "mooring/v1alpha1"}
    assert found["properties"]["kind"] == {"const": kind}
    assert {"apiVersion", "kind"} <= set(found["required"])
    assert [*found["properties"]][:2] == ["apiVersion", "kind"]


@pytest.mark.parametrize("kind", kinds())
def test_every_object_of_a_schema_is_described(kind: str) -> None:
    found = schema(kind)
    assert found["description"].startswith("What mooring ")
    assert all(part.get("description") for part in found["$defs"].values())


def test_what_a_schema_does_not_name_is_refused() -> None:
    good = isolation_document("m", Assignments(shared=CPUSet.parse("0-1")), [FOUND])
    document = msgspec.to_builtins(good)
    assert complaints("Isolation", good) == complaints("Isolation", document) == []
    extra, lacking, listed, word = (copy.deepcopy(document) for _ in range(4))
    extra["findings"][0]["extra"] = 1
    del lacking["findings"][0]["code"]
    listed["sharedPool"] = "3-"
    word["findings"][0]["severity"] = "grave"
    assert all(complaints("Isolation", each) for each in (extra, lacking, listed, word))


def test_members_stand_in_the_order_of_the_struct() -> None:
    (part,) = isolation_document("m", Assignments(), [FOUND]).findings
    assert [*msgspec.to_builtins(part)] == list(part.__struct_encode_fields__)


def test_every_fact_of_the_engine_is_in_the_schema_with_its_members() -> None:
    definitions = schema("Explanation")["$defs"]
    variants = [definitions[one["$ref"].removeprefix("#/$defs/")] for one in definitions["Fact"]["oneOf"]]
    assert {found["properties"]["fact"]["const"]: found["required"] for found in variants} == {
        kind.__name__: ["fact", *(_camel(field.name) for field in fields(kind) if field.name not in ELSEWHERE)]
        for kind in every_fact()
    }
    assert [kind.__name__ for kind in fact_types()] == [found["properties"]["fact"]["const"] for found in variants]


def test_a_fact_that_is_unknown_has_no_members() -> None:
    with pytest.raises(TypeError):
        fact_members(FOUND.code)


def test_an_unknown_kind_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match="is not a kind of document") as refused:
        schema("Plann")
    assert "Plan" in str(refused.value)


def test_schemas_are_written_as_files(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mooring.documents.schemas", str(tmp_path / "new")]
    subprocess.run(command, check=True)
    assert {file.stem: json.loads(file.read_text("utf-8")) for file in (tmp_path / "new").iterdir()} == {
        kind: schema(kind) for kind in kinds()
    }


def test_kinds_of_documents_are_known_without_loading_them() -> None:
    code = "import sys; import mooring.documents.schemas; print('msgspec' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"False\n"


def test_each_class_of_a_document_is_used_once() -> None:
    classes = [document_type(kind) for kind in kinds()]
    assert len(set(classes)) == len(classes)


MEMBERS = Path(__file__).parent / "golden-members.txt"
ROOMS = (cpu_facts, extension_facts, memory_facts, device_facts, topology_facts, node_facts, plugin_facts)
ELSEWHERE = {"declared", "choices", "state"}
"""Fields that stand elsewhere: the pod itself, the choices of a merge, which the story tells, and the state."""
PARTS = {"KubeletStarted", "Candidate"}
FOUND = Finding("warning", "configuration", "Something is odd.", "MOOR-400")


def _objects(part: Any) -> list[dict[str, Any]]:
    below = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    inner = [found for child in below for found in _objects(child)]
    return [part, *inner] if isinstance(part, dict) else inner


def every_fact() -> list[type]:
    """Return what the engine reports about pods: not the start of a kubelet, nor the parts of facts."""
    own = [kind for room in ROOMS for _, kind in getmembers(room, isclass) if kind.__module__ == room.__name__]
    return [kind for kind in own if is_dataclass(kind) and kind.__name__ not in PARTS]


def members(found: dict[str, Any]) -> list[str]:
    """Return the members of every object of a schema in their order, those that may be absent with a question mark."""
    objects = {found["title"]: found, **found["$defs"]}
    return [
        f"{name}: {' '.join(one if one in part['required'] else f'{one}?' for one in part['properties'])}"
        for name, part in objects.items()
        if "properties" in part
    ]


def _camel(name: str) -> str:
    return re.sub("_(.)", lambda found: found[1].upper(), name)
