"""Options of the topology manager.

Source: kubelet v1.37.1, topologymanager policy_options.go; spec: configuration.md section 4.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mooring.engine.core.gotext import GoSyntaxError, atoi, parse_bool, quote

PREFER_CLOSEST = "prefer-closest-numa-nodes"
MAX_ALLOWABLE = "max-allowable-numa-nodes"
DEFAULT_MAX_ALLOWABLE = 8

STABLE = "stable"
OPTION_GROUPS: Mapping[str, str] = {PREFER_CLOSEST: STABLE, MAX_ALLOWABLE: STABLE}
"""Option -> maturity group in v1.37.1; older releases have others (``mooring.engine.releases.policy_options``)."""


@dataclass(frozen=True, slots=True)
class OptionGuard:
    """Which options may be given."""

    groups: Mapping[str, str]
    """The options of the kubelet's release, and their groups."""
    enabled: frozenset[str]
    """Groups that may be used: ``stable``, and those whose feature gates are on."""
    capitalized: bool = False
    """Whether refusals of a group begin as titles do: rule capitalized-topology-option-texts."""


STABLE_ONLY = OptionGuard(OPTION_GROUPS, frozenset({STABLE}))


@dataclass(frozen=True, slots=True)
class TopologyOptions:
    """The options, understood."""

    prefer_closest: bool = False
    max_allowable: int = DEFAULT_MAX_ALLOWABLE


def parse_options(options: Mapping[str, str], guard: OptionGuard = STABLE_ONLY) -> TopologyOptions | str:
    """Return the options, or the kubelet's error text for the first bad one in sorted order (random in the kubelet)."""
    prefer_closest = False
    max_allowable = DEFAULT_MAX_ALLOWABLE
    for name in sorted(options):
        value = options[name]
        unavailable = _unavailable(name, guard)
        if unavailable:
            return unavailable
        if name == PREFER_CLOSEST:
            try:
                prefer_closest = parse_bool(value)
            except GoSyntaxError as error:
                return f"bad value for option {quote(name)}: {error}"
        else:
            try:
                max_allowable = atoi(value)
            except GoSyntaxError as error:
                return f"unable to convert policy option to integer {quote(name)}: {error}"
            if max_allowable < DEFAULT_MAX_ALLOWABLE:
                return f"the minimum value of {quote(name)} should not be less than {DEFAULT_MAX_ALLOWABLE}"
    return TopologyOptions(prefer_closest, max_allowable)


def _unavailable(name: str, guard: OptionGuard) -> str:
    """Return the kubelet's text for an option that may not be given, else an empty text."""
    group = guard.groups.get(name)
    if group is None:
        return f"unknown Topology Manager Policy option: {quote(name)}"
    if group in guard.enabled:
        return ""
    options = f"topology manager policy {group}-level options"
    if guard.capitalized:  # capitalized-topology-option-texts, up to v1.32; spec: releases.md section 8
        options = f"Topology Manager Policy {group.capitalize()}-level Options"
    return f"{options} not enabled, but option {quote(name)} provided"
