"""The topology manager: hints, their merging under a policy, distances, options.

It knows nothing of pods and of what a hint is about; asking providers in the right order is the node's work
(:mod:`mooring.engine.node`). Here is its face: merging on plain values, lists and dictionaries, as recordings and other
tools write them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from typing import Any, TypeAlias

from mooring.engine.core.bits import NUMAMask, mask_of
from mooring.engine.core.decision import Fault
from mooring.engine.core.errors import InputError
from mooring.engine.core.gotext import quote
from mooring.engine.topologymanager.hints import Hint, Hints, NUMAInfo
from mooring.engine.topologymanager.merge import NONE, POLICIES, SINGLE_NUMA_NODE, is_admitted, parse_options
from mooring.engine.topologymanager.merge import merge as merged_under
from mooring.engine.topologymanager.wide import ResourceHints, merge_entries
from mooring.lazy import dataclass

__all__ = ["Hint", "Hints", "MergeResult", "merge_hints"]

HIGHEST_NODE = 63
"""The kubelet's masks have 64 bits."""


@dataclass(frozen=True, slots=True)
class MergeResult:
    """What a policy answers."""

    numa: tuple[int, ...] | None
    """NUMA node ids, ascending; None when there is no mask."""
    preferred: bool
    admitted: bool


def merge_hints(
    policy: str,
    providers: Sequence[Mapping[str, Any] | None],
    *,
    numa_nodes: Collection[int],
    distances: Sequence[Sequence[int]] | None = None,
    options: Mapping[str, str] | None = None,
) -> MergeResult:
    """Merge the hints of several providers as the kubelet's topology manager does.

    Args:
        policy: none, best-effort, restricted or single-numa-node.
        providers: one mapping resource -> hints for each provider, or None. Hints are None ("don't care"), a list of
            ``{"numa": [ids] | None, "preferred": bool}`` or :class:`Hint` (an empty one means "impossible"), or
            :class:`Hints`.
        numa_nodes: ids of all NUMA nodes of the machine.
        distances: rows in the order of ``numa_nodes``, each indexed by node id; needed for prefer-closest-numa-nodes.
        options: topology manager policy options, text to text.

    Raises:
        InputError: a policy, option, node or hint that does not make sense.

    >>> cpu = {"cpu": [{"numa": [0], "preferred": True}, {"numa": [0, 1], "preferred": False}]}
    >>> gpu = {"vendor.example/gpu": [{"numa": [1], "preferred": True}, {"numa": [0, 1], "preferred": False}]}
    >>> merge_hints("best-effort", [cpu, gpu], numa_nodes=[0, 1])
    MergeResult(numa=(0,), preferred=False, admitted=True)
    """
    if policy not in POLICIES:
        raise InputError(
            f"unknown policy: {quote(str(policy))}", field="policy", remedy=f"use one of {', '.join(POLICIES)}"
        )
    if not numa_nodes:
        raise InputError("a machine has at least one NUMA node", field="numa_nodes")
    try:
        info = _without_distances(_MASKS[tuple(numa_nodes)])
    except TypeError:
        raise InputError("NUMA nodes are a list of numbers", field="numa_nodes") from None
    parsed = parse_options(options) if options else _NO_OPTIONS
    if isinstance(parsed, Fault):
        raise InputError(parsed.text, field="options")
    prefer_closest, _ = parsed
    if prefer_closest and policy not in (NONE, SINGLE_NUMA_NODE):
        if not isinstance(distances, Sequence) or len(distances) != len(numa_nodes):
            raise InputError(
                "prefer-closest-numa-nodes needs one row of distances for each NUMA node",
                field="distances",
                remedy="give the rows in the order of the nodes",
            )
        rows: Sequence[Any] = distances
        for row in rows:
            if not isinstance(row, Sequence) or not all(type(distance) is int for distance in row):
                raise InputError("a row of distances is a list of numbers", field="distances")
        info = NUMAInfo(info.nodes, dict(zip(numa_nodes, map(tuple, rows), strict=True)))
    grouped = _grouped_for_single if policy == SINGLE_NUMA_NODE else _grouped
    asked = [_provider_hints(provider, position, grouped) for position, provider in enumerate(providers)]
    merged = merged_under(policy, merge_entries(asked), info)
    return _result(merged.mask, preferred=merged.preferred, admitted=is_admitted(policy, merged))


_NO_OPTIONS = parse_options({})
# Merging small lists takes microseconds, and making each of these frozen values one of them; few differ.
_without_distances = lru_cache(maxsize=64)(NUMAInfo)


@lru_cache(maxsize=1024)
def _result(mask: NUMAMask | None, *, preferred: bool, admitted: bool) -> MergeResult:
    return MergeResult(Hint(mask, preferred).numa, preferred, admitted)


class _Masks(dict[tuple[Any, ...], NUMAMask]):
    """The mask of each tuple of NUMA node ids asked for so far."""

    __slots__ = ()

    def __missing__(self, nodes: tuple[Any, ...]) -> NUMAMask:
        for node in nodes:
            if not isinstance(node, int) or not 0 <= node <= HIGHEST_NODE:
                raise InputError(f"bit number must be in range 0-{HIGHEST_NODE}", field=f"NUMA node {node!r:.40}")
        if len(self) >= _MOST_MASKS:
            self.clear()
        mask = self[nodes] = NUMAMask(mask_of(nodes))
        return mask


_MOST_MASKS = 1 << 13
_MASKS = _Masks()


_Grouping: TypeAlias = Callable[[Sequence[Mapping[str, Any]]], Hints]


def _provider_hints(provider: Mapping[str, Any] | None, position: int, grouped: _Grouping) -> ResourceHints | None:
    if provider is None:
        return None
    if not isinstance(provider, (dict, Mapping)):
        raise InputError("a provider is null or a mapping resource -> hints", field=f"providers[{position}]")
    return {
        resource: hints if hints is None or isinstance(hints, Hints) else _listed(hints, position, resource, grouped)
        for resource, hints in provider.items()
    }


def _listed(hints: Any, position: int, resource: str, grouped: _Grouping) -> Hints:
    try:
        listed = list(hints)
        try:
            return grouped(listed)
        except TypeError:  # a Hint has attributes in place of keys
            fields = [{"numa": h.numa, "preferred": h.preferred} if isinstance(h, Hint) else h for h in listed]
            return grouped(fields)
    except (TypeError, KeyError, ValueError, AttributeError):
        raise InputError(
            "hints are null or a list of hints",
            field=f"providers[{position}].{resource}",
            remedy='write {"numa": [0], "preferred": true} for each',
        ) from None


def _grouped(hints: Sequence[Mapping[str, Any]]) -> Hints:
    """Group hints by what merging requests.

    Lists and a table of masks, because at 8 NUMA nodes a list has 255 hints and their conversion is most of a merge.
    """
    preferred = [_MASKS[tuple(h["numa"])] for h in hints if h["preferred"] is True and h["numa"] is not None]
    others = [_MASKS[tuple(h["numa"])] for h in hints if h["preferred"] is False and h["numa"] is not None]
    nil = [h["preferred"] for h in hints if h["numa"] is None]
    if len(preferred) + len(others) + sum(type(flag) is bool for flag in nil) != len(hints):
        raise TypeError
    return Hints(tuple(preferred), tuple(others), tuple(nil))


def _grouped_for_single(hints: Sequence[Mapping[str, Any]]) -> Hints:
    """Group hints for single-numa-node, which reads the preferred ones only.

    The others become one hint with all of their nodes: they are checked together, and whether there is any counts.
    """
    try:
        numas = [h["numa"] for h in hints]
        if numas == _every_set(len(numas)):
            together = _MASKS[tuple(range(len(numas).bit_length()))]
        else:
            nodes: list[Any] = []
            for numa in numas:
                nodes += numa
            together = _MASKS[tuple(set(nodes))]
    except (TypeError, InputError):
        return _grouped(hints)  # there is a hint without a mask, or this names what is wrong
    wanted = [h for h in hints if h["preferred"] is not False]
    for hint in wanted:
        if hint["preferred"] is not True:
            raise TypeError
    preferred = [_MASKS[tuple(h["numa"])] for h in wanted]
    return Hints(tuple(preferred), () if len(wanted) == len(hints) else (together,))


@lru_cache(maxsize=256)
def _every_set(count: int) -> list[list[int]]:
    """Return the ``count`` sets of the NUMA nodes 0, 1, ... in the kubelet's order; none for another number of sets.

    What fits on every node has this list in each call, and to compare lists takes a fifth of checking all numbers.
    """
    nodes = count.bit_length()
    if count != (1 << nodes) - 1 or nodes > _WIDEST_KNOWN:
        return []
    return [list(chosen) for size in range(1, nodes + 1) for chosen in combinations(range(nodes), size)]


_WIDEST_KNOWN = 8
