"""The devices of a node as pictures show them."""

from __future__ import annotations

from mooring.answers.base.holdings import device_holders
from mooring.answers.base.plan import Plan
from mooring.engine.core.machine import Machine, PCIDevice
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.lazy import lazily
from mooring.views.devices import DeviceView

with lazily():
    import mooring.engine.extensions.interrupts as pci


def device_views(plan: Plan, kubelet: Kubelet) -> tuple[DeviceView, ...]:
    """Return the devices of the device plugins with the containers that have them; without any, those of the PCI bus.

    Args:
        plan: that names the pods.
        kubelet: at the time to show.
    """
    holders = device_holders(plan, kubelet)
    roots = {device.address: device.root for device in plan.machine.pci}
    offered = tuple(
        DeviceView(
            resource,
            device.id,
            device.numa or (),
            device.healthy,
            address=(address := pci.pci_address(device.id)),
            root=roots.get(address, ""),
            owner=holders.get((resource, device.id), ""),
        )
        for resource, devices in sorted(kubelet.node.providers.devices.devices.items())
        for device in devices
    )
    return offered or pci_views(plan.machine)


def devices_before(plan: Plan, uid: str) -> tuple[DeviceView, ...]:
    """Return the devices as they were when the kubelet was asked about a pod."""
    place = next((place for place, answer in enumerate(plan.answers) if answer.pod.uid == uid), None)
    return device_views(plan, plan.trace[place]) if place is not None and plan.trace else ()


def pci_views(machine: Machine) -> tuple[DeviceView, ...]:
    """Return the network, storage and compute devices on the machine's PCI bus, kind by kind."""
    found = [_pci_view(device) for device in machine.pci]
    return tuple(
        sorted((view for view in found if view.resource), key=lambda view: (view.resource, view.root, view.id))
    )


def _pci_view(device: PCIDevice) -> DeviceView:
    numa = () if device.numa is None else (device.numa,)
    return DeviceView(device.kind, device.address, numa, address=device.address, root=device.root, offered=False)
