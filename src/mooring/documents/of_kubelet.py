"""What documents say of a kubelet: its NUMA nodes, and its node in the JSON form of the PodResources API v1.

In that form, of List and GetAllocatableResources, numbers are texts, as protobuf's JSON form writes 64-bit numbers. Ids
are ascending, where the kubelet's order is arbitrary.

Source: k8s.io/kubelet/pkg/apis/podresources/v1 and the kubelet's servers of v1.37.1; spec: pod-level.md section 5.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, field

from mooring.documents.plan import API_VERSION, APIVersion, DocumentPart, Maybe, MemoryAccountPart, NUMANodePart, told
from mooring.engine.core.bits import NO_CPUS, members
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.pod import ContainerKind
from mooring.engine.devicemanager.state import Device
from mooring.engine.kubelet.kubelet import Kubelet, free_cpus, reserved_cpus
from mooring.engine.memorymanager.state import Block
from mooring.engine.node import Node
from mooring.engine.node.providers import Isolation, cpu_isolation, memory_isolation

NumberText: TypeAlias = Annotated[str, Meta(pattern="^[0-9]+$")]


class MessagePart(Struct, forbid_unknown_fields=True):
    """A message of the API, whose members are named as in its definition."""


class NodeIDMessage(MessagePart):
    """The number of a NUMA node."""

    number: NumberText = field(name="ID")


class TopologyMessage(MessagePart):
    """NUMA nodes."""

    nodes: list[NodeIDMessage]


class DevicesMessage(MessagePart, kw_only=True):
    """A device; its topology is absent where it is not known."""

    resource_name: str
    device_ids: list[str]
    topology: Maybe[TopologyMessage] = UNSET


class MemoryMessage(MessagePart):
    """Memory of one kind on some NUMA nodes."""

    memory_type: str
    size: Annotated[NumberText, told("Bytes.")]
    topology: TopologyMessage


class ContainerMessage(MessagePart):
    """What a container holds."""

    name: str
    devices: list[DevicesMessage]
    cpu_ids: Annotated[list[NumberText], told("Only exclusive CPUs.")]
    memory: Annotated[list[MemoryMessage], told("Only memory of the memory manager.")]
    dynamic_resources: Annotated[list[Any], Meta(max_length=0)]


class PodMessage(MessagePart, kw_only=True):
    """What a pod holds; the last two only with the feature gate PodLevelResourceManagers."""

    name: str
    namespace: str
    containers: Annotated[list[ContainerMessage], told("Apps and sidecars, never regular init containers.")]
    cpu_ids: Maybe[
        Annotated[
            list[NumberText], told("The pod's own partition, only with the feature gate PodLevelResourceManagers.")
        ]
    ] = UNSET
    memory: Maybe[Annotated[list[MemoryMessage], told("The pod's own partition, as for the CPUs.")]] = UNSET


class ListMessage(MessagePart):
    """The answer to List."""

    pod_resources: Annotated[list[PodMessage], told("Active pods.")]


class AllocatableMessage(MessagePart):
    """The answer to GetAllocatableResources."""

    devices: list[DevicesMessage]
    cpu_ids: list[NumberText]
    memory: list[MemoryMessage]


class PodResourcesDocument(DocumentPart, kw_only=True):
    """What mooring plan -o podresources prints: the kubelet's PodResources API v1, numbers of 64 bits as texts."""

    api_version: APIVersion = API_VERSION
    kind: Literal["PodResources"] = "PodResources"
    list_answer: ListMessage = field(name="List")
    allocatable: Annotated[AllocatableMessage, told("What an empty node can allocate.")] = field(
        name="GetAllocatableResources"
    )


def pod_resources_document(node: Node) -> PodResourcesDocument:
    """Return both answers in one document."""
    return PodResourcesDocument(list_answer=list_message(node), allocatable=allocatable_message(node))


def list_message(node: Node) -> ListMessage:
    """Return the answer to List."""
    settings, providers, with_pods = node.settings, node.providers, node.settings.pod_level.managers
    found = []
    for pod in node.active.values():
        containers = []
        for container in (one for one in pod.containers if one.kind is not ContainerKind.INIT):
            cpus = 0
            blocks: tuple[Block, ...] = ()
            if cpu_isolation(settings, providers, pod, container) is Isolation.CONTAINER:
                cpus = node.cpu.assignments[pod.uid][container.name]
            if memory_isolation(settings, providers, pod, container) is Isolation.CONTAINER:
                blocks = node.memory.assignments[pod.uid][container.name]
            held = providers.devices.held.get(pod.uid, {}).get(container.name, {})
            devices = [
                _device(resource, device)
                for resource, ids in sorted(held.items())
                if is_plugins(resource)
                for device in providers.devices.devices.get(resource, ())
                if device.id in ids
            ]
            containers.append(ContainerMessage(container.name, devices, _ids(cpus), _memory(blocks), []))
        cpu_ids = _ids(node.cpu.pods.get(pod.uid, 0)) if with_pods else UNSET
        memory = _memory(node.memory.pods.get(pod.uid, ())) if with_pods else UNSET
        found.append(
            PodMessage(name=pod.name, namespace=pod.namespace, containers=containers, cpu_ids=cpu_ids, memory=memory)
        )
    return ListMessage(found)


def allocatable_message(node: Node) -> AllocatableMessage:
    """Return the answer to GetAllocatableResources: what an empty node could give away."""
    policy = node.settings.memory
    blocks = [
        Block((number,), resource, table.allocatable)
        for number, state in sorted((policy.default_nodes if policy is not None else {}).items())
        for resource, table in sorted(state.memory.items())
        if table.allocatable > 0
    ]
    devices = [
        _device(resource, device)
        for resource, devices in sorted(node.providers.devices.devices.items())
        if is_plugins(resource)
        for device in devices
        if device.healthy
    ]
    return AllocatableMessage(devices, _ids(node.settings.allocatable_cpus.mask), _memory(blocks))


def is_plugins(resource: str) -> bool:
    """Tell whether a resource is a device plugin's; else it is a driver, whose name has no slash."""
    return "/" in resource


def _ids(mask: int) -> list[str]:
    return [str(cpu) for cpu in members(mask)]


def _memory(blocks: Iterable[Block]) -> list[MemoryMessage]:
    return [MemoryMessage(block.type, str(block.size), _topology(block.numa)) for block in blocks]


def _device(resource: str, device: Device) -> DevicesMessage:
    return DevicesMessage(
        resource_name=resource, device_ids=[device.id], topology=_topology(device.numa) if device.numa else UNSET
    )


def _topology(nodes: Iterable[int]) -> TopologyMessage:
    return TopologyMessage([NodeIDMessage(str(node)) for node in nodes])


def numa_parts(kubelet: Kubelet) -> list[NUMANodePart]:
    """Return what is free on each NUMA node of the kubelet's view, ascending by id."""
    topology = kubelet.settings.topology
    free, reserved = free_cpus(kubelet), reserved_cpus(kubelet)
    owned = CPUSet()
    for containers in kubelet.node.cpu.assignments.values():
        for mask in containers.values():
            owned |= CPUSet(mask)
    parts = []
    for node in sorted(kubelet.info.topology, key=lambda node: node.node_id):
        cpus = CPUSet(topology.numa.get(node.node_id, NO_CPUS)) if topology is not None else CPUSet()
        part = NUMANodePart(
            node=node.node_id,
            cpus=str(cpus),
            free=str(cpus & free),
            free_count=len(cpus & free),
            reserved=str(cpus & reserved),
            exclusive=str(cpus & owned),
            memory_bytes=node.memory,
        )
        # A node with the memory manager's account of it; without under its policy `None`
        account = kubelet.node.memory.nodes.get(node.node_id)
        if account is not None:
            part.group = list(account.cells)
            part.memory = {
                name: MemoryAccountPart(table.allocatable, table.reserved, table.free)
                for name, table in account.memory.items()
            }
        parts.append(part)
    return parts
