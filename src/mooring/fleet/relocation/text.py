"""``mooring fleet fit``, ``drain`` and ``upgrade``: what fits, what to move, as text and documents.

``fit -o evictions`` has the moves for others to carry out.

Source: Kubernetes API v1.37, policy/v1 Eviction: the object that is posted to ``pods/NAME/eviction``.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from mooring.engine.core.errors import clean
from mooring.explanations.codes import page
from mooring.explanations.phrases import plural
from mooring.fleet import documents as parts
from mooring.fleet.relocation.answer import FAILURES, HELD, LOST, MOVES, REFUSED, STAYS, WAITS, FitQuestion
from mooring.fleet.text import INDENT, head, section
from mooring.views.console import new_table

_MOST_NODES = 20
_MOST_NAMED = 5
_MOST_CORDONED = 3
_LEFT_ALONE = {
    "static": "static",
    "daemonset": "of DaemonSets",
    "no-controller": "without a controller",
    "disruption-budget": "held by a PodDisruptionBudget",
    "not-simulated": "with fields that are not simulated",
    "priority": "of a higher priority",
    "not-selected": "not chosen by --movable",
    "leaving": "being deleted",
}


def fit_parts(answer: parts.FleetFitDocument, question: FitQuestion, nodes: int) -> Iterator[RenderableType]:
    """Yield what fits, and what to move for the rest."""
    yield from head(answer.cluster, plural(nodes, "node"), answer.assumed)
    count = "All" if answer.fits_now >= answer.replicas else f"{answer.fits_now} of"
    yield from section(f"{count} {plural(answer.replicas, 'replica')} of {clean(answer.of)} fit now.")
    if answer.now:
        table, by_count = new_table("replicas", "nodes", "", right=(0, 1)), defaultdict[int, list[str]](list)
        for name, replicas in sorted(answer.now.items()):
            by_count[replicas].append(clean(name))
        for replicas, names in sorted(by_count.items(), reverse=True):
            more = f" and {len(names) - _MOST_NODES} more (-o json)" if len(names) > _MOST_NODES else ""
            table.add_row(f"{replicas} each", str(len(names)), f"{', '.join(names[:_MOST_NODES])}{more}")
        yield Padding(table, INDENT)
    if answer.causes:
        yield from section("Why no node takes one more", _causes_table(answer.causes))
    if answer.fits_now < answer.replicas and question.moves:
        yield Text("")
        yield from _plan(answer, has_terms=question.asked.relations.has_required_terms)


def _causes_table(causes: Sequence[parts.CausePart]) -> RenderableType:
    table = new_table("cause", "", "nodes", "", right=(2,))
    for one in causes:
        table.add_row(one.code, one.text, str(len(one.nodes)), named(one.nodes))
    return table


def named(names: Sequence[str]) -> str:
    """Return the first names of some, and how many there are more."""
    shown = ", ".join(clean(one) for one in names[:_MOST_NAMED])
    return shown if len(names) <= _MOST_NAMED else f"{shown} and {len(names) - _MOST_NAMED} more"


def _plan(answer: parts.FleetFitDocument, *, has_terms: bool) -> Iterator[RenderableType]:
    plan, gain = answer.plan, answer.fits_after - answer.fits_now
    if has_terms:
        yield Text("No moves are planned for replicas with required affinity to pods or spread constraints.", "bold")
    elif not plan.moves:
        how = "No sequence of moves" if plan.is_exact else "The search found no sequence of moves that"
        yield Text(f"{how} makes room for more.", "bold")
    else:
        verb = "makes" if len(plan.moves) == 1 else "make"
        all_or_some = "" if answer.fits_after >= answer.replicas else f" of {answer.replicas}"
        moves = plural(len(plan.moves), "move")
        yield Text(f"{moves} {verb} room for {gain} more: then {answer.fits_after}{all_or_some} fit.", "bold")
        few = max(len(one.cordon) for one in plan.moves) <= _MOST_CORDONED
        table = new_table("", "pod", "from", "to", *(["cordoned meanwhile"] if few else []))
        for number, one in enumerate(plan.moves, 1):
            names = (clean(name) for name in (one.pod, one.source, one.target))
            table.add_row(str(number), *names, *([named(one.cordon)] if few else []))
        yield Padding(table, INDENT)
        if not few:
            yield Text("Which nodes to cordon while a pod moves: -o json or -o evictions.")
        if plan.is_exact:
            yield Text("All shorter sequences of moves were tried: none makes room for as many.")
        else:
            fewer = f"all sequences of fewer than {plan.at_least} moves were tried, and "
            tried = fewer if plan.at_least > 1 else ""
            better = "fewer moves" if answer.fits_after >= answer.replicas else "room for more"
            yield Text(f"The search was bounded: {tried}a plan with {better} may exist.")
    if answer.fixed:
        left = ", ".join(f"{count} {_LEFT_ALONE[reason]}" for reason, count in answer.fixed.items())
        yield Text(f"Pods that are not moved: {left}.", "dim")


_MOST_ROWS = 30


def drain_parts(answer: parts.FleetDrainDocument, nodes: int) -> Iterator[RenderableType]:
    """Yield what becomes of the pods of drained nodes."""
    yield from head(answer.cluster, plural(nodes, "node"), answer.assumed)
    leaving = [one for one in answer.pods if one.outcome != STAYS]
    failed = [one for one in leaving if one.outcome in FAILURES]
    drained = f"drain of {named(answer.nodes)}"
    if not failed:
        yield from section(f"The {drained} moves {plural(len(leaving), 'pod')}; all find a place.")
    else:
        yield from section(f"The {drained}: no place for {len(failed)} of {plural(len(leaving), 'pod')}.")
    yield from _pods(leaving)
    yield from _failures(failed)
    staying = len(answer.pods) - len(leaving)
    if staying:
        yield Text("")
        yield Text(f"{plural(staying, 'pod')} of DaemonSets and static pods stay.", "dim")


def upgrade_parts(answer: parts.FleetUpgradeDocument, nodes: int) -> Iterator[RenderableType]:
    """Yield what becomes of nodes and pods."""
    yield from head(answer.cluster, plural(nodes, "node"), answer.assumed)
    turns = max((one.turn for one in answer.nodes), default=0)
    failed = [one for one in answer.pods if one.outcome in FAILURES]
    said = "every pod runs in the end" if not failed else f"no place for {plural(len(failed), 'pod')}"
    table = new_table("turn", "node", "what happens", right=(0,))
    alike = [(what, list(found)) for what, found in groupby(answer.nodes, _what_happens)]
    for what, found in alike[:_MOST_ROWS]:
        first, last = found[0], found[-1]
        when = str(first.turn) if first.turn == last.turn else f"{first.turn}-{last.turn}"
        names = first.name if first is last else f"{first.name} to {last.name} ({plural(len(found), 'node')})"
        table.add_row(when, clean(names), clean(what))
    if len(alike) > _MOST_ROWS:
        table.add_row("", f"{sum(len(found) for _, found in alike[_MOST_ROWS:])} more", "with -o json")
    yield from section(f"Upgrade of {plural(len(answer.nodes), 'node')} in {plural(turns, 'turn')}: {said}.", table)
    if answer.pods:
        yield from section("Pods that lose their node")
        yield from _pods(answer.pods)
        yield from _failures(failed)
    yield Text("")
    yield Text("mooring upgrade has settings, state files and the way back of one node.", "dim")


def _what_happens(node: parts.NodeUpgradePart) -> str:
    if node.drained:
        return f"drained first: {node.drained}"
    if node.refused:
        codes = ", ".join(sorted(set(node.refused.values())))
        return f"restarts and refuses {plural(len(node.refused), 'pod')} ({codes})"
    return "restarts; its pods run on"


def _pods(found: Sequence[parts.RelocatedPart]) -> Iterator[RenderableType]:
    if not found:
        return
    table = new_table("pod", "from", "to", "what")
    said = {
        MOVES: "finds a place",
        WAITS: "no node takes it",
        REFUSED: "the kubelet there refuses it",
        LOST: "no controller makes it anew",
        HELD: "a PodDisruptionBudget holds it",
        STAYS: "stays",
    }
    for one in found[:_MOST_ROWS]:
        what = said[one.outcome] + (f": {one.code}" if one.code else "")
        table.add_row(clean(one.pod), clean(one.source), clean(one.target) or "–", what)
    yield Padding(table, INDENT)
    if len(found) > _MOST_ROWS:
        yield Padding(Text(f"{len(found) - _MOST_ROWS} more pods with -o json", "dim"), INDENT)


def _failures(failed: Sequence[parts.RelocatedPart]) -> Iterator[RenderableType]:
    waiting: dict[str, list[parts.RelocatedPart]] = {}
    for one in failed:
        if one.outcome == WAITS:
            waiting.setdefault(repr(one.causes), []).append(one)
    for pods in waiting.values():
        yield from section(f"Why no node takes {named([one.pod for one in pods])}", _causes_table(pods[0].causes))
    refused = [one for one in failed if one.outcome == REFUSED]
    for code in sorted({one.code for one in refused}):
        yield Text("")
        yield Text(f"{code}  {page(code).title}")
    if any(one.elsewhere for one in refused):
        count = sum(bool(one.elsewhere) for one in refused)
        yield Text(f"Another node would admit {plural(count, 'pod')} of these: with --extender they find it.")


FROM: Final = "mooring.dev/from"
TO: Final = "mooring.dev/to"
CORDON: Final = "mooring.dev/cordon"
"""Annotation with the nodes that must take no pods meanwhile, separated by commas."""


def evictions_text(answer: parts.FleetFitDocument) -> str:
    """Return the moves as a list of Evictions, in the order in which they are to be made."""
    items = []
    for move in answer.plan.moves:
        namespace, _, name = move.pod.partition("/")
        annotations = {FROM: move.source, TO: move.target, CORDON: ",".join(move.cordon)}
        items.append(
            {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": name, "namespace": namespace, "annotations": annotations},
                "deleteOptions": {"preconditions": {"uid": move.uid}},
            }
        )
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=1)
