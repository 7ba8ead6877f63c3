"""Unknown fields of pods, of workloads and of a kubelet's configuration, each with the nearest known one.

The API server and the kubelet ignore such a field where they decode leniently, and refuse it where they are strict.
The table of fields is ``api_fields.txt``; its sources are named there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from mooring.engine.core.machine import Finding, SourcePlace
from mooring.inputs.decoding.fields import nearest
from mooring.lazy import dataclass

UNKNOWN_CONFIGURATION_FIELD = "MOOR-501"
UNKNOWN_POD_FIELD = "MOOR-512"
_MOST_REPORTED = 20  # more unknown fields than that are no misspellings
_MOST_LISTED = 6

Places: TypeAlias = Callable[[Sequence[str]], Mapping[str, SourcePlace]]
"""Returns file and line of each of some fields, such as ``pods.yaml:7``."""


@dataclass(frozen=True, slots=True)
class UnknownField:
    """A field that its type does not have, at every place where it stands."""

    type: str
    """As the API reference names it, such as ``Container``."""
    name: str
    paths: tuple[str, ...]
    """From the top of the document: ``spec.containers[0].resource``."""

    @property
    def close(self) -> str:
        """The nearest field of the type; empty where none is near."""
        return nearest(self.name, fields_of(self.type))

    @property
    def hint(self) -> str:
        """The nearest field of the type, or all of them where they are few; else empty."""
        known = fields_of(self.type)
        if self.close:
            return f"did you mean {self.close}?"
        return f"known are {', '.join(sorted(known))}" if len(known) <= _MOST_LISTED else ""

    def can_mean(self, path: str) -> bool:
        """Tell whether the field at a path is the one that was meant.

        >>> UnknownField("PodSpec", "container", ("spec.container",)).can_mean("spec.containers")
        True
        """
        return bool(self.close) and path in {one.removesuffix(self.name) + self.close for one in self.paths}


@cache
def _types() -> dict[str, dict[str, str]]:
    """Return type -> field -> type of what stands there; empty if that can be anything."""
    text = Path(__file__).with_name("api_fields.txt").read_text(encoding="utf-8")
    types = {}
    for line in text.splitlines():
        name, colon, fields = line.partition(":")
        if colon and not line.startswith("#"):
            pairs = (field.partition("=") for field in fields.split())
            types[name] = {field: inner for field, _, inner in pairs}
    return types


def fields_of(kind: str) -> Mapping[str, str]:
    """Return the fields of a type, each with the type of what stands there; empty if that can be anything.

    >>> fields_of("ResourceRequirements")
    {'claims': 'ResourceClaim', 'limits': '', 'requests': ''}
    """
    return _types()[kind]


def unknown_fields(objects: Iterable[tuple[str, object, str]]) -> tuple[UnknownField, ...]:
    """Return the fields of objects, and of everything in them, that their types do not have.

    Args:
        objects: type, content, and where the object is in its document.

    >>> pod = {"spec": {"containers": [{"resource": {}}]}}
    >>> [one.paths for one in unknown_fields([("Pod", pod, "items[1]")])]
    [('items[1].spec.containers[0].resource',)]
    """
    found: dict[tuple[str, str], list[str]] = {}
    for kind, content, path in objects:
        _collect(kind, content, path, found)
    return tuple(UnknownField(of, name, tuple(paths)) for (of, name), paths in found.items())


def _collect(kind: str, content: Any, path: str, found: dict[tuple[str, str], list[str]]) -> None:
    if isinstance(content, list):
        for index, item in enumerate(content):
            _collect(kind, item, f"{path}[{index}]", found)
        return
    if not isinstance(content, dict):
        return
    known = _types()[kind]
    for name, value in content.items():
        inner = known.get(name)
        if inner is None:
            found.setdefault((kind, name), []).append(f"{path}.{name}" if path else name)
        elif inner and value:
            _collect(inner, value, f"{path}.{name}" if path else name, found)


def unknown_findings(
    found: Sequence[UnknownField], code: str, source: SourcePlace, places: Places
) -> Iterator[Finding]:
    """Yield a warning for each unknown field, and one line for those beyond the first twenty.

    Args:
        found: the fields.
        code: of the warnings.
        source: the document.
        places: names their lines.
    """
    reported = found[:_MOST_REPORTED]
    lines = places([one.paths[0] for one in reported]) if reported else {}
    for one in reported:
        again = f" (here and in {len(one.paths) - 1} more places)" if len(one.paths) > 1 else ""
        hint = f"; {one.hint}" if one.hint else ""
        message = f"{lines[one.paths[0]]}: {one.type} has no field {one.name:.60}{again}{hint}"
        yield Finding("warning", f"{one.paths[0]:.300}", message, code, lines[one.paths[0]])
    if len(found) > len(reported):
        more = len(found) - len(reported)
        yield Finding("warning", str(source), f"{source}: {more} more unknown fields", code, source)
