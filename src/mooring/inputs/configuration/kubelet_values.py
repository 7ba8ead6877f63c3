"""Values of a KubeletConfiguration that no kubelet takes, each with its place and the nearest value that one does.

The kubelet's own checks (:mod:`mooring.engine.node`) refuse most of them at the start, in its words; those name
neither a line nor what may have been meant. Nothing here changes what the kubelet does.

Source: k8s.io/kubelet/config/v1beta1 at v0.37.1; strconv.ParseBool of Go.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final

from mooring.engine.core.cpuset import CPUSet, CPUSetSyntaxError
from mooring.engine.core.gates import EXTENSION_GATES, SWITCHES
from mooring.engine.core.machine import Finding
from mooring.engine.core.quantity import Quantity, QuantitySyntaxError
from mooring.engine.releases.gate_history import ALWAYS_ON, GATE_HISTORY
from mooring.engine.releases.gates import CPU_OPTION_HISTORY, TOPOLOGY_OPTION_HISTORY
from mooring.inputs.decoding.api_fields import Places
from mooring.inputs.decoding.fields import nearest
from mooring.inputs.decoding.quantities import QUANTITY_REMEDY

UNKNOWN_VALUE: Final = "MOOR-515"
_CHOICES: Final[Mapping[str, frozenset[str]]] = {
    "cpuManagerPolicy": frozenset({"none", "static"}),
    "memoryManagerPolicy": frozenset({"None", "Static"}),
    "topologyManagerPolicy": frozenset({"none", "best-effort", "restricted", "single-numa-node"}),
    "topologyManagerScope": frozenset({"container", "pod"}),
}
_GATES: Final = frozenset({*GATE_HISTORY, *SWITCHES.values(), *(name for name, _ in EXTENSION_GATES.values())})
_NUMBER: Final = "max-allowable-numa-nodes"
_DELAY: Final = "scale-delay-time"
_OPTIONS: Final[Mapping[str, frozenset[str]]] = {
    "cpuManagerPolicyOptions": frozenset({*CPU_OPTION_HISTORY, _DELAY}),
    "topologyManagerPolicyOptions": frozenset(TOPOLOGY_OPTION_HISTORY),
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
        yield Finding("warning", prefix + field, f"{lines[prefix + field]}: {problem}", UNKNOWN_VALUE)


def value_problems(fields: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the path of each value that no release of the kubelet takes, with what is wrong and what may be meant."""
    for field, known in _CHOICES.items():
        value = fields.get(field)
        if isinstance(value, str) and value and value not in known:
            yield field, f"{value!r:.60} is not a value; {_hint(value, known)}"
    for field, known in _OPTIONS.items():
        for name, value in _texts(fields, field):
            if name not in known:
                yield f"{field}.{name}", f"{name!r:.60} is not an option; {_hint(name, known)}"
            elif name not in (_NUMBER, _DELAY) and value not in _TRUTHS:
                meant = _SPOKEN.get(value.lower())
                yield f"{field}.{name}", f"{value!r:.60} is not a truth value; " + _spoken(meant)
    gates = fields.get("featureGates")
    for name in gates if isinstance(gates, dict) else ():
        if name not in _GATES and name in ALWAYS_ON:
            yield f"featureGates.{name}", f"{name!r} is no feature gate any more: always on since {ALWAYS_ON[name]}"
        elif name not in _GATES:
            yield f"featureGates.{name}", f"{name!r:.60} is not a feature gate; {_hint(name, _GATES)}"
    yield from _unreadable(fields, "kubeReserved", Quantity.parse)
    yield from _unreadable(fields, "systemReserved", Quantity.parse)
    yield from _unreadable(fields, "evictionHard", _threshold)
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


def _spoken(meant: str | None) -> str:
    return f'did you mean "{meant}"?' if meant else 'write "true" or "false"'


def _texts(fields: Mapping[str, Any], field: str) -> Iterator[tuple[str, str]]:
    given = fields.get(field)
    if isinstance(given, dict):
        yield from ((name, value) for name, value in given.items() if isinstance(value, str))


def _unreadable(fields: Mapping[str, Any], field: str, parse: Callable[[str], object]) -> Iterator[tuple[str, str]]:
    for name, value in _texts(fields, field):
        try:
            parse(value)
        except QuantitySyntaxError:
            yield f"{field}.{name}", f"{value!r:.60} is not a quantity; {QUANTITY_REMEDY}"


def _threshold(text: str) -> object:
    return text if text.endswith("%") else Quantity.parse(text)
