"""Variants of a cluster: values of configuration fields, releases and strategies, in every combination."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from mooring.answers.base.changes.configuration import config_field
from mooring.engine.core.errors import InputError
from mooring.engine.releases.catalog import release_of
from mooring.fleet.cluster import NodeCluster, NodeGroup
from mooring.fleet.strategy import Strategy
from mooring.fleet.trials.running import FleetTrial
from mooring.fleet.work import Work

RELEASE: Final = "release"
"""Name under which a release stands among the fields."""


def variants(
    cluster: NodeCluster, works: Sequence[Work], strategies: Sequence[Strategy], settings: Sequence[str], seed: int
) -> list[FleetTrial]:
    """Return a trial for each combination and each seed.

    Args:
        cluster: as it is.
        works: the work, once for each seed.
        strategies: of the scheduler.
        settings: ``FIELD=VALUE[,VALUE...]`` each; every group gets each of the values.
        seed: the first.

    Raises:
        InputError: a setting cannot be understood.
    """
    fields = [_values(text) for text in settings]
    trials = []
    for chosen in itertools.product(*fields):
        changed = cluster
        for text in chosen:
            changed = _with(changed, text)
        for strategy in strategies:
            name = ", ".join((*chosen, strategy.name))
            trials += [FleetTrial(name, changed, work, strategy, seed + number) for number, work in enumerate(works)]
    return trials


def _values(text: str) -> list[str]:
    field, separator, values = text.partition("=")
    if not field or not separator:
        raise InputError(
            f"{text!r:.60} is not FIELD=VALUE", source="--set", remedy="write topologyManagerPolicy=restricted,none"
        )
    return [f"{field}={value}" for value in values.split(",")]


def _with(cluster: NodeCluster, text: str) -> NodeCluster:
    return replace(cluster, groups=tuple(_group_with(group, text) for group in cluster.groups))


def _group_with(group: NodeGroup, text: str) -> NodeGroup:
    field, _, value = text.partition("=")
    try:
        if field == RELEASE:
            return replace(group, mooring=replace(group.mooring, release=release_of(value, RELEASE)))
        return replace(group, config=config_field(text, group.mooring.release.name).changed(group.config))
    except InputError as error:
        raise error.at("--set") from None
