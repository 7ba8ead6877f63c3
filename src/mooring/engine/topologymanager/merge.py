"""Merging hints: from what each provider would like to one answer for all of them; and the options of that.

The kubelet folds a comparison over the Cartesian product of all hints. The outcome depends on much less: on whether a
mask exists that every provider prefers, and otherwise on the set of non-empty intersections that can be reached. This
module works on that, and is held against the plain product in the tests.

Source: kubelet v1.37.1, topologymanager policy*.go and policy_options.go; spec: topology-manager.md section 3,
configuration.md section 4.3.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from mooring.engine.core.bits import NO_NODES, NUMAMask, members
from mooring.engine.core.decision import Cause, Fault, Observer
from mooring.engine.core.gotext import GoSyntaxError, atoi, parse_bool, quote
from mooring.engine.topologymanager.facts import HintsMerged
from mooring.engine.topologymanager.hints import Hint, Hints, NUMAInfo, best_of_size, narrowest
from mooring.engine.topologymanager.wide import WIDEST, Family, families_by_size, family_of, intersections
from mooring.engine.topologymanager.widemerge import Entry, best_preferred, best_reachable

FIELD = "topologyManagerPolicyOptions"
PREFER_CLOSEST = "prefer-closest-numa-nodes"
MAX_ALLOWABLE = "max-allowable-numa-nodes"
DEFAULT_MAX_ALLOWABLE = 8

STABLE = "stable"
OPTION_GROUPS: Mapping[str, str] = {PREFER_CLOSEST: STABLE, MAX_ALLOWABLE: STABLE}
"""Option -> maturity group in v1.37.1; older releases have others (``mooring.engine.releases.gates``)."""

GROUP_GATES: Mapping[str, str] = {
    "beta": "TopologyManagerPolicyBetaOptions",
    "alpha": "TopologyManagerPolicyAlphaOptions",
}
"""Maturity group -> the feature gate that its options need."""


def parse_options(
    options: Mapping[str, str],
    groups: Mapping[str, str] = OPTION_GROUPS,
    enabled: Collection[str] = (STABLE,),
    *,
    capitalized: bool = False,
) -> tuple[bool, int] | Fault:
    """Return whether close nodes are preferred, and how many nodes there may be; or what is wrong.

    That is said of the first bad option in sorted order (random in the kubelet).

    Args:
        options: as given.
        groups: options of the kubelet's release, and their groups.
        enabled: groups that may be used: ``stable``, and those whose feature gates are on.
        capitalized: whether refusals of a group begin as titles do: rule capitalized-topology-option-texts, up to
            v1.32 (spec: releases.md section 8).
    """
    prefer_closest = False
    max_allowable = DEFAULT_MAX_ALLOWABLE
    for name in sorted(options):
        value = options[name]
        group = groups.get(name)
        if group is None:
            text = f"unknown Topology Manager Policy option: {quote(name)}"
            return Fault(text, Cause.UNKNOWN_TOPOLOGY_OPTION, FIELD, (name,))
        if group not in enabled:
            kind = f"topology manager policy {group}-level options"
            if capitalized:
                kind = f"Topology Manager Policy {group.capitalize()}-level Options"
            text = f"{kind} not enabled, but option {quote(name)} provided"
            return Fault(text, Cause.TOPOLOGY_OPTION_GROUP, FIELD, (name,), (GROUP_GATES[group],))
        if name == PREFER_CLOSEST:
            try:
                prefer_closest = parse_bool(value)
            except GoSyntaxError as error:
                return Fault(f"bad value for option {quote(name)}: {error}", Cause.OPTION_VALUE, FIELD, (name,))
        else:
            try:
                max_allowable = atoi(value)
            except GoSyntaxError as error:
                return Fault(f"unable to convert policy option to integer {quote(name)}: {error}", names=(name,))
            if max_allowable < DEFAULT_MAX_ALLOWABLE:
                text = f"the minimum value of {quote(name)} should not be less than {DEFAULT_MAX_ALLOWABLE}"
                return Fault(text, names=(name,))
    return prefer_closest, max_allowable


NONE = "none"
BEST_EFFORT = "best-effort"
RESTRICTED = "restricted"
SINGLE_NUMA_NODE = "single-numa-node"

POLICIES = (NONE, BEST_EFFORT, RESTRICTED, SINGLE_NUMA_NODE)
"""Policy names, in the order in which the kubelet lists them."""

MOST_CHOICES = 256
"""Up to this many choices a merge reports to its observer."""


def is_admitted(policy: str, hint: Hint) -> bool:
    """Tell whether a policy admits what the hints were merged to: restricted and single-numa-node want it preferred."""
    return hint.preferred or policy in (NONE, BEST_EFFORT)


def merge(policy: str, entries: Sequence[Entry], info: NUMAInfo, observer: Observer | None = None) -> Hint:
    """Merge the entries under a policy.

    single-numa-node looks only at hints without a mask or with one node, prefers no distances, and answers "no mask"
    where the result is all nodes.

    Args:
        policy: one of :data:`POLICIES`.
        entries: the hints of each resource of each provider
        (:func:`mooring.engine.topologymanager.wide.merge_entries`).
        info: nodes and distances of the machine.
        observer: receives one :class:`HintsMerged`.
    """
    if policy == NONE:
        return _hint(None, preferred=False)
    if policy == SINGLE_NUMA_NODE:
        winner = _merged_single(entries, info.nodes, listing=observer is not None)
    elif Family in map(type, entries):
        winner = _merged_wide(entries, info)
    else:
        winner = _merged_hint([hints for hints in entries if isinstance(hints, Hints)], info)
    mask = None if policy == SINGLE_NUMA_NODE and winner.mask == info.nodes else winner.mask
    merged = _hint(mask, preferred=winner.preferred)
    if observer is not None:
        choices: tuple[int, ...] | None = None
        if isinstance(winner.choices, int):
            choices = tuple(members(winner.choices)) if winner.choices.bit_count() <= MOST_CHOICES else None
        elif winner.choices is not None and len(winner.choices) <= MOST_CHOICES:
            choices = tuple(sorted(winner.choices))
        admitted = is_admitted(policy, merged)
        observer(HintsMerged(policy, tuple(entries), merged, admitted, winner.rule, winner.bound, choices))
    return merged


# Few differ, and making a frozen value takes a part of a small merge that can be measured.
_hint = lru_cache(maxsize=1024)(Hint)


class _Winner(NamedTuple):
    """The winning hint and how it won; a tuple, because a frozen dataclass costs a tenth of a small merge."""

    mask: NUMAMask
    preferred: bool
    rule: str
    bound: int = 0
    """0 where sizes played no part."""
    choices: Collection[int] | int | None = None
    """Among which the rule chose: masks, or the bit set of a family of masks; None where they were not listed."""


def _merged_single(entries: Sequence[Entry], nodes: NUMAMask, *, listing: bool) -> _Winner:
    """Merge what single-numa-node looks at: preferred hints without a mask or with exactly one node.

    Two of them that meet have the same mask or one has none, so what can be reached at all is preferred by all, and
    each entry is the set of the nodes that it offers.

    Args:
        entries: the hints of each resource.
        nodes: all nodes of the machine.
        listing: whether the choices are listed.
    """
    common, anywhere, limited = nodes, NO_NODES, False
    for hints in entries:
        offered, any_node = _single_nodes(hints)
        if any_node:
            anywhere |= offered
        elif offered:
            common &= offered
            limited = True
        else:
            return _Winner(nodes, False, "filtered")
    singles = common if limited else anywhere & nodes
    if (limited and not singles) or not nodes:
        return _Winner(nodes, False, "nothing", 1)
    choices = None
    if listing:
        choices = {1 << node for node in members(singles)} | (set() if limited else {nodes})
    return _Winner(NUMAMask(singles & -singles) if singles else nodes, True, "preferred", choices=choices)


def _single_nodes(hints: Entry) -> tuple[NUMAMask, bool]:
    """Return the nodes that are preferred alone, and whether there is a preferred hint without a mask."""
    offered = NO_NODES
    if isinstance(hints, Hints):
        for mask in hints.preferred:
            if not mask & (mask - 1):
                offered |= mask
        return offered, True in hints.nil
    singles = {NUMAMask(1 << node) for node in members(hints.universe)}
    singles.update(mask for mask in hints.listed if mask.bit_count() == 1)
    for mask in singles:
        if hints.holds(mask) and hints.prefers(mask):
            offered |= mask
    return offered, False


def _merged_hint(entries: list[Hints], info: NUMAInfo) -> _Winner:
    """Merge entries whose hints are listed."""
    if not all(entries):
        return _Winner(info.nodes, False, "filtered")
    common = _common_preferred(entries, info.nodes)
    if common:
        return _Winner(NUMAMask(narrowest(info, tuple(common))), True, "preferred", choices=common)
    bound = _size_bound(entries)
    mask, reachable = _best_reachable(entries, info, bound)
    if mask:
        return _Winner(NUMAMask(mask), False, "narrowest", bound, reachable)
    return _Winner(info.nodes, False, "nothing", bound)


def _merged_wide(entries: Sequence[Entry], info: NUMAInfo) -> _Winner:
    """Merge entries some of which are families too large to list."""
    if not all(isinstance(hints, Family) or hints for hints in entries):
        return _Winner(info.nodes, False, "filtered")
    mask = best_preferred(entries, info)
    if mask:
        return _Winner(NUMAMask(mask), True, "preferred")
    bound = 0
    for hints in entries:
        bound = max(bound, hints.narrowest() if isinstance(hints, Family) else _size_bound([hints]))
    mask = best_reachable(entries, info, bound)
    if mask:
        return _Winner(NUMAMask(mask), False, "narrowest", bound)
    return _Winner(info.nodes, False, "nothing", bound)


def _common_preferred(entries: list[Hints], nodes: int) -> set[int]:
    """Return the non-empty masks of permutations that are preferred as a whole.

    A permutation is preferred when all its hints are and all its masks are equal. So mask m is among them when every
    entry has a preferred hint with exactly m, or one without a mask; the default mask is when every entry has one
    without a mask.
    """
    masks: set[int] | None = None
    for hints in entries:
        if True not in hints.nil:
            masks = set[int](hints.preferred) if masks is None else masks.intersection(hints.preferred)
            if not masks:
                return set()
    if masks is None:
        masks = {nodes}.union(*(hints.preferred for hints in entries))
    return {mask & nodes for mask in masks if mask & nodes}


def _size_bound(entries: list[Hints]) -> int:
    """Return the largest, over the entries, of the size of the entry's narrowest mask; 0 when no entry has a mask.

    Source: policy.go, maxOfMinAffinityCounts: the size below which a result that is not preferred need not go.
    """
    bound = 0
    for hints in entries:
        bound = max(bound, min((mask.bit_count() for mask in (*hints.preferred, *hints.others)), default=0))
    return bound


def _best_reachable(entries: list[Hints], info: NUMAInfo, bound: int) -> tuple[int, set[int] | int]:
    """Return the best non-empty intersection of one mask of each entry, 0 when there is none, and all of them.

    Sizes are tried in the order that the kubelet's comparison amounts to: the bound, then below it the larger first,
    then above it the smaller first (compareHints of v1.37.1, both hints not preferred).
    """
    width = info.nodes.bit_length()
    lists: list[list[int]] = []
    for hints in entries:
        if hints.preferred or hints.others:
            masks: list[int] = [mask & info.nodes for mask in (*hints.preferred, *hints.others)]
            lists.append([*masks, info.nodes] if hints.nil else masks)
    if not lists:
        return info.nodes, {info.nodes}
    sizes = [*range(min(bound, width), 0, -1), *range(bound + 1, width + 1)]
    if width <= WIDEST:
        family = family_of(lists[0], width)
        for masks in lists[1:]:
            family = intersections(family, family_of(masks, width), width)
        family &= ~1
        of_size = families_by_size(width)
        for size in sizes:
            found = family & of_size[size]
            if found and info.distances is None:
                lowest: int = found & -found
                return lowest.bit_length() - 1, family
            if found:
                return best_of_size(info, tuple(members(found))), family
        return 0, family
    reachable = set(lists[0]) - {0}
    for masks in lists[1:]:
        distinct = set(masks)
        reachable = {left & right for left in reachable for right in distinct}
        reachable.discard(0)
    by_size: dict[int, list[int]] = {}
    for mask in reachable:
        by_size.setdefault(mask.bit_count(), []).append(mask)
    return next((best_of_size(info, tuple(by_size[size])) for size in sizes if size in by_size), 0), reachable
