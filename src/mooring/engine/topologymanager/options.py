"""Options of the topology manager.

Source: kubelet v1.37.1, topologymanager policy_options.go; spec: configuration.md section 4.3.
"""

from __future__ import annotations

from collections.abc import Mapping

from mooring.engine.core.decision import Cause, Fault
from mooring.engine.core.gotext import GoSyntaxError, atoi, parse_bool, quote
from mooring.lazy import dataclass

FIELD = "topologyManagerPolicyOptions"
PREFER_CLOSEST = "prefer-closest-numa-nodes"
MAX_ALLOWABLE = "max-allowable-numa-nodes"
DEFAULT_MAX_ALLOWABLE = 8

STABLE = "stable"
OPTION_GROUPS: Mapping[str, str] = {PREFER_CLOSEST: STABLE, MAX_ALLOWABLE: STABLE}
"""Option -> maturity group in v1.37.1; older releases have others (``mooring.engine.releases.gates``)."""

GROUP_GATES: Mapping[str, str] = {
    "beta": "TopologyManagerPolicyBetaOptions",
    "alpha": "TopologyManagerPolicyAlphaOptions",
}
"""Maturity group -> the feature gate that its options need."""


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


def parse_options(options: Mapping[str, str], guard: OptionGuard = STABLE_ONLY) -> TopologyOptions | Fault:
    """Return the options, or what is wrong with the first bad one in sorted order (random in the kubelet)."""
    prefer_closest = False
    max_allowable = DEFAULT_MAX_ALLOWABLE
    for name in sorted(options):
        value = options[name]
        unavailable = _unavailable(name, guard)
        if unavailable is not None:
            return unavailable
        if name == PREFER_CLOSEST:
            try:
                prefer_closest = parse_bool(value)
            except GoSyntaxError as error:
                return Fault(f"bad value for option {quote(name)}: {error}", Cause.OPTION_VALUE, FIELD, (name,))
        else:
            try:
                max_allowable = atoi(value)
            except GoSyntaxError as error:
                return Fault(f"unable to convert policy option to integer {quote(name)}: {error}", names=(name,))
            if max_allowable < DEFAULT_MAX_ALLOWABLE:
                text = f"the minimum value of {quote(name)} should not be less than {DEFAULT_MAX_ALLOWABLE}"
                return Fault(text, names=(name,))
    return TopologyOptions(prefer_closest, max_allowable)


def _unavailable(name: str, guard: OptionGuard) -> Fault | None:
    group = guard.groups.get(name)
    if group is None:
        text = f"unknown Topology Manager Policy option: {quote(name)}"
        return Fault(text, Cause.UNKNOWN_TOPOLOGY_OPTION, FIELD, (name,))
    if group in guard.enabled:
        return None
    options = f"topology manager policy {group}-level options"
    if guard.capitalized:  # capitalized-topology-option-texts, up to v1.32; spec: releases.md section 8
        options = f"Topology Manager Policy {group.capitalize()}-level Options"
    text = f"{options} not enabled, but option {quote(name)} provided"
    return Fault(text, Cause.TOPOLOGY_OPTION_GROUP, FIELD, (name,), (GROUP_GATES[group],))
