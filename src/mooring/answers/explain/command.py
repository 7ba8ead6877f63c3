"""``mooring explain``: why a pod was placed there, or rejected."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from mooring.answers.base.inputs.node import question_from, read_inputs
from mooring.cli import options
from mooring.cli.options import NodeOptions
from mooring.cli.output import NO, YES, Verb, check_destination, emit, emit_document, json_text, warn
from mooring.engine.core.errors import InputError
from mooring.explanations.codes import all_codes, codes_beginning, is_code, reason_page, reasons
from mooring.explanations.reason import SHARED_BY_QOS
from mooring.lazy import lazily

with lazily():
    from click import shell_completion

    from mooring.answers.base import picture, plan_findings
    from mooring.answers.base import plan as planning
    from mooring.answers.base import pods as explanation
    from mooring.answers.base import pods as pod_names
    from mooring.answers.base.changes import nearest as nearest_search
    from mooring.answers.base.inputs import checks as running_inputs
    from mooring.answers.explain import document as explanation_document
    from mooring.answers.explain import text
    from mooring.explanations import codes as pages
    from mooring.views import decision as decision_rows
    from mooring.views.svg import decision as decision_svg


if TYPE_CHECKING:
    from mooring.answers.base.changes.search import Proposal
    from mooring.answers.base.plan import AnyPlan, Question
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
    if codes := codes_beginning(name):
        if form != "text":
            raise click.UsageError("a list of codes is text: use -o text, or name one code")
        emit("".join(f"{found.code}  {found.title}\n" for found in codes), to)
        return YES
    about = pages.page(name) if is_code(name) else reason_page(name)
    if about is not None:
        if form == "json" and is_code(about.code):
            emit_document(json_text(explanation_document.page_document(about)), to)
        elif form == "text":
            emit(text.page_text(about, to), to)
        else:
            raise click.UsageError("a code has no picture, and a reason is text: use -o text, or json for a code")
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
        _list(plan, inputs, form, to)
        return YES
    found = _nearest(question, story, limit)
    topology = None if isinstance(plan, planning.RefusedPlan) else plan.kubelet.settings.topology
    proposals = [nearest_search.proposal_part(proposal, question) for proposal in found]
    for proposal, part in zip(found, proposals, strict=True):
        part.command = nearest_search.outcome_command(read, proposal.options, story.pod)
    document = explanation_document.explanation_document(story, plan.machine.name, topology, proposals, plan.release)
    if form == "json":
        emit_document(json_text(document), to)
    elif form == "svg":
        helps = [
            words.removeprefix("help").removeprefix(": ").strip()
            for words in text.helps_of(document, text.proposed(document))
        ]
        nodes = sorted(node.node_id for node in plan.machine.info.topology)
        seen = picture.devices_before(plan, story.pod.uid)
        emit_document(decision_svg.decision_svg(decision_rows.decision_view(story, nodes, topology, helps, seen)), to)
    else:
        emit(text.explain_text(document, verbose=verbose, to=to), to)
    return YES if story.admitted else NO


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
        return explanation.explain(plan, named.pod, named.container)
    refused = pod_names.first_refused(plan)
    return explanation.explain(plan, refused) if refused is not None else None


def _nearest(question: Question, story: Story, limit: int) -> tuple[Proposal, ...]:
    """Return the nearest changes that would admit the pod, or make an admitted one Guaranteed with exclusive CPUs."""
    if not limit:
        return ()
    if story.admitted:
        by_qos = story.why.code == SHARED_BY_QOS
        return nearest_search.exclusive_changes(question, story.pod.uid, limit, nearest_search.WHOLE) if by_qos else ()
    return nearest_search.nearest_changes(question, story.pod.uid, limit)


def _list(plan: AnyPlan, inputs: NodeOptions, form: str, to: str) -> None:
    """List what can be explained.

    Raises:
        InputError: a picture was requested.
    """
    document = explanation_document.explanation_list(plan)
    if form == "json":
        emit_document(json_text(document), to)
    elif form == "text":
        emit(text.list_text(document, to, inputs.words), to)
    else:
        raise InputError("every pod is admitted; a picture shows one decision", source="POD", remedy="name a pod")
