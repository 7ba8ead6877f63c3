"""Hints and their merge in plain words."""

from __future__ import annotations

from collections.abc import Iterator

from mooring.core.bits import members
from mooring.explain.phrases import count, node_sets, nodes, per_node, size
from mooring.explain.story import Opinion
from mooring.explain.tree import NO, YES, Line
from mooring.memorymanager.reserved import is_memory
from mooring.topologymanager.facts import HintsMerged
from mooring.topologymanager.merge import SINGLE_NUMA_NODE


def opinion_line(opinion: Opinion, policy: str) -> Line:
    """Return what one provider said, with what it said it from below."""
    alone = "" if opinion.suffices else f"; {policy} refuses that"
    below = [Line(text) for text in _free(opinion)]
    if opinion.bound:
        where = nodes(members(opinion.bound))
        below.append(Line(f"must hold {where}, where earlier containers of the pod have CPUs"))
    below += [Line(f"{nodes(group)} serve memory as one group") for group in opinion.groups]
    return Line(
        f"{_label(opinion)}: {_said(opinion, policy)}{alone}", tuple(below), mark="" if opinion.suffices else NO
    )


def _label(opinion: Opinion) -> str:
    amounts = [
        f"{_amount(kind, amount)}{f' of {kind}' if kind != opinion.resource else ''}"
        for kind, amount in opinion.need.items()
    ]
    return f"{opinion.resource} ({', '.join(amounts)})" if amounts else opinion.resource


def _amount(kind: str, amount: int) -> str:
    return size(amount) if is_memory(kind) else str(amount)


def _said(opinion: Opinion, policy: str) -> str:
    if opinion.indifferent:
        if opinion.nothing_fits:
            return "no set of NUMA nodes has enough, which counts as no opinion until memory is allocated"
        return "any NUMA node will do"
    if not opinion.narrowest:
        return f"no set of NUMA nodes will do{_why_none(opinion)}"
    if not opinion.suffices:
        return _too_wide(opinion, policy)
    if not opinion.preferred:
        return f"{count(opinion.narrowest, 'NUMA node')} at least, more than on an empty machine"
    if opinion.count is None:
        number, those = opinion.preferred[0].bit_count(), nodes(members(opinion.together))
        return f"preferred is any of {those}" if number == 1 else f"preferred are sets of {number} of {those}"
    wanted = f"preferred {'are' if len(opinion.preferred) > 1 else 'is'} {node_sets(opinion.preferred)}"
    others = opinion.count - len(opinion.preferred)
    return f"{wanted}; {others} wider {'set' if others == 1 else 'sets'} would do" if others else wanted


def _why_none(opinion: Opinion) -> str:
    if opinion.held and opinion.need:
        return ", because it holds another number already"
    if not opinion.held and not opinion.need:
        return ", because nothing would be left for the containers that share"
    return ""


def _too_wide(opinion: Opinion, policy: str) -> str:
    least = f"it takes {count(opinion.narrowest, 'NUMA node')} at least"
    if policy == SINGLE_NUMA_NODE and opinion.narrowest > 1:
        return least
    return f"{least}, more than on an empty machine"


def _free(opinion: Opinion) -> Iterator[str]:
    kinds = {kind for types in opinion.free.values() for kind in types}
    for kind in sorted(kinds, key=lambda kind: (kind != opinion.resource, kind)):
        amounts = {node: types.get(kind, 0) for node, types in opinion.free.items()}
        named = "" if kind == opinion.resource else f" {kind}"
        yield f"free{named}: {per_node(amounts, size if is_memory(kind) else str)}"


def merge_line(merge: HintsMerged, *, by_distance: bool) -> Line:
    """Return how the opinions became one.

    Args:
        merge: of the opinions.
        by_distance: whether of equally narrow sets the closest wins.
    """
    mark = YES if merge.admitted else NO
    verdict = "admits" if merge.admitted else "refuses"
    below = tuple(_choice(merge, by_distance=by_distance))
    return Line(f"{merge.policy} {verdict}: {_outcome(merge)}", below, mark=mark)


def _where(mask: int | None) -> str:
    return nodes(members(mask)) if mask else "all NUMA nodes"


def _outcome(merge: HintsMerged) -> str:
    mask = merge.result.mask
    if merge.rule == "preferred":
        if not mask:
            return "any NUMA node will do"
        return f"{_where(mask)} {'is' if mask.bit_count() == 1 else 'are'} preferred by every resource"
    if merge.rule == "nothing":
        return "no combination of hints has a NUMA node in common"
    if merge.rule == "filtered":
        return "not every resource has a preferred hint of one NUMA node"
    if merge.policy == SINGLE_NUMA_NODE:
        return "no NUMA node is preferred by every resource"
    return f"no set of NUMA nodes is preferred by every resource; the best of the others is {_where(mask)}"


def _choice(merge: HintsMerged, *, by_distance: bool) -> Iterator[Line]:
    """Say among what was chosen, and by which rule."""
    if merge.choices is None:
        return
    ties = "the closest, then the lowest" if by_distance else "the lowest"
    if merge.rule == "preferred" and len(merge.choices) > 1:
        yield Line(f"preferred by all: {node_sets(merge.choices)}; the narrowest, then {ties} wins", detail=True)
    if merge.rule == "narrowest" and merge.policy != SINGLE_NUMA_NODE:
        aim = count(merge.bound, "NUMA node")
        yield Line(
            f"within reach: {node_sets(merge.choices)}; sets of {aim} win, then smaller ones, then larger ones; "
            f"of the same size {ties}",
            detail=True,
        )
