"""``mooring capacity``: how many more pods like this one fit?"""

from __future__ import annotations

from dataclasses import replace

import click
from click.core import ParameterSource

from mooring.answers.base.inputs.node import question_of
from mooring.cli import options
from mooring.cli.options import NodeOptions
from mooring.cli.output import NO, YES, Verb, check_destination, emit, emit_document, json_text, tell, warn
from mooring.lazy import lazily

with lazily():
    from mooring.answers.base import picture as pictures
    from mooring.answers.base import plan as planning
    from mooring.answers.capacity import answer, text
    from mooring.answers.capacity import eviction as replicas
    from mooring.inputs.pods import defaults
    from mooring.views.svg import picture as svg


EPILOG = """\b
Examples:
  mooring capacity -f pod.yaml --machine epyc-7763-2s-nps4 --config kubelet.yaml
  mooring capacity data/database -f pods.yaml --machine epyc-7763-2s-nps4 --config kubelet.yaml -o wide
  mooring capacity --shape cpu=8,memory=16Gi --node node.tar.gz --at-least 3
  mooring capacity web -f web.yaml --active running.yaml --config kubelet.yaml -o svg --to node.svg
"""


@click.command("capacity", cls=Verb, epilog=EPILOG)
@click.argument("pod", default="", metavar="[[NAMESPACE/]POD]", shell_complete=options.complete_pod)
@options.pods("Pods: the one to count, and others that are admitted before it; repeatable.")
@options.node_options("offline", "devices")
@click.option(
    "--shape",
    default="",
    metavar="RESOURCE=AMOUNT,...",
    help="Count Guaranteed pods of one container with these amounts, such as cpu=4,memory=8Gi, instead of POD; "
    "memory is 1Mi unless given.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, 100_000),
    default=None,
    help="Stop counting at this number. Default: when one is rejected, at most 1000 or the number of CPUs.",
)
@click.option(
    "--at-least",
    "at_least",
    type=click.IntRange(0, 100_000),
    default=1,
    show_default=True,
    help="How many must fit for exit code 0.",
)
@options.output(("text", "wide", "json", "svg"), "text")
@options.to_file
def command(pod: str, shape: str, limit: int | None, at_least: int, form: str, to: str, inputs: NodeOptions) -> int:
    """Count how many more pods of a shape fit on a node now; show where, what stops the next, and which pods could go.

    Without POD, --shape and -f, the largest requests that the node still takes are shown. The other pods of -f are
    admitted first. POD is a pod, or a workload such as a Deployment whose pods are given; where -f has
    nothing else, it needs no name.

    Exit code 1 when fewer than --at-least fit, or the kubelet would not start.
    """
    if pod and shape:
        raise click.UsageError("give either POD or --shape")
    if limit is not None and limit < at_least:
        raise click.UsageError(f"--limit {limit} is below --at-least {at_least}")
    check_destination(to)
    question = question_of(replace(inputs, named=(pod,) if pod else ()), counts_scaled_down=True)
    if not (pod or shape or question.pods or question.scaled_down):
        if click.get_current_context().get_parameter_source("at_least") is not ParameterSource.DEFAULT:
            raise click.UsageError("--at-least counts pods of a shape: give POD, --shape or -f")
        plan, largest = answer.largest_requests(question)
        if form == "json":
            emit_document(json_text(largest), to)
        elif form == "svg":
            raise click.UsageError("-o svg draws the node with pods of a shape: give --shape or POD")
        else:
            warn(largest.findings)
            emit(text.largest_text(plan, largest, to=to), to)
        return YES if answer.askable(plan) is not None else NO
    if shape:
        gates = defaults.PodGates.of_node(question.config, question.mooring)
        subject = replicas.Subject(replicas.described_pod(shape, gates), question)
    else:
        subject = replicas.named_subject(question, pod)
    capacity = answer.capacity_of(subject, limit, at_least)
    if form == "json":
        emit_document(json_text(capacity.document), to)
    else:
        warn(capacity.document.findings)
        if form == "svg":
            emit_document(_svg(capacity), to)
        else:
            emit(text.capacity_text(capacity, wide=form == "wide", to=to), to)
    return YES if capacity.can_be_asked and capacity.document.enough else NO


def _svg(capacity: answer.Capacity) -> str:
    if isinstance(capacity.plan, planning.RefusedPlan):
        tell(capacity.plan.sentence)
    view = pictures.plan_view(capacity.after, hypothetical={one.pod.uid for one in capacity.replicas})
    if capacity.can_be_asked:
        stops = capacity.document.next
        caption = (f"The next one: {stops.why}", *view.caption) if stops is not None else view.caption
        view = replace(view, headline=text.headline(capacity), rejected=(), caption=caption)
    return svg.svg_text(view)
