"""``mooring fleet drain`` and ``mooring fleet upgrade`` with ``-o text``: what becomes of pods, for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from mooring.cli.terminal import text_for
from mooring.engine.core.errors import clean
from mooring.explain.codes.pages import page
from mooring.explain.phrases import plural
from mooring.fleet.relocation.drain import DrainAnswer
from mooring.fleet.relocation.replacement import FAILURES, Outcome, Relocated
from mooring.fleet.relocation.room import SharedObstacle
from mooring.fleet.relocation.upgrade import ClusterUpgrade, NodeUpgrade
from mooring.fleet.text.fit import causes_table, head, named
from mooring.views.console import new_table

_INDENT = (0, 0, 0, 2)
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


def _nodes(found: Sequence[NodeUpgrade]) -> RenderableType:
    table = new_table("turn", "node", "what happens")
    table.columns[0].justify = "right"
    for one in found[:_MOST_ROWS]:
        if one.drained:
            what = f"drained first: {one.drained}"
        elif one.refused:
            codes = ", ".join(sorted(set(one.refused.values())))
            what = f"restarts and refuses {plural(len(one.refused), 'pod')} ({codes})"
        else:
            what = "restarts; its pods run on"
        table.add_row(str(one.turn), clean(one.name), clean(what))
    if len(found) > _MOST_ROWS:
        table.add_row("", f"{len(found) - _MOST_ROWS} more", "with -o json")
    return table


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
