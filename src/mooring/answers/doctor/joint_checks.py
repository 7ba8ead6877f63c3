"""State files, running pods and the device manager's record judged together: what one of them lost, the others name.

Source: kubelet v1.37.1: a CPU manager without a file starts with an empty state, and the device manager goes on when it
cannot read its record (pkg/kubelet/cm/devicemanager/manager.go, readCheckpoint).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from mooring.answers.doctor.answer import FILE_MISSING, LOST_ENTRIES, EntryHolder, ProblemPart, problem
from mooring.answers.doctor.reports import Report
from mooring.engine.checkpoint.device_file import DeviceRecord
from mooring.engine.core.bits import list_text, mask_of
from mooring.engine.core.pod import Pod
from mooring.engine.cpumanager.policy import exclusive_cpus
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.extensions.owners import state_owner
from mooring.engine.memorymanager.state import MemoryState
from mooring.engine.node.settings import Settings
from mooring.explanations.phrases import plural

_MOST_NAMED = 8


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
        others = {
            one
            for one in of_memory | {EntryHolder(one.uid, one.container) for one in devices.held}
            if _may_have_cpus(settings, pods, one)
        }
        yield from _lost(cpu, of_cpu, others, "CPUs", pods)
    if settings.memory is not None and memory.is_there:
        yield from _lost(memory, of_memory, of_cpu, "memory", pods)
    yield from check_devices(devices, settings, cpu.state, memory.state, pods)


def _holders(state: CPUState | MemoryState | None) -> set[EntryHolder]:
    entries: Mapping[str, Mapping[str, object]] = state.assignments if state is not None else {}
    return {EntryHolder(uid, name) for uid, held in entries.items() if state_owner(uid).is_pods for name in held}


def _may_have_cpus(settings: Settings, pods: Mapping[str, Pod], holder: EntryHolder) -> bool:
    """Tell whether a container can have an entry of CPUs: where its pod is known, whether it requests whole ones."""
    if not pods:
        return True
    pod = pods.get(holder.uid)
    container = next((one for one in pod.containers if one.name == holder.container), None) if pod is not None else None
    return pod is not None and container is not None and exclusive_cpus(pod, container, settings.pod_level) > 0


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
    named = ", ".join(holder_name(one, pods) for one in lost[:_MOST_NAMED])
    more = f" and {len(lost) - _MOST_NAMED} more" if len(lost) > _MOST_NAMED else ""
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
    yield from _missing(devices, pods)
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


def _missing(devices: DeviceRecord, pods: Mapping[str, Pod]) -> Iterator[ProblemPart]:
    if devices.problem:
        yield problem("MOOR-347", "", why=devices.problem)
    if not devices.is_there or devices.problem:
        return
    held = {(one.uid, one.container, one.resource) for one in devices.held}
    known = {one.resource for one in devices.held}
    lacking = tuple(
        sorted(
            EntryHolder(uid, container.name)
            for uid, pod in pods.items()
            for container in pod.containers
            if any((uid, container.name, resource) not in held for resource in known & container.limits.keys())
        )
    )
    if lacking:
        yield problem("MOOR-348", "", lacking, containers=plural(len(lacking), "running container"))


_ALIGNED = ("restricted", "single-numa-node")


def _apart(
    devices: DeviceRecord, settings: Settings, cpu: CPUState | None, memory: MemoryState | None, pods: Mapping[str, Pod]
) -> Iterator[ProblemPart]:
    """Yield containers on one NUMA node whose devices are near others, under a policy that would have refused them."""
    if settings.config.topology_manager_policy not in _ALIGNED:
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
