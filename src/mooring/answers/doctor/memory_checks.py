"""Does a memory manager's state fit the machine and the configuration, and itself? And the nearest state that does.

The nearest state on which the kubelet starts is today's machine, charged with every entry that it can bear. An entry is
what one container holds, all its types of memory together; where a pod has blocks of its own (KEP-5526, gate on) the
pod with all its containers is one. An entry can stay when its NUMA nodes and its types are there. The engine starts on
the result; where it does not (a group of nodes that do not list the same types, or groups for which no order of the
entries is found), halves of them are charged as long as it does.

Source: kubelet v1.37.1, memorymanager policy_static.go (Start); spec: memory-manager.md sections 5.2 and 7.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from mooring.answers.doctor.answer import DroppedEntryPart, EntryHolder, ProblemPart, problem
from mooring.answers.doctor.answer import dropped as dropped_entry
from mooring.answers.doctor.cpu_checks import only
from mooring.engine.checkpoint.salvage import MemoryContents
from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.core.machineinfo import HIGHEST_NODE
from mooring.engine.memorymanager.facts import StartLeftToChance
from mooring.engine.memorymanager.policy import STATIC, MemoryPolicy
from mooring.engine.memorymanager.start import blocks_by_pod, counted_blocks, order_from_the_end, replayed, start
from mooring.engine.memorymanager.state import Block, MemoryState, MemoryTable, NUMANodeState
from mooring.engine.node.settings import MEMORY_FILE
from mooring.explanations.phrases import joined, nodes, size, sizes

Nodes = Mapping[int, NUMANodeState]
Blocks = tuple[Block, ...]


def repaired_memory(
    policy: MemoryPolicy, broken: MemoryState, active: Collection[str]
) -> tuple[MemoryState, tuple[DroppedEntryPart, ...]]:
    """Return the state with everything that can stay, and what cannot.

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
    return state, tuple(
        dropped_entry(EntryHolder(unit.uid, name), blocks_text(blocks), dropped[unit])
        for unit in sorted(dropped)
        for name, blocks in sorted(broken.assignments[unit.uid].items())
        if unit.container in ("", name)
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
    return {
        EntryHolder(uid, name): blocks
        for uid in sorted(state.assignments)
        for name, blocks in counted_blocks(policy, state, uid).items()
    }


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

    def stays(uid: str, name: str, _held: object) -> bool:
        return EntryHolder(uid, "" if policy.counts_as_a_whole(broken, uid) else name) in kept

    pods = {uid: blocks for uid, blocks in broken.pods.items() if EntryHolder(uid, "") in kept}
    state = MemoryState(STATIC, {}, only(broken.assignments, stays), pods)
    machine = policy.default_nodes

    def is_bearable(node: int, block: Block) -> bool:
        return all(name in machine[cell].memory for name in machine[node].memory for cell in block.numa)

    order = order_from_the_end(blocks_by_pod(policy, state), is_bearable)
    if order is None:
        return None
    state = replace(state, nodes=replayed(machine, order))
    try:
        started = start(policy, state)
    except KubeletCrashError:
        return None
    return None if isinstance(started, str) else started


def check_memory_state(policy: MemoryPolicy, contents: MemoryContents) -> Iterator[ProblemPart]:
    """Yield what is wrong with the state under the Static policy."""
    state, held = contents.state, counted(policy, contents.state)
    if contents.null:
        yield problem("MOOR-337", MEMORY_FILE, why=f"{joined(contents.null)} is null")
    if contents.has_nodes and not state.nodes:
        if state.assignments:
            yield problem("MOOR-334", MEMORY_FILE, held)
    elif contents.has_nodes:
        expected, real = policy.default_nodes, state.nodes
        if expected.keys() != real.keys():
            gone, new = sorted(real.keys() - expected.keys()), sorted(expected.keys() - real.keys())
            parts = [f"the file has {nodes(gone)}, which this machine does not have"] if gone else []
            parts += [f"this machine has {nodes(new)}, which the file does not have"] if new else []
            yield problem("MOOR-330", MEMORY_FILE, numa=(*gone, *new), text=_sentence(joined(parts)))
        both = sorted(expected.keys() & real.keys())
        other = [node for node in both if expected[node].memory.keys() != real[node].memory.keys()]
        if other:
            parts = []
            for node in other:
                had, has = real[node].memory.keys(), expected[node].memory.keys()
                told = [f"the file has {joined(sorted(had - has))}"] if had - has else []
                told += [f"the machine has {joined(sorted(has - had))}"] if has - had else []
                parts.append(f"on NUMA node {node} {joined(told)} and the other does not")
            yield problem("MOOR-331", MEMORY_FILE, numa=other, text=_sentence(joined(parts)))
        yield from _table_problems(expected, real, both)
        yield from _account_problems(policy, state)
    yield from _block_problems(policy.default_nodes, held)


def _table_problems(expected: Nodes, real: Nodes, both: list[int]) -> Iterator[ProblemPart]:
    comparisons: tuple[tuple[str, str, Callable[[MemoryTable], int]], ...] = (
        ("MOOR-332", "has", lambda table: table.total),
        ("MOOR-333", "reserves", lambda table: table.system_reserved),
    )
    explained: set[tuple[int, str]] = set()
    for code, verb, amount in comparisons:
        other = _differences(expected, real, both, amount)
        explained |= {(node, name) for node, name, *_ in other}
        if other:
            yield _difference(code, other, verb)
    rest = [
        one for one in _differences(expected, real, both, lambda table: table.allocatable) if one[:2] not in explained
    ]
    # What is allocatable follows from totals and reservation, of memory also from the pools of huge pages.
    rest = [one for one in rest if not any(node == one[0] for node, _ in explained)]
    if rest:
        yield _difference("MOOR-332", rest, "can assign")


def _differences(
    expected: Nodes, real: Nodes, both: list[int], amount: Callable[[MemoryTable], int]
) -> list[tuple[int, str, int, int]]:
    return [
        (node, name, amount(real[node].memory[name]), amount(expected[node].memory[name]))
        for node in both
        for name in sorted(expected[node].memory.keys() & real[node].memory.keys())
        if amount(real[node].memory[name]) != amount(expected[node].memory[name])
    ]


def _difference(code: str, found: list[tuple[int, str, int, int]], verb: str) -> ProblemPart:
    parts = []
    for node, name, was, now in found:
        text = sizes(was, now)
        parts.append(f"{text(now)} of {name} on NUMA node {node}, and {text(was)} when the file was written")
    who = "The configuration" if verb == "reserves" else "The machine"
    where = sorted({node for node, *_ in found})
    return problem(code, MEMORY_FILE, numa=where, text=f"{who} {verb} {'; '.join(parts)}.")


def _account_problems(policy: MemoryPolicy, state: MemoryState) -> Iterator[ProblemPart]:
    """Ask the engine whether the file is right about itself, on the machine that the file describes."""
    if not all(0 <= node <= HIGHEST_NODE for node in state.nodes):
        return  # no machine has such nodes, which is reported already
    facts = list[object]()
    # The file's own machine with nothing given away
    machine = {
        node: NUMANodeState(
            0, {name: replace(one, reserved=0, free=one.allocatable) for name, one in found.memory.items()}, (node,)
        )
        for node, found in state.nodes.items()
    }
    if any(_misfit(machine, blocks) for blocks in counted(policy, state).values()):
        return  # blocks of nodes that are not there, which is reported already
    try:
        answer = start(replace(policy, default_nodes=machine), state, facts.append)
    except KubeletCrashError as error:
        yield problem("MOOR-337", MEMORY_FILE, why=error)
        return
    if isinstance(answer, str):
        is_whole = state.pods and not policy.gates.managers
        whole = " The machine state counts whole pods, whose entries this kubelet does not read." if is_whole else ""
        yield problem("MOOR-335", MEMORY_FILE, whole=whole)
    for fact in facts:
        if isinstance(fact, StartLeftToChance):
            yield problem("MOOR-338", MEMORY_FILE, numa=fact.nodes, nodes=nodes(fact.nodes))


def _block_problems(machine: Nodes, held: Mapping[EntryHolder, tuple[Block, ...]]) -> Iterator[ProblemPart]:
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
        yield problem("MOOR-336", MEMORY_FILE, lost, places=joined(places))
        return
    # Where blocks of one set of nodes sum up to more than these nodes can give away
    sums: Counter[tuple[tuple[int, ...], str]] = Counter()
    for block in chain(*held.values()):
        sums[tuple(sorted(set(block.numa))), block.type] += block.size
    overcommitted = []
    for (cells, name), amount in sorted(sums.items()):
        allocatable = sum(machine[cell].memory[name].allocatable for cell in cells)
        if cells and amount > allocatable:
            text = sizes(amount, allocatable)
            overcommitted.append(f"{text(amount)} of {name} on {nodes(cells)}, which can assign {text(allocatable)}")
    if overcommitted:
        yield problem("MOOR-339", MEMORY_FILE, places=joined(overcommitted))


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
