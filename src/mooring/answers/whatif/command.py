"""``mooring whatif``: change one thing and ask again, or find the nearest change that admits a pod.

As text: before and after side by side, and the changes that were found.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from mooring.answers.base.inputs.node import question_from, read_inputs
from mooring.cli import options
from mooring.cli.options import NodeOptions
from mooring.cli.output import NO, YES, Verb, check_destination, emit, emit_document, json_text, tell, warn
from mooring.engine.core.errors import InputError, clean
from mooring.engine.core.release import NEWEST
from mooring.explanations.phrases import plural
from mooring.lazy import lazily

with lazily():
    import msgspec
    import rich.console as rich_console
    import rich.text as rich_text

    from mooring.answers.base import picture as pictures
    from mooring.answers.base import plan as planning
    from mooring.answers.base import plan_document, plan_text
    from mooring.answers.base.changes import change as planned_change
    from mooring.answers.base.changes import configuration
    from mooring.answers.whatif import answer
    from mooring.cli import terminal
    from mooring.explanations import alignment
    from mooring.views import console
    from mooring.views.svg import picture as svg

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from mooring.documents import explanation as parts
    from mooring.documents.plan import PlanDocument, PodPart

_DEFAULT_LIMIT = 5

EPILOG = """\b
Examples:
  mooring whatif hpc/solver -f pods.yaml --machine epyc-7763-2s-nps4 --config kubelet.yaml
  mooring whatif hpc/solver -f pods.yaml --node node.tar.gz --goal exclusive
  mooring whatif -f pods.yaml --node node.tar.gz --set topologyManagerPolicy=restricted
  mooring whatif -f pods.yaml --node node.tar.gz --ask 'core/upf-*/forwarder:cpu=14' --remove ai/inference
  mooring whatif -f pods.yaml --node node.tar.gz --set cpuManagerPolicyOptions.full-pcpus-only=false -o svg --to n.svg

\b
Every change can be given more than once. POD is [NAMESPACE/]POD or a uid; * in it stands for any text.
"""


@click.command("whatif", cls=Verb, epilog=EPILOG)
@click.argument("pod", default="", metavar="[[NAMESPACE/]POD]", shell_complete=options.complete_pod)
@options.pods("Pods, workloads or lists, YAML or JSON; repeatable.")
@options.node_options("offline", "devices", "stop_at_crash")
@options.texts(
    "--ask",
    "POD[/CONTAINER]:RESOURCE=AMOUNT",
    "A container requests another amount of cpu, memory, hugepages-SIZE or devices. Without a container: the only "
    "one, or the pod-level resources.",
)
@options.texts(
    "--set",
    "FIELD=VALUE",
    "A field of the KubeletConfiguration, such as topologyManagerScope=pod, cpuManagerPolicyOptions.NAME=true or "
    "featureGates.NAME=true; an option without a value is left out.",
    options.among(lambda: configuration.settings(NEWEST.name)),
    "set_",
)
@options.texts(
    "--remove",
    "POD[=NEXT]",
    "A pod ends just before NEXT is asked. Without NEXT: a running one at once, and others are not asked at all.",
)
@options.texts("--move", "POD[=NEXT]", "As --remove; the pod returns after all others.")
@options.texts("--first", "POD[=NEXT]", "A pod is asked first, or just before NEXT.")
@options.texts("--device", "RESOURCE=NODE", "Add a device to a NUMA node.")
@options.texts(
    "--hold",
    "POD[/CONTAINER]:RESOURCE=ID[,ID]",
    "A container holds these devices of a resource or of a driver, and CPUs and memory are decided with them.",
)
@options.texts(
    "--fresh-state",
    "cpu|memory",
    "The state file of the CPU or the memory manager is deleted before the kubelet starts.",
)
@click.option(
    "--goal",
    type=click.Choice(["admitted", "exclusive"]),
    default="admitted",
    show_default=True,
    help="What the changes that are searched do for POD: admit it, or give it exclusive CPUs.",
)
@options.number("--limit", range(1, 101), f"How many changes to find at most. Default: {_DEFAULT_LIMIT}.")
@options.output(("text", "json", "svg"), "text")
@options.to_file
def command(pod: str, limit: int | None, goal: str, form: str, to: str, inputs: NodeOptions, **given: Any) -> int:
    """Change something, and show which pods are then admitted, and where; or find the nearest change that admits POD.

    Without a change, it searches for one: for POD, or for the first pod that is not admitted. With POD and changes, it
    searches for what POD needs beside them.

    Exit code 0 when all pods are admitted after the change, or a change was found; else 1.
    """
    check_destination(to)
    wanted = [(option, text) for option, name in _OPTIONS.items() for text in given.pop(name)]
    if wanted and limit and not pod:
        raise click.UsageError("--limit is for changes that are searched: give POD, or leave it out")
    if goal != "admitted" and not pod:
        raise click.UsageError("--goal is for changes that are searched: give POD")
    if form == "svg" and (pod or not wanted):
        raise click.UsageError("-o svg draws the node after a change: give one, without POD")
    named = [name for option, text in wanted for name in re.split("[:=]", text)[: _NAMING.get(option, 0)]]
    read = read_inputs(replace(inputs, named=[name for name in (pod, *named) if name]))
    question = question_from(read)
    if not (question.pods or question.active):
        raise InputError("there is no pod to evaluate", remedy="give pods with -f, --active or --node")
    changes = [change for option, text in wanted for change in answer.understood(question, option, text)]
    changed = planned_change.applied(question, changes)
    if not wanted or pod:
        nearest = answer.nearest(read, changed, changes, pod, goal, limit or _DEFAULT_LIMIT)
        if form == "json":
            emit_document(json_text(nearest), to)
        else:
            warn(nearest.findings)
            emit(nearest_text(nearest, to), to)
        return YES if nearest.is_yes else NO
    before, after = planning.make_plan(question), planning.make_plan(changed)
    if form != "json":
        warn(after.findings)
    if form == "svg":
        if isinstance(after, planning.RefusedPlan):
            tell(after.sentence)
        emit_document(svg.svg_text(pictures.plan_view(after)), to)
        return YES if after.is_yes else NO
    compared = answer.changed(question, changes, before, after)
    if form == "json":
        emit_document(plan_document.json_with_pods(compared, (before, after), "    "), to)
    else:
        emit(terminal.text_for(rich_console.Group(*_comparison(compared)), to), to)
    return YES if after.is_yes else NO


_OPTIONS = {
    "--ask": "ask",
    "--set": "set_",
    "--remove": "remove",
    "--move": "move",
    "--first": "first",
    "--device": "device",
    "--hold": "hold",
    "--fresh-state": "fresh_state",
}
"""Option -> parameter."""
_NAMING = {"--ask": 1, "--hold": 1, "--remove": 2, "--move": 2, "--first": 2}
"""Option -> how many names of pods its value begins with."""


_STATES = {"left": "ended", "unasked": "not asked", "absent": "–"}
"""States whose words differ."""
_ALIGNED_WIDTH = 13
"""Columns of ``2 NUMA nodes,``: verdicts and CPU lists need the rest."""


def _comparison(document: parts.WhatIfDocument) -> Iterator[RenderableType]:
    """Yield both plans side by side, as far as they differ."""
    old, new = document.policies
    lines = [planning.archive_of(document.before.findings), new, f"before: {old}" if old and old != new else ""]
    yield rich_text.Text(clean(document.title), console.STYLES["title"])
    yield from (rich_text.Text(clean(line), console.STYLES["quiet"]) for line in lines if line)
    yield rich_text.Text("")
    if document.differences:
        yield _side_by_side(document.differences)
        yield rich_text.Text("")
    same = len(document.pods) - len(document.differences)
    if same:
        as_before = f"{plural(same, 'pod')} {'is' if same == 1 else 'are'} as before."
        yield rich_text.Text(as_before if document.differences else "Nothing differs.")
    yield rich_text.Text(f"Before: {_counts(document.before, [one.before.state for one in document.pods])}")
    yield rich_text.Text(f"After: {_counts(document.after, [one.after.state for one in document.pods])}")
    if document.after.start_error:
        yield rich_text.Text("")
        yield from plan_text.refusal_lines(document.after)
    if document.refused:
        yield rich_text.Text("")
        yield rich_text.Text("Not admitted after the change:", console.STYLES["title"])
    for one in document.refused:
        yield console.indented(clean(f"{one.namespace}/{one.name}: {one.after.why}"))


def _side_by_side(changed: Sequence[parts.DifferencePart]) -> Table:
    table = console.new_table("", "before", "aligned", "after", "aligned")
    for column in table.columns[2::2]:
        column.max_width = _ALIGNED_WIDTH
    for one in changed:
        name = console.Breaking(clean(f"{one.namespace}/{one.name}"), "/", "title")
        table.add_row(name, _verdict(one.before), "", _verdict(one.after), "")
        old, new = ({"": part.pod, **part.containers} for part in (one.before, one.after))
        for container in dict.fromkeys([*old, *new]):
            label = f"  {clean(container)}" if container else "  as a whole"
            places = (old.get(container), new.get(container))
            if any(places):
                table.add_row(
                    rich_text.Text(label), *(cell for place in places for cell in (_place(place), _aligned(place)))
                )
    return table


def _verdict(outcome: parts.OutcomePart) -> rich_text.Text:
    text = _STATES.get(outcome.state, outcome.state)
    if outcome.reason:
        text += f": {clean(outcome.reason)}"
    return rich_text.Text(text, console.STYLES["" if outcome.state in ("admitted", "absent") else "title"])


def _place(place: parts.OutcomePlacePart | None) -> RenderableType:
    if place is None:
        return rich_text.Text("")
    words = [place.cpus or "shared pool"]
    if place.mems:
        words.append(f"memory {place.mems}")
    words.extend(clean(device) for device in place.devices)
    return rich_console.Group(console.Breaking(words[0]), *(rich_text.Text(part) for part in words[1:]))


def _aligned(place: parts.OutcomePlacePart | None) -> RenderableType:
    """Return "yes", or each level at which the container lies on more than it needs or on several NUMA nodes."""
    if place is None or not place.alignment:
        return rich_text.Text("")
    apart = [alignment.extent_words(extent) for extent in place.alignment if not extent.is_aligned]
    return rich_console.Group(*(rich_text.Text(text) for text in apart)) if apart else rich_text.Text("yes")


def _counts(plan: PlanDocument, states: Sequence[str]) -> str:
    if plan.start_error:
        return "the kubelet would not start."
    count = Counter(states)
    left, unasked = count["left"], count["unasked"]
    admitted = count["admitted"] + left
    refused = len(states) - admitted - unasked - count["absent"]
    words = [f"{plural(admitted, 'pod')} admitted", f"{refused} not"]
    if left:
        words.append(f"{left} of those admitted ended")
    if unasked:
        words.append(f"{unasked} not asked")
    return f"{', '.join(words)}."


def nearest_text(document: parts.NearestChangesDocument, to: str) -> str:
    """Return the changes that were found, the nearest first."""
    if document.pod is None:
        by = planning.decided_by(document.kubelet)
        return f"Every pod is admitted{f' by {by}' if by else ''}: nothing needs to change."
    return terminal.text_for(rich_console.Group(*_found(document, document.pod)), to)


def _found(document: parts.NearestChangesDocument, pod: PodPart) -> Iterator[RenderableType]:
    name = clean(f"{pod.namespace}/{pod.name}")
    lines = (planning.archive_of(document.findings), planning.decided_by(document.kubelet))
    yield from (rich_text.Text(clean(line), console.STYLES["quiet"]) for line in lines if line)
    if document.admitted and not document.exclusive:
        yield rich_text.Text(f"{name} is admitted: nothing needs to change.")
        if document.exclusive_command:
            yield console.indented(clean(document.why))
            yield terminal.CommandLine(document.exclusive_command, "  ")
        return
    if document.start_error:
        yield rich_text.Text(f"{name} cannot be asked: the kubelet would not start.", console.STYLES["title"])
        yield console.indented(clean(document.start_error))
    elif not document.why:
        yield rich_text.Text(
            f"{name} is not asked: the kubelet would not return from a pod before it.", console.STYLES["title"]
        )
    else:
        mark = f" [{document.code}]" if document.code else ""
        no = f"is not admitted: {document.reason or 'the kubelet does not answer'}"
        yield rich_text.Text(
            f"{name} {'has no exclusive CPUs' if document.admitted else no}{mark}", console.STYLES["title"]
        )
        yield console.indented(clean(document.why))
    yield rich_text.Text("")
    one, several = "admits it", "admit it"
    if document.exclusive:
        one, several = "gives it exclusive CPUs", "give it exclusive CPUs"
    if not document.proposals and document.remedy:
        yield rich_text.Text(clean(document.remedy))
        return
    if not document.proposals:
        yield rich_text.Text(f"No small change was found that {one} and keeps all other pods admitted.")
        if document.advice:
            yield rich_text.Text(clean(document.advice))
        return
    yield rich_text.Text(f"These changes {several} and keep all other pods admitted, the nearest first.")
    yield rich_text.Text("")
    yield _ranking(document.proposals)
    yield rich_text.Text("")
    yield rich_text.Text("These commands show the outcome for all pods.", console.STYLES["quiet"])
    yield from (terminal.CommandLine(one.command, f"{number}  ") for number, one in enumerate(document.proposals, 1))


def _ranking(proposals: Sequence[parts.ProposalPart]) -> Table:
    table = console.new_table("")
    table.add_column("change", ratio=1, overflow="fold")
    table.add_column("pods touched", justify="right", max_width=7)
    table.add_column("restart", max_width=12)
    table.add_column("given up", max_width=18)
    added = [[plural(one.cost.devices_added, "device")] if one.cost.devices_added else [] for one in proposals]
    lost = [
        [
            alignment.level_words(level, count)
            for level, count in zip(alignment.AlignmentLevel, msgspec.structs.astuple(one.alignment_lost), strict=True)
            if count
        ]
        for one in proposals
    ]
    columns = {"to add": added, "alignment lost": lost}
    columns = {heading: cells for heading, cells in columns.items() if any(cells)}
    for heading in columns:
        table.add_column(heading, max_width=14)
    for number, proposal in enumerate(proposals, 1):
        cost = proposal.cost
        files = f", without {plural(cost.state_files, 'state file')}" if cost.state_files else ""
        table.add_row(
            str(number),
            rich_text.Text(clean(proposal.text)),
            str(cost.pods_touched or "–"),
            f"yes{files}" if cost.restarts else "–",
            _lines(proposal.given_up),
            *(_lines(cells[number - 1]) for cells in columns.values()),
        )
    return table


def _lines(parts: Sequence[str]) -> str:
    return ",\n".join(parts) or "–"
