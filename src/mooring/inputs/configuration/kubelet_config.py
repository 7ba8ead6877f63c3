"""KubeletConfiguration v1beta1 to a value.

Only types are checked here. Whether a policy, an option, a gate or a reservation makes sense is for the
kubelet's own checks (:mod:`mooring.engine.node`), which need the texts as they were written.

Source of the field names: k8s.io/kubelet/config/v1beta1 at v0.37.1. Only :data:`READ` decides anything here; the others
are known so that a misspelt name is distinguished from one that does not matter.

Layers, the configuration from several places: which wins, and where each value is from. Later tiers win, in the order
of :class:`Tier`; within a tier what was given later wins. Files and drop-ins are JSON merge patches (RFC 7386):
mappings merge key by key, lists and plain values are replaced, null removes. A flag replaces its field as a whole; only
feature gates of flags and files are put together.

Source: kubelet v1.37.1, cmd/kubelet/app/server.go (loadConfigFile, mergeKubeletConfigurations,
kubeletConfigFlagPrecedence); https://kubernetes.io/docs/reference/node/kubelet-config-directory-merging/
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any, Final, TypeAlias

from mooring.engine.core.config import CheckedFields, GivenFlag, KubeletConfig, ReservedMemory, may_be_off
from mooring.engine.core.machine import Finding, SourcePlace
from mooring.engine.core.release import NEWEST, Release
from mooring.engine.node.reservation import DEFAULT_EVICTION_HARD
from mooring.engine.releases import config_fields
from mooring.engine.releases.config_fields import CHECKED_FIELDS, FIELDS, FIELDS_SINCE, READ_FIELDS, Holds, later_fields
from mooring.inputs.configuration.kubelet_flags import merged_configuration, repeated
from mooring.inputs.decoding import api_fields
from mooring.inputs.decoding import fields as reading
from mooring.inputs.decoding.api_fields import Places, fields_of, unknown_fields, unknown_findings, value_findings
from mooring.inputs.decoding.fields import Report, list_at, mapping_at, text_at, texts_at, within
from mooring.inputs.decoding.quantities import nanoseconds, quantity_of, quantity_text
from mooring.lazy import dataclass, field

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


def _reserved(entry: Mapping[str, Any]) -> ReservedMemory:
    node, limits = reading.count_at(entry, "numaNode", 0), {}
    for name, value in mapping_at(entry, "limits").items():
        quantity_of(value, f"limits.{name}")
        limits[name] = quantity_text(value)
    return ReservedMemory(node, limits)


_READERS: Final[Mapping[Holds, Callable[[Mapping[str, Any], str, Any], Any]]] = {
    **dict.fromkeys((Holds.TEXT, Holds.POLICY, Holds.CPUS), text_at),
    Holds.FLAG: lambda fields, name, default: reading.flag_at(fields, name, default=default),
    Holds.COUNT: reading.count_at,
    Holds.NUMBER: lambda fields, name, _: _number(fields, name),
    Holds.DURATION: _duration,
    Holds.LIST: lambda fields, name, _: list_at(fields, name),
    Holds.TEXTS: lambda fields, name, _: [text_at({name: one}, name) for one in list_at(fields, name)],
    **dict.fromkeys((Holds.OPTIONS, Holds.AMOUNTS, Holds.MINIMA), lambda fields, name, _: texts_at(fields, name)),
    Holds.THRESHOLDS: lambda fields, name, _: None if fields.get(name) is None else texts_at(fields, name),
    Holds.DURATIONS: lambda fields, name, _: {
        key: _duration(periods, key, 0) for periods in [texts_at(fields, name)] for key in periods
    },
    Holds.GATES: lambda fields, name, _: _feature_gates(fields, name),
    Holds.MEMORY: lambda fields, name, _: tuple(reading.each_at(fields, name, _reserved)),
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


_EVICTION: Final = "evictionHard"
_MERGES: Final = "mergeDefaultEvictionSettings"
_GATES: Final = "featureGates"


class Tier(IntEnum):
    """A step of precedence, the weakest first."""

    VENDOR_FILE = 0
    """What a vendor writes into the kubelet's file."""
    FILE = 1
    """The kubelet's file."""
    VENDOR_DROP_IN = 2
    """What a vendor writes into the folder of ``--config-dir``."""
    DROP_IN = 3
    """Files of the folder of ``--config-dir``."""
    FLAGS = 4
    """The command line."""


@dataclass(frozen=True, slots=True)
class FieldPlace:
    """Where a field was set."""

    source: SourcePlace
    """File and line, or the name of a vendor's default."""
    field: str
    """As it is written there, such as ``spec.kubelet.config.maxPods``."""

    def __str__(self) -> str:
        """Return the line, or where none is known the field.

        >>> [str(FieldPlace(SourcePlace("kubelet.yaml", line), "maxPods")) for line in (4, 0)]
        ['kubelet.yaml:4', 'kubelet.yaml: maxPods']
        """
        return f"{self.source}" if self.source.line or not self.field else f"{self.source}: {self.field}"


Formula: TypeAlias = Callable[[Mapping[str, Any]], tuple[int, bool]]
"""Returns the bytes that a vendor computes from the fields in force, and whether these decide. Where they do not, it is
what every node of the vendor has, 0 if that is not known either."""


@dataclass(frozen=True, slots=True)
class Layer:
    """What one place says about the kubelet's configuration."""

    tier: Tier
    fields: Mapping[str, Any]
    """Fields of a KubeletConfiguration."""
    place: Callable[[str], FieldPlace]
    """Returns where a field is set; keys of a mapping are after a dot: ``kubeReserved.cpu``."""
    vendor: str = ""
    """Whose file it is; empty for the kubelet's own."""
    built_in: bool = False
    """Whether no file says so, but the vendor's documentation."""
    reads: Mapping[Tier, str] = field(default_factory=dict)
    """Files and folders that flags name: the kubelet reads these too."""
    flags: tuple[GivenFlag, ...] = ()
    """Flags that not every release has."""
    computed: Mapping[str, tuple[Finding, Formula]] = field(default_factory=dict)
    """Fields that the vendor computes on the node, each with what is reported unless another layer sets it."""

    def says(self, path: str) -> Any:
        """Return the value of a field or of a key of one."""
        name, _, key = path.partition(".")
        value = self.fields.get(name)
        return value.get(key) if key and isinstance(value, Mapping) else value

    def sets(self, path: str) -> bool:
        """Tell whether the layer decides a field or a key of one: a flag replaces all keys.

        >>> fields = {"kubeReserved": {"cpu": "1"}}
        >>> nowhere = FieldPlace(SourcePlace(""), "")
        >>> layers = [Layer(tier, fields, lambda _: nowhere) for tier in (Tier.FILE, Tier.FLAGS)]
        >>> [layer.sets("kubeReserved.memory") for layer in layers]
        [False, True]
        """
        name, _, key = path.partition(".")
        value = self.fields.get(name)
        if not key or self.tier is Tier.FLAGS:
            return name in self.fields
        return isinstance(value, Mapping) and key in value


@dataclass(frozen=True, slots=True)
class EffectiveField:
    """One value of the configuration in force."""

    name: str
    value: Any
    place: FieldPlace

    @property
    def shown(self) -> str:
        """The value as a file would have it."""
        return self.value if isinstance(self.value, str) else json.dumps(self.value)


def merged_layers(layers: Iterable[Layer], *, has_file: bool, release: Release = NEWEST) -> dict[str, Any]:
    """Return the fields in force.

    Args:
        layers: in the order in which they were given.
        has_file: whether the kubelet runs with ``--config``: only then it has default eviction thresholds.
        release: of the kubelet.
    """
    tiers: dict[Tier, list[Layer]] = {tier: [] for tier in Tier}
    for layer in layers:
        tiers[layer.tier].append(layer)
    fields: dict[str, Any] = {}
    for layer in (*tiers[Tier.VENDOR_FILE], *tiers[Tier.FILE]):
        nulls = {name: None for name in DURATIONS & layer.fields.keys() if layer.fields[name] is None}
        fields = {**merged_configuration(fields, with_empty_texts(layer.fields)), **nulls}
    patches, flags = [*tiers[Tier.VENDOR_DROP_IN], *tiers[Tier.DROP_IN]], tiers[Tier.FLAGS]
    completes = not has_file or any(_EVICTION in one.fields or _MERGES in one.fields for one in [*patches, *flags])
    if not has_file:
        fields = {_EVICTION: {}, **fields}
    elif completes and fields.get(_EVICTION) is None:
        # The kubelet fills thresholds in while it reads the file.
        fields = {**fields, _EVICTION: dict(DEFAULT_EVICTION_HARD)}
    elif completes and fields.get(_MERGES) is True and _MERGES not in later_fields(release.name):
        given = fields[_EVICTION]
        fields = {**fields, _EVICTION: {**DEFAULT_EVICTION_HARD, **given} if isinstance(given, dict) else given}
    for layer in patches:
        fields = merged_configuration(fields, layer.fields)
    fields = _with_flags(fields, flags)
    # Thresholds are completed while the file is read, and not again: neither drop-ins nor flags can ask for it.
    return {**fields, _EVICTION: fields.get(_EVICTION) or {}, _MERGES: False} if completes else fields


def effective_fields(
    layers: Sequence[Layer], *, has_file: bool, release: Release = NEWEST
) -> tuple[EffectiveField, ...]:
    """Return what decides of the fields in force, each with the place that set it; arguments as there.

    Keys of mappings are fields of their own. Values that no layer set, such as completed thresholds, are the kubelet's.
    """
    found, latest = [], sorted(layers, key=lambda layer: layer.tier)[::-1]
    for name, value in sorted(merged_layers(layers, has_file=has_file, release=release).items()):
        if name not in READ:
            continue
        inner = value.items() if isinstance(value, dict) else [("", value)]
        for key, part in inner:
            path = f"{name}.{key}" if key else name
            owner = next((layer for layer in latest if layer.says(path) == part and name in layer.fields), None)
            if owner is not None or part:
                place = owner.place(path) if owner else FieldPlace(SourcePlace("the kubelet's default"), "")
                found.append(EffectiveField(path, part, place))
    return tuple(found)


def _with_flags(fields: dict[str, Any], layers: Sequence[Layer]) -> dict[str, Any]:
    """Return fields under all flags, which are one command line: mappings and lists of repeated flags add up."""
    flags: dict[str, Any] = {}
    for layer in layers:
        for name, value in layer.fields.items():
            flags[name] = repeated(flags.get(name), value)
    gates = fields.get(_GATES)
    if isinstance(gates, dict) and isinstance(flags.get(_GATES), dict):
        flags[_GATES] = {**gates, **flags[_GATES]}
    return {**fields, **flags}
