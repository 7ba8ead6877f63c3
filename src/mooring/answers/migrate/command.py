"""``mooring migrate``: what happens when the agent replaces this kubelet's managers, step by step?"""

from __future__ import annotations

import click

from mooring.answers.base.inputs.node import question_from, read_inputs
from mooring.cli import options
from mooring.cli.options import NodeOptions
from mooring.cli.output import NO, YES, Verb
from mooring.lazy import lazily

with lazily():
    from mooring.answers.migrate import migration as migrating
    from mooring.answers.migrate import steps, text
    from mooring.cli import terminal

EPILOG = """\b
Examples:
  mooring migrate
  mooring migrate --node node.tar.gz
  mooring migrate --node n1 --drain
  mooring migrate --state copy-of-kubelet-root --config kubelet.yaml --active running.yaml -o json
"""


@click.command("migrate", cls=Verb, epilog=EPILOG)
@options.node_options()
@click.option("--drain", is_flag=True, help="Evict the pods first. Default: in place, they run on.")
@options.output(("text", "json"), "text")
@options.to_file
def command(form: str, to: str, inputs: NodeOptions, *, drain: bool) -> int:
    """Show how the agent takes over from the kubelet's CPU and memory managers on a node, and the way back.

    Checks come first; each step has its commands and what it does to the running pods, computed for this node. Nothing
    is executed.

    Exit code 1 when a check fails.
    """
    read = read_inputs(inputs)
    question = question_from(read)
    archive = read.archive
    node = read.options.node_name or ("" if archive is None else archive.about.node)
    kubelet = None if archive is None else archive.kubelet
    root = steps.KUBELET_ROOT if kubelet is None else kubelet.root
    way = migrating.Way.DRAIN if drain else migrating.Way.IN_PLACE
    devices = None if archive is None else archive.devices().record
    places = steps.Places(node or "NODE", root, f"{root.rstrip('/')}/config.yaml")
    document = steps.migration_document(migrating.migration_of(question, way, devices), places, node)
    terminal.print_answer(form, to, document, text.migration_parts(document), document.findings)
    return YES if document.passed else NO
