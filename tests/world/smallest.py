"""The smallest life that breaks a law, and the command that lives it again."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from tests.world.living import LifeEnd

Live = Callable[[int, int, frozenset[str]], LifeEnd]
"""Lives the life of a seed, of so many steps, without some events and faults."""


def smallest(end: LifeEnd, live: Live) -> tuple[int, frozenset[str], LifeEnd]:
    """Return the shortest life with the fewest faults that still breaks a law: its steps, and what is left out."""
    left_out: frozenset[str] = frozenset()
    best, law = end, end.broken[:12]
    for steps in range(1, end.steps + 1):
        best = live(end.seed, steps, left_out)
        if best.broken[:12] == law:
            break
    happened = [line.split(" ", 1)[1] for line in best.lines if line.partition(" ")[2].rpartition(":")[0] in end.kinds]
    for one in [*sorted(end.kinds), *happened, *best.faults]:
        tried = live(end.seed, steps, left_out | {one})
        if tried.broken[:12] == law:
            left_out, best = left_out | {one}, tried
    return steps, left_out, best


def command(world: str, seed: int, steps: int, left_out: frozenset[str]) -> str:
    """Return the command that lives a life again."""
    more = f' WITHOUT="{",".join(sorted(left_out))}"' if left_out else ""
    return f"make world WORLD={world} LIVES=1 SEED={seed} STEPS={steps}{more}"


def place() -> Path:
    """Return a folder of this process, in memory where there is such a one."""
    base = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else Path("/tmp")  # noqa: S108 - a folder of its own
    return base / f"mooring-world-{os.getpid()}" / "root"
