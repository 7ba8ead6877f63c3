"""The memory manager's hints: every set of NUMA nodes with enough memory that respects the groups in use.

They are what the static policy answers to the topology manager: calculated, or those of what is held already.

Source: kubelet v1.37.1, memorymanager policy_static.go (calculateHints, GetTopologyHints, GetPodTopologyHints,
regenerateHints); spec: memory-manager.md section 4.

Defect memory-nil-hints: where blocks and requests disagree v1.37.1 has no opinion, which the topology manager reads as
"any node will do". In pod scope it holds the blocks of the first container against the request of the whole pod, so
that a pod with several of them always disagrees with itself. Fixed, each container is held against its own request, a
true disagreement is "impossible", and otherwise the nodes are those that the pod has. Init containers may hold less
than they asked for: later containers take over from them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache

from mooring.engine.core.bits import NO_NODES, NUMAMask, mask_of, members
from mooring.engine.core.decision import Observer
from mooring.engine.core.errors import UnsupportedError
from mooring.engine.core.gotext import UINT64_MAX, uint64
from mooring.engine.core.pod import Container, ContainerKind, Pod, QoS
from mooring.engine.memorymanager import pod_partition
from mooring.engine.memorymanager.facts import MemoryHintsAsked
from mooring.engine.memorymanager.policy import MemoryPolicy, Requests, container_requests, pod_requests
from mooring.engine.memorymanager.state import (
    NOTHING_LEFT,
    Block,
    ContainerBlocks,
    Leftover,
    MemoryState,
    MemoryTable,
    NUMANodeState,
    ReusableMemory,
    account,
    free_in,
    leftover_for,
)
from mooring.engine.topologymanager.hints import IMPOSSIBLE, Hint, Hints
from mooring.engine.topologymanager.wide import (
    AnyHints,
    Demand,
    Family,
    ResourceHints,
    as_ids,
    over_subsets,
    sets_of_size,
)

MOST_LISTED = 8
"""Largest number of NUMA nodes for which hints are listed; with more of them they are described."""


def calculate_hints(
    nodes: Mapping[int, NUMANodeState], requests: Requests, leftover: Leftover = NOTHING_LEFT
) -> AnyHints | None:
    """Return the node sets that can serve the requests; None when there is none.

    The same masks hold for every requested type. None means "no opinion" to the topology manager: the failure shows
    only when memory is allocated.

    Args:
        nodes: the machine state.
        requests: memory type -> bytes; not empty.
        leftover: memory of ended init containers of the same pod.

    Raises:
        KubeletCrashError: a node does not list a requested type.
    """
    ids = tuple(sorted(nodes))
    if len(ids) > MOST_LISTED:
        return _family(nodes, ids, requests, leftover)
    tables = [[account(nodes, node, resource) for node in ids] for resource in requests]
    # The node sets for which memory of ended init containers counts
    reusing = frozenset(leftover.amounts)
    if reusing and leftover.assignments is not None:
        sets = as_ids(list(range(1, 1 << len(ids))), ids)
        reusing = frozenset(mask for mask in sets if any(not own & ~mask for own in leftover.amounts))
    return _listed(
        ids,
        tuple([tuple([table.free for table in row]) for row in tables]),
        tuple([tuple([table.allocatable for table in row]) for row in tables]),
        tuple(requests.values()),
        tuple([(node, held.assignments > 0, held.cells) for node, held in leftover.ungrouped(nodes).items()]),
        reusing,
        frozenset(mask for mask in reusing if _serves(nodes, mask, requests, leftover)),
    )


@lru_cache(maxsize=512)
def _listed(
    ids: tuple[int, ...],
    free: tuple[tuple[int, ...], ...],
    allocatable: tuple[tuple[int, ...], ...],
    amounts: tuple[int, ...],
    groups: tuple[tuple[int, bool, tuple[int, ...]], ...],
    reusing: frozenset[NUMAMask],
    serving: frozenset[NUMAMask],
) -> Hints | None:
    """List the hints; they are remembered as those of CPUs are.

    Args:
        ids: of the nodes.
        free: what each has free, for one requested type after the other.
        allocatable: what each has as a whole.
        amounts: requested of each type.
        groups: each node, whether it has assignments, and the nodes of its group.
        reusing: sets of nodes for which memory of ended init containers counts.
        serving: those of them that suffice with it.
    """
    wraps = any(sum(row) > UINT64_MAX for row in allocatable)
    found = _enough(free, amounts, wraps=wraps)
    if wraps:
        # Only where sums wrap around can nodes have free what they have not as a whole.
        found = sorted(set(found).intersection(_enough(allocatable, amounts, wraps=True)))
    masks = set(as_ids([index for index in found if index], ids))
    if wraps:
        # What is left is added to what is free: a sum that sufficed can wrap around.
        masks -= reusing
    masks = _respecting_groups(groups, masks | serving)
    if not masks:
        return None
    smallest = _smallest_size(allocatable, amounts, wraps=wraps)
    preferred = tuple([mask for mask in masks if mask.bit_count() == smallest])
    return Hints(preferred, tuple([mask for mask in masks if mask.bit_count() != smallest]))


def best_hint(hints: AnyHints | None, around: NUMAMask) -> Hint | None:
    """Return the best hint around some nodes: preferred first, then fewer nodes, then the smaller mask."""
    if hints is None:
        return None
    if isinstance(hints, Family):
        mask = hints.best_around(around)
        return None if mask is None else Hint(NUMAMask(mask), hints.prefers(mask))
    for preferred, masks in ((True, hints.preferred), (False, hints.others)):
        wide_enough = [mask for mask in masks if mask & around == around]
        if wide_enough:
            return Hint(min(wide_enough, key=lambda mask: (mask.bit_count(), mask)), preferred)
    return None


def _family(
    nodes: Mapping[int, NUMANodeState], ids: tuple[int, ...], requests: Requests, leftover: Leftover
) -> AnyHints | None:
    """Describe the same hints: nodes without assignments combine freely, all other members are listed.

    Raises:
        UnsupportedError: amounts of so many nodes wrap around; sums of them grow and shrink with the set of nodes.
    """
    if any(table.allocatable > table.total for state in nodes.values() for table in state.memory.values()):
        raise UnsupportedError(
            f"a NUMA node has more reserved, or bound in huge pages, than it has memory: the kubelet's numbers wrap "
            f"around, which is followed on machines of up to {MOST_LISTED} NUMA nodes"
        )
    width = max(ids) + 1
    grown = leftover.amounts if leftover.assignments is not None else {}
    demands = tuple(
        Demand(
            amount,
            _weights(nodes, width, resource, lambda table: table.free),
            bonuses=tuple((mask, types[resource]) for mask, types in grown.items() if types.get(resource)),
        )
        for resource, amount in requests.items()
    )
    whole = tuple(
        Demand(amount, _weights(nodes, width, resource, lambda table: table.allocatable))
        for resource, amount in requests.items()
    )
    smallest = _fewest_nodes(NUMAMask(mask_of(ids)), whole)
    grouped = leftover.ungrouped(nodes)
    free_nodes = NUMAMask(mask_of(node for node in ids if grouped[node].assignments == 0))
    candidates = {NUMAMask(mask_of(state.cells)) for state in grouped.values() if state.assignments > 0}
    candidates.update(leftover.amounts)
    serving = {mask for mask in candidates if _serves(nodes, mask, requests, leftover)}
    groups = [(node, state.assignments > 0, state.cells) for node, state in grouped.items()]
    family = Family(
        free_nodes,
        # What is taken over may make up for memory that the nodes cannot have: they must be able to.
        (*demands, *whole) if grown else demands,
        smallest,
        listed=tuple(sorted(_respecting_groups(groups, serving))),
        barred=frozenset(NUMAMask(1 << node) for node in ids if len(grouped[node].cells) > 1),
    )
    return family if family.listed or family.first_of_size_up() is not None else None


@lru_cache(maxsize=64)
def _fewest_nodes(nodes: NUMAMask, whole: tuple[Demand, ...]) -> int:
    """Return the size of the smallest sets of nodes that meet the demands; all nodes when none does.

    What the nodes have as a whole does not change: it is remembered.
    """
    count = nodes.bit_count()
    sizes = range(1, count + 1)
    return next((size for size in sizes if any(True for _ in sets_of_size(nodes, size, 0, whole))), count)


def _weights(
    nodes: Mapping[int, NUMANodeState], width: int, resource: str, amount: Callable[[MemoryTable], int]
) -> tuple[int, ...]:
    return tuple(amount(account(nodes, node, resource)) if node in nodes else 0 for node in range(width))


def _serves(nodes: Mapping[int, NUMANodeState], mask: NUMAMask, requests: Requests, leftover: Leftover) -> bool:
    """Tell whether the nodes of a mask can give what is asked; what is left counts on top of what is free."""
    extra = leftover.within(mask)
    for resource, amount in requests.items():
        if uint64(sum(account(nodes, node, resource).allocatable for node in members(mask))) < amount:
            return False
        if uint64(free_in(nodes, mask, resource) + extra.get(resource, 0)) < amount:
            return False
    return True


def _enough(rows: Sequence[Sequence[int]], amounts: tuple[int, ...], *, wraps: bool) -> Iterable[int]:
    """Return the sets of positions whose sum suffices for every type.

    Args:
        rows: one amount of each node, for one type after the other.
        amounts: of each type.
        wraps: whether sums may exceed the 64 bits of the kubelet's numbers, which then wrap around.
    """
    found: Iterable[int] = range(1 << len(rows[0]))
    for row, amount in zip(rows, amounts, strict=True):
        sums = over_subsets(row)
        if wraps:
            sums = [uint64(total) for total in sums]
        found = [index for index in found if sums[index] >= amount]
    return found


def _respecting_groups(groups: Collection[tuple[int, bool, tuple[int, ...]]], masks: set[NUMAMask]) -> set[NUMAMask]:
    """Drop what would cut through a group of nodes in use.

    A single node must not belong to a group of several. Of several nodes, those with assignments must form exactly
    this group.
    """
    used = {node: mask_of(cells) for node, is_used, cells in groups if is_used}
    in_use = mask_of(used)
    kept = {mask for mask in masks if not mask & in_use}
    for node, _, cells in groups:
        single, group = NUMAMask(1 << node), NUMAMask(mask_of(cells))
        if len(cells) < 2:
            kept |= {single} & masks
            continue
        kept.discard(single)
        if group in masks and all(used.get(other, group) == group for other in members(group)):
            kept.add(group)
    return kept


@lru_cache(maxsize=256)
def _smallest_size(allocatable: tuple[tuple[int, ...], ...], amounts: tuple[int, ...], *, wraps: bool) -> int:
    """Return the fewest nodes that could serve the requests on an empty machine; all of them when none could."""
    enough = _enough(allocatable, amounts, wraps=wraps)
    return min((index.bit_count() for index in enough if index), default=len(allocatable[0]))


def container_hints(
    policy: MemoryPolicy,
    state: MemoryState,
    reusable: ReusableMemory,
    pod: Pod,
    container: Container,
    observer: Observer | None = None,
) -> ResourceHints | None:
    """Return the hints for one container; None when it has no opinion."""
    if pod.qos is not QoS.GUARANTEED or policy.gates.leaves_out(pod):
        return None
    requests = container_requests(pod, container, policy.gates)
    if isinstance(requests, str) or not requests:
        return None
    existing = state.assignments.get(pod.uid, {}).get(container.name)
    if existing is not None:
        # The hints for a container that has blocks; None when the kubelet has no opinion
        if MEMORY_NIL_HINTS not in policy.fixed_defects:
            return hints_as_in_kubelet(existing, requests)
        if not _fits(container, existing, requests):
            return dict.fromkeys(requests, IMPOSSIBLE)
        return {block.type: Hints(preferred=(block.mask,)) for block in existing}
    if pod_partition.is_served_as_a_whole(policy, state, pod):
        return None
    return _calculated(policy, state, reusable, pod, container.name, requests, observer)


def pod_hints(
    policy: MemoryPolicy, state: MemoryState, reusable: ReusableMemory, pod: Pod, observer: Observer | None = None
) -> ResourceHints | None:
    """Return the hints for a whole pod; None when it has no opinion."""
    if pod.qos is not QoS.GUARANTEED or policy.gates.leaves_out(pod):
        return None
    requests = pod_requests(pod, policy.gates, policy.older)
    if isinstance(requests, str) or not requests:
        return None
    if policy.gates.manages(pod) and pod_partition.shared_pool_error(pod, requests, policy.gates)[0]:
        return dict.fromkeys(requests, IMPOSSIBLE)
    if policy.gates.manages(pod) and pod_partition.POD_RESTART in policy.fixed_defects:
        if pod_partition.restored_blocks(policy, state, pod, requests) is not None:
            return hints_as_in_kubelet(state.pods[pod.uid], requests)
        state = pod_partition.without_pod(state, pod.uid)
    elif pod_partition.keeps_pod(policy, state, pod):
        return hints_as_in_kubelet(state.pods[pod.uid], requests)
    held = state.assignments.get(pod.uid, {})
    if any(container.name in held for container in pod.containers):
        return _regenerated_for_pod(policy, pod, held, requests)
    return _calculated(policy, state, reusable, pod, "", requests, observer)


def _calculated(
    policy: MemoryPolicy,
    state: MemoryState,
    reusable: ReusableMemory,
    pod: Pod,
    container: str,
    requests: Requests,
    observer: Observer | None,
) -> ResourceHints | None:
    charged = {} if policy.counts_as_a_whole(state, pod.uid) else state.assignments.get(pod.uid, {})
    leftover = leftover_for(policy.fixed_defects, reusable, pod, container, charged)
    hints = calculate_hints(state.nodes, requests, leftover)
    if observer is not None:
        observer(
            MemoryHintsAsked(
                pod=pod.uid,
                container=container,
                requests=requests,
                free={
                    node: {resource: table.free for resource, table in account.memory.items()}
                    for node, account in state.nodes.items()
                },
                groups=tuple(
                    sorted({tuple(sorted(node.cells)) for node in state.nodes.values() if len(node.cells) > 1})
                ),
                hints=hints,
            )
        )
    return None if hints is None else dict.fromkeys(requests, hints)


MEMORY_NIL_HINTS = "memory-nil-hints"
HIGHEST_NODE = 63
"""The kubelet's masks of NUMA nodes have 64 bits."""


def _regenerated_for_pod(
    policy: MemoryPolicy, pod: Pod, held: ContainerBlocks, requests: Requests
) -> ResourceHints | None:
    """Return the hints for a pod of which some container has blocks; None when the kubelet has no opinion.

    Up to 1.37 the blocks of the first one are held against the request of the pod, not of that container (rule
    restart-blocks-against-pod; spec: preview.md section 10).
    """
    holders = [container for container in pod.containers if container.name in held]
    if MEMORY_NIL_HINTS not in policy.fixed_defects:
        of_pod = policy.older.restart_blocks_against_pod
        asked = requests if of_pod else container_requests(pod, holders[0], policy.gates)
        return None if isinstance(asked, str) else hints_as_in_kubelet(held[holders[0].name], asked)
    nodes = NO_NODES
    for container in holders:
        own = container_requests(pod, container, policy.gates)
        if isinstance(own, str) or not _fits(container, held[container.name], own):
            return dict.fromkeys(requests, IMPOSSIBLE)
        for block in held[container.name]:
            nodes |= block.mask
    return dict.fromkeys(requests, Hints(preferred=(nodes,)))


def hints_as_in_kubelet(blocks: tuple[Block, ...], requests: Requests) -> ResourceHints | None:
    """Return one preferred hint for each block, or None where blocks and requests disagree.

    >>> hints_as_in_kubelet((Block((0,), "memory", 5),), {"memory": 5})
    {'memory': Hints(preferred=(1,), others=(), nil=())}
    >>> hints_as_in_kubelet((Block((0,), "memory", 4),), {"memory": 5})
    """
    if len(blocks) != len(requests):
        return None
    masks: dict[str, tuple[NUMAMask, ...]] = dict.fromkeys(requests, ())
    for block in blocks:
        if requests.get(block.type) != block.size or not all(0 <= node <= HIGHEST_NODE for node in block.numa):
            return None
        masks[block.type] += (block.mask,)
    return {resource: Hints(preferred=found) for resource, found in masks.items()}


def _fits(container: Container, blocks: tuple[Block, ...], requests: Requests) -> bool:
    sizes = {block.type: block.size for block in blocks}
    if len(blocks) != len(requests) or sizes.keys() != requests.keys():
        return False
    if container.kind is ContainerKind.INIT:
        return all(size <= requests[resource] for resource, size in sizes.items())
    return sizes == requests
