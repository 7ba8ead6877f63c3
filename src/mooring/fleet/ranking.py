"""Variants side by side: their figures over the seeds, and which is best.

Variants of a cluster: values of configuration fields, releases and strategies, in every combination.

How many nodes does the work need? The fewest of a group with which a simulation reaches a goal.

``mooring fleet compare -o json`` and ``mooring fleet size -o json``: several simulations as a document.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from statistics import fmean, stdev
from typing import Final, TypeAlias

from mooring.answers.base.changes.configuration import config_field
from mooring.engine.core.errors import InputError
from mooring.engine.releases.catalog import release_of
from mooring.fleet.cluster import NodeCluster, Work
from mooring.fleet.documents import FleetComparisonDocument
from mooring.fleet.scheduler.strategy import Strategy
from mooring.fleet.trials import Figures, FleetTrial, run_trial
from mooring.inputs.decoding.fields import within
from mooring.inputs.node_groups import NodeGroup

RELEASE: Final = "kubelet-version"
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
    fields = []
    for text in settings:
        field, separator, values = text.partition("=")
        if not field or not separator:
            remedy = "write topologyManagerPolicy=restricted,none"
            raise InputError(f"{text!r:.60} is not FIELD=VALUE", source="--set", remedy=remedy)
        fields.append([f"{field}={value}" for value in values.split(",")])
    trials = []
    for chosen in itertools.product(*fields):
        changed = cluster
        for text in chosen:
            changed = replace(changed, groups=tuple(_group_with(group, text) for group in changed.groups))
        for strategy in strategies:
            name = ", ".join((*chosen, strategy.name))
            trials += [FleetTrial(name, changed, work, strategy, seed + number) for number, work in enumerate(works)]
    return trials


def _group_with(group: NodeGroup, text: str) -> NodeGroup:
    field, _, value = text.partition("=")
    if field == RELEASE:
        return replace(group, mooring=replace(group.mooring, release=release_of(value, f"--{RELEASE}")))
    with within(source="--set"):
        return replace(group, config=config_field(text, group.mooring.release.name).changed(group.config))


_T95 = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""Quantiles of Student's distribution for 1 to 9 degrees of freedom; about 2 beyond."""


SeedSpread: TypeAlias = tuple[float, float]
"""The mean of a figure over several seeds, and half the width of the interval that holds it with 95 % confidence; 0
where there is one seed."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """One variant."""

    variant: str
    seeds: int
    admitted: SeedSpread
    refused: SeedSpread
    without_node: SeedSpread
    waited: SeedSpread
    """The 99th percentile, in seconds."""
    stranded_cpus: SeedSpread
    """Share of all CPUs, over time."""


def spread(values: Iterable[float]) -> SeedSpread:
    """Return mean and margin of a figure over seeds.

    >>> spread([4.0, 6.0])[0]
    5.0
    """
    found = list(values)
    if len(found) <= 1:
        return (found[0] if found else 0.0), 0.0
    quantile = _T95[len(found) - 2] if len(found) - 2 < len(_T95) else 2.0
    return fmean(found), quantile * stdev(found) / sqrt(len(found))


def ranked(figures: Iterable[Figures]) -> list[Ranked]:
    """Return the variants, best first: most pods admitted, then fewest refused, then the shortest wait."""
    found: dict[str, list[Figures]] = {}
    for one in figures:
        found.setdefault(one.trial.variant, []).append(one)
    rows = [Ranked(name, len(some), *(spread(map(one, some)) for one in _FIGURES)) for name, some in found.items()]
    return sorted(rows, key=lambda row: (-row.admitted[0], row.refused[0], row.waited[0]))


_FIGURES: Final[tuple[Callable[[Figures], float], ...]] = (
    lambda one: one.admitted,
    lambda one: one.trial.pods.refused,
    lambda one: one.without_node,
    lambda one: one.trial.waited.percentile99,
    lambda one: one.stranded_cpus,
)
"""What is ranked, in the order of the fields of :class:`Ranked`."""


def resized(cluster: NodeCluster, group: str, count: int) -> NodeCluster:
    """Return a cluster with another number of nodes in one group.

    Raises:
        InputError: there is no such group.
    """
    if group not in {one.name for one in cluster.groups}:
        known = ", ".join(one.name for one in cluster.groups)
        raise InputError("is not a group of the cluster", source=f"--group {group}", remedy=f"groups are {known}")
    groups = tuple(replace(one, count=count) if one.name == group else one for one in cluster.groups)
    return replace(cluster, groups=groups, now={name: one for name, one in cluster.now.items() if name != group})


@dataclass(frozen=True, slots=True)
class Goal:
    """What a cluster is to be large enough for."""

    most_refused: int = 0
    """Pods that kubelets may refuse."""
    longest_wait: float = 300.0
    """Seconds within which 99 % of the admitted pods have their node."""

    def is_met(self, figures: Figures) -> bool:
        """Tell whether a simulation reaches it."""
        in_time = figures.trial.waited.percentile99 <= self.longest_wait
        few_refused = figures.trial.pods.refused <= self.most_refused
        return in_time and few_refused and not figures.without_node


def tried_sizes(
    trial: FleetTrial,
    group: str,
    others: Collection[str],
    goal: Goal,
    most: int,
    run: Callable[[FleetTrial], Figures] = run_trial,
) -> tuple[Figures, ...]:
    """Search the fewest nodes of a group with which the goal is met: by doubling, then by halving.

    More nodes do not always help (a kubelet may refuse what another node would have taken), so that the answer is a
    number that does while one fewer was seen not to.

    Args:
        trial: whose cluster has any number of the group's nodes.
        group: the nodes that are counted.
        others: groups that have no node meanwhile, but this one.
        goal: what is to be reached.
        most: nodes that are tried.
        run: runs a simulation.

    Returns:
        Every number that was tried, ascending: the first that meets the goal is the answer.

    Raises:
        InputError: there is no such group.
    """
    cluster = trial.cluster
    for other in others:
        if other != group:
            cluster = resized(cluster, other, 0)
    tried: dict[int, Figures] = {}

    def does(count: int) -> bool:
        if count not in tried:
            name = f"{count} of {group}"
            tried[count] = run(replace(trial, variant=name, cluster=resized(cluster, group, count)))
        return goal.is_met(tried[count])

    low, high = 0, 1
    while not does(high) and high < most:
        low, high = high, min(2 * high, most)
    while high - low > 1 and does(high):
        middle = (low + high) // 2
        low, high = (low, middle) if does(middle) else (middle, high)
    return tuple(tried[count] for count in sorted(tried))


def fewest(tried: Iterable[Figures], goal: Goal) -> Figures | None:
    """Return the figures of the fewest nodes that do; None when even the most do not."""
    return next((one for one in tried if goal.is_met(one)), None)


def binding(tried: Iterable[Figures], goal: Goal) -> str:
    """Return what kept one node fewer from doing, or the most; empty where no smaller number was tried.

    It is a cause of refusals, or the resource that is used most where pods find no node.
    """
    last = None
    for one in tried:
        if goal.is_met(one):
            break
        last = one
    if last is None:
        return ""
    if last.refused:
        code = max(last.refused, key=lambda one: last.refused[one])
        return f"{last.refused[code]} refused ({code})"
    fullest = max(last.trial.uses, key=lambda use: use.most, default=None)
    waits = f"{last.without_node} pods without a node" if last.without_node else "pods wait too long"
    return f"{waits}, {fullest.resource} used to {fullest.most:.0%}" if fullest else waits


def comparison_document(work: str, figures: Sequence[Figures]) -> FleetComparisonDocument:
    """Return the document of a comparison; the best variant is the first of the ranking."""
    best = ranked(figures)
    trials = [one.trial for one in figures]
    return FleetComparisonDocument(work=work, trials=trials, best=best[0].variant if best else "")


def sizes_document(work: str, sizes: Sequence[tuple[str, Sequence[Figures]]], goal: Goal) -> FleetComparisonDocument:
    """Return the document of sizes: every trial of each group, and the group that needs the fewest nodes."""
    found = [one.trial for _, tried in sizes if (one := fewest(tried, goal)) is not None]
    best = min(found, key=lambda one: one.nodes).variant if found else ""
    return FleetComparisonDocument(work=work, trials=[one.trial for _, tried in sizes for one in tried], best=best)
