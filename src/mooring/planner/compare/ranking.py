"""Which variant is better: measures compared one after another, the most important first.

The order is that of a person who wants their pods to run, and then to run well: what is lost of what runs already,
what is admitted, how it is aligned from the memory's distance down to the threads of a core, what is wasted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction

from mooring.planner.compare.measures import Measures

Value = Callable[[Measures], int | Fraction]

MEASURES: Mapping[str, Value] = {
    "admitted": lambda found: -found.admitted,
    "numa": lambda found: -found.aligned.numa,
    "l3": lambda found: -found.aligned.l3,
    "core": lambda found: -found.aligned.core,
    "stranded": lambda found: found.stranded.total,
    "socket": lambda found: -found.aligned.socket,
    "spread": lambda found: found.spread,
    "memory": lambda found: found.memory_beyond,
}
"""Name of a measure on the command line -> its value, the smaller the better, in the order in which they count."""


def rank_key(found: Measures, by: str = "admitted") -> tuple[int | Fraction, ...]:
    """Return what variants are sorted by, the best first.

    Args:
        found: of a variant.
        by: the measure that counts before all others; running pods that would be lost come before even that.
    """
    return (found.lost, MEASURES[by](found), *(value(found) for value in MEASURES.values()))
