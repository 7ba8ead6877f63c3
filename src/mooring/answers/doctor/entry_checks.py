"""Entries seen across both files, and against the pods that run; and a state as text, for its kubelet and for people.

The kubelet that will start on the files is of the newest release, or of an older one to which a node is rolled back.
Kubelet 1.37 writes its state twice into a file; an older one reads only the members of its own format, and these have
no entries of whole pods.

Source: kubelet v1.37.1, removeStaleState of both managers, and KEP-5526; spec: state-files.md sections 2 and 5,
cpu-manager.md section 10, releases.md section 4.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from mooring.answers.doctor.answer import NO_ENTRY, POD_ENTRIES_IGNORED, STALE, EntryHolder, ProblemPart, problem
from mooring.answers.doctor.memory_checks import blocks_text
from mooring.answers.doctor.reports import Report
from mooring.engine.checkpoint.formats import bytes_of
from mooring.engine.checkpoint.goscan import JSONObject, parse_prefix
from mooring.engine.checkpoint.salvage import DEPTH, json_of
from mooring.engine.core.bits import NO_CPUS, list_text
from mooring.engine.core.config import KubeletConfig
from mooring.engine.core.pod import ContainerKind, Pod, PodLevelGates
from mooring.engine.core.quantity import Quantity
from mooring.engine.core.release import Release
from mooring.engine.cpumanager.policy import exclusive_cpus
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.extensions.owners import OwnerKind, state_owner
from mooring.engine.kubelet.kubelet import StateTexts
from mooring.engine.memorymanager.state import MemoryState
from mooring.engine.node.settings import CPU_FILE, MEMORY_FILE, Settings
from mooring.engine.releases.catalog import state_file_rules
from mooring.engine.releases.gates import known_gates
from mooring.explanations.phrases import plural
from mooring.explanations.reason import POOL_EMPTY

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


def changes(before: CPUState | MemoryState | None, after: CPUState | MemoryState | None, file: str) -> list[str]:
    """Return a unified diff of two states; None is a file that is not there."""
    old, new = (
        [] if state is None else [*(_cpu_lines(state) if isinstance(state, CPUState) else _memory_lines(state))]
        for state in (before, after)
    )
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


_MOST_NAMED = 5


def check_pod_entries(cpu: CPUState | None, memory: MemoryState | None, settings: Settings) -> Iterator[ProblemPart]:
    """Yield what is odd about entries of whole pods (KEP-5526) and about baselines.

    Args:
        cpu: what the CPU manager's file says, with everything that a gate may hide.
        memory: the same of the memory manager's.
        settings: of the kubelet.
    """
    for file, state in ((CPU_FILE, cpu), (MEMORY_FILE, memory)):
        if state is None or not state.pods:
            continue
        holders = tuple(EntryHolder(uid, "") for uid in sorted(state.pods))
        if not settings.pod_level.managers:
            yield problem(POD_ENTRIES_IGNORED, file, holders, pods=plural(len(holders), "whole pod"))
            continue
        alone = tuple(holder for holder in holders if not state.assignments.get(holder.uid))
        if alone:
            yield problem("MOOR-321", file, alone, pods=plural(len(alone), "pod"))
    if cpu is not None and cpu.baselines and not settings.gates["InPlacePodVerticalScalingExclusiveCPUs"]:
        yield problem("MOOR-322", CPU_FILE, _every(cpu.baselines))


def check_hidden_pods(
    kubelet: str, file: str, whole: CPUState | MemoryState | None, seen: CPUState | MemoryState | None
) -> Iterator[ProblemPart]:
    """Say which entries of whole pods an older kubelet does not find in a file.

    Args:
        kubelet: the release.
        file: name of the file.
        whole: what the file says.
        seen: what the older kubelet sees of it.
    """
    known = seen.pods if seen is not None else {}
    hidden = tuple(EntryHolder(uid, "") for uid in sorted(whole.pods if whole is not None else ()) if uid not in known)
    if hidden:
        yield problem("MOOR-320 hidden", file, hidden, pods=plural(len(hidden), "whole pod"), kubelet=kubelet)


def check_entries(
    settings: Settings, active: Collection[Pod], cpu: Report[CPUState], memory: Report[MemoryState]
) -> Iterator[ProblemPart]:
    """Hold the entries of both files against each other, and against the pods that run where they are known."""
    # A policy that is not configured has entries that count for nothing.
    cpus = (cpu.state or CPUState("static", NO_CPUS, {})) if settings.cpu is not None else None
    blocks = memory.state if settings.memory is not None else None
    if settings.memory is not None and not memory.is_there:
        blocks = MemoryState("Static", {}, {})
    if cpus is not None and blocks is not None:
        # Say which pods have CPUs and no memory: containers with exclusive CPUs request memory as well. Pods with
        # memory only are in order, because a fraction of a CPU is never exclusive.
        holders = tuple(
            EntryHolder(uid, name)
            for uid, held in sorted(cpus.assignments.items())
            if held and not blocks.assignments.get(uid) and state_owner(uid).is_pods
            for name in sorted(held)
        )
        if holders:
            yield problem("MOOR-340", "", holders, pods=plural(len({holder.uid for holder in holders}), "pod"))
    if cpus is not None and not active:
        yield from _emptied_pool(cpus)
    if active:
        pods = {pod.uid: pod for pod in active}
        yield from _stale(cpus, blocks, pods)
        if cpus is not None:
            yield from _cpu_counts(cpus, pods, settings.pod_level, doubted=not cpu.trusted)


def _emptied_pool(cpu: CPUState) -> Iterator[ProblemPart]:
    """Name the pods that have taken every CPU of the shared pool; with running pods a restart names the last one."""
    held = {uid: sum(mask.bit_count() for mask in sets.values()) for uid, sets in sorted(cpu.assignments.items())}
    if cpu.default or not held:
        return
    names = [f"{uid} ({plural(count, 'CPU')})" for uid, count in held.items()]
    listed = ", ".join(names[:_MOST_NAMED]) + (" and others" if len(names) > _MOST_NAMED else "")
    yield problem(POOL_EMPTY, CPU_FILE, _every(cpu.assignments), pods=listed)


def _every(entries: Mapping[str, Mapping[str, int]]) -> list[EntryHolder]:
    return [EntryHolder(uid, name) for uid, held in sorted(entries.items()) for name in sorted(held)]


def _stale(cpu: CPUState | None, memory: MemoryState | None, active: Mapping[str, Pod]) -> Iterator[ProblemPart]:
    stale: dict[EntryHolder, None] = {}
    for state in (cpu, memory):
        for uid, held in (state.assignments if state is not None else {}).items():
            pod = active.get(state_owner(uid).root)
            known = {container.name for container in pod.containers} if pod is not None else set()
            if state_owner(uid).kind is not OwnerKind.CLAIM:
                stale |= dict.fromkeys(EntryHolder(uid, name) for name in held if name not in known)
    if stale:
        yield problem(STALE, "", sorted(stale), containers=plural(len(stale), "container"))


def _promised(cpu: CPUState, uid: str, container: str) -> int | None:
    """Return how many CPUs a container has when its pending release is over; None without one."""
    pre = cpu.pre_assignments.get(uid, {}).get(container)
    return pre.cpus.bit_count() if pre is not None else None


def _cpu_counts(
    cpu: CPUState, active: Mapping[str, Pod], gates: PodLevelGates, *, doubted: bool
) -> Iterator[ProblemPart]:
    lacking, other = [], []
    for uid, pod in sorted(active.items()):
        if gates.leaves_out(pod) or gates.manages(pod):
            continue
        for container in pod.containers:
            need, held = exclusive_cpus(pod, container, gates), cpu.assignments.get(uid, {}).get(container.name, 0)
            if need and not held and container.kind is ContainerKind.INIT:
                continue  # it may have ended long ago
            if need and not held:
                lacking.append(EntryHolder(uid, container.name))
            elif need not in (held.bit_count(), _promised(cpu, uid, container.name)):
                other.append(EntryHolder(uid, container.name))
    if lacking:
        count, them = plural(len(lacking), "running container"), "it" if len(lacking) == 1 else "them"
        yield problem(NO_ENTRY, CPU_FILE, lacking, containers=count, them=them)
    if other:
        doubt = " As the checksum is wrong too, the entry itself may be." if doubted else ""
        count = plural(len(other), "running container")
        yield problem("MOOR-343", CPU_FILE, other, containers=count, doubt=doubt)
