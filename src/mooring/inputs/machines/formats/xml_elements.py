"""XML to elements, safely: no entities of its own, nothing loaded, bounded depth; every element knows its line.

XML of ``virsh capabilities``: the host's NUMA cells with their CPUs, memory, pages and distances, and L3 caches.

Source: libvirt, formatcaps and capability.rng.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final
from xml.parsers import expat

from mooring.engine.core.bits import mask_of
from mooring.engine.core.cpuset import CPUSet, CPUSetSyntaxError
from mooring.engine.core.errors import InputError
from mooring.engine.core.machineinfo import HIGHEST_NODE, HugePages
from mooring.inputs.machines.formats import description
from mooring.inputs.machines.formats.description import (
    DescribedCache,
    DescribedCPU,
    DescribedNode,
    Description,
    origin_of,
    row_of,
)
from mooring.lazy import dataclass, field

LIBVIRT_CAPTURE: Final = "virsh capabilities > FILE"
DEEPEST: Final = 250
"""Levels of nesting; lstopo nests bridges and caches about 20 deep."""
MOST_ELEMENTS: Final = 1_000_000


@dataclass(slots=True)
class Element:
    """One element of a document."""

    tag: str
    attributes: Mapping[str, str]
    place: str
    """File, line and column, for messages."""
    children: list[Element] = field(default_factory=list)
    text: str = ""

    def all(self, tag: str) -> Iterator[Element]:
        """Yield the children of a tag."""
        return (child for child in self.children if child.tag == tag)

    def first(self, *path: str) -> Element | None:
        """Return the first element down a path of tags."""
        element: Element | None = self
        for tag in path:
            element = next(element.all(tag), None) if element is not None else None
        return element

    def number(self, attribute: str) -> int | None:
        """Return the whole number of an attribute, which may be negative; None without the attribute.

        Raises:
            InputError: it is something else, or has more than 18 digits.
        """
        text = self.attributes.get(attribute)
        return None if text is None else self._number(text.strip(), attribute)

    def required(self, attribute: str, capture: str = LIBVIRT_CAPTURE) -> int:
        """Return the whole number of an attribute that must be there; a remedy names the command that captures it.

        Raises:
            InputError: as :meth:`number`, or it is missing.
        """
        number = self.number(attribute)
        if number is None:
            raise self.error("is missing", attribute, f"capture it again: {capture}")
        return number

    def content(self) -> int:
        """Return the whole number that is the element's text.

        Raises:
            InputError: it is something else, or has more than 18 digits.
        """
        return self._number(self.text.strip(), "")

    def _number(self, text: str, attribute: str) -> int:
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit()) or len(digits) > 18:
            raise self.error(f"{text!r:.60} is not a whole number", attribute)
        return int(text)

    def error(self, problem: str, attribute: str = "", remedy: str = "capture it again") -> InputError:
        """Return the error for something in this element."""
        return InputError(
            problem, source=self.place, field=f"{self.tag}.{attribute}" if attribute else self.tag, remedy=remedy
        )


def read_xml(data: bytes, source: str) -> Element:
    """Return the root element of a document.

    Raises:
        InputError: not XML, entities of its own, nested too deeply or too many elements; with line and column.
    """
    parser = expat.ParserCreate()
    parser.buffer_text = True
    document = Element("", {}, source)
    opened = [document]
    count = 0

    def place() -> str:
        return f"{source}:{parser.CurrentLineNumber}:{parser.CurrentColumnNumber + 1}"

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal count
        count += 1
        if len(opened) > DEEPEST or count > MOST_ELEMENTS:
            limit = f"{DEEPEST} levels deep" if len(opened) > DEEPEST else f"{MOST_ELEMENTS} elements"
            raise InputError(f"more than {limit}", source=place(), remedy="no machine needs that")
        element = Element(tag, attributes, place())
        opened[-1].children.append(element)
        opened.append(element)

    def text(characters: str) -> None:
        opened[-1].text += characters

    def entity(name: str, *_rest: object) -> None:
        raise InputError(f"declares the entity {name!r:.40}", source=place(), remedy="remove its DOCTYPE")

    parser.StartElementHandler = start
    parser.EndElementHandler = lambda _tag: opened.pop()
    parser.CharacterDataHandler = text
    parser.EntityDeclHandler = entity
    try:
        is_cells = data.lstrip().startswith(b"<cell ")
        parser.Parse(b"<cells>%b</cells>" % data if is_cells else data, True)
    except expat.ExpatError as error:
        problem = expat.ErrorString(error.code)
        raise InputError(
            f"not valid XML: {problem}", source=f"{source}:{error.lineno}:{error.offset + 1}", remedy="capture it again"
        ) from None
    except (LookupError, ValueError) as error:  # of the codec that the first line names
        raise InputError(f"not valid XML: {error}", source=f"{source}:1", remedy="capture it again") from None
    return document.children[0]


_UNITS: Final = {"B": 1, "bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "KB": 10**3, "MB": 10**6}
_KINDS: Final = {"both": "Unified", "data": "Data", "code": "Instruction"}


def libvirt_machine(root: Element) -> Description | None:
    """Return the host of ``virsh capabilities``, of its topology or cells alone, or the guest of a domain.

    Raises:
        InputError: it has no NUMA cells, or an element cannot be understood.
    """
    if root.tag == "domain":
        cells = root.first("cpu", "numa")
        return None if cells is None or cells.first("cell") is None else _guest(root, cells)
    topology = root.first("host", "topology") if root.tag == "capabilities" else root
    cells = root if root.tag == "cells" else topology.first("cells") if topology is not None else None
    if cells is not None and cells.first("cell") is not None:
        return _host(root, cells)
    if root.tag == "capabilities":
        raise root.error("has no host topology", remedy=f"capture it on the node: {LIBVIRT_CAPTURE}")
    return None


def _guest(root: Element, numa: Element) -> Description:
    """Return the machine of a domain as its guest has it; threads of a core are neighbours there.

    Source: libvirt, domain XML, "CPU model and topology".
    """
    shape = root.first("cpu", "topology")
    threads = (shape.number("threads") if shape is not None else None) or 1
    per_socket = threads * (
        (shape.required("cores") * (shape.number("dies") or 1)) if shape is not None else HIGHEST_NODE
    )
    places: dict[int, DescribedCPU] = {}
    cells = list(numa.all("cell"))
    ids = [number if (number := cell.number("id")) is not None else index for index, cell in enumerate(cells)]
    for node, cell in zip(ids, cells, strict=True):
        for cpu in _list(cell, "cpus"):
            core, socket = cpu // threads * threads, cpu // per_socket
            places[cpu] = DescribedCPU(core, cpu % per_socket // threads, socket, socket, node)
    return Description(
        origin_of(
            "libvirt domain",
            ("caches", "huge pages", "PCI devices", shape is None and "cores", shape is None and "sockets"),
            [shape is None and description.ASSUMED_CORES],
        ),
        places,
        tuple(
            DescribedNode(node, _bytes(cell, cell.required("memory")), distances=row_of(_siblings(cell), node, ids))
            for node, cell in sorted(zip(ids, cells, strict=True), key=lambda one: one[0])
        ),
        name="".join(one.text.strip() for one in root.all("name")),
    )


def _siblings(cell: Element) -> dict[int, int]:
    found = [one for group in cell.all("distances") for one in group.all("sibling")]
    return {one.required("id"): one.required("value") for one in found}


def _host(root: Element, cells: Element) -> Description:
    places: dict[int, DescribedCPU] = {}
    offline: list[int] = []
    for cell in cells.all("cell"):
        for cpu in (part for group in cell.all("cpus") for part in group.all("cpu")):
            number = cpu.required("id")
            if number in places or number in offline:
                raise cpu.error(f"CPU {number} is there twice", "id")
            if "core_id" in cpu.attributes:
                package, node = cpu.required("socket_id"), cell.required("id")
                core = min(_list(cpu, "siblings"), default=number)
                die = cpu.number("die_id")
                places[number] = DescribedCPU(core, cpu.required("core_id"), package, package, node, die)
            else:
                offline.append(number)
    ids = [cell.required("id") for cell in cells.all("cell")]
    if len(set(ids)) != len(ids):
        raise cells.error("has a NUMA node twice")
    caches = tuple(_caches(root, mask_of(places)))
    is_measured = all(cell.first("distances", "sibling") for cell in cells.all("cell")) or len(ids) == 1
    arch, host = root.first("host", "cpu", "arch"), root.first("host", "cpu", "vendor")
    return Description(
        origin=origin_of(
            "libvirt capabilities",
            (
                *(not caches and "L3 caches", "caches below L3", not is_measured and "distances"),
                *("isolated CPUs", "PCI devices"),
            ),
            [not is_measured and description.ASSUMED_DISTANCES],
        ),
        cpus=places,
        nodes=tuple(_node(cell, ids) for cell in sorted(cells.all("cell"), key=lambda one: one.required("id"))),
        offline=mask_of(offline),
        caches=caches,
        architecture="" if arch is None else arch.text.strip(),
        vendor={"Intel": "GenuineIntel", "AMD": "AuthenticAMD"}.get("" if host is None else host.text.strip(), ""),
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
    pools = sorted((_bytes(page, page.required("size")), page.content()) for page in cell.all("pages"))
    node = cell.required("id")
    return DescribedNode(
        node,
        0 if memory is None else _bytes(memory, memory.content()),
        tuple(HugePages(size // 1024, count) for size, count in pools[1:]),
        row_of(_siblings(cell), node, ids),
    )


def _caches(root: Element, online: int) -> Iterator[DescribedCache]:
    banks = root.first("host", "cache")
    for bank in () if banks is None else banks.all("bank"):
        cpus = _list(bank, "cpus").mask & online
        if cpus:
            kind = _KINDS.get(bank.attributes.get("type", ""), "Unified")
            size = _bytes(bank, bank.required("size"))
            yield DescribedCache(bank.required("level"), cpus, kind, size, bank.required("id"))
