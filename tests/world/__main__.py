"""Lives of a world from a seed on: ``python -m tests.world --lives 100 --seed 1``."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from tests.world.living import Life, LifeEnd
from tests.world.seams import install
from tests.world.smallest import command, place, smallest


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--world", choices=("node", "wire", "cluster", "claims", "devices"), default="node")
    parser.add_argument("--lives", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=0.0, help="end earlier, after so many minutes")
    parser.add_argument("--without", default="", help="faults and events that are left out")
    parser.add_argument("--defect", default="", help="put this defect back in")
    parser.add_argument("--shrink", action="store_true", help="look for the smallest life that breaks the law")
    parser.add_argument("--trace", action="store_true", help="print what happens")
    parser.add_argument("--findings", type=int, default=3, help="broken laws after which the run ends")
    asked = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets must be the same in every process.
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        os.execve(sys.executable, [sys.executable, "-m", "tests.world", *sys.argv[1:]], environment)  # noqa: S606
    install()
    root = place()
    try:
        return _lived(asked, root)
    finally:
        shutil.rmtree(root.parent, ignore_errors=True)


def _lived(asked: argparse.Namespace, root: Path) -> int:
    from tests.world import claims_lives, cluster, cluster_lives, defects, devices_lives, lives  # noqa: PLC0415 - Mooring is imported behind the seams

    if asked.world in ("cluster", "devices"):
        cluster.shorten()
    if asked.defect:
        defects.put_back(asked.defect)

    def live(seed: int, steps: int, left_out: frozenset[str]) -> LifeEnd:
        kinds: dict[str, Callable[[Path, int, int, frozenset[str]], Life]] = {
            "node": lives.NodeLife,
            "wire": lives.WireLife,
            "cluster": cluster_lives.ClusterLife,
            "claims": claims_lives.ClaimsLife,
            "devices": devices_lives.DeviceLife,
        }
        return kinds[asked.world](root, seed, steps, left_out).run()

    left_out = frozenset(one for one in asked.without.split(",") if one)
    faults, events, traces = Counter[str](), Counter[str](), sha256()
    began, found, seconds, count = time.monotonic(), 0, 0.0, 0
    for seed in range(asked.seed, asked.seed + asked.lives):
        if found >= asked.findings or (asked.minutes and time.monotonic() - began > asked.minutes * 60):
            break
        end = live(seed, asked.steps, left_out)
        traces.update(end.trace.encode())
        count, seconds = count + 1, seconds + end.seconds
        faults.update(one.partition(":")[0] for one in end.faults)
        events.update(end.events)
        if asked.trace:
            print(*end.lines, end.trace, sep="\n")
        if end.broken:
            found += 1
            print(f"seed {seed} after {count} lives: {end.broken}", flush=True)
            if asked.shrink:
                short, without, least = smallest(end, live)
                print(f"  smallest: {command(asked.world, seed, short, without)}\n  there: {least.broken}")
            print(f"  at commit {_commit()}", flush=True)
    print(f"{count} lives, {seconds / 3600:.1f} hours of the world, {time.monotonic() - began:.0f} s, {found} broken")
    print("trace:", traces.hexdigest())
    print("faults:", ", ".join(f"{kind} {number}" for kind, number in sorted(faults.items())))
    print("events:", ", ".join(f"{kind} {number}" for kind, number in sorted(events.items())))
    return 1 if found else 0


def _commit() -> str:
    asked = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)  # noqa: S607
    return asked.stdout.strip() or "unknown"


if __name__ == "__main__":
    # Threads of lives that are over must not hold the end up.
    code = main()
    sys.stdout.flush()
    os._exit(code)
