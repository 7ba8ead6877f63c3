"""``mooring-node.json``: what an archive holds, what it lacks, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mooring.core.errors import InputError
from mooring.planner.nodearchive.layout import API_VERSION, KIND

_REMEDY = "collect it again with mooring collect"


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a node, such as its state files."""

    name: str
    origin: str = ""
    """Where it came from, in a word or two; empty when it is missing."""
    files: int = 0
    size: int = 0
    """Bytes of its files."""
    missing: str = ""
    """Why it, or something of it, is not there; empty when all of it is."""


@dataclass(frozen=True, slots=True)
class Unread:
    """A file that is there on the node and could not be packed."""

    path: str
    problem: str


@dataclass(frozen=True, slots=True)
class About:
    """What an archive says of itself."""

    node: str = ""
    """The node's name; empty when it is not known."""
    kubelet: str = ""
    """The kubelet's version, such as ``v1.37.1``; empty when it is not known."""
    anonymous: bool = False
    """Names of pods, namespaces and of the node are made up."""
    parts: tuple[Part, ...] = ()
    unread: tuple[Unread, ...] = ()
    collector: str = ""
    """Version of Mooring that made it."""


def about_document(about: About) -> dict[str, Any]:
    """Return the document; it holds nothing but dicts, lists, texts, numbers and flags."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "mooring": about.collector,
        "node": about.node,
        "kubelet": about.kubelet,
        "anonymous": about.anonymous,
        "parts": [
            {
                "name": part.name,
                "origin": part.origin,
                "files": part.files,
                "bytes": part.size,
                "missing": part.missing,
            }
            for part in about.parts
        ],
        "unread": [{"path": file.path, "problem": file.problem} for file in about.unread],
    }


def about_of(document: object, *, source: str) -> About:
    """Return what a document says.

    Fields that a later version may add are not looked at; the version says when something changed its meaning. Figures
    and unread files are for people and not read again.

    Raises:
        InputError: it is no such document, or one of another version.
    """
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise InputError(f"is no {KIND}", source=source, remedy=_REMEDY)
    version = document.get("apiVersion")
    if version != API_VERSION:
        remedy = f"this Mooring reads {API_VERSION}: {_REMEDY} of this version"
        raise InputError(f"{version!r:.60} is not supported", source=source, field="apiVersion", remedy=remedy)
    return About(
        node=_text(document, "node", source),
        kubelet=_text(document, "kubelet", source),
        anonymous=document.get("anonymous") is True,
        parts=tuple(_parts(document.get("parts"), source)),
        collector=_text(document, "mooring", source),
    )


def _parts(entries: object, source: str) -> Iterator[Part]:
    if not isinstance(entries, list):
        raise InputError("must be a list", source=source, field="parts", remedy=_REMEDY)
    for index, entry in enumerate(entries):
        if not isinstance(entry, dict):
            raise InputError("must be a mapping", source=source, field=f"parts[{index}]", remedy=_REMEDY)
        yield Part(
            _text(entry, "name", source), _text(entry, "origin", source), missing=_text(entry, "missing", source)
        )


def _text(document: dict[str, Any], field: str, source: str) -> str:
    value = document.get(field, "")
    if not isinstance(value, str):
        raise InputError("must be a text", source=source, field=field, remedy=_REMEDY)
    return value
