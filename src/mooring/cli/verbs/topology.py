"""``mooring topology``: a machine as it is and as the kubelet sees it."""

from __future__ import annotations

import click

from mooring.cli import options
from mooring.cli.inputs import read_machine
from mooring.cli.output import NO, YES, check_destination, emit, emit_document, json_text
from mooring.core.errors import InputError

EPILOG = """\b
Examples:
  mooring topology
  mooring topology --machine node.tar.gz -o json
  mooring topology --machine "sockets=2 numa=4 cores=16 threads=2 l3=8 memory=64Gi" -o machineinfo
"""


@click.command("topology", epilog=EPILOG)
@options.machine
@options.node
@options.output(("text", "json", "yaml", "machineinfo"), "text")
@options.to_file
def command(machine: str, node: str, form: str, to: str) -> int:
    """Show CPUs, cores, caches, NUMA nodes and memory, and where the kubelet's view differs from the hardware.

    With -o machineinfo, exit code 1 when the kubelet could not describe the machine.
    """
    check_destination(to)
    if form == "machineinfo":
        return _machine_info(machine, node, to)
    loaded = read_machine(machine, node)
    if form == "text":
        from mooring.cli.text.topology import topology_text  # noqa: PLC0415 - rich is not needed for JSON

        emit(topology_text(loaded, to), to)
        return YES
    from mooring.discovery.machine_document import machine_document  # noqa: PLC0415 - only for these formats

    document = machine_document(loaded)
    if form == "json":
        emit_document(json_text(document), to)
    else:
        from mooring.manifest.yaml_scalars import yaml_text  # noqa: PLC0415 - only for this format

        emit_document(yaml_text(document), to)
    return YES


def _machine_info(source: str, node: str, to: str) -> int:
    from mooring.discovery.machineinfo_json import machine_info_json  # noqa: PLC0415 - only for this format

    try:
        machine = read_machine(source, node)
    except InputError:
        # The hardware cannot be made out; what cAdvisor says of it is asked for all the same.
        failed = _cadvisor_error(source or node)
        if not failed:
            raise
    else:
        failed = machine.info_error
    if failed:
        emit(failed, to)
        return NO
    emit_document(machine_info_json(machine.info), to)
    return YES


def _cadvisor_error(source: str) -> str:
    """Return why cAdvisor cannot describe a tree; empty when it can, or when the source is no snapshot of a machine."""
    from mooring.discovery.cadvisor.machine import read_machine_info  # noqa: PLC0415 - only for broken machines
    from mooring.discovery.files import open_tree  # noqa: PLC0415 - as above

    try:
        tree = open_tree(source)
        return read_machine_info(tree).info_error if tree.exists("proc/cpuinfo") else ""
    except InputError:
        return ""
