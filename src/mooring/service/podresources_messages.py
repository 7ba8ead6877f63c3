"""The messages of the kubelet's PodResources API v1, as far as the agent fills them.

Source for numbers, names and types: k8s.io/kubelet v0.37.1, pkg/apis/podresources/v1; spec: pod-level.md section 5.
"""

from __future__ import annotations

from collections.abc import Mapping

from google.protobuf.message import Message

from mooring.service.protobuf import build_messages

PACKAGE = "v1"
SERVICE = f"{PACKAGE}.PodResourcesLister"

_TABLES = {
    "ListPodResourcesRequest": "",
    "ListPodResourcesResponse": "1 pod_resources repeated PodResources",
    "AllocatableResourcesRequest": "",
    "AllocatableResourcesResponse": """
        1 devices repeated ContainerDevices
        2 cpu_ids repeated int64
        3 memory repeated ContainerMemory""",
    "GetPodResourcesRequest": """
        1 pod_name string
        2 pod_namespace string""",
    "GetPodResourcesResponse": "1 pod_resources PodResources",
    "PodResources": """
        1 name string
        2 namespace string
        3 containers repeated ContainerResources
        4 cpu_ids repeated int64
        5 memory repeated ContainerMemory""",
    "ContainerResources": """
        1 name string
        2 devices repeated ContainerDevices
        3 cpu_ids repeated int64
        4 memory repeated ContainerMemory
        5 dynamic_resources repeated DynamicResource""",
    "ContainerMemory": """
        1 memory_type string
        2 size uint64
        3 topology TopologyInfo""",
    "ContainerDevices": """
        1 resource_name string
        2 device_ids repeated string
        3 topology TopologyInfo""",
    "TopologyInfo": "1 nodes repeated NUMANode",
    "NUMANode": "1 ID int64",
    "DynamicResource": """
        2 claim_name string
        3 claim_namespace string""",
}

MESSAGES: Mapping[str, type[Message]] = build_messages(PACKAGE, _TABLES)
"""Message class by name."""
