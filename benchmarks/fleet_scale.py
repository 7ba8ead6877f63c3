"""How the cost of a simulation grows with the cluster: CPU time and memory for 100 to 10,000 nodes.

Nodes and pods are drawn from Alibaba's cluster-trace-gpu-v2023 (kinds of nodes, requests and lifetimes of pods), twenty
pods a node, over so long that they use about half of the GPUs. Each size runs in a process of its own:

    python benchmarks/fleet_scale.py ../shared/traces
    python benchmarks/fleet_scale.py ../shared/traces 5000 100000 MostAllocated+extender
"""

from __future__ import annotations

import random
import resource
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from alibaba import GPU, traced

from mooring.engine.core.config import KubeletConfig
from mooring.fleet.cluster import NodeCluster, PodArrival, Work, offered, work_of
from mooring.fleet.scheduler.strategy import strategy_of
from mooring.fleet.simulation import Simulation, answer_of

SIZES = (100, 300, 1000, 3000, 10_000)
PODS_A_NODE = 20
LOAD = 0.5
SHORTEST = 0.9
"""Share of the pods that are drawn, those that run longest left out: a few of them run for months."""
ALIGNED = KubeletConfig(
    cpu_manager_policy="static", topology_manager_policy="single-numa-node", reserved_system_cpus="0"
)


def drawn(folder: Path, nodes: int, pods: int) -> tuple[NodeCluster, Work]:
    """Return a cluster and its work, drawn from the trace by a fixed seed."""
    draw = random.Random(1)  # noqa: S311 - repeatable
    cluster, work = traced(folder, "pod_list_default", ALIGNED)
    kinds = draw.choices(range(len(cluster.groups)), [one.count for one in cluster.groups], k=nodes)
    groups = tuple(replace(one, count=kinds.count(kind)) for kind, one in enumerate(cluster.groups) if kind in kinds)
    ended = sorted((one for one in work.arrivals if one.runs), key=lambda one: one.runs or 0)
    chosen = draw.choices(ended[: int(len(ended) * SHORTEST)], k=pods)
    room = {"cpu": 0, GPU: 0}
    for group in groups:
        for name, amount in offered(group.started()).items():
            if name in room:
                room[name] += amount * group.count
    wanted = {
        name: sum(one.asked.requests.get(name, 0) * (one.runs or 0) for one in chosen) / (amount * LOAD)
        for name, amount in room.items()
    }
    span = max(wanted.values())
    arrivals = [
        PodArrival(f"default/pod-{number}", one.asked, draw.uniform(0, span), one.runs)
        for number, one in enumerate(chosen)
    ]
    return replace(cluster, groups=groups), work_of("drawn", arrivals)


def measure(folder: Path, nodes: int, pods: int, strategy: str) -> None:
    """Run one simulation, and print what it took."""
    cluster, work = drawn(folder, nodes, pods)
    begins = time.process_time()
    result = Simulation(cluster, work, strategy_of(strategy)).run()
    taken = time.process_time() - begins
    answer = answer_of(result)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    used = ", ".join(f"{use.resource} up to {use.most:.0%}" for use in answer.uses)
    print(
        f"{nodes} nodes, {pods} pods, {strategy}: {taken:.1f} s, {taken / pods * 1e6:.0f} us a pod, {memory} MB, "
        f"{result.nodes.states.asked} engine runs, {answer.pods.admitted} admitted; {used}",
        flush=True,
    )


def main() -> None:
    """Measure one size, or each in a process of its own."""
    folder, words = Path(sys.argv[1]), sys.argv[2:]
    if words:
        measure(folder, int(words[0]), int(words[1]), words[2] if len(words) > 2 else "LeastAllocated")
        return
    for nodes in SIZES:
        command = [sys.executable, __file__, str(folder), str(nodes), str(nodes * PODS_A_NODE)]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
