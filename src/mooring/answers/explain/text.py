"""``mooring explain -o text``: the story for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

import msgspec
from rich.console import Console, Group, RenderableType
from rich.markdown import Markdown
from rich.padding import Padding
from rich.text import Text
from rich.tree import Tree

from mooring.answers.base.plan import decided_by
from mooring.cli.output import STANDARD_OUTPUT
from mooring.cli.terminal import CommandLine, text_for
from mooring.documents.explanation import ExplanationDocument, ExplanationListDocument, StoryLinePart
from mooring.engine.core.errors import clean
from mooring.explanations.codes import CodePage
from mooring.explanations.reason import UNHEALTHY_DEVICES
from mooring.explanations.story import NO, YES, PodVerdict

_VERDICTS: dict[str, str] = {
    PodVerdict.ADMITTED: "is admitted",
    PodVerdict.REJECTED: "is rejected",
    PodVerdict.ENDLESS: "hangs the kubelet",
    PodVerdict.CRASH: "crashes the kubelet",
    PodVerdict.NOT_ASKED: "is not evaluated",
    PodVerdict.NOT_STARTED: "is not evaluated",
}
_MARKS = {NO: "✗ ", YES: "✓ "}


def explain_text(document: ExplanationDocument, *, verbose: bool = False, to: str) -> str:
    """Return an explanation as text for the terminal, or without any styling for the file ``to``.

    Args:
        document: what to tell.
        verbose: whether all is written.
        to: the destination.
    """
    return text_for(Group(*_parts(document, verbose=verbose)), to)


def page_text(page: CodePage, to: str = "") -> str:
    """Return the page about a code: set in type on a terminal, as it is written elsewhere."""
    if to in ("", STANDARD_OUTPUT) and Console().is_terminal:
        return text_for(Markdown(page.text), to)
    return page.text


def list_text(document: ExplanationListDocument, to: str, words: Sequence[str]) -> str:
    """Return what can be explained of a plan in which every pod runs.

    Args:
        document: what there is.
        to: the destination.
        words: the options of the call, for a command that explains a pod.
    """
    lines: list[RenderableType] = [Text("Every pod is admitted. This explains the placement of one:")]
    first = f"{document.pods[0].namespace}/{document.pods[0].name}"
    lines += [CommandLine(("explain", first, *words), "  "), Text("")]
    for pod in document.pods:
        lines.append(Text.assemble((clean(f"{pod.namespace}/{pod.name}"), "bold"), (f"  [{pod.code}]", "dim")))
        lines.append(_indented(pod.why, "dim"))
    for line in (document.archive, decided_by(document.kubelet)):
        lines += [Text(""), Text(clean(line), "dim")] if line else []
    return text_for(Group(*lines), to)


def _parts(document: ExplanationDocument, *, verbose: bool) -> Iterator[RenderableType]:
    verdict, name = document.verdict, (document.namespace, document.name, document.container)
    kind, style = ("ok", "bold green") if verdict == PodVerdict.ADMITTED else ("error", "bold red")
    what = "is admitted again" if verdict == PodVerdict.ADMITTED and document.running else _VERDICTS[verdict]
    reason = f": {document.reason}" if verdict == PodVerdict.REJECTED else ""
    called = clean("/".join(part for part in name if part))
    yield Text.assemble((f"{kind}[{document.code}]", style), (f": {called} {what}{clean(reason)}", "bold"))
    yield _indented(document.why)
    if document.message:
        yield _indented(f"The kubelet says: “{document.message}”.", "dim")
    shown = document.story if verbose else without_details(document.story)
    if shown or (document.verdict == PodVerdict.NOT_STARTED and document.circumstances):
        yield Text("")
        yield Text(clean(document.circumstances), "dim")
    yield from (_tree(line) for line in shown)
    notes = list(_notes(document))
    if notes:
        yield Text("")
        yield from (_noted(text) for text in notes)
    helps = helps_of(document, proposed(document))
    if helps:
        yield Text("")
    if document.proposals and document.code == UNHEALTHY_DEVICES:
        yield _noted(f"help: {document.remedy}")
    for text, one in zip_longest(helps, document.proposals):
        yield _noted(text)
        if one is not None:
            yield CommandLine(one.command, "  ")
    yield Text("")
    hidden = "" if verbose or document.story == shown else "; -v shows everything"
    yield Text(f"mooring explain {document.code} has more{hidden}", "dim")


def _indented(text: str, style: str = "") -> RenderableType:
    return Padding(Text(clean(text), style), (0, 0, 0, 2))


def _notes(document: ExplanationDocument) -> Iterator[str]:
    """Yield the remarks; of one that the sentence above contains, only its remedy."""
    for remark in document.remarks:
        told = remark.message in document.why
        texts = [*([] if told else [f"{remark.message}."]), *([remark.remedy] if remark.remedy else [])]
        if texts:
            yield f"note[{remark.code}]: {' '.join(texts)}"


def proposed(document: ExplanationDocument) -> list[str]:
    """Return the changes that would admit the pod, each with its price."""
    return [f"{one.text} {one.price}".rstrip() for one in document.proposals]


def helps_of(document: ExplanationDocument, nearest: Sequence[str]) -> list[str]:
    """Return what can be done: changes that were run, and only where none was found general advice, marked as such."""
    if nearest:
        return [f"help: {text}" for text in nearest]
    if document.verdict == PodVerdict.NOT_STARTED or document.code == UNHEALTHY_DEVICES:
        return [f"help: {document.remedy}"] if document.remedy else []
    return [f"help (general, not run): {document.remedy}"] if document.remedy else []


def without_details(lines: Sequence[StoryLinePart]) -> list[StoryLinePart]:
    """Return the lines without details, and without what is below those."""
    return [msgspec.structs.replace(line, below=without_details(line.below)) for line in lines if not line.detail]


def _noted(text: str) -> Text:
    kind, _, rest = text.partition(": ")
    return Text.assemble((f"{kind}: ", "bold"), clean(rest))


def _tree(line: StoryLinePart) -> Tree:
    tree = Tree(_label(line), guide_style="dim")
    _grow(tree, line.below)
    return tree


def _grow(tree: Tree, lines: Sequence[StoryLinePart]) -> None:
    for line in lines:
        _grow(tree.add(_label(line)), line.below)


def _label(line: StoryLinePart) -> Text:
    style = {NO: "red", YES: "green"}.get(line.mark, "")
    return Text.assemble((_MARKS.get(line.mark, ""), style), clean(line.text))
