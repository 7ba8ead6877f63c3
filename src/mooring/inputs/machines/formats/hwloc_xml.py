"""XML of hwloc 2 and 3, as ``lstopo`` writes it.

Version 3 moves information about the computer from the machine to the topology and adds a number to types of PCI
devices; versions before 2 are another format. Source: hwloc 2.14, hwloc2.dtd; its documentation, "Importing and
exporting topologies from/to XML files".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from mooring.engine.core.bits import list_text, mask_of, members
from mooring.engine.core.machine import MachineOrigin, PCIDevice
from mooring.engine.core.machineinfo import HugePages
from mooring.inputs.machines.formats import description
from mooring.inputs.machines.formats.description import DescribedCache, DescribedCPU, DescribedNode, Description, row_of
from mooring.inputs.machines.formats.xml_elements import Element
from mooring.lazy import dataclass, field, replace

HWLOC_CAPTURE: Final = "lstopo --disallowed --whole-io FILE.xml"
_CACHE: Final = re.compile(r"L([1-5])(i?)Cache")
_KINDS: Final = {"0": "Unified", "1": "Data", "2": "Instruction"}
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


@dataclass(slots=True)
class _Objects:
    """What the objects of a topology say, by their type."""

    sets: dict[str, list[tuple[int, int | None]]] = field(default_factory=dict)
    """Type -> CPUs and number of each object."""
    caches: list[DescribedCache] = field(default_factory=list)
    nodes: list[tuple[Element, int]] = field(default_factory=list)
    """NUMA nodes and the CPUs near each."""
    cpus: list[int] = field(default_factory=list)
    pci: list[PCIDevice] = field(default_factory=list)
    vendor: str = ""


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
    found = _Objects()
    _walk(machine, None, "", found)
    online = mask_of(found.cpus)
    info = {**_info(root), **_info(machine)}
    offline = _cpuset(machine, "complete_cpuset") & ~online
    allowed = _cpuset(machine, "allowed_cpuset") & online
    # Nodes without CPUs are near the CPUs of others, and the file does not say which is which: the smallest set of CPUs
    # decides, then the lowest number, as high-bandwidth and CXL memory has higher numbers than the node of its CPUs.
    homes: dict[int, int] = {}
    for node, cpus in sorted(
        found.nodes, key=lambda one: (one[1].bit_count(), one[0].required("os_index", HWLOC_CAPTURE))
    ):
        for cpu in members(cpus):
            homes.setdefault(cpu, node.required("os_index", HWLOC_CAPTURE))
    nodes = _nodes(root, found, homes)
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
        cpus=_places(found, homes),
        nodes=nodes,
        offline=offline,
        caches=tuple(found.caches),
        architecture=info.get("Architecture", ""),
        vendor=found.vendor,
        page_size=min((sizes[0] for node, _ in found.nodes if (sizes := _page_sizes(node))), default=4096),
        clocks=clocks,
        core_types=core_types,
        pci=tuple(found.pci),
        name=info.get("HostName", ""),
        allowed=None if allowed == online else allowed,
    )


def _walk(element: Element, near: int | None, pcie_root: str, found: _Objects) -> None:
    """Enter an object and what is in it.

    Args:
        element: the object.
        near: the only NUMA node near what contains it, if there is only one.
        pcie_root: that contains it; empty outside of all.
        found: what was found.
    """
    kind = element.attributes.get("type", "")
    if "nodeset" in element.attributes:
        nodes = _cpuset(element, "nodeset")
        near = nodes.bit_length() - 1 if nodes.bit_count() == 1 else None
    if kind == "PU":
        found.cpus.append(element.required("os_index", HWLOC_CAPTURE))
    elif kind == "NUMANode":
        found.nodes.append((element, _cpuset(element, "cpuset")))
    elif kind in ("PCIDev", "Bridge"):
        buses = _HOST_BRIDGE.fullmatch(element.attributes.get("bridge_pci", ""))
        if buses and element.attributes.get("bridge_type", "").startswith("0-"):
            pcie_root = f"pci{buses[1]}{buses[2]}"
        address, type_ = (element.attributes.get(name, "") for name in ("pci_busid", "pci_type"))
        match = _PCI_TYPE.match(type_)
        if _BUS_ID.fullmatch(address) and match:
            found.pci.append(PCIDevice(address, match[1] + (match[4] or "00"), match[2], match[3], near, pcie_root))
    elif cache := _CACHE.fullmatch(kind):
        kind_of_cache = _KINDS.get(element.attributes.get("cache_type", ""), "Instruction" if cache[2] else "Unified")
        size = element.number("cache_size") or 0
        found.caches.append(
            DescribedCache(int(cache[1]), _cpuset(element, "cpuset"), kind_of_cache, size, element.number("os_index"))
        )
    else:
        label = element.attributes.get("subtype", "") if kind == "Group" else kind
        found.vendor = found.vendor or _info(element).get("CPUVendor", "")
        found.sets.setdefault(label, []).append((_cpuset(element, "cpuset"), element.number("os_index")))
    for child in element.all("object"):
        _walk(child, near, pcie_root, found)


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


def _page_sizes(node: Element) -> list[int]:
    return sorted(page.number("size") or 0 for page in node.all("page_type"))


def _nodes(root: Element, found: _Objects, homes: Mapping[int, int]) -> tuple[DescribedNode, ...]:
    ids = sorted(node.required("os_index", HWLOC_CAPTURE) for node, _ in found.nodes)
    for index, node in enumerate(ids[1:]):
        if node == ids[index]:
            raise root.error(f"has NUMA node {node} twice", remedy=f"capture it again: {HWLOC_CAPTURE}")
    table = _distances(root)
    nodes = []
    for element, cpus in sorted(found.nodes, key=lambda one: one[0].required("os_index", HWLOC_CAPTURE)):
        node = element.required("os_index", HWLOC_CAPTURE)
        sizes = _page_sizes(element)
        pools = {page.number("size") or 0: page.number("count") or 0 for page in element.all("page_type")}
        near = () if node in homes.values() else tuple(sorted({homes[cpu] for cpu in members(cpus) if cpu in homes}))
        nodes.append(
            DescribedNode(
                node,
                element.number("local_memory") or 0,
                tuple(HugePages(size // 1024, pools[size]) for size in sizes[1:]),
                row_of(table[node], node, ids) if node in table else (),
                near,
            )
        )
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


def _places(objects: _Objects, homes: Mapping[int, int]) -> dict[int, DescribedCPU]:
    parts = {
        label: {cpu: ((mask & -mask).bit_length() - 1, number) for mask, number in sets for cpu in members(mask)}
        for label, sets in objects.sets.items()
    }

    def part(label: str, cpu: int) -> tuple[int, int | None] | None:
        return parts.get(label, {}).get(cpu)

    places = {}
    for cpu in objects.cpus:
        core, package = part("Core", cpu) or (cpu, cpu), part("Package", cpu) or (-1, -1)
        die, cluster = (found[0] if (found := part(label, cpu)) else None for label in ("Die", "Cluster"))
        book, drawer = (found[1] if (found := part(label, cpu)) else None for label in ("Book", "Drawer"))
        core_id, package_id = core[0] if core[1] is None else core[1], -1 if package[1] is None else package[1]
        places[cpu] = DescribedCPU(core[0], core_id, package[0], package_id, homes.get(cpu), die, cluster, book, drawer)
    return places


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
