"""KubeletConfiguration v1beta1 to a value.

Only types are checked here. Whether a policy, an option, a gate or a reservation makes sense is for the
kubelet's own checks (:mod:`mooring.engine.node`), which need the texts as they were written.

Source of the field names: k8s.io/kubelet/config/v1beta1 at v0.37.1. Only :data:`READ` decides anything here; the others
are known so that a misspelt name is distinguished from one that does not matter.

Values of a KubeletConfiguration that no kubelet takes, each with its place and the nearest value that one does.

The kubelet's own checks (:mod:`mooring.engine.node`) refuse most of them at the start, in its words; those name
neither a line nor what may have been meant. Nothing here changes what the kubelet does.

Source: k8s.io/kubelet/config/v1beta1 at v0.37.1; strconv.ParseBool of Go.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final

from mooring.engine.core.config import CheckedFields, KubeletConfig, ReservedMemory, may_be_off
from mooring.engine.core.cpuset import CPUSet, CPUSetSyntaxError
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding, SourcePlace
from mooring.engine.core.quantity import Quantity, QuantitySyntaxError
from mooring.engine.core.release import EXTENSION_GATES, NEWEST, SWITCHES, Release
from mooring.engine.releases import config_fields
from mooring.engine.releases.catalog import minor_of
from mooring.engine.releases.config_fields import CHECKED_FIELDS, FIELDS, FIELDS_SINCE, READ_FIELDS, Holds, later_fields
from mooring.engine.releases.gate_history import ALWAYS_ON, GATE_HISTORY
from mooring.engine.releases.gates import CPU_OPTION_HISTORY, TOPOLOGY_OPTION_HISTORY
from mooring.inputs.decoding import api_fields
from mooring.inputs.decoding import fields as reading
from mooring.inputs.decoding.api_fields import Places, fields_of, unknown_fields, unknown_findings
from mooring.inputs.decoding.fields import Report, list_at, mapping_at, nearest, text_at, texts_at, within
from mooring.inputs.decoding.quantities import QUANTITY_REMEDY, nanoseconds, not_a_quantity, quantity_text

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


KIND = "KubeletConfiguration"
API_VERSION = "kubelet.config.k8s.io/v1beta1"
CONFIGZ = "kubeletconfig"
"""The single key around the configuration that a kubelet prints under ``/configz``."""
SHOWN_DEFAULTS: Mapping[str, Any] = {
    "crashLoopBackOff": {"maxContainerRestartPeriod": "5m0s"},
    "imagePullCredentialsVerificationPolicy": "NeverVerifyPreloadedImages",
}
"""Fields that ``/configz`` shows with their defaults, and that kubelets whose gate is off refuse."""


def is_kubelet_config(content: Mapping[str, Any]) -> bool:
    """Tell whether a document is a kubelet's configuration: by its kind, from ``/configz``, or as bare fields."""
    if "kind" in content:
        return bool(content["kind"] == KIND)
    return set(content) == {CONFIGZ} or not KNOWN.isdisjoint(content)


def kubelet_config(
    content: Mapping[str, Any],
    *,
    source: str | SourcePlace,
    report: Report = reading.ignore,
    release: Release = NEWEST,
    places: Places | None = None,
) -> KubeletConfig:
    """Return the fields that the managers read; fields that the kubelet does not know are reported.

    Args:
        content: the document.
        source: where it is from, for messages.
        report: receives findings.
        release: of the kubelet; older ones do not know all fields.
        places: names the lines of fields; without it they are reported with ``source``.

    Raises:
        InputError: another version, or a value of the wrong type.

    >>> kubelet_config({"cpuManagerPolicy": "static"}, source="example").cpu_manager_policy
    'static'
    """
    place = SourcePlace(source) if isinstance(source, str) else source
    with within(source=str(place)):
        wrapper = CONFIGZ if set(content) == {CONFIGZ} else ""
        fields = mapping_at(content, wrapper) if wrapper else content
        reading.check_version(fields, API_VERSION)
        lines = places or (lambda paths: dict.fromkeys(paths, place))
        unknown = unknown_fields([(KIND, fields, wrapper)])
        for finding in unknown_findings(unknown, api_fields.UNKNOWN_CONFIGURATION_FIELD, place, lines):
            report(finding)
        for finding in value_findings(fields, wrapper, places) if places else ():
            report(finding)
        report_later(fields, place, report, release)
        return config_of_fields(fields)


def config_of_fields(fields: Mapping[str, Any]) -> KubeletConfig:
    """Return the fields that the managers read, without a check of the version or of unknown fields.

    Raises:
        InputError: a value of the wrong type; it names the field alone.
    """
    fields = with_empty_texts(fields)
    members = {}
    for name, one in READ_FIELDS.items():
        default = one.of(_DEFAULTS)
        value = _READERS[one.holds](fields, name, default)
        members[one.member] = default if one.zero_is_default and not value else value
    values = {}
    for one in CHECKED_FIELDS:
        above, _, name = one.name.rpartition(".")
        parent = mapping_at(fields, above) if above else fields
        if parent.get(name) is not None:
            with within(above):
                values[one.name] = _READERS[one.holds](parent, name, None)
    return KubeletConfig(
        **members,
        checked=CheckedFields(
            values=values,
            null_duration=any(fields.get(name, "") is None for name in DURATIONS),
            cpu_options_empty=_is_empty_behind_gate(fields, config_fields.CPU_OPTIONS),
            topology_options_empty=_is_empty_behind_gate(fields, config_fields.TOPOLOGY_OPTIONS),
        ),
    )


def with_empty_texts(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a file's fields as Go decodes a null in a mapping of strings: as the empty string.

    >>> with_empty_texts({"kubeReserved": {"cpu": None}})
    {'kubeReserved': {'cpu': ''}}
    """
    decoded = dict(fields)
    for name in _MAPS & fields.keys():
        if isinstance(fields[name], dict) and None in fields[name].values():
            decoded[name] = {key: "" if value is None else value for key, value in fields[name].items()}
    return decoded


def _is_empty_behind_gate(fields: Mapping[str, Any], field: str) -> bool:
    gate = READ_FIELDS[field].gate
    return fields.get(field) == {} and may_be_off(mapping_at(fields, "featureGates"), gate)


def _number(fields: Mapping[str, Any], field: str) -> float:
    value = fields[field]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise reading.wrong_kind(value, "a number", field)
    return float(value)


def report_later(fields: Mapping[str, Any], source: SourcePlace, report: Report, release: Release) -> None:
    """Report the fields that a release does not have yet."""
    for name in sorted(later_fields(release.name) & set(fields)):
        problem = f"kubelet {release.name} does not have the field {name} yet and ignores it"
        message = f"{source}: {problem}; it came with {FIELDS_SINCE[name]}"
        report(Finding("warning", name, message, "MOOR-501", source))


def _duration(fields: Mapping[str, Any], field: str, default: int) -> int:
    text = text_at(fields, field)
    if not text and fields.get(field) is None:
        return default
    with within(field):
        return nanoseconds(text)


def _feature_gates(fields: Mapping[str, Any], field: str) -> dict[str, bool]:
    gates = mapping_at(fields, field)
    for name, value in gates.items():
        if not isinstance(value, bool):
            raise reading.wrong_kind(value, "true or false", f"{field}.{name}")
    return gates


def _limits(entry: Mapping[str, Any]) -> dict[str, str]:
    limits = {}
    for name, value in mapping_at(entry, "limits").items():
        try:
            limits[name] = quantity_text(value)
            Quantity.parse(limits[name])
        except InputError as error:
            raise reading.inside(error, f"limits.{name}") from None
        except QuantitySyntaxError as error:
            raise not_a_quantity(value, error, f"limits.{name}") from None
    return limits


def _texts_at(fields: Mapping[str, Any], field: str, _default: object) -> dict[str, str]:
    return texts_at(fields, field)


_READERS: Final[Mapping[Holds, Callable[[Mapping[str, Any], str, Any], Any]]] = {
    Holds.TEXT: text_at,
    Holds.POLICY: text_at,
    Holds.CPUS: text_at,
    Holds.FLAG: lambda fields, name, default: reading.flag_at(fields, name, default=default),
    Holds.COUNT: reading.count_at,
    Holds.NUMBER: lambda fields, name, _: _number(fields, name),
    Holds.DURATION: _duration,
    Holds.LIST: lambda fields, name, _: list_at(fields, name),
    Holds.TEXTS: lambda fields, name, _: [text_at({name: one}, name) for one in list_at(fields, name)],
    Holds.OPTIONS: _texts_at,
    Holds.AMOUNTS: _texts_at,
    Holds.MINIMA: _texts_at,
    Holds.THRESHOLDS: lambda fields, name, _: None if fields.get(name) is None else texts_at(fields, name),
    Holds.DURATIONS: lambda fields, name, _: {
        key: _duration(periods, key, 0) for periods in [texts_at(fields, name)] for key in periods
    },
    Holds.GATES: lambda fields, name, _: _feature_gates(fields, name),
    Holds.MEMORY: lambda fields, name, _: tuple(
        reading.each_at(
            fields, name, lambda entry: ReservedMemory(reading.count_at(entry, "numaNode", 0), _limits(entry))
        )
    ),
    Holds.OBJECT: lambda fields, name, _: mapping_at(fields, name),
}
"""What a field holds -> how it is read."""
_DEFAULTS: Final = KubeletConfig()
_MAPS: Final = frozenset(one.name for one in FIELDS if one.holds in config_fields.MAPS_OF_TEXTS)

READ = frozenset(READ_FIELDS)
"""Fields that the resource managers read (spec: configuration.md section 1)."""

_DURATIONS = """
    syncFrequency fileCheckFrequency httpCheckFrequency streamingConnectionIdleTimeout nodeStatusUpdateFrequency
    nodeStatusReportFrequency imageMinimumGCAge imageMaximumGCAge volumeStatsAggPeriod cpuManagerReconcilePeriod
    runtimeRequestTimeout evictionPressureTransitionPeriod shutdownGracePeriod shutdownGracePeriodCriticalPods
"""
DURATIONS = frozenset(_DURATIONS.split())
"""Fields of a duration that cannot be absent in Go: a file with null there is not decoded."""

KNOWN = frozenset(fields_of(KIND))
"""Every field of the type."""


def ended_gate(gate: str, release: str) -> str:
    """Return how a gate ended that a release lacks; empty for one that it does not have yet, or that none has."""
    if gate in ALWAYS_ON:
        return f"always on since {ALWAYS_ON[gate]}"
    stages = [one.split(" ", 1) for one in GATE_HISTORY.get(gate, "").split(", ")]
    if len(stages) < 2 or stages[-1][1] != "removed" or (minor_of(stages[-1][0]) or 0) > (minor_of(release) or 0):
        return ""
    on = [since for since, stage in stages if stage.startswith("GA on")]
    return f"always on since {on[0]}{' or earlier' * (on[0] == '1.31')}" if on else f"gone since {stages[-1][0]}"
