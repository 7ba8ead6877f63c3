"""AKS: the custom kubelet configuration of a node pool (``--kubelet-config``).

Sources: https://learn.microsoft.com/azure/aks/custom-node-configuration;
https://learn.microsoft.com/azure/aks/node-resource-reservations
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from mooring.configuration.layers import FieldPlace, Layer, Tier
from mooring.configuration.part import VendorField, VendorPart
from mooring.configuration.reservations import aks_memory, aks_milli
from mooring.decoding.fields import count_at, text_at

OWN_NAMES: Final = frozenset(
    {
        "containerLogMaxSizeMB",
        "cpuCfsQuota",
        "cpuCfsQuotaPeriod",
        "hardEvictionThreshold",
        "imageGcHighThreshold",
        "imageGcLowThreshold",
        "podMaxPids",
    }
)
"""Names that no KubeletConfiguration has."""
_POLICIES: Final = ("none", "best-effort", "restricted", "single-numa-node")
_TABLE: Final = (
    VendorField("cpuManagerPolicy", "cpuManagerPolicy", ("none", "static")),
    VendorField("topologyManagerPolicy", "topologyManagerPolicy", _POLICIES),
    VendorField("cpuCfsQuota", "cpuCFSQuota"),
    VendorField("cpuCfsQuotaPeriod", "cpuCFSQuotaPeriod"),
)
_SIGNALS: Final = {
    "memoryAvailable": "memory.available",
    "nodeFsAvailable": "nodefs.available",
    "nodeFsInodesFree": "nodefs.inodesFree",
}
_THRESHOLDS: Final = {"memory.available": "100Mi"}


def custom_kubelet_config(part: VendorPart) -> Iterator[Layer]:
    """Yield the user's settings over what AKS reserves."""
    given = part.mapping("kubeReserved")
    milli, mebibytes = count_at(given, "cpuMillicores", 0), count_at(given, "memoryMB", 0)
    own: dict[str, Any] = {"evictionHard": dict(_THRESHOLDS)}
    if part.machine is not None:
        own["kubeReserved"] = {"cpu": f"{aks_milli(part.machine.num_cores)}m"}

    def memory(fields: Mapping[str, Any]) -> int | None:
        pods, machine = fields.get("maxPods"), part.machine
        return aks_memory(pods, machine.memory_capacity) if isinstance(pods, int) and machine is not None else None

    message = (
        "AKS reserves 50 MB and 20 MB for each of maxPods, at most a quarter of the memory: add maxPods of the node "
        "pool, or kubeReserved.memory, as a drop-in where neither is there"
    )
    yield part.documented(Tier.VENDOR_FILE, own, {"kubeReserved.memory": part.computed(message, memory)})
    yield part.translated(Tier.FILE, "", _TABLE)
    thresholds = part.mapping("hardEvictionThreshold")
    amounts = {"cpu": f"{milli}m" if milli else "", "memory": f"{mebibytes}Mi" if mebibytes else ""}
    fields = {
        "kubeReserved": {name: text for name, text in amounts.items() if text},
        "evictionHard": {signal: text_at(thresholds, name) for name, signal in _SIGNALS.items() if name in thresholds},
    }
    yield Layer(Tier.FILE, {name: value for name, value in fields.items() if value}, lambda field: _at(part, field))


_PATHS: Final = {
    "kubeReserved.cpu": "kubeReserved.cpuMillicores",
    "kubeReserved.memory": "kubeReserved.memoryMB",
    **{f"evictionHard.{signal}": f"hardEvictionThreshold.{name}" for name, signal in _SIGNALS.items()},
}


def _at(part: VendorPart, field: str) -> FieldPlace:
    return part.place(_PATHS.get(field, field.replace("evictionHard", "hardEvictionThreshold")))
