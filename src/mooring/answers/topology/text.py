"""``mooring topology``: the machine for people, as lscpu and lstopo readers expect it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from mooring.cli.terminal import text_for, width_for
from mooring.engine.core.errors import clean
from mooring.engine.core.machine import Finding, Hardware, HardwareNode, Machine, PCIDevice
from mooring.explanations.phrases import size
from mooring.inputs.configuration.devices import offered_devices
from mooring.inputs.machines.loader import UNTOLD
from mooring.inputs.machines.machine_document import described_hardware
from mooring.views.build import build_view
from mooring.views.wording import core_kind_name


def topology_text(machine: Machine, to: str = "") -> str:
    """Return the text for a terminal of the present width, or for the file ``to``."""
    hardware = machine.hardware or described_hardware(machine.info)
    view = build_view(machine)
    parts: list[RenderableType] = [
        Text(f"{view.name}: {view.title}"),
        Text(""),
        _facts(machine, hardware),
        Text(""),
        _nodes(hardware),
    ]
    if hardware.distances and len(hardware.distance_nodes) > 1:
        parts += [Text(""), *_distances(hardware, width_for(to))]
    if own := offered_devices({}, machine):
        table = _grid()
        for heading in ("resource", "devices", "NUMA nodes"):
            table.add_column(heading, no_wrap=True)
        for resource, offered in own.items():
            nodes = Counter(str(*device.numa or ()) for device in offered)
            cells = (resource, str(len(offered)), ", ".join(f"{count} on {node}" for node, count in nodes.items()))
            table.add_row(*map(Text, cells))
        parts += [Text(""), Text("Devices of device plugins"), table]
    devices = [device for device in machine.pci if device.kind]
    if devices:
        parts += [Text(""), Text("Devices on the PCI bus"), _devices(devices)]
    for severity, heading in (("warning", "The kubelet sees this machine differently"), ("info", "Worth knowing")):
        told = [one for one in machine.findings if one.severity == severity and one.code != UNTOLD]
        if told:
            parts += [Text(""), Text(heading), *_findings(told)]
    return text_for(Group(*parts), to)


def _grid() -> Table:
    return Table(box=None, padding=(0, 2, 0, 0), show_edge=False, header_style="")


def _facts(machine: Machine, hardware: Hardware) -> Table:
    table = _grid()
    table.show_header = False
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in _fact_rows(machine, hardware):
        table.add_row(Text(name), Text(value))
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
    yield "Cores", f"{hardware.num_cores} with {_threads(hardware)}"
    if hardware.num_l3:
        yield "L3 caches", f"{hardware.num_l3} of {_sharers(hardware)} CPUs"
    yield from _kinds(hardware)
    memory = machine.info.memory_capacity or sum(node.memory_bytes for node in hardware.nodes)
    yield "Memory", size(memory) if memory else "unknown"


def _kinds(hardware: Hardware) -> Iterator[tuple[str, str]]:
    """Yield the kinds of cores of a hybrid machine; the ranks are by speed, where the machine reports it."""
    ranks = sorted(kind.efficiency for kind in hardware.kinds)
    for kind in hardware.kinds:
        name = core_kind_name(kind.efficiency, ranks) if kind.efficiency >= 0 else "core kind, speed unknown"
        yield f"{name[:1].upper()}{name[1:]}", f"{len(kind.cpus)} CPUs ({kind.cpus})"


def _threads(hardware: Hardware) -> str:
    kinds = sorted(set(Counter(cpu.core for cpu in hardware.cpus).values()), reverse=True)
    return f"{' or '.join(map(str, kinds)) or '0'} CPU{'' if kinds == [1] else 's'} each"


def _sharers(hardware: Hardware) -> str:
    kinds = sorted(set(Counter(cpu.l3 for cpu in hardware.cpus if cpu.l3 is not None).values()))
    return " to ".join(map(str, kinds if len(kinds) <= 1 else (kinds[0], kinds[-1])))


def _nodes(hardware: Hardware) -> Table:
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
        cells += [_pages(node)] if with_pages else []
        table.add_row(*(Text(cell) for cell in cells), Text(own or f"none; near {node.local_cpus}"))
    return table


def _devices(devices: list[PCIDevice]) -> Table:
    table = _grid()
    for name in ("device", "address", "NUMA node", "PCIe root", "vendor:device"):
        table.add_column(name, no_wrap=True)
    for device in sorted(devices, key=lambda one: (one.numa is None, one.numa, one.root, one.kind, one.address)):
        node = "unknown" if device.numa is None else str(device.numa)
        cells = (device.kind, device.address, node, device.root or "unknown", f"{device.vendor}:{device.device}")
        table.add_row(*(Text(cell) for cell in cells))
    return table


def _pages(node: HardwareNode) -> str:
    return ", ".join(f"{pool.count} x {size(pool.size_bytes)}" for pool in node.hugepages if pool.count) or "–"


def _distances(hardware: Hardware, width: int) -> Iterator[RenderableType]:
    """Yield the table of distances, or where it is when it does not fit: cut off it would mislead."""
    heading = "Distances between NUMA nodes"
    rows = tuple(zip(hardware.distance_nodes, hardware.distances or (), strict=True))
    cells = [str(value) for node, row in rows for value in (node, *row)]
    if (len(rows) + 1) * (max(map(len, cells)) + 2) > width:
        yield Text(f"{heading}: too many for {width} columns; -o json has them")
        return
    yield Text(heading)
    table = _grid()
    table.add_column("", justify="right")
    for node, _ in rows:
        table.add_column(str(node), justify="right", no_wrap=True)
    for node, row in rows:
        table.add_row(str(node), *(str(value) for value in row))
    yield table


def _findings(findings: list[Finding]) -> Iterator[RenderableType]:
    for finding in findings:
        # Most messages name their subject themselves.
        told = finding.subject.lower() in finding.message.lower()
        text = finding.message if told else f"{finding.subject}: {finding.message}"
        yield Padding(Text(clean(text)), (0, 0, 0, 2))
