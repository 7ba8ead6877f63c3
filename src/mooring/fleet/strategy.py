"""How pods are placed on nodes: the scheduler's scoring, and what else filters nodes.

A strategy has a name that says all of it: ``MostAllocated+extender``, ``LeastAllocated+numa:LeastNUMANodes``,
``RequestedToCapacityRatio(0:0,100:10)``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Final

from mooring.engine.core.errors import InputError


class Scoring(Enum):
    """How the scheduler's plugin NodeResourcesFit scores; the value is the name in its configuration."""

    LEAST = "LeastAllocated"
    MOST = "MostAllocated"
    RATIO = "RequestedToCapacityRatio"


class NUMAScoring(Enum):
    """How the plugin NodeResourceTopologyMatch scores; the value is the name in its configuration."""

    LEAST = "LeastAllocated"
    MOST = "MostAllocated"
    BALANCED = "BalancedAllocation"
    FEWEST_NODES = "LeastNUMANodes"


Shape = tuple[tuple[int, int], ...]
"""Points of a function: percent of use, score from 0 to 10; percent ascending."""
BIN_PACKING: Final[Shape] = ((0, 0), (100, 10))
"""The shape that Kubernetes' documentation shows for packing nodes."""
_NAME = re.compile(r"(\w+)(?:\(([^)]*)\))?((?:\+[\w:]+)*)")


@dataclass(frozen=True, slots=True)
class Strategy:
    """How pods are placed on nodes."""

    scoring: Scoring = Scoring.LEAST
    extender: bool = False
    """Whether nodes whose kubelet would refuse the pod are filtered out (``mooring extender``)."""
    shape: Shape = BIN_PACKING
    """Of RequestedToCapacityRatio."""
    numa: NUMAScoring | None = None
    """Whether NodeResourceTopologyMatch filters and scores, and how."""
    agent: bool = False
    """Whether Mooring's agent decides at the node instead of the kubelet's managers: a pod for which it has no room is
    held there until it has (``onRejection: hold``)."""

    @property
    def name(self) -> str:
        """What answers call it, and what ``--strategy`` takes."""
        points = ",".join(f"{percent}:{score}" for percent, score in self.shape)
        shape = f"({points})" if self.scoring is Scoring.RATIO else ""
        parts = [f"{self.scoring.value}{shape}", *(["extender"] if self.extender else [])]
        parts += [f"numa:{self.numa.value}"] if self.numa else []
        return "+".join([*parts, *(["agent"] if self.agent else [])])


def strategy_of(text: str) -> Strategy:
    """Return the strategy of a name.

    Raises:
        InputError: it names none.

    >>> strategy_of("MostAllocated+extender").name
    'MostAllocated+extender'
    >>> strategy_of("RequestedToCapacityRatio").name
    'RequestedToCapacityRatio(0:0,100:10)'
    """
    found = _NAME.fullmatch(text)
    scorings = {one.value: one for one in Scoring}
    if found is None or found[1] not in scorings:
        raise _unknown(text, f"is not a strategy; scorings are {', '.join(scorings)}")
    scoring = scorings[found[1]]
    if found[2] is not None and scoring is not Scoring.RATIO:
        raise _unknown(text, f"only {Scoring.RATIO.value} has a shape")
    extender, agent, numa, kinds = False, False, None, {one.value: one for one in NUMAScoring}
    for word in found[3].split("+")[1:]:
        kind, _, choice = word.partition(":")
        if word == "extender":
            extender = True
        elif word == "agent":
            agent = True
        elif kind == "numa" and (choice or NUMAScoring.LEAST.value) in kinds:
            numa = kinds[choice or NUMAScoring.LEAST.value]
        else:
            raise _unknown(text, f"{word!r:.40} is not extender, agent or numa:{'|'.join(kinds)}")
    shape = _shape(text, found[2]) if found[2] is not None else BIN_PACKING
    return Strategy(scoring, extender, shape, numa, agent)


def _shape(text: str, points: str) -> Shape:
    try:
        pairs = [point.split(":") for point in points.split(",")]
        shape = tuple((int(percent), int(score)) for percent, score in pairs)
    except ValueError:
        raise _unknown(text, "a shape is PERCENT:SCORE,...") from None
    ascending = all(before[0] < after[0] for before, after in pairwise(shape))
    if not ascending or not all(0 <= percent <= 100 and 0 <= score <= 10 for percent, score in shape):
        raise _unknown(text, "percents must ascend from 0 to 100, scores be 0 to 10")
    return shape


def _unknown(text: str, problem: str) -> InputError:
    return InputError(f"{text!r:.60}: {problem}", source="--strategy", remedy="write MostAllocated+extender")
