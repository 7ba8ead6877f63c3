"""Run the property tests with seeds of their own until the time is over: examples that `make test` does not draw.

A round is every property test with one seed; the next round has the next seed. Failures end the search: the output of
the round and the commands that repeat its failures are printed and kept in build/fuzz.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "fuzz"
FINDINGS = FOLDER / "findings.txt"
FAILED = 1
"""The exit code of pytest when tests failed."""


def run_round(seed: int, until: float, workers: int, tests: list[str]) -> int:
    """Run the property tests once with this seed, print what pytest prints, and keep it if something fails."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.fuzzing"]
    command += ["-n", str(workers), "-m", "hypothesis", "-r", "fE", "--no-header", "--hypothesis-profile=fuzz"]
    command += [f"--hypothesis-seed={seed}", f"--fuzz-until={until}", f"--fuzz-findings={FINDINGS}", *tests]
    lines = []
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running:  # noqa: S603 - a fixed command
        for line in running.stdout or ():
            print(line, end="", flush=True)
            lines.append(line)
    if running.returncode:
        (FOLDER / f"seed-{seed}.txt").write_text("".join(lines), encoding="utf-8")
    return running.returncode


def main() -> int:
    """Search for as long as the minutes last; return 1 for a finding and pytest's code for anything else."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5, help="how long to search (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="seed of the first round (default: drawn)")
    parser.add_argument("--workers", type=int, default=2, help="processes (default: %(default)s)")
    parser.add_argument("--report", action="store_true", help="a finding is printed and kept, and the exit code is 0")
    parser.add_argument("tests", nargs="*", default=["tests"], help="files or folders (default: %(default)s)")
    asked = parser.parse_args()
    first = asked.seed if asked.seed is not None else random.SystemRandom().randrange(10**9)
    until = time.time() + asked.minutes * 60
    FOLDER.mkdir(parents=True, exist_ok=True)
    FINDINGS.unlink(missing_ok=True)
    seed = first
    while time.time() < until:
        print(f"fuzz: seed {seed}, {(until - time.time()) / 60:.1f} minutes left", flush=True)
        code = run_round(seed, until, asked.workers, asked.tests)
        if code:
            break
        seed += 1
    else:
        print(f"fuzz: nothing found, seeds {first} to {seed - 1}")
        return 0
    if code != FAILED:
        print(f"fuzz: pytest did not run (exit code {code})")
        return code
    print(f"fuzz: FOUND with seed {seed}; the output is in build/fuzz/seed-{seed}.txt, and this repeats it:")
    print(FINDINGS.read_text(encoding="utf-8"), end="")
    return 0 if asked.report else FAILED


if __name__ == "__main__":
    sys.exit(main())
