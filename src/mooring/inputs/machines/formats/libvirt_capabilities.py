"""XML of ``virsh capabilities``: the host's NUMA cells with their CPUs, memory, pages and distances, and L3 caches.

Source: libvirt, formatcaps and capability.rng.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mooring.engine.core.bits import mask_of
from mooring.engine.core.cpuset import CPUSet, CPUSetSyntaxError
from mooring.engine.core.machine import MachineOrigin
from mooring.engine.core.machineinfo import HugePages
from mooring.inputs.machines.formats.description import (
    ASSUMED_DISTANCES,
    DescribedCache,
    DescribedCPU,
    DescribedNode,
    Description,
    row_of,
)
from mooring.inputs.machines.formats.xml_elements import Element

CAPTURE: Final = "virsh capabilities > FILE"
_UNITS: Final = {"B": 1, "bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "KB": 10**3, "MB": 10**6}
_KINDS: Final = {"both": "Unified", "data": "Data", "code": "Instruction"}


def read_capabilities(root: Element) -> Description:
    """Return the host of the document.

    Raises:
        InputError: it has no NUMA cells, or an element cannot be understood.
    """
    cells = root.first("host", "topology", "cells")
    if cells is None or cells.first("cell") is None:
        raise root.error("has no host topology", remedy=f"capture it on the node: {CAPTURE}")
    places: dict[int, DescribedCPU] = {}
    offline: list[int] = []
    for cell in cells.all("cell"):
        for cpu in (part for group in cell.all("cpus") for part in group.all("cpu")):
            number = _required(cpu, "id")
            if number in places or number in offline:
                raise cpu.error(f"CPU {number} is there twice", "id")
            if "core_id" in cpu.attributes:
                places[number] = _place(cpu, number, _required(cell, "id"))
            else:
                offline.append(number)
    ids = [_required(cell, "id") for cell in cells.all("cell")]
    if len(set(ids)) != len(ids):
        raise cells.error("has a NUMA node twice")
    caches = tuple(_caches(root, mask_of(places)))
    is_measured = all(cell.first("distances", "sibling") for cell in cells.all("cell")) or len(ids) == 1
    arch, host = root.first("host", "cpu", "arch"), root.first("host", "cpu", "vendor")
    return Description(
        origin=MachineOrigin(
            "libvirt capabilities",
            (
                *([] if caches else ["L3 caches"]),
                "caches below L3",
                *([] if is_measured else ["distances"]),
                "isolated CPUs",
                "PCI devices",
            ),
            () if is_measured else (ASSUMED_DISTANCES,),
        ),
        cpus=places,
        nodes=tuple(_node(cell, ids) for cell in sorted(cells.all("cell"), key=lambda one: _required(one, "id"))),
        offline=mask_of(offline),
        caches=caches,
        architecture="" if arch is None else arch.text.strip(),
        vendor={"Intel": "GenuineIntel", "AMD": "AuthenticAMD"}.get("" if host is None else host.text.strip(), ""),
    )


def _required(element: Element, attribute: str) -> int:
    number = element.number(attribute)
    if number is None:
        raise element.error("is missing", attribute, f"capture it again: {CAPTURE}")
    return number


def _place(cpu: Element, number: int, node: int) -> DescribedCPU:
    package = _required(cpu, "socket_id")
    return DescribedCPU(
        core=min(_list(cpu, "siblings"), default=number),
        core_id=_required(cpu, "core_id"),
        package=package,
        package_id=package,
        node=node,
        die=cpu.number("die_id"),
        cluster=None,
    )


def _list(element: Element, attribute: str) -> CPUSet:
    try:
        return CPUSet.parse(element.attributes.get(attribute, ""))
    except CPUSetSyntaxError as error:
        raise element.error(str(error), attribute) from None


def _bytes(element: Element, value: int) -> int:
    unit = element.attributes.get("unit", "KiB")
    if unit not in _UNITS:
        raise element.error(f"{unit!r:.20} is not a unit", "unit")
    return value * _UNITS[unit]


def _node(cell: Element, ids: list[int]) -> DescribedNode:
    memory = cell.first("memory")
    pools = sorted((_bytes(page, _required(page, "size")), page.content()) for page in cell.all("pages"))
    siblings = [one for group in cell.all("distances") for one in group.all("sibling")]
    distances = {_required(one, "id"): _required(one, "value") for one in siblings}
    node = _required(cell, "id")
    return DescribedNode(
        node,
        0 if memory is None else _bytes(memory, memory.content()),
        tuple(HugePages(size // 1024, count) for size, count in pools[1:]),
        row_of(distances, node, ids),
    )


def _caches(root: Element, online: int) -> Iterator[DescribedCache]:
    banks = root.first("host", "cache")
    for bank in () if banks is None else banks.all("bank"):
        cpus = _list(bank, "cpus").mask & online
        if cpus:
            kind = _KINDS.get(bank.attributes.get("type", ""), "Unified")
            size = _bytes(bank, _required(bank, "size"))
            yield DescribedCache(_required(bank, "level"), cpus, kind, size, _required(bank, "id"))
