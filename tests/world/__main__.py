"""Lives of a world from a seed on: ``python -m tests.world --lives 100 --seed 1``."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from hashlib import sha256

from tests.world.seams import install


def main() -> int:
    parser = argparse.ArgumentParser()
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
    from tests.world import defects, lives, smallest  # noqa: PLC0415 - Mooring is imported behind the seams

    if asked.defect:
        defects.put_back(asked.defect)
    steps, left_out = asked.steps or lives.STEPS, frozenset(one for one in asked.without.split(",") if one)
    root, began, found = smallest.place(), time.monotonic(), 0
    faults: Counter[str] = Counter()
    events: Counter[str] = Counter()
    seconds, count, traces = 0.0, 0, sha256()
    try:
        for seed in range(asked.seed, asked.seed + asked.lives):
            if asked.minutes and time.monotonic() - began > asked.minutes * 60:
                break
            end = lives.lived(seed, root, steps, left_out)
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
                    short, without, least = smallest.smallest(end, root, steps)
                    print(f"  smallest: {smallest.command(seed, short, without)}\n  there: {least.broken}", flush=True)
                print(f"  at commit {_commit()}", flush=True)
                if found >= asked.findings:
                    break
    finally:
        shutil.rmtree(root.parent, ignore_errors=True)
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
