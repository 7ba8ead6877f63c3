"""The laws of a node's CPU state: each returns what breaks it, or nothing."""

from __future__ import annotations

from collections.abc import Iterator

from mooring.engine.core.bits import NO_CPUS, CPUMask, list_text
from mooring.engine.core.pod import ContainerKind, Pod
from mooring.engine.cpumanager.policy import exclusive_cpus
from mooring.engine.node import Decision, Node
from mooring.engine.node.settings import Settings

Breaks = Iterator[str]


def state_breaks(node: Node) -> Breaks:
    """Nothing is owned twice, nothing is lost, reserved CPUs are nobody's."""
    policy = node.settings.cpu
    assert policy is not None
    held = dict[str, CPUMask]()
    for uid, sets in node.cpu.assignments.items():
        held[uid] = NO_CPUS
        for cpus in sets.values():
            held[uid] |= cpus
    everything = node.cpu.default
    for uid, cpus in held.items():
        if cpus & node.cpu.default:
            yield f"{uid} holds {list_text(cpus & node.cpu.default)}, which is in the shared pool"
        if cpus & policy.reserved:
            yield f"{uid} holds the reserved {list_text(cpus & policy.reserved)}"
        others = 0
        for other, theirs in held.items():
            others |= theirs if other != uid else 0
        if cpus & others:
            yield f"{uid} shares {list_text(cpus & others)} with another pod"
        everything |= cpus
    if everything != policy.shareable:
        yield f"{list_text(everything ^ policy.shareable)} is lost or made up"
    for pod in node.active.values():
        yield from _breaks_inside(node, pod)


def _breaks_inside(node: Node, pod: Pod) -> Breaks:
    """Containers that run at the same time share no exclusive CPU."""
    sets = node.cpu.assignments.get(pod.uid, {})
    running = 0
    for container in pod.containers:
        cpus = sets.get(container.name, 0)
        if cpus & running:
            yield f"{container.name} of {pod.uid} shares {list_text(cpus & running)} with a running container"
        if container.kind is not ContainerKind.INIT:
            running |= cpus


def placement_breaks(settings: Settings, pod: Pod, decision: Decision) -> Breaks:
    """An admitted container has as many CPUs as it asks for, near its hint where the hint is preferred."""
    policy = settings.cpu
    assert policy is not None
    if not decision.admitted:
        return
    for container in pod.containers:
        cpus = decision.containers[container.name].cpus.mask
        need = exclusive_cpus(pod, container, policy.gates)
        if cpus.bit_count() != need:
            yield f"{container.name} asks for {need} and has {list_text(cpus)}"
        hint = decision.affinity[container.name]
        if hint.mask is None or not hint.preferred:
            continue
        near = policy.topology.cpus_in_numa(hint.mask)
        if policy.rules.align_by_socket:
            near = CPUMask(sum(socket for socket in policy.topology.sockets.values() if socket & near))
        if cpus & ~near:
            yield f"{container.name} holds {list_text(cpus & ~near)} outside its preferred nodes"
