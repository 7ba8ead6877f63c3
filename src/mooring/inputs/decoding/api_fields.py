"""Fields of Kubernetes objects: unknown ones, each with the nearest known one, and resource lists and durations.

The API server and the kubelet ignore an unknown field where they decode leniently, and refuse it where they are strict.
The table of fields is ``api_fields.txt``; its sources are named there. Names, quantities and spans of time are read as
the API server and the kubelet take them: API server v1.37.1, decoding of Quantity and SetDefaults_ResourceList; Go's
time.ParseDuration.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeAlias

from mooring.engine.core.errors import InputError
from mooring.engine.core.gotext import INT64_MAX
from mooring.engine.core.machine import Finding, SourcePlace
from mooring.engine.core.quantity import FORMAT_WRONG, Quantity, QuantitySyntaxError
from mooring.inputs.decoding.fields import nearest, number_text, wrong_kind
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


NANOS_PER_MILLI = 10**6
HUGE_PAGES = "hugepages-"
"""Beginning of the name of a pool of huge pages; the size of its pages follows."""
QUANTITY_REMEDY = 'write one such as 2, "500m" or 4Gi'


def resource_list(parent: Mapping[str, Any], field: str) -> dict[str, Quantity]:
    """Return the resource list in ``field``; absent and null are empty.

    Raises:
        InputError: it is no mapping, or holds something that is no quantity.
    """
    given = parent.get(field)
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise wrong_kind(given, "a mapping", field)
    quantities = {}
    for name, value in given.items():
        try:
            quantities[name] = _stored(value if isinstance(value, str) else quantity_text(value))
        except InputError as error:
            raise InputError(error.problem, field=f"{field}.{name}", remedy=error.remedy) from None
        except QuantitySyntaxError as error:
            raise not_a_quantity(value, error, f"{field}.{name}") from None
    return quantities


def saturated(amounts: Mapping[str, Quantity]) -> dict[str, Quantity]:
    """Return amounts as kubelets from 1.38 on hold them (:meth:`Quantity.saturated`)."""
    return {name: amount.saturated(NANOS_PER_MILLI if name == "cpu" else 10**9) for name, amount in amounts.items()}


def not_a_quantity(value: object, error: QuantitySyntaxError, field: str) -> InputError:
    """Return the error for a value that is no quantity; the pattern that Kubernetes prints for it is left out.

    >>> print(not_a_quantity("2 cores", QuantitySyntaxError(FORMAT_WRONG), "cpu"))
    cpu: '2 cores' is not a quantity; write one such as 2, "500m" or 4Gi
    """
    reason = "" if str(error) == FORMAT_WRONG else f": {error}"
    return InputError(f"{value!r:.60} is not a quantity{reason}", field=field, remedy=QUANTITY_REMEDY)


def quantity_text(value: object) -> str:
    """Return the text of a quantity that may be written as a number.

    Raises:
        InputError: the value is neither a text nor a number.

    >>> quantity_text(0.5), quantity_text(" 2Gi ")
    ('0.5', '2Gi')
    """
    if isinstance(value, str):
        # Spaces around a quantity are tolerated where it is decoded, and nowhere else.
        return value.strip(" \t\r\n")
    if value is None:
        return "0"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_kind(value, "a quantity", "")
    return number_text(value)


@lru_cache(maxsize=4096)
def _stored(text: str) -> Quantity:
    return Quantity.parse(quantity_text(text)).stored()


_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_PART = re.compile(r"([0-9]{0,30})(?:\.([0-9]{0,30}))?(ns|us|µs|μs|ms|s|m|h)", re.ASCII)


def nanoseconds(text: str) -> int:
    """Return the span in nanoseconds.

    Source: Go's time.ParseDuration, behind every duration of a KubeletConfiguration.

    Raises:
        InputError: the text is no duration, or longer than 292 years.

    >>> nanoseconds("100ms"), nanoseconds("1m0.5s")
    (100000000, 60500000000)
    """
    size = text[1:] if text[:1] in ("+", "-") else text
    if size == "0":
        return 0
    total = end = 0
    while end < len(size):
        part = _PART.match(size, end)
        if part is None or not (part[1] or part[2]):
            break
        unit = _UNITS[part[3]]
        fraction = part[2] or "0"
        total += int(part[1] or "0") * unit + int(fraction) * unit // 10 ** len(fraction)
        end = part.end()
    if not size or end < len(size) or total > INT64_MAX:
        raise InputError(f"{text[:40]!r} is not a duration", remedy="write one such as 10s or 100ms")
    return -total if text[0] == "-" else total
