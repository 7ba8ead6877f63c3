"""Finding the closest set of nodes without looking at all of them.

Source of the order: numa_info.go of kubelet v1.37.1 (smaller average distance, then the smaller number).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mooring.engine.core.bits import members
from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.topologymanager.distances import NUMAInfo
from mooring.engine.topologymanager.wide import Demand


def closest_first(
    info: NUMAInfo,
    universe: int,
    size: int,
    around: int,
    demands: Sequence[Demand],
    is_wanted: Callable[[int], bool],
) -> int:
    """Return the closest wanted set of ``size`` nodes, of equally close ones the smallest number; 0 when there is none.

    Sets are walked by ascending number, so that of several equally close ones the first found wins, and a branch is
    dropped when it cannot come below the best sum so far.
    """
    nodes = tuple(members(universe))
    if size > len(nodes) or size == 0:
        return 0
    pair = _pair_costs(info, nodes)
    cheapest = min((cost for (one, other), cost in pair.items() if one != other), default=0)
    best_sum: int | None = None
    best = 0

    def walk(position: int, left: int, chosen: int, costs: list[int], total: int) -> None:
        nonlocal best, best_sum
        if left == 0:
            if best_sum is not None and total >= best_sum:
                return
            wanted = chosen & around == around and all(demand.is_met(chosen) for demand in demands)
            if wanted and is_wanted(chosen):
                best, best_sum = chosen, total
            return
        if position < left:
            return
        if best_sum is not None:
            least = sum(sorted(costs[:position])[:left]) + cheapest * left * (left - 1) // 2
            if total + least >= best_sum:
                return
        node = nodes[position - 1]
        if not around >> node & 1:
            walk(position - 1, left, chosen, costs, total)
        nearer = [cost + pair[other, node] for other, cost in zip(nodes[: position - 1], costs, strict=False)]
        walk(position - 1, left - 1, chosen | 1 << node, nearer, total + costs[position - 1])

    walk(len(nodes), size, 0, [pair[node, node] for node in nodes], 0)
    return best


def _pair_costs(info: NUMAInfo, nodes: tuple[int, ...]) -> dict[tuple[int, int], int]:
    """Return what two nodes in one set add to the sum of distances: both directions, a node with itself once.

    Raises:
        KubeletCrashError: a distance is missing.
    """
    rows = info.distances or {}
    try:
        return {
            (one, other): rows[one][other] + (rows[other][one] if one != other else 0)
            for one in nodes
            for other in nodes
        }
    except (KeyError, IndexError):
        raise KubeletCrashError(
            f"the machine gives no distance between NUMA nodes {', '.join(map(str, nodes))}: the kubelet crashes here"
        ) from None
