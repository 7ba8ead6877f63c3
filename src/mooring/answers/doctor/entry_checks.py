"""Entries of both files, the running pods and the device manager's record judged together: what one lost, others name.

The kubelet that will start on the files is of the newest release, or of an older one to which a node is rolled back.
Kubelet 1.37 writes its state twice into a file; an older one reads only the members of its own format, and these have
no entries of whole pods.

Source: kubelet v1.37.1, removeStaleState of both managers, and KEP-5526; spec: state-files.md sections 2 and 5,
cpu-manager.md section 10, releases.md section 4. A CPU manager without a file starts with an empty state, and the
device manager goes on when it cannot read its record (pkg/kubelet/cm/devicemanager/manager.go, readCheckpoint).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from mooring.answers.doctor.answer import (
    FILE_MISSING,
    LOST_ENTRIES,
    NO_ENTRY,
    POD_ENTRIES_IGNORED,
    STALE,
    EntryHolder,
    ProblemPart,
    problem,
)
from mooring.answers.doctor.reports import Report
from mooring.engine.checkpoint.device_file import DeviceRecord
from mooring.engine.checkpoint.formats import bytes_of
from mooring.engine.checkpoint.goscan import JSONObject, parse_prefix
from mooring.engine.checkpoint.salvage import DEPTH, json_of
from mooring.engine.core.bits import NO_CPUS, list_text, mask_of
from mooring.engine.core.config import KubeletConfig
from mooring.engine.core.pod import ContainerKind, Pod, PodLevelGates
from mooring.engine.core.release import Release
from mooring.engine.cpumanager.policy import exclusive_cpus
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.extensions.owners import OwnerKind, state_owner
from mooring.engine.kubelet.kubelet import StateTexts
from mooring.engine.memorymanager.state import MemoryState
from mooring.engine.node.settings import CPU_FILE, MEMORY_FILE, Settings
from mooring.engine.releases.catalog import state_file_rules
from mooring.engine.releases.gates import known_gates
from mooring.explanations.codes import POOL_EMPTY
from mooring.explanations.phrases import plural

POD_LEVEL_GATE = "PodLevelResourceManagers"


def honoured(config: KubeletConfig, release: Release) -> KubeletConfig:
    """Return the configuration without the gate of pod-level managers where the release does not recognise it.

    A node is rolled back with the configuration that fits; its other gates and options must be those of the release.
    """
    if POD_LEVEL_GATE in known_gates(release.name):
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
    document, fault = parse_prefix(bytes_of(text), DEPTH)
    if fault is not None or not isinstance(document, JSONObject):
        return text
    members = [(name, value) for name, value in document.members if name.lower() not in hidden]
    if len(members) == len(document.members):
        return text
    try:
        return json_of(JSONObject(members))
    except RecursionError:  # nested far deeper than a state file: whatever is hidden, no kubelet takes it
        return text


_MOST_NAMED = 5
_MOST_LOST = 8


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
    if active:
        pods = {pod.uid: pod for pod in active}
        yield from _stale(cpus, blocks, pods)
        if cpus is not None:
            yield from _cpu_counts(cpus, pods, settings.pod_level, doubted=not cpu.trusted)
    elif cpus is not None and cpus.assignments and not cpus.default:
        # The pods that have taken every CPU of the shared pool; with running pods a restart names the last one.
        held = {uid: sum(mask.bit_count() for mask in sets.values()) for uid, sets in sorted(cpus.assignments.items())}
        names = [f"{uid} ({plural(count, 'CPU')})" for uid, count in held.items()]
        listed = ", ".join(names[:_MOST_NAMED]) + (" and others" if len(names) > _MOST_NAMED else "")
        yield problem(POOL_EMPTY, CPU_FILE, _every(cpus.assignments), pods=listed)


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
            elif need != held.bit_count():
                # What it has when its pending release is over is right as well.
                pre = cpu.pre_assignments.get(uid, {}).get(container.name)
                if pre is None or need != pre.cpus.bit_count():
                    other.append(EntryHolder(uid, container.name))
    if lacking:
        count, them = plural(len(lacking), "running container"), "it" if len(lacking) == 1 else "them"
        yield problem(NO_ENTRY, CPU_FILE, lacking, containers=count, them=them)
    if other:
        doubt = " As the checksum is wrong too, the entry itself may be." if doubted else ""
        count = plural(len(other), "running container")
        yield problem("MOOR-343", CPU_FILE, other, containers=count, doubt=doubt)


def check_together(
    settings: Settings,
    active: Collection[Pod],
    cpu: Report[CPUState],
    memory: Report[MemoryState],
    devices: DeviceRecord,
) -> Iterator[ProblemPart]:
    """Yield what a missing or damaged file has lost, as the other files and the running pods show it.

    Args:
        settings: of the kubelet.
        active: the running pods; empty where they are not known.
        cpu: the CPU manager's file.
        memory: the memory manager's file.
        devices: the device manager's record.
    """
    pods = {pod.uid: pod for pod in active}
    of_cpu, of_memory = _holders(cpu.state), _holders(memory.state)
    if settings.cpu is not None:
        others = of_memory | {EntryHolder(one.uid, one.container) for one in devices.held}
        if pods:  # then it is known which containers request whole CPUs
            entitled = {
                EntryHolder(uid, container.name)
                for uid, pod in pods.items()
                for container in pod.containers
                if exclusive_cpus(pod, container, settings.pod_level) > 0
            }
            others &= entitled
        yield from _lost(cpu, of_cpu, others, "CPUs", pods)
    if settings.memory is not None and memory.is_there:
        yield from _lost(memory, of_memory, of_cpu, "memory", pods)
    yield from check_devices(devices, settings, cpu.state, memory.state, pods)


def _holders(state: CPUState | MemoryState | None) -> set[EntryHolder]:
    entries: Mapping[str, Mapping[str, object]] = state.assignments if state is not None else {}
    return {EntryHolder(uid, name) for uid, held in entries.items() if state_owner(uid).is_pods for name in held}


def _lost(
    report: Report[CPUState] | Report[MemoryState],
    here: set[EntryHolder],
    others: set[EntryHolder],
    what: str,
    pods: Mapping[str, Pod],
) -> Iterator[ProblemPart]:
    lost = tuple(sorted(others - here))
    if not lost or (report.is_there and report.trusted):
        return
    named = ", ".join(holder_name(one, pods) for one in lost[:_MOST_LOST])
    more = f" and {len(lost) - _MOST_LOST} more" if len(lost) > _MOST_LOST else ""
    count = plural(len(lost), "container")
    code = LOST_ENTRIES if report.is_there else FILE_MISSING
    yield problem(code, report.file, lost, count=count, named=f"{named}{more}", what=what)


def check_devices(
    devices: DeviceRecord, settings: Settings, cpu: CPUState | None, memory: MemoryState | None, pods: Mapping[str, Pod]
) -> Iterator[ProblemPart]:
    """Yield what the record lost, gave twice, or has elsewhere than the state files have CPUs and memory.

    Args:
        devices: the record.
        settings: of the kubelet.
        cpu: of the CPU manager's file; None where it cannot be read.
        memory: of the memory manager's file; None as above.
        pods: that run, by uid; empty where they are not known.
    """
    if devices.problem:
        yield problem("MOOR-347", "", why=devices.problem)
    elif devices.is_there:
        known = {(one.uid, one.container, one.resource) for one in devices.held}
        resources = {one.resource for one in devices.held}
        lacking = sorted(
            EntryHolder(uid, container.name)
            for uid, pod in pods.items()
            for container in pod.containers
            if any((uid, container.name, one) not in known for one in resources & container.limits.keys())
        )
        if lacking:
            yield problem("MOOR-348", "", lacking, containers=plural(len(lacking), "running container"))
    # Containers of one pod may hold the same device: init containers leave theirs to later ones
    holders: dict[tuple[str, str], set[EntryHolder]] = {}
    for one in devices.held:
        # Without a list of the running pods every entry can be one of a pod that has ended.
        if not pods or one.uid in pods:
            for device in one.ids:
                holders.setdefault((one.resource, device), set()).add(EntryHolder(one.uid, one.container))
    for (resource, device), held_by in sorted(holders.items()):
        if len({holder.uid for holder in held_by}) > 1:
            named = " and ".join(holder_name(one, pods) for one in sorted(held_by))
            yield problem("MOOR-349", "", sorted(held_by), device=f"{resource} {device}", named=named)
    yield from _apart(devices, settings, cpu, memory, pods)


def holder_name(holder: EntryHolder, pods: Mapping[str, Pod]) -> str:
    """Return namespace, pod and container; the uid where the pod is not known."""
    pod = pods.get(holder.uid)
    return f"{pod.namespace}/{pod.name}/{holder.container}" if pod is not None else f"{holder.uid}/{holder.container}"


def _apart(
    devices: DeviceRecord, settings: Settings, cpu: CPUState | None, memory: MemoryState | None, pods: Mapping[str, Pod]
) -> Iterator[ProblemPart]:
    """Yield containers on one NUMA node whose devices are near others, under a policy that would have refused them."""
    if settings.config.topology_manager_policy not in ("restricted", "single-numa-node"):
        return
    near: dict[EntryHolder, dict[str, int]] = {}
    for one in devices.held:
        mask = 0
        for device in one.devices:
            mask |= device.mask
        if mask:
            near.setdefault(EntryHolder(one.uid, one.container), {})[one.resource] = mask
    for holder, resources in sorted(near.items()):
        cpus = 0 if cpu is None else cpu.assignments.get(holder.uid, {}).get(holder.container, 0)
        groups = {} if settings.topology is None else settings.topology.numa
        blocks = () if memory is None else memory.assignments.get(holder.uid, {}).get(holder.container, ())
        held = {
            "CPUs": mask_of(node for node, local in groups.items() if local & cpus),
            "memory": mask_of(node for block in blocks for node in block.numa),
        }
        apart = [
            (resource, mask, what, nodes)
            for resource, mask in sorted(resources.items())
            for what, nodes in held.items()
            if nodes and nodes.bit_count() == 1 and not nodes & mask
        ]
        if apart and (not pods or holder.uid in pods):
            resource, mask, what, nodes = apart[0]
            named, on, near_to = holder_name(holder, pods), list_text(nodes), list_text(mask)
            words = {"named": named, "what": what, "nodes": on, "resource": resource, "near": near_to}
            yield problem("MOOR-352", "", [holder], 0, (), **words)
