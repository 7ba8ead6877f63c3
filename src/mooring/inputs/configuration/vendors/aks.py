"""AKS: the custom kubelet configuration of a node pool (``--kubelet-config``), and the node pool itself.

Sources: https://learn.microsoft.com/azure/aks/custom-node-configuration;
https://learn.microsoft.com/azure/aks/node-resource-reservations;
https://learn.microsoft.com/rest/api/aks/agent-pools/get
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from mooring.inputs.configuration.layers import FieldPlace, Layer, Tier
from mooring.inputs.configuration.part import NamedVersion, VendorField, VendorPart
from mooring.inputs.configuration.reservations import aks_memory, aks_milli
from mooring.inputs.decoding.fields import count_at, text_at

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
_GIB: Final = 2**30
_SECTION: Final = "kubeletConfig"
_OF_POOL = """
    agentPoolProfiles availabilityZones currentOrchestratorVersion enableAutoScaling linuxOSConfig linuxOsConfig
    maxPods nodeImageVersion orchestratorVersion osDiskSizeGB osSku osType sku vmSize
"""
_POOL_NAMES: Final = frozenset(_OF_POOL.split())
"""Some names of a node pool, or beside it, that no node system configuration of GKE has."""
_ONLY_HERE: Final = frozenset({*OWN_NAMES, "failSwapOn", "kubeReserved", "topologyManagerPolicy"}) - {
    "cpuCfsQuota",
    "cpuCfsQuotaPeriod",
}
"""Names of ``kubeletConfig`` that GKE does not have there."""
_KINDS: Final = (None, "Base", "AzureManagedMachinePool", "AzureASOManagedMachinePool")
_TEMPLATE: Final = ("properties", "resources", "agentPoolProfiles", "spec")
_VERSIONS: Final = ("currentOrchestratorVersion", "orchestratorVersion")


def is_node_pool(content: Mapping[str, Any]) -> bool:
    """Tell whether a document is a node pool, or has some: of ``az aks``, of the REST interface, or of a template."""
    if content.get("kind") not in _KINDS:
        return False
    pools = list(_pools(content))
    return any(
        path.startswith(_TEMPLATE) or not (_POOL_NAMES.isdisjoint(pool) and _ONLY_HERE.isdisjoint(pool[_SECTION]))
        for path, pool in pools
    )


def _pools(content: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the mappings that have a custom kubelet configuration, each with its path."""
    if isinstance(content, dict):
        if isinstance(content.get(_SECTION), dict):
            yield path, content
        for name, value in content.items():
            yield from _pools(value, f"{path}.{name}" if path else name)
    elif isinstance(content, list):
        for index, value in enumerate(content):
            yield from _pools(value, f"{path}[{index}]")


def node_pool(part: VendorPart) -> Iterator[Layer]:
    """Yield the layers of the only node pool of a document with a custom kubelet configuration."""
    path, pool = _only_pool(part)
    section = part.below(f"{path}.{_SECTION}".lstrip("."), pool[_SECTION])
    section.report_unknown("AKSKubeletConfig", section.content)
    with section.located():
        yield from custom_kubelet_config(section)
    if pool.get("maxPods") is not None:
        place = part.place(f"{path}.maxPods".lstrip("."))
        yield Layer(Tier.FILE, {"maxPods": pool["maxPods"]}, lambda _: place, part.vendor)


def _only_pool(part: VendorPart) -> tuple[str, dict[str, Any]]:
    found = list(_pools(part.content))
    if len(found) > 1:
        places = ", ".join(path or "the document" for path, _ in found)
        remedy = f"keep the one of your node, of {places}"
        raise part.refusal(found[1][0], f"there are {len(found)} node pools with {_SECTION}", remedy)
    return found[0]


def pool_version(part: VendorPart) -> NamedVersion | None:
    """Return the version of Kubernetes of a node pool; None where it names none."""
    path, pool = _only_pool(part)
    name = next((name for name in _VERSIONS if isinstance(pool.get(name), str) and pool[name][:1].isdigit()), "")
    return NamedVersion(pool[name], part.place(f"{path}.{name}".lstrip("."))) if name else None


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
    yield part.documented(
        Tier.VENDOR_FILE, own, {"kubeReserved.memory": part.computed(message, memory, aks_memory(0, _GIB))}
    )
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
