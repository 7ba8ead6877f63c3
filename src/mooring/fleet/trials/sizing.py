"""How many nodes does the work need? The fewest of a group with which a simulation reaches a goal."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from mooring.engine.core.errors import InputError
from mooring.fleet.cluster import NodeCluster
from mooring.fleet.records import Fate
from mooring.fleet.trials.running import Figures, FleetTrial, run_trial


def resized(cluster: NodeCluster, group: str, count: int) -> NodeCluster:
    """Return a cluster with another number of nodes in one group.

    Raises:
        InputError: there is no such group.
    """
    if group not in {one.name for one in cluster.groups}:
        known = ", ".join(one.name for one in cluster.groups)
        raise InputError("is not a group of the cluster", source=f"--group {group}", remedy=f"groups are {known}")
    groups = tuple(replace(one, count=count, now=None) if one.name == group else one for one in cluster.groups)
    return replace(cluster, groups=groups)


@dataclass(frozen=True, slots=True)
class Goal:
    """What a cluster is to be large enough for."""

    most_refused: int = 0
    """Pods that kubelets may refuse."""
    most_without: int = 0
    """Pods that may end without a node, or still wait."""
    longest_wait: float = 300.0
    """Seconds within which 99 % of the admitted pods have their node."""

    def is_met(self, figures: Figures) -> bool:
        """Tell whether a simulation reaches it."""
        in_time = figures.waited[1] <= self.longest_wait
        few_refused = figures.fates[Fate.REFUSED] <= self.most_refused
        return in_time and few_refused and figures.without_node <= self.most_without


@dataclass(frozen=True, slots=True)
class Size:
    """How many nodes of a group the work needs."""

    group: str
    fewest: Figures | None
    """Of the fewest nodes that do; None when even the most do not."""
    tried: tuple[Figures, ...]
    """By the number of nodes, ascending."""
    binding: str
    """What kept one node fewer from doing; empty where no smaller number was tried."""


def size_of(
    trial: FleetTrial,
    group: str,
    others: Collection[str],
    goal: Goal,
    most: int,
    run: Callable[[FleetTrial], Figures] = run_trial,
) -> Size:
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
    while not does(high):
        if high == most:
            return Size(group, None, _ascending(tried), _binding(tried[high]))
        low, high = high, min(2 * high, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if does(middle) else (middle, high)
    return Size(group, tried[high], _ascending(tried), _binding(tried[low]) if low in tried else "")


def _ascending(tried: dict[int, Figures]) -> tuple[Figures, ...]:
    return tuple(tried[count] for count in sorted(tried))


def _binding(figures: Figures) -> str:
    """Return what stops a cluster: a cause of refusals, or the resource that is used most where pods find no node."""
    if figures.refused:
        code = max(figures.refused, key=lambda one: figures.refused[one])
        return f"{figures.refused[code]} refused ({code})"
    fullest = max(figures.uses, key=lambda use: use.most, default=None)
    waits = f"{figures.without_node} pods without a node" if figures.without_node else "pods wait too long"
    return f"{waits}, {fullest.resource} used to {fullest.most:.0%}" if fullest else waits
