"""``mooring resize``: what would happen if this pod were resized?"""

from __future__ import annotations

from dataclasses import replace

import click

from mooring.answers.base.inputs.node import question_of
from mooring.cli import options
from mooring.cli.options import NodeOptions
from mooring.cli.output import NO, YES, Verb
from mooring.lazy import lazily

with lazily():
    from mooring.answers.resize import answer, sizes, text
    from mooring.cli import terminal


EPILOG = """\b
Examples:
  mooring resize core/upf-0 --cpu 24 -f pods.yaml --machine epyc-7763-2s-nps4 --config kubelet.yaml
  mooring resize core/upf-0/upf --cpu 12 --memory 24Gi --node node.tar.gz
  mooring resize web-0 --cpu app=4 --cpu proxy=2 -f web.yaml --config kubelet.yaml -o wide
"""


@click.command("resize", cls=Verb, epilog=EPILOG)
@click.argument("pod", default="", metavar="[[NAMESPACE/]POD[/CONTAINER]]", shell_complete=options.complete_pod)
@options.text(
    "--cpu", "[CONTAINER=]N", "CPUs that a container will have; repeatable for several containers.", multiple=True
)
@options.text(
    "--memory", "[CONTAINER=]AMOUNT", "Memory that a container will have, such as 4Gi; repeatable.", multiple=True
)
@options.pods("Pods that are admitted first, including the one to resize; repeatable.")
@options.node_options("devices")
@options.output(("text", "wide", "json"), "text")
@options.to_file
def command(pod: str, cpu: tuple[str, ...], memory: tuple[str, ...], form: str, to: str, inputs: NodeOptions) -> int:
    """Resize a pod in place: accepted, deferred or infeasible, with which CPUs, and how far it can grow now.

    Limits follow where they are equal to the requests. Nothing is written.

    Exit code 1 when the resize is refused, the pod does not run, or the kubelet would not start.
    """
    if not (cpu or memory):
        raise click.UsageError("name the new amount: --cpu N or --memory AMOUNT")
    asked = [*sizes.wanted("cpu", cpu), *sizes.wanted("memory", memory)]
    plan, resized = answer.resize_of(question_of(replace(inputs, named=(pod,) if pod else ())), pod, asked)
    parts = text.resize_parts(plan, resized, to, wide=form == "wide")
    terminal.print_answer(form, to, resized, parts, resized.findings)
    return YES if resized.accepted else NO
