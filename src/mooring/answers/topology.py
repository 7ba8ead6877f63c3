"""``mooring topology``: a machine as it is and as the kubelet sees it; ``mooring machines``: those that are shipped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import click

from mooring.answers.base.inputs.node import question_of, read_machine
from mooring.cli import options
from mooring.cli.options import NodeOptions
from mooring.cli.output import NO, YES, Verb, emit, emit_document, json_text
from mooring.engine.core.errors import InputError, clean
from mooring.engine.core.machine import Hardware, Machine
from mooring.explanations.phrases import size
from mooring.lazy import lazily

with lazily():
    import rich.console as rich_console
    import rich.table as rich_table
    import rich.text as rich_text

    from mooring.answers.base import plan as planning
    from mooring.answers.base import plan_text
    from mooring.answers.base.inputs import checks as running_inputs
    from mooring.cli import terminal
    from mooring.documents import machine as machine_documents
    from mooring.inputs.configuration import devices as configuration_devices
    from mooring.inputs.decoding import yaml_reader
    from mooring.inputs.machines import cadvisor, loader, machineinfo_json
    from mooring.inputs.machines import tree as trees
    from mooring.views import build, console, wording


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
        emit(topology_text(loaded, to), to)
        return YES
    document = machine_documents.machine_document(loaded)
    emit_document(json_text(document) if form == "json" else yaml_reader.yaml_text(document), to)
    return YES


def _cadvisor_error(source: str) -> str:
    """Return why cAdvisor cannot describe a tree; empty when it can, or when the source is no snapshot of a machine."""
    try:
        tree = trees.open_tree(source)
        return cadvisor.read_machine_info(tree)[1] if tree.exists("proc/cpuinfo") else ""
    except InputError:
        return ""


def topology_text(machine: Machine, to: str = "") -> str:
    """Return the text for a terminal of the present width, or for the file ``to``."""
    hardware = machine.hardware or machine_documents.described_hardware(machine.info)
    view = build.build_view(machine)
    parts: list[rich_console.RenderableType] = [
        rich_text.Text(f"{view.name}: {view.title}"),
        rich_text.Text(""),
        _told(_fact_rows(machine, hardware)),
        rich_text.Text(""),
        _nodes(hardware),
    ]
    if hardware.distances and len(hardware.distance_nodes) > 1:
        parts += [rich_text.Text(""), *_distances(hardware, terminal.width_for(to))]
    if own := configuration_devices.offered_devices({}, machine):
        table = _grid()
        for heading in ("resource", "devices", "NUMA nodes"):
            table.add_column(heading, no_wrap=True)
        for resource, offered in own.items():
            nodes = Counter(str(*device.numa or ()) for device in offered)
            cells = (resource, str(len(offered)), ", ".join(f"{count} on {node}" for node, count in nodes.items()))
            table.add_row(*map(rich_text.Text, cells))
        parts += [rich_text.Text(""), rich_text.Text("Devices of device plugins"), table]
    if devices := [device for device in machine.pci if device.kind]:
        table = _grid()
        for heading in ("device", "address", "NUMA node", "PCIe root", "vendor:device"):
            table.add_column(heading, no_wrap=True)
        for device in sorted(devices, key=lambda one: (one.numa is None, one.numa, one.root, one.kind, one.address)):
            node = "unknown" if device.numa is None else str(device.numa)
            words = (device.kind, device.address, node, device.root or "unknown", f"{device.vendor}:{device.device}")
            table.add_row(*map(rich_text.Text, words))
        parts += [rich_text.Text(""), rich_text.Text("Devices on the PCI bus"), table]
    for severity, heading in (("warning", "The kubelet sees this machine differently"), ("info", "Worth knowing")):
        told = [one for one in machine.findings if one.severity == severity and one.code != loader.UNTOLD]
        parts += [rich_text.Text(""), rich_text.Text(heading)] if told else []
        for one in told:
            # Most messages name their subject themselves.
            text = one.message if one.subject.lower() in one.message.lower() else f"{one.subject}: {one.message}"
            parts.append(console.indented(clean(text)))
    return terminal.text_for(rich_console.Group(*parts), to)


def _grid() -> rich_table.Table:
    return rich_table.Table(box=None, padding=(0, 2, 0, 0), show_edge=False, header_style="")


def _told(rows: Iterable[tuple[str, str]]) -> rich_table.Table:
    """Return names, each with what there is to say of it."""
    table = _grid()
    table.show_header = False
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(rich_text.Text(name), rich_text.Text(value))
    return table


def _fact_rows(machine: Machine, hardware: Hardware) -> Iterator[tuple[str, str]]:
    if machine.origin.unknown:
        yield "Read from", machine.origin.format
        yield "Not reported", ", ".join(machine.origin.unknown)
    if machine.origin.assumed:
        yield "Assumed", ", ".join(f"{one} (assumed)" for one in machine.origin.assumed)
    yield "CPUs online", f"{len(hardware.online)} ({hardware.online})"
    for name, cpus in (
        ("CPUs offline", hardware.offline),
        ("CPUs not allowed by the cpuset", hardware.online - hardware.allowed),
        ("CPUs isolated", hardware.isolated),
    ):
        if cpus:
            yield name, f"{len(cpus)} ({cpus})"
    yield "Sockets", str(hardware.num_packages or "unknown")
    threads = sorted(set(Counter(cpu.core for cpu in hardware.cpus).values()), reverse=True)
    each = f"{' or '.join(map(str, threads)) or '0'} CPU{'' if threads == [1] else 's'} each"
    yield "Cores", f"{hardware.num_cores} with {each}"
    if hardware.num_l3:
        sharers = sorted(set(Counter(cpu.l3 for cpu in hardware.cpus if cpu.l3 is not None).values()))
        size_of_each = " to ".join(map(str, sharers if len(sharers) < 2 else (sharers[0], sharers[-1])))
        yield "L3 caches", f"{hardware.num_l3} of {size_of_each} CPUs"
    # The kinds of cores of a hybrid machine; the ranks are by speed, where the machine reports it.
    ranks = sorted(kind.efficiency for kind in hardware.kinds)
    for kind in hardware.kinds:
        name = wording.core_kind_name(kind.efficiency, ranks) if kind.efficiency >= 0 else "core kind, speed unknown"
        yield f"{name[:1].upper()}{name[1:]}", f"{len(kind.cpus)} CPUs ({kind.cpus})"
    memory = machine.info.memory_capacity or sum(node.memory_bytes for node in hardware.nodes)
    yield "Memory", size(memory) if memory else "unknown"


def _nodes(hardware: Hardware) -> rich_table.Table:
    table = _grid()
    with_pages = any(pool.count for node in hardware.nodes for pool in node.hugepages)
    table.add_column("NUMA node", justify="right", no_wrap=True)
    table.add_column("CPUs", justify="right", no_wrap=True)
    table.add_column("memory", justify="right", no_wrap=True)
    if with_pages:
        table.add_column("huge pages", no_wrap=True)
    table.add_column("CPU list", overflow="fold")
    for node in hardware.nodes:
        own = str(node.local_cpus) if node.sysfs_cpulist != "" else ""
        count = str(len(node.local_cpus)) if own else "–"
        cells = [str(node.id), count, size(node.memory_bytes)]
        pages = (f"{pool.count} x {size(pool.size_bytes)}" for pool in node.hugepages if pool.count)
        cells += [", ".join(pages) or "–"] if with_pages else []
        table.add_row(*(rich_text.Text(cell) for cell in cells), rich_text.Text(own or f"none; near {node.local_cpus}"))
    return table


def _distances(hardware: Hardware, width: int) -> Iterator[rich_console.RenderableType]:
    """Yield the table of distances, or where it is when it does not fit: cut off it would mislead."""
    heading = "Distances between NUMA nodes"
    rows = tuple(zip(hardware.distance_nodes, hardware.distances or (), strict=True))
    cells = [str(value) for node, row in rows for value in (node, *row)]
    if (len(rows) + 1) * (max(map(len, cells)) + 2) > width:
        yield rich_text.Text(f"{heading}: too many for {width} columns; -o json has them")
        return
    yield rich_text.Text(heading)
    table = _grid()
    table.add_column("", justify="right")
    for node, _ in rows:
        table.add_column(str(node), justify="right", no_wrap=True)
    for node, row in rows:
        table.add_row(str(node), *(str(value) for value in row))
    yield table


MACHINES_EPILOG = """\b
Examples:
  mooring machines
  mooring machines --to machines.txt
"""


@click.command("machines", cls=Verb, epilog=MACHINES_EPILOG)
@options.to_file
def machines_command(to: str) -> int:
    """List the machines that --machine takes by name: what each is, its text, what is assumed, its source.

    Amounts behind the name replace those of the machine: --machine "hgx-8gpu memory=1Ti hugepages-1Gi=64
    nvidia.com/gpu=4 node0.memory=768Gi".
    """
    rows = []
    for name, one in loader.SHIPPED.items():
        assumed = " ".join(f"{word} (assumed)" for word in one.assumed.split())
        lines = (one.description, one.text, assumed, *one.source.split())
        rows.append((name, "\n".join(filter(None, lines))))
    emit(terminal.text_for(_told(rows), to), to)
    return YES
