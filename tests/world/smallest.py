"""The smallest life that breaks a law, and the command that lives it again."""

from __future__ import annotations

import os
from pathlib import Path

from tests.world.files import RATES
from tests.world.lives import EVENTS, STEPS, LifeEnd, lived


def smallest(end: LifeEnd, root: Path, steps: int = STEPS) -> tuple[int, frozenset[str], LifeEnd]:
    """Return the shortest life with the fewest faults that still breaks a law: its steps, and what is left out."""
    left_out: frozenset[str] = frozenset()
    best = end
    for fewer in range(steps):
        tried = lived(end.seed, root, fewer)
        if tried.broken[:12] == end.broken[:12]:
            steps, best = fewer, tried
            break
    kinds = sorted({*RATES, *EVENTS})
    law = end.broken[:12]
    events = [f"{what}:{number}" for number in range(steps) for what in EVENTS]
    happening = {line.split(" ", 1)[1] for line in best.lines if " " in line}
    for one in [*kinds, *(each for each in events if each in happening)]:
        tried = lived(end.seed, root, steps, left_out | {one})
        if tried.broken[:12] == law:
            left_out, best = left_out | {one}, tried
    for one in best.faults:
        tried = lived(end.seed, root, steps, left_out | {one})
        if tried.broken[:12] == law:
            left_out, best = left_out | {one}, tried
    return steps, left_out, best


def command(seed: int, steps: int, left_out: frozenset[str]) -> str:
    """Return the command that lives a life again."""
    more = f' WITHOUT="{",".join(sorted(left_out))}"' if left_out else ""
    return f"make world LIVES=1 SEED={seed} STEPS={steps}{more}"


def place() -> Path:
    """Return a folder of this process, in memory where there is such a one."""
    base = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else Path("/tmp")  # noqa: S108 - a folder of its own
    return base / f"mooring-world-{os.getpid()}" / "root"
