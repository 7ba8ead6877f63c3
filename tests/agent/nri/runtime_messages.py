"""The messages of a runtime: the pods and containers that it sends, and the updates that it receives."""

from __future__ import annotations

from typing import Any

from mooring.agent.nri.messages import NRIContainerMessage, PodSandboxMessage
from mooring.agent.nri.methods import resources_from, resources_to
from mooring.agent.nri.types import ContainerUpdate, PodSandbox, RuntimeContainer


def pod_to(pod: PodSandbox) -> Any:
    """Return a pod as a message."""
    message = PodSandboxMessage(
        id=pod.id,
        uid=pod.uid,
        name=pod.name,
        namespace=pod.namespace,
        labels=dict(pod.labels),
        annotations=dict(pod.annotations),
        pid=pod.pid,
    )
    message.linux.cgroup_parent = pod.cgroup_parent
    message.linux.cgroups_path = pod.cgroups_path
    message.linux.pod_overhead.CopyFrom(resources_to(pod.overhead))
    message.linux.pod_resources.CopyFrom(resources_to(pod.pod_resources))
    return message


def container_to(container: RuntimeContainer) -> Any:
    """Return a container as a message."""
    message = NRIContainerMessage(
        id=container.id,
        pod_sandbox_id=container.pod_sandbox_id,
        name=container.name,
        state=int(container.state),
        pid=container.pid,
        labels=dict(container.labels),
        annotations=dict(container.annotations),
    )
    message.linux.cgroups_path = container.cgroups_path
    message.linux.resources.CopyFrom(resources_to(container.resources))
    return message


def update_from(message: Any) -> ContainerUpdate:
    """Return an update, as runtimes send back those that failed."""
    return ContainerUpdate(message.container_id, resources_from(message.linux.resources), message.ignore_failure)
