"""AKS: the custom kubelet configuration of a node pool (``--kubelet-config``), and the node pool itself.

Sources: https://learn.microsoft.com/azure/aks/custom-node-configuration;
https://learn.microsoft.com/azure/aks/node-resource-reservations;
https://learn.microsoft.com/rest/api/aks/agent-pools/get; https://learn.microsoft.com/azure/aks/node-autoprovision-aksnodeclass

EKS: NodeConfig of Amazon Linux 2023, and the options of bootstrap.sh of Amazon Linux 2.

nodeadm writes its own file for the kubelet, and the user's ``spec.kubelet.config`` as a drop-in; bootstrap.sh writes
the same file and passes the user's flags. Sources: https://awslabs.github.io/amazon-eks-ami/nodeadm/doc/api/;
https://github.com/awslabs/amazon-eks-ami, nodeadm/internal/kubelet/config.go, nodeadm/internal/api/merge.go,
templates/al2/runtime/bootstrap.sh and kubelet-config.json

GKE: the node system configuration of a node pool (``--system-config-from-file``).

Sources: https://cloud.google.com/kubernetes-engine/docs/how-to/node-system-config;
https://cloud.google.com/kubernetes-engine/docs/reference/rest/v1/NodeKubeletConfig
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from mooring.engine.core.errors import InputError
from mooring.inputs.configuration.kubelet_config import Layer, Tier
from mooring.inputs.configuration.kubelet_flags import split_arguments
from mooring.inputs.configuration.sources import BOOTSTRAP_OPTIONS
from mooring.inputs.configuration.vendors import ConfigurationFormat, NamedVersion, VendorPart, of_kind, without_kind
from mooring.inputs.decoding.fields import as_mapping, check_version, count_at, list_at, text_at

_GIB: Final = 2**30
_MIB: Final = 2**20

_MILLI_RANGES: Final = ((1000, 600), (1000, 100), (2000, 50))
"""Thousandths of CPUs, and how many of 10,000 parts are reserved; of all further CPUs 25."""


def milli_by_ranges(cpus: int) -> int:
    """Return the thousandths of a CPU that GKE and EKS reserve: 6 % of the first, 1 %, twice 0.5 %, then 0.25 % each.

    Sources: https://cloud.google.com/kubernetes-engine/docs/concepts/plan-node-sizes;
    https://github.com/awslabs/amazon-eks-ami, get_cpu_millicores_to_reserve of bootstrap.sh

    >>> [milli_by_ranges(cpus) for cpus in (1, 2, 4, 8, 96)]
    [60, 70, 80, 90, 310]
    """
    return _by_ranges(cpus * 1000, _MILLI_RANGES, 25, 10_000)


def _by_ranges(amount: int, ranges: Iterable[tuple[int, int]], rest: int, whole: int) -> int:
    """Return the sum of the shares of a whole that are reserved in ranges, and in the rest of an amount."""
    total, left = 0, amount
    for width, share in ranges:
        total += min(width, left) * share // whole
        left -= min(width, left)
    return total + left * rest // whole


_GKE_MEMORY: Final = ((4 * _GIB, 25), (4 * _GIB, 20), (8 * _GIB, 10), (112 * _GIB, 6))
"""Bytes, and the percentage of them that is reserved; of all further memory 2 %."""


def gke_memory(memory: int) -> int:
    """Return the bytes that GKE reserves of a machine's memory, without the eviction threshold.

    Source: https://cloud.google.com/kubernetes-engine/docs/concepts/plan-node-sizes

    >>> [gke_memory(gib * 1024**3) // 1024**2 for gib in (4, 8, 16, 128)]
    [1024, 1843, 2662, 9543]
    """
    if memory < _GIB:
        return 255 * _MIB
    return _by_ranges(memory, _GKE_MEMORY, 2, 100)


_AKS_MILLI: Final = ((1, 60), (2, 100), (4, 140), (8, 180), (16, 260), (32, 420), (64, 740))
"""CPUs of a node, and the thousandths of a CPU that are reserved."""


def aks_milli(cpus: int) -> int:
    """Return the thousandths of a CPU that AKS reserves; the table's step below where it has no such size.

    Source: https://learn.microsoft.com/azure/aks/node-resource-reservations

    >>> [aks_milli(cpus) for cpus in (2, 8, 20, 96)]
    [100, 180, 260, 740]
    """
    return next((milli for size, milli in reversed(_AKS_MILLI) if cpus >= size), _AKS_MILLI[0][1])


def eks_memory(pods: int) -> int:
    """Return the bytes that EKS reserves on a node that can have so many pods.

    Source: https://github.com/awslabs/amazon-eks-ami, nodeadm/internal/kubelet/config.go
    (getMemoryMebibytesToReserve), read in November 2026

    >>> eks_memory(58) // 1024**2
    893
    """
    return (255 + 11 * pods) * _MIB


def aks_memory(pods: int, memory: int) -> int:
    """Return the bytes that AKS reserves from Kubernetes 1.29 on; no older kubelet is known here.

    Source: https://learn.microsoft.com/azure/aks/node-resource-reservations, read in November 2026

    >>> [aks_memory(pods, gib * 1024**3) // 1024**2 for pods, gib in ((30, 8), (70, 4))]
    [650, 1024]
    """
    return min((50 + 20 * pods) * _MIB, memory * 25 // 100)


_OWN_NAMES: Final = frozenset({
    "containerLogMaxSizeMB", "cpuCfsQuota", "cpuCfsQuotaPeriod", "hardEvictionThreshold", "imageGcHighThreshold",
    "imageGcLowThreshold", "podMaxPids",
})  # fmt: skip
"""Names that no KubeletConfiguration has."""
POLICIES: Final = ("none", "best-effort", "restricted", "single-numa-node")
"""Of the topology manager."""
_AKS_FIELDS: Final = (
    ("cpuManagerPolicy", "cpuManagerPolicy", ("none", "static")),
    ("topologyManagerPolicy", "topologyManagerPolicy", POLICIES),
    ("cpuCfsQuota", "cpuCFSQuota", ()),
    ("cpuCfsQuotaPeriod", "cpuCFSQuotaPeriod", ()),
    ("cpuCFSQuota", "cpuCFSQuota", ()),
    ("cpuCFSQuotaPeriod", "cpuCFSQuotaPeriod", ()),
)
_SIGNALS: Final = {
    "memoryAvailable": "memory.available",
    "nodeFsAvailable": "nodefs.available",
    "nodeFsInodesFree": "nodefs.inodesFree",
}
_AKS_THRESHOLDS: Final = {"memory.available": "100Mi"}
_SECTION: Final = "kubeletConfig"
_OF_POOL = """
    agentPoolProfiles availabilityZones currentOrchestratorVersion enableAutoScaling linuxOSConfig linuxOsConfig
    maxPods nodeImageVersion orchestratorVersion osDiskSizeGB osSku osType sku vmSize
"""
_POOL_NAMES: Final = frozenset(_OF_POOL.split())
"""Some names of a node pool, or beside it, that no node system configuration of GKE has."""
_ONLY_HERE: Final = frozenset({*_OWN_NAMES, "failSwapOn", "kubeReserved", "topologyManagerPolicy"}) - {
    "cpuCfsQuota",
    "cpuCfsQuotaPeriod",
}
"""Names of ``kubeletConfig`` that GKE does not have there."""
_NODE_CLASS: Final = "AKSNodeClass"
_KINDS: Final = (None, _NODE_CLASS, "Base", "AzureManagedMachinePool", "AzureASOManagedMachinePool")
_TEMPLATE: Final = ("properties", "resources", "agentPoolProfiles", "spec")
_AKS_VERSIONS: Final = ("currentOrchestratorVersion", "orchestratorVersion")


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
    if isinstance(content, dict) and content.get("kind") == _NODE_CLASS:
        # Karpenter of Azure names the same section, and some of its fields, as a KubeletConfiguration does.
        spec = content.get("spec")
        if isinstance(spec, dict) and isinstance(spec.get("kubelet"), dict):
            yield f"{path}.spec".lstrip("."), spec
    elif isinstance(content, dict):
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
    name = _SECTION if _SECTION in pool else "kubelet"
    section = part.below(f"{path}.{name}".lstrip("."), pool[name])
    if name == _SECTION:
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
    name = next((name for name in _AKS_VERSIONS if isinstance(pool.get(name), str) and pool[name][:1].isdigit()), "")
    return NamedVersion(pool[name], part.place(f"{path}.{name}".lstrip("."))) if name else None


def custom_kubelet_config(part: VendorPart) -> Iterator[Layer]:
    """Yield the user's settings over what AKS reserves."""
    given = part.mapping("kubeReserved")
    milli, mebibytes = count_at(given, "cpuMillicores", 0), count_at(given, "memoryMB", 0)
    own: dict[str, Any] = {"evictionHard": dict(_AKS_THRESHOLDS)}
    if part.machine is not None:
        own["kubeReserved"] = {"cpu": f"{aks_milli(part.machine.num_cores)}m"}

    def memory(fields: Mapping[str, Any]) -> tuple[int, bool]:
        pods, machine = fields.get("maxPods"), part.machine
        if isinstance(pods, int) and machine is not None:
            return aks_memory(pods, machine.memory_capacity), True
        return aks_memory(0, _GIB), False

    message = (
        "AKS reserves 50 MB and 20 MB for each of maxPods, at most a quarter of the memory: add maxPods of the node "
        "pool, or kubeReserved.memory, as a drop-in where neither is there"
    )
    yield part.documented(Tier.VENDOR_FILE, own, {"kubeReserved.memory": part.computed(message, memory)})
    yield part.translated(Tier.FILE, "", _AKS_FIELDS)
    thresholds = part.mapping("hardEvictionThreshold")
    amounts = {"cpu": f"{milli}m" if milli else "", "memory": f"{mebibytes}Mi" if mebibytes else ""}
    fields = {
        "kubeReserved": {name: text for name, text in amounts.items() if text},
        "evictionHard": {signal: text_at(thresholds, name) for name, signal in _SIGNALS.items() if name in thresholds},
    }
    yield Layer(
        Tier.FILE,
        {name: value for name, value in fields.items() if value},
        lambda field: part.place(_AKS_PATHS.get(field, field.replace("evictionHard", "hardEvictionThreshold"))),
    )


_AKS_PATHS: Final = {
    "kubeReserved.cpu": "kubeReserved.cpuMillicores",
    "kubeReserved.memory": "kubeReserved.memoryMB",
    **{f"evictionHard.{signal}": f"hardEvictionThreshold.{name}" for name, signal in _SIGNALS.items()},
}


_OF_KARPENTER = """
    clusterDNS cpuCFSQuota evictionHard evictionMaxPodGracePeriod evictionSoft evictionSoftGracePeriod
    imageGCHighThresholdPercent imageGCLowThresholdPercent kubeReserved maxPods podsPerCore systemReserved
"""
_KARPENTER: Final = frozenset(_OF_KARPENTER.split())
BLOCK_FIELDS: Final = (
    ("karpenter.k8s.aws/", _KARPENTER),
    ("karpenter.sh/v1beta1", _KARPENTER),
    ("karpenter.sh/v1alpha5", _KARPENTER | {"containerRuntime"}),
    ("karpenter.sh/", frozenset[str]()),
    ("eks.amazonaws.com/", frozenset[str]()),
)
"""API version, or the beginning of it -> all fields that a kubelet's block has in its objects. Source:
https://karpenter.sh/docs/concepts/nodeclasses (spec.kubelet; since v1 no NodePool has it); EKS Auto Mode has none."""
EKS_VERSION: Final = "node.eks.aws/v1alpha1"
_CONFIG: Final = "spec.kubelet.config"
_FLAGS: Final = "spec.kubelet.flags"
_EKS_THRESHOLDS: Final = {"memory.available": "100Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%"}
_CGROUPS: Final = {"kubeReservedCgroup": "/runtime", "systemReservedCgroup": "/system"}
_EXTRA: Final = "--kubelet-extra-args"
_RESERVED_CPUS: Final = "--reserved-cpus"


def node_config(part: VendorPart) -> Iterator[Layer]:
    """Yield nodeadm's own file, the user's drop-in and the user's flags."""
    check_version(part.content, EKS_VERSION, required=True)
    yield _own_file(part, with_cgroups=True)
    yield part.layer(Tier.DROP_IN, _CONFIG)
    kubelet = part.mapping("spec.kubelet")
    try:
        listed = list_at(kubelet, "flags")
    except InputError as error:
        raise InputError(error.problem, field=_FLAGS, remedy="write a list such as - --node-labels=a=b") from None
    if listed:
        yield part.flags(part.strings(_FLAGS))


def bootstrap_script(part: VendorPart) -> Iterator[Layer]:
    """Yield the file of bootstrap.sh and the flags that are passed through it."""
    arguments = []
    for index, entry in enumerate(list_at(part.content, BOOTSTRAP_OPTIONS)):
        path = f"{BOOTSTRAP_OPTIONS}[{index}]"
        text = as_mapping(entry).get(_EXTRA)
        if isinstance(text, str):
            arguments += [(word, path) for word in split_arguments(text, str(part.place(path).source))]
    layer = part.flags(arguments)
    # bootstrap.sh leaves the cgroups of the reservation out where it finds this text.
    with_cgroups = not any(word.startswith(_RESERVED_CPUS) for word, _ in arguments)
    yield _own_file(part, with_cgroups=with_cgroups)
    yield layer


def _own_file(part: VendorPart, *, with_cgroups: bool) -> Layer:
    reserved = {"ephemeral-storage": "1Gi"}
    if part.machine is not None:
        reserved["cpu"] = f"{milli_by_ranges(part.machine.num_cores)}m"
    fields = {"evictionHard": dict(_EKS_THRESHOLDS), "kubeReserved": reserved, **(_CGROUPS if with_cgroups else {})}
    message = (
        "EKS reserves 255Mi and 11Mi for each pod that the instance type can have, which a NodeConfig does not tell: "
        "maxPods counts, set kubeReserved.memory where the instance type has another number"
    )

    def memory(fields: Mapping[str, Any]) -> tuple[int, bool]:
        pods = fields.get("maxPods")
        return (eks_memory(pods), True) if isinstance(pods, int) else (eks_memory(0), False)

    return part.documented(Tier.VENDOR_FILE, fields, {"kubeReserved.memory": part.computed(message, memory)})


_GKE_SECTIONS: Final[frozenset[str]] = frozenset({"kubeletConfig", "linuxConfig"})
_MEMORY: Final = {"none": "None", "static": "Static"}
_GKE_FIELDS: Final = (
    ("cpuManagerPolicy", "cpuManagerPolicy", ("none", "static")),
    ("topologyManager.policy", "topologyManagerPolicy", POLICIES),
    ("topologyManager.scope", "topologyManagerScope", ("container", "pod")),
    ("cpuCFSQuota", "cpuCFSQuota", ()),
    ("cpuCfsQuota", "cpuCFSQuota", ()),
    ("cpuCFSQuotaPeriod", "cpuCFSQuotaPeriod", ()),
    ("cpuCfsQuotaPeriod", "cpuCFSQuotaPeriod", ()),
)


def node_system_config(part: VendorPart) -> Iterator[Layer]:
    """Yield the user's settings over what GKE reserves."""
    reserved = "reserves CPU and memory by the size of the machine"
    machine = part.machine
    if machine is None:
        part.note("", f"GKE {reserved}, which is not known here")
    else:
        message = f"GKE {reserved}, as its documentation says; system pods of GKE are not counted"
        memory = {"kubeReserved.memory": part.computed(message, lambda _: (gke_memory(machine.memory_capacity), True))}
        cpu = {"cpu": f"{milli_by_ranges(machine.num_cores)}m"}
        yield part.documented(Tier.VENDOR_FILE, {"kubeReserved": cpu}, memory)
    yield part.translated(Tier.FILE, _SECTION, _GKE_FIELDS)
    policy = part.text(f"{_SECTION}.memoryManager.policy")
    if not policy:
        return
    path = f"{_SECTION}.memoryManager.policy"
    part.check_value(path, policy.lower(), tuple(_MEMORY))
    message = "GKE sets reservedMemory itself and does not document how: add it as a drop-in"
    computed = {"reservedMemory": part.computed(message)} if policy.lower() == "static" else {}
    fields = {"memoryManagerPolicy": _MEMORY[policy.lower()]}
    yield Layer(Tier.FILE, fields, lambda _: part.place(path), part.vendor, computed=computed)


def has_aks_names(content: Mapping[str, Any]) -> bool:
    """Tell whether a document without a kind is a custom kubelet configuration."""
    reserved = content.get("kubeReserved")
    inner = isinstance(reserved, Mapping) and not {"cpuMillicores", "memoryMB"}.isdisjoint(reserved)
    return inner or not _OWN_NAMES.isdisjoint(content)


FORMATS: Final[tuple[ConfigurationFormat, ...]] = (
    ConfigurationFormat("EKS bootstrap.sh", lambda content: set(content) == {BOOTSTRAP_OPTIONS}, bootstrap_script),
    ConfigurationFormat("EKS", of_kind("node.eks.aws/", "NodeConfig"), node_config, "EKSNodeConfig", several=True),
    ConfigurationFormat("AKS", is_node_pool, node_pool, version=pool_version),
    ConfigurationFormat(
        "GKE", without_kind(lambda content: not _GKE_SECTIONS.isdisjoint(content)), node_system_config,
        "GKENodeSystemConfig",
    ),
    ConfigurationFormat("AKS", without_kind(has_aks_names), custom_kubelet_config, "AKSKubeletConfig"),
)  # fmt: skip
