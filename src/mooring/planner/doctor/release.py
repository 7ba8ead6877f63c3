"""A state as text: in the files of the kubelet that will start on them, and line by line for people.

That kubelet is this release, or an older one to which a node is rolled back. Kubelet 1.37 writes its state twice into a
file; an older one reads only the members of its own format, and these have no entries of whole pods. Mooring knows the
rules of v1.37.1 alone: an older kubelet is one that sees less of the file, and for the rest decides the same about it.

Source: spec: state-files.md section 5, README.md section 4.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from mooring.checkpoint.cpu_file import cpu_state_text, cpu_text_v2, cpu_text_v3
from mooring.checkpoint.formats import bytes_of
from mooring.checkpoint.goscan import JSONObject, parse_prefix
from mooring.checkpoint.memory_file import memory_state_text, memory_text_v1, memory_text_v2
from mooring.checkpoint.salvage import DEPTH, json_of
from mooring.core.bits import list_text
from mooring.core.config import KubeletConfig
from mooring.core.gates import FeatureGates
from mooring.core.quantity import Quantity
from mooring.cpumanager.state import CPUState
from mooring.kubelet.kubelet import StateTexts
from mooring.memorymanager.state import MemoryState
from mooring.planner.doctor.memory_repair import blocks_text

POD_LEVEL_GATE = "PodLevelResourceManagers"
BASELINE_GATE = "InPlacePodVerticalScalingExclusiveCPUs"


@dataclass(frozen=True, slots=True)
class StateFileRelease:
    """A release of the kubelet, as far as its state files go."""

    name: str
    writes_data: bool
    """It writes and reads the state a second time, in ``data``."""
    knows_pods: bool
    """It has the gate PodLevelResourceManagers."""

    def config(self, config: KubeletConfig) -> KubeletConfig:
        """Return the configuration as this kubelet honours it."""
        if self.knows_pods:
            return config
        return replace(config, feature_gates={**config.feature_gates, POD_LEVEL_GATE: False})

    def seen(self, files: StateTexts, *, pod_level: bool) -> StateTexts:
        """Return the files as this kubelet sees them."""
        if self.writes_data:
            return files
        hidden = {"data", "datachecksum", *(() if pod_level else ("podentries",))}
        return StateTexts(_without(files.cpu, hidden), _without(files.memory, hidden))

    def cpu_text(self, state: CPUState, gates: FeatureGates) -> str:
        """Return the CPU manager's file as this kubelet writes it."""
        if self.writes_data:
            return cpu_state_text(state, pod_level=gates[POD_LEVEL_GATE], baselines=gates[BASELINE_GATE])
        return cpu_text_v3(state) if gates[POD_LEVEL_GATE] else cpu_text_v2(state)

    def memory_text(self, state: MemoryState, gates: FeatureGates) -> str:
        """Return the memory manager's file as this kubelet writes it."""
        if self.writes_data:
            return memory_state_text(state, pod_level=gates[POD_LEVEL_GATE])
        return memory_text_v2(state) if gates[POD_LEVEL_GATE] else memory_text_v1(state)


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


CURRENT = StateFileRelease("1.37", writes_data=True, knows_pods=True)
RELEASES: Mapping[str, StateFileRelease] = {
    release.name: release
    for release in (
        CURRENT,
        StateFileRelease("1.36", writes_data=False, knows_pods=True),
        StateFileRelease("1.35", writes_data=False, knows_pods=False),
    )
}
"""By name; the last one stands for everything before it."""


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
