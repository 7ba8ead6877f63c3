"""The plugins of Mooring's document: ``plugins`` and ``pluginBudget``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mooring.core.errors import InputError
from mooring.core.plugins import BUDGET, MILLISECOND, ChosenPlugin, PluginChoice, PluginPlacement
from mooring.manifest.durations import nanoseconds
from mooring.manifest.fields import (
    check_names,
    choice_at,
    count_at,
    inside,
    list_at,
    mapping_at,
    name_at,
    text_at,
    wrong_kind,
)

LONGEST_BUDGET = 10_000 * MILLISECOND
HEAVIEST = 100
_FIELDS = frozenset({"name", "settings", "placement", "weight"})


def plugin_choice(content: Mapping[str, Any]) -> PluginChoice:
    """Return the plugins that a document names, loaded.

    Raises:
        InputError: one is not installed or does not take its settings, or a field is wrong.
    """
    entries = list_at(content, "plugins")
    budget = _budget(content)
    if not entries:
        return PluginChoice(budget=budget)
    from mooring.plugging.watching import Watchman  # noqa: PLC0415 - without plugins none of this is loaded

    chosen = tuple(_plugin(entry, f"plugins[{index}]") for index, entry in enumerate(entries))
    names = [plugin.name for plugin in chosen]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise InputError(f"{name} is named twice", field=f"plugins[{index}].name", remedy="leave one out")
    return PluginChoice(chosen, budget, Watchman())


def _budget(content: Mapping[str, Any]) -> int:
    text = text_at(content, "pluginBudget", "")
    if not text:
        return BUDGET
    try:
        budget = nanoseconds(text)
    except InputError as error:
        raise InputError(error.problem, field="pluginBudget", remedy="write one such as 50ms") from None
    if not MILLISECOND <= budget <= LONGEST_BUDGET:
        raise InputError(f"{text!r:.40} is not between 1ms and 10s", field="pluginBudget", remedy="write 50ms")
    return budget


def _plugin(entry: object, where: str) -> ChosenPlugin:
    if isinstance(entry, str):
        entry = {"name": entry}
    if not isinstance(entry, dict):
        raise wrong_kind(entry, "a plugin's name, or a mapping with name and settings", where)
    try:
        return _understood(entry)
    except InputError as error:
        raise inside(error, where) from None


def _understood(entry: Mapping[str, Any]) -> ChosenPlugin:
    from mooring.plugging.loading import load_plugin  # noqa: PLC0415 - as above

    check_names(entry, _FIELDS)
    name = name_at(entry, "name")
    settings = mapping_at(entry, "settings")
    weight = count_at(entry, "weight", 1)
    if not 1 <= weight <= HEAVIEST:
        raise InputError(f"{weight} is no weight", field="weight", remedy=f"write 1 to {HEAVIEST}")
    placement = choice_at(entry, "placement", PluginPlacement.CPU_MANAGER)
    loaded = load_plugin(name, settings)
    return ChosenPlugin(name, settings, loaded.points, placement, weight, loaded.is_shipped)
