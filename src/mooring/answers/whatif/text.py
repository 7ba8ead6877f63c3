"""``mooring whatif -o text``: before and after, and the changes that were found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from mooring.answers.base.changes.change import Cost, PlannedChange, sentence
from mooring.answers.base.changes.nearest import alignment_words, given_up_words, outcome_command
from mooring.answers.base.changes.search import Proposal
from mooring.answers.base.plan import AnyPlan, Plan, Question, RefusedPlan, archive_of, decided_by
from mooring.answers.whatif.whatif_document import UNASKED, differences, differs
from mooring.cli.terminal import CommandLine, text_for
from mooring.documents.explanation import DifferencePart, OutcomePart, OutcomePlacePart
from mooring.engine.core.errors import clean
from mooring.engine.core.pod import Pod
from mooring.engine.node.settings import policies
from mooring.explanations.alignment import AlignmentLevel, Extent
from mooring.explanations.phrases import plural
from mooring.explanations.reason import SHARED_BY_AMOUNT, SHARED_BY_GATE, SHARED_BY_POLICY, SHARED_BY_QOS
from mooring.explanations.story import PodVerdict
from mooring.views.console import STYLES, Breaking, new_table

_STATES: dict[str, str] = {PodVerdict.LEFT: "ended", UNASKED: "not asked", PodVerdict.ABSENT: "–"}
"""States whose words differ."""
_ALIGNED_WIDTH = 13
"""Columns of ``2 NUMA nodes,``: verdicts and CPU lists need the rest."""
_INDENT = (0, 0, 0, 2)
_SHARED = frozenset({SHARED_BY_AMOUNT, SHARED_BY_GATE, SHARED_BY_POLICY, SHARED_BY_QOS})


def what_if_text(question: Question, changes: Sequence[PlannedChange], before: AnyPlan, after: AnyPlan, to: str) -> str:
    """Return both plans side by side, as far as they differ."""
    return text_for(Group(*_comparison(question, changes, before, after)), to)


def _comparison(
    question: Question, changes: Sequence[PlannedChange], before: AnyPlan, after: AnyPlan
) -> Iterator[RenderableType]:
    yield Text(clean(sentence(changes, question)), STYLES["title"])
    if archive := archive_of(before):
        yield Text(clean(archive), STYLES["quiet"])
    old, new = (policies(one.kubelet.settings) if isinstance(one, Plan) else "" for one in (before, after))
    if new:
        yield Text(new, STYLES["quiet"])
    if old and old != new:
        yield Text(f"before: {old}", STYLES["quiet"])
    yield Text("")
    found = differences(before, after)
    changed = [one for one in found if differs(one)]
    if changed:
        yield _side_by_side(changed)
        yield Text("")
    same = len(found) - len(changed)
    if same:
        yield Text(
            f"{plural(same, 'pod')} {'is' if same == 1 else 'are'} as before." if changed else "Nothing differs."
        )
    for name, plan in (("Before", before), ("After", after)):
        yield Text(f"{name}: {_counts(plan)}")
    yield from _still_refused(after)


def _side_by_side(changed: Sequence[DifferencePart]) -> Table:
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


def _verdict(outcome: OutcomePart) -> Text:
    text = _STATES.get(outcome.state, outcome.state)
    if outcome.reason:
        text += f": {clean(outcome.reason)}"
    return Text(text, STYLES["" if outcome.state in (PodVerdict.ADMITTED, PodVerdict.ABSENT) else "title"])


def _place(place: OutcomePlacePart | None) -> RenderableType:
    if place is None:
        return Text("")
    parts = [place.cpus or "shared pool"]
    if place.mems:
        parts.append(f"memory {place.mems}")
    parts.extend(clean(device) for device in place.devices)
    return Group(Breaking(parts[0]), *(Text(part) for part in parts[1:]))


def _aligned(place: OutcomePlacePart | None) -> RenderableType:
    """Return "yes", or each level at which the container lies on more than it needs or on several NUMA nodes."""
    if place is None or not place.alignment:
        return Text("")
    found = [Extent(AlignmentLevel[one.level.upper()], one.held, one.needed) for one in place.alignment]
    apart = [str(extent) for extent in found if not extent.is_aligned]
    return Group(*(Text(text) for text in apart)) if apart else Text("yes")


def _counts(plan: AnyPlan) -> str:
    if isinstance(plan, RefusedPlan):
        return "the kubelet would not start."
    admitted = sum(answer.admitted for answer in plan.answers)
    ended, unasked = len(plan.left), len(plan.unasked)
    parts = [f"{plural(admitted, 'pod')} admitted", f"{len(plan.answers) - admitted} not"]
    if ended:
        parts.append(f"{ended} of those admitted ended")
    if unasked:
        parts.append(f"{unasked} not asked")
    return f"{', '.join(parts)}."


def _still_refused(after: AnyPlan) -> Iterator[RenderableType]:
    if isinstance(after, RefusedPlan):
        yield Text("")
        yield Text(f"{after.subject} [{after.refusal.code}]", STYLES["title"])
        yield Padding(Text(clean(after.refusal.message)), _INDENT)
        if after.remedy:
            yield Text(after.remedy)
    refused = [answer for answer in after.answers if not answer.admitted]
    if refused:
        yield Text("")
        yield Text("Not admitted after the change:", STYLES["title"])
    for answer in refused:
        name = clean(f"{answer.pod.namespace}/{answer.pod.name}")
        yield Padding(Text(f"{name}: {clean(answer.why)}"), _INDENT)


def nearest_text(
    plan: AnyPlan,
    pod: Pod | None,
    proposals: Sequence[Proposal],
    to: str,
    made: Sequence[PlannedChange] = (),
    words: Sequence[str] = (),
    *,
    exclusive: bool = False,
    named: bool = False,
) -> str:
    """Return the changes that were found, the nearest first.

    Args:
        plan: without them.
        pod: that they admit.
        proposals: the changes.
        to: the destination.
        made: changes that the plan contains already; their options are printed, too.
        words: the options of the call, for commands that show the outcome.
        exclusive: whether the pod is to have exclusive CPUs, and has none.
        named: whether the pod is left out where nothing names it.
    """
    if pod is None:
        by = f" by {decided_by(plan)}" if decided_by(plan) else ""
        return f"Every pod is admitted{by}: nothing needs to change."
    return text_for(Group(*_found(plan, pod, proposals, made, words, exclusive=exclusive, named=named)), to)


def _found(
    plan: AnyPlan,
    pod: Pod,
    proposals: Sequence[Proposal],
    made: Sequence[PlannedChange],
    words: Sequence[str],
    *,
    exclusive: bool,
    named: bool,
) -> Iterator[RenderableType]:
    name = clean(f"{pod.namespace}/{pod.name}")
    answer = next((answer for answer in plan.answers if answer.pod.uid == pod.uid), None)
    yield from (Text(clean(line), STYLES["quiet"]) for line in (archive_of(plan), decided_by(plan)) if line)
    if answer is not None and answer.admitted and not exclusive:
        yield Text(f"{name} is admitted: nothing needs to change.")
        if answer.code in _SHARED:
            yield Padding(Text(clean(answer.why)), _INDENT)
            yield CommandLine(("whatif", f"{pod.namespace}/{pod.name}", *words, "--goal", "exclusive"), "  ")
        return
    if isinstance(plan, RefusedPlan):
        yield Text(f"{name} cannot be asked: the kubelet would not start.", STYLES["title"])
        yield Padding(Text(clean(plan.refusal.message)), _INDENT)
    elif answer is None:
        yield Text(f"{name} is not asked: the kubelet would not return from a pod before it.", STYLES["title"])
    else:
        mark = f" [{answer.code}]" if answer.code else ""
        no = f"is not admitted: {answer.decision.reason or 'the kubelet does not answer'}"
        yield Text(f"{name} {'has no exclusive CPUs' if answer.admitted else no}{mark}", STYLES["title"])
        yield Padding(Text(clean(answer.why)), _INDENT)
    yield Text("")
    one, several = ("gives it exclusive CPUs", "give it exclusive CPUs") if exclusive else ("admits it", "admit it")
    if not proposals and isinstance(plan, RefusedPlan) and (remedy := plan.remedy):
        yield Text(clean(remedy))
        return
    if not proposals:
        yield Text(f"No small change was found that {one} and keeps all other pods admitted.")
        if answer is not None and answer.remedy:
            yield Text(clean(answer.remedy))
        return
    yield Text(f"These changes {several} and keep all other pods admitted, the nearest first.")
    yield Text("")
    yield _ranking(proposals)
    yield Text("")
    yield Text("These commands show the outcome for all pods.", STYLES["quiet"])
    for number, proposal in enumerate(proposals, 1):
        replaced = {change.target for change in proposal.changes} - {""}
        kept = [change.option for change in made if change.target not in replaced]
        yield CommandLine(outcome_command(words, (*kept, *proposal.options), pod, named=named), f"{number}  ")


def _ranking(proposals: Sequence[Proposal]) -> Table:
    table = new_table("")
    table.add_column("change", ratio=1, overflow="fold")
    table.add_column("pods touched", justify="right", max_width=7)
    table.add_column("restart", max_width=12)
    table.add_column("given up", max_width=18)
    columns: list[tuple[str, Callable[[Proposal], list[str]]]] = [
        ("to add", _added),
        ("alignment lost", alignment_words),
    ]
    columns = [column for column in columns if any(map(column[1], proposals))]
    for heading, _ in columns:
        table.add_column(heading, max_width=14)
    for number, proposal in enumerate(proposals, 1):
        table.add_row(
            str(number),
            Text(clean(proposal.text)),
            str(proposal.cost.touched or "–"),
            _restart(proposal.cost),
            _lines(given_up_words(proposal)),
            *(_lines(words(proposal)) for _, words in columns),
        )
    return table


def _added(proposal: Proposal) -> list[str]:
    count = proposal.cost.devices_added
    return [plural(count, "device")] if count else []


def _lines(parts: Sequence[str]) -> str:
    return ",\n".join(parts) or "–"


def _restart(cost: Cost) -> str:
    if not cost.restarts:
        return "–"
    return f"yes, without {plural(cost.state_files, 'state file')}" if cost.state_files else "yes"
