"""An error about a field names the line and column of the file that has it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.values import cases

from mooring.engine.core.errors import InputError
from mooring.inputs.decoding.documents import documents_in, load_documents, located, positions_of
from mooring.inputs.decoding.fields import Document


@pytest.mark.parametrize(("text", "places", "name"), cases(__file__, "positions.yaml", "text", "places", "name"))
def test_the_place_of_a_field_is_that_of_its_key(text: str, places: dict[str, list[int] | None], name: str) -> None:
    found = positions_of(documents_in(text.encode(), name)[-1], list(places))
    assert {field: place and list(place) for field, place in found.items()} == places


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
    file.write_text("---\nkind: First\n---\nkind: Second\ntls:\n  certificate: x\n", encoding="utf-8")
    second = load_documents(file)[1]
    assert place(second, "", "tls") == f"{file}:5:1"
    assert place(second, second.source, "tls") == f"{file}:5:1"
    assert place(second, "other.yaml", "tls") == "other.yaml"
    assert place(second, "", "absent") == second.source
    file.unlink()
    assert place(second, "", "tls") == f"{file}:5:1"
    assert place(Document({}, "standard input", 1, 3), "", "tls") == "standard input:3"
