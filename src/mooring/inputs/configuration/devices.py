"""Devices as people write them: listed by hand, or chosen from the machine's PCI devices.

A document of kind ``NodeDevices`` says which resources the node's device plugins would offer. Scenarios list devices
only.

The matrix of ``nvidia-smi topo -m`` has the GPUs with the CPUs and the NUMA node next to each. Source:
https://docs.nvidia.com/deploy/nvidia-smi/ (topo).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from mooring.engine.core.cpuset import HIGHEST_CPU, CPUSet, CPUSetSyntaxError
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Machine, PCIDevice
from mooring.engine.core.machineinfo import MachineInfo
from mooring.engine.devicemanager.state import NOWHERE, Device, Preference
from mooring.inputs.decoding import fields as reading
from mooring.inputs.decoding.fields import mapping_at, name_at, text_at, within, wrong_kind
from mooring.lazy import dataclass

KIND = "NodeDevices"
API_VERSION = "mooring/v1alpha1"
HIGHEST_NODE = 63
"""The kubelet's masks of NUMA nodes have 64 bits."""

_SELECTORS = ("class", "vendor", "device")
_NATIVE = "kubernetes.io/"
"""In names of resources that are Kubernetes' own (v1 helper, IsNativeResource)."""
_DEVICE_FIELDS = ("id", "numa", "unhealthy", "root")


@dataclass(frozen=True, slots=True)
class PCISelector:
    """Which PCI devices make a resource; hexadecimal texts without 0x, empty for any."""

    class_prefix: str = ""
    """Beginning of the class code: ``03`` for display controllers, ``0302`` for 3D controllers."""
    vendor: str = ""
    device: str = ""

    def chooses(self, found: PCIDevice) -> bool:
        """Tell whether a PCI device belongs to the resource."""
        return (
            found.class_code.startswith(self.class_prefix)
            and self.vendor in ("", found.vendor)
            and self.device in ("", found.device)
        )

    @staticmethod
    def of(content: Mapping[str, Any], field: str) -> PCISelector:
        """Return the selector that a declaration writes, as the value of a field.

        Raises:
            InputError: it is none.
        """
        chosen = mapping_at(content, "pci") if set(content) == {"pci"} else {}
        if not chosen or not set(chosen) <= set(_SELECTORS):
            remedy = 'write - {id: gpu0, numa: [0]}, or pci: {class: "0302", vendor: "10de"}'
            raise InputError("must list devices or choose them", field=field, remedy=remedy)
        texts = {name: text_at(chosen, name).lower().removeprefix("0x") for name in _SELECTORS}
        for name, text in texts.items():
            if not all(digit in "0123456789abcdef" for digit in text):
                raise InputError(f"{text!r:.40} is not hexadecimal", field=f"{field}.pci.{name}", remedy='write "10de"')
        return PCISelector(texts["class"], texts["vendor"], texts["device"])


Declared = Mapping[str, tuple[Device, ...] | PCISelector]
"""Resource -> its devices, or how to choose them on the machine."""


def device_table(content: Mapping[str, Any]) -> dict[str, tuple[Device, ...]]:
    """Return the listed devices of each resource.

    Raises:
        InputError: naming the resource and the device.

    >>> device_table({"example/gpu": [{"id": "gpu0", "numa": [0]}]})
    {'example/gpu': (Device(id='gpu0', numa=(0,), healthy=True, root=''),)}
    """
    return {resource: _listed(items, f"devices.{resource}") for resource, items in content.items()}


def devices_document(
    devices: Mapping[str, Iterable[Device]], preferences: Mapping[str, Preference] | None = None
) -> dict[str, Any]:
    """Return devices as a document of kind ``NodeDevices``.

    Args:
        devices: by resource.
        preferences: of plugins, by resource.

    >>> devices_document({"example/gpu": (Device("gpu0", (0,)),)})["devices"]
    {'example/gpu': [{'id': 'gpu0', 'numa': [0]}]}
    """
    listed: dict[str, Any] = {
        resource: [
            {
                "id": one.id,
                **({} if one.numa is None else {"numa": list(one.numa)}),
                **({} if one.healthy else {"unhealthy": True}),
                **({"root": one.root} if one.root else {}),
            }
            for one in found
        ]
        for resource, found in devices.items()
    }
    for resource, rule in (preferences or {}).items():
        known = {"list": listed[resource]} if resource in listed else {}
        listed[resource] = {"preferred": rule.value, **known}
    return {"apiVersion": API_VERSION, "kind": KIND, "devices": listed}


def declared_devices(content: Mapping[str, Any], *, source: str) -> tuple[Declared, dict[str, Preference]]:
    """Return what a document of kind ``NodeDevices`` declares, and which devices the plugins prefer.

    Raises:
        InputError: it is not valid, or a rule is not known.
    """
    declared: dict[str, tuple[Device, ...] | PCISelector] = {}
    preferences: dict[str, Preference] = {}
    with within(source=source):
        reading.check_version(content, API_VERSION)
        unknown = sorted(str(field) for field in content if field not in ("apiVersion", "kind", "devices"))
        if unknown:
            raise InputError("is not a field of NodeDevices", field=unknown[0], remedy="write devices:")
        for resource, items in mapping_at(content, "devices").items():
            field = f"devices.{resource}"
            if not isinstance(items, dict):
                declared[resource] = _listed(items, field)
            elif set(items) == {"preferred", "list"}:
                declared[resource] = _listed(items["list"], f"{field}.list")
            elif set(items) != {"preferred"}:
                # With a rule alone the devices are those that are known otherwise.
                declared[resource] = PCISelector.of({name: items[name] for name in items if name != "preferred"}, field)
            if "/" not in resource or _NATIVE in resource:
                remedy = "write a name with a domain of its own, such as nvidia.com/gpu"
                raise InputError("no device plugin can offer this resource", field=field, remedy=remedy)
            if isinstance(items, dict) and "preferred" in items:
                with within(field):
                    preferences[resource] = reading.choice_at(items, "preferred", Preference.PLUGIN)
    return declared, preferences


def check_nodes(declared: Declared, machine: MachineInfo, *, source: str) -> None:
    """Refuse listed devices on NUMA nodes that the machine lacks.

    Raises:
        InputError: naming the device, and the nodes of the machine.
    """
    known = {NOWHERE, *(node.node_id for node in machine.topology)}
    for resource, devices in declared.items():
        for index, device in enumerate(devices if isinstance(devices, tuple) else ()):
            if missing := sorted(set(device.numa or ()) - known):
                nodes = ", ".join(map(str, sorted(known - {NOWHERE})))
                problem = f"{device.id} is on NUMA node {missing[0]}, which the machine does not have: it has {nodes}"
                remedy = "give the machine of these devices, or their nodes on it"
                raise InputError(problem, source=source, field=f"devices.{resource}[{index}].numa", remedy=remedy)


def offered_devices(declared: Declared, machine: Machine) -> dict[str, tuple[Device, ...]]:
    """Return the devices of each resource on a machine: its own, and what is declared, which wins."""
    found = {}
    for resource, counts in machine.published.devices.items() if machine.published else ():
        nodes = [node for node, count in sorted(counts.items()) for _ in range(count)]
        name = resource.rpartition("/")[2]
        found[resource] = tuple(Device(f"{name}-{number}", (node,)) for number, node in enumerate(nodes))
    return found | {
        resource: tuple(
            Device(found.address, None if found.numa is None else (found.numa,), root=found.root)
            for found in machine.pci
            if devices.chooses(found)
        )
        if isinstance(devices, PCISelector)
        else devices
        for resource, devices in declared.items()
    }


def _listed(items: Any, field: str) -> tuple[Device, ...]:
    if not isinstance(items, list):
        raise wrong_kind(items, "a list of devices", field)
    devices = tuple(_device(item, f"{field}[{index}]") for index, item in enumerate(items))
    if len({device.id for device in devices}) != len(devices):
        raise InputError("two devices have the same id", field=field, remedy="give each device its own id")
    return devices


def _device(item: Any, field: str) -> Device:
    if not isinstance(item, dict):
        raise wrong_kind(item, "a device", field)
    unknown = sorted(str(name) for name in item if name not in _DEVICE_FIELDS)
    if unknown:
        problem = "is not a field of a device"
        raise InputError(problem, field=f"{field}.{unknown[0]:.60}", remedy=f"fields are {', '.join(_DEVICE_FIELDS)}")
    numa = item.get("numa")
    if numa is not None and not (
        isinstance(numa, list) and all(type(node) is int and NOWHERE <= node <= HIGHEST_NODE for node in numa)
    ):
        remedy = "write numa: [0], [-1] where the plugin reports that, or leave it out"
        raise InputError("is not a list of NUMA nodes", field=f"{field}.numa", remedy=remedy)
    with within(field):
        return Device(
            id=name_at(item, "id"),
            numa=None if numa is None else tuple(numa),
            healthy=not reading.flag_at(item, "unhealthy", default=False),
            root=text_at(item, "root"),
        )


MATRIX: Final = re.compile(r"^[ \t]*(?:GPU\d+[ \t]+.*)CPU Affinity", re.MULTILINE)


def matrix_rows(text: str, source: str) -> Iterator[tuple[str, CPUSet, tuple[int, ...] | None]]:
    """Yield the GPUs of the matrix with the CPUs and the NUMA nodes next to each; None where they are not told.

    Raises:
        InputError: a row has other columns than the header, or something else than a list in one.
    """
    lines = text.splitlines()
    start = next(number for number, line in enumerate(lines) if "CPU Affinity" in line)
    devices = len(lines[start].partition("CPU Affinity")[0].split())
    for number, line in enumerate(lines[start + 1 :], start + 2):
        words = line.split()
        if not words or not re.fullmatch(r"GPU\d+", words[0]):
            continue
        last = words[devices + 1 :]
        try:
            nodes = CPUSet.parse(last[1]) if len(last) > 1 and last[1] != "N/A" else None
            cpus = CPUSet.parse(last[0]) if last and last[0] != "N/A" else CPUSet()
            yield words[0], cpus, None if nodes is None else tuple(nodes)
        except CPUSetSyntaxError as error:
            remedy = "paste the whole output of nvidia-smi topo -m"
            raise InputError(f"{words[0]}: {error}", source=f"{source}:{number}", remedy=remedy) from None


def devices_in(content: Any) -> dict[str, Any] | None:
    """Return the devices of a dump of the PodResources API as a document; None where it is none."""
    found = listed_resources(content)
    return None if found is None else devices_document(found.devices)


@dataclass(frozen=True, slots=True)
class DumpedContainer:
    """What a container holds, as the PodResources API lists it."""

    cpus: CPUSet
    devices: Mapping[str, frozenset[str]]
    memory: tuple[tuple[str, int, tuple[int, ...]], ...]
    """Kind, bytes and NUMA nodes."""


@dataclass(frozen=True, slots=True)
class ResourcesDump:
    """Answers of the PodResources API: ``List``, ``GetAllocatableResources``, or both."""

    devices: Mapping[str, tuple[Device, ...]]
    pods: Mapping[tuple[str, str], Mapping[str, DumpedContainer]]
    """Namespace and name -> container -> what it holds."""


def _member(content: Any, name: str, default: Any) -> Any:
    """Return a member in the spelling of protobuf, of its JSON or of Go; a number may be left out where it is 0."""
    value = _of(content, name)
    return value if isinstance(value, type(default)) else default


def listed_resources(content: Any) -> ResourcesDump | None:
    """Return what a dump of the PodResources API says, of any tool that writes JSON; None where it is none.

    Source: k8s.io/kubelet/pkg/apis/podresources/v1, in the JSON form of protobuf, or as Go writes structs.

    Raises:
        InputError: a number in it cannot be understood.
    """
    answer = _member(content, "list", {}) or content
    allocatable = _member(content, "getallocatableresources", {}) or content
    pods, offered = _member(answer, "podresources", []), _member(allocatable, "devices", [])
    if not pods and not any(_member(one, "resourcename", "") for one in offered):
        return None
    devices: dict[str, dict[str, Device]] = {}
    found: dict[tuple[str, str], dict[str, DumpedContainer]] = {}
    _devices(offered, devices)
    for pod in pods:
        key = _member(pod, "namespace", "") or "default", _member(pod, "name", "")
        for one in _member(pod, "containers", []):
            memory = tuple(
                (_member(part, "memorytype", ""), _whole(_of(part, "size"), "size"), _nodes(part) or ())
                for part in _member(one, "memory", [])
            )
            cpus = CPUSet.from_ids(_whole(cpu, "cpu_ids", HIGHEST_CPU) for cpu in _member(one, "cpuids", []))
            held = {name: ids for name, ids in _devices(_member(one, "devices", []), devices).items() if ids}
            found.setdefault(key, {})[_member(one, "name", "")] = DumpedContainer(cpus, held, memory)
    return ResourcesDump({name: tuple(listed.values()) for name, listed in sorted(devices.items())}, found)


def _devices(entries: Sequence[Any], devices: dict[str, dict[str, Device]]) -> dict[str, frozenset[str]]:
    """Add devices to those that are known, and return the ids by resource."""
    ids: dict[str, frozenset[str]] = {}
    for entry in entries:
        resource = _member(entry, "resourcename", "")
        named = [str(one) for one in _member(entry, "deviceids", [])]
        known = devices.setdefault(resource, {})
        for one in named:
            known.setdefault(one, Device(one, _nodes(entry)))
        ids[resource] = ids.get(resource, frozenset()) | frozenset(named)
    return ids


def _nodes(entry: Any) -> tuple[int, ...] | None:
    topology = _of(entry, "topology")
    if not isinstance(topology, dict):
        return None
    return tuple(_whole(_of(node, "id", 0), "topology.nodes.ID") for node in _member(topology, "nodes", []))


def _of(content: Any, name: str, default: Any = None) -> Any:
    members = content.items() if isinstance(content, dict) else ()
    return next((value for key, value in members if key.replace("_", "").lower() == name), default)


def _whole(value: Any, field: str, highest: int = 0) -> int:
    """Return a whole number; only one from 0 on where the highest is named."""
    text, wrong = str(value), "a whole number"
    if text.removeprefix("-").isdecimal() and len(text) <= 18:
        wrong = f"between 0 and {highest}" if highest and not 0 <= int(text) <= highest else ""
    if wrong:
        raise InputError(f"{text!r:.40} is not {wrong}", field=field, remedy="give what the kubelet answers")
    return int(text)


def matrix_document(text: str, source: str) -> dict[str, Any]:
    """Return the GPUs of ``nvidia-smi topo -m`` as a document; raises as :func:`matrix_rows`."""
    return devices_document({"nvidia.com/gpu": [Device(name, nodes) for name, _, nodes in matrix_rows(text, source)]})
