"""``mooring explain``: why a pod was placed there, or rejected; as a document, and the document as text for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING

import click

from mooring.answers.base.inputs.node import question_from, read_inputs
from mooring.cli import options
from mooring.cli.options import NodeOptions
from mooring.cli.output import NO, STANDARD_OUTPUT, YES, Verb, check_destination, emit, emit_document, json_text, warn
from mooring.engine.core.errors import InputError, clean
from mooring.explanations.codes import (
    SHARED_BY_QOS,
    UNHEALTHY_DEVICES,
    CodePage,
    all_codes,
    codes_beginning,
    is_code,
    page,
    reason_page,
    reasons,
)
from mooring.lazy import lazily

with lazily():
    import msgspec
    import rich.console as rich_console
    import rich.markdown as rich_markdown
    import rich.text as rich_text
    import rich.tree as rich_tree
    from click import shell_completion

    from mooring.answers.base import picture, plan_findings
    from mooring.answers.base import plan as planning
    from mooring.answers.base import pods as pod_names
    from mooring.answers.base.changes import nearest as nearest_search
    from mooring.answers.base.inputs import checks as running_inputs
    from mooring.cli import terminal
    from mooring.documents import explanation as parts
    from mooring.views import console
    from mooring.views import decision as decision_rows
    from mooring.views.svg import decision as decision_svg

if TYPE_CHECKING:
    from mooring.answers.base.changes.search import Proposal
    from mooring.answers.base.plan import AnyPlan
    from mooring.explanations.story import Story

EPILOG = """\b
Examples:
  mooring explain -f pods.yaml --machine epyc-7763-2s-nps4 --config kubelet.yaml
  mooring explain hpc/solver -f pods.yaml --machine epyc-7763-2s-nps4 --config kubelet.yaml -v
  mooring explain web-0/app -f pods.yaml --node node.tar.gz -o svg --to why.svg
  mooring explain MOOR-103
  mooring explain hpc/solver-0
  mooring explain TopologyAffinityError
"""


def _complete_name(
    context: click.Context, parameter: click.Parameter, begun: str
) -> list[shell_completion.CompletionItem]:
    """Complete a pod of ``-f``, and what is begun of a code or a reason."""
    found = options.complete_pod(context, parameter, begun)
    return found + options.among(lambda: (*all_codes(), *reasons()))(context, parameter, begun) if begun else found


@click.command("explain", cls=Verb, epilog=EPILOG)
@click.argument(
    "name",
    default="",
    metavar="[[NAMESPACE/]POD[/CONTAINER] | CODE | REASON | MESSAGE]",
    shell_complete=_complete_name,
)
@options.pods("Pods to admit, in order: the one that is explained, and those before it; repeatable.")
@options.node_options("offline", "devices", "stop_at_crash")
@click.option("-v", "--verbose", is_flag=True, help="Show everything: hints, free amounts and passed checks.")
@click.option(
    "--nearest",
    "limit",
    type=click.IntRange(0, 10),
    default=1,
    show_default=True,
    help="How many of the nearest changes that admit the pod, or give it exclusive CPUs, to search for.",
)
@options.output(("text", "json", "svg"), "text")
@options.to_file
def command(name: str, *, verbose: bool, limit: int, form: str, to: str, inputs: NodeOptions) -> int:
    """Explain what a node decides about a pod: the cause, the facts behind it, and what can be done.

    Without a name, the first pod that is not admitted is explained; if all are admitted, they are listed. For a code
    such as MOOR-103 its page is printed, for its beginning, such as MOOR-1, the codes and their titles. For a reason,
    such as TopologyAffinityError, or the message of an event in quotes: what it means, and the codes that split it.

    With nothing but a pod, kubectl is asked about the pod and its node.

    Exit code 1 when the pod is not admitted.
    """
    check_destination(to)
    if _tells_meaning(name, form, to):
        return YES
    inputs = running_inputs.with_running_kubelet(replace(inputs, named=(name,) if name else ()))
    # Refuse a question about no pod before anything is read
    if not (inputs.manifests or inputs.active or inputs.node or inputs.running):
        raise InputError(
            "there is no pod to explain", field="-f", remedy="give pods with -f or --active, or a code such as MOOR-103"
        )
    read = read_inputs(inputs)
    question = question_from(read)
    plan = planning.make_plan(question)
    # A story has what differs from its own pod's status, and what a restart does to it; of others it does not matter.
    warn(one for one in plan.findings if one.code not in plan_findings.OF_A_STORY)
    story = _story(plan, name)
    if story is None:
        warn(one for one in plan.findings if one.code in plan_findings.OF_A_STORY)
        if form == "svg":
            raise InputError("every pod is admitted; a picture shows one decision", source="POD", remedy="name a pod")
        listed = explanation_list(plan)
        if form == "json":
            emit_document(json_text(listed), to)
        else:
            emit(explainable_text(listed, to, inputs.words), to)
        return YES
    # The nearest changes that would admit the pod, or make an admitted one Guaranteed with exclusive CPUs
    uid = story.pod.uid
    found: tuple[Proposal, ...] = ()
    if limit and not story.admitted:
        found = nearest_search.nearest_changes(question, uid, limit)
    elif limit and story.why.code == SHARED_BY_QOS:
        found = nearest_search.exclusive_changes(question, uid, limit, nearest_search.WHOLE)
    topology = None if isinstance(plan, planning.RefusedPlan) else plan.kubelet.settings.topology
    proposals = [nearest_search.proposal_part(proposal, question) for proposal in found]
    for proposal, part in zip(found, proposals, strict=True):
        part.command = nearest_search.outcome_command(read, proposal.options, story.pod)
    document = pod_names.explanation_document(story, plan.machine.name, topology, proposals, plan.release)
    if form == "json":
        emit_document(json_text(document), to)
    elif form == "svg":
        helps = [words.removeprefix("help").removeprefix(": ").strip() for words in helps_of(document)]
        nodes = sorted(node.node_id for node in plan.machine.info.topology)
        seen = picture.devices_before(plan, story.pod.uid)
        emit_document(decision_svg.decision_svg(decision_rows.decision_view(story, nodes, topology, helps, seen)), to)
    else:
        emit(explain_text(document, verbose=verbose, to=to), to)
    return YES if story.admitted else NO


def _tells_meaning(name: str, form: str, to: str) -> bool:
    """Tell whether a name was that of a code, of several or of a reason, and print what it means."""
    if codes := codes_beginning(name):
        if form != "text":
            raise click.UsageError("a list of codes is text: use -o text, or name one code")
        emit("".join(f"{found.code}  {found.title}\n" for found in codes), to)
        return True
    about = page(name) if is_code(name) else reason_page(name)
    if about is None:
        return False
    if form == "json" and is_code(about.code):
        document = parts.CodePageDocument(code=about.code, title=about.title, text=about.text)
        emit_document(json_text(document), to)
    elif form == "text":
        emit(page_text(about, to), to)
    else:
        raise click.UsageError("a code has no picture, and a reason is text: use -o text, or json for a code")
    return True


def _story(plan: AnyPlan, name: str) -> Story | None:
    """Return the story that is requested; None when no pod was named and all are admitted.

    Raises:
        InputError: the name is unknown or ambiguous, or there is no pod.
    """
    pods = pod_names.pods_of(plan)
    if not pods:
        raise InputError("there is no pod to explain", source="-f", remedy="give pods with -f or --active")
    if name:
        named = pod_names.find(pods, name)
        return pod_names.explain(plan, named.pod, named.container)
    refused = pod_names.first_refused(plan)
    return pod_names.explain(plan, refused) if refused is not None else None


def explanation_list(plan: AnyPlan) -> parts.ExplanationListDocument:
    """Return what can be explained of a plan (``mooring explain -o json`` when every pod runs)."""
    document = parts.ExplanationListDocument(
        kubelet=plan.release.tag,
        machine=plan.machine.name,
        pods=[
            parts.ExplainablePodPart(
                uid=answer.pod.uid,
                namespace=answer.pod.namespace,
                name=answer.pod.name,
                admitted=answer.admitted,
                code=answer.code,
                why=answer.why,
            )
            for answer in plan.answers
        ],
    )
    document.archive = planning.archive_of(plan.findings)
    return document


_VERDICTS = {
    "admitted": "is admitted",
    "rejected": "is rejected",
    "endless": "hangs the kubelet",
    "crash": "crashes the kubelet",
    "not asked": "is not evaluated",
    "not started": "is not evaluated",
}
_MARKS = {"no": ("✗ ", "red"), "yes": ("✓ ", "green")}


def explain_text(document: parts.ExplanationDocument, *, verbose: bool = False, to: str) -> str:
    """Return an explanation as text for the terminal, or without any styling for the file ``to``.

    Args:
        document: what to tell.
        verbose: whether all is written.
        to: the destination.
    """
    return terminal.text_for(rich_console.Group(*_parts(document, verbose=verbose)), to)


def page_text(about: CodePage, to: str = "") -> str:
    """Return the page about a code: set in type on a terminal, as it is written elsewhere."""
    if to in ("", STANDARD_OUTPUT) and rich_console.Console().is_terminal:
        return terminal.text_for(rich_markdown.Markdown(about.text), to)
    return about.text


def explainable_text(document: parts.ExplanationListDocument, to: str, words: Sequence[str]) -> str:
    """Return what can be explained of a plan in which every pod runs.

    Args:
        document: what there is.
        to: the destination.
        words: the options of the call, for a command that explains a pod.
    """
    shown: list[rich_console.RenderableType] = [
        rich_text.Text("Every pod is admitted. This explains the placement of one:")
    ]
    first = f"{document.pods[0].namespace}/{document.pods[0].name}"
    shown += [terminal.CommandLine(("explain", first, *words), "  "), rich_text.Text("")]
    for pod in document.pods:
        name = clean(f"{pod.namespace}/{pod.name}")
        shown += [
            rich_text.Text.assemble((name, "bold"), (f"  [{pod.code}]", "dim")),
            console.indented(clean(pod.why), "dim"),
        ]
    for line in (document.archive, planning.decided_by(document.kubelet)):
        shown += [rich_text.Text(""), rich_text.Text(clean(line), "dim")] if line else []
    return terminal.text_for(rich_console.Group(*shown), to)


def _parts(document: parts.ExplanationDocument, *, verbose: bool) -> Iterator[rich_console.RenderableType]:
    verdict, name = document.verdict, (document.namespace, document.name, document.container)
    kind, style = ("ok", "bold green") if verdict == "admitted" else ("error", "bold red")
    what = "is admitted again" if verdict == "admitted" and document.running else _VERDICTS[verdict]
    reason = f": {document.reason}" if verdict == "rejected" else ""
    called = clean("/".join(part for part in name if part))
    yield rich_text.Text.assemble((f"{kind}[{document.code}]", style), (f": {called} {what}{clean(reason)}", "bold"))
    yield console.indented(clean(document.why))
    if document.message:
        yield console.indented(clean(f"The kubelet says: “{document.message}”."), "dim")
    shown = document.story if verbose else without_details(document.story)
    if shown or (document.verdict == "not started" and document.circumstances):
        yield rich_text.Text("")
        yield rich_text.Text(clean(document.circumstances), "dim")
    yield from (_tree(line) for line in shown)
    # Of a remark that the sentence above contains, only its remedy
    remarks = ((one, "" if one.message in document.why else f"{one.message}.") for one in document.remarks)
    remarks = ((one, text) for one, text in remarks if text or one.remedy)
    notes = [f"note[{one.code}]: {' '.join(filter(None, (text, one.remedy)))}" for one, text in remarks]
    if notes:
        yield rich_text.Text("")
        yield from (_noted(text) for text in notes)
    helps = helps_of(document)
    if helps:
        yield rich_text.Text("")
    if document.proposals and document.code == UNHEALTHY_DEVICES:
        yield _noted(f"help: {document.remedy}")
    for text, one in zip_longest(helps, document.proposals):
        yield _noted(text)
        if one is not None:
            yield terminal.CommandLine(one.command, "  ")
    yield rich_text.Text("")
    hidden = "" if verbose or document.story == shown else "; -v shows everything"
    yield rich_text.Text(f"mooring explain {document.code} has more{hidden}", "dim")


def helps_of(document: parts.ExplanationDocument) -> list[str]:
    """Return what can be done: changes that were run, and only where none was found general advice, marked as such."""
    if document.proposals:
        return [f"help: {one.text} {one.price}".rstrip() for one in document.proposals]
    if document.verdict == "not started" or document.code == UNHEALTHY_DEVICES:
        return [f"help: {document.remedy}"] if document.remedy else []
    return [f"help (general, not run): {document.remedy}"] if document.remedy else []


def without_details(lines: Sequence[parts.StoryLinePart]) -> list[parts.StoryLinePart]:
    """Return the lines without details, and without what is below those."""
    return [msgspec.structs.replace(line, below=without_details(line.below)) for line in lines if not line.detail]


def _noted(text: str) -> rich_text.Text:
    kind, _, rest = text.partition(": ")
    return rich_text.Text.assemble((f"{kind}: ", "bold"), clean(rest))


def _tree(line: parts.StoryLinePart) -> rich_tree.Tree:
    label = rich_text.Text.assemble(_MARKS.get(line.mark, ""), clean(line.text))
    tree = rich_tree.Tree(label, guide_style="dim")
    tree.children += map(_tree, line.below)
    return tree
