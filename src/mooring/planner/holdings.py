"""Devices and huge pages of a node in words: who holds what, and what is left.

The lines stand under the picture and under the tables of a plan.
"""

from __future__ import annotations

from collections.abc import Iterator

from mooring.devicemanager.state import Device
from mooring.explain.phrases import size
from mooring.kubelet.kubelet import Kubelet
from mooring.planner.plan import Plan

HUGEPAGES = "hugepages-"


def holding_lines(plan: Plan) -> list[str]:
    """Return one line for each device resource and each size of huge pages; empty when the node has neither."""
    if plan.kubelet is None:
        return []
    return [*_hugepage_lines(plan.kubelet), *_device_lines(plan, plan.kubelet)]


def _hugepage_lines(kubelet: Kubelet) -> Iterator[str]:
    nodes = sorted(kubelet.node.memory.nodes.items())
    for resource in sorted({name for _, state in nodes for name in state.memory if name.startswith(HUGEPAGES)}):
        parts = [
            f"{size(table.free)} of {size(table.allocatable)} on NUMA {node}"
            for node, state in nodes
            if (table := state.memory.get(resource)) is not None and table.allocatable
        ]
        if parts:
            yield f"{resource} free: {', '.join(parts)}."


def _device_lines(plan: Plan, kubelet: Kubelet) -> Iterator[str]:
    devices = kubelet.node.providers.devices
    holders = device_holders(plan, kubelet)
    for resource, offered in sorted(devices.devices.items()):
        parts = [_device(device, holders.get((resource, device.id), "")) for device in offered]
        yield f"{resource}: {'; '.join(parts) or 'no device'}."


def _device(device: Device, holder: str) -> str:
    near = f" (NUMA {', '.join(map(str, device.numa))})" if device.numa else ""
    state = f"held by {holder}" if holder else "free" if device.healthy else "unhealthy"
    return f"{device.id}{near} {state}"


def device_holders(plan: Plan, kubelet: Kubelet) -> dict[tuple[str, str], str]:
    """Return who holds each device: of init containers that left it to a later container, the later one."""
    pods = {answer.pod.uid: answer.pod for answer in plan.answers}
    holders: dict[tuple[str, str], str] = {}
    for uid, containers in kubelet.node.providers.devices.held.items():
        pod = pods.get(uid)
        name = f"{pod.namespace}/{pod.name}" if pod is not None else uid
        order = [container.name for container in pod.containers] if pod is not None else sorted(containers)
        for container in order:
            for resource, ids in containers.get(container, {}).items():
                holders.update({(resource, device): f"{name}/{container}" for device in ids})
    return holders
