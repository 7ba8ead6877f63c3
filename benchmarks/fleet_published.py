"""GPU allocation of Random-fit and Best-fit on Alibaba's trace, beside what its paper's authors published.

The paper is "Beware of Fragmentation" (USENIX ATC 2023); its figures are in analysis_allo_discrete.csv of
hkust-adsl/kubernetes-scheduler-simulator. As there, pods are drawn from the workload multigpu50 until they ask for
130 % of the cluster's GPUs, come one after another, and stay. Otherwise than there a share of a GPU counts as a whole
one, because the kubelet's device manager knows no shares.

    python benchmarks/fleet_published.py ../shared/traces
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

import numpy as np
from alibaba import GPU, traced

from mooring.engine.core.config import KubeletConfig
from mooring.fleet.cluster import PodDemand
from mooring.fleet.nodes import Nodes
from mooring.fleet.scheduler.strategy import feasible
from mooring.fleet.scheduler.table import Amounts

SEEDS = (42, 43, 44)
FULL, MOST = 1.0, 1.3
RESOURCES = ("cpu", "memory", GPU)
CONFIGS = {
    "by sums alone": KubeletConfig(),
    "nodes with single-numa-node": KubeletConfig(
        cpu_manager_policy="static", topology_manager_policy="single-numa-node", reserved_system_cpus="0"
    ),
}
Choice = Callable[[Nodes, PodDemand, Amounts, random.Random], int]


def random_fit(_nodes: Nodes, _asked: PodDemand, found: Amounts, draw: random.Random) -> int:
    """Return any of the nodes."""
    return int(found[draw.randrange(len(found))])


def best_fit(nodes: Nodes, _asked: PodDemand, found: Amounts, _draw: random.Random) -> int:
    """Return the node with the least free resources, each as a share of the largest node's."""
    table = nodes.table
    left = np.zeros(len(found))
    for name in RESOURCES:
        offered = table.row(table.offered, name)
        left += (offered[found] - table.row(table.used, name)[found]) / offered.max()
    return int(found[left.argmin()])


def allocated(folder: Path, config: KubeletConfig, choose: Choice, seed: int) -> tuple[float, float, int]:
    """Return the share of GPUs that pods have when 100 % and 130 % have come, and the refusals of kubelets."""
    draw = random.Random(seed)  # noqa: S311 - repeatable
    cluster, work = traced(folder, "pod_list_multigpu50", config)
    nodes, pods = Nodes(cluster), [one.asked for one in work.arrivals]
    table = nodes.table
    total = int(table.row(table.offered, GPU).sum())
    came, refused, shares = 0, 0, list[float]()
    for share in (FULL, MOST):
        while came < share * total:
            asked = draw.choice(pods)
            came += asked.requests.get(GPU, 0)
            found = np.flatnonzero(feasible(table, asked))
            if len(found):
                refused += not nodes.admit(choose(nodes, asked, found, draw), asked)[0].admitted
        shares.append(int(table.row(table.used, GPU).sum()) / total)
    return shares[0], shares[1], refused


def main() -> None:
    """Print a row for each policy and configuration: means over the seeds."""
    folder = Path(sys.argv[1])
    for name, choose in (("Random-fit", random_fit), ("Best-fit", best_fit)):
        for title, config in CONFIGS.items():
            found = [allocated(folder, config, choose, seed) for seed in SEEDS]
            full, most, refused = (fmean(one[place] for one in found) for place in range(3))
            print(f"{name}, {title}: {full:.1%} at 100 %, {most:.1%} at 130 %, {refused:.0f} refused", flush=True)


if __name__ == "__main__":
    main()
