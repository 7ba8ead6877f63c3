"""Print how long filter and prioritize of one pod take together: best, median and 99th percentile of 200 pods."""

from __future__ import annotations

import statistics
import sys
import time

from extender_cluster import cluster
from test_extender import asked, filter_and_prioritize

PODS = 200

if __name__ == "__main__":
    for nodes in (1000, 5000):
        answers, known = cluster(nodes, 50), asked(nodes, 4)
        filter_and_prioritize(answers, known)
        for what in ("new shape", "known shape"):
            times = []
            for _ in range(PODS):
                body = asked(nodes, 4) if what == "new shape" else known
                began = time.perf_counter()
                filter_and_prioritize(answers, body)
                times.append((time.perf_counter() - began) * 1000)
            late = statistics.quantiles(times, n=100)[98]
            figures = f"best {min(times):.1f}, median {statistics.median(times):.1f}, p99 {late:.1f} ms"
            sys.stdout.write(f"{nodes} nodes, {what}: {figures}\n")
