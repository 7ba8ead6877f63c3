"""Hints as documents have them: all of them, or what is worth saying of very many.

The names are those of the conformance recordings (docs/reference/scenarios.md).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from hashlib import sha256

from msgspec import UNSET

from mooring.documents.parts import HintDigest, HintFamily, HintList, HintPart
from mooring.engine.core.bits import NUMAMask, list_text, members
from mooring.engine.node.decision import NO_AFFINITY, Decision
from mooring.engine.node.scores import HintsAsked
from mooring.engine.topologymanager.hints import Hint, Hints
from mooring.engine.topologymanager.wide import AnyHints, Family, ResourceHints

LONGEST_LIST = 64
"""Longer lists of hints are given as a count and a digest."""

WIDEST_UNIVERSE = 16
"""Up to this many NUMA nodes the order of all their subsets is made once and remembered."""


def hint_part(hint: Hint, score: int | None = None) -> HintPart:
    """Return one hint, with its score where it has one."""
    return HintPart(None if hint.numa is None else list(hint.numa), hint.preferred, UNSET if score is None else score)


def affinity_parts(decision: Decision) -> dict[str, HintPart]:
    """Return the hint that is stored for each container."""
    asked = decision.asked

    def score(name: str, hint: Hint) -> int | None:
        if asked is None:
            return None
        of = asked.get(name, asked.get(""))
        return 0 if of is None or hint == NO_AFFINITY else of.merged(hint)

    return {name: hint_part(hint, score(name, hint)) for name, hint in decision.affinity.items()}


def hint_lists(hints: ResourceHints, asked: HintsAsked | None = None) -> dict[str, HintList]:
    """Return the hints of each resource, with their scores where it is known what they were made of."""
    return {
        resource: hint_list(found, None if asked is None else partial(asked.score, resource))
        for resource, found in hints.items()
    }


def hint_list(hints: AnyHints | None, score: Callable[[NUMAMask], int] | None = None) -> HintList:
    """Return the hints of one resource: null, a list, or for a long list its count and digest."""
    if hints is None:
        return None
    if isinstance(hints, Family):
        if hints.universe.bit_count() > WIDEST_UNIVERSE:
            listed = [list(members(mask)) for mask in hints.listed]
            return HintFamily(list_text(hints.universe), hints.narrowest(), hints.smallest, listed)
        hints = hints.hints()
    if len(hints) <= LONGEST_LIST:
        return [hint_part(one, None if score is None else 0 if one.mask is None else score(one.mask)) for one in hints]
    preferred = len(hints.preferred) + sum(hints.nil)
    return HintDigest(len(hints), preferred, sha256(_digest_text(hints, score).encode()).hexdigest())


def _digest_text(hints: Hints, score: Callable[[NUMAMask], int] | None) -> str:
    """Return ``<nodes>:<true|false>;`` for each hint in order, or ``<nodes>:<true|false>:<score>;``."""
    nil = "" if score is None else ":0"
    words = [f"null:true{nil};" if flag else f"null:false{nil};" for flag in hints.nil]
    flags: dict[int, str] = {
        **dict.fromkeys(hints.others, "false"),
        **dict.fromkeys(hints.preferred, "true"),
    }
    if score is not None:
        flags = {mask: f"{flag}:{score(NUMAMask(mask))}" for mask, flag in flags.items()}
    universe = 0
    for mask in flags:
        universe |= mask
    if universe.bit_count() > WIDEST_UNIVERSE:
        ordered = sorted((len(hint.numa or ()), hint.numa or (), hint.mask or 0) for hint in hints if hint.mask)
        words += [f"{','.join(map(str, nodes))}:{flags[mask]};" for _, nodes, mask in ordered]
    else:
        words += [f"{text}:{flags[mask]};" for mask, text in _ordered_sets(universe) if mask in flags]
    return "".join(words)


@lru_cache(maxsize=8)
def _ordered_sets(universe: int) -> tuple[tuple[int, str], ...]:
    """Return all non-empty subsets of a node set with their texts, by size and then lexicographic."""
    sized: list[tuple[int, tuple[int, ...], int]] = []
    subset = universe
    while subset:
        nodes = tuple(members(subset))
        sized.append((len(nodes), nodes, subset))
        subset = (subset - 1) & universe
    return tuple((mask, ",".join(map(str, nodes))) for _, nodes, mask in sorted(sized))
