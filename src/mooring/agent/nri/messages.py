"""The messages of NRI 0.8 to 0.12.5.

What a runtime of an older release does not know it skips, and what a newer one sends beyond these declarations is kept
as unknown fields, so one set of messages serves all of them. Enums are numbers here: a later release may have more
values (:mod:`mooring.agent.nri.types` names those that matter). Source for numbers, names and types: containerd/nri
v0.8.0 and v0.12.5, pkg/api/api.proto.

``PodRequestMessage`` and ``ContainerRequestMessage`` stand for all that have just these fields under names of their
own: RunPodSandboxRequest, StartContainerRequest and the like.
"""

from __future__ import annotations

from typing import Final

from mooring.service.messages import Int32, Int64, Map, Repeated, TypedMessage, UInt32, UInt64, at

PACKAGE: Final = "nri.pkg.api.v1alpha1"
PLUGIN_SERVICE: Final = f"{PACKAGE}.Plugin"
RUNTIME_SERVICE: Final = f"{PACKAGE}.Runtime"


class RegisterPluginRequestMessage(TypedMessage, package=PACKAGE):
    plugin_name: str = at(1)
    plugin_idx: str = at(2)
    NRI_version: str = at(3)


class OptionalInt64Message(TypedMessage, package=PACKAGE):
    value: Int64 = at(1)


class OptionalUInt64Message(TypedMessage, package=PACKAGE):
    value: UInt64 = at(1)


class OptionalBoolMessage(TypedMessage, package=PACKAGE):
    value: bool = at(1)


class LinuxMemoryMessage(TypedMessage, package=PACKAGE):
    limit: OptionalInt64Message = at(1)
    reservation: OptionalInt64Message = at(2)
    swap: OptionalInt64Message = at(3)
    kernel: OptionalInt64Message = at(4)
    kernel_tcp: OptionalInt64Message = at(5)
    swappiness: OptionalUInt64Message = at(6)
    disable_oom_killer: OptionalBoolMessage = at(7)
    use_hierarchy: OptionalBoolMessage = at(8)


class LinuxCPUMessage(TypedMessage, package=PACKAGE):
    shares: OptionalUInt64Message = at(1)
    quota: OptionalInt64Message = at(2)
    period: OptionalUInt64Message = at(3)
    realtime_runtime: OptionalInt64Message = at(4)
    realtime_period: OptionalUInt64Message = at(5)
    cpus: str = at(6)
    mems: str = at(7)


class HugepageLimitMessage(TypedMessage, package=PACKAGE):
    page_size: str = at(1)
    limit: UInt64 = at(2)


class OptionalStringMessage(TypedMessage, package=PACKAGE):
    value: str = at(1)


class LinuxDeviceCgroupMessage(TypedMessage, package=PACKAGE):
    allow: bool = at(1)
    type: str = at(2)
    major: OptionalInt64Message = at(3)
    minor: OptionalInt64Message = at(4)
    access: str = at(5)


class LinuxPidsMessage(TypedMessage, package=PACKAGE):
    limit: Int64 = at(1)


class LinuxResourcesMessage(TypedMessage, package=PACKAGE):
    memory: LinuxMemoryMessage = at(1)
    cpu: LinuxCPUMessage = at(2)
    hugepage_limits: Repeated[HugepageLimitMessage] = at(3)
    blockio_class: OptionalStringMessage = at(4)
    rdt_class: OptionalStringMessage = at(5)
    unified: Map[str, str] = at(6)
    devices: Repeated[LinuxDeviceCgroupMessage] = at(7)
    pids: LinuxPidsMessage = at(8)


class LinuxContainerUpdateMessage(TypedMessage, package=PACKAGE):
    resources: LinuxResourcesMessage = at(1)


class ContainerUpdateMessage(TypedMessage, package=PACKAGE):
    container_id: str = at(1)
    linux: LinuxContainerUpdateMessage = at(2)
    ignore_failure: bool = at(3)


class ContainerEvictionMessage(TypedMessage, package=PACKAGE):
    container_id: str = at(1)
    reason: str = at(2)


class UpdateContainersRequestMessage(TypedMessage, package=PACKAGE):
    update: Repeated[ContainerUpdateMessage] = at(1)
    evict: Repeated[ContainerEvictionMessage] = at(2)


class UpdateContainersResponseMessage(TypedMessage, package=PACKAGE):
    failed: Repeated[ContainerUpdateMessage] = at(1)


class ConfigureRequestMessage(TypedMessage, package=PACKAGE):
    config: str = at(1)
    runtime_name: str = at(2)
    runtime_version: str = at(3)
    registration_timeout: Int64 = at(4)
    request_timeout: Int64 = at(5)
    NRI_version: str = at(6)


class FailurePolicyMessage(TypedMessage, package=PACKAGE):
    fail_request: bool = at(1)
    keep_connected: bool = at(2)


class ConfigureResponseMessage(TypedMessage, package=PACKAGE):
    events: Int32 = at(2)
    failure_policy: FailurePolicyMessage = at(3)


class LinuxNamespaceMessage(TypedMessage, package=PACKAGE):
    type: str = at(1)
    path: str = at(2)


class LinuxPodSandboxMessage(TypedMessage, package=PACKAGE):
    pod_overhead: LinuxResourcesMessage = at(1)
    pod_resources: LinuxResourcesMessage = at(2)
    cgroup_parent: str = at(3)
    cgroups_path: str = at(4)
    namespaces: Repeated[LinuxNamespaceMessage] = at(5)
    resources: LinuxResourcesMessage = at(6)


class PodSandboxMessage(TypedMessage, package=PACKAGE):
    id: str = at(1)
    name: str = at(2)
    uid: str = at(3)
    namespace: str = at(4)
    labels: Map[str, str] = at(5)
    annotations: Map[str, str] = at(6)
    runtime_handler: str = at(7)
    linux: LinuxPodSandboxMessage = at(8)
    pid: UInt32 = at(9)
    ips: Repeated[str] = at(10)


class MountMessage(TypedMessage, package=PACKAGE):
    destination: str = at(1)
    type: str = at(2)
    source: str = at(3)
    options: Repeated[str] = at(4)


class OptionalIntMessage(TypedMessage, package=PACKAGE):
    value: Int64 = at(1)


class HookMessage(TypedMessage, package=PACKAGE):
    path: str = at(1)
    args: Repeated[str] = at(2)
    env: Repeated[str] = at(3)
    timeout: OptionalIntMessage = at(4)


class HooksMessage(TypedMessage, package=PACKAGE):
    prestart: Repeated[HookMessage] = at(1)
    create_runtime: Repeated[HookMessage] = at(2)
    create_container: Repeated[HookMessage] = at(3)
    start_container: Repeated[HookMessage] = at(4)
    poststart: Repeated[HookMessage] = at(5)
    poststop: Repeated[HookMessage] = at(6)


class OptionalFileModeMessage(TypedMessage, package=PACKAGE):
    value: UInt32 = at(1)


class OptionalUInt32Message(TypedMessage, package=PACKAGE):
    value: UInt32 = at(1)


class LinuxDeviceMessage(TypedMessage, package=PACKAGE):
    path: str = at(1)
    type: str = at(2)
    major: Int64 = at(3)
    minor: Int64 = at(4)
    file_mode: OptionalFileModeMessage = at(5)
    uid: OptionalUInt32Message = at(6)
    gid: OptionalUInt32Message = at(7)


class LinuxContainerMessage(TypedMessage, package=PACKAGE):
    namespaces: Repeated[LinuxNamespaceMessage] = at(1)
    devices: Repeated[LinuxDeviceMessage] = at(2)
    resources: LinuxResourcesMessage = at(3)
    oom_score_adj: OptionalIntMessage = at(4)
    cgroups_path: str = at(5)
    sysctl: Map[str, str] = at(9)


class POSIXRlimitMessage(TypedMessage, package=PACKAGE):
    type: str = at(1)
    hard: UInt64 = at(2)
    soft: UInt64 = at(3)


class CDIDeviceMessage(TypedMessage, package=PACKAGE):
    name: str = at(1)


class UserMessage(TypedMessage, package=PACKAGE):
    uid: UInt32 = at(1)
    gid: UInt32 = at(2)
    additional_gids: Repeated[UInt32] = at(3)


class ImageMessage(TypedMessage, package=PACKAGE):
    name: str = at(1)
    digest: str = at(2)
    config_digest: str = at(3)


class NRIContainerMessage(TypedMessage, package=PACKAGE):
    id: str = at(1)
    pod_sandbox_id: str = at(2)
    name: str = at(3)
    state: Int32 = at(4)
    labels: Map[str, str] = at(5)
    annotations: Map[str, str] = at(6)
    args: Repeated[str] = at(7)
    env: Repeated[str] = at(8)
    mounts: Repeated[MountMessage] = at(9)
    hooks: HooksMessage = at(10)
    linux: LinuxContainerMessage = at(11)
    pid: UInt32 = at(12)
    rlimits: Repeated[POSIXRlimitMessage] = at(13)
    created_at: Int64 = at(14)
    started_at: Int64 = at(15)
    finished_at: Int64 = at(16)
    exit_code: Int32 = at(17)
    status_reason: str = at(18)
    status_message: str = at(19)
    CDI_devices: Repeated[CDIDeviceMessage] = at(20)
    user: UserMessage = at(21)
    image: ImageMessage = at(22)


class SynchronizeRequestMessage(TypedMessage, package=PACKAGE):
    pods: Repeated[PodSandboxMessage] = at(1)
    containers: Repeated[NRIContainerMessage] = at(2)
    more: bool = at(3)


class SynchronizeResponseMessage(TypedMessage, package=PACKAGE):
    update: Repeated[ContainerUpdateMessage] = at(1)
    more: bool = at(2)


class KeyValueMessage(TypedMessage, package=PACKAGE):
    key: str = at(1)
    value: str = at(2)


class LinuxContainerAdjustmentMessage(TypedMessage, package=PACKAGE):
    devices: Repeated[LinuxDeviceMessage] = at(1)
    resources: LinuxResourcesMessage = at(2)
    cgroups_path: str = at(3)
    oom_score_adj: OptionalIntMessage = at(4)


class ContainerAdjustmentMessage(TypedMessage, package=PACKAGE):
    annotations: Map[str, str] = at(2)
    mounts: Repeated[MountMessage] = at(3)
    env: Repeated[KeyValueMessage] = at(4)
    hooks: HooksMessage = at(5)
    linux: LinuxContainerAdjustmentMessage = at(6)
    rlimits: Repeated[POSIXRlimitMessage] = at(7)
    CDI_devices: Repeated[CDIDeviceMessage] = at(8)
    args: Repeated[str] = at(9)


class CreateContainerResponseMessage(TypedMessage, package=PACKAGE):
    adjust: ContainerAdjustmentMessage = at(1)
    update: Repeated[ContainerUpdateMessage] = at(2)
    evict: Repeated[ContainerEvictionMessage] = at(3)


class UpdateContainerRequestMessage(TypedMessage, package=PACKAGE):
    pod: PodSandboxMessage = at(1)
    container: NRIContainerMessage = at(2)
    linux_resources: LinuxResourcesMessage = at(3)


class UpdateContainerResponseMessage(TypedMessage, package=PACKAGE):
    update: Repeated[ContainerUpdateMessage] = at(1)
    evict: Repeated[ContainerEvictionMessage] = at(2)


class StopContainerResponseMessage(TypedMessage, package=PACKAGE):
    update: Repeated[ContainerUpdateMessage] = at(1)


class UpdatePodSandboxRequestMessage(TypedMessage, package=PACKAGE):
    pod: PodSandboxMessage = at(1)
    overhead_linux_resources: LinuxResourcesMessage = at(2)
    linux_resources: LinuxResourcesMessage = at(3)


class StateChangeEventMessage(TypedMessage, package=PACKAGE):
    event: Int32 = at(1)
    pod: PodSandboxMessage = at(2)
    container: NRIContainerMessage = at(3)


class PodRequestMessage(TypedMessage, package=PACKAGE):
    pod: PodSandboxMessage = at(1)


class ContainerRequestMessage(TypedMessage, package=PACKAGE):
    pod: PodSandboxMessage = at(1)
    container: NRIContainerMessage = at(2)


class ValidateContainerAdjustmentResponseMessage(TypedMessage, package=PACKAGE):
    reject: bool = at(1)
    reason: str = at(2)


class EmptyMessage(TypedMessage, package=PACKAGE):
    """Has no field."""
