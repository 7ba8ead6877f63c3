"""The kubelet's command line: what of it decides, and how it changes a configuration file.

Source: kubelet v1.37.1, cmd/kubelet/app/options; a flag wins over the configuration file, and feature gates of both are
put together. Names of all flags:
https://kubernetes.io/docs/reference/command-line-tools-reference/kubelet/
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from mooring.engine.releases.config_fields import FIELDS, Holds, KubeletField
from mooring.engine.releases.flags import is_lasting

_Reading: TypeAlias = Callable[[str], Any]


def _pairs(text: str, sign: str = "=") -> dict[str, str]:
    parts = (part.partition(sign) for part in text.split(",") if part.strip())
    return {name.strip(): value.strip() for name, _, value in parts}


def _signals(text: str) -> dict[str, str]:
    return _pairs(text, "<")


def _truth(text: str) -> bool:
    return text.lower() in ("", "1", "t", "true")


def _gates(text: str) -> dict[str, bool]:
    return {name: _truth(value) for name, value in _pairs(text).items()}


def _listed(text: str) -> list[str]:
    return text.split(",") if text else []


def _count(text: str) -> int | str:
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 10 else text


def _reserved_memory(text: str) -> list[dict[str, Any]]:
    entries = []
    for part in text.split(";"):
        node, _, limits = part.partition(":")
        if node.strip():
            entries.append({"numaNode": _count(node.strip()), "limits": _pairs(limits)})
    return entries


_READINGS: Final[Mapping[Holds, _Reading]] = {
    Holds.FLAG: _truth,
    Holds.COUNT: _count,
    Holds.TEXTS: _listed,
    Holds.THRESHOLDS: _signals,
    Holds.GATES: _gates,
    Holds.MEMORY: _reserved_memory,
    **dict.fromkeys((Holds.OPTIONS, Holds.AMOUNTS, Holds.MINIMA, Holds.DURATIONS), _pairs),
}
"""What a field holds -> how a flag's text is read, where it is not the value itself."""
_FIELDS: Final[Mapping[str, KubeletField]] = {one.flag: one for one in FIELDS if one.flag}
_PLACES: Final = {"config": "config", "config-dir": "config_dir", "root-dir": "root_dir", "hostname-override": "node"}
_SWITCHES: Final = frozenset(flag for flag, one in _FIELDS.items() if one.holds is Holds.FLAG)
"""Flags that need no value."""


@dataclass(frozen=True, slots=True)
class KubeletFlags:
    """What a kubelet's command line says about its decisions, and where it looks for more."""

    config: str = ""
    config_dir: str = ""
    root_dir: str = ""
    node: str = ""
    """The node's name, where it is not the computer's."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Fields of a KubeletConfiguration."""
    positions: Mapping[str, int] = field(default_factory=dict)
    """Field -> number of the last argument that sets it, counted from 0."""
    leaving: Mapping[str, int] = field(default_factory=dict)
    """Flag as it is written, with its dashes, that not every release has -> number of its first argument."""

    def over(self, configuration: Mapping[str, Any]) -> dict[str, Any]:
        """Return a configuration as the flags change it.

        >>> flags = kubelet_flags(["--max-pods=250", "--feature-gates=A=true"])
        >>> flags.over({"maxPods": 110, "featureGates": {"B": False}})
        {'maxPods': 250, 'featureGates': {'B': False, 'A': True}}
        """
        merged = {**configuration, **self.fields}
        of_file, of_flags = configuration.get("featureGates"), self.fields.get("featureGates")
        if isinstance(of_file, dict) and isinstance(of_flags, dict):
            merged["featureGates"] = {**of_file, **of_flags}
        return merged


def kubelet_flags(arguments: Iterable[str]) -> KubeletFlags:
    """Return what decides among a kubelet's arguments; everything else is ignored.

    >>> kubelet_flags(["--config", "/etc/kubelet.yaml", "--reserved_cpus=0-1", "--v=2"]).fields
    {'reservedSystemCPUs': '0-1'}
    """
    fields: dict[str, Any] = {}
    places: dict[str, str] = {}
    positions: dict[str, int] = {}
    leaving: dict[str, int] = {}
    arguments = list(arguments)
    for position, written, value in _named(arguments):
        name = written.lstrip("-").replace("_", "-")
        if not is_lasting(written):
            # The kubelet's text about letters has the whole argument.
            leaving.setdefault(written if written.startswith("--") else arguments[position], position)
        if name in _PLACES:
            places[_PLACES[name]] = value
        elif name in _FIELDS:
            target = _FIELDS[name].name
            read_value = _READINGS.get(_FIELDS[name].holds, str)(value)
            earlier = fields.get(target)
            positions[target] = position
            # Flags that hold several values may be repeated.
            if isinstance(earlier, dict):
                fields[target] = {**earlier, **read_value}
            elif isinstance(earlier, list):
                fields[target] = [*earlier, *read_value]
            else:
                fields[target] = read_value
    return KubeletFlags(**places, fields=fields, positions=positions, leaving=leaving)


def _named(arguments: list[str]) -> Iterable[tuple[int, str, str]]:
    """Yield flags as they are written with their positions and values, which may be in one argument or in two."""
    index = 0
    while index < len(arguments):
        position, argument = index, arguments[index]
        index += 1
        if not argument.startswith("-"):
            continue
        written, equals, value = argument.partition("=")
        name = written.lstrip("-").replace("_", "-")
        if not equals and name not in _SWITCHES and index < len(arguments) and not arguments[index].startswith("-"):
            value = arguments[index]
            index += 1
        yield position, written, value


def merged_configuration(base: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration after a file of ``--config-dir``: a JSON merge patch (RFC 7386).

    >>> merged_configuration({"a": 1, "b": {"x": 1}}, {"a": None, "b": {"y": 2}})
    {'b': {'x': 1, 'y': 2}}
    """
    merged = dict(base)
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, dict):
            below = merged.get(name)
            merged[name] = merged_configuration(below if isinstance(below, dict) else {}, value)
        else:
            merged[name] = value
    return merged
