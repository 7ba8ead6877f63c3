"""``mooring whatif``: change one thing and ask again, or find the nearest change that admits a pod."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import click

from mooring.answers.base.inputs.node import question_from, read_inputs
from mooring.cli import options
from mooring.cli.options import NodeOptions
from mooring.cli.output import NO, YES, Verb, check_destination, emit, emit_document, json_text, tell, warn
from mooring.engine.core.errors import InputError
from mooring.engine.core.release import NEWEST
from mooring.lazy import lazily

with lazily():
    from mooring.answers.base import picture as pictures
    from mooring.answers.base import plan as planning
    from mooring.answers.base.changes import change as planned_change
    from mooring.answers.base.changes import configuration
    from mooring.answers.base.changes import nearest as nearest_search
    from mooring.answers.whatif import answer, text
    from mooring.views.svg import picture as svg


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
@click.option(
    "--ask",
    multiple=True,
    metavar="POD[/CONTAINER]:RESOURCE=AMOUNT",
    help="A container requests another amount of cpu, memory, hugepages-SIZE or devices. Without a container: the only "
    "one, or the pod-level resources.",
)
@click.option(
    "--set",
    "set_",
    multiple=True,
    metavar="FIELD=VALUE",
    shell_complete=options.among(lambda: configuration.settings(NEWEST.name)),
    help="A field of the KubeletConfiguration, such as topologyManagerScope=pod, cpuManagerPolicyOptions.NAME=true or "
    "featureGates.NAME=true; an option without a value is left out.",
)
@click.option(
    "--remove",
    multiple=True,
    metavar="POD[=NEXT]",
    help="A pod ends just before NEXT is asked. Without NEXT: a running one at once, and others are not asked at all.",
)
@click.option("--move", multiple=True, metavar="POD[=NEXT]", help="As --remove; the pod returns after all others.")
@click.option("--first", multiple=True, metavar="POD[=NEXT]", help="A pod is asked first, or just before NEXT.")
@click.option("--device", multiple=True, metavar="RESOURCE=NODE", help="Add a device to a NUMA node.")
@click.option(
    "--hold",
    multiple=True,
    metavar="POD[/CONTAINER]:RESOURCE=ID[,ID]",
    help="A container holds these devices of a resource or of a driver, and CPUs and memory are decided with them.",
)
@click.option(
    "--fresh-state",
    multiple=True,
    metavar="cpu|memory",
    help="The state file of the CPU or the memory manager is deleted before the kubelet starts.",
)
@click.option(
    "--goal",
    type=click.Choice(["admitted", "exclusive"]),
    default="admitted",
    show_default=True,
    help="What the changes that are searched do for POD: admit it, or give it exclusive CPUs.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, 100),
    default=None,
    help=f"How many changes to find at most. Default: {_DEFAULT_LIMIT}.",
)
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
    changes = [change for option, text in wanted for change in nearest_search.understood(question, option, text)]
    changed = planned_change.applied(question, changes)
    if not wanted or pod:
        nearest = answer.nearest(read, changed, changes, pod, goal, limit or _DEFAULT_LIMIT)
        if form == "json":
            emit_document(json_text(nearest), to)
        else:
            warn(nearest.findings)
            emit(text.nearest_text(nearest, to), to)
        return YES if nearest.is_yes else NO
    before, after = planning.make_plan(question), planning.make_plan(changed)
    if form != "json":
        warn(after.findings)
    if form == "svg":
        if isinstance(after, planning.RefusedPlan):
            tell(after.sentence)
        emit_document(svg.svg_text(pictures.plan_view(after)), to)
        return YES if after.is_yes else NO
    compared = answer.changed(question, changes, before, after, with_pods=form == "json")
    if form == "json":
        emit_document(json_text(compared), to)
    else:
        emit(text.changed_text(compared, to), to)
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
