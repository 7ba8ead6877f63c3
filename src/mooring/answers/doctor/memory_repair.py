"""The nearest memory state on which the kubelet starts: today's machine, charged with every entry that it can bear.

An entry is what one container holds, all its types of memory together; where a pod has blocks of its own (KEP-5526,
gate on) the pod with all its containers is one. An entry can stay when its NUMA nodes and its types are there. The
engine starts on the result; where it does not (a group of nodes that do not list the same types, or groups for which no
order of the entries is found), halves of them are charged as long as it does.

Source: kubelet v1.37.1, memorymanager policy_static.go (Start); spec: memory-manager.md sections 5.2 and 7.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

from mooring.answers.doctor.problem import Dropped, EntryHolder, Repaired
from mooring.engine.core.bits import members
from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.memorymanager.policy import STATIC, MemoryPolicy
from mooring.engine.memorymanager.start import Containers, replayed, start
from mooring.engine.memorymanager.state import Block, MemoryState, NUMANodeState
from mooring.explain.phrases import joined, nodes, size

Thing = TypeVar("Thing")
Nodes = Mapping[int, NUMANodeState]


def _charging_order(machine: Nodes, pods: Sequence[Containers]) -> list[Containers] | None:
    """Return the pods, and the containers of each, in an order that leaves bearable groups, or None.

    Args:
        machine: the nodes with their types of memory.
        pods: blocks whose nodes and types exist, in the order to be preferred.
    """

    def placed(pod: Containers, settled: int) -> tuple[Containers, int] | None:
        found = _from_the_end(pod, settled, lambda blocks, after: _settled_by(machine, blocks, after))
        return None if found is None else (tuple(found[0]), found[1])

    found = _from_the_end(pods, 0, placed)
    return None if found is None else found[0]


def _from_the_end(
    things: Sequence[Thing], settled: int, placed: Callable[[Thing, int], tuple[Thing, int] | None]
) -> tuple[list[Thing], int] | None:
    """Return the things in an order in which each may come before the later ones, and all nodes settled then."""
    waiting = list(things)
    order: list[Thing] = []
    while waiting:
        for position in reversed(range(len(waiting))):
            found = placed(waiting[position], settled)
            if found is not None:
                thing, settled = found
                order.append(thing)
                del waiting[position]
                break
        else:
            return None
    return order[::-1], settled


def _settled_by(machine: Nodes, blocks: tuple[Block, ...], settled: int) -> tuple[tuple[Block, ...], int] | None:
    for block in reversed(blocks):
        cells = tuple(members(block.mask))
        if not all(_is_bearable(machine, node, cells) for node in members(block.mask & ~settled)):
            return None
        settled |= block.mask
    return blocks, settled


def _is_bearable(machine: Nodes, node: int, cells: tuple[int, ...]) -> bool:
    return all(name in machine[cell].memory for name in machine[node].memory for cell in cells)


Blocks = tuple[Block, ...]


def repaired_memory(policy: MemoryPolicy, broken: MemoryState, active: Collection[str]) -> Repaired[MemoryState]:
    """Return the state with everything that can stay.

    Args:
        policy: the Static policy of the configuration.
        broken: what the file says.
        active: uids of running pods, where they are known; their entries are taken up first.
    """
    units = counted(policy, broken)
    dropped = {unit: why for unit, blocks in units.items() if (why := _misfit(policy.default_nodes, blocks))}
    waiting = sorted((unit for unit in units if unit not in dropped), key=lambda unit: (unit.uid not in active, unit))
    kept = _taken_up(policy, broken, frozenset(), waiting)
    why = "the kubelet does not start with it on these NUMA nodes beside the other entries"
    dropped |= {unit: why for unit in waiting if unit not in kept}
    state = _started(policy, broken, kept)
    if state is None:
        raise AssertionError("a memory manager without entries starts")
    return Repaired(
        state,
        tuple(
            Dropped(EntryHolder(unit.uid, name), blocks_text(blocks), dropped[unit])
            for unit in sorted(dropped)
            for name, blocks in sorted(broken.assignments[unit.uid].items())
            if unit.container in ("", name)
        ),
    )


def _taken_up(
    policy: MemoryPolicy, broken: MemoryState, kept: frozenset[EntryHolder], waiting: Sequence[EntryHolder]
) -> frozenset[EntryHolder]:
    """Return ``kept`` with the waiting entries that it can bear, the first of them before the others.

    All are tried at once, then halves: nearly every file needs one start, and one bad entry a few more.
    """
    together = kept.union(waiting)
    if _started(policy, broken, together) is not None:
        return together
    if len(waiting) == 1:
        return kept
    half = len(waiting) // 2
    return _taken_up(policy, broken, _taken_up(policy, broken, kept, waiting[:half]), waiting[half:])


def blocks_text(blocks: Blocks) -> str:
    """Return blocks in words.

    >>> blocks_text((Block((0, 1), "memory", 2**30),))
    '1 GiB of memory on NUMA nodes 0-1'
    """
    return joined([f"{size(block.size)} of {block.type} on {nodes(block.numa)}" for block in blocks]) or "no memory"


def counted(policy: MemoryPolicy, state: MemoryState) -> dict[EntryHolder, Blocks]:
    """Return the blocks that count: of a pod as a whole where it has some (KEP-5526), else of its containers."""
    found: dict[EntryHolder, Blocks] = {}
    for uid, containers in sorted(state.assignments.items()):
        if policy.gates.managers and uid in state.pods:
            found[EntryHolder(uid, "")] = state.pods[uid]
        else:
            found |= {EntryHolder(uid, name): blocks for name, blocks in sorted(containers.items())}
    return found


def _misfit(machine: Mapping[int, NUMANodeState], blocks: Blocks) -> str:
    for block in blocks:
        for node in block.numa:
            if node not in machine:
                return f"NUMA node {node} is not there"
            if block.type not in machine[node].memory:
                return f"NUMA node {node} has no {block.type}"
    return ""


def _started(policy: MemoryPolicy, broken: MemoryState, kept: Collection[EntryHolder]) -> MemoryState | None:
    """Return the state with these entries, or None when the kubelet does not start on it."""
    whole = policy.gates.managers
    assignments = {
        uid: held
        for uid, containers in broken.assignments.items()
        if (
            held := {
                name: blocks
                for name, blocks in containers.items()
                if EntryHolder(uid, "" if whole and uid in broken.pods else name) in kept
            }
        )
    }
    pods = {uid: blocks for uid, blocks in broken.pods.items() if EntryHolder(uid, "") in kept}
    charged = [
        (pods[uid],) if whole and uid in pods else tuple(assignments[uid][name] for name in sorted(assignments[uid]))
        for uid in sorted(assignments)
    ]
    order = _charging_order(policy.default_nodes, charged)
    if order is None:
        return None
    state = MemoryState(STATIC, replayed(policy.default_nodes, order), assignments, pods)
    try:
        started = start(policy, state)
    except KubeletCrashError:
        return None
    return None if isinstance(started, str) else started
