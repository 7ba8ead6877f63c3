"""``mooring explain -o text``: the story for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from rich.console import Console, Group, RenderableType
from rich.markdown import Markdown
from rich.padding import Padding
from rich.text import Text
from rich.tree import Tree

from mooring.answers.base.plan import Plan
from mooring.cli.output import STANDARD_OUTPUT
from mooring.cli.terminal import CommandLine, text_for
from mooring.engine.core.errors import clean
from mooring.engine.core.topology import Topology
from mooring.explain.codes.pages import CodePage
from mooring.explain.lines import story_lines
from mooring.explain.reason import UNHEALTHY_DEVICES
from mooring.explain.story import (
    NO,
    YES,
    Line,
    PodVerdict,
    Story,
    without_details,
)

_VERDICTS = {
    PodVerdict.ADMITTED: "is admitted",
    PodVerdict.REJECTED: "is rejected",
    PodVerdict.ENDLESS: "hangs the kubelet",
    PodVerdict.CRASH: "crashes the kubelet",
    PodVerdict.NOT_ASKED: "is not evaluated",
    PodVerdict.NOT_STARTED: "is not evaluated",
}
_MARKS = {NO: "✗ ", YES: "✓ "}


@dataclass(frozen=True, slots=True)
class Help:
    """A change that would admit a pod."""

    text: str
    command: tuple[str, ...]
    """What shows its outcome: words after ``mooring``."""


def explain_text(
    story: Story,
    topology: Topology | None,
    nearest: Sequence[Help] = (),
    *,
    verbose: bool = False,
    to: str = "",
) -> str:
    """Return the story as text for the terminal, or without any styling for the file ``to``.

    Args:
        story: what to tell.
        topology: of the node; None when the kubelet would not start.
        nearest: changes that would admit the pod.
        verbose: whether all is written.
        to: the destination.
    """
    return text_for(Group(*_parts(story, topology, nearest, verbose=verbose)), to)


def page_text(page: CodePage, to: str = "") -> str:
    """Return the page about a code: set in type on a terminal, as it is written elsewhere."""
    if to in ("", STANDARD_OUTPUT) and Console().is_terminal:
        return text_for(Markdown(page.text), to)
    return page.text


def list_text(plan: Plan, to: str = "", words: Sequence[str] = ()) -> str:
    """Return what can be explained of a plan in which every pod runs.

    Args:
        plan: the plan.
        to: the destination.
        words: the options of the call, for a command that explains a pod.
    """
    lines: list[RenderableType] = [Text("Every pod is admitted. This explains the placement of one:")]
    if plan.answers:
        pod = plan.answers[0].pod
        lines += [CommandLine(("explain", f"{pod.namespace}/{pod.name}", *words), "  "), Text("")]
    for answer in plan.answers:
        name = clean(f"{answer.pod.namespace}/{answer.pod.name}")
        lines.append(Text.assemble((name, "bold"), (f"  [{answer.code}]", "dim")))
        lines.append(_indented(answer.why, "dim"))
    if plan.archive:
        lines += [Text(""), Text(clean(plan.archive), "dim")]
    if plan.decided_by:
        lines += [Text(""), Text(plan.decided_by, "dim")]
    return text_for(Group(*lines), to)


def _parts(
    story: Story, topology: Topology | None, nearest: Sequence[Help], *, verbose: bool
) -> Iterator[RenderableType]:
    yield _heading(story)
    yield _indented(story.why.sentence)
    if story.message:
        yield _indented(f"The kubelet says: “{story.message}”.", "dim")
    lines = story_lines(story, topology)
    shown = lines if verbose else without_details(lines)
    if shown or (story.verdict is PodVerdict.NOT_STARTED and story.circumstances):
        yield Text("")
        yield Text(clean(story.circumstances), "dim")
    yield from (_tree(line) for line in shown)
    notes = list(_notes(story))
    if notes:
        yield Text("")
        yield from (_noted(text) for text in notes)
    helps = helps_of(story, [one.text for one in nearest])
    if helps:
        yield Text("")
    if nearest and story.why.code == UNHEALTHY_DEVICES:
        yield _noted(f"help: {story.why.remedy}")
    for text, one in zip_longest(helps, nearest):
        yield _noted(text)
        if one is not None:
            yield CommandLine(one.command, "  ")
    yield Text("")
    hidden = "" if verbose or lines == shown else "; -v shows everything"
    yield Text(f"mooring explain {story.why.code} has more{hidden}", "dim")


def _heading(story: Story) -> Text:
    kind, style = ("ok", "bold green") if story.admitted else ("error", "bold red")
    what = "is admitted again" if story.admitted and story.running else _VERDICTS[story.verdict]
    reason = f": {story.reason}" if story.verdict is PodVerdict.REJECTED else ""
    return Text.assemble((f"{kind}[{story.why.code}]", style), (f": {clean(story.name)} {what}{clean(reason)}", "bold"))


def _indented(text: str, style: str = "") -> RenderableType:
    return Padding(Text(clean(text), style), (0, 0, 0, 2))


def _notes(story: Story) -> Iterator[str]:
    """Yield the remarks; of one that the sentence above contains, only its remedy."""
    for remark in story.remarks:
        told = remark.sentence in story.why.sentence
        texts = [*([] if told else [f"{remark.sentence}."]), *([remark.remedy] if remark.remedy else [])]
        if texts:
            yield f"note[{remark.code}]: {' '.join(texts)}"


def helps_of(story: Story, nearest: Sequence[str]) -> list[str]:
    """Return what can be done: changes that were run, and only where none was found general advice, marked as such."""
    if nearest:
        return [f"help: {text}" for text in nearest]
    if story.verdict is PodVerdict.NOT_STARTED or story.why.code == UNHEALTHY_DEVICES:
        return [f"help: {story.why.remedy}"] if story.why.remedy else []
    return [f"help (general, not run): {story.why.remedy}"] if story.why.remedy else []


def _noted(text: str) -> Text:
    kind, _, rest = text.partition(": ")
    return Text.assemble((f"{kind}: ", "bold"), clean(rest))


def _tree(line: Line) -> Tree:
    tree = Tree(_label(line), guide_style="dim")
    _grow(tree, line.children)
    return tree


def _grow(tree: Tree, lines: Sequence[Line]) -> None:
    for line in lines:
        _grow(tree.add(_label(line)), line.children)


def _label(line: Line) -> Text:
    style = {NO: "red", YES: "green"}.get(line.mark, "")
    return Text.assemble((_MARKS.get(line.mark, ""), style), clean(line.text))
