"""What the objects of group ``mooring.dev`` have in common: names, sizes, and one way of reading.

What is read here was written by another program, perhaps of another version, and came over a network: members that are
not known are skipped, everything else that is not as expected is an :class:`~mooring.core.errors.InputError`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from mooring.core.errors import InputError

GROUP: Final = "mooring.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
FACTS: Final = "NodeFacts"
STATE: Final = "NodeState"
PLURALS: Final[Mapping[str, str]] = {FACTS: "nodefacts", STATE: "nodestates"}
LARGEST_OBJECT: Final = 1_000_000
"""Bytes of an object as JSON. etcd takes 1.5 MiB, and the API server's records of who set which field need room."""

_REMEDY: Final = "is it from another version of Mooring? mooring publish writes it anew"
_T = TypeVar("_T")


def read_object(content: object, kind: str, shape: type[_T]) -> tuple[str, _T]:
    """Return the name of an object and its content in the given shape.

    Raises:
        InputError: it is of another kind or version, has no name, or its content has another shape.
    """
    metadata = content.get("metadata") if isinstance(content, dict) else None
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(content, dict) or not isinstance(name, str) or not name:
        raise InputError("is no object with a name", source=kind, remedy=_REMEDY)
    found = content.get("apiVersion"), content.get("kind")
    if found != (API_VERSION, kind):
        shown = f"{found[1]!s:.60} of {found[0]!s:.60}"
        raise InputError(f"is {shown}, not {kind} of {API_VERSION}", source=f"{kind} {name}", remedy=_REMEDY)
    try:
        return name, msgspec.convert(content, shape)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$")
        raise bad_object(kind, name, path.rstrip("`").strip("."), problem.replace("`", "'")) from None


def bad_object(kind: str, name: str, field: str, problem: str) -> InputError:
    """Return the error about an object that cannot be used."""
    return InputError(problem, source=f"{kind} {name}", field=field, remedy=_REMEDY)


def new_object(kind: str, name: str, **members: object) -> dict[str, Any]:
    """Return an object, ready for any encoder of JSON or YAML."""
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, **members}


def encoded(content: Mapping[str, Any]) -> bytes:
    """Return an object as JSON, the same bytes for the same content.

    Raises:
        InputError: it is larger than an API server takes.
    """
    data = msgspec.json.encode(content, order="sorted")
    if len(data) > LARGEST_OBJECT:
        name = f"{content.get('kind')} {content['metadata']['name']}"
        raise InputError(f"has {len(data)} bytes, more than an object of the cluster may have", source=name)
    return data
