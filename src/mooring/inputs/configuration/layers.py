"""The kubelet's configuration from several places: which wins, and where each value is from.

Later tiers win, in the order of :class:`Tier`; within a tier what was given later wins. Files and drop-ins are JSON
merge patches (RFC 7386): mappings merge key by key, lists and plain values are replaced, null removes. A flag replaces
its field as a whole; only feature gates of flags and files are put together.

Source: kubelet v1.37.1, cmd/kubelet/app/server.go (loadConfigFile, mergeKubeletConfigurations,
kubeletConfigFlagPrecedence); https://kubernetes.io/docs/reference/node/kubelet-config-directory-merging/
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any, Final

from mooring.engine.core.config import GivenFlag
from mooring.engine.core.machine import Finding, SourcePlace
from mooring.engine.core.release import NEWEST, Release
from mooring.engine.node.reservation import DEFAULT_EVICTION_HARD
from mooring.engine.releases.config_fields import later_fields
from mooring.inputs.configuration.kubelet_config import DURATIONS, READ, with_empty_texts
from mooring.inputs.configuration.kubelet_flags import merged_configuration, repeated
from mooring.lazy import dataclass, field

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


@dataclass(frozen=True, slots=True)
class Computed:
    """A field that a vendor computes on the node."""

    finding: Finding
    """What is reported, unless another layer sets the field."""
    formula: Callable[[Mapping[str, Any]], int | None] = lambda _: None
    """Returns the bytes by the vendor's published formula from the fields in force; None where they do not decide."""
    least: int = 0
    """Bytes that every node of the vendor has; 0 where none are known."""


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
    computed: Mapping[str, Computed] = field(default_factory=dict)
    """Fields that the vendor sets to values that no file has."""

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
    later = [*tiers[Tier.VENDOR_DROP_IN], *tiers[Tier.DROP_IN], *tiers[Tier.FLAGS]]
    if has_file and not any(_EVICTION in layer.fields or _MERGES in layer.fields for layer in later):
        return _with_flags(_patched(fields, tiers), tiers[Tier.FLAGS])
    if not has_file:
        fields = {_EVICTION: {}, **fields}
    elif (given := fields.get(_EVICTION)) is None:
        # The kubelet fills thresholds in while it reads the file.
        fields = {**fields, _EVICTION: dict(DEFAULT_EVICTION_HARD)}
    elif fields.get(_MERGES) is True and _MERGES not in later_fields(release.name) and isinstance(given, dict):
        fields = {**fields, _EVICTION: {**DEFAULT_EVICTION_HARD, **given}}
    fields = _with_flags(_patched(fields, tiers), tiers[Tier.FLAGS])
    # Thresholds are completed while the file is read, and not again: neither drop-ins nor flags can ask for it.
    return {**fields, _EVICTION: fields.get(_EVICTION) or {}, _MERGES: False}


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


def _patched(fields: dict[str, Any], tiers: Mapping[Tier, Sequence[Layer]]) -> dict[str, Any]:
    for layer in (*tiers[Tier.VENDOR_DROP_IN], *tiers[Tier.DROP_IN]):
        fields = merged_configuration(fields, layer.fields)
    return fields


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
