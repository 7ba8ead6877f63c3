"""The messages of NRI 0.8 to 0.12.5 and of ttRPC, as tables and as the classes made from them.

What a runtime of an older release does not know it skips, and what a newer one sends beyond the tables is kept as
unknown fields, so one set of tables serves all of them. Source for numbers, names and types: containerd/nri v0.8.0 and
v0.12.5, pkg/api/api.proto; containerd/ttrpc v1.2.7, request.proto; google.rpc.Status.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf.message import Message as ProtoMessage

from mooring.service.protobuf import build_messages

PACKAGE = "nri.pkg.api.v1alpha1"
PLUGIN_SERVICE = f"{PACKAGE}.Plugin"
RUNTIME_SERVICE = f"{PACKAGE}.Runtime"

_ENUMS = {
    "Event": {
        "UNKNOWN": 0,
        "RUN_POD_SANDBOX": 1,
        "STOP_POD_SANDBOX": 2,
        "REMOVE_POD_SANDBOX": 3,
        "CREATE_CONTAINER": 4,
        "POST_CREATE_CONTAINER": 5,
        "START_CONTAINER": 6,
        "POST_START_CONTAINER": 7,
        "UPDATE_CONTAINER": 8,
        "POST_UPDATE_CONTAINER": 9,
        "STOP_CONTAINER": 10,
        "REMOVE_CONTAINER": 11,
        "UPDATE_POD_SANDBOX": 12,
        "POST_UPDATE_POD_SANDBOX": 13,
        "VALIDATE_CONTAINER_ADJUSTMENT": 14,
    },
    "ContainerState": {
        "CONTAINER_UNKNOWN": 0,
        "CONTAINER_CREATED": 1,
        "CONTAINER_PAUSED": 2,
        "CONTAINER_RUNNING": 3,
        "CONTAINER_STOPPED": 4,
    },
}

_WRAPPERS = {
    f"Optional{name}": f"1 value {kind}"
    for name, kind in {
        "Int": "int64",
        "Int64": "int64",
        "UInt32": "uint32",
        "UInt64": "uint64",
        "Bool": "bool",
        "String": "string",
        "FileMode": "uint32",
        "RepeatedString": "repeated string",
    }.items()
}
"""Numbers and texts that can be absent."""

_SERVICE = {
    "RegisterPluginRequest": """
        1 plugin_name string
        2 plugin_idx string
        3 NRI_version string""",
    "UpdateContainersRequest": """
        1 update repeated ContainerUpdate
        2 evict repeated ContainerEviction""",
    "UpdateContainersResponse": "1 failed repeated ContainerUpdate",
    "ConfigureRequest": """
        1 config string
        2 runtime_name string
        3 runtime_version string
        4 registration_timeout int64
        5 request_timeout int64
        6 NRI_version string""",
    "ConfigureResponse": """
        2 events int32
        3 failure_policy FailurePolicy""",
    "FailurePolicy": """
        1 fail_request bool
        2 keep_connected bool""",
    "SynchronizeRequest": """
        1 pods repeated PodSandbox
        2 containers repeated Container
        3 more bool""",
    "SynchronizeResponse": """
        1 update repeated ContainerUpdate
        2 more bool""",
    "CreateContainerResponse": """
        1 adjust ContainerAdjustment
        2 update repeated ContainerUpdate
        3 evict repeated ContainerEviction""",
    "UpdateContainerRequest": """
        1 pod PodSandbox
        2 container Container
        3 linux_resources LinuxResources""",
    "UpdateContainerResponse": """
        1 update repeated ContainerUpdate
        2 evict repeated ContainerEviction""",
    "StopContainerResponse": "1 update repeated ContainerUpdate",
    "UpdatePodSandboxRequest": """
        1 pod PodSandbox
        2 overhead_linux_resources LinuxResources
        3 linux_resources LinuxResources""",
    "StateChangeEvent": """
        1 event Event
        2 pod PodSandbox
        3 container Container""",
    "PodRequest": "1 pod PodSandbox",
    "ContainerRequest": """
        1 pod PodSandbox
        2 container Container""",
    "ValidateContainerAdjustmentResponse": """
        1 reject bool
        2 reason string""",
    "Empty": "",
}
"""Requests and replies. ``PodRequest`` and ``ContainerRequest`` stand for all that have just these fields under names
of their own: RunPodSandboxRequest, StartContainerRequest and the like."""

_WORLD = {
    "PodSandbox": """
        1 id string
        2 name string
        3 uid string
        4 namespace string
        5 labels map string string
        6 annotations map string string
        7 runtime_handler string
        8 linux LinuxPodSandbox
        9 pid uint32
        10 ips repeated string""",
    "LinuxPodSandbox": """
        1 pod_overhead LinuxResources
        2 pod_resources LinuxResources
        3 cgroup_parent string
        4 cgroups_path string
        5 namespaces repeated LinuxNamespace
        6 resources LinuxResources""",
    "Container": """
        1 id string
        2 pod_sandbox_id string
        3 name string
        4 state ContainerState
        5 labels map string string
        6 annotations map string string
        7 args repeated string
        8 env repeated string
        9 mounts repeated Mount
        10 hooks Hooks
        11 linux LinuxContainer
        12 pid uint32
        13 rlimits repeated POSIXRlimit
        14 created_at int64
        15 started_at int64
        16 finished_at int64
        17 exit_code int32
        18 status_reason string
        19 status_message string
        20 CDI_devices repeated CDIDevice
        21 user User
        22 image Image""",
    "Image": """
        1 name string
        2 digest string
        3 config_digest string""",
    "Mount": """
        1 destination string
        2 type string
        3 source string
        4 options repeated string""",
    "Hooks": """
        1 prestart repeated Hook
        2 create_runtime repeated Hook
        3 create_container repeated Hook
        4 start_container repeated Hook
        5 poststart repeated Hook
        6 poststop repeated Hook""",
    "Hook": """
        1 path string
        2 args repeated string
        3 env repeated string
        4 timeout OptionalInt""",
    "LinuxContainer": """
        1 namespaces repeated LinuxNamespace
        2 devices repeated LinuxDevice
        3 resources LinuxResources
        4 oom_score_adj OptionalInt
        5 cgroups_path string
        9 sysctl map string string""",
    "LinuxNamespace": """
        1 type string
        2 path string""",
    "LinuxDevice": """
        1 path string
        2 type string
        3 major int64
        4 minor int64
        5 file_mode OptionalFileMode
        6 uid OptionalUInt32
        7 gid OptionalUInt32""",
    "LinuxDeviceCgroup": """
        1 allow bool
        2 type string
        3 major OptionalInt64
        4 minor OptionalInt64
        5 access string""",
    "CDIDevice": "1 name string",
    "User": """
        1 uid uint32
        2 gid uint32
        3 additional_gids repeated uint32""",
    "POSIXRlimit": """
        1 type string
        2 hard uint64
        3 soft uint64""",
}
"""Pods and containers."""

_RESOURCES = {
    "LinuxResources": """
        1 memory LinuxMemory
        2 cpu LinuxCPU
        3 hugepage_limits repeated HugepageLimit
        4 blockio_class OptionalString
        5 rdt_class OptionalString
        6 unified map string string
        7 devices repeated LinuxDeviceCgroup
        8 pids LinuxPids""",
    "LinuxMemory": """
        1 limit OptionalInt64
        2 reservation OptionalInt64
        3 swap OptionalInt64
        4 kernel OptionalInt64
        5 kernel_tcp OptionalInt64
        6 swappiness OptionalUInt64
        7 disable_oom_killer OptionalBool
        8 use_hierarchy OptionalBool""",
    "LinuxCPU": """
        1 shares OptionalUInt64
        2 quota OptionalInt64
        3 period OptionalUInt64
        4 realtime_runtime OptionalInt64
        5 realtime_period OptionalUInt64
        6 cpus string
        7 mems string""",
    "HugepageLimit": """
        1 page_size string
        2 limit uint64""",
    "LinuxPids": "1 limit int64",
}

_ANSWERS = {
    "ContainerAdjustment": """
        2 annotations map string string
        3 mounts repeated Mount
        4 env repeated KeyValue
        5 hooks Hooks
        6 linux LinuxContainerAdjustment
        7 rlimits repeated POSIXRlimit
        8 CDI_devices repeated CDIDevice
        9 args repeated string""",
    "LinuxContainerAdjustment": """
        1 devices repeated LinuxDevice
        2 resources LinuxResources
        3 cgroups_path string
        4 oom_score_adj OptionalInt""",
    "ContainerUpdate": """
        1 container_id string
        2 linux LinuxContainerUpdate
        3 ignore_failure bool""",
    "LinuxContainerUpdate": "1 resources LinuxResources",
    "ContainerEviction": """
        1 container_id string
        2 reason string""",
    "KeyValue": """
        1 key string
        2 value string""",
}
"""What a plugin changes."""

NRI: Mapping[str, type[Any]] = build_messages(
    PACKAGE, _WRAPPERS | _SERVICE | _WORLD | _RESOURCES | _ANSWERS, enums=_ENUMS
)
"""Classes of the NRI by the names of their messages. They are made while the program runs, so no type checker knows
their fields: only this package touches them."""

TTRPC: Mapping[str, type[Any]] = build_messages(
    "ttrpc",
    {
        "Request": """
            1 service string
            2 method string
            3 payload bytes
            4 timeout_nano int64
            5 metadata repeated KeyValue""",
        "Response": """
            1 status Status
            2 payload bytes""",
        "KeyValue": """
            1 key string
            2 value string""",
        "Status": """
            1 code int32
            2 message string""",
    },
)
"""Classes of the bodies of ttRPC messages."""

__all__ = ["NRI", "PACKAGE", "PLUGIN_SERVICE", "RUNTIME_SERVICE", "TTRPC", "ProtoMessage"]
