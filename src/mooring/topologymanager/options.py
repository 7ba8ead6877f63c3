"""Options of the topology manager.

Source: kubelet v1.37.1, topologymanager policy_options.go; spec: configuration.md section 4.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mooring.core.gotext import GoSyntaxError, atoi, parse_bool, quote

PREFER_CLOSEST = "prefer-closest-numa-nodes"
MAX_ALLOWABLE = "max-allowable-numa-nodes"
DEFAULT_MAX_ALLOWABLE = 8


@dataclass(frozen=True, slots=True)
class TopologyOptions:
    """The options, understood."""

    prefer_closest: bool = False
    max_allowable: int = DEFAULT_MAX_ALLOWABLE


def parse_options(options: Mapping[str, str]) -> TopologyOptions | str:
    """Return the options, or the kubelet's error text for the first bad one in sorted order (random in the kubelet).

    Both options are stable in v1.37.1, so no feature gate guards them.
    """
    prefer_closest = False
    max_allowable = DEFAULT_MAX_ALLOWABLE
    for name in sorted(options):
        value = options[name]
        if name == PREFER_CLOSEST:
            try:
                prefer_closest = parse_bool(value)
            except GoSyntaxError as error:
                return f"bad value for option {quote(name)}: {error}"
        elif name == MAX_ALLOWABLE:
            try:
                max_allowable = atoi(value)
            except GoSyntaxError as error:
                return f"unable to convert policy option to integer {quote(name)}: {error}"
            if max_allowable < DEFAULT_MAX_ALLOWABLE:
                return f"the minimum value of {quote(name)} should not be less than {DEFAULT_MAX_ALLOWABLE}"
        else:
            return f"unknown Topology Manager Policy option: {quote(name)}"
    return TopologyOptions(prefer_closest, max_allowable)
