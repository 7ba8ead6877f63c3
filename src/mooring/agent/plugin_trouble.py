"""Which CPU plugins failed since the agent started, and how: for status and log (extension plugins)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mooring.agent.reactor.values import AgentState
from mooring.plugins.facts import PluginFailed


@dataclass(frozen=True, slots=True)
class PluginTrouble:
    """How often one plugin failed."""

    failures: int
    point: str
    """The extension point at which it failed last."""
    why: str
    """One sentence about that."""


def with_trouble(known: Mapping[str, PluginTrouble], failed: PluginFailed) -> dict[str, PluginTrouble]:
    """Return what is known after one more failure.

    >>> with_trouble({}, PluginFailed("uid", "app", "mine", "pre_score", "it raised ValueError: x"))["mine"].failures
    1
    """
    before = known.get(failed.plugin)
    times = 1 if before is None else before.failures + 1
    return {**known, failed.plugin: PluginTrouble(times, failed.point, failed.why)}


def plugin_fields(state: AgentState | None, troubled: Mapping[str, PluginTrouble]) -> dict[str, Any]:
    """Return the member ``plugins`` of the status; none without plugins."""
    host = None if state is None else state.kubelet.settings.plugins
    if host is None:
        return {}
    listed = []
    for plugin in host.choice.plugins:
        trouble = troubled.get(plugin.name)
        entry: dict[str, Any] = {
            "name": plugin.name,
            "placement": plugin.placement.value,
            "givenUp": host.choice.watch.has_given_up(plugin.name),
            "failures": 0 if trouble is None else trouble.failures,
        }
        if trouble is not None:
            entry["lastFailure"] = {"point": trouble.point, "why": trouble.why}
        listed.append(entry)
    return {"plugins": listed}
