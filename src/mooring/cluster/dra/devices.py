"""Groups of CPUs as devices: names, attributes, which CPUs they are, and the PCIe roots near them (from sysfs).

Attributes are named as the ecosystem's CPU driver names them (kubernetes-sigs/dra-driver-cpu), so that a claim's
expressions serve both; ``resource.kubernetes.io/`` names are Kubernetes' own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TypeAlias

from mooring.engine.core.cpuset import CPUSet, CPUSetSyntaxError
from mooring.engine.core.hardware import Hardware
from mooring.engine.core.machineinfo import MachineInfo, NUMANode
from mooring.engine.core.topology import Topology

CAPACITY = "dra.cpu/cpu"
"""How a claim asks a group for CPUs."""
Attribute: TypeAlias = bool | int | str | tuple[str, ...] | tuple[int, ...]


class Grouping(Enum):
    """What a device is; the value is the word on the command line."""

    NUMA = "numa"
    SOCKET = "socket"
    L3 = "l3"
    CPU = "cpu"
    """One device for each CPU: the scheduler chooses, not the engine."""


_NUMA_NODE = "resource.kubernetes.io/numaNode"
_PREFIX = {Grouping.NUMA: "numa", Grouping.SOCKET: "socket", Grouping.L3: "l3-", Grouping.CPU: "cpu"}


@dataclass(frozen=True, slots=True)
class CPUGroup:
    """A group of CPUs."""

    name: str
    cpus: int
    """Mask, of all CPUs, reserved ones too."""
    attributes: Mapping[str, Attribute]
    """By qualified name."""


def device_cpus(topology: Topology, name: str) -> int:
    """Return the CPUs of a device of any grouping, as a mask; 0 when there is no such device.

    A claim keeps its devices when the driver is started with another grouping.
    """
    for grouping, groups in ((one, _groups(topology, one)) for one in Grouping):
        number = name.removeprefix(_PREFIX[grouping])
        if number != name and number.isascii() and number.isdigit() and name == f"{_PREFIX[grouping]}{int(number)}":
            return groups.get(int(number), 0)
    return 0


def devices_of(
    topology: Topology,
    grouping: Grouping,
    hardware: Hardware | None = None,
    pcie_roots: Mapping[str, int] | None = None,
    near_nodes: Mapping[int, tuple[int, ...]] | None = None,
) -> tuple[CPUGroup, ...]:
    """Return the devices of a machine in the order of their numbers.

    Args:
        topology: as the engine sees the machine.
        grouping: what a device is.
        hardware: tells kinds of cores, where it is known.
        pcie_roots: root -> mask of its local CPUs.
        near_nodes: from :func:`near_nodes`, where the attribute numaNode is a list; None where it is one number.
    """
    kinds = _kinds(hardware)
    return tuple(
        CPUGroup(
            f"{_PREFIX[grouping]}{number}",
            cpus,
            dict(_attributes(topology, grouping, number, cpus, kinds, pcie_roots or {}, near_nodes)),
        )
        for number, cpus in _groups(topology, grouping).items()
    )


def _groups(topology: Topology, grouping: Grouping) -> Mapping[int, int]:
    match grouping:
        case Grouping.NUMA:
            return topology.numa
        case Grouping.SOCKET:
            return topology.sockets
        case Grouping.L3:
            return topology.uncores
        case Grouping.CPU:
            return {cpu: 1 << cpu for cpu in topology.places}


def _attributes(
    topology: Topology,
    grouping: Grouping,
    number: int,
    cpus: int,
    kinds: Mapping[str, int],
    pcie_roots: Mapping[str, int],
    near_nodes: Mapping[int, tuple[int, ...]] | None,
) -> Iterator[tuple[str, Attribute]]:
    yield "dra.cpu/smtEnabled", any(mask.bit_count() > 1 for mask in topology.cores.values())
    if grouping is Grouping.CPU:
        yield "dra.cpu/cpuID", number
        yield "dra.cpu/coreID", topology.places[number].core
    else:
        yield "dra.cpu/numCPUs", cpus.bit_count()
    numa, socket, cache = (_only(groups, cpus) for groups in (topology.numa, topology.sockets, topology.uncores))
    if numa is not None and numa >= 0:
        yield "dra.cpu/numaNodeID", numa
    own = tuple(node for node, mask in topology.numa.items() if mask & cpus and node >= 0)
    if near_nodes is not None and own:
        yield _NUMA_NODE, near_nodes.get(own[0], own) if len(own) == 1 else own
    elif numa is not None and numa >= 0:
        yield _NUMA_NODE, numa
    if socket is not None and socket >= 0:
        yield "dra.cpu/socketID", socket
    if cache is not None and grouping in (Grouping.L3, Grouping.CPU):
        yield "dra.cpu/cacheL3ID", cache
    kind = next((name for name, mask in kinds.items() if not cpus & ~mask), "")
    if kind:
        yield "dra.cpu/coreType", kind
    roots = tuple(sorted(root for root, local in pcie_roots.items() if local & cpus))
    if roots:
        yield "resource.kubernetes.io/pcieRoot", roots


def _only(groups: Mapping[int, int], cpus: int) -> int | None:
    """Return the one group in which all CPUs lie; None when they lie in several."""
    return next((number for number, mask in groups.items() if not cpus & ~mask), None)


def near_nodes(info: MachineInfo) -> dict[int, tuple[int, ...]]:
    """Return for each NUMA node itself and then its socket's nodes that are nearest to it, by the table of distances.

    A node whose socket is not known, because it has no CPUs, counts to every socket.

    Source: k8s.io/dynamic-resource-allocation v0.37.1, deviceattribute/numa_linux.go (makeNUMANodeListAttribute).
    """
    return {node.node_id: (node.node_id, *_nearest(info, node)) for node in info.topology}


def _nearest(info: MachineInfo, node: NUMANode) -> Iterator[int]:
    distances = node.distances or ()
    others = [one for one in info.topology if one.node_id != node.node_id and one.node_id < len(distances)]
    least = min((distances[one.node_id] for one in others), default=0)
    sockets = _sockets(node)
    for other in others:
        is_apart = sockets and _sockets(other) and sockets.isdisjoint(_sockets(other))
        if distances[other.node_id] == least and not is_apart:
            yield other.node_id


def _sockets(node: NUMANode) -> frozenset[int]:
    return frozenset(core.socket_id for core in node.cores)


def _kinds(hardware: Hardware | None) -> dict[str, int]:
    """Return the ecosystem's names of core kinds with their CPUs; empty when nothing is known."""
    if hardware is None:
        return {}
    if len(hardware.kinds) < 2:
        return {"standard": hardware.online.mask}
    fastest = max(kind.efficiency for kind in hardware.kinds)
    found = {"p-core": 0, "e-core": 0}
    for kind in hardware.kinds:
        found["p-core" if kind.efficiency == fastest else "e-core"] |= kind.cpus.mask
    return found


def pcie_roots(sysfs: Path = Path("/sys")) -> dict[str, int]:
    """Return the PCIe roots of this machine with the masks of their local CPUs; those that name none are left out."""
    found: dict[str, int] = {}
    for root in sorted((sysfs / "devices").glob("pci????:??")):
        bus = root / "pci_bus" / root.name.removeprefix("pci") / "cpulistaffinity"
        with suppress(OSError, CPUSetSyntaxError, UnicodeDecodeError):
            local = CPUSet.parse(bus.read_text(encoding="ascii").strip()).mask
            if local:
                found[root.name] = local
    return found
