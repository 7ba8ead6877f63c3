"""What the labels of the metrics can say, and how a reason or a pod becomes a label value.

Source: kubelet v1.37.1, pkg/kubelet/metrics and kubelet.go; spec: metrics.md sections 1 and 2.
"""

from __future__ import annotations

from typing import TypeAlias

from mooring.engine.core.decision import OUT_OF
from mooring.engine.core.pod import Pod

Labels: TypeAlias = tuple[tuple[str, str], ...]
"""(label, value), ascending by label."""


def labels(**values: str) -> Labels:
    """Return labels in their order.

    >>> labels(scope="pod", boundary="numa_node")
    (('boundary', 'numa_node'), ('scope', 'pod'))
    """
    return tuple(sorted(values.items()))


CONTAINER_SCOPE = "container"
POD_SCOPE = "pod"
"""Scopes of an alignment."""

WHOLE_CORES = labels(scope=CONTAINER_SCOPE, boundary="physical_cpu")
ONE_UNCORE = labels(scope=CONTAINER_SCOPE, boundary="uncore_cache")
CONTAINER_NUMA = labels(scope=CONTAINER_SCOPE, boundary="numa_node")
POD_NUMA = labels(scope=POD_SCOPE, boundary="numa_node")

CPU = "cpu"
MEMORY = "memory"
"""Resources of a manager. Huge pages count as memory."""

NODE = "node"
POD = "pod"
"""Sources of an allocation: the node, or the partition of a pod (KEP-5526)."""


def allocation(resource: str, source: str) -> Labels:
    """Return the labels of an allocation or its failure."""
    return labels(resource_name=resource, source=source)


NODE_EXCLUSIVE = "node_exclusive"
POD_EXCLUSIVE = "pod_exclusive"
POD_SHARED = "pod_shared"
"""Types of what a container is given."""


def assignment(resource: str, kind: str) -> Labels:
    """Return the labels of a container's assignment."""
    return labels(resource_name=resource, assignment_type=kind)


REASONS = frozenset(
    {
        "AppArmor",
        "PodOSSelectorNodeLabelDoesNotMatch",
        "PodOSNotSupported",
        "InvalidNodeInfo",
        "InitContainerRestartPolicyForbidden",
        "SupplementalGroupsPolicyNotSupported",
        "UnexpectedAdmissionError",
        "UnknownReason",
        "UnexpectedPredicateFailureType",
        "OutOfcpu",
        "OutOfmemory",
        "OutOfephemeral-storage",
        "OutOfpods",
        "PodLevelResourcesNotSupported",
        "PodFeatureUnsupported",
        "node(s) had taints that the pod didn't tolerate",
        "Evicted",
        "SysctlForbidden",
        "TopologyAffinityError",
        "NodeShutdown",
        "VolumeAttachmentLimitExceeded",
    }
)
"""Reasons of a rejection that are counted under their own name."""


def rejection(reason: str) -> Labels:
    """Return the label of a rejection: few values, whatever the reasons, so that the series stay few.

    >>> [dict(rejection(reason))["reason"] for reason in ("OutOfcpu", "OutOfvendor.example/nic", "SMTAlignmentError")]
    ['OutOfcpu', 'OutOfExtendedResources', 'Other']
    """
    if reason in REASONS:
        return labels(reason=reason)
    return labels(reason="OutOfExtendedResources" if reason.startswith(OUT_OF) else "Other")


def pod_admission(pod: Pod) -> Labels:
    """Return the labels of an admitted pod: where its resources are declared, and its QoS class.

    That any request or limit of any container counts as declared there is inferred from the metric's help in v1.37.1.
    """
    in_containers = any(container.requests or container.limits for container in pod.containers)
    if pod.is_pod_level:
        mode = "pod_and_container_level" if in_containers else "pod_level"
    else:
        mode = "container_level" if in_containers else ""
    return labels(config_mode=mode, qos_class=pod.qos.value.lower())
