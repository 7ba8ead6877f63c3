"""The devices of a node and who holds them, put together from what several records say.

A declaration (NodeDevices) counts in place of everything else about its resources. Else the kubelet's answer to
GetAllocatableResources has the healthy devices with their NUMA nodes, the device manager's record has what is held with
its NUMA nodes and the names of the rest, and the PCI bus has those whose ids are addresses. Claims and slices tell what
drivers of dynamic resource allocation offer and gave.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from mooring.engine.checkpoint.device_file import DeviceRecord
from mooring.engine.core.machine import Finding, Machine
from mooring.engine.core.pod import Pod
from mooring.engine.devicemanager.state import Device, Holdings, Preference
from mooring.engine.extensions.device_alignment import LocationRules, claimed_devices, dynamic_devices
from mooring.engine.extensions.interrupts import pci_address
from mooring.inputs.configuration.devices import Declared, offered_devices
from mooring.inputs.pods.dynamic.objects import DynamicObjects
from mooring.inputs.pods.dynamic.slices import current_devices

UNKNOWN_NODES: Final = "MOOR-525"


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What is known about the devices of a node."""

    declared: Declared = field(default_factory=dict)
    record: DeviceRecord = DeviceRecord()  # noqa: RUF009 - frozen
    allocatable: Mapping[str, tuple[Device, ...]] = field(default_factory=dict)
    """Healthy devices of plugins with their NUMA nodes, as the kubelet answers."""
    preferences: Mapping[str, Preference] = field(default_factory=dict)
    """Resource -> which of its devices its plugin prefers."""
    dynamic: DynamicObjects = DynamicObjects()  # noqa: RUF009 - frozen
    node: str = ""
    """Its name; empty where it is not known, then slices of all nodes count."""


@dataclass(frozen=True, slots=True)
class NodeDevices:
    """Devices by resource or driver, and what pods hold of them."""

    devices: Mapping[str, tuple[Device, ...]] = field(default_factory=dict)
    held: Holdings = field(default_factory=dict)
    """What the device manager gave."""
    claimed: Holdings = field(default_factory=dict)
    """What the scheduler gave for claims."""
    preferences: Mapping[str, Preference] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()


def node_devices(
    facts: DeviceFacts, machine: Machine, pods: Iterable[Pod], rules: LocationRules | None = None
) -> NodeDevices:
    """Return the devices of a node and their holders.

    Args:
        facts: what is known.
        machine: of the node.
        pods: whose claims count.
        rules: attributes in which older drivers say where devices are.
    """
    declared = offered_devices(facts.declared, machine.pci)
    offered = dynamic_devices(current_devices(facts.dynamic.slices, facts.node), machine.pci, rules)
    devices = {**offered, **_plugin_devices(facts, machine), **declared}
    held: dict[str, dict[str, dict[str, frozenset[str]]]] = {}
    for one in facts.record.held:
        held.setdefault(one.uid, {}).setdefault(one.container, {})[one.resource] = one.ids
    claimed: dict[str, dict[str, dict[str, frozenset[str]]]] = {}
    claims = {(claim.namespace, claim.name): claim for claim in facts.dynamic.claims}
    for pod in pods:
        of_space = {name: claim for (space, name), claim in claims.items() if space == pod.namespace}
        found = claimed_devices(pod, of_space)
        if found:
            claimed[pod.uid] = found
    for containers in (*held.values(), *claimed.values()):
        for resources in containers.values():
            for resource, ids in resources.items():
                devices[resource] = _with_held(devices.get(resource, ()), ids)
    known = {name: listed for name, listed in devices.items() if name not in declared}
    return NodeDevices(dict(sorted(devices.items())), held, claimed, facts.preferences, _findings(known, machine))


def _with_held(devices: tuple[Device, ...], ids: frozenset[str]) -> tuple[Device, ...]:
    """Return devices with those that somebody holds and nobody lists any more."""
    gone = ids - {device.id for device in devices}
    return (*devices, *(Device(one, healthy=False) for one in sorted(gone)))


def _plugin_devices(facts: DeviceFacts, machine: Machine) -> dict[str, tuple[Device, ...]]:
    bus = {device.address: device for device in machine.pci}
    found: dict[str, dict[str, Device]] = {
        resource: {device.id: device for device in listed} for resource, listed in facts.allocatable.items()
    }
    for resource, ids in facts.record.registered.items():
        known = found.setdefault(resource, {})
        for one in sorted(ids - known.keys()):
            found_there = bus.get(pci_address(one))
            node = None if found_there is None else found_there.numa
            # The answer is newer than the record: what it leaves out is not healthy any more.
            known[one] = Device(one, None if node is None else (node,), healthy=resource not in facts.allocatable)
    for entry in facts.record.held:
        known = found.setdefault(entry.resource, {})
        for device in entry.devices:
            before = known.get(device.id)
            if before is None:
                known[device.id] = replace(device, healthy=False)
            elif before.numa is None:
                known[device.id] = replace(device, healthy=before.healthy)
    roots = {address: device.root for address, device in bus.items() if device.root}
    return {
        resource: tuple(replace(one, root=one.root or roots.get(pci_address(one.id), "")) for one in known.values())
        for resource, known in sorted(found.items())
    }


def _findings(devices: Mapping[str, tuple[Device, ...]], machine: Machine) -> tuple[Finding, ...]:
    if len(machine.info.topology) < 2:
        return ()
    return tuple(
        Finding(
            "warning",
            resource,
            f"the NUMA node of {len(unknown)} device{'' if len(unknown) == 1 else 's'} of {len(listed)} is not known "
            f"({', '.join(unknown[:3])}{', ...' if len(unknown) > 3 else ''}), so hints of the kubelet can differ; "
            "collect the node where its PodResources API answers, or declare them in NodeDevices",
            UNKNOWN_NODES,
        )
        for resource, listed in sorted(devices.items())
        if (unknown := [device.id for device in listed if device.numa is None and "/" in resource])
        # A resource none of whose devices has a node gives no hints, and the plugin may mean just that.
        and any(device.numa for device in listed)
    )
