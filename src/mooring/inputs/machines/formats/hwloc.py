"""Machines as ``lstopo`` of hwloc writes them: XML of hwloc 2 and 3, and text.

Version 3 moves information about the computer from the machine to the topology and adds a number to types of PCI
devices; versions before 2 are another format. Source: hwloc 2.14, hwloc2.dtd; its documentation, "Importing and
exporting topologies from/to XML files".

Text has objects by indentation, several on a line with ``+`` between them. Memory nodes have CPUs in them (hwloc 1) or
beside them (hwloc 2). Source: hwloc 2.14, lstopo(1), "Text output".
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, pairwise
from typing import Final, TypeAlias

from mooring.engine.core.bits import list_text, mask_of, members
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import MachineOrigin, PCIDevice
from mooring.engine.core.machineinfo import HugePages
from mooring.inputs.machines.formats import description
from mooring.inputs.machines.formats.description import (
    DescribedCache,
    DescribedCPU,
    DescribedNode,
    Description,
    origin_of,
    row_of,
)
from mooring.inputs.machines.formats.xml_elements import Element
from mooring.lazy import dataclass, field, replace

HWLOC_CAPTURE: Final = "lstopo --disallowed --whole-io FILE.xml"
_CACHE_TYPE: Final = re.compile(r"L([1-5])(i?)Cache")
_CACHE_KINDS: Final = {"0": "Unified", "1": "Data", "2": "Instruction"}
_WORD: Final = re.compile(r"0x([0-9a-f]{1,8})", re.ASCII)
_BUS_ID: Final = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.ASCII)
_HOST_BRIDGE: Final = re.compile(r"([0-9a-f]{4,8}:)\[([0-9a-f]{2})-[0-9a-f]{2}\]", re.ASCII)
_PCI_TYPE: Final = re.compile(
    r"([0-9a-f]{4}) \[([0-9a-f]{4}):([0-9a-f]{4})\](?: \[[^]]*\])?(?: [0-9a-f]{2}(?: ([0-9a-f]{2}))?)?", re.ASCII
)
_CLOCK_FILES: Final = {
    "FrequencyMaxMHz": ("cpufreq/cpuinfo_max_freq", 1000),
    "FrequencyBaseMHz": ("cpufreq/base_frequency", 1000),
    "LinuxCapacity": ("cpu_capacity", 1),
}
"""Information of a kind of CPUs -> the kernel's file, and its unit."""
_CORE_TYPES: Final = {"IntelCore": "cpu_core", "IntelAtom": "cpu_atom", "IntelLowPower": "cpu_lowpower"}


_Objects: TypeAlias = Mapping[str, Sequence[tuple[Element, int | None, str]]]
"""Type -> objects, each with the only NUMA node near it, if there is only one, and its PCIe root."""


def read_hwloc(root: Element) -> Description:
    """Return what a topology says.

    Raises:
        InputError: an older version, or something that is no topology.
    """
    version = root.attributes.get("version", "")
    if version.partition(".")[0] not in ("2", "3"):
        shown = f"of version {version}" if version else "of hwloc 1"
        problem = f"XML {shown}, which is another format"
        raise root.error(problem, "version", f"capture it with hwloc 2: {HWLOC_CAPTURE}")
    machine = root.first("object")
    if machine is None or machine.attributes.get("type") != "Machine":
        raise root.error("has no object of type Machine", remedy=f"capture it again: {HWLOC_CAPTURE}")
    objects: dict[str, list[tuple[Element, int | None, str]]] = defaultdict(list)
    for found in _walk(machine, None, ""):
        objects[found[0].attributes.get("type", "")].append(found)
    cpus = [element.required("os_index", HWLOC_CAPTURE) for element, _, _ in objects["PU"]]
    online = mask_of(cpus)
    info = {**_info(root), **_info(machine)}
    vendors = (_info(element).get("CPUVendor", "") for listed in objects.values() for element, _, _ in listed)
    offline = (_cpuset(machine, "cpuset") | _cpuset(machine, "complete_cpuset")) & ~online
    allowed = _cpuset(machine, "allowed_cpuset") & online
    memory = sorted(
        ((element.required("os_index", HWLOC_CAPTURE), element) for element, _, _ in objects["NUMANode"]),
        key=lambda one: one[0],
    )
    # Nodes without CPUs are near the CPUs of others, and the file does not say which is which: the smallest set of CPUs
    # decides, then the lowest number, as high-bandwidth and CXL memory has higher numbers than the node of its CPUs.
    homes: dict[int, int] = {}
    for near_cpus, node in sorted(
        ((_cpuset(element, "cpuset"), node) for node, element in memory), key=lambda one: one[0].bit_count()
    ):
        for cpu in members(near_cpus):
            homes.setdefault(cpu, node)
    nodes = _nodes(root, memory, homes)
    clocks, core_types = _kinds(root, online)
    unknown, assumed = ["isolated CPUs", "interrupts"], []
    if len(nodes) > 1 and not any(node.distances for node in nodes):
        unknown.insert(0, "distances")
        assumed.append(description.ASSUMED_DISTANCES)
    if offline:
        hidden = "without --disallowed, lstopo omits forbidden CPUs, too"
        assumed.append(f"CPUs {list_text(offline)} are offline ({hidden})")
    return Description(
        origin=MachineOrigin("hwloc XML", tuple(unknown), tuple(assumed)),
        cpus=_places(objects, cpus, homes),
        nodes=nodes,
        offline=offline,
        caches=tuple(_caches(objects)),
        architecture=info.get("Architecture", ""),
        vendor=next(filter(None, vendors), ""),
        page_size=min((min(sizes) for _, node in memory if (sizes := _pages(node))), default=4096),
        clocks=clocks,
        core_types=core_types,
        pci=tuple(_pci_devices(objects)),
        name=info.get("HostName", ""),
        allowed=None if allowed == online else allowed,
    )


def _walk(element: Element, near: int | None, pcie_root: str) -> Iterator[tuple[Element, int | None, str]]:
    """Yield an object and what is in it, each with the only NUMA node near it, if there is only one, and its PCIe root.

    Args:
        element: the object.
        near: the only NUMA node near what contains it.
        pcie_root: that contains it; empty outside of all.
    """
    if "nodeset" in element.attributes:
        nodes = _cpuset(element, "nodeset")
        near = nodes.bit_length() - 1 if nodes.bit_count() == 1 else None
    buses = _HOST_BRIDGE.fullmatch(element.attributes.get("bridge_pci", ""))
    if buses and element.attributes.get("bridge_type", "").startswith("0-"):
        pcie_root = f"pci{buses[1]}{buses[2]}"
    yield element, near, pcie_root
    for child in element.all("object"):
        yield from _walk(child, near, pcie_root)


def _cpuset(element: Element, attribute: str) -> int:
    """Return the mask of a set: words of 32 bits in hexadecimal, the highest first, an empty word for 0.

    Raises:
        InputError: it is none.
    """
    mask = 0
    for word in element.attributes.get(attribute, "").split(","):
        match = _WORD.fullmatch(word)
        if (word and not match) or mask.bit_length() > 2**14:
            raise element.error(f"{word!r:.40} is not a word of a set", attribute, f"capture it again: {HWLOC_CAPTURE}")
        mask = mask << 32 | (int(match[1], 16) if match else 0)
    return mask


def _info(element: Element) -> dict[str, str]:
    return {
        child.attributes["name"]: child.attributes.get("value", "")
        for child in element.all("info")
        if "name" in child.attributes
    }


def _pages(node: Element) -> dict[int, int]:
    """Return the count of each size of pages."""
    return {page.number("size") or 0: page.number("count") or 0 for page in node.all("page_type")}


def _nodes(root: Element, memory: Sequence[tuple[int, Element]], homes: Mapping[int, int]) -> tuple[DescribedNode, ...]:
    ids = [node for node, _ in memory]
    for node, following in pairwise(ids):
        if node == following:
            raise root.error(f"has NUMA node {node} twice", remedy=f"capture it again: {HWLOC_CAPTURE}")
    table = _distances(root)
    nodes = []
    for node, element in memory:
        own = () if node in homes.values() else members(_cpuset(element, "cpuset"))
        near = tuple(sorted({homes[cpu] for cpu in own if cpu in homes}))
        pools = tuple(HugePages(size // 1024, count) for size, count in sorted(_pages(element).items())[1:])
        distances = row_of(table[node], node, ids) if node in table else ()
        nodes.append(DescribedNode(node, element.number("local_memory") or 0, pools, distances, near))
    return tuple(nodes)


def _distances(root: Element) -> dict[int, dict[int, int]]:
    """Return the table of distances between NUMA nodes: node -> node -> distance."""
    for table in root.all("distances2"):
        if (table.attributes.get("type"), table.attributes.get("name")) != ("NUMANode", "NUMALatency"):
            continue
        ids, values = (
            [replace(part, text=word).content() for part in table.all(tag) for word in part.text.split()]
            for tag in ("indexes", "u64values")
        )
        if len(ids) ** 2 != len(values):
            raise table.error(f"has {len(values)} distances between {len(ids)} NUMA nodes")
        return {
            node: dict(zip(ids, values[row * len(ids) : (row + 1) * len(ids)], strict=True))
            for row, node in enumerate(ids)
        }
    return {}


def _places(objects: _Objects, cpus: Sequence[int], homes: Mapping[int, int]) -> dict[int, DescribedCPU]:
    parts: dict[str, dict[int, tuple[int, int | None]]] = defaultdict(dict)
    for kind in ("Core", "Package", "Die", "Group", "Book", "Drawer"):
        for element, _, _ in objects.get(kind, ()):
            label = element.attributes.get("subtype", "") if kind == "Group" else kind
            mask, number = _cpuset(element, "cpuset"), element.number("os_index")
            parts[label] |= dict.fromkeys(members(mask), ((mask & -mask).bit_length() - 1, number))
    places = {}
    for cpu in cpus:
        core, core_id = parts["Core"].get(cpu, (cpu, cpu))
        package, package_id = parts["Package"].get(cpu, (-1, -1))
        die, cluster = (parts[label].get(cpu, (None, None))[0] for label in ("Die", "Cluster"))
        book, drawer = (parts[label].get(cpu, (None, None))[1] for label in ("Book", "Drawer"))
        core_id, package_id = core if core_id is None else core_id, -1 if package_id is None else package_id
        places[cpu] = DescribedCPU(core, core_id, package, package_id, homes.get(cpu), die, cluster, book, drawer)
    return places


def _caches(objects: _Objects) -> Iterator[DescribedCache]:
    for kind, listed in objects.items():
        if not (cache := _CACHE_TYPE.fullmatch(kind)):
            continue
        for element, _, _ in listed:
            of = _CACHE_KINDS.get(element.attributes.get("cache_type", ""), "Instruction" if cache[2] else "Unified")
            size, number = element.number("cache_size") or 0, element.number("os_index")
            yield DescribedCache(int(cache[1]), _cpuset(element, "cpuset"), of, size, number)


def _pci_devices(objects: _Objects) -> Iterator[PCIDevice]:
    for element, near, root in chain(objects.get("PCIDev", ()), objects.get("Bridge", ())):
        address, type_ = (element.attributes.get(name, "") for name in ("pci_busid", "pci_type"))
        match = _PCI_TYPE.match(type_)
        if _BUS_ID.fullmatch(address) and match:
            yield PCIDevice(address, match[1] + (match[4] or "00"), match[2], match[3], near, root)


def _kinds(root: Element, online: int) -> tuple[dict[int, dict[str, int]], dict[str, int]]:
    """Return what tells kinds apart: CPU -> file -> value, and the CPUs of each of Intel's counters."""
    clocks: dict[int, dict[str, int]] = {}
    types: dict[str, int] = {}
    for kind in root.all("cpukind"):
        info, cpus = _info(kind), _cpuset(kind, "cpuset")
        if counter := _CORE_TYPES.get(info.get("CoreType", "")):
            types[counter] = types.get(counter, 0) | cpus
        files = {
            file: int(info[name]) * unit
            for name, (file, unit) in _CLOCK_FILES.items()
            if info.get(name, "").isdecimal() and len(info[name]) < 10
        }
        for cpu in members(cpus & online):
            clocks.setdefault(cpu, {}).update(files)
    return clocks, types


_OBJECT: Final = re.compile(
    r"(Package|Socket|NUMANode|L[1-5][di]?|Core|PU|[A-Z]\w*)\b(?:.*?L#(\d{1,6}))?(?:.*?P#(\d{1,6}))?"
)
_TEXT_CACHE: Final = re.compile(r"L([1-5])([di]?)")
_SIZE: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]+)?) ?([KMGT]?)i?B\b")
_UNITS: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclass(slots=True)
class _Listed:
    """An object of the text, in the order of the lines."""

    type: str
    logical: int
    physical: int
    size: int
    above: _Listed | None
    cpus: list[int] = field(default_factory=list)

    def around(self) -> Iterator[_Listed]:
        """Yield the object and those that it is in, the smallest first."""
        one: _Listed | None = self
        while one is not None:
            yield one
            one = one.above


def read_lstopo_text(text: str, source: str) -> Description:
    """Return the machine of the text.

    Raises:
        InputError: it has no PU.
    """
    # Terminals and mail programs break long lines behind the sign that joins objects.
    objects = list(_listed(re.sub(r"\+[ \t]*\n[ \t]*", "+ ", text)))
    units = [one for one in objects if one.type == "PU"]
    for unit in units:
        for one in unit.around():
            one.cpus.append(unit.physical)
    nodes = [one for one in objects if one.type == "NUMANode"]
    taken: set[int] = set()
    node_of: dict[int, int] = {}
    for one in nodes:
        near = one.cpus or (one.above.cpus if one.above else [])
        node_of |= {cpu: one.physical for cpu in near if cpu not in taken}
        taken.update(near)
    places: dict[int, DescribedCPU] = {}
    for unit in units:
        cpu, of_type = unit.physical, {one.type: one for one in reversed(list(unit.around()))}
        core, package = of_type.get("Core"), of_type.get("Package", of_type.get("Socket"))
        number = package.logical if package else 0
        places[cpu] = DescribedCPU(
            min(core.cpus) if core else cpu, core.logical if core else cpu, number, number, node_of.get(cpu)
        )
    if not places:
        raise InputError("has no PU, so no CPUs", source=source, remedy="write it without --no-io: lstopo FILE.xml")
    ids = sorted(one.physical for one in nodes)
    several = len(ids) > 1
    return Description(
        origin_of(
            "lstopo",
            (several and "distances", "offline CPUs", "huge pages", "PCI devices"),
            [several and description.ASSUMED_DISTANCES],
        ),
        places,
        tuple(
            DescribedNode(one.physical, one.size, distances=row_of({}, one.physical, ids))
            for one in sorted(nodes, key=lambda one: one.physical)
        ),
        caches=tuple(
            DescribedCache(int(cache[1]), mask_of(one.cpus), description.CACHE_KINDS[cache[2]], one.size, number)
            for number, one in enumerate(objects)
            if (cache := _TEXT_CACHE.fullmatch(one.type)) and one.cpus
        ),
        memory=0 if ids else next((one.size for one in objects if one.type == "Machine"), 0),
    )


def _listed(text: str) -> Iterator[_Listed]:
    """Yield the objects; one is above those that follow on its line, or on lines that are further in."""
    open_lines: list[tuple[int, _Listed]] = []
    for line in text.splitlines():
        depth = len(line) - len(line.lstrip())
        while open_lines and open_lines[-1][0] >= depth:
            open_lines.pop()
        above = open_lines[-1][1] if open_lines else None
        for part in line.strip().split(" + "):
            if not (match := _OBJECT.match(part)):
                break
            logical = int(match[2] or match[3] or 0)
            size = _SIZE.search(part)
            amount = int(float(size[1]) * _UNITS[size[2]]) if size else 0
            above = _Listed(match[1], logical, int(match[3] or logical), amount, above)
            yield above
        if above is not None:
            open_lines.append((depth, above))
