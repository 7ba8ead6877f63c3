"""Hints and their merge in plain words."""

from __future__ import annotations

from collections.abc import Iterator

from mooring.engine.core.bits import members
from mooring.engine.devicemanager.facts import DeviceHintsAsked
from mooring.engine.memorymanager.policy import is_memory
from mooring.engine.topologymanager.facts import HintsMerged
from mooring.engine.topologymanager.merge import SINGLE_NUMA_NODE
from mooring.explain.phrases import node_sets, nodes, per_node, plural, positions, size
from mooring.explain.story import NO, YES, Line, Opinion


def opinion_line(opinion: Opinion, policy: str) -> Line:
    """Return what one provider said, with what it said it from below."""
    alone = "" if opinion.suffices else f"; {policy} rejects that"
    if isinstance(opinion.asked, DeviceHintsAsked) and opinion.asked.follows:
        where = positions(opinion.asked.free)
        text = f"{opinion.resource}: {where}, which CPUs and memory follow{alone}"
        return Line(text, mark="" if opinion.suffices else NO)
    below = [Line(text) for text in _free(opinion)]
    if opinion.bound:
        where = nodes(members(opinion.bound))
        below.append(Line(f"must include {where}, where earlier containers of the pod have CPUs"))
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
            return "no set of NUMA nodes has enough, which counts as no preference until memory is allocated"
        return "any NUMA node works"
    if not opinion.narrowest:
        return f"no set of NUMA nodes works{_why_none(opinion)}"
    if not opinion.suffices:
        return _too_wide(opinion, policy)
    if not opinion.preferred:
        return f"at least {plural(opinion.narrowest, 'NUMA node')}, more than on an empty machine"
    if opinion.count is None:
        number, those = opinion.preferred[0].bit_count(), nodes(members(opinion.together))
        return f"preferred: any of {those}" if number == 1 else f"preferred: sets of {number} of {those}"
    wanted = f"preferred: {node_sets(opinion.preferred)}"
    others = opinion.count - len(opinion.preferred)
    return f"{wanted}; {others} other {'set also works' if others == 1 else 'sets also work'}" if others else wanted


def _why_none(opinion: Opinion) -> str:
    if opinion.held and opinion.need:
        return ": it already holds a different number"
    if not opinion.held and not opinion.need:
        return ": nothing would be left for the containers that share"
    return ""


def _too_wide(opinion: Opinion, policy: str) -> str:
    least = f"needs at least {plural(opinion.narrowest, 'NUMA node')}"
    if policy == SINGLE_NUMA_NODE and opinion.narrowest > 1:
        return least
    return f"{least}, more than on an empty machine"


def _free(opinion: Opinion) -> Iterator[str]:
    kinds = {kind for types in opinion.free.values() for kind in types}
    for kind in sorted(kinds, key=lambda kind: (kind != opinion.resource, kind)):
        amounts = {node: types.get(kind, 0) for node, types in opinion.free.items()}
        named = "" if kind == opinion.resource else f" {kind}"
        yield f"free{named}: {per_node(amounts, size if is_memory(kind) else str)}"


def merge_line(merge: HintsMerged, *, by_distance: bool, score: int | None = None) -> Line:
    """Return how the opinions became one.

    Args:
        merge: of the opinions.
        by_distance: whether of equally narrow sets the closest wins.
        score: of the hint, where it has one.
    """
    mark = YES if merge.admitted else NO
    verdict = "admits" if merge.admitted else "rejects"
    below = tuple(_choice(merge, by_distance=by_distance))
    if score:
        below += (
            Line(f"score {score}: the share of these nodes that is given away; nothing decides by it", detail=True),
        )
    return Line(f"{merge.policy} {verdict}: {_outcome(merge)}", below, mark=mark)


def _where(mask: int | None) -> str:
    return nodes(members(mask)) if mask else "all NUMA nodes"


def _outcome(merge: HintsMerged) -> str:
    mask = merge.result.mask
    if merge.rule == "preferred":
        if not mask:
            return "any NUMA node works"
        return f"{_where(mask)} {'is' if mask.bit_count() == 1 else 'are'} preferred by every resource"
    if merge.rule == "nothing":
        return "no combination of hints has a NUMA node in common"
    if merge.rule == "filtered":
        return "not every resource fits on one NUMA node"
    if merge.policy == SINGLE_NUMA_NODE:
        return "no NUMA node is preferred by every resource"
    return f"no set of NUMA nodes is preferred by every resource; the best of the others is {_where(mask)}"


def _choice(merge: HintsMerged, *, by_distance: bool) -> Iterator[Line]:
    """Say among which sets the rule chose."""
    if merge.choices is None:
        return
    ties = "the closest, then the lowest" if by_distance else "the lowest"
    if merge.rule == "preferred" and len(merge.choices) > 1:
        yield Line(f"preferred by all: {node_sets(merge.choices)}; the narrowest, then {ties} wins", detail=True)
    if merge.rule == "narrowest" and merge.policy != SINGLE_NUMA_NODE:
        aim = plural(merge.bound, "NUMA node")
        yield Line(
            f"possible: {node_sets(merge.choices)}; sets of {aim} win, then smaller, then larger ones; "
            f"among equal sizes {ties}",
            detail=True,
        )
