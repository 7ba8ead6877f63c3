"""What a proposal costs and what it changes, in words and as a part of documents, and the command that shows it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple

from mooring.answers.base.changes.change import PlannedChange, sentence
from mooring.answers.base.changes.search import Proposal
from mooring.answers.base.outcome import placement_part
from mooring.answers.base.question import Question
from mooring.documents.changes import AlignmentLostPart, ChangePart, CostPart, ProposalPart
from mooring.engine.core.pod import Pod
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


def change_parts(changes: Iterable[PlannedChange], question: Question) -> list[ChangePart]:
    """Return changes with what they are, how they read, and the option that makes them."""
    return [ChangePart(change.kind, sentence([change], question), *change.option) for change in changes]


def proposal_part(proposal: Proposal, question: Question) -> ProposalPart:
    """Return a proposal with its cost, its changes, and where the pod would be."""
    return ProposalPart(
        text=proposal.text,
        cost=CostPart(*astuple(proposal.cost)),
        guarantees_given_up=[one.value for one in proposal.guarantees],
        alignment_lost=AlignmentLostPart(*(proposal.alignment_lost.get(level, 0) for level in AlignmentLevel)),
        changes=change_parts(proposal.changes, question),
        containers={name: placement_part(place) for name, place in proposal.decision.containers.items()},
        pod=placement_part(proposal.decision.pod),
    )


def outcome_command(
    words: Sequence[str], changes: Sequence[tuple[str, str]], pod: Pod, *, named: bool
) -> tuple[str, ...]:
    """Return the words after ``mooring`` that show the outcome of changes.

    Args:
        words: the options of the call.
        changes: options with their values.
        pod: that they admit.
        named: whether the pod is left out where nothing names it.
    """
    name = f"{pod.namespace}/{pod.name}"
    needs_name = named and not any(name in value for _, value in changes)
    return ("whatif", *([name] if needs_name else []), *words, *(word for change in changes for word in change))
