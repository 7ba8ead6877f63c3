"""How long an admission takes Mooring and the kubelet's own managers, in turn on the same machine.

    python benchmarks/beside_kubelet.py

Both admit the same pod on the same nodes (``shapes.py``, ``kubelet/admit.go``) and write both state files, on tmpfs and
on the disk of the working folder. Best and median of the runs of several turns, in ms. Needs Go; the
kubelet's module is fetched and built once, as for ``make e2e-kubelet``.
"""

from __future__ import annotations

import gc
import importlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

from shapes import machine, pod, started, whole
from test_node import admit_and_write

from mooring.engine.checkpoint.store import StateFolder

HERE = Path(__file__).parent
TURNS = 5
RUNS = {"kubelet": 41, "mooring": 200}
"""Of each turn."""


def built(folder: Path) -> Path:
    """Build the kubelet's half in a folder, and return the program."""
    sys.path.insert(0, str(HERE.parent / "scripts"))
    parts = importlib.import_module("e2e_kube_parts")
    module = parts.kube_program("kubelet").parent
    for source in (module / "go.mod", module / "go.sum", HERE / "kubelet" / "admit.go"):
        shutil.copy(source, folder)
    words = ["go", "build", "-mod=mod", "-trimpath", "-buildvcs=false", "-o", "admit", "."]
    subprocess.run(words, cwd=folder, env={**os.environ, **parts.ENVIRONMENT}, check=True)
    return folder / "admit"


def of_kubelet(program: Path, policy: str, nodes: int, share: float, folder: Path) -> list[float]:
    """Return the seconds of each admission by the kubelet's managers."""
    words = [str(program), policy, str(nodes), str(share), str(folder), str(RUNS["kubelet"])]
    told = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    return [float(line) for line in told.split()]


def of_mooring(policy: str, nodes: int, share: float, folder: Path) -> list[float]:
    """Return the seconds of each admission by Mooring."""
    kubelet, asked, files = started(machine(nodes), whole(policy, nodes * 32), share), pod("asked"), StateFolder(folder)
    times = []
    for _ in range(RUNS["mooring"]):
        began = perf_counter()
        admit_and_write(kubelet, asked, files)
        times.append(perf_counter() - began)
    return times


@contextmanager
def empty(place: str) -> Iterator[Path]:
    """Give a folder on tmpfs or on disk."""
    parent = "/dev/shm" if place == "tmpfs" else Path.cwd()  # noqa: S108 - a tmpfs is what is measured
    with tempfile.TemporaryDirectory(dir=parent, prefix=".bench-") as folder:
        yield Path(folder)


def row(program: Path, policy: str, nodes: int, share: float, place: str) -> str:
    """Measure one input, in turn."""
    times: dict[str, list[float]] = {"kubelet": [], "mooring": []}
    for _ in range(TURNS):
        with empty(place) as folder:
            times["kubelet"] += of_kubelet(program, policy, nodes, share, folder)
        with empty(place) as folder:
            times["mooring"] += of_mooring(policy, nodes, share, folder)
    gc.collect()
    best = {one: 1000 * min(found) for one, found in times.items()}
    middle = {one: 1000 * statistics.median(found) for one, found in times.items()}
    return (
        f"{policy:17} {nodes:5} {share:5.0%} {place:6}"
        f" {best['kubelet']:8.3f} {best['mooring']:8.3f} {best['kubelet'] / best['mooring']:6.1f}"
        f" {middle['kubelet']:8.3f} {middle['mooring']:8.3f} {middle['kubelet'] / middle['mooring']:6.1f}\n"
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as build:
        admit = built(Path(build))
        sys.stdout.write("policy            nodes  fill files      best  Mooring  ratio   median  Mooring  ratio\n")
        for where in ("tmpfs", "disk"):
            for chosen in ("best-effort", "single-numa-node"):
                for count in (2, 4, 8):
                    for filled in (0.0, 0.8):
                        sys.stdout.write(row(admit, chosen, count, filled, where))
                        sys.stdout.flush()
