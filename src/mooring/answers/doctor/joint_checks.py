"""State files, running pods and the device manager's record judged together: what one of them lost, the others name.

Source: kubelet v1.37.1: a CPU manager without a file starts with an empty state, and the device manager goes on when it
cannot read its record (pkg/kubelet/cm/devicemanager/manager.go, readCheckpoint).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from mooring.answers.doctor.device_checks import check_devices, holder_name
from mooring.answers.doctor.problem import EntryHolder, Problem
from mooring.answers.doctor.reports import Report
from mooring.engine.checkpoint.device_file import DeviceRecord
from mooring.engine.core.pod import Pod
from mooring.engine.cpumanager.policy import exclusive_cpus
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.extensions.owners import state_owner
from mooring.engine.memorymanager.state import MemoryState
from mooring.engine.node.settings import Settings
from mooring.explain.phrases import plural

FILE_MISSING = "MOOR-345"
LOST_ENTRIES = "MOOR-346"
_MOST_NAMED = 8


def check_together(
    settings: Settings,
    active: Collection[Pod],
    cpu: Report[CPUState],
    memory: Report[MemoryState],
    devices: DeviceRecord,
) -> Iterator[Problem]:
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
        others = {one for one in of_memory | _device_holders(devices) if _may_have_cpus(settings, pods, one)}
        yield from _lost(cpu, of_cpu, others, "CPUs", pods)
    if settings.memory is not None and memory.is_there:
        yield from _lost(memory, of_memory, of_cpu, "memory", pods)
    yield from check_devices(devices, settings, cpu.state, memory.state, pods)


def _holders(state: CPUState | MemoryState | None) -> set[EntryHolder]:
    entries: Mapping[str, Mapping[str, object]] = state.assignments if state is not None else {}
    return {EntryHolder(uid, name) for uid, held in entries.items() if state_owner(uid).is_pods for name in held}


def _device_holders(devices: DeviceRecord) -> set[EntryHolder]:
    return {EntryHolder(one.uid, one.container) for one in devices.held}


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
) -> Iterator[Problem]:
    lost = tuple(sorted(others - here))
    if not lost or (report.is_there and report.trusted):
        return
    named = ", ".join(holder_name(one, pods) for one in lost[:_MOST_NAMED])
    more = f" and {len(lost) - _MOST_NAMED} more" if len(lost) > _MOST_NAMED else ""
    count = plural(len(lost), "container")
    if not report.is_there:
        yield Problem(
            FILE_MISSING,
            "error",
            report.file,
            f"The file is missing, and other files have {count} ({named}{more}). The kubelet starts with an empty file "
            "and assigns other CPUs than those that these containers run on, if they have exclusive CPUs. Restore the "
            "file from a copy of the same moment, or drain the node before the kubelet starts.",
            lost,
        )
    else:
        yield Problem(
            LOST_ENTRIES,
            "error",
            report.file,
            f"The damage lost the entries of {count}, which other files name ({named}{more}), if they had {what}. "
            "A repair cannot restore them: after the start they get what is free.",
            lost,
        )
