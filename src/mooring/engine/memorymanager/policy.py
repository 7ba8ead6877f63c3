"""What the static policy knows before the first pod.

Source: kubelet v1.37.1, memorymanager policy_static.go; spec: memory-manager.md section 1.

The memory of a machine before anything is given away: what each NUMA node keeps for the system, and what is left.

Source: kubelet v1.37.1, memorymanager memory_manager.go (getSystemReservedMemory, validateReservedMemory) and
policy_static.go (getDefaultMachineState); spec: memory-manager.md sections 2 and 3.

How much memory of each type a container or a pod requests.

Source: kubelet v1.37.1, memorymanager policy_static.go (getRequestedResources, getPodRequestedResources); spec:
memory-manager.md section 4.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from mooring.engine.core.config import ReservedMemory
from mooring.engine.core.decision import Cause, Fault
from mooring.engine.core.gotext import UINT64_MAX, quote, uint64
from mooring.engine.core.machineinfo import MachineInfo
from mooring.engine.core.pod import (
    Container,
    ContainerKind,
    Pod,
    PodLevelGates,
    ResourceList,
    guaranteed_equivalent,
    needed_at_once,
)
from mooring.engine.core.quantity import Quantity
from mooring.engine.core.release import NEWEST_RULES, ReleaseRules
from mooring.engine.memorymanager.state import MemoryState, MemoryTable, NUMANodeState
from mooring.lazy import dataclass, field

STATIC = "Static"


@dataclass(frozen=True, slots=True)
class MemoryPolicy:
    """Everything that the policy knows before the first pod."""

    default_nodes: Mapping[int, NUMANodeState]
    """The machine state of an empty node."""
    gates: PodLevelGates = field(default_factory=PodLevelGates)
    fixed_defects: frozenset[str] = frozenset()
    """Defects of v1.37.1 that are not to be reproduced (spec: README.md section 5)."""
    resizes: bool = False
    """Whether memory grows with a resize (extension exclusive-resize with its gate)."""
    older: ReleaseRules = NEWEST_RULES
    """Rules of an older release that decide in place of those of the newest."""

    def counts_as_a_whole(self, state: MemoryState, uid: str) -> bool:
        """Tell whether the machine is charged with the blocks of the pod itself, and not with its containers'.

        That is so as soon as the pod has an entry, be it an empty one; what its containers' blocks say is then never
        checked (spec: memory-manager.md sections 6 and 7).
        """
        return self.gates.managers and uid in state.pods


FIELD = "reservedMemory"
MEMORY = "memory"
HUGEPAGES = "hugepages-"

ReservedTable = Mapping[int, Mapping[str, int]]
"""NUMA node id -> memory type -> bytes."""


def is_memory(resource: str) -> bool:
    """Tell whether a resource is one of the memory manager's: memory, or huge pages of any size."""
    return resource == MEMORY or resource.startswith(HUGEPAGES)


def reserved_table(
    entries: Collection[ReservedMemory],
    nodes: Collection[int],
    node_reservation: Mapping[str, Quantity],
    fixed_defects: frozenset[str],
) -> ReservedTable | Fault:
    """Return what is kept of each node, or what the kubelet finds wrong.

    Huge pages cannot be reserved for the node as a whole, so that any entry for them contradicts the sum of zero.

    Args:
        entries: ``reservedMemory`` of the configuration; quantities are known to parse.
        nodes: ids of the machine's NUMA nodes.
        node_reservation: what the node keeps as a whole (spec: configuration.md section 5.3).
        fixed_defects: ``hint-typo`` corrects a misspelt text.
    """
    for entry in entries:
        if entry.numa_node not in nodes:
            text = (
                f"the reserved memory configuration references a NUMA node {entry.numa_node} "
                "that does not exist on this machine"
            )
            return Fault(text, Cause.RESERVED_NODE, FIELD, node=entry.numa_node)
    disagreement = _disagreement(entries, node_reservation)
    if disagreement is not None:
        return disagreement
    table: dict[int, dict[str, int]] = {}
    for entry in entries:
        for resource, text in sorted(entry.limits.items()):
            amount = Quantity.parse(text).stored().as_int64()
            if amount is None:
                verb = "convert" if "hint-typo" in fixed_defects else "covert"
                return Fault(f"could not {verb} a variable of type Quantity to int64", Cause.RESERVED_AMOUNT, FIELD)
            table.setdefault(entry.numa_node, {})[resource] = uint64(amount)
    if uint64(sum(kept.get(MEMORY, 0) for kept in table.values())) == 0:
        return Fault("[memorymanager] you should specify the system reserved memory", Cause.RESERVED_AMOUNT, FIELD)
    return table


def _disagreement(entries: Collection[ReservedMemory], node_reservation: Mapping[str, Quantity]) -> Fault | None:
    sums: dict[str, Quantity] = {}
    for entry in entries:
        for resource, text in entry.limits.items():
            amount = Quantity.parse(text).stored()
            # The kubelet adds the sum so far to each amount: the last one decides in which format the sum is printed.
            sums[resource] = amount + sums[resource] if resource in sums else amount
    wanted = {resource: amount for resource, amount in node_reservation.items() if is_memory(resource)}
    for resource in sorted({*sums, *wanted}):
        configured = sums.get(resource, Quantity.parse("0"))
        expected = wanted.get(resource, Quantity.parse("0"))
        if configured.nano != expected.nano:
            text = (
                f"the total amount {quote(str(configured))} of type {quote(resource)} is not equal to the value "
                f"{quote(str(expected))} determined by Node Allocatable feature"
            )
            return Fault(text, Cause.RESERVED_SUM, FIELD, (resource,), (str(configured), str(expected)))
    return None


def hugepages_type(page_size_kib: int) -> str:
    """Return the resource name of a pool of huge pages.

    >>> hugepages_type(2048), hugepages_type(1048576)
    ('hugepages-2Mi', 'hugepages-1Gi')
    """
    return f"hugepages-{Quantity.of_bytes(page_size_kib * 1024)}"


def default_machine_state(info: MachineInfo, reserved: ReservedTable) -> dict[int, NUMANodeState]:
    """Return the account of every NUMA node of the description, CPU-less ones too."""
    nodes: dict[int, NUMANodeState] = {}
    for node in sorted(info.topology, key=lambda node: node.node_id):
        kept = reserved.get(node.node_id, {})
        tables: dict[str, MemoryTable] = {}
        huge = 0
        for pool in node.hugepages:
            total = uint64(pool.num_pages * pool.page_size * 1024)
            huge = uint64(huge + total)
            resource = hugepages_type(pool.page_size)
            tables[resource] = _table(total, kept.get(resource, 0), 0)
        tables[MEMORY] = _table(node.memory, kept.get(MEMORY, 0), huge)
        nodes[node.node_id] = NUMANodeState(0, tables, (node.node_id,))
    return nodes


def _table(total: int, kept: int, huge: int) -> MemoryTable:
    # Unsigned in the kubelet: what is kept and bound in huge pages beyond the total makes a huge number.
    allocatable = uint64(total - kept - huge)
    return MemoryTable(total, kept, allocatable, 0, allocatable)


def wrapped_nodes(nodes: Mapping[int, NUMANodeState]) -> tuple[int, ...]:
    """Return the NUMA nodes of which more is reserved, or bound in huge pages, than they have.

    The kubelet continues with what its unsigned subtraction leaves, a number beyond all memory.
    """
    return tuple(
        node for node, state in nodes.items() if any(table.allocatable > table.total for table in state.memory.values())
    )


NOT_INT64 = "[memorymanager] failed to represent quantity as int64"

Requests = Mapping[str, int]
"""Memory type -> bytes."""


def container_requests(pod: Pod, container: Container, gates: PodLevelGates) -> Requests | str:
    """Return what a container requests, or the kubelet's error text; zero amounts are kept.

    In a pod that takes the path of KEP-5526 only containers with requests equal to limits get memory of their own.
    """
    if gates.manages(pod) and not guaranteed_equivalent(container):
        return {}
    return _amounts(gates.requests_of(container))


def _amounts(resources: ResourceList) -> Requests | str:
    amounts: dict[str, int] = {}
    for resource, quantity in resources.items():
        if is_memory(resource):
            amount = quantity.as_int64()
            if amount is None:
                return NOT_INT64
            amounts[resource] = amount & UINT64_MAX
    return amounts


def pod_requests(pod: Pod, gates: PodLevelGates, older: ReleaseRules = NEWEST_RULES) -> Requests | str:
    """Return what a whole pod requests at once, or the kubelet's error text.

    Without KEP-5526 it is, for each type that a container requests, the larger of what runs together: apps and
    sidecars, or an init container beside the sidecars started before it. Up to 1.37 only types that some app requests
    count (rule pod-memory-of-app-types; spec: preview.md section 10).
    """
    if gates.manages(pod) and pod.resources is not None:
        asked = _amounts(pod.resources.requests)
        return (
            asked if isinstance(asked, str) else {resource: amount for resource, amount in asked.items() if amount > 0}
        )
    of_containers: dict[str, Requests] = {}
    of_apps: set[str] = set()
    for container in pod.containers:
        amounts = container_requests(pod, container, gates)
        if isinstance(amounts, str):
            return amounts
        of_containers[container.name] = amounts
        of_apps.update(amounts if container.kind is ContainerKind.APP else ())
    needed = needed_at_once(pod, lambda container: of_containers[container.name], uint64)
    if older.pod_memory_of_app_types:
        return {resource: amount for resource, amount in needed.items() if resource in of_apps}
    return needed
