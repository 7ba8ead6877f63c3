"""Fragmentation: for each resource the largest request that one NUMA node still takes alone, and what is lost.

The definitions are in docs/explanation/fragmentation.md. Every figure called "largest" was admitted by the engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import accumulate
from typing import Annotated

from mooring.documents.plan import Count, DocumentPart, told
from mooring.engine.core.quantity import Quantity
from mooring.engine.cpumanager.policy import available_cpus
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.memorymanager.hints import container_hints
from mooring.engine.memorymanager.state import NUMANodeState, ReusableMemory
from mooring.engine.node.resources import allocatable
from mooring.engine.topologymanager.merge import RESTRICTED, SINGLE_NUMA_NODE
from mooring.engine.topologymanager.wide import Family
from mooring.explanations import probes

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
    node, policy = kubelet.node, kubelet.settings.cpu
    steps = {}
    if policy is not None:
        steps[probes.CPU] = max(policy.group_size, 1) if policy.rules.whole_cores else 1
    kinds = {name for state in node.memory.nodes.values() for name, table in state.memory.items() if table.allocatable}
    for kind in sorted(kinds, key=lambda name: (name.startswith(HUGEPAGES), name)):
        page = kind.removeprefix(HUGEPAGES)
        steps[kind] = Quantity.parse(page).units if page != kind else 1
    for resource, devices in sorted(node.providers.devices.devices.items()):
        if any(device.numa for device in devices):
            steps[resource] = 1
    return [_of_resource(kubelet, empty or kubelet, resource, step) for resource, step in steps.items()]


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
    probe: probes.Probe = probes.probe_anywhere(kubelet, resource)
    if _is_counted(kubelet, resource):
        # Where one node alone is allowed, more than one has is refused; the refusals need not be tried one by one.
        most = max(free.values(), default=0) if _lies_on_one_node(kubelet, resource) else total
        largest = probes.largest_counted(probe, min(total, most), step)
    else:
        sums = _sums(kubelet.node.memory.nodes, resource)
        largest = probes.largest_of(probe, {min(amount, total) for amount in sums}, step)
    return FragmentationPart(
        resource=resource,
        step=step,
        free=total,
        largest=largest,
        largest_aligned=aligned,
        gathered=gathered,
        lost=gathered - aligned,
        numa_nodes=shares,
    )


def _free(kubelet: Kubelet, resource: str) -> dict[int, int]:
    """Return what is free of a resource on each NUMA node that has any, ascending; devices count on all their nodes."""
    node = kubelet.node
    if resource == probes.CPU:
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
    return left // 1000 if resource == probes.CPU else left


def _largest_by_node(kubelet: Kubelet, resource: str, step: int, free: dict[int, int]) -> dict[int, int]:
    """Return for each NUMA node of ``free`` the largest request that it takes alone."""
    anywhere, guided, limit = (
        probes.probe_anywhere(kubelet, resource),
        probes.can_guide(kubelet),
        _left(kubelet, resource),
    )
    found = {}
    elsewhere = probes.led_elsewhere(kubelet) if resource == probes.CPU else None
    for node, amount in free.items():
        probe, most = probes.probe_on(kubelet, resource, node, anywhere), min(amount, limit)
        if elsewhere is not None:
            found[node] = probes.largest_counted(probe, most, step, partial(elsewhere, node))
        elif _is_counted(kubelet, resource):
            found[node] = probes.largest_counted(probe, most, step)
        else:
            found[node] = probes.largest_measured(probe, most, step, guided=guided)
    return found


def _is_counted(kubelet: Kubelet, resource: str) -> bool:
    return resource == probes.CPU or resource in kubelet.node.providers.devices.devices


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
    probe = probes.probe_pod(resource, 1, guided=False)
    given = container_hints(settings.memory, kubelet.node.memory, ReusableMemory(), probe, probe.containers[0])
    hints = (given or {}).get(probes.MEMORY)
    if isinstance(hints, Family):
        return hints.smallest == 1
    return hints is not None and all(mask.bit_count() == 1 for mask in hints.preferred)


def _sums(nodes: Mapping[int, NUMANodeState], resource: str) -> Iterator[int]:
    """Yield what sets of NUMA nodes have free together: all that a largest request for memory can be equal to.

    Memory lies on one node, on the nodes of a group, or on unused nodes; of as many of the latter those
    with the most free memory together allow the largest request (spec: memory-manager.md section 4).
    """
    tables = {id_: state.memory.get(resource) for id_, state in nodes.items()}
    free = {id_: table.free if table is not None else 0 for id_, table in tables.items()}
    yield from free.values()
    yield from (sum(free[cell] for cell in state.cells) for state in nodes.values())
    unused = [free[id_] for id_, state in nodes.items() if not state.assignments]
    yield from accumulate(sorted(unused, reverse=True))
