"""``mooring whatif -o text``: before and after, and the changes that were found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec.structs import astuple
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from mooring.answers.base.plan import archive_of, decided_by
from mooring.answers.base.plan_text import refusal_lines
from mooring.answers.whatif.answer import UNASKED
from mooring.cli.terminal import CommandLine, text_for
from mooring.documents import explanation as parts
from mooring.documents.plan import PlanDocument, PodPart
from mooring.engine.core.errors import clean
from mooring.explanations.alignment import AlignmentLevel, Extent, level_words
from mooring.explanations.phrases import plural
from mooring.explanations.story import PodVerdict
from mooring.views.console import STYLES, Breaking, new_table

_STATES: dict[str, str] = {PodVerdict.LEFT: "ended", UNASKED: "not asked", PodVerdict.ABSENT: "–"}
"""States whose words differ."""
_ALIGNED_WIDTH = 13
"""Columns of ``2 NUMA nodes,``: verdicts and CPU lists need the rest."""
_INDENT = (0, 0, 0, 2)


def changed_text(document: parts.WhatIfDocument, to: str) -> str:
    """Return both plans side by side, as far as they differ."""
    return text_for(Group(*_comparison(document)), to)


def _comparison(document: parts.WhatIfDocument) -> Iterator[RenderableType]:
    old, new = document.policies
    lines = [archive_of(document.before.findings), new, f"before: {old}" if old and old != new else ""]
    yield Text(clean(document.title), STYLES["title"])
    yield from (Text(clean(line), STYLES["quiet"]) for line in lines if line)
    yield Text("")
    if document.differences:
        yield _side_by_side(document.differences)
        yield Text("")
    same = len(document.pods) - len(document.differences)
    if same:
        as_before = f"{plural(same, 'pod')} {'is' if same == 1 else 'are'} as before."
        yield Text(as_before if document.differences else "Nothing differs.")
    yield Text(f"Before: {_counts(document.before, [one.before.state for one in document.pods])}")
    yield Text(f"After: {_counts(document.after, [one.after.state for one in document.pods])}")
    if document.after.start_error:
        yield Text("")
        yield from refusal_lines(document.after)
    if document.refused:
        yield Text("")
        yield Text("Not admitted after the change:", STYLES["title"])
    for one in document.refused:
        yield Padding(Text(clean(f"{one.namespace}/{one.name}: {one.after.why}")), _INDENT)


def _side_by_side(changed: Sequence[parts.DifferencePart]) -> Table:
    table = new_table("", "before", "aligned", "after", "aligned")
    for column in table.columns[2::2]:
        column.max_width = _ALIGNED_WIDTH
    for one in changed:
        name = Breaking(clean(f"{one.namespace}/{one.name}"), "/", "title")
        table.add_row(name, _verdict(one.before), "", _verdict(one.after), "")
        old, new = ({"": part.pod, **part.containers} for part in (one.before, one.after))
        for container in dict.fromkeys([*old, *new]):
            label = f"  {clean(container)}" if container else "  as a whole"
            places = (old.get(container), new.get(container))
            if any(places):
                table.add_row(Text(label), *(cell for place in places for cell in (_place(place), _aligned(place))))
    return table


def _verdict(outcome: parts.OutcomePart) -> Text:
    text = _STATES.get(outcome.state, outcome.state)
    if outcome.reason:
        text += f": {clean(outcome.reason)}"
    return Text(text, STYLES["" if outcome.state in (PodVerdict.ADMITTED, PodVerdict.ABSENT) else "title"])


def _place(place: parts.OutcomePlacePart | None) -> RenderableType:
    if place is None:
        return Text("")
    words = [place.cpus or "shared pool"]
    if place.mems:
        words.append(f"memory {place.mems}")
    words.extend(clean(device) for device in place.devices)
    return Group(Breaking(words[0]), *(Text(part) for part in words[1:]))


def _aligned(place: parts.OutcomePlacePart | None) -> RenderableType:
    """Return "yes", or each level at which the container lies on more than it needs or on several NUMA nodes."""
    if place is None or not place.alignment:
        return Text("")
    found = [Extent(AlignmentLevel[one.level.upper()], one.held, one.needed) for one in place.alignment]
    apart = [str(extent) for extent in found if not extent.is_aligned]
    return Group(*(Text(text) for text in apart)) if apart else Text("yes")


def _counts(plan: PlanDocument, states: Sequence[str]) -> str:
    if plan.start_error:
        return "the kubelet would not start."
    count = Counter(states)
    left, unasked = count[PodVerdict.LEFT], count[UNASKED]
    admitted = count[PodVerdict.ADMITTED] + left
    refused = len(states) - admitted - unasked - count[PodVerdict.ABSENT]
    words = [f"{plural(admitted, 'pod')} admitted", f"{refused} not"]
    if left:
        words.append(f"{left} of those admitted ended")
    if unasked:
        words.append(f"{unasked} not asked")
    return f"{', '.join(words)}."


def nearest_text(document: parts.NearestChangesDocument, to: str) -> str:
    """Return the changes that were found, the nearest first."""
    if document.pod is None:
        by = decided_by(document.kubelet)
        return f"Every pod is admitted{f' by {by}' if by else ''}: nothing needs to change."
    return text_for(Group(*_found(document, document.pod)), to)


def _found(document: parts.NearestChangesDocument, pod: PodPart) -> Iterator[RenderableType]:
    name = clean(f"{pod.namespace}/{pod.name}")
    lines = (archive_of(document.findings), decided_by(document.kubelet))
    yield from (Text(clean(line), STYLES["quiet"]) for line in lines if line)
    if document.admitted and not document.exclusive:
        yield Text(f"{name} is admitted: nothing needs to change.")
        if document.exclusive_command:
            yield Padding(Text(clean(document.why)), _INDENT)
            yield CommandLine(document.exclusive_command, "  ")
        return
    if document.start_error:
        yield Text(f"{name} cannot be asked: the kubelet would not start.", STYLES["title"])
        yield Padding(Text(clean(document.start_error)), _INDENT)
    elif not document.why:
        yield Text(f"{name} is not asked: the kubelet would not return from a pod before it.", STYLES["title"])
    else:
        mark = f" [{document.code}]" if document.code else ""
        no = f"is not admitted: {document.reason or 'the kubelet does not answer'}"
        yield Text(f"{name} {'has no exclusive CPUs' if document.admitted else no}{mark}", STYLES["title"])
        yield Padding(Text(clean(document.why)), _INDENT)
    yield Text("")
    one, several = "admits it", "admit it"
    if document.exclusive:
        one, several = "gives it exclusive CPUs", "give it exclusive CPUs"
    if not document.proposals and document.remedy:
        yield Text(clean(document.remedy))
        return
    if not document.proposals:
        yield Text(f"No small change was found that {one} and keeps all other pods admitted.")
        if document.advice:
            yield Text(clean(document.advice))
        return
    yield Text(f"These changes {several} and keep all other pods admitted, the nearest first.")
    yield Text("")
    yield _ranking(document.proposals)
    yield Text("")
    yield Text("These commands show the outcome for all pods.", STYLES["quiet"])
    yield from (CommandLine(one.command, f"{number}  ") for number, one in enumerate(document.proposals, 1))


def _ranking(proposals: Sequence[parts.ProposalPart]) -> Table:
    table = new_table("")
    table.add_column("change", ratio=1, overflow="fold")
    table.add_column("pods touched", justify="right", max_width=7)
    table.add_column("restart", max_width=12)
    table.add_column("given up", max_width=18)
    added = [[plural(one.cost.devices_added, "device")] if one.cost.devices_added else [] for one in proposals]
    lost = [
        [
            level_words(level, count)
            for level, count in zip(AlignmentLevel, astuple(one.alignment_lost), strict=True)
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
            Text(clean(proposal.text)),
            str(cost.pods_touched or "–"),
            f"yes{files}" if cost.restarts else "–",
            _lines(proposal.given_up),
            *(_lines(cells[number - 1]) for cells in columns.values()),
        )
    return table


def _lines(parts: Sequence[str]) -> str:
    return ",\n".join(parts) or "–"
