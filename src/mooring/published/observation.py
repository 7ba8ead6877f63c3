"""A node at one moment, from an engine or from its kubelet, and the objects that it becomes, among them what is where.

That is the NodeResourceTopology v1alpha2, which the ecosystem's topology-aware schedulers read. A zone says how much a
pod can still get from one NUMA node alone. Available is what the managers would give: CPUs that are reserved, memory of
a group of several NUMA nodes and devices that are not healthy are not. A manager with policy none keeps no account of
NUMA nodes and refuses no pod because of them; there everything is available.

Source: k8stopologyawareschedwg/noderesourcetopology-api, v1alpha2; names of zones, attributes and costs as its other
publishers write them. Fingerprint of the node's pods: k8stopologyawareschedwg/podfingerprint, version v001: each pod is
the XXH64 of its name, seeded with the XXH64 of its namespace; the fingerprint is the XXH64 of the sorted numbers, eight
bytes each, the low one first. XXH64 is defined in the xxHash fast digest algorithm's specification, version 0.1.1.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, TypeAlias

from mooring.engine.core.config import KubeletConfig, MooringConfig
from mooring.engine.core.machineinfo import MachineInfo, NUMANode
from mooring.engine.cpumanager.policy import StaticPolicy, available_cpus
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.devicemanager.state import Holdings
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.memorymanager.policy import MEMORY, hugepages_type
from mooring.engine.node import Node
from mooring.engine.releases.config_fields import CPU_OPTIONS, READ_FIELDS, TOPOLOGY_OPTIONS
from mooring.published.facts_document import digest_of, essential, facts_document
from mooring.published.objects import NodeFacts, NodeState, PodKey, state_document

CPU = "cpu"
GROUP: Final = "topology.node.k8s.io"
VERSION: Final = "v1alpha2"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "NodeResourceTopology"
PLURAL: Final = "noderesourcetopologies"
_FACTS_ATTRIBUTE: Final = "mooring.dev/facts"
_SEQUENCE_ATTRIBUTE: Final = "mooring.dev/sequence"
_ALLOCATABLE_ATTRIBUTE: Final = "mooring.dev/exclusiveCPUsAllocatable"
_AVAILABLE_ATTRIBUTE: Final = "mooring.dev/exclusiveCPUsAvailable"
_POLICIES: Final = (
    "topologyManagerPolicy",
    "topologyManagerScope",
    TOPOLOGY_OPTIONS,
    CPU_OPTIONS,
    "cpuManagerPolicy",
    "memoryManagerPolicy",
)
"""Fields of the configuration that are attributes, in their order."""
_ATTRIBUTE: Final = "nodeTopologyPodsFingerprint"
_METHOD_ATTRIBUTE: Final = "nodeTopologyPodsFingerprintMethod"
METHOD: Final = "exclude-terminal"
"""Of the published methods the one that says: every pod that has not ended."""
_PREFIX: Final = "pfp0v001"
_BITS: Final = 2**64 - 1
_PRIME1: Final = 0x9E3779B185EBCA87
_PRIME2: Final = 0xC2B2AE3D27D4EB4F
_PRIME3: Final = 0x165667B19E3779F9
_PRIME4: Final = 0x85EBCA77C2B2AE63
_PRIME5: Final = 0x27D4EB2F165667C5


def zones_of(info: MachineInfo, node: Node) -> list[dict[str, Any]]:
    """Return the zones of a node on its machine as the object has them, by ascending ids.

    An amount is whole CPUs, bytes or devices: what there is, what pods can get when there are none, and what the next
    pod can get.
    """
    places = sorted(info.topology, key=lambda place: place.node_id)
    amounts = ("name", "capacity", "allocatable", "available")
    return [
        {
            "name": f"node-{place.node_id}",
            "type": "Node",
            # The kernel's row has the nodes that are online, by ascending ids.
            "costs": [
                {"name": f"node-{other.node_id}", "value": distance}
                for other, distance in zip(places, place.distances or (), strict=False)
                if len(place.distances or ()) == len(places)
            ],
            "resources": [dict(zip(amounts, map(str, one), strict=True)) for one in _amounts(node, place)],
        }
        for place in places
        # A machine without NUMA nodes is one "node" -1 to the kubelet.
        if place.node_id >= 0
    ]


def exclusive_cpus_of(node: Node) -> tuple[int, int]:
    """Return how many CPUs are available for exclusive use in all zones together, with and without the pods.

    That is how many when no container holds any, and how many now; none with policy none.
    """
    policy = node.settings.cpu
    if policy is None:
        return 0, 0
    everywhere = policy.topology.all_cpus
    return _giveable(policy, _empty(policy), everywhere), _giveable(policy, node.cpu, everywhere)


def _amounts(node: Node, numa: NUMANode) -> Iterator[tuple[str, int, int, int]]:
    policy = node.settings.cpu
    if numa.cores:
        capacity = len({thread for core in numa.cores for thread in core.thread_ids})
        if policy is None:
            yield CPU, capacity, capacity, capacity
        else:
            own = policy.topology.numa.get(numa.node_id, 0)
            yield CPU, capacity, _giveable(policy, _empty(policy), own), _giveable(policy, node.cpu, own)
    if node.settings.memory is None:
        pools = {hugepages_type(pool.page_size): pool.page_size * 1024 * pool.num_pages for pool in numa.hugepages}
        plain = max(numa.memory - sum(pools.values()), 0)
        yield MEMORY, numa.memory, plain, plain
        for resource, size in sorted(pools.items(), reverse=True):
            yield resource, size, size, size
    else:
        accounted = node.memory.nodes[numa.node_id]
        for resource, table in sorted(accounted.memory.items(), reverse=True):
            yield resource, table.total, table.allocatable, 0 if len(accounted.cells) > 1 else table.free
    state = node.providers.devices
    for resource, devices in sorted(state.devices.items()):
        near = [device for device in devices if device.numa is not None and numa.node_id in device.numa]
        if near:
            free = state.available(resource)
            healthy = sum(device.healthy for device in near)
            yield resource, len(near), healthy, sum(device.id in free for device in near)


def _giveable(policy: StaticPolicy, state: CPUState, cpus: int) -> int:
    """Return the largest number of CPUs that one container can get out of a mask."""
    count = (available_cpus(policy, state) & cpus).bit_count()
    if not policy.rules.whole_cores:
        return count
    # With full-pcpus-only the number must be one of whole cores, and be free on cores without a reserved CPU anywhere.
    most = min(count, (available_cpus(policy, state) & ~policy.reserved_cores).bit_count())
    return most - most % max(policy.group_size, 1)


def _empty(policy: StaticPolicy) -> CPUState:
    return CPUState("static", policy.shareable, {})


def topology_document(info: MachineInfo, node: Node, state: NodeState) -> dict[str, Any]:
    """Return the NodeResourceTopology object of a node.

    Args:
        info: its machine.
        node: as it decides.
        state: the same as it is published.
    """
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": state.node},
        "attributes": [{"name": name, "value": value} for name, value in _attributes(node, state)],
        "zones": zones_of(info, node),
    }


def _attributes(node: Node, state: NodeState) -> Iterator[tuple[str, str]]:
    config, (allocatable, available) = node.settings.config, exclusive_cpus_of(node)
    for name in _POLICIES:
        value = READ_FIELDS[name].of(config)
        if isinstance(value, str):
            yield name, value
        elif value:
            yield name, ",".join(f"{option}={value[option]}" for option in sorted(value))
    yield _ATTRIBUTE, fingerprint((pod.namespace, pod.name) for pod in state.pods)
    yield _METHOD_ATTRIBUTE, METHOD
    yield _ALLOCATABLE_ATTRIBUTE, str(allocatable)
    yield _AVAILABLE_ATTRIBUTE, str(available)
    yield _FACTS_ATTRIBUTE, state.facts
    yield _SEQUENCE_ATTRIBUTE, str(state.sequence)


def fingerprint(pods: Iterable[tuple[str, str]]) -> str:
    """Return the fingerprint of pods, each a namespace and a name, in any order.

    >>> fingerprint([])
    'pfp0v001ef46db3751d8e999'
    """
    numbers = sorted(_number(namespace, name) for namespace, name in pods)
    return f"{_PREFIX}{xxh64(struct.pack(f'<{len(numbers)}Q', *numbers)):016x}"


@lru_cache(maxsize=2048)
def _number(namespace: str, name: str) -> int:
    return xxh64(name.encode(), xxh64(namespace.encode()))


def xxh64(data: bytes, seed: int = 0) -> int:
    """Return the XXH64 of bytes.

    >>> f"{xxh64(b'abc'):x}"
    '44bc2cf5ad770999'
    """
    stripes = len(data) // 32
    lanes = struct.unpack_from(f"<{4 * stripes}Q", data)
    total = _of_stripes(lanes, seed) if stripes else seed + _PRIME5
    total = (total + len(data)) & _BITS
    place = 32 * stripes
    while place + 8 <= len(data):
        (lane,) = struct.unpack_from("<Q", data, place)
        total = (_rotated(total ^ _round(0, lane), 27) * _PRIME1 + _PRIME4) & _BITS
        place += 8
    if place + 4 <= len(data):
        (half,) = struct.unpack_from("<I", data, place)
        total = (_rotated(total ^ (half * _PRIME1 & _BITS), 23) * _PRIME2 + _PRIME3) & _BITS
        place += 4
    for byte in data[place:]:
        total = _rotated(total ^ (byte * _PRIME5 & _BITS), 11) * _PRIME1 & _BITS
    total = (total ^ total >> 33) * _PRIME2 & _BITS
    total = (total ^ total >> 29) * _PRIME3 & _BITS
    return total ^ total >> 32


def _of_stripes(lanes: tuple[int, ...], seed: int) -> int:
    sums = [seed + _PRIME1 + _PRIME2 & _BITS, seed + _PRIME2 & _BITS, seed, seed - _PRIME1 & _BITS]
    for number, lane in enumerate(lanes):
        sums[number % 4] = _round(sums[number % 4], lane)
    rotations = zip(sums, (1, 7, 12, 18), strict=True)
    total = sum(_rotated(one, count) for one, count in rotations) & _BITS
    for one in sums:
        total = ((total ^ _round(0, one)) * _PRIME1 + _PRIME4) & _BITS
    return total


def _round(total: int, lane: int) -> int:
    return _rotated(total + lane * _PRIME2 & _BITS, 31) * _PRIME1 & _BITS


def _rotated(value: int, count: int) -> int:
    return (value << count | value >> 64 - count) & _BITS


@dataclass(frozen=True, slots=True)
class Observation:
    """A node at one moment."""

    facts: NodeFacts
    state: NodeState
    """Its sequence is not counted yet."""
    node: Node | None
    """As it decides; None when the kubelet would not start on the state."""
    problem: str = ""
    """Why not, in its words."""
    left: Holdings = field(default_factory=dict)
    """Devices that the kubelet's record says pods have that are gone: it forgets them when it gives out devices."""


Observe: TypeAlias = Callable[[], Observation | None]
"""Returns the newest observation, the same object while nothing changes; None when there is none yet.

Raises MooringError when nothing can be seen at the moment."""


def documents_of(
    seen: Observation, *, sequence: int, moment: float | None, owner: str = ""
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return the objects that change with an observation: NodeState and NodeResourceTopology.

    The topology is None when the kubelet would not start on the state.

    Args:
        seen: the observation.
        sequence: of the state.
        moment: when it was seen, in seconds since 1970; None leaves it out.
        owner: uid of the Node object, with which state and topology are to vanish; empty where it is not known.
    """
    state = replace(seen.state, sequence=sequence)
    exclusive = None if seen.node is None else exclusive_cpus_of(seen.node)
    published = state_document(state, exclusive)
    if moment is not None:
        time = datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        published["status"] = {"observedAt": time, **published.get("status", {})}
    topology = None if seen.node is None else topology_document(seen.facts.machine, seen.node, state)
    for document in (published, topology):
        if document is not None and owner:
            document["metadata"]["ownerReferences"] = [
                {"apiVersion": "v1", "kind": "Node", "name": state.node, "uid": owner}
            ]
    return published, topology


class EngineObserver:
    """Turns engines into observations; the digest of facts is made once."""

    def __init__(self, node: str) -> None:
        """Know nothing yet.

        Args:
            node: name of the node in the cluster.
        """
        self._node = node
        self._of: tuple[MachineInfo, KubeletConfig, MooringConfig] | None = None
        self._facts: NodeFacts | None = None
        self._digest = ""

    def observe(self, kubelet: Kubelet) -> Observation:
        """Return an engine as it is published."""
        now = kubelet.info, kubelet.settings.config, kubelet.mooring
        if self._facts is None or self._of is None or any(a is not b for a, b in zip(now, self._of, strict=True)):
            self._of = now
            self._facts = NodeFacts(essential(kubelet.info), kubelet.settings.config, kubelet.mooring)
            self._digest = digest_of(self._facts)
        node = kubelet.node
        keys = tuple(PodKey(pod.namespace, pod.name, pod.uid) for pod in node.active.values())
        state = NodeState(
            self._node,
            self._digest,
            kubelet.files,
            node.providers.devices,
            keys,
            offline=node.cpu.offline,
            displaced=node.cpu.displaced,
        )
        return Observation(self._facts, state, node)


def listing_of(seen: Observation) -> dict[str, Any]:
    """Return a v1 List of what a publisher would write, without times, so that it is the same each time."""
    items = [facts_document(seen.facts, seen.state.node), *documents_of(seen, sequence=0, moment=None)]
    return {"apiVersion": "v1", "kind": "List", "items": [item for item in items if item is not None]}


Room = Mapping[tuple[str, str], int]
"""Zone and resource -> what is available; an empty name stands for the whole node."""


def room_of(seen: Observation) -> Room:
    """Return what the next pod can get of a node; nothing when its kubelet would not start."""
    if seen.node is None:
        return {}
    found = {("", "cpu"): exclusive_cpus_of(seen.node)[1]}
    for zone in zones_of(seen.facts.machine, seen.node):
        found.update({(zone["name"], amount["name"]): int(amount["available"]) for amount in zone["resources"]})
    return found


class LiveSource:
    """The present engine of a running program as a source."""

    def __init__(self, kubelet: Callable[[], Kubelet], node: str) -> None:
        """Read nothing yet.

        Args:
            kubelet: returns the present engine.
            node: name of the node.
        """
        self._read, self._observer = kubelet, EngineObserver(node)
        self._kubelet: Kubelet | None = None
        self._seen: Observation | None = None

    def observe(self) -> Observation | None:
        """Return what the engine has allocated."""
        kubelet = self._read()
        if kubelet is not self._kubelet:
            self._kubelet = kubelet
            seen = self._observer.observe(kubelet)
            # Many events change nothing that is published.
            if self._seen is None or (seen.facts, seen.state) != (self._seen.facts, self._seen.state):
                self._seen = seen
        return self._seen
