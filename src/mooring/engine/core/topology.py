"""The CPU topology that the kubelet's CPU manager derives from the machine description.

Source: kubelet v1.37.1, pkg/kubelet/cm/cpumanager/topology; spec: topology.md sections 2, 4 and 5. Every mask that an
algorithm needs is computed here once, so that the algorithms are operations on integers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

from mooring.engine.core.bits import NO_CPUS, CPUMask, NUMAMask, mask_of
from mooring.engine.core.errors import MooringError
from mooring.engine.core.machineinfo import MachineInfo
from mooring.lazy import dataclass


class TopologyError(MooringError):
    """A machine description from which the kubelet cannot derive a topology; the message is the kubelet's."""


Elements = Mapping[int, tuple[tuple[int, CPUMask], ...]]
"""Parent id -> (id, CPU mask) of the elements that have a CPU inside the parent, ascending by id."""


@dataclass(frozen=True, slots=True)
class CPUPlace:
    """Where one CPU sits, by the kubelet's ids."""

    numa: int
    socket: int
    core: int
    """The smallest CPU id of the core."""
    uncore: int
    """Id of the core's first uncore cache, else the socket id: the two share one number space."""


@dataclass(frozen=True, slots=True)
class Topology:
    """CPUs, their places, the declared counts, and the mask of every element."""

    places: Mapping[int, CPUPlace]
    num_cpus: int
    num_cores: int
    num_sockets: int
    num_numa_nodes: int
    num_uncores: int
    all_cpus: CPUMask
    """Mask of all CPUs seen; its size can differ from ``num_cpus`` on hand-made descriptions."""
    numa: Mapping[int, CPUMask]
    """NUMA node id -> mask of its CPUs, ascending ids, only nodes that have CPUs."""
    sockets: Mapping[int, CPUMask]
    cores: Mapping[int, CPUMask]
    uncores: Mapping[int, CPUMask]
    cpus_per_core: int
    """Average, by integer division; 0 when nothing is declared. Also the group size of whole-core options."""
    cpus_per_socket: int
    cpus_per_uncore: int
    nodes_of_socket: Elements
    """Socket id -> (id, mask) of its NUMA nodes, ascending; and so on for the other relations."""
    sockets_of_node: Elements
    cores_of_node: Elements
    cores_of_socket: Elements
    uncores_of_node: Elements
    smallest_node: int
    """CPUs of the smallest NUMA node with CPUs."""
    smallest_socket: int

    @property
    def numa_first(self) -> bool:
        """Tell whether NUMA nodes are considered larger than sockets (spec: topology.md section 4)."""
        return self.num_sockets >= self.num_numa_nodes

    def core_siblings(self, cpus: CPUMask) -> CPUMask:
        """Return the mask of every CPU that shares a core with one of ``cpus``."""
        mask = NO_CPUS
        for core in self.cores.values():
            if core & cpus:
                mask |= core
        return mask

    def cpus_in_numa(self, nodes: NUMAMask) -> CPUMask:
        """Return the mask of the CPUs in the NUMA nodes of the mask ``nodes``."""
        mask = NO_CPUS
        for node, cpus in self.numa.items():
            # A machine without node directories can have a "node" -1, which no mask can name.
            if node >= 0 and nodes >> node & 1:
                mask |= cpus
        return mask

    def sockets_touched(self, cpus: CPUMask) -> int:
        """Return how many sockets ``cpus`` touch."""
        return sum(1 for mask in self.sockets.values() if mask & cpus)


def build_topology(
    places: Mapping[int, CPUPlace],
    *,
    num_cpus: int,
    num_cores: int,
    num_sockets: int,
    num_numa_nodes: int,
    num_uncores: int,
) -> Topology:
    """Return a topology with the *declared* counts, even where they contradict the CPUs listed.

    The counts decide averages and which of NUMA node and socket comes first (spec: vectors.md section 1).
    """
    numa = _masks(places, lambda place: place.numa)
    sockets = _masks(places, lambda place: place.socket)
    cores = _masks(places, lambda place: place.core)
    uncores = _masks(places, lambda place: place.uncore)
    return Topology(
        places=places,
        num_cpus=num_cpus,
        num_cores=num_cores,
        num_sockets=num_sockets,
        num_numa_nodes=num_numa_nodes,
        num_uncores=num_uncores,
        all_cpus=CPUMask(mask_of(places)),
        numa=numa,
        sockets=sockets,
        cores=cores,
        uncores=uncores,
        cpus_per_core=num_cpus // num_cores if num_cores else 0,
        cpus_per_socket=num_cpus // num_sockets if num_sockets else 0,
        cpus_per_uncore=num_cpus // num_uncores if num_uncores else 0,
        nodes_of_socket=_children(sockets, numa),
        sockets_of_node=_children(numa, sockets),
        cores_of_node=_children(numa, cores),
        cores_of_socket=_children(sockets, cores),
        uncores_of_node=_children(numa, uncores),
        smallest_node=min(map(int.bit_count, numa.values()), default=0),
        smallest_socket=min(map(int.bit_count, sockets.values()), default=0),
    )


@lru_cache(maxsize=64)
def discover_topology(info: MachineInfo) -> Topology:
    """Derive the topology from a machine description, as the kubelet does at its start.

    A planner starts many kubelets on one machine: the topologies of the last machines are kept.

    Raises:
        TopologyError: no CPUs are declared, a core has no threads, or a core repeats one.
    """
    if info.num_cores == 0:
        raise TopologyError("could not detect number of cpus")
    places: dict[int, CPUPlace] = {}
    num_cores = 0
    for node in info.topology:
        for core in node.cores:
            if not core.thread_ids:
                raise TopologyError("no cpus provided")
            if len(set(core.thread_ids)) != len(core.thread_ids):
                raise TopologyError("cpus provided are not unique")
            num_cores += 1
            uncore = core.uncore_caches[0].id if core.uncore_caches else core.socket_id
            place = CPUPlace(node.node_id, core.socket_id, min(core.thread_ids), uncore)
            # A thread listed in two places keeps the last one.
            places.update(dict.fromkeys(core.thread_ids, place))
    return build_topology(
        dict(sorted(places.items())),
        num_cpus=info.num_cores,
        num_cores=num_cores,
        num_sockets=info.num_sockets,
        num_numa_nodes=len({place.numa for place in places.values()}),
        num_uncores=len({place.uncore for place in places.values()}),
    )


def _masks(places: Mapping[int, CPUPlace], key: Callable[[CPUPlace], int]) -> dict[int, CPUMask]:
    masks: dict[int, CPUMask] = {}
    for cpu, place in places.items():
        element = key(place)
        masks[element] = masks.get(element, NO_CPUS) | 1 << cpu
    return dict(sorted(masks.items()))


def _children(parents: Mapping[int, CPUMask], elements: Mapping[int, CPUMask]) -> Elements:
    return {
        parent: tuple((element, mask) for element, mask in elements.items() if mask & inside)
        for parent, inside in parents.items()
    }
