"""Phrases of the linter."""

from __future__ import annotations

from collections.abc import Sequence

from mooring.core.cpuset import CPUSet
from mooring.explain.phrases import joined

NAMED = 4
"""How many things a sentence names before it counts the rest."""


def cpus_text(cpus: CPUSet) -> str:
    """Return a set with its noun.

    >>> cpus_text(CPUSet.parse("2")), cpus_text(CPUSet.parse("2-5,9"))
    ('CPU 2', 'CPUs 2-5,9')
    """
    return f"CPU{'' if len(cpus) == 1 else 's'} {cpus}"


def named(things: Sequence[str]) -> str:
    """Return some names, and how many more there are.

    >>> named(["a", "b"]), named(["a", "b", "c", "d", "e", "f"])
    ('a and b', 'a, b, c, d and 2 more')
    """
    if len(things) <= NAMED:
        return joined(list(things))
    return joined([*things[:NAMED], f"{len(things) - NAMED} more"])
