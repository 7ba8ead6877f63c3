"""What the topology manager reports to an observer."""

from __future__ import annotations

from mooring.engine.topologymanager.hints import Hint, Hints
from mooring.engine.topologymanager.wide import Family
from mooring.lazy import dataclass


@dataclass(frozen=True, slots=True)
class HintsMerged:
    """One merge: what went in, what came out, and by which rule."""

    policy: str
    entries: tuple[Hints | Family, ...]
    """One for each resource of each provider, in the order of the merge."""
    result: Hint
    admitted: bool
    rule: str
    """``preferred``: a common preferred mask exists. ``narrowest``: none exists, the best reachable intersection won.
    ``nothing``: no combination has a node in common. ``filtered``: single-numa-node left no hint of some resource."""
    bound: int
    """The size that candidates are compared with when none is preferred: the largest of the narrowest hints."""
    choices: tuple[int, ...] | None = None
    """Masks among which the rule ``preferred`` or ``narrowest`` chose, ascending; None where the merge did not list
    them."""
