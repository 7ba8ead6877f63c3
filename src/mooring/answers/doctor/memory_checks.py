"""Does a memory manager's state fit the machine and the configuration, and itself?

Whether accounts and assignments agree is the engine's answer, asked against the file's own machine: so it is found also
when the real machine has changed.

Source: kubelet v1.37.1, memorymanager policy_static.go (Start, validateState); spec: memory-manager.md section 7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from mooring.answers.doctor.memory_repair import counted
from mooring.answers.doctor.problem import EntryHolder, Problem, Severity
from mooring.engine.checkpoint.contents import MemoryContents
from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.core.machineinfo import HIGHEST_NODE
from mooring.engine.memorymanager.facts import StartLeftToChance
from mooring.engine.memorymanager.policy import MemoryPolicy
from mooring.engine.memorymanager.start import start
from mooring.engine.memorymanager.state import Block, MemoryState, MemoryTable, NUMANodeState
from mooring.engine.node.start import MEMORY_FILE
from mooring.explain.phrases import joined, nodes, sizes

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

Nodes = Mapping[int, NUMANodeState]


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
