"""The laws of a whole node: each yields what breaks it, or nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mooring.core.bits import list_text
from mooring.core.pod import Container, ContainerKind, Pod
from mooring.cpumanager.requests import exclusive_cpus
from mooring.memorymanager.state import Block
from mooring.node import Node

Breaks = Iterator[str]


def all_breaks(node: Node) -> Breaks:
    """Nothing is owned twice, nothing is lost, what is reserved is nobody's."""
    yield from cpu_breaks(node)
    yield from memory_breaks(node)
    yield from device_breaks(node)


def cpu_breaks(node: Node) -> Breaks:
    policy, state = node.settings.cpu, node.cpu
    assert policy is not None
    owned = 0
    for uid in {**state.assignments, **state.pods}:
        cpus = state.pods.get(uid, 0)
        for name, mask in state.assignments.get(uid, {}).items():
            if uid in state.pods and mask & ~cpus:
                yield f"cpu: {uid}/{name} holds {list_text(mask & ~cpus)} outside of its pod"
            cpus |= mask
        if cpus & owned:
            yield f"cpu: {uid} shares {list_text(cpus & owned)} with another pod"
        if cpus & state.default:
            yield f"cpu: {uid} holds {list_text(cpus & state.default)}, which is in the shared pool"
        if cpus & policy.reserved:
            yield f"cpu: {uid} holds the reserved {list_text(cpus & policy.reserved)}"
        owned |= cpus
    if owned | state.default != policy.shareable:
        yield f"cpu: {list_text((owned | state.default) ^ policy.shareable)} is lost or made up"
    for pod in node.active.values():
        yield from _breaks_inside(node, pod)


def _breaks_inside(node: Node, pod: Pod) -> Breaks:
    """CPUs of a container that has a claim to them are no other's that runs at the same time."""
    policy = node.settings.cpu
    assert policy is not None
    sets = node.cpu.assignments.get(pod.uid, {})
    for position, container in enumerate(pod.containers):
        if not exclusive_cpus(pod, container, policy.gates):
            continue
        for other in _beside(pod, position):
            shared = sets.get(container.name, 0) & sets.get(other.name, 0)
            if shared:
                yield f"cpu: {container.name} of {pod.uid} shares {list_text(shared)} with {other.name}"


def _beside(pod: Pod, position: int) -> list[Container]:
    """Return who runs while a container does."""
    before, after = pod.containers[:position], pod.containers[position + 1 :]
    sidecars = [other for other in before if other.kind is ContainerKind.SIDECAR]
    if pod.containers[position].kind is ContainerKind.INIT:
        return sidecars
    if pod.containers[position].kind is ContainerKind.SIDECAR:
        return [*sidecars, *after]
    return [*(other for other in before if other.kind is not ContainerKind.INIT), *after]


def memory_breaks(node: Node) -> Breaks:
    policy, state = node.settings.memory, node.memory
    assert policy is not None
    charged: dict[str, int] = {}
    counted: dict[int, int] = {}
    for uid, containers in state.assignments.items():
        blocks = state.pods.get(uid) or tuple(block for held in containers.values() for block in held)
        for block in blocks:
            charged[block.type] = charged.get(block.type, 0) + block.size
            for number in block.numa:
                counted[number] = counted.get(number, 0) + 1
        yield from _pod_breaks(uid, state.pods.get(uid, ()), containers)
    for number, account in state.nodes.items():
        for name, table in account.memory.items():
            if table.free < 0 or table.reserved < 0 or table.free + table.reserved != table.allocatable:
                yield f"memory: {name} of NUMA node {number} does not add up"
        if account.assignments != counted.get(number, 0):
            yield f"memory: NUMA node {number} counts {account.assignments} assignments of {counted.get(number, 0)}"
    for name in state.nodes[min(state.nodes)].memory:
        given = sum(account.memory[name].reserved for account in state.nodes.values())
        if given != charged.get(name, 0):
            yield f"memory: {given} bytes of {name} are charged for blocks of {charged.get(name, 0)}"


def _pod_breaks(uid: str, whole: tuple[Block, ...], containers: Mapping[str, tuple[Block, ...]]) -> Breaks:
    if not whole:
        return
    sizes = {block.type: block.size for block in whole}
    for name, blocks in containers.items():
        for block in blocks:
            if block.size > sizes.get(block.type, 0) or block.numa != whole[0].numa:
                yield f"memory: {name} holds {block}, which its pod {uid} has not"


def device_breaks(node: Node) -> Breaks:
    state = node.providers.devices
    for resource, devices in state.devices.items():
        owners: dict[str, str] = {}
        for uid in state.held:
            for name in sorted(state.held_by_pod(uid, resource)):
                if name in owners:
                    yield f"device: {name} belongs to {owners[name]} and to {uid}"
                owners[name] = uid
        if not set(owners) <= {device.id for device in devices if device.healthy}:
            yield f"device: {sorted(owners)} are more than there are"
        for pod in node.active.values():
            for position, container in enumerate(pod.containers):
                for other in _beside(pod, position):
                    shared = state.held_by(pod.uid, container.name, resource) & state.held_by(
                        pod.uid, other.name, resource
                    )
                    if shared:
                        yield f"device: {container.name} of {pod.uid} shares {sorted(shared)} with {other.name}"


def has_contested_group(node: Node) -> bool:
    """Tell whether a NUMA node serves a group and other sets beside it, or is in a group that none of its blocks names.

    The kubelet's best-effort makes such states; what follows from them has no name of a defect yet.
    """
    state = node.memory
    named: dict[int, set[tuple[int, ...]]] = {}
    for uid, containers in state.assignments.items():
        for block in state.pods.get(uid) or tuple(block for held in containers.values() for block in held):
            for number in block.numa:
                named.setdefault(number, set()).add(tuple(sorted(block.numa)))
    return any(
        groups != {tuple(sorted(state.nodes[number].cells))} for number, groups in named.items()
    )
