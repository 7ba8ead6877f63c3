"""Mooring's own document: what a node may do beyond, or better than, kubelet v1.37.1, and with which plugins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mooring.engine.core import config
from mooring.engine.core.config import (
    BUDGET,
    MILLISECOND,
    ChosenPlugin,
    DeviceAlignment,
    DeviceAlignments,
    MooringConfig,
    PluginChoice,
    PluginPlacement,
)
from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import LocationAttributes
from mooring.engine.extensions.device_alignment import CLASSES
from mooring.inputs.decoding import fields as reading
from mooring.inputs.decoding.fields import choice_at, list_at, mapping_at, name_at, text_at, within, wrong_kind
from mooring.inputs.decoding.quantities import nanoseconds
from mooring.lazy import replace

KIND = "MooringConfiguration"
API_VERSION = "mooring/v1alpha1"
_FIELDS = frozenset({
    "apiVersion", "kind", "cpuHotplug", "deviceAlignment", "deviceAttributes", "extensions", "fixedDefects",
    "pluginBudget", "plugins",
})  # fmt: skip


def mooring_config(content: Mapping[str, Any], *, source: str) -> MooringConfig:
    """Return what the document switches on.

    Raises:
        InputError: another version, an unknown field, or an unknown name; the message lists the known ones.

    >>> sorted(mooring_config({"fixedDefects": ["odd-uncore"]}, source="example").fixed_defects)
    ['odd-uncore']
    """
    with within(source=source):
        reading.check_version(content, API_VERSION)
        for field in content:
            if field not in _FIELDS:
                raise _unknown(field, _FIELDS, field)
        extensions = _names(content, "extensions", config.EXTENSIONS)
        if list_at(content, "plugins") and config.PLUGINS not in extensions:
            raise InputError("needs the extension plugins", field="plugins", remedy="name plugins among the extensions")
        hotplug = mapping_at(content, "cpuHotplug")
        for field in hotplug:
            if field != "replace":
                raise _unknown(field, frozenset({"replace"}), f"cpuHotplug.{field}")
        rule = text_at(hotplug, "replace", config.SAME_NODES)
        if rule not in config.REPLACE:
            problem = f"{rule!r:.60} is not a rule"
            raise InputError(problem, field="cpuHotplug.replace", remedy=f"write {', '.join(config.REPLACE)}")
        found = {}
        for driver, entry in mapping_at(content, "deviceAttributes").items():
            field = f"deviceAttributes.{driver}"
            with within(field):
                names = reading.as_mapping(entry)
                reading.check_names(names, frozenset(_LOCATION))
                texts = {_LOCATION[name]: name_at(names, name) for name in names}
            # An attribute without a domain belongs to the driver's, as in slices.
            full = {name: text if "/" in text else f"{driver}/{text}" for name, text in texts.items()}
            found[driver] = LocationAttributes(**full)
        return MooringConfig(
            extensions=extensions,
            fixed_defects=_names(content, "fixedDefects", config.FIXABLE_DEFECTS),
            plugins=plugin_choice(content),
            replace_offline=rule,
            device_alignments=_device_alignments(content, extensions),
            device_attributes=found,
        )


def _device_alignments(content: Mapping[str, Any], extensions: frozenset[str]) -> DeviceAlignments:
    if "deviceAlignment" in content and config.DEVICE_ALIGNMENT not in extensions:
        remedy = f"name {config.DEVICE_ALIGNMENT} among the extensions"
        raise InputError(f"needs the extension {config.DEVICE_ALIGNMENT}", field="deviceAlignment", remedy=remedy)
    given = mapping_at(content, "deviceAlignment")
    found: dict[str, tuple[DeviceAlignment, tuple[str, ...]]] = {}
    with within("deviceAlignment"):
        reading.check_names(given, frozenset({"default", "classes"}))
        default = choice_at(given, "default", DeviceAlignment.FOLLOW)
        for name, entry in mapping_at(given, "classes").items():
            fields = entry if isinstance(entry, dict) else {"alignment": entry}
            with within(f"classes.{name}"):
                reading.check_names(fields, frozenset({"alignment", "resources"}))
                alignment = choice_at(fields, "alignment", DeviceAlignment.FOLLOW)
                resources = list_at(fields, "resources")
                for index, resource in enumerate(resources):
                    if not isinstance(resource, str) or not resource:
                        raise wrong_kind(resource, "the name of a resource or of a driver", f"resources[{index}]")
                if not resources and name not in CLASSES:
                    problem = f"is not one of the known classes {', '.join(sorted(CLASSES))}"
                    raise InputError(problem, remedy="write {alignment: follow, resources: [vendor.example/device]}")
                found[name] = alignment, tuple(resources)
    return DeviceAlignments(default, found)


_LOCATION = {"numaNode": "numa_node", "pciBusID": "pci_bus_id", "pcieRoot": "pcie_root"}
"""Field of an entry of ``deviceAttributes`` -> field of the value."""


def device_attributes_document(attributes: Mapping[str, LocationAttributes]) -> dict[str, dict[str, str]]:
    """Return ``deviceAttributes`` as the document has it."""
    return {
        driver: {name: text for name, member in _LOCATION.items() if (text := getattr(names, member))}
        for driver, names in attributes.items()
    }


def _names(content: Mapping[str, Any], field: str, known: frozenset[str]) -> frozenset[str]:
    names = list_at(content, field)
    for index, name in enumerate(names):
        if not isinstance(name, str):
            raise wrong_kind(name, "a string", f"{field}[{index}]")
        if name not in known:
            raise _unknown(name, known, f"{field}[{index}]")
    return frozenset(names)


def _unknown(name: str, known: frozenset[str], field: str) -> InputError:
    close = reading.nearest(name, known)
    remedy = f"did you mean {close}?" if close else f"known are {', '.join(sorted(known))}"
    return InputError(f"{name!r:.60} is not known", field=field, remedy=remedy)


LONGEST_BUDGET = 10_000 * MILLISECOND
HEAVIEST = 100
_PLUGIN_FIELDS = frozenset({"name", "settings", "placement", "weight"})


def plugin_choice(content: Mapping[str, Any]) -> PluginChoice:
    """Return the plugins that a document names, loaded.

    Raises:
        InputError: one is not installed or does not take its settings, or a field is wrong.
    """
    entries = list_at(content, "plugins")
    budget = BUDGET
    if text := text_at(content, "pluginBudget", ""):
        try:
            budget = nanoseconds(text)
        except InputError as error:
            raise InputError(error.problem, field="pluginBudget", remedy="write one such as 50ms") from None
        if not MILLISECOND <= budget <= LONGEST_BUDGET:
            raise InputError(f"{text!r:.40} is not between 1ms and 10s", field="pluginBudget", remedy="write 50ms")
    if not entries:
        return PluginChoice(budget=budget)
    from mooring.engine.plugins.loading import Watchman  # noqa: PLC0415 - without plugins none of this is loaded

    chosen = tuple(_plugin(entry, f"plugins[{index}]") for index, entry in enumerate(entries))
    names = [plugin.name for plugin in chosen]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise InputError(f"{name} is named twice", field=f"plugins[{index}].name", remedy="leave one out")
    return PluginChoice(chosen, budget, Watchman())


def _plugin(entry: object, where: str) -> ChosenPlugin:
    if isinstance(entry, str):
        entry = {"name": entry}
    if not isinstance(entry, dict):
        raise wrong_kind(entry, "a plugin's name, or a mapping with name and settings", where)
    with within(where):
        from mooring.engine.plugins.loading import load_plugin  # noqa: PLC0415 - as above

        reading.check_names(entry, _PLUGIN_FIELDS)
        name = name_at(entry, "name")
        settings = mapping_at(entry, "settings")
        weight = reading.count_at(entry, "weight", 1)
        if not 1 <= weight <= HEAVIEST:
            raise InputError(f"{weight} is not a weight", field="weight", remedy=f"write 1 to {HEAVIEST}")
        placement = choice_at(entry, "placement", PluginPlacement.CPU_MANAGER)
        return replace(load_plugin(name, settings), placement=placement, weight=weight)
