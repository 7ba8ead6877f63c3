"""What a proposal costs, in words."""

from __future__ import annotations

from mooring.answers.base.changes.search import Proposal
from mooring.explain.alignment import AlignmentLevel, level_words
from mooring.explain.phrases import devices_in_words, joined, plural, size


def given_up_words(proposal: Proposal) -> list[str]:
    """Return what is given up: guarantees with what then lies on several NUMA nodes, devices, CPUs, memory."""
    cost = proposal.cost
    parts = [*(f"guarantee of {one.value}" for one in proposal.guarantees), *_spread_words(proposal)]
    if cost.devices:
        parts.append(plural(cost.devices, "device"))
    if cost.cpus:
        parts.append(f"{cost.cpus / 1000:g} CPU{'' if cost.cpus == 1000 else 's'}")
    if cost.bytes:
        parts.append(size(cost.bytes))
    return parts


def _spread_words(proposal: Proposal) -> list[str]:
    """Return what lies on several NUMA nodes, such as ``GPUs on 2 NUMA nodes``, without what is alignment lost."""
    lost = proposal.alignment_lost
    return [
        f"{what if is_own else devices_in_words(what)} on {plural(count, 'NUMA node')}"
        for what, count in proposal.spread.items()
        if (AlignmentLevel.NUMA if (is_own := what in ("CPUs", "memory")) else AlignmentLevel.DEVICES) not in lost
    ]


def alignment_words(proposal: Proposal) -> list[str]:
    """Return the alignment that is lost, such as ``1 NUMA node``: more than needed, by level."""
    return [level_words(level, count) for level, count in proposal.alignment_lost.items()]


def price_words(proposal: Proposal) -> str:
    """Return a sentence about guarantees and alignment that are lost and pods that a restart moves; empty for none."""
    parts = []
    if proposal.guarantees:
        parts.append(f"gives up the guarantee of {joined([one.value for one in proposal.guarantees])}")
    if spread := _spread_words(proposal):
        parts.append(f"places {joined(spread)}")
    if proposal.alignment_lost:
        parts.append(f"spreads containers over {joined(alignment_words(proposal))} more than needed")
    if proposal.cost.restarts and proposal.cost.touched:
        parts.append(f"moves {plural(proposal.cost.touched, 'earlier pod')}")
    return f"This {joined(parts)}." if parts else ""
