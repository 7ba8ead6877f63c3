"""A state line by line, so that people can compare two of them."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from mooring.core.bits import list_text
from mooring.core.quantity import Quantity
from mooring.cpumanager.state import CPUState
from mooring.memorymanager.state import MemoryState
from mooring.planner.doctor.memory_repair import blocks_text


def _state_lines(state: CPUState | MemoryState) -> list[str]:
    """Return one line for each thing that the state says.

    >>> _state_lines(CPUState("static", 0b1, {"uid": {"main": 0b110}}))
    ['policyName: static', 'defaultCpuSet: 0', 'entries/uid/main: 1-2']
    """
    return list(_cpu_lines(state) if isinstance(state, CPUState) else _memory_lines(state))


def changes(before: CPUState | MemoryState | None, after: CPUState | MemoryState | None, file: str) -> list[str]:
    """Return a unified diff of two states; None is a file that is not there."""
    old, new = (_state_lines(state) if state is not None else [] for state in (before, after))
    return list(difflib.unified_diff(old, new, file, f"{file} (repaired)", lineterm="", n=1))


def _cpu_lines(state: CPUState) -> Iterator[str]:
    yield f"policyName: {state.policy}"
    yield f"defaultCpuSet: {list_text(state.default)}"
    for uid, held in sorted(state.assignments.items()):
        for name, mask in sorted(held.items()):
            yield f"entries/{uid}/{name}: {list_text(mask)}"
    for uid, mask in sorted(state.pods.items()):
        yield f"podEntries/{uid}: {list_text(mask)}"
    for uid, held in sorted(state.baselines.items()):
        for name, mask in sorted(held.items()):
            yield f"baselines/{uid}/{name}: {list_text(mask)}"
    for uid, releases in sorted(state.pre_assignments.items()):
        for name, pre in sorted(releases.items()):
            at = pre.apply_at
            yield f"preAssignments/{uid}/{name}: {list_text(pre.cpus)} at {at.since_boot} of {at.boot}"


def _memory_lines(state: MemoryState) -> Iterator[str]:
    yield f"policyName: {state.policy}"
    for node, account in sorted(state.nodes.items()):
        cells = ",".join(map(str, account.cells))
        yield f"machineState/{node}: assignments {account.assignments}, group {cells}"
        for name, table in sorted(account.memory.items()):
            parts = (
                ("total", table.total),
                ("systemReserved", table.system_reserved),
                ("allocatable", table.allocatable),
                ("reserved", table.reserved),
                ("free", table.free),
            )
            yield f"machineState/{node}/{name}: {', '.join(f'{what} {_bytes(amount)}' for what, amount in parts)}"
    for uid, containers in sorted(state.assignments.items()):
        for name, blocks in sorted(containers.items()):
            yield f"entries/{uid}/{name}: {blocks_text(blocks)}"
    for uid, blocks in sorted(state.pods.items()):
        yield f"podEntries/{uid}: {blocks_text(blocks)}"


def _bytes(amount: int) -> str:
    """Return bytes exactly, in the largest unit that does it."""
    return str(Quantity.of_bytes(amount))
