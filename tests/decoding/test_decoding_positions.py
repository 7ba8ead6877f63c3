"""An error about a field names the line of the file that has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mooring.core.errors import InputError
from mooring.decoding.documents import load_documents, located
from mooring.decoding.fields import Document
from mooring.decoding.yaml_reader import field_lines

TEXT = """\
---
---
kind: First
list: [1, 2]
---
kind: Second
tls:
  certificate: x
dotted.name: 1
plugins:
- name: a
- name: b
  weight: 7
"""


@pytest.mark.parametrize(
    ("field", "line"),
    [
        ("kind", 6),
        ("tls", 7),
        ("tls.certificate", 8),
        ("tls.key", 7),
        ("dotted.name", 9),
        ("plugins[1].weight", 13),
        ("plugins[0]", 11),
        ("plugins[7].weight", 10),
        ("absent", None),
        ("", None),
    ],
)
def test_the_line_of_a_field_is_that_of_its_key(field: str, line: int | None) -> None:
    assert field_lines(TEXT, 3, [field]) == [line]


def test_json_has_lines_too() -> None:
    assert field_lines('{\n "kind": "First",\n "tls": {\n  "key": 1}}', 1, ["tls.key", "kind"]) == [4, 2]


def test_an_error_of_another_file_keeps_its_place_and_one_that_cannot_be_located_its_document(tmp_path: Path) -> None:
    def place(document: Document, source: str, field: str) -> str:
        with pytest.raises(InputError) as refused, located(document):
            raise InputError("is wrong", source=source, field=field)
        return refused.value.source

    file = tmp_path / "two.yaml"
    file.write_text(TEXT, encoding="utf-8")
    second = load_documents(file)[1]
    assert place(second, "", "tls") == f"{file}:7"
    assert place(second, second.source, "tls") == f"{file}:7"
    assert place(second, "other.yaml", "tls") == "other.yaml"
    assert place(second, "", "absent") == second.source
    file.unlink()
    assert place(second, "", "tls") == second.source
    assert place(Document({}, "standard input", 1, 3), "", "tls") == "standard input:3"
