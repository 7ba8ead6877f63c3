"""The policy options that a release of the kubelet has, and the maturity group of each.

A group decides which feature gate guards an option: none for ``stable``, ``...PolicyBetaOptions`` for ``beta``,
``...PolicyAlphaOptions`` for ``alpha``. The texts are histories (:mod:`mooring.engine.releases.history`).

Source: cpumanager and topologymanager policy_options.go of each release; spec: releases.md section 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from mooring.engine.releases.history import standing

CPU_OPTION_HISTORY: Mapping[str, str] = {
    "full-pcpus-only": "1.31 beta, 1.33 stable",
    "strict-cpu-reservation": "1.32 alpha, 1.33 beta, 1.35 stable",
    "prefer-align-cpus-by-uncorecache": "1.32 alpha, 1.34 beta, 1.36 stable",
    "distribute-cpus-across-numa": "1.31 alpha, 1.33 beta",
    "align-by-socket": "1.31 alpha",
    "distribute-cpus-across-cores": "1.31 alpha",
}
"""CPU manager policy option -> its groups."""

TOPOLOGY_OPTION_HISTORY: Mapping[str, str] = {
    "prefer-closest-numa-nodes": "1.31 beta, 1.32 stable",
    "max-allowable-numa-nodes": "1.31 beta, 1.35 stable",
}
"""Topology manager policy option -> its groups."""


@cache
def cpu_option_groups(release: str) -> Mapping[str, str]:
    """Return the CPU manager's options of a release such as ``1.34``, with their groups.

    >>> sorted(cpu_option_groups("1.31").items())[:2]
    [('align-by-socket', 'alpha'), ('distribute-cpus-across-cores', 'alpha')]
    >>> "strict-cpu-reservation" in cpu_option_groups("1.31")
    False
    """
    return _groups(CPU_OPTION_HISTORY, release)


@cache
def topology_option_groups(release: str) -> Mapping[str, str]:
    """Return the topology manager's options of a release, with their groups.

    >>> topology_option_groups("1.34")
    {'prefer-closest-numa-nodes': 'stable', 'max-allowable-numa-nodes': 'beta'}
    """
    return _groups(TOPOLOGY_OPTION_HISTORY, release)


def _groups(histories: Mapping[str, str], release: str) -> dict[str, str]:
    groups = {name: standing(history, release) for name, history in histories.items()}
    return {name: group for name, group in groups.items() if group}
