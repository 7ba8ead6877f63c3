"""NodeResourceTopologyMatch as its documentation describes it: what it filters, and its four ways to score.

It reads what a publisher says about each NUMA node (zones of NodeResourceTopology v1alpha2), here always up to date,
and knows neither hints nor the kubelet's order of CPUs: only amounts. The plugin filters on nodes with
``single-numa-node`` alone, where each container, or in pod scope the pod, has to fit on one NUMA node; of pods that are
not Guaranteed only devices are checked. LeastNUMANodes scores nodes with any policy, the others those with
``single-numa-node``, Guaranteed pods only.

Source: kubernetes-sigs/scheduler-plugins, pkg/noderesourcetopology (filter.go, score.go, least_allocated.go,
most_allocated.go, balanced_allocation.go, least_numa.go), with its weight of 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import partial
from itertools import combinations
from statistics import fmean, variance
from typing import Any, Final

from mooring.engine.core.pod import ContainerKind, QoS
from mooring.engine.kubelet.admit import Memo, PodShape
from mooring.fleet.states import SharedState
from mooring.published.observation import zones_of

_BEST: Final = 100
_MOST_ANSWERS: Final = 100_000
"""Answers that are kept."""
_MOST_NODES: Final = 8
"""NUMA nodes that the topology manager allows."""
_UNKNOWN_DISTANCE: Final = 255
_NATIVE: Final = ("cpu", "memory")
_MILLI: Final = 1000

Zone = dict[str, Any]
"""As a NodeResourceTopology has it."""
Amounts = dict[str, int]
"""Resource -> amount; cpu in millicores."""


class NUMAScoring(Enum):
    """How the plugin NodeResourceTopologyMatch scores; the value is the name in its configuration."""

    LEAST = "LeastAllocated"
    MOST = "MostAllocated"
    BALANCED = "BalancedAllocation"
    FEWEST_NODES = "LeastNUMANodes"


class NUMAMatch:
    """The plugin; used by one simulation. Equal nodes and pods are asked once."""

    def __init__(self, scoring: NUMAScoring) -> None:
        """Begin without anything known.

        Args:
            scoring: of the plugin.
        """
        self._scoring = scoring
        self._zones: Memo[bytes, list[Zone]] = Memo(_MOST_ANSWERS)
        self._fits: Memo[tuple[bytes, bytes], bool] = Memo(_MOST_ANSWERS)
        self._scores: Memo[tuple[bytes, bytes], int] = Memo(_MOST_ANSWERS)

    def fits(self, state: SharedState, shape: PodShape) -> bool:
        """Tell whether a node passes the filter."""
        return self._fits.of((state.key, shape.key), partial(self._filter, state, shape))

    def score(self, state: SharedState, shape: PodShape) -> int:
        """Return the score of a node, from 0 to 100."""
        return self._scores.of((state.key, shape.key), partial(self._score, state, shape))

    def _filter(self, state: SharedState, shape: PodShape) -> bool:
        if state.kubelet.settings.config.topology_manager_policy != "single-numa-node":
            return True
        if shape.pod.qos is QoS.BEST_EFFORT and not any(
            "/" in name and amount for name, amount in shape.requests.items()
        ):
            return True
        free = self._free(state)
        for asked, stays in _parts(state, shape):
            place = next((one for one, amounts in enumerate(free) if _suits(shape, asked, amounts, free)), None)
            if place is None:
                return False
            if stays:
                _take(free, (place,), asked)
        return True

    def _score(self, state: SharedState, shape: PodShape) -> int:
        if shape.pod.qos is not QoS.GUARANTEED:
            return _BEST
        if self._scoring is NUMAScoring.FEWEST_NODES:
            return self._fewest_nodes(state, shape)
        if state.kubelet.settings.config.topology_manager_policy != "single-numa-node":
            return 0
        free, by_zone = self._free(state), _BY_ZONE[self._scoring]
        every = ([by_zone(asked, amounts) for amounts in free] for asked, _ in _parts(state, shape))
        # The least score of the NUMA nodes on which a part fits
        return int(fmean(min(filter(None, scores), default=0) for scores in every))

    def _fewest_nodes(self, state: SharedState, shape: PodShape) -> int:
        free, zones = self._free(state), self._zones_of(state)
        most, nearest = 0, True
        for asked, _ in _parts(state, shape):
            if not any(name in amounts for amounts in free for name in asked):
                continue
            found = _fewest(shape, asked, free, zones)
            if found is None:
                return 0
            places, is_nearest = found
            most, nearest = max(most, len(places)), nearest and is_nearest
            _take(free, places, asked)
        if not most:
            return _BEST
        step = _BEST // _MOST_NODES
        return _BEST - most * step + (step // 2 if nearest else 0)

    def _zones_of(self, state: SharedState) -> list[Zone]:
        return self._zones.of(state.key, partial(zones_of, state.kubelet.info, state.kubelet.node))

    def _free(self, state: SharedState) -> list[Amounts]:
        return [
            {one["name"]: int(one["available"]) * (_MILLI if one["name"] == "cpu" else 1) for one in zone["resources"]}
            for zone in self._zones_of(state)
        ]


def _parts(state: SharedState, shape: PodShape) -> list[tuple[Amounts, bool]]:
    """Return what has to fit together, each with whether it stays: init containers end before the next begins."""
    if state.kubelet.settings.config.topology_manager_scope == "pod":
        return [({name: amount for name, amount in shape.requests.items() if amount}, True)]
    found = []
    for container in shape.pod.containers:
        amounts = {
            name: quantity.milli if name == "cpu" else quantity.units for name, quantity in container.requests.items()
        }
        asked = {name: amount for name, amount in amounts.items() if amount}
        found.append((asked, container.kind is ContainerKind.APP))
    return found


def _suits(shape: PodShape, asked: Amounts, zone: Amounts, every: Sequence[Amounts]) -> bool:
    """Tell whether one NUMA node has enough of everything that any NUMA node has."""
    for name, amount in asked.items():
        if shape.pod.qos is not QoS.GUARANTEED and (name in _NATIVE or name.startswith("hugepages-")):
            if name not in zone:
                return False
        elif name not in zone:
            if any(name in one for one in every) or name in _NATIVE:
                return False
        elif zone[name] < amount:
            return False
    return True


def _take(free: Sequence[Amounts], places: Sequence[int], asked: Amounts) -> None:
    for name, amount in asked.items():
        left = amount
        for place in places:
            taken = min(left, max(free[place].get(name, 0), 0))
            if name in free[place]:
                free[place][name] -= taken
            left -= taken


def _units(name: str, amount: int) -> int:
    """Return an amount in whole units, as ``Quantity.Value`` rounds it."""
    return -(-amount // _MILLI) if name == "cpu" else amount


def _by_share(asked: Amounts, zone: Amounts, *, used: bool) -> int:
    total = 0
    for name, amount in asked.items():
        wanted, there = _units(name, amount), _units(name, zone.get(name, 0))
        if there and amount <= zone[name]:
            total += (wanted if used else there - wanted) * _BEST // there
    return total // len(asked) if asked else 0


def _balanced(asked: Amounts, zone: Amounts) -> int:
    there = {name: _units(name, zone.get(name, 0)) for name in asked}
    shares = [_units(name, amount) / there[name] if there[name] else 1.0 for name, amount in asked.items()]
    if any(share > 1 for share in shares):
        return 0
    return int((1 - variance(shares)) * _BEST) if len(shares) > 1 else _BEST


_BY_ZONE: Final[Mapping[NUMAScoring, Callable[[Amounts, Amounts], int]]] = {
    NUMAScoring.LEAST: lambda asked, zone: _by_share(asked, zone, used=False),
    NUMAScoring.MOST: lambda asked, zone: _by_share(asked, zone, used=True),
    NUMAScoring.BALANCED: _balanced,
}


def _fewest(
    shape: PodShape, asked: Amounts, free: Sequence[Amounts], zones: Sequence[Zone]
) -> tuple[tuple[int, ...], bool] | None:
    """Return the fewest NUMA nodes that have enough together, the nearest ones, and whether none are nearer."""
    for size in range(1, len(free) + 1):
        every = list(combinations(range(len(free)), size))
        nearest = min(_distance(zones, places) for places in every)
        fitting = [
            places
            for places in every
            if shape.pod.qos is not QoS.GUARANTEED
            or all(sum(free[place].get(name, 0) for place in places) >= amount for name, amount in asked.items())
        ]
        if fitting:
            best = min(fitting, key=lambda places: _distance(zones, places))
            return best, _distance(zones, best) == nearest
    return None


def _distance(zones: Sequence[Zone], places: Sequence[int]) -> float:
    """Return the average distance among NUMA nodes, themselves included."""
    rows = [zones[one]["costs"] for one in places]
    pairs = [row[other]["value"] if row else _UNKNOWN_DISTANCE for row in rows for other in places]
    return float(sum(pairs) / len(pairs))
