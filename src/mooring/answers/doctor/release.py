"""A state as text: in the files of the kubelet that will start on them, and line by line for people.

That kubelet is of the newest release, or of an older one to which a node is rolled back. Kubelet 1.37 writes its state
twice into a file; an older one reads only the members of its own format, and these have no entries of whole pods.

Source: spec: state-files.md section 5, releases.md section 4.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import replace

from mooring.answers.doctor.memory_repair import blocks_text
from mooring.engine.checkpoint.formats import bytes_of
from mooring.engine.checkpoint.goscan import JSONObject, parse_prefix
from mooring.engine.checkpoint.salvage import DEPTH, json_of
from mooring.engine.core.bits import list_text
from mooring.engine.core.config import KubeletConfig
from mooring.engine.core.quantity import Quantity
from mooring.engine.core.release import Release
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.kubelet.kubelet import StateTexts
from mooring.engine.memorymanager.state import MemoryState
from mooring.engine.releases.gates import known_gates
from mooring.engine.releases.state_files import state_file_rules

POD_LEVEL_GATE = "PodLevelResourceManagers"


def honoured(config: KubeletConfig, release: Release) -> KubeletConfig:
    """Return the configuration without the gate of pod-level managers where the release does not recognise it.

    A node is rolled back with the configuration that fits; its other gates and options must be those of the release.
    """
    if POD_LEVEL_GATE in known_gates(release.name).gates:
        return config
    gates = {name: on for name, on in config.feature_gates.items() if name != POD_LEVEL_GATE}
    return replace(config, feature_gates=gates)


def seen(files: StateTexts, release: Release, *, pod_level: bool) -> StateTexts:
    """Return the files as a kubelet sees them."""
    if state_file_rules(release.name, pod_level=pod_level).cpu.data:
        return files
    hidden = {"data", "datachecksum", *(() if pod_level else ("podentries",))}
    return replace(files, cpu=_without(files.cpu, hidden), memory=_without(files.memory, hidden))


def _without(text: str | None, hidden: set[str]) -> str | None:
    """Return a file without some members; a file that is no JSON is left as it is."""
    if text is None:
        return None
    outer = parse_prefix(bytes_of(text), DEPTH)
    if outer.fault or not isinstance(outer.value, JSONObject):
        return text
    members = [(name, value) for name, value in outer.value.members if name.lower() not in hidden]
    if len(members) == len(outer.value.members):
        return text
    try:
        return json_of(JSONObject(members))
    except RecursionError:  # nested far deeper than a state file: whatever is hidden, no kubelet takes it
        return text


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
