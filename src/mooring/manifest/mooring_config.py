"""Mooring's own document: what a node may do beyond, or better than, kubelet v1.37.1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mooring.core.config import EXTENSIONS, FIXABLE_DEFECTS, PLUGINS, REPLACE, SAME_NODES, MooringConfig
from mooring.core.errors import InputError
from mooring.core.plugins import PluginChoice
from mooring.manifest.fields import list_at, mapping_at, nearest, text_at, wrong_kind
from mooring.manifest.plugins import plugin_choice

KIND = "MooringConfiguration"
API_VERSION = "mooring/v1alpha1"
_FIELDS = frozenset({"apiVersion", "kind", "cpuHotplug", "extensions", "fixedDefects", "pluginBudget", "plugins"})


def mooring_config(content: Mapping[str, Any], *, source: str) -> MooringConfig:
    """Return what the document switches on.

    Raises:
        InputError: another version, an unknown field, or an unknown name; the known ones are told.

    >>> sorted(mooring_config({"fixedDefects": ["odd-uncore"]}, source="example").fixed_defects)
    ['odd-uncore']
    """
    try:
        _check(content)
        extensions = _names(content, "extensions", EXTENSIONS)
        return MooringConfig(
            extensions=extensions,
            fixed_defects=_names(content, "fixedDefects", FIXABLE_DEFECTS),
            plugins=_plugins(content, extensions),
            replace_offline=_replace_offline(content),
        )
    except InputError as error:
        raise error.at(source) from None


def _check(content: Mapping[str, Any]) -> None:
    version = text_at(content, "apiVersion", API_VERSION)
    if version != API_VERSION:
        raise InputError(f"{version!r:.60} is not supported", field="apiVersion", remedy=f"write {API_VERSION}")
    for field in content:
        if field not in _FIELDS:
            raise _unknown(field, _FIELDS, "")


def _plugins(content: Mapping[str, Any], extensions: frozenset[str]) -> PluginChoice:
    # Before anything is loaded: nobody's code runs without the extension.
    if list_at(content, "plugins") and PLUGINS not in extensions:
        raise InputError("needs the extension plugins", field="plugins", remedy="name plugins among the extensions")
    return plugin_choice(content)


def _replace_offline(content: Mapping[str, Any]) -> str:
    hotplug = mapping_at(content, "cpuHotplug")
    for field in hotplug:
        if field != "replace":
            raise _unknown(field, frozenset({"replace"}), "cpuHotplug")
    rule = text_at(hotplug, "replace", SAME_NODES)
    if rule not in REPLACE:
        raise InputError(f"{rule!r:.60} is no rule", field="cpuHotplug.replace", remedy=f"write {', '.join(REPLACE)}")
    return rule


def _names(content: Mapping[str, Any], field: str, known: frozenset[str]) -> frozenset[str]:
    names = list_at(content, field)
    for index, name in enumerate(names):
        if not isinstance(name, str):
            raise wrong_kind(name, "a text", f"{field}[{index}]")
        if name not in known:
            raise _unknown(name, known, f"{field}[{index}]")
    return frozenset(names)


def _unknown(name: str, known: frozenset[str], field: str) -> InputError:
    close = nearest(name, known)
    remedy = f"did you mean {close}?" if close else f"known are {', '.join(sorted(known))}"
    return InputError(f"{name!r:.60} is not known", field=field, remedy=remedy)
