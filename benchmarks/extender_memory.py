"""Print what an extender needs for 5,000 nodes with up to 24 pods each: resident memory in MB."""

from __future__ import annotations

import gc
import resource
import sys

from extender_cluster import cluster

if __name__ == "__main__":
    states = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    answers = cluster(5000, states)
    gc.collect()
    with open("/proc/self/status", encoding="ascii") as status:  # noqa: PTH123 - no path of ours
        resident = next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    sys.stdout.write(f"{answers.view.counts()} resident {resident // 1024} MB, highest {peak // 1024} MB\n")
