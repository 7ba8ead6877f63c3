"""The messages of NRI 0.8 to 0.12.5, as far as the plugin reads or writes them.

What a runtime of an older release does not know it skips, and what a runtime sends beyond these declarations is kept as
unknown fields, so one set of messages serves all of them. Enums are numbers here: a later release may have more
values (:mod:`mooring.agent.nri.types` names those that matter). Source for numbers, names and types: containerd/nri
v0.8.0 and v0.12.5, pkg/api/api.proto.

``ContainerRequestMessage`` stands for all that have at most these fields under names of their own, such as
RunPodSandboxRequest and StartContainerRequest, and ``UpdatesResponseMessage`` for the answers to UpdateContainer and
StopContainer.
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


class LinuxMemoryMessage(TypedMessage, package=PACKAGE):
    limit: OptionalInt64Message = at(1)


class LinuxCPUMessage(TypedMessage, package=PACKAGE):
    shares: OptionalUInt64Message = at(1)
    quota: OptionalInt64Message = at(2)
    period: OptionalUInt64Message = at(3)
    cpus: str = at(6)
    mems: str = at(7)


class LinuxResourcesMessage(TypedMessage, package=PACKAGE):
    memory: LinuxMemoryMessage = at(1)
    cpu: LinuxCPUMessage = at(2)


class LinuxContainerUpdateMessage(TypedMessage, package=PACKAGE):
    resources: LinuxResourcesMessage = at(1)


class ContainerUpdateMessage(TypedMessage, package=PACKAGE):
    container_id: str = at(1)
    linux: LinuxContainerUpdateMessage = at(2)
    ignore_failure: bool = at(3)


class ConfigureRequestMessage(TypedMessage, package=PACKAGE):
    config: str = at(1)
    runtime_name: str = at(2)
    runtime_version: str = at(3)
    registration_timeout: Int64 = at(4)
    request_timeout: Int64 = at(5)
    NRI_version: str = at(6)


class FailurePolicyMessage(TypedMessage, package=PACKAGE):
    fail_request: bool = at(1)


class ConfigureResponseMessage(TypedMessage, package=PACKAGE):
    events: Int32 = at(2)
    failure_policy: FailurePolicyMessage = at(3)


class LinuxPodSandboxMessage(TypedMessage, package=PACKAGE):
    pod_overhead: LinuxResourcesMessage = at(1)
    pod_resources: LinuxResourcesMessage = at(2)
    cgroup_parent: str = at(3)
    cgroups_path: str = at(4)


class PodSandboxMessage(TypedMessage, package=PACKAGE):
    id: str = at(1)
    name: str = at(2)
    uid: str = at(3)
    namespace: str = at(4)
    labels: Map[str, str] = at(5)
    annotations: Map[str, str] = at(6)
    linux: LinuxPodSandboxMessage = at(8)
    pid: UInt32 = at(9)


class MountMessage(TypedMessage, package=PACKAGE):
    destination: str = at(1)
    type: str = at(2)
    source: str = at(3)
    options: Repeated[str] = at(4)


class LinuxContainerMessage(TypedMessage, package=PACKAGE):
    resources: LinuxResourcesMessage = at(3)
    cgroups_path: str = at(5)


class NRIContainerMessage(TypedMessage, package=PACKAGE):
    id: str = at(1)
    pod_sandbox_id: str = at(2)
    name: str = at(3)
    state: Int32 = at(4)
    labels: Map[str, str] = at(5)
    annotations: Map[str, str] = at(6)
    env: Repeated[str] = at(8)
    linux: LinuxContainerMessage = at(11)
    pid: UInt32 = at(12)


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
    resources: LinuxResourcesMessage = at(2)


class ContainerAdjustmentMessage(TypedMessage, package=PACKAGE):
    annotations: Map[str, str] = at(2)
    mounts: Repeated[MountMessage] = at(3)
    env: Repeated[KeyValueMessage] = at(4)
    linux: LinuxContainerAdjustmentMessage = at(6)


class CreateContainerResponseMessage(TypedMessage, package=PACKAGE):
    adjust: ContainerAdjustmentMessage = at(1)
    update: Repeated[ContainerUpdateMessage] = at(2)


class UpdateContainerRequestMessage(TypedMessage, package=PACKAGE):
    pod: PodSandboxMessage = at(1)
    container: NRIContainerMessage = at(2)
    linux_resources: LinuxResourcesMessage = at(3)


class UpdatesResponseMessage(TypedMessage, package=PACKAGE):
    update: Repeated[ContainerUpdateMessage] = at(1)


class UpdatePodSandboxRequestMessage(TypedMessage, package=PACKAGE):
    pod: PodSandboxMessage = at(1)
    overhead_linux_resources: LinuxResourcesMessage = at(2)
    linux_resources: LinuxResourcesMessage = at(3)


class StateChangeEventMessage(TypedMessage, package=PACKAGE):
    event: Int32 = at(1)
    pod: PodSandboxMessage = at(2)
    container: NRIContainerMessage = at(3)


class ContainerRequestMessage(TypedMessage, package=PACKAGE):
    pod: PodSandboxMessage = at(1)
    container: NRIContainerMessage = at(2)
