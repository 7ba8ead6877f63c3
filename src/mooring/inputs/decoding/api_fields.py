"""Unknown fields of pods, of workloads and of a kubelet's configuration, each with the nearest known one.

The API server and the kubelet ignore such a field where they decode leniently, and refuse it where they are strict.
The table of fields is ``api_fields.txt``; its sources are named there.

Values of a KubeletConfiguration that no kubelet takes, each with its place and the nearest value that one does.

The kubelet's own checks (:mod:`mooring.engine.node`) refuse most of them at the start, in its words; those name
neither a line nor what may have been meant. Nothing here changes what the kubelet does.

Source: k8s.io/kubelet/config/v1beta1 at v0.37.1; strconv.ParseBool of Go.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias

from mooring.engine.core.cpuset import CPUSet, CPUSetSyntaxError
from mooring.engine.core.machine import Finding, SourcePlace
from mooring.engine.core.quantity import Quantity, QuantitySyntaxError
from mooring.engine.core.release import EXTENSION_GATES, SWITCHES
from mooring.engine.releases import config_fields
from mooring.engine.releases.catalog import minor_of
from mooring.engine.releases.config_fields import READ_FIELDS, Holds
from mooring.engine.releases.gate_history import ALWAYS_ON, GATE_HISTORY
from mooring.engine.releases.gates import CPU_OPTION_HISTORY, TOPOLOGY_OPTION_HISTORY
from mooring.inputs.decoding.fields import nearest
from mooring.inputs.decoding.quantities import QUANTITY_REMEDY
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


UNKNOWN_VALUE: Final = "MOOR-515"
_GATES: Final = frozenset({*GATE_HISTORY, *SWITCHES.values(), *(name for name, _ in EXTENSION_GATES.values())})
_NUMBER: Final = "max-allowable-numa-nodes"
_DELAY: Final = "scale-delay-time"
_OPTIONS: Final[Mapping[str, frozenset[str]]] = {
    config_fields.CPU_OPTIONS: frozenset({*CPU_OPTION_HISTORY, _DELAY}),
    config_fields.TOPOLOGY_OPTIONS: frozenset(TOPOLOGY_OPTION_HISTORY),
}
_TRUTHS: Final = frozenset({"1", "t", "T", "TRUE", "true", "True", "0", "f", "F", "FALSE", "false", "False"})
_SPOKEN: Final = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}


def value_findings(fields: Mapping[str, Any], within: str, places: Places) -> Iterator[Finding]:
    """Yield a warning for each value that no release of the kubelet takes.

    Args:
        fields: of the configuration.
        within: the field that contains them; empty for the document itself.
        places: names the lines and columns of fields.
    """
    found = dict(value_problems(fields))
    prefix = f"{within}." if within else ""
    lines = places([prefix + field for field in found]) if found else {}
    for field, problem in found.items():
        place = lines[prefix + field]
        yield Finding("warning", prefix + field, f"{place}: {problem}", UNKNOWN_VALUE, place)


def value_problems(fields: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the path of each value that no release of the kubelet takes, with what is wrong and what may be meant."""
    for one in config_fields.POLICY_FIELDS:
        value = fields.get(one.name)
        if one.values and isinstance(value, str) and value and value not in one.values:
            yield one.name, f"{value!r:.60} is not a value; {_hint(value, one.values)}"
    for field, known in _OPTIONS.items():
        for name, value in _texts(fields, field):
            if name not in known:
                yield f"{field}.{name}", f"{name!r:.60} is not an option; {_hint(name, known)}"
            elif name not in (_NUMBER, _DELAY) and value not in _TRUTHS:
                meant = _SPOKEN.get(value.lower())
                remedy = f'did you mean "{meant}"?' if meant else 'write "true" or "false"'
                yield f"{field}.{name}", f"{value!r:.60} is not a truth value; {remedy}"
    gates = fields.get("featureGates")
    for name in gates if isinstance(gates, dict) else ():
        if name not in _GATES and name in ALWAYS_ON:
            yield f"featureGates.{name}", f"{name!r} is no feature gate any more: always on since {ALWAYS_ON[name]}"
        elif name not in _GATES:
            yield f"featureGates.{name}", f"{name!r:.60} is not a feature gate; {_hint(name, _GATES)}"
    yield from _unreadable(fields)
    cpus = fields.get("reservedSystemCPUs")
    if isinstance(cpus, str):
        try:
            CPUSet.parse(cpus)
        except CPUSetSyntaxError:
            yield "reservedSystemCPUs", f"{cpus!r:.60} is not a list of CPUs; write one such as 0-3,8"


def _hint(value: str, known: Collection[str]) -> str:
    close = nearest(value, frozenset(known))
    if close:
        return f"did you mean {close}?"
    return f"known are {', '.join(sorted(known))}" if len(known) < 20 else "check its spelling"


def _texts(fields: Mapping[str, Any], field: str) -> Iterator[tuple[str, str]]:
    given = fields.get(field)
    if isinstance(given, dict):
        yield from ((name, value) for name, value in given.items() if isinstance(value, str))


def _unreadable(fields: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for field, one in READ_FIELDS.items():
        for name, value in _texts(fields, field) if one.holds in (Holds.AMOUNTS, Holds.THRESHOLDS) else ():
            try:
                if one.holds is Holds.AMOUNTS or not value.endswith("%"):
                    Quantity.parse(value)
            except QuantitySyntaxError:
                yield f"{field}.{name}", f"{value!r:.60} is not a quantity; {QUANTITY_REMEDY}"


def ended_gate(gate: str, release: str) -> str:
    """Return how a gate ended that a release lacks; empty for one that it does not have yet, or that none has."""
    if gate in ALWAYS_ON:
        return f"always on since {ALWAYS_ON[gate]}"
    stages = [one.split(" ", 1) for one in GATE_HISTORY.get(gate, "").split(", ")]
    if len(stages) < 2 or stages[-1][1] != "removed" or (minor_of(stages[-1][0]) or 0) > (minor_of(release) or 0):
        return ""
    on = [since for since, stage in stages if stage.startswith("GA on")]
    return f"always on since {on[0]}{' or earlier' * (on[0] == '1.31')}" if on else f"gone since {stages[-1][0]}"
