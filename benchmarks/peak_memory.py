"""Peak memory of each line of docs/explanation/performance.md, every line in a process of its own.

Run ``.venv/bin/python benchmarks/peak_memory.py`` for a table, with the name of a line for that line alone. The figure
is what the system calls the maximum resident set: interpreter, libraries, Mooring and the input included.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from shapes import gpu_tray, machine, pod, rich_node, rich_pod, started, whole

from mooring.answers.base.agreement import replay_file
from mooring.engine.checkpoint.store import StateFolder
from mooring.engine.core.machineinfo import MachineInfo

ROOT = Path(__file__).resolve().parent.parent
TIMES = 20
"""How often a decision is made: caches are full then."""


def nothing() -> None:
    """Import what the others import, and do nothing."""


def decision(make: Callable[[], MachineInfo], memory: str, share: float) -> None:
    """Decide about a pod on a machine of which a share is taken, under both policies that merge everything."""
    info = make()
    for policy in ("best-effort", "restricted"):
        for options in ({}, {"prefer-closest-numa-nodes": "true"}):
            node = started(info, whole(policy, info.num_cores, **options), share).node
            for _ in range(TIMES):
                node.admit(pod("asked", memory=memory))


def everything() -> None:
    """Decide about a pod with two sizes of huge pages and two kinds of devices."""
    node, asked = rich_node(), rich_pod("asked")
    for _ in range(TIMES):
        node.admit(asked)


def churn() -> None:
    """Admit and remove a thousand pods, with both files on disk."""
    running = started(machine(8), whole("best-effort", 256), 0.5)
    with tempfile.TemporaryDirectory(dir=ROOT, prefix=".bench-") as path:
        folder = StateFolder(Path(path))
        for number in range(1000):
            running, _ = running.admit(pod(f"churn-{number}"))
            folder.write_both(running.files.cpu or "", running.files.memory or "")
            running, _ = running.remove(f"churn-{number}")
            folder.write_both(running.files.cpu or "", running.files.memory or "")


def corpora() -> None:
    """Replay and compare every recorded scenario."""
    for file in sorted((ROOT / "tests" / "corpora").glob("*.jsonl.gz")):
        machines = [file.with_name("real-kubelet-machines.jsonl")] if file.name.startswith("real") else []
        for outcome in replay_file(file, machines, compare=True):
            if outcome.differences:
                raise ValueError(outcome.id)


LINES: dict[str, Callable[[], None]] = {
    "nothing": nothing,
    **{
        f"{nodes}-nodes": partial(decision, partial(machine, nodes), "4Gi", share)
        for nodes, share in ((2, 0.8), (4, 0.8), (8, 0.8))
    },
    "everything-on-8-nodes": everything,
    "16-nodes": partial(decision, partial(machine, 16), "300Gi", 0.0),
    "34-nodes": partial(decision, gpu_tray, "300Gi", 0.0),
    "64-nodes": partial(decision, partial(machine, 64), "300Gi", 0.0),
    "a-thousand-pods": churn,
    "all-corpora": corpora,
}


def main(names: list[str]) -> None:
    """Print the peak of one line, or start a process for each."""
    if names:
        LINES[names[0]]()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{names[0]:24}{peak:6.0f} MB")
        return
    for name in LINES:
        subprocess.run([sys.executable, __file__, name], check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
