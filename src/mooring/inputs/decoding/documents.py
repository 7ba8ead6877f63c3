"""Files, folders and standard input to documents.

One reader for every input: YAML of several documents, JSON, kubectl's output, whole folders. Files are bounded in size
before they are read, values are bounded while they are built.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from mooring.engine.core.errors import InputError
from mooring.inputs.decoding.fields import Document
from mooring.inputs.decoding.files import (
    STANDARD_INPUT,
    check_regular,
    open_problem,
    read_standard_input,
    read_text,
    shown,
    text_of,
)
from mooring.inputs.decoding.json_reader import NotJSONError, read_json
from mooring.inputs.decoding.positions import Place, field_places

SUFFIXES = (".yaml", ".yml", ".json")
"""Files of a folder that are read; the same as kubectl's."""


def load_documents(path: str | os.PathLike[str]) -> list[Document]:
    """Read the documents of a file, of a folder's manifests by name, or of standard input (``-``).

    Empty documents are left out.

    Raises:
        InputError: nothing there, not readable, too large, not text, not YAML or JSON, or nothing in it.
    """
    if path == "-":
        return _parse(text_of(read_standard_input(), STANDARD_INPUT), STANDARD_INPUT)
    documents: list[Document] = []
    for file in _files(path):
        documents += _parse(read_text(file), shown(file), json_only=file.suffix == ".json")
    return documents


def documents_in(data: bytes, source: str, *, json_only: bool = False) -> list[Document]:
    """Return the documents in the bytes of a file; ``source`` names it in messages.

    Raises:
        InputError: not text, not YAML or JSON, or nothing in it.
    """
    return _parse(text_of(data, source), source, json_only=json_only)


@contextmanager
def located(document: Document) -> Iterator[None]:
    """Name file, line and column in an InputError about a field of a document; an error of another file stays."""
    try:
        yield
    except InputError as error:
        if error.source not in ("", document.source):
            raise
        raise InputError(
            error.problem,
            source=places_of(document, [error.field])[error.field],
            field=error.field,
            remedy=error.remedy,
        ) from None


def places_of(document: Document, fields: Sequence[str]) -> dict[str, str]:
    """Return file, line and column of fields; the document's own place where they are unknown."""
    return {
        field: document.source if place is None else f"{document.file}:{place[0]}:{place[1]}"
        for field, place in positions_of(document, fields).items()
    }


def positions_of(document: Document, fields: Sequence[str]) -> dict[str, Place | None]:
    """Return line and column in the file of fields; None where they are unknown."""
    text = document.text.decode("utf-8", "replace") if isinstance(document.text, bytes) else document.text
    index, above = document.index, 0
    if document.is_alone:
        index, above = 1, document.line - 1
    elif index > 1 and text.lstrip("\ufeff \t\r\n")[:1] not in ("{", "["):
        # A YAML document begins on a line of its own: those before it need not be read again.
        text, index, above = text.split("\n", document.line - 1)[-1], 1, document.line - 1
    places = field_places(text, index, fields) if text else [None] * len(fields)
    return {
        field: None if place is None else (place[0] + above, place[1])
        for field, place in zip(fields, places, strict=True)
    }


def _files(path: str | os.PathLike[str]) -> list[Path]:
    file = Path(path)
    try:
        if not file.is_dir():
            return [file]
        _check_rendered(file)
        found = sorted(entry for entry in file.iterdir() if entry.suffix in SUFFIXES and not entry.is_dir())
    except (OSError, ValueError) as error:
        raise InputError(open_problem(error), source=shown(path)) from None
    for entry in found:
        check_regular(entry)
    if not found:
        raise InputError(
            "the folder holds no manifests",
            source=shown(path),
            remedy=f"put {', '.join(SUFFIXES)} files there",
        )
    return found


_RENDERED = {
    "Chart.yaml": ("a Helm chart", "helm template"),
    "kustomization.yaml": ("for Kustomize", "kubectl kustomize"),
    "kustomization.yml": ("for Kustomize", "kubectl kustomize"),
    "Kustomization": ("for Kustomize", "kubectl kustomize"),
}
"""File of a folder whose manifests another tool makes -> what the folder is, and the command."""


def _check_rendered(folder: Path) -> None:
    """Refuse a folder whose files are not what reaches the API server.

    Raises:
        InputError: naming the command that prints the manifests.
    """
    for name, (what, command) in _RENDERED.items():
        if (folder / name).is_file():
            remedy = f"{command} {shown(folder)} prints its manifests: pipe them to mooring with -f -"
            raise InputError(f"the folder is {what}", source=shown(folder), remedy=remedy)


def _parse(text: str, source: str, *, json_only: bool = False) -> list[Document]:
    documents = [document for document in _values(text, source, json_only=json_only) if document.content is not None]
    if not documents:
        raise InputError("nothing in it", source=source)
    return documents


def _values(text: str, source: str, *, json_only: bool) -> Iterator[Document]:
    # YAML contains JSON, but its reader takes ten times as long.
    if json_only or text.lstrip()[:1] in ("{", "["):
        try:
            return iter(list(read_json(text, source)))
        except NotJSONError as error:
            if json_only:
                place = f"{source}:{error.line}:{error.column}"
                raise InputError(f"not valid JSON: {error.problem}", source=place) from None
    # Loading the YAML library takes longer than reading most JSON files.
    from mooring.inputs.decoding.yaml_reader import read_yaml  # noqa: PLC0415

    return read_yaml(text, source)
