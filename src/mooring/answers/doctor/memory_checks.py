"""Does a memory manager's state fit the machine and the configuration, and itself? And the nearest state that does.

The nearest state on which the kubelet starts is today's machine, charged with every entry that it can bear. An entry is
what one container holds, all its types of memory together; where a pod has blocks of its own (KEP-5526, gate on) the
pod with all its containers is one. An entry can stay when its NUMA nodes and its types are there. The engine starts on
the result; where it does not (a group of nodes that do not list the same types, or groups for which no order of the
entries is found), halves of them are charged as long as it does.

Source: kubelet v1.37.1, memorymanager policy_static.go (Start); spec: memory-manager.md sections 5.2 and 7.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from mooring.answers.doctor.cpu_repair import Dropped, EntryHolder, Problem, Repaired, Severity
from mooring.engine.checkpoint.contents import MemoryContents
from mooring.engine.core.bits import members
from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.core.machineinfo import HIGHEST_NODE
from mooring.engine.memorymanager.facts import StartLeftToChance
from mooring.engine.memorymanager.policy import STATIC, MemoryPolicy
from mooring.engine.memorymanager.start import Containers, replayed, start
from mooring.engine.memorymanager.state import Block, MemoryState, MemoryTable, NUMANodeState
from mooring.engine.node.start import MEMORY_FILE
from mooring.explanations.phrases import joined, nodes, size, sizes

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


NODES_DIFFER = "MOOR-330"
TYPES_DIFFER = "MOOR-331"
TOTALS_DIFFER = "MOOR-332"
RESERVATION_DIFFERS = "MOOR-333"
NO_MACHINE_STATE = "MOOR-334"
ACCOUNTS_DIFFER = "MOOR-335"
BLOCKS_ELSEWHERE = "MOOR-336"
CRASH = "MOOR-337"
LEFT_TO_CHANCE = "MOOR-338"
OVERCOMMITTED = "MOOR-339"


def check_memory_state(policy: MemoryPolicy, contents: MemoryContents) -> Iterator[Problem]:
    """Yield what is wrong with the state under the Static policy."""
    state, held = contents.state, counted(policy, contents.state)
    if contents.null:
        yield _about(CRASH, f"The kubelet crashes on this file: {joined(contents.null)} is null.")
    if contents.has_nodes and not state.nodes:
        if state.assignments:
            yield _about(
                NO_MACHINE_STATE, "The file has entries of containers but no machine state.", holders=tuple(held)
            )
    elif contents.has_nodes:
        yield from _machine_problems(policy.default_nodes, state.nodes)
        yield from _account_problems(policy, state)
    yield from _block_problems(policy.default_nodes, held)


def _machine_problems(expected: Nodes, real: Nodes) -> Iterator[Problem]:
    if expected.keys() != real.keys():
        gone, new = sorted(real.keys() - expected.keys()), sorted(expected.keys() - real.keys())
        parts = [f"the file has {nodes(gone)}, which this machine does not have"] if gone else []
        parts += [f"this machine has {nodes(new)}, which the file does not have"] if new else []
        yield _about(NODES_DIFFER, _sentence(joined(parts)), nodes=(*gone, *new))
    both = sorted(expected.keys() & real.keys())
    other = [node for node in both if expected[node].memory.keys() != real[node].memory.keys()]
    if other:
        parts = [_types_text(node, expected[node], real[node]) for node in other]
        yield _about(TYPES_DIFFER, _sentence(joined(parts)), nodes=other)
    yield from _table_problems(expected, real, both)


def _types_text(node: int, expected: NUMANodeState, real: NUMANodeState) -> str:
    gone, new = sorted(real.memory.keys() - expected.memory.keys()), sorted(expected.memory.keys() - real.memory.keys())
    parts = [f"the file has {joined(gone)}"] if gone else []
    parts += [f"the machine has {joined(new)}"] if new else []
    return f"on NUMA node {node} {joined(parts)} and the other does not"


def _table_problems(expected: Nodes, real: Nodes, both: list[int]) -> Iterator[Problem]:
    comparisons: tuple[tuple[str, str, Callable[[MemoryTable], int]], ...] = (
        (TOTALS_DIFFER, "has", lambda table: table.total),
        (RESERVATION_DIFFERS, "reserves", lambda table: table.system_reserved),
    )
    explained: set[tuple[int, str]] = set()
    for code, verb, amount in comparisons:
        other = _differences(expected, real, both, amount)
        explained |= {(node, name) for node, name, *_ in other}
        if other:
            yield _about(code, _difference_text(other, verb), nodes=sorted({node for node, *_ in other}))
    rest = [
        one for one in _differences(expected, real, both, lambda table: table.allocatable) if one[:2] not in explained
    ]
    # What is allocatable follows from totals and reservation, of memory also from the pools of huge pages.
    rest = [one for one in rest if not any(node == one[0] for node, _ in explained)]
    if rest:
        yield _about(TOTALS_DIFFER, _difference_text(rest, "can assign"), nodes=sorted({node for node, *_ in rest}))


def _differences(
    expected: Nodes, real: Nodes, both: list[int], amount: Callable[[MemoryTable], int]
) -> list[tuple[int, str, int, int]]:
    return [
        (node, name, amount(real[node].memory[name]), amount(expected[node].memory[name]))
        for node in both
        for name in sorted(expected[node].memory.keys() & real[node].memory.keys())
        if amount(real[node].memory[name]) != amount(expected[node].memory[name])
    ]


def _difference_text(found: list[tuple[int, str, int, int]], verb: str) -> str:
    parts = []
    for node, name, was, now in found:
        text = sizes(was, now)
        parts.append(f"{text(now)} of {name} on NUMA node {node}, and {text(was)} when the file was written")
    who = "The configuration" if verb == "reserves" else "The machine"
    return f"{who} {verb} {'; '.join(parts)}."


def _account_problems(policy: MemoryPolicy, state: MemoryState) -> Iterator[Problem]:
    """Ask the engine whether the file is right about itself, on the machine that the file describes."""
    if not all(0 <= node <= HIGHEST_NODE for node in state.nodes):
        return  # no machine has such nodes, which is reported already
    facts: list[object] = []
    try:
        answer = start(replace(policy, default_nodes=_emptied(state.nodes)), state, facts.append)
    except KubeletCrashError as error:
        yield _about(CRASH, f"The kubelet crashes on this file: {error}.")
        return
    if isinstance(answer, str):
        if "the memory assignment uses" not in answer:
            yield _about(
                ACCOUNTS_DIFFER,
                "The entries of the containers do not add up to the machine state of the same file: another number "
                "of assignments, another group of nodes, or other sums of free and reserved memory."
                + (
                    " The machine state counts whole pods, whose entries this kubelet does not read."
                    if state.pods and not policy.gates.managers
                    else ""
                ),
            )
        return
    for fact in facts:
        if isinstance(fact, StartLeftToChance):
            yield _about(
                LEFT_TO_CHANCE,
                f"The kubelet starts on this file only by chance: it adds up the entries in random order, and "
                f"{nodes(fact.nodes)} may end in another group than before. It starts after some attempts.",
                nodes=fact.nodes,
                severity="warning",
            )


def _emptied(real: Nodes) -> dict[int, NUMANodeState]:
    """Return the file's own machine with nothing given away."""
    return {
        node: NUMANodeState(
            0,
            {name: replace(table, reserved=0, free=table.allocatable) for name, table in state.memory.items()},
            (node,),
        )
        for node, state in real.items()
    }


def _block_problems(machine: Nodes, held: Mapping[EntryHolder, tuple[Block, ...]]) -> Iterator[Problem]:
    lost: dict[EntryHolder, set[str]] = {}
    for holder, blocks in held.items():
        for block in blocks:
            for node in block.numa:
                if node not in machine:
                    lost.setdefault(holder, set()).add(f"NUMA node {node}")
                elif block.type not in machine[node].memory:
                    lost.setdefault(holder, set()).add(f"{block.type} on NUMA node {node}")
    if lost:
        places = sorted({place for found in lost.values() for place in found})
        yield _about(
            BLOCKS_ELSEWHERE,
            f"Containers hold memory that this machine does not have: {joined(places)}.",
            holders=tuple(lost),
        )
        return
    overcommitted = _overcommitted(machine, held)
    if overcommitted:
        yield _about(
            OVERCOMMITTED,
            f"The entries hold more memory than the machine has: {joined(overcommitted)}. The kubelet "
            "starts and counts only what the machine has.",
            severity="warning",
        )


def _overcommitted(machine: Nodes, held: Mapping[EntryHolder, tuple[Block, ...]]) -> list[str]:
    """Return where blocks of one set of nodes sum up to more than these nodes can give away."""
    sums: dict[tuple[tuple[int, ...], str], int] = {}
    for blocks in held.values():
        for block in blocks:
            key = (tuple(sorted(set(block.numa))), block.type)
            sums[key] = sums.get(key, 0) + block.size
    found = []
    for (cells, name), amount in sorted(sums.items()):
        allocatable = sum(machine[cell].memory[name].allocatable for cell in cells)
        if cells and amount > allocatable:
            text = sizes(amount, allocatable)
            found.append(f"{text(amount)} of {name} on {nodes(cells)}, which can assign {text(allocatable)}")
    return found


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _about(
    code: str,
    message: str,
    *,
    holders: tuple[EntryHolder, ...] = (),
    nodes: list[int] | tuple[int, ...] = (),
    severity: Severity = "error",
) -> Problem:
    return Problem(code, severity, MEMORY_FILE, message, holders, nodes=tuple(nodes))
