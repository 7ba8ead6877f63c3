"""``mooring show``: the picture of a machine and who owns what."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mooring.cli import options
from mooring.cli.answer import NO, YES, emit, emit_document, warn
from mooring.cli.destination import check_destination
from mooring.cli.inputs import NodeOptions, plan_of

if TYPE_CHECKING:
    from mooring.render.view import NodeView

EPILOG = """\b
Examples:
  mooring show --machine epyc-7763-2s-nps4
  mooring show -f pods.yaml --machine epyc-7763-2s-nps4 --config kubelet.yaml
  mooring show -f pods.yaml --machine epyc-7763-2s-nps4 --config kubelet.yaml -o svg --to node.svg
"""


@click.command("show", epilog=EPILOG)
@click.option(
    "-f",
    "--filename",
    "manifests",
    multiple=True,
    metavar="FILE|DIR|-",
    help="Pods to admit first; without them the bare machine.",
)
@options.machine
@options.config
@options.state
@options.active
@options.output(("terminal", "svg"), "terminal")
@click.option(
    "--width",
    type=click.IntRange(20, 1000),
    default=None,
    help="Columns of the terminal picture. Default: the terminal's.",
)
@options.to_file
def command(
    manifests: tuple[str, ...],
    machine: str,
    config: tuple[str, ...],
    state: str,
    active: tuple[str, ...],
    form: str,
    width: int | None,
    to: str,
) -> int:
    """Draw sockets, NUMA nodes, caches, cores and CPUs, coloured by owner.

    Exit code 1 when a pod is rejected or the kubelet would not start.
    """
    check_destination(to)
    view, is_yes = _view(NodeOptions(manifests, machine, config, state, active))
    if form == "svg":
        from mooring.render.svg import svg_text  # noqa: PLC0415 - only for this format

        emit_document(svg_text(view), to)
    else:
        emit(_terminal(view, width, to), to)
    return YES if is_yes else NO


def _view(inputs: NodeOptions) -> tuple[NodeView, bool]:
    from mooring.planner.picture import machine_view, plan_view  # noqa: PLC0415 - after the options are known to be good

    if not inputs.describes_node:
        from mooring.discovery.loader import load_machine  # noqa: PLC0415 - as above

        return machine_view(load_machine(inputs.machine)), True
    plan = plan_of(inputs)
    warn(plan.findings)
    if plan.refusal is not None:
        click.echo(f"The kubelet would not start: {plan.refusal.message}", err=True)
        if plan.remedy:
            click.echo(plan.remedy, err=True)
    return plan_view(plan), plan.is_yes


def _terminal(view: NodeView, width: int | None, to: str) -> str:
    from mooring.cli.terminal import text_for, width_for  # noqa: PLC0415 - only for the terminal
    from mooring.render.terminal import picture  # noqa: PLC0415 - as above

    columns = width or width_for(to)
    return text_for(picture(view, columns), to, columns)
