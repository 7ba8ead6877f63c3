"""``mooring resize``: what would happen if this pod were resized?"""

from __future__ import annotations

from typing import Any

import click

from mooring.cli import options
from mooring.cli.inputs import NodeOptions, question_of
from mooring.cli.output import NO, YES, check_destination, emit, emit_document, json_text, warn

EPILOG = """\b
Examples:
  mooring resize core/upf-0 --cpu 24 -f pods.yaml --machine epyc-7763-2s-nps4 --config kubelet.yaml
  mooring resize core/upf-0/upf --cpu 12 --memory 24Gi --node node.tar.gz
  mooring resize web-0 --cpu app=4 --cpu proxy=2 -f web.yaml --config kubelet.yaml -o wide
"""


@click.command("resize", epilog=EPILOG)
@click.argument("pod", default="", metavar="[[NAMESPACE/]POD[/CONTAINER]]")
@click.option(
    "--cpu",
    "cpu",
    multiple=True,
    metavar="[CONTAINER=]N",
    help="CPUs that a container will have; repeatable for several containers.",
)
@click.option(
    "--memory",
    "memory",
    multiple=True,
    metavar="[CONTAINER=]AMOUNT",
    help="Memory that a container will have, such as 4Gi; repeatable.",
)
@options.pods("Pods that are admitted first, including the one to resize; repeatable.")
@options.described_node
@options.output(("text", "wide", "json"), "text")
@options.to_file
def command(pod: str, cpu: tuple[str, ...], memory: tuple[str, ...], form: str, to: str, **inputs: Any) -> int:
    """Resize a pod in place: accepted, deferred or infeasible, with which CPUs, and how far it can grow now.

    Limits follow where they are equal to the requests. Nothing is written.

    Exit code 1 when the resize is refused, the pod does not run, or the kubelet would not start.
    """
    if not (cpu or memory):
        raise click.UsageError("name the new amount: --cpu N or --memory AMOUNT")
    check_destination(to)
    from mooring.planner.resize.asked import wanted  # noqa: PLC0415 - after the options are known to be good
    from mooring.planner.resize.resize import resize_of  # noqa: PLC0415 - as above

    asked = [*wanted("cpu", cpu), *wanted("memory", memory)]
    resized = resize_of(question_of(NodeOptions(**inputs)), pod, asked)
    if form == "json":
        from mooring.planner.resize.resize_document import resize_document  # noqa: PLC0415 - only for this format

        emit_document(json_text(resize_document(resized)), to)
    else:
        from mooring.cli.text.resize import resize_text  # noqa: PLC0415 - rich is not needed for JSON

        warn(resized.plan.findings)
        emit(resize_text(resized, wide=form == "wide", to=to), to)
    return YES if resized.is_yes else NO
