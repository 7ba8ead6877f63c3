"""An error about a field names the line and column of the file that has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mooring.engine.core.errors import InputError
from mooring.inputs.decoding.documents import documents_in, load_documents, located, positions_of
from mooring.inputs.decoding.fields import Document

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
    ("text", "places"),
    [
        (
            TEXT,
            {
                "kind": (6, 1),
                "tls": (7, 1),
                "tls.certificate": (8, 3),
                "tls.key": (7, 1),
                "dotted.name": (9, 1),
                "plugins[1].weight": (13, 3),
                "plugins[0]": (11, 3),
                "plugins[7].weight": (10, 1),
                "absent": None,
                "": None,
            },
        ),
        (
            '{"first": 1}\n{\n\t"a\\"b": [1, {"k": 2}],\n\t"tls": {\n  "key": 1}}',
            {"tls.key": (5, 3), "a": None, "tls.no": (4, 2)},
        ),
        ('[1, {"k": ["x", 5]}]', {"[1].k[1]": (1, 17), "[0]": (1, 2)}),
        ("{a: {b: 1}, c: 2}", {"a.b": (1, 6), "c": (1, 13)}),
    ],
    ids=["yaml", "json", "list", "yaml that begins like json"],
)
def test_the_place_of_a_field_is_that_of_its_key(text: str, places: dict[str, tuple[int, int] | None]) -> None:
    assert positions_of(documents_in(text.encode(), "given")[-1], list(places)) == places


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ('{"a": 1, "b": {"a": 2}, "a": 3}', 25),
        ('{"a": "NaN", "b": NaN}', 19),
        ('{"a": 1e3, "b": 1e400}', 17),
        ('{"a": "9", "b": ' + "9" * 5000 + "}", 17),
        ("[" * 500, 101),
    ],
)
def test_the_first_thing_in_json_that_cannot_be_used_has_its_place(text: str, column: int) -> None:
    with pytest.raises(InputError) as refused:
        documents_in(text.encode(), "given")
    assert refused.value.source == f"given:1:{column}"


def test_an_error_of_another_file_keeps_its_place_and_one_that_cannot_be_located_its_document(tmp_path: Path) -> None:
    def place(document: Document, source: str, field: str) -> str:
        with pytest.raises(InputError) as refused, located(document):
            raise InputError("is wrong", source=source, field=field)
        return refused.value.source

    file = tmp_path / "two.yaml"
    file.write_text(TEXT, encoding="utf-8")
    second = load_documents(file)[1]
    assert place(second, "", "tls") == f"{file}:7:1"
    assert place(second, second.source, "tls") == f"{file}:7:1"
    assert place(second, "other.yaml", "tls") == "other.yaml"
    assert place(second, "", "absent") == second.source
    file.unlink()
    assert place(second, "", "tls") == f"{file}:7:1"
    assert place(Document({}, "standard input", 1, 3), "", "tls") == "standard input:3"
