"""Print how long filter and prioritize of one pod take together: best, median and 99th percentile of 200 pods.

In CPU time of the process too, which other work on the machine lengthens less. Five
different states are of one kind of node.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time

from extender_cluster import cluster
from test_extender import asked, filter_and_prioritize

from mooring.service.daemon import settle

PODS = 200


def figures(times: list[float]) -> str:
    late = statistics.quantiles(times, n=100)[98]
    return f"best {min(times):.1f}, median {statistics.median(times):.1f}, p99 {late:.1f} ms"


if __name__ == "__main__":
    for nodes, states in ((100, 100), (1000, 100), (5000, 50), (5000, 100), (10_000, 100)):
        answers, known = cluster(nodes, states, kinds=states // 5), asked(nodes, 4)
        filter_and_prioritize(answers, known)
        settle()  # as the extender does
        for what in ("new shape", "known shape"):
            times, cpu_times = [], []
            for _ in range(PODS):
                body = asked(nodes, 4) if what == "new shape" else known
                began, began_cpu = time.perf_counter(), time.process_time()
                filter_and_prioritize(answers, body)
                times.append((time.perf_counter() - began) * 1000)
                cpu_times.append((time.process_time() - began_cpu) * 1000)
            sys.stdout.write(
                f"{nodes} nodes of {states} states, {what}: {figures(times)}; CPU time {figures(cpu_times)}\n"
            )
        gc.unfreeze()
