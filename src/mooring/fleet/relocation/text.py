"""``mooring fleet fit``, ``drain`` and ``upgrade``: what fits, what to move, as text and documents.

``fit -o evictions`` has the moves for others to carry out.

Source: Kubernetes API v1.37, policy/v1 Eviction: the object that is posted to ``pods/NAME/eviction``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from mooring.cli.terminal import text_for
from mooring.engine.core.errors import clean
from mooring.explanations.codes import page
from mooring.explanations.phrases import plural
from mooring.fleet.documents import (
    CausePart,
    FleetDrainDocument,
    FleetFitDocument,
    FleetUpgradeDocument,
    MovePart,
    MovePlanPart,
    NodeUpgradePart,
    RelocatedPart,
)
from mooring.fleet.inputs.live_pods import Fixed
from mooring.fleet.relocation.drain import ClusterUpgrade, DrainAnswer, NodeUpgrade
from mooring.fleet.relocation.fit import FitAnswer
from mooring.fleet.relocation.moves import FAILURES, Outcome, Relocated, SharedObstacle
from mooring.views.console import new_table

_INDENT = (0, 0, 0, 2)
_MOST_NODES = 20
_MOST_NAMED = 5
_MOST_CORDONED = 3
_LEFT_ALONE = {
    Fixed.STATIC: "static",
    Fixed.DAEMON: "of DaemonSets",
    Fixed.ALONE: "without a controller",
    Fixed.BUDGET: "held by a PodDisruptionBudget",
    Fixed.NOT_READ: "with fields that are not simulated",
    Fixed.PRIORITY: "of a higher priority",
    Fixed.NOT_CHOSEN: "not chosen by --movable",
    Fixed.LEAVING: "being deleted",
}


def fit_text(answer: FitAnswer, *, to: str) -> str:
    """Return the answer as text for the terminal, or without any styling for the file ``to``."""
    return text_for(Group(*_parts(answer)), to)


def _parts(answer: FitAnswer) -> Iterator[RenderableType]:
    question = answer.question
    yield from head(answer.live.cluster.name, len(answer.names), answer.live.cluster.findings)
    yield Text("")
    wanted = plural(question.replicas, "replica")
    if answer.fits_now >= question.replicas:
        yield Text(f"All {wanted} of {clean(question.name)} fit now.", "bold")
    else:
        yield Text(f"{answer.fits_now} of {wanted} of {clean(question.name)} fit now.", "bold")
    yield from _places(answer.now)
    if answer.causes:
        yield Text("")
        yield Text("Why no node takes one more", "bold")
        yield Padding(causes_table(answer.causes), _INDENT)
    if answer.fits_now < question.replicas and question.moves:
        yield Text("")
        yield from _plan(answer)


def head(name: str, nodes: int, assumed: Sequence[str]) -> Iterator[RenderableType]:
    """Yield what begins each answer about a live cluster."""
    yield Text.assemble((clean(name), "bold"), f": {plural(nodes, 'node')}")
    for one in assumed:
        yield Text(f"assumed: {clean(one)}", "dim")


def _places(found: Mapping[str, int]) -> Iterator[RenderableType]:
    if not found:
        return
    table = new_table("node")
    table.add_column("replicas", justify="right")
    ordered = sorted(found.items(), key=lambda one: (-one[1], one[0]))
    for name, count in ordered[:_MOST_NODES]:
        table.add_row(clean(name), str(count))
    yield Padding(table, _INDENT)
    if len(ordered) > _MOST_NODES:
        yield Padding(Text(f"{len(ordered) - _MOST_NODES} more nodes with -o json", "dim"), _INDENT)


def causes_table(causes: Sequence[SharedObstacle]) -> RenderableType:
    """Return causes with the nodes that they concern."""
    table = new_table("cause", "", "nodes")
    table.columns[2].justify = "right"
    table.add_column("")
    for one in causes:
        table.add_row(one.obstacle.code, one.obstacle.text, str(len(one.nodes)), named(one.nodes))
    return table


def named(names: Sequence[str]) -> str:
    """Return the first names of some, and how many there are more."""
    shown = ", ".join(clean(one) for one in names[:_MOST_NAMED])
    return shown if len(names) <= _MOST_NAMED else f"{shown} and {len(names) - _MOST_NAMED} more"


def _plan(answer: FitAnswer) -> Iterator[RenderableType]:
    plan, gain = answer.plan, answer.fits_after - answer.fits_now
    if answer.question.asked.relations.has_required_terms:
        yield Text("No moves are planned for replicas with required affinity to pods or spread constraints.", "bold")
    elif not plan.moves:
        how = "no sequence of moves" if plan.is_exact else "the search found no sequence of moves that"
        yield Text(f"{how[0].upper()}{how[1:]} makes room for more.", "bold")
    else:
        verb = "makes" if len(plan.moves) == 1 else "make"
        all_or_some = "" if answer.fits_after >= answer.question.replicas else f" of {answer.question.replicas}"
        moves = plural(len(plan.moves), "move")
        yield Text(f"{moves} {verb} room for {gain} more: then {answer.fits_after}{all_or_some} fit.", "bold")
        yield Padding(_moves(answer), _INDENT)
        if max(map(len, answer.cordons)) > _MOST_CORDONED:
            yield Text("Which nodes to cordon while a pod moves: -o json or -o evictions.")
        yield Text(_quality(answer))
    if answer.fixed:
        left = ", ".join(f"{count} {_LEFT_ALONE[reason]}" for reason, count in answer.fixed.items())
        yield Text(f"Pods that are not moved: {left}.", "dim")


def _moves(answer: FitAnswer) -> RenderableType:
    few = max(map(len, answer.cordons)) <= _MOST_CORDONED
    table = new_table("", "pod", "from", "to", *(["cordoned meanwhile"] if few else []))
    for number, one in enumerate(answer.plan.moves):
        nodes = clean(answer.names[one.source]), clean(answer.names[one.target])
        table.add_row(str(number + 1), clean(one.pod.name), *nodes, *([named(answer.cordons[number])] if few else []))
    return table


def _quality(answer: FitAnswer) -> str:
    plan = answer.plan
    if plan.is_exact:
        return "All shorter sequences of moves were tried: none makes room for as many."
    tried = f"all sequences of fewer than {plan.at_least} moves were tried, and " if plan.at_least > 1 else ""
    better = "fewer moves" if answer.fits_after >= answer.question.replicas else "room for more"
    return f"The search was bounded: {tried}a plan with {better} may exist."


_MOST_ROWS = 30


def drain_text(answer: DrainAnswer, *, to: str) -> str:
    """Return the answer as text for the terminal, or without any styling for the file ``to``."""
    return text_for(Group(*_drain(answer)), to)


def upgrade_text(answer: ClusterUpgrade, *, to: str) -> str:
    """Return the answer as text for the terminal, or without any styling for the file ``to``."""
    return text_for(Group(*_upgrade(answer)), to)


def _drain(answer: DrainAnswer) -> Iterator[RenderableType]:
    cluster = answer.live.cluster
    yield from head(cluster.name, len(cluster.groups), cluster.findings)
    yield Text("")
    leaving = [one for one in answer.pods if one.outcome is not Outcome.STAYS]
    failed = [one for one in leaving if one.outcome in FAILURES]
    drained = f"drain of {named(answer.drained)}"
    if not failed:
        yield Text(f"The {drained} moves {plural(len(leaving), 'pod')}; all find a place.", "bold")
    else:
        yield Text(f"The {drained}: no place for {len(failed)} of {plural(len(leaving), 'pod')}.", "bold")
    yield from _pods(leaving)
    yield from _failures(failed)
    staying = len(answer.pods) - len(leaving)
    if staying:
        yield Text("")
        yield Text(f"{plural(staying, 'pod')} of DaemonSets and static pods stay.", "dim")


def _upgrade(answer: ClusterUpgrade) -> Iterator[RenderableType]:
    cluster = answer.live.cluster
    yield from head(cluster.name, len(cluster.groups), cluster.findings)
    yield Text("")
    turns = max((one.turn for one in answer.nodes), default=0)
    nodes = plural(len(answer.nodes), "node")
    failed = [one for one in answer.pods if one.outcome in FAILURES]
    said = "every pod runs in the end" if not failed else f"no place for {plural(len(failed), 'pod')}"
    yield Text(f"Upgrade of {nodes} in {plural(turns, 'turn')}: {said}.", "bold")
    yield Padding(_nodes(answer.nodes), _INDENT)
    if answer.pods:
        yield Text("")
        yield Text("Pods that lose their node", "bold")
        yield from _pods(answer.pods)
        yield from _failures(failed)
    yield Text("")
    yield Text("mooring upgrade has settings, state files and the way back of one node.", "dim")


def _nodes(found: Sequence[NodeUpgrade]) -> RenderableType:
    table = new_table("turn", "node", "what happens")
    table.columns[0].justify = "right"
    alike = [(what, list(nodes)) for what, nodes in groupby(found, _what_happens)]
    for what, nodes in alike[:_MOST_ROWS]:
        first, last = nodes[0], nodes[-1]
        turns = str(first.turn) if first.turn == last.turn else f"{first.turn}-{last.turn}"
        names = first.name if first is last else f"{first.name} to {last.name} ({plural(len(nodes), 'node')})"
        table.add_row(turns, clean(names), clean(what))
    if len(alike) > _MOST_ROWS:
        table.add_row("", f"{sum(len(nodes) for _, nodes in alike[_MOST_ROWS:])} more", "with -o json")
    return table


def _what_happens(node: NodeUpgrade) -> str:
    if node.drained:
        return f"drained first: {node.drained}"
    if node.refused:
        codes = ", ".join(sorted(set(node.refused.values())))
        return f"restarts and refuses {plural(len(node.refused), 'pod')} ({codes})"
    return "restarts; its pods run on"


def _pods(found: Sequence[Relocated]) -> Iterator[RenderableType]:
    if not found:
        return
    table = new_table("pod", "from", "to", "what")
    said = {
        Outcome.MOVES: "finds a place",
        Outcome.WAITS: "no node takes it",
        Outcome.REFUSED: "the kubelet there refuses it",
        Outcome.LOST: "no controller makes it anew",
        Outcome.HELD: "a PodDisruptionBudget holds it",
        Outcome.STAYS: "stays",
    }
    for one in found[:_MOST_ROWS]:
        what = said[one.outcome] + (f": {one.code}" if one.code else "")
        table.add_row(clean(one.pod.name), clean(one.source), clean(one.target) or "–", what)
    yield Padding(table, _INDENT)
    if len(found) > _MOST_ROWS:
        yield Padding(Text(f"{len(found) - _MOST_ROWS} more pods with -o json", "dim"), _INDENT)


def _failures(failed: Sequence[Relocated]) -> Iterator[RenderableType]:
    """Yield why pods find no place, those with the same causes together."""
    waiting: dict[tuple[SharedObstacle, ...], list[str]] = {}
    for one in failed:
        if one.outcome is Outcome.WAITS:
            waiting.setdefault(one.causes, []).append(one.pod.name)
    for causes, pods in waiting.items():
        yield Text("")
        yield Text(f"Why no node takes {named(pods)}", "bold")
        yield Padding(causes_table(causes), _INDENT)
    refused = [one for one in failed if one.outcome is Outcome.REFUSED]
    for code in sorted({one.code for one in refused}):
        yield Text("")
        yield Text(f"{code}  {page(code).title}")
    if any(one.elsewhere for one in refused):
        count = sum(bool(one.elsewhere) for one in refused)
        yield Text(f"Another node would admit {plural(count, 'pod')} of these: with --extender they find it.")


FROM: Final = "mooring.dev/from"
TO: Final = "mooring.dev/to"
CORDON: Final = "mooring.dev/cordon"


def fit_document(answer: FitAnswer) -> FleetFitDocument:
    """Return the document."""
    return FleetFitDocument(
        cluster=answer.live.cluster.name,
        of=answer.question.name,
        replicas=answer.question.replicas,
        fits_now=answer.fits_now,
        now=dict(answer.now),
        causes=[cause_part(one) for one in answer.causes],
        fits_after=answer.fits_after,
        after=dict(answer.after),
        plan=MovePlanPart(
            [
                MovePart(
                    one.pod.name,
                    one.pod.uid,
                    answer.names[one.source],
                    answer.names[one.target],
                    list(answer.cordons[number]),
                )
                for number, one in enumerate(answer.plan.moves)
            ],
            answer.plan.is_exact,
            answer.plan.at_least,
        ),
        fixed={reason.value: count for reason, count in sorted(answer.fixed.items(), key=lambda one: one[0].value)},
        assumed=list(answer.live.cluster.findings),
    )


def cause_part(cause: SharedObstacle) -> CausePart:
    """Return a cause as part of a document."""
    return CausePart(cause.obstacle.text, cause.obstacle.code, list(cause.nodes))


def evictions_text(answer: FitAnswer) -> str:
    """Return the moves as a list of Eviction objects, in the order in which they are to be posted.

    The precondition on the uid keeps a pod of the same name that came later from being evicted.
    """
    items = [_eviction(answer, number) for number in range(len(answer.plan.moves))]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=1)


def _eviction(answer: FitAnswer, number: int) -> dict[str, Any]:
    move = answer.plan.moves[number]
    namespace, _, name = move.pod.name.partition("/")
    annotations = {
        FROM: answer.names[move.source],
        TO: answer.names[move.target],
        CORDON: ",".join(answer.cordons[number]),
    }
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations},
        "deleteOptions": {"preconditions": {"uid": move.pod.uid}},
    }


def drain_document(answer: DrainAnswer) -> FleetDrainDocument:
    """Return the document of a drain."""
    return FleetDrainDocument(
        cluster=answer.live.cluster.name,
        nodes=list(answer.drained),
        pods=[_relocated(one) for one in answer.pods],
        assumed=list(answer.live.cluster.findings),
    )


def cluster_upgrade_document(answer: ClusterUpgrade) -> FleetUpgradeDocument:
    """Return the document of an upgrade."""
    return FleetUpgradeDocument(
        cluster=answer.live.cluster.name,
        nodes=[NodeUpgradePart(one.name, one.turn, one.drained, dict(one.refused)) for one in answer.nodes],
        pods=[_relocated(one) for one in answer.pods],
        assumed=list(answer.live.cluster.findings),
    )


def _relocated(one: Relocated) -> RelocatedPart:
    return RelocatedPart(
        one.pod.name,
        one.pod.uid,
        one.outcome.value,
        one.source,
        one.target,
        one.code,
        [cause_part(cause) for cause in one.causes],
        list(one.elsewhere),
    )
