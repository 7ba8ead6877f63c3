"""From NRI messages to plain values and back; what :mod:`mooring.agent.nri.types` does not name is dropped on the way.

Messages are classes made at import time, so a type checker does not know their fields: they are ``Any`` here, and not
beyond this package.
"""

from __future__ import annotations

from typing import Any

from mooring.agent.nri.messages import NRI
from mooring.agent.nri.types import (
    CLAIM_VARIABLE,
    ContainerAdjustment,
    ContainerState,
    ContainerUpdate,
    LinuxResources,
    PodSandbox,
    RuntimeContainer,
)

_NOTHING = LinuxResources()


def resources_from(message: Any) -> LinuxResources:
    """Return CPU and memory settings; a wrapped 0 stays 0, an absent wrapper becomes None."""
    cpu, memory = message.cpu, message.memory
    return LinuxResources(
        cpus=cpu.cpus,
        mems=cpu.mems,
        shares=cpu.shares.value if cpu.HasField("shares") else None,
        quota=cpu.quota.value if cpu.HasField("quota") else None,
        period=cpu.period.value if cpu.HasField("period") else None,
        memory_limit=memory.limit.value if memory.HasField("limit") else None,
    )


def pod_from(message: Any) -> PodSandbox:
    """Return a pod.

    Clients of the CRI other than a kubelet may give it no uid; then it has its sandbox's id, so that no two are one.
    """
    return PodSandbox(
        id=message.id,
        uid=message.uid or message.id,
        name=message.name,
        namespace=message.namespace,
        labels=dict(message.labels),
        annotations=dict(message.annotations),
        cgroup_parent=message.linux.cgroup_parent,
        cgroups_path=message.linux.cgroups_path,
        pid=message.pid,
        overhead=resources_from(message.linux.pod_overhead),
        pod_resources=resources_from(message.linux.pod_resources),
    )


def container_from(message: Any) -> RuntimeContainer:
    """Return a container; a state that this release does not know is UNKNOWN."""
    known = message.state in ContainerState.__members__.values()
    return RuntimeContainer(
        id=message.id,
        pod_sandbox_id=message.pod_sandbox_id,
        name=message.name,
        state=ContainerState(message.state) if known else ContainerState.UNKNOWN,
        pid=message.pid,
        labels=dict(message.labels),
        annotations=dict(message.annotations),
        resources=resources_from(message.linux.resources),
        cgroups_path=message.linux.cgroups_path,
        claims=tuple(sorted({one.partition("=")[0] for one in message.env if one.startswith(CLAIM_VARIABLE)})),
    )


def resources_to(resources: LinuxResources) -> Any:
    """Return settings as a message; what is not set is absent, so that the runtime keeps what it has."""
    message = NRI["LinuxResources"]()
    if resources.cpus:
        message.cpu.cpus = resources.cpus
    if resources.mems:
        message.cpu.mems = resources.mems
    # Setting even a wrapped 0 makes its wrapper present.
    for name in ("shares", "quota", "period"):
        value = getattr(resources, name)
        if value is not None:
            wrapper = getattr(message.cpu, name)
            wrapper.SetInParent()
            wrapper.value = value
    if resources.memory_limit is not None:
        message.memory.limit.SetInParent()
        message.memory.limit.value = resources.memory_limit
    return message


def update_to(update: ContainerUpdate) -> Any:
    """Return an update of a container as a message."""
    message = NRI["ContainerUpdate"](container_id=update.container_id, ignore_failure=update.ignore_failure)
    message.linux.resources.CopyFrom(resources_to(update.resources))
    return message


def adjustment_to(adjustment: ContainerAdjustment) -> Any:
    """Return an adjustment as a message."""
    message = NRI["ContainerAdjustment"](annotations=dict(adjustment.annotations))
    if adjustment.resources != _NOTHING:
        message.linux.resources.CopyFrom(resources_to(adjustment.resources))
    for key, value in adjustment.environment.items():
        message.env.add(key=key, value=value)
    for mount in adjustment.mounts:
        message.mounts.add(
            destination=mount.destination, source=mount.source, type=mount.type, options=list(mount.options)
        )
    return message
