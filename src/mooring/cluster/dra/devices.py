"""Groups of CPUs as devices, and the ResourceSlices by which the scheduler sees them.

Names, attributes, CPUs and near PCIe roots (from sysfs) of a group. Attributes are named as the ecosystem's CPU driver
names them (kubernetes-sigs/dra-driver-cpu), so that a claim's expressions serve both; ``resource.kubernetes.io/`` names
are Kubernetes' own.

A group's capacity is what claims have of it and what they could still get: CPUs that pods hold for themselves are not
in it. Every capacity has a default request, because one without is consumed whole by a claim that does not name it.
A device that is given whole has no capacity: it is listed while all of its CPUs are one claim's, or free.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final, TypeAlias

from mooring.cluster.dra.objects import AgentNode, ClaimableCPUs, ClaimObjects
from mooring.engine.core.cpuset import CPUSet, CPUSetSyntaxError
from mooring.engine.core.machine import Hardware
from mooring.engine.core.machineinfo import MachineInfo
from mooring.engine.core.topology import Topology, discover_topology
from mooring.service.apiserver import ClusterError
from mooring.service.logs import Log

CAPACITY = "dra.cpu/cpu"
"""How a claim asks a group for CPUs."""
Attribute: TypeAlias = bool | int | str | tuple[str, ...] | tuple[int, ...]


class Grouping(Enum):
    """What a device is; the value is the word on the command line."""

    NUMA = "numa"
    SOCKET = "socket"
    L3 = "l3"
    MACHINE = "machine"
    CORE = "core"
    CPU = "cpu"
    """One device for each CPU: the scheduler chooses, not the engine."""

    @property
    def is_whole(self) -> bool:
        """Tell whether devices are always given whole."""
        return self in (Grouping.CORE, Grouping.CPU)


_NUMA_NODE = "resource.kubernetes.io/numaNode"
_PREFIX = {grouping: "l3-" if grouping is Grouping.L3 else grouping.value for grouping in Grouping}


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
        case Grouping.MACHINE:
            return {0: topology.all_cpus}
        case Grouping.CORE:
            return topology.cores
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
    else:
        yield "dra.cpu/numCPUs", cpus.bit_count()
    if grouping in (Grouping.CPU, Grouping.CORE):
        yield "dra.cpu/coreID", topology.places[cpus.bit_length() - 1].core
    # The one group in which all CPUs lie.
    numa, socket, cache = (
        next((group for group, mask in groups.items() if not cpus & ~mask), None)
        for groups in (topology.numa, topology.sockets, topology.uncores)
    )
    if numa is not None and numa >= 0:
        yield "dra.cpu/numaNodeID", numa
    own = tuple(node for node, mask in topology.numa.items() if mask & cpus and node >= 0)
    if near_nodes is not None and own:
        yield _NUMA_NODE, near_nodes.get(own[0], own) if len(own) == 1 else own
    elif numa is not None and numa >= 0:
        yield _NUMA_NODE, numa
    if socket is not None and socket >= 0:
        yield "dra.cpu/socketID", socket
    if cache is not None and grouping in (Grouping.L3, Grouping.CORE, Grouping.CPU):
        yield "dra.cpu/cacheL3ID", cache
    kind = next((name for name, mask in kinds.items() if not cpus & ~mask), "")
    if kind:
        yield "dra.cpu/coreType", kind
    roots = tuple(sorted(root for root, local in pcie_roots.items() if local & cpus))
    if roots:
        yield "resource.kubernetes.io/pcieRoot", roots


def near_nodes(info: MachineInfo) -> dict[int, tuple[int, ...]]:
    """Return for each NUMA node itself and then its socket's nodes that are nearest to it, by the table of distances.

    A node whose socket is not known, because it has no CPUs, counts to every socket.

    Source: k8s.io/dynamic-resource-allocation v0.37.1, deviceattribute/numa_linux.go (makeNUMANodeListAttribute).
    """
    sockets = {node.node_id: frozenset(core.socket_id for core in node.cores) for node in info.topology}
    found = {}
    for node in info.topology:
        own, distances = sockets[node.node_id], node.distances or ()
        others = [one.node_id for one in info.topology if one is not node and one.node_id < len(distances)]
        least = min((distances[other] for other in others), default=0)
        nearest = [other for other in others if distances[other] == least]
        near = [other for other in nearest if not (own and sockets[other]) or own & sockets[other]]
        found[node.node_id] = (node.node_id, *near)
    return found


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


API_VERSION: Final = "resource.k8s.io/v1"
_MOST_DEVICES: Final = 128
"""Devices of one slice; the API server refuses more."""


def offered(
    devices: Iterable[CPUGroup], room: ClaimableCPUs, *, whole: bool = False, node_allocatable: bool = False
) -> list[dict[str, Any]]:
    """Return the devices that can be allocated, as a slice lists them.

    A group that has nothing to give, and gave nothing, is left out: a capacity below the smallest request is refused by
    the API server.

    Args:
        devices: of the node.
        room: what claims have and can get.
        whole: whether a claim gets a device with all of its CPUs.
        node_allocatable: whether a claim counts against the node's allocatable CPUs (KEP-5517).
    """
    step = 1 if whole or not room.whole_cores else room.group_size
    amounts = {}
    for one in devices:
        given = sum(mask for claim in room.claims for (device, _), mask in claim.shares.items() if device == one.name)
        both = given.bit_count(), (one.cpus & room.claimable).bit_count()
        amounts[one.name] = max(both) if whole else sum(both)
    if room.last and not whole:
        # Keep one CPU back, where most are free: the last one of the shared pool is never given
        free = {one.name: (one.cpus & room.claimable).bit_count() for one in devices}
        most = max(free, key=lambda name: free[name], default="")
        if most and free[most]:
            amounts[most] -= 1
    rows = []
    for device in devices:
        amount = amounts[device.name] // step * step
        if amount < (device.cpus.bit_count() if whole else step):
            continue
        row: dict[str, Any] = {"name": device.name, "attributes": attribute_values(device.attributes)}
        mapping = {"deviceMultiplier": str(amount)}
        if not whole:
            row["allowMultipleAllocations"] = True
            policy = {"default": str(step), "validRange": {"min": str(step), "step": str(step)}}
            row["capacity"] = {CAPACITY: {"value": str(amount), "requestPolicy": policy}}
            mapping = {"capacityKey": CAPACITY, "capacityMultiplier": "1"}
        if node_allocatable:
            row["nodeAllocatableResources"] = {"cpu": {"mapping": mapping}}
        rows.append(row)
    return rows


def slices(
    driver: str, node: str, devices: list[dict[str, Any]], generation: int, owner: str = ""
) -> list[dict[str, Any]]:
    """Return the slices of a node's pool; there is always one, if only to say that there is nothing.

    Args:
        driver: its name.
        node: name of the node, and of the pool.
        devices: from :func:`offered`.
        generation: of the pool.
        owner: uid of the Node object, with which the slices go.
    """
    parts = [devices[first : first + _MOST_DEVICES] for first in range(0, len(devices), _MOST_DEVICES)] or [[]]
    references = [{"apiVersion": "v1", "kind": "Node", "name": node, "uid": owner, "controller": True}] if owner else []
    return [
        {
            "apiVersion": API_VERSION,
            "kind": "ResourceSlice",
            "metadata": {"name": f"{node}-{driver}-{number}", "ownerReferences": references},
            "spec": {
                "driver": driver,
                "nodeName": node,
                "pool": {"name": node, "generation": generation, "resourceSliceCount": len(parts)},
                "devices": part,
            },
        }
        for number, part in enumerate(parts)
    ]


def is_same(found: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> bool:
    """Tell whether the cluster has these slices, whatever their generation, and one generation for all."""
    have = {one["metadata"]["name"]: one["spec"] for one in found}
    want = {one["metadata"]["name"]: one["spec"] for one in wanted}
    generations = {one["pool"]["generation"] for one in have.values()}
    return (
        have.keys() == want.keys()
        and len(generations) == 1
        and all(_content(have[name]) == _content(want[name]) for name in want)
    )


def newest_generation(found: Iterable[Mapping[str, Any]]) -> int:
    """Return the highest generation of slices; 0 without any."""
    return max((int(one["spec"]["pool"]["generation"]) for one in found), default=0)


def _content(spec: Mapping[str, Any]) -> tuple[Any, ...]:
    return spec["driver"], spec.get("nodeName"), spec["pool"]["resourceSliceCount"], spec.get("devices") or []


def attribute_values(attributes: Mapping[str, Attribute]) -> dict[str, dict[str, Any]]:
    """Return attributes as the API has them, by name.

    >>> attribute_values({"dra.cpu/smtEnabled": True, "resource.kubernetes.io/numaNode": (0, 1)})
    {'dra.cpu/smtEnabled': {'bool': True}, 'resource.kubernetes.io/numaNode': {'ints': [0, 1]}}
    """
    kinds = {bool: "bool", int: "int", str: "string"}
    return {
        name: {f"{kinds[type(value[0])]}s": list(value)} if isinstance(value, tuple) else {kinds[type(value)]: value}
        for name, value in attributes.items()
    }


PAUSE: Final = 2.0
"""Seconds between two writes: a burst of pods is one change."""
_LOOK: Final = 30.0
"""Seconds after which the cluster's slices are checked although nothing has changed here.

The kubelet deletes those of a driver that was away.
"""


@dataclass(slots=True)
class SlicePublisher:
    """Writes slices when they have changed, and not too often; called from one thread."""

    driver: str
    node: str
    grouping: Grouping
    objects: ClaimObjects
    log: Log
    hardware: Hardware | None = None
    pcie_roots: Mapping[str, int] | None = None
    numa_node_list: bool = False
    whole: bool = False
    node_allocatable: bool = False
    writes: int = 0
    """How often slices were written."""
    _published: list[dict[str, Any]] | None = None
    _wrote: float = float("-inf")
    _looked: float = float("-inf")
    _problem: str = ""

    def publish(self, devices: Iterable[CPUGroup], room: ClaimableCPUs, now: float) -> None:
        """Update the slices when they changed or a check is due.

        Args:
            devices: of the node.
            room: what claims have and can get.
            now: seconds that only go forward.

        Raises:
            ClusterError: it is not done; the next call tries again.
        """
        whole = self.whole or self.grouping.is_whole
        self.write(offered(devices, room, whole=whole, node_allocatable=self.node_allocatable), now)

    def write(self, wanted: list[dict[str, Any]], now: float) -> None:
        """Update the slices, for devices as they list them; as :meth:`publish`."""
        is_due = wanted != self._published or now - self._looked >= _LOOK
        if not is_due and self._problem:
            raise ClusterError(self._problem)
        if not is_due or now - self._wrote < PAUSE:
            return
        self._problem = ""
        found = self.objects.slices(self.driver, self.node)
        generation = newest_generation(found)
        owner = self.objects.node_uid(self.node)
        made = slices(self.driver, self.node, wanted, generation, owner)
        if not is_same(found, made):
            made = slices(self.driver, self.node, wanted, generation + 1, owner)
            if not is_same([self.objects.apply_slice(one) for one in made], made):
                self._problem = "the API server drops fields of slices: turn on the feature gate of the driver's option"
            names = {one["metadata"]["name"] for one in made}
            for name in {one["metadata"]["name"] for one in found} - names:
                self.objects.delete_slice(name)
            self.writes += 1
            self._wrote = now
            self.log.info("slices written", generation=generation + 1, devices=len(wanted))
        self._published, self._looked = wanted, now
        if self._problem:
            raise ClusterError(self._problem)

    def devices(self, node: AgentNode) -> tuple[CPUGroup, ...]:
        """Return the devices of the node, without those that are all reserved."""
        near = near_nodes(node.info) if self.numa_node_list else None
        made = devices_of(discover_topology(node.info), self.grouping, self.hardware, self.pcie_roots, near)
        return tuple(one for one in made if one.cpus & ~node.reserved)
