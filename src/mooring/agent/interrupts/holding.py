"""Which devices pods hold, as the node's kubelet tells: the agent has no device manager of its own."""

from __future__ import annotations

from collections.abc import Mapping

from mooring.core.pod import Pod
from mooring.node.owning import pci_address
from mooring.service.podresources import PodResourcesClient, pods_in


def held_devices(socket: str, pods: Mapping[str, Pod]) -> dict[str, frozenset[str]]:
    """Return the PCI addresses of what pods hold, by uid.

    Args:
        socket: of the kubelet's PodResources API.
        pods: to look for, by uid.

    Raises:
        PodResourcesError: the kubelet does not tell.
    """
    client = PodResourcesClient(socket)
    try:
        listed = pods_in(client.listed())
    finally:
        client.close()
    uids = {(pod.namespace, pod.name): uid for uid, pod in pods.items()}
    found: dict[str, frozenset[str]] = {}
    for pod in listed:
        uid = uids.get((pod.namespace, pod.name))
        ids = (device.id for container in pod.containers for _, device in container.devices)
        if uid is not None:
            found[uid] = frozenset(address for one in ids if (address := pci_address(one)))
    return found
