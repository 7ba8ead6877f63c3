"""The engine beside a kubelet with device plugins: asked about each pod, then told what the kubelet took.

Which of several equally near devices a container gets is random in the kubelet, so the engine can only be asked for
one pod after another: with the devices that the kubelet really gave the pods before.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mooring.engine.checkpoint.device_file import device_record, read_device_file
from mooring.engine.core.bits import NUMAMask
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.machine import Machine
from mooring.engine.devicemanager.state import Device, DeviceState
from mooring.engine.kubelet.admit import AdmitResult, admit
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import start_on
from mooring.inputs.configuration.node_configuration import load_config
from mooring.inputs.pods.pods import pod_from_object

Held = Mapping[str, Mapping[str, frozenset[str]]]
"""Container -> resource -> device ids."""


@dataclass(slots=True)
class Following:
    """A planned kubelet that follows a real one."""

    kubelet: Kubelet

    @classmethod
    def on(cls, machine: Machine, config: Path, devices: Mapping[str, tuple[Device, ...]]) -> Following:
        """Return the kubelet of a configuration file, just started."""
        found = load_config(config)
        start = start_on(machine, found.kubelet, found.mooring, StateTexts())
        assert isinstance(start, Kubelet)
        return cls(start.with_devices(DeviceState(devices)))

    def ask(self, pod: Mapping[str, Any]) -> AdmitResult:
        """Ask about a pod of the API server."""
        self.kubelet, answer = admit(self.kubelet, pod_from_object(pod, source="e2e"))
        return answer

    def take(self, uid: str, held: Held) -> None:
        """Note what the real kubelet gave a pod."""
        devices = self.kubelet.node.providers.devices
        self.kubelet = self.kubelet.with_devices(replace(devices, held={**devices.held, uid: held}))

    def nearness(self, affinity: NUMAMask | None, resource: str, ids: frozenset[str]) -> Counter[str]:
        """Return how many of some devices are near to the NUMA nodes of a hint, elsewhere, or nowhere."""
        known = {device.id: device for device in self.kubelet.node.providers.devices.devices[resource]}
        return Counter(
            "nowhere" if not known[one].mask else "near" if not affinity or known[one].mask & affinity else "elsewhere"
            for one in ids
        )


def held_by(root: Path, uid: str) -> Held:
    """Return the devices that a kubelet's record has of a pod."""
    found: dict[str, dict[str, frozenset[str]]] = {}
    for one in device_record(read_device_file(root)).held:
        if one.uid == uid:
            found.setdefault(one.container, {})[one.resource] = one.ids
    return found


def exclusive_cpus(state: str, uid: str) -> dict[str, CPUSet]:
    """Return the CPUs that the text of a CPU manager's state has of a pod, by container."""
    entries = json.loads(state).get("entries", {}).get(uid, {})
    return {name: CPUSet.parse(cpus) for name, cpus in entries.items()}
