"""A node in the JSON form of the kubelet's PodResources API v1: List and GetAllocatableResources.

Numbers are texts, as protobuf's JSON form writes 64-bit numbers. Ids are ascending, where the kubelet's order is
arbitrary.

Source: k8s.io/kubelet/pkg/apis/podresources/v1 and the kubelet's servers of v1.37.1; spec: pod-level.md section 5.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mooring.core.bits import members
from mooring.core.pod import Container, ContainerKind, Pod
from mooring.devicemanager.state import Device
from mooring.memorymanager.state import Block
from mooring.node import Node
from mooring.node.isolation import Isolation, cpu_isolation, memory_isolation

API_VERSION = "mooring/v1alpha1"


def pod_resources_document(node: Node) -> dict[str, Any]:
    """Return both answers in one document."""
    return {
        "apiVersion": API_VERSION,
        "kind": "PodResources",
        "List": {"pod_resources": [_pod(node, pod) for pod in node.active.values()]},
        "GetAllocatableResources": _allocatable(node),
    }


def _pod(node: Node, pod: Pod) -> dict[str, Any]:
    listed = [container for container in pod.containers if container.kind is not ContainerKind.INIT]
    fields: dict[str, Any] = {
        "name": pod.name,
        "namespace": pod.namespace,
        "containers": [_container(node, pod, container) for container in listed],
    }
    if node.settings.pod_level.managers:
        fields["cpu_ids"] = _ids(node.cpu.pods.get(pod.uid, 0))
        fields["memory"] = _memory(node.memory.pods.get(pod.uid, ()))
    return fields


def _container(node: Node, pod: Pod, container: Container) -> dict[str, Any]:
    settings, providers = node.settings, node.providers
    cpus = 0
    blocks: tuple[Block, ...] = ()
    if cpu_isolation(settings, providers, pod, container) is Isolation.CONTAINER:
        cpus = node.cpu.assignments[pod.uid][container.name]
    if memory_isolation(settings, providers, pod, container) is Isolation.CONTAINER:
        blocks = node.memory.assignments[pod.uid][container.name]
    held = providers.devices.held.get(pod.uid, {}).get(container.name, {})
    devices = [
        _device(resource, device)
        for resource, ids in sorted(held.items())
        for device in providers.devices.devices.get(resource, ())
        if device.id in ids
    ]
    return {
        "name": container.name,
        "devices": devices,
        "cpu_ids": _ids(cpus),
        "memory": _memory(blocks),
        "dynamic_resources": [],
    }


def _allocatable(node: Node) -> dict[str, Any]:
    """Return what could be given away on an empty node."""
    policy = node.settings.memory
    blocks = [
        Block((number,), resource, table.allocatable)
        for number, state in sorted((policy.default_nodes if policy is not None else {}).items())
        for resource, table in sorted(state.memory.items())
        if table.allocatable > 0
    ]
    return {
        "devices": [
            _device(resource, device)
            for resource, devices in sorted(node.providers.devices.devices.items())
            for device in devices
            if device.healthy
        ],
        "cpu_ids": _ids(node.settings.allocatable_cpus.mask),
        "memory": _memory(blocks),
    }


def _ids(mask: int) -> list[str]:
    return [str(cpu) for cpu in members(mask)]


def _memory(blocks: Iterable[Block]) -> list[dict[str, Any]]:
    return [{"memory_type": block.type, "size": str(block.size), "topology": _topology(block.numa)} for block in blocks]


def _device(resource: str, device: Device) -> dict[str, Any]:
    fields: dict[str, Any] = {"resource_name": resource, "device_ids": [device.id]}
    if device.numa:
        fields["topology"] = _topology(device.numa)
    return fields


def _topology(nodes: Iterable[int]) -> dict[str, Any]:
    return {"nodes": [{"ID": str(node)} for node in nodes]}
