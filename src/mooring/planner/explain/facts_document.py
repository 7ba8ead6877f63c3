"""Facts as documents: ``{"fact": "HintsMerged", ...}``, one member for each field.

CPU sets become CPU lists, sets of NUMA nodes become node lists in the same form; None stands for "no mask".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mooring.core.bits import list_text
from mooring.core.pod import Pod
from mooring.cpumanager import facts as cpu
from mooring.devicemanager import facts as devices
from mooring.extensions import offline as hotplug
from mooring.memorymanager import facts as memory
from mooring.memorymanager.state import Block
from mooring.node import facts as node
from mooring.planner.outcome import hint_fields, list_fields, resource_fields
from mooring.plugins import facts as plugins
from mooring.topologymanager.facts import HintsMerged

Encoder = Callable[[Any], Any]


def _same(value: Any) -> Any:
    return value


def _set(mask: int) -> str:
    return list_text(mask)


def _mask(mask: int | None) -> str | None:
    return None if mask is None else list_text(mask)


def _list(values: tuple[Any, ...]) -> list[Any]:
    return list(values)


def _object(values: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(key): dict(value) if isinstance(value, Mapping) else value for key, value in values.items()}


def _sets(values: Mapping[str, int]) -> dict[str, str]:
    return {key: list_text(mask) for key, mask in values.items()}


def _groups(groups: tuple[tuple[int, ...], ...]) -> list[list[int]]:
    return [list(group) for group in groups]


def _blocks(blocks: tuple[Block, ...]) -> list[dict[str, Any]]:
    return [{"numa": list(block.numa), "type": block.type, "size": block.size} for block in blocks]


def _entries(entries: tuple[Any, ...]) -> list[Any]:
    return [list_fields(hints) for hints in entries]


def _levels(levels: Mapping[float, int]) -> list[dict[str, Any]]:
    return [{"score": score, "cpus": list_text(cpus)} for score, cpus in levels.items()]


def _candidate(one: plugins.Candidate) -> dict[str, Any]:
    scores = dict(one.scores) if one.scores else {}
    return {"plugin": one.plugin, "cpus": list_text(one.cpus), "hidden": list_text(one.hidden), "scores": scores}


def _candidates(found: tuple[plugins.Candidate, ...]) -> list[dict[str, Any]]:
    return [_candidate(one) for one in found]


def _requests(pod: Pod) -> dict[str, dict[str, str]]:
    return {one.name: {name: str(amount) for name, amount in one.requests.items()} for one in pod.containers}


_WHO = {"pod": _same, "container": _same}

FACTS: Mapping[type, Mapping[str, Encoder]] = {
    # The CPU manager.
    cpu.ExclusiveCPUsCounted: {**_WHO, "count": _same},
    cpu.CPUPinningRequested: _WHO,
    cpu.CPUPinningFailed: {**_WHO, "error": _same},
    cpu.CPUHintsAsked: {**_WHO, "need": _same, "available": _set, "reusable": _set, "mismatch": _same},
    cpu.ExistingCPUsKept: {**_WHO, "cpus": _set},
    cpu.WholeCoresChecked: {**_WHO, "need": _same, "group": _same, "available": _same, "passed": _same},
    cpu.TakeBegun: {**_WHO, "need": _same, "candidates": _set, "place": _same},
    cpu.CPUsPicked: {"rule": _same, "cpus": _set},
    cpu.DistributionChosen: {
        "nodes": _list,
        "found": _list,
        "share": _same,
        "rest": _same,
        "takers": _list,
        "group": _same,
    },
    cpu.SharePicked: {"node": _same, "cpus": _set, "is_rest": _same},
    cpu.CPUsTaken: {
        **_WHO,
        "need": _same,
        "pool": _set,
        "reusable": _set,
        "affinity": _mask,
        "near": _set,
        "first": _set,
        "taken": _set,
        "error": _same,
    },
    cpu.CPUsAssigned: {**_WHO, "cpus": _set, "held": _set},
    cpu.CPUsReleased: {**_WHO, "cpus": _set, "held": _set},
    cpu.PartitionKept: _WHO,
    cpu.PodShareCut: {**_WHO, "cpus": _set, "exclusive": _same},
    cpu.PodPartitioned: {"pod": _same, "cpus": _set, "containers": _sets},
    cpu.CPUsResized: {
        **_WHO,
        "current": _set,
        "kept": _set,
        "pool": _set,
        "affinity": _mask,
        "result": _set,
    },
    cpu.ScaleDownStarted: {**_WHO, "current": _set, "result": _set, "delay": _same},
    cpu.ScaleDownCompleted: {**_WHO, "cpus": _set, "released": _set},
    cpu.ScaleDownDropped: {**_WHO, "pending": _set},
    cpu.CPUsMoved: {**_WHO, "before": _set, "after": _set, "held": _set},
    hotplug.CPUsWentOffline: {"cpus": _set, "offline": _set},
    hotplug.CPUsCameOnline: {"cpus": _set, "offline": _set},
    hotplug.CPUsBroken: {**_WHO, "cpus": _set, "lost": _set, "why": _same},
    hotplug.CPUsReplaced: {**_WHO, "before": _set, "after": _set, "nodes": _set, "held": _set},
    hotplug.OfflineCPUsLeftOut: {"pod": _same, "offline": _set, "kept": _set},
    hotplug.CPUsRestored: {**_WHO, "before": _set, "after": _set, "held": _set},
    # Plugins.
    plugins.PluginFiltered: {**_WHO, "plugin": _same, "cpus": _set, "because": _same},
    plugins.PluginMadeRoom: {**_WHO, "plugin": _same, "cpus": _set, "because": _same},
    plugins.PluginScored: {**_WHO, "plugin": _same, "levels": _levels},
    plugins.PluginsChose: {**_WHO, "candidates": _candidates, "chosen": _candidate, "as_hint": _same},
    plugins.PluginChoseAffinity: {**_WHO, "plugin": _same, "merged": _mask, "nodes": _mask},
    plugins.PluginFailed: {**_WHO, "plugin": _same, "point": _same, "why": _same},
    # The memory manager.
    memory.MemoryPinningRequested: _WHO,
    memory.MemoryPinningFailed: {**_WHO, "error": _same},
    memory.MemoryHintsAsked: {**_WHO, "requests": _object, "free": _object, "groups": _groups, "hints": list_fields},
    memory.MemoryAssigned: {
        **_WHO,
        "affinity": _mask,
        "mask": _set,
        "way": _same,
        "blocks": _blocks,
        "error": _same,
    },
    memory.MemoryReleased: {**_WHO, "blocks": _blocks},
    memory.MemoryPartitioned: {"pod": _same, "exclusive": _list, "shared": _list},
    memory.MemoryGrowthAsked: {**_WHO, "requests": _object, "nodes": _set, "hints": list_fields},
    memory.StartLeftToChance: {"nodes": _list},
    # The device manager.
    devices.DeviceHintsAsked: {**_WHO, "resource": _same, "need": _same, "free": _sets, "held": _same},
    devices.DevicesTaken: {
        **_WHO,
        "resource": _same,
        "need": _same,
        "affinity": _mask,
        "taken": _list,
        "near": _set,
        "error": _same,
    },
    # The topology manager.
    HintsMerged: {
        "policy": _same,
        "entries": _entries,
        "result": hint_fields,
        "admitted": _same,
        "rule": _same,
        "bound": _same,
    },
    # The node. Pods and settings stand elsewhere in a document.
    node.AdmissionBegun: {"pod": _same},
    node.HintsGiven: {**_WHO, "hints": resource_fields},
    node.ContainerAdmitted: _WHO,
    node.PodAdmitted: {"pod": _same},
    node.PodRejected: {"pod": _same, "reason": _same, "message": _same},
    node.AdmissionEndless: {"pod": _same, "defect": _same},
    node.PodWithdrawn: {"pod": _same, "reason": _same, "message": _same},
    node.StaleStateRemoved: {"pods": _list},
    node.ResizeAccepted: {"uid": _same, "before": _requests, "after": _requests},
    node.ResizeRefused: {"uid": _same, "reason": _same, "detail": _same, "message": _same},
}
"""Every fact that an answer can have: its fields, and how each is written."""


def fact_document(fact: object) -> dict[str, Any]:
    """Return one fact as a document.

    >>> fact_document(cpu.CPUsPicked("cores", 0b110011))
    {'fact': 'CPUsPicked', 'rule': 'cores', 'cpus': '0-1,4-5'}
    """
    fields = FACTS[type(fact)]
    return {
        "fact": type(fact).__name__,
        **{_member(name): write(getattr(fact, name)) for name, write in fields.items()},
    }


def _member(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)
