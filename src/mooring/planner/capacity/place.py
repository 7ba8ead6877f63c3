"""Where a pod lies: its CPUs, its memory and its devices by NUMA node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mooring.core.bits import mask_of, members
from mooring.core.cpuset import CPUSet
from mooring.core.pod import Pod
from mooring.core.topology import Topology
from mooring.devicemanager.state import Device
from mooring.explain.phrases import nodes_of
from mooring.kubelet.admit import Asking, admit
from mooring.kubelet.kubelet import Kubelet
from mooring.node import Decision


@dataclass(frozen=True, slots=True)
class Place:
    """What an admitted pod has to itself, over all of its containers."""

    cpus: CPUSet = field(default_factory=CPUSet)
    """Exclusive CPUs, a pod's own partition included."""
    cpu_nodes: tuple[int, ...] = ()
    memory_nodes: tuple[int, ...] = ()
    devices: Mapping[str, tuple[Device, ...]] = field(default_factory=dict)
    """Resource -> its devices, ascending by id."""

    @property
    def nodes(self) -> tuple[int, ...]:
        """The NUMA nodes that it touches. A device counts only when none of its nodes is among them already.

        >>> gpu = Device("gpu", (1, 2))
        >>> Place(cpu_nodes=(2,), devices={"gpu": (gpu,)}).nodes, Place(devices={"gpu": (gpu,)}).nodes
        ((2,), (1,))
        """
        touched = mask_of(node for node in (*self.cpu_nodes, *self.memory_nodes) if node >= 0)
        for devices in self.devices.values():
            for device in devices:
                if not device.mask & touched:
                    touched |= device.mask & -device.mask
        return tuple(members(touched))

    def lies_on(self, node: int) -> bool:
        """Tell whether all of it lies on one NUMA node; a device without known nodes lies nowhere."""
        near = all(node in (device.numa or ()) for devices in self.devices.values() for device in devices)
        return near and set(self.cpu_nodes) | set(self.memory_nodes) <= {node}


def place_of(decision: Decision, topology: Topology | None) -> Place:
    """Return where an admitted pod lies.

    Args:
        decision: that admits it.
        topology: of the kubelet; None when nobody gets CPUs.
    """
    cpus = decision.pod.cpus
    memory = set(decision.pod.mems)
    for placement in decision.containers.values():
        cpus |= placement.cpus
        memory.update(placement.mems)
    return Place(
        cpus,
        tuple(nodes_of(topology, cpus.mask)) if topology is not None else (),
        tuple(sorted(memory)),
        _devices_of(decision),
    )


def placed(kubelet: Kubelet, pod: Pod) -> Place | None:
    """Return where a pod would be put; None when it would not be admitted, for whatever reason."""
    _, result = admit(kubelet, pod, Asking.TRIAL)
    return place_of(result.decision, kubelet.settings.topology) if result.admitted else None


def _devices_of(decision: Decision) -> dict[str, tuple[Device, ...]]:
    found: dict[str, dict[str, Device]] = {}
    for resources in decision.devices.values():
        for resource, devices in resources.items():
            found.setdefault(resource, {}).update((device.id, device) for device in devices)
    return {resource: tuple(devices[id_] for id_ in sorted(devices)) for resource, devices in sorted(found.items())}
