"""The laws of a whole node: each yields what breaks it, or nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mooring.engine.core.bits import NO_CPUS, CPUMask, list_text
from mooring.engine.core.pod import Container, ContainerKind, Pod, QoS
from mooring.engine.cpumanager.policy import exclusive_cpus
from mooring.engine.devicemanager.hints import device_requests
from mooring.engine.extensions.owners import OwnerKind, hidden_of_pod, state_owner
from mooring.engine.memorymanager.state import Block
from mooring.engine.node import Decision, Node
from mooring.engine.node.settings import Settings

Breaks = Iterator[str]
STRICT = ("restricted", "single-numa-node")


def all_breaks(node: Node) -> Breaks:
    """Nothing is owned twice, nothing is lost, what is reserved is nobody's."""
    yield from cpu_breaks(node)
    yield from memory_breaks(node)
    yield from device_breaks(node)


def cpu_breaks(node: Node) -> Breaks:
    policy, state = node.settings.cpu, node.cpu
    assert policy is not None
    held: dict[str, int] = {}
    for owner in {**state.assignments, **state.pods}:
        root = state_owner(owner).root
        if root != owner and state_owner(owner).kind is OwnerKind.HIDDEN and root not in state.assignments:
            yield f"cpu: {owner} has no pod"
        cpus = state.pods.get(owner, 0)
        for name, mask in state.assignments.get(owner, {}).items():
            if owner in state.pods and mask & ~cpus:
                yield f"cpu: {owner}/{name} holds {list_text(mask & ~cpus)} outside of its pod"
            cpus |= mask
        held[root] = held.get(root, 0) | cpus
    owned = 0
    for uid, cpus in held.items():
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
    """CPUs of a container that has a claim to them, and what is hidden for it, are no other's that runs beside it.

    Init containers of a managed pod are exclusive among themselves and sidecars with a claim only: a sidecar that
    shares gets what is left in the end (spec: pod-level.md section 4).
    """
    policy = node.settings.cpu
    assert policy is not None
    sets, hidden = node.cpu.assignments.get(pod.uid, {}), hidden_of_pod(node.cpu, pod.uid)
    whole = {one.name: sets.get(one.name, 0) | hidden.get(one.name, 0) for one in pod.containers}
    claims = {container.name: exclusive_cpus(pod, container, policy.gates) > 0 for container in pod.containers}
    for position, container in enumerate(pod.containers):
        own, beside = sets.get(container.name, NO_CPUS), hidden.get(container.name, 0)
        if beside & (own | ~policy.topology.core_siblings(own)):
            yield f"cpu: {list_text(CPUMask(beside))} is hidden for {container.name} of {pod.uid}, not beside its CPUs"
        if not claims[container.name]:
            continue
        for other in _beside(pod, position):
            shared = whole[container.name] & whole[other.name]
            if shared and (claims[other.name] or container.kind is not ContainerKind.INIT):
                yield f"cpu: {container.name} of {pod.uid} shares {list_text(shared)} with {other.name}"


def placement_breaks(settings: Settings, pod: Pod, decision: Decision, *, strict: bool = False) -> Breaks:
    """An admitted container has as many CPUs as it asks for, near its hint where the hint is preferred.

    Args:
        strict: near its hint only where the topology policy refuses others.
    """
    policy = settings.cpu
    assert policy is not None
    for container in pod.containers if decision.admitted else ():
        cpus = decision.containers[container.name].cpus.mask
        need = exclusive_cpus(pod, container, policy.gates)
        if cpus.bit_count() != need:
            yield f"{container.name} asks for {need} and has {list_text(cpus)}"
        hint = decision.affinity[container.name]
        if hint.mask is None or not hint.preferred or (strict and settings.topology_policy not in STRICT):
            continue
        near = policy.topology.cpus_in_numa(hint.mask)
        if policy.rules.align_by_socket:
            near = CPUMask(sum(socket for socket in policy.topology.sockets.values() if socket & near))
        if cpus & ~near:
            yield f"{container.name} holds {list_text(cpus & ~near)} outside its preferred nodes"


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


# What v1.37.1 does wrong without a name of a defect yet; breaks that follow from it are expected.

CONTESTED = "a container alone on a node of a group"
"""Best-effort lets it in (memory-manager.md section 5, step 8 looks at several nodes only); from then on the node's
group says nothing of what lies there, releases take from others, and the start depends on the order."""

ENDED_INIT = "an init container that has ended is served again by a restart"
"""kubernetes/kubernetes#123971."""

UNPLACED = "a device without NUMA nodes of a resource that has others"
"""Given out where any device would do; a restart finds no hint for it."""

UNTAKEN = "devices of a pod with resources of its own that no container has taken yet"
"""In pod scope they count in its hints and are taken when its containers are created; until then another pod may get
them, and a restart finds too few."""

WIDER = "memory on other nodes than the stored hint"
"""An extended hint; a restart asks for all of its nodes, and for the CPUs' alone beside it."""

DRAINED = "no CPU is left in the shared pool"
"""kubernetes/kubernetes#141196: the next start refuses an empty default set with assignments."""

FORGOTTEN = "pod entries that a kubelet without PodLevelResourceManagers forgets"
"""The start then misses what only the pod holds (pod-level.md section 6): a refusal, nothing is decided wrongly."""


def weaknesses(node: Node) -> set[str]:
    """Return what of these a node shows."""
    signs = {
        CONTESTED: _has_contested_node(node),
        ENDED_INIT: _has_ended_init_memory(node),
        UNPLACED: _holds_unplaced_device(node),
        UNTAKEN: _waits_for_devices(node),
        WIDER: _has_wider_memory(node),
        DRAINED: not node.cpu.default,
    }
    return {name for name, shown in signs.items() if shown}


def _blocks(node: Node) -> Iterator[tuple[str, Block]]:
    for uid, containers in node.memory.assignments.items():
        for blocks in [node.memory.pods[uid]] if uid in node.memory.pods else containers.values():
            for block in blocks:
                yield uid, block


def _has_contested_node(node: Node) -> bool:
    named: dict[int, set[tuple[int, ...]]] = {}
    for _, block in _blocks(node):
        for number in block.numa:
            named.setdefault(number, set()).add(tuple(sorted(block.numa)))
    return any(groups != {tuple(sorted(node.memory.nodes[number].cells))} for number, groups in named.items())


def _has_wider_memory(node: Node) -> bool:
    for uid, block in _blocks(node):
        hints = node.stored_hints.get(uid, {})
        if any(hint.mask is not None and hint.mask != block.mask for hint in hints.values()):
            return True
    return False


def _has_ended_init_memory(node: Node) -> bool:
    policy, state = node.settings.memory, node.memory
    assert policy is not None
    for pod in node.active.values():
        if pod.qos is not QoS.GUARANTEED or policy.gates.leaves_out(pod):
            continue
        held = state.assignments.get(pod.uid, {})
        for container in pod.containers:
            if container.kind is ContainerKind.INIT and container.name not in held:
                return True
    return False


def _holds_unplaced_device(node: Node) -> bool:
    state = node.providers.devices
    for resource, devices in state.devices.items():
        unplaced = {device.id for device in devices if not device.numa}
        if len(unplaced) < len(devices) and unplaced & state.allocated(resource):
            return True
    return False


def _waits_for_devices(node: Node) -> bool:
    gates, state = node.settings.pod_level, node.providers.devices
    return any(
        len(state.held_by(pod.uid, container.name, resource)) < count
        for pod in node.active.values()
        if gates.manages(pod)
        for container in pod.containers
        for resource, count in device_requests(container, state).items()
    )
