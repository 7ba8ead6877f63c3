"""Fragmentation: for each resource the largest request that one NUMA node still takes alone, and what is lost.

The definitions are in docs/explanation/fragmentation.md. Every figure called "largest" was admitted by the engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Annotated

from mooring.documents.plan import Count, DocumentPart, told
from mooring.engine.core.quantity import Quantity
from mooring.engine.cpumanager.policy import available_cpus
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.memorymanager.hints import container_hints
from mooring.engine.memorymanager.reuse import ReusableMemory
from mooring.engine.memorymanager.state import NUMANodeState
from mooring.engine.node.resources import allocatable
from mooring.engine.topologymanager.merge import RESTRICTED, SINGLE_NUMA_NODE
from mooring.engine.topologymanager.wide import Family
from mooring.explanations.probes import (
    CPU,
    MEMORY,
    Probe,
    can_guide,
    largest_counted,
    largest_measured,
    largest_of,
    led_elsewhere,
    probe_anywhere,
    probe_on,
    probe_pod,
)

HUGEPAGES = "hugepages-"


class NodeSharePart(DocumentPart):
    """What one NUMA node has of a resource."""

    node: Count
    free: Annotated[int, told("What no container has for itself.")]
    largest: Annotated[int, told("The largest request that the kubelet would now put on this node alone.")]
    empty: Annotated[int, told("The largest request that an empty node takes alone.")]

    @property
    def most(self) -> int:
        """What the NUMA node can take alone.

        Where nothing leads a pod to a NUMA node, an empty one may give less than one in use, from which it has fewer
        ways to choose.
        """
        return max(self.largest, self.empty)


class FragmentationPart(DocumentPart):
    """How much of a free resource one request can get."""

    resource: Annotated[str, told("In CPUs, bytes or devices, before the first replica.")]
    step: Annotated[int, told("Requests are multiples of this.")]
    free: Annotated[int, told("What is free on all NUMA nodes together.")]
    largest: Annotated[int, told("The largest request that the kubelet would now admit.")]
    largest_aligned: Annotated[int, told("The largest request that one NUMA node takes alone.")]
    gathered: Annotated[int, told("What one NUMA node would take if all that is free lay together.")]
    lost: Annotated[int, told("What the largest aligned request has lost to fragmentation.")]
    numa_nodes: list[NodeSharePart]


def fragmentation(kubelet: Kubelet, empty: Kubelet | None) -> list[FragmentationPart]:
    """Return the fragmentation of CPUs, memory, each size of huge pages and each device resource.

    What no manager gives away by NUMA node is left out: CPUs under the CPU manager policy ``none``, memory under the
    memory manager policy ``None``.

    Args:
        kubelet: the node.
        empty: the same node without pods; None when there is none.
    """
    return [_of_resource(kubelet, empty or kubelet, resource, step) for resource, step in _resources(kubelet)]


def _resources(kubelet: Kubelet) -> Iterator[tuple[str, int]]:
    """Yield each resource with the step of its amounts."""
    node = kubelet.node
    policy = node.settings.cpu
    if policy is not None:
        yield CPU, max(policy.group_size, 1) if policy.rules.whole_cores else 1
    kinds = {name for state in node.memory.nodes.values() for name, table in state.memory.items() if table.allocatable}
    for resource in sorted(kinds, key=lambda name: (name.startswith(HUGEPAGES), name)):
        yield resource, _page(resource)
    for resource, devices in sorted(node.providers.devices.devices.items()):
        if any(device.numa for device in devices):
            yield resource, 1


def _page(resource: str) -> int:
    return Quantity.parse(resource.removeprefix(HUGEPAGES)).units if resource.startswith(HUGEPAGES) else 1


def _of_resource(kubelet: Kubelet, empty: Kubelet, resource: str, step: int) -> FragmentationPart:
    free, ever = _free(kubelet, resource), _free(empty, resource)
    limit = _left(kubelet, resource)
    shares = [
        NodeSharePart(node, free.get(node, 0), largest, most)
        for (node, largest), most in zip(
            _largest_by_node(kubelet, resource, step, {node: free.get(node, 0) for node in ever}).items(),
            _largest_by_node(empty, resource, step, ever).values(),
            strict=True,
        )
    ]
    total = min(_total_free(kubelet, resource), limit)
    aligned = max((share.largest for share in shares), default=0)
    gathered = min(total, max((share.most for share in shares), default=0))
    gathered -= gathered % step
    return FragmentationPart(
        resource=resource,
        step=step,
        free=total,
        largest=_largest(kubelet, resource, step, free, total),
        largest_aligned=aligned,
        gathered=gathered,
        lost=gathered - aligned,
        numa_nodes=shares,
    )


def _free(kubelet: Kubelet, resource: str) -> dict[int, int]:
    """Return what is free of a resource on each NUMA node that has any, ascending; devices count on all their nodes."""
    node = kubelet.node
    if resource == CPU:
        topology, policy = node.settings.topology, node.settings.cpu
        if topology is None or policy is None:
            return {}
        available = available_cpus(policy, node.cpu)
        return {id_: (cpus & available).bit_count() for id_, cpus in topology.numa.items() if cpus & ~policy.reserved}
    devices = node.providers.devices
    if resource in devices.devices:
        available_ids = devices.available(resource)
        known = sorted({id_ for device in devices.devices[resource] for id_ in device.numa or ()})
        return {
            id_: sum(1 for one in devices.devices[resource] if id_ in (one.numa or ()) and one.id in available_ids)
            for id_ in known
        }
    tables = {id_: state.memory.get(resource) for id_, state in sorted(node.memory.nodes.items())}
    return {id_: table.free for id_, table in tables.items() if table is not None and table.allocatable}


def _total_free(kubelet: Kubelet, resource: str) -> int:
    devices = kubelet.node.providers.devices
    if resource in devices.devices:
        return len(devices.available(resource))
    return sum(_free(kubelet, resource).values())


def _left(kubelet: Kubelet, resource: str) -> int:
    """Return what the node resources check leaves of a resource; it does not look at devices."""
    capacity = allocatable(kubelet.settings.reservation)
    if resource not in capacity:
        return _total_free(kubelet, resource)
    left = max(capacity[resource] - kubelet.used.get(resource, 0), 0)
    return left // 1000 if resource == CPU else left


def _largest_by_node(kubelet: Kubelet, resource: str, step: int, free: dict[int, int]) -> dict[int, int]:
    """Return for each NUMA node of ``free`` the largest request that it takes alone."""
    anywhere, guided, limit = probe_anywhere(kubelet, resource), can_guide(kubelet), _left(kubelet, resource)
    found = {}
    elsewhere = led_elsewhere(kubelet) if resource == CPU else None
    for node, amount in free.items():
        probe, most = probe_on(kubelet, resource, node, anywhere), min(amount, limit)
        if elsewhere is not None:
            found[node] = largest_counted(probe, most, step, partial(elsewhere, node))
        elif _is_counted(kubelet, resource):
            found[node] = largest_counted(probe, most, step)
        else:
            found[node] = largest_measured(probe, most, step, guided=guided)
    return found


def _is_counted(kubelet: Kubelet, resource: str) -> bool:
    return resource == CPU or resource in kubelet.node.providers.devices.devices


def _largest(kubelet: Kubelet, resource: str, step: int, free: dict[int, int], total: int) -> int:
    """Return the largest request that is admitted at all."""
    probe: Probe = probe_anywhere(kubelet, resource)
    if not _is_counted(kubelet, resource):
        return largest_of(probe, {min(amount, total) for amount in _sums(kubelet, resource)}, step)
    if _lies_on_one_node(kubelet, resource):
        # More than one node has is refused there; the refusals need not be tried one by one.
        total = min(total, max(free.values(), default=0))
    return largest_counted(probe, total, step)


def _lies_on_one_node(kubelet: Kubelet, resource: str) -> bool:
    """Tell whether the policy admits a probe on one NUMA node only.

    restricted admits what all hints prefer. Those for the byte of memory that a probe requests prefer single nodes,
    where there are any.
    """
    settings = kubelet.settings
    if settings.topology_policy == SINGLE_NUMA_NODE:
        return len(settings.numa_ids) > 1
    if settings.topology_policy != RESTRICTED or settings.memory is None:
        return False
    probe = probe_pod(resource, 1, guided=False)
    given = container_hints(settings.memory, kubelet.node.memory, ReusableMemory(), probe, probe.containers[0])
    hints = (given or {}).get(MEMORY)
    if isinstance(hints, Family):
        return hints.smallest == 1
    return hints is not None and all(mask.bit_count() == 1 for mask in hints.preferred)


def _sums(kubelet: Kubelet, resource: str) -> Iterator[int]:
    """Yield what sets of NUMA nodes have free together: all that a largest request for memory can be equal to.

    Memory lies on one node, on the nodes of a group, or on unused nodes; of as many of the latter those
    with the most free memory together allow the largest request (spec: memory-manager.md section 4).
    """
    nodes = kubelet.node.memory.nodes
    unused = []
    for state in nodes.values():
        yield _free_of(state, resource)
        yield sum(_free_of(nodes[cell], resource) for cell in state.cells)
        if not state.assignments:
            unused.append(_free_of(state, resource))
    total = 0
    for amount in sorted(unused, reverse=True):
        total += amount
        yield total


def _free_of(state: NUMANodeState, resource: str) -> int:
    table = state.memory.get(resource)
    return table.free if table is not None else 0
