"""``mooring topology``: a machine as it is and as the kubelet sees it."""

from __future__ import annotations

import click

from mooring.answers.base.inputs.node import question_of, read_machine
from mooring.cli import options
from mooring.cli.options import NodeOptions
from mooring.cli.output import NO, YES, Verb, emit, emit_document, json_text
from mooring.engine.core.errors import InputError
from mooring.lazy import lazily

with lazily():
    from mooring.answers.base import plan as planning
    from mooring.answers.base import plan_text
    from mooring.answers.base.inputs import checks as running_inputs
    from mooring.answers.topology import text
    from mooring.inputs.decoding import yaml_reader
    from mooring.inputs.machines import kubelet_view as cadvisor_machine
    from mooring.inputs.machines import machine_document as machine_documents
    from mooring.inputs.machines import machineinfo_json
    from mooring.inputs.machines import tree as trees


EPILOG = """\b
Examples:
  mooring topology
  mooring topology --machine node.tar.gz -o json
  mooring topology --node worker-7
  mooring topology --machine "sockets=2 numa=4 cores=16 threads=2 l3=8 memory=64Gi" -o machineinfo
"""


@click.command("topology", cls=Verb, epilog=EPILOG)
@options.machine
@options.config
@options.node
@options.debug_image
@options.output(("text", "json", "yaml", "machineinfo", "resources"), "text")
@options.to_file
def command(machine: str, config: tuple[str, ...], node: str, debug_image: str, form: str, to: str) -> int:
    """Show CPUs, cores, caches, NUMA nodes and memory, and where the kubelet's view differs from the hardware.

    With -o resources: capacity and allocatable of the node with --config, as kubectl describe node has them.

    Exit code 1 when the kubelet could not describe the machine (-o machineinfo), or would not start (-o resources).
    """
    inputs = NodeOptions(machine=machine, config=config, node=node, debug_image=debug_image)
    if form == "resources":
        plan = planning.make_plan(question_of(running_inputs.with_running_kubelet(inputs) if node else inputs))
        emit(plan_text.resources_text(plan, to), to)
        return YES if plan.is_yes else NO
    if config:
        raise click.UsageError("--config reserves resources: add -o resources")
    if form == "machineinfo":
        try:
            loaded = read_machine(inputs)
        except InputError:
            # The hardware cannot be made out; what cAdvisor says of it is read all the same.
            failed = _cadvisor_error(inputs.machine or inputs.node)
            if not failed:
                raise
        else:
            failed = loaded.info_error
        if failed:
            emit(failed, to)
            return NO
        emit_document(machineinfo_json.machine_info_json(loaded.info), to)
        return YES
    loaded = read_machine(inputs)
    if form == "text":
        emit(text.topology_text(loaded, to), to)
        return YES
    document = machine_documents.machine_document(loaded)
    emit_document(json_text(document) if form == "json" else yaml_reader.yaml_text(document), to)
    return YES


def _cadvisor_error(source: str) -> str:
    """Return why cAdvisor cannot describe a tree; empty when it can, or when the source is no snapshot of a machine."""
    try:
        tree = trees.open_tree(source)
        return cadvisor_machine.read_machine_info(tree).info_error if tree.exists("proc/cpuinfo") else ""
    except InputError:
        return ""
