"""Claims and slices as an archive has them: what says which device is where and who has it, and nothing else.

The devices of a node and who holds them, put together from what several records say.

A declaration (NodeDevices) counts in place of everything else about its resources. Else the kubelet's answer to
GetAllocatableResources has the healthy devices with their NUMA nodes, the device manager's record has what is held with
its NUMA nodes and the names of the rest, and the PCI bus has those whose ids are addresses. Claims and slices tell what
drivers of dynamic resource allocation offer and gave.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from mooring.engine.checkpoint.device_file import DeviceRecord
from mooring.engine.core.machine import Finding, Machine
from mooring.engine.core.pod import Pod, ResourceClaim
from mooring.engine.devicemanager.state import Device, DeviceState, Preference
from mooring.engine.extensions.device_alignment import LocationRules, claimed_devices, dynamic_devices
from mooring.engine.extensions.owners import pci_address
from mooring.inputs.configuration.devices import Declared, offered_devices
from mooring.inputs.decoding.fields import only, part_at
from mooring.inputs.pods.claims import CLAIM, KINDS, ResourceSlice, claims_of_pod, current_devices, objects_of
from mooring.lazy import dataclass, field, replace

_RESULT: Final = ("request", "driver", "pool", "device", "adminAccess", "shareID")
_PLACE: Final = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}|[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]")


def reduced_claims(documents: Iterable[object], pods: Iterable[Mapping[str, Any]], node: str) -> list[dict[str, Any]]:
    """Return the claims that pods name and the slices of a node, reduced.

    Args:
        documents: of the cluster.
        pods: of the node.
        node: its name; slices of other nodes are left out.
    """
    named = {
        (pod["metadata"].get("namespace", "default"), claim)
        for pod in pods
        for claim in claims_of_pod(pod, pod.get("spec", {}))[0]
    }
    claims, slices = [], []
    for one in (one for document in documents for _, one in objects_of(document, KINDS)):
        metadata, spec = part_at(one, "metadata"), part_at(one, "spec")
        kept: dict[str, Any] = {"apiVersion": "resource.k8s.io/v1", "kind": one["kind"]}
        if one["kind"] == CLAIM:
            if (str(metadata.get("namespace") or "default"), str(metadata.get("name", ""))) in named:
                results = [only(result, _RESULT) for result in _results(one)]
                inner = only(metadata, ("name", "namespace", "uid"))
                claims.append({**kept, "metadata": inner, "status": _allocated(results)})
        elif not node or spec.get("nodeName") == node or spec.get("perDeviceNodeSelection") is True:
            devices = spec.get("devices")
            listed = [item for item in devices if isinstance(item, dict)] if isinstance(devices, list) else []
            inner = only(spec, ("driver", "nodeName", "pool", "perDeviceNodeSelection"))
            inner["devices"] = [_device(item) for item in listed]
            slices.append({**kept, "metadata": only(metadata, ("name",)), "spec": inner})
    return [*claims, *slices]


def anonymous_claims(
    objects: list[dict[str, Any]], pods: list[dict[str, Any]], spaces: Mapping[str, str], pools: Mapping[str, str]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return objects and pods under made-up names of claims, templates and pools.

    Args:
        objects: from :func:`reduced_claims`.
        pods: reduced, under names and namespaces of their own.
        spaces: namespace -> its made-up name.
        pools: name of a pool -> its made-up name, where it is that of the node.
    """
    names: dict[str, str] = {}

    def renamed(value: object) -> object:
        if isinstance(value, list):
            return [renamed(item) for item in value]
        if not isinstance(value, dict):
            return value
        made: dict[str, object] = {}
        for key, inner in value.items():
            if key in ("resourceClaimName", "resourceClaimTemplateName") and isinstance(inner, str):
                made[key] = names.setdefault(inner, f"claim-{len(names) + 1}")
            else:
                made[key] = renamed(inner)
        return made

    shown = [{**pod, "spec": renamed(pod["spec"]), "status": renamed(pod.get("status", {}))} for pod in pods]
    kept = []
    for one in objects:
        metadata = dict(one["metadata"])
        made = {**one, "metadata": metadata}
        if one["kind"] == CLAIM:
            metadata["name"] = names.setdefault(metadata["name"], f"claim-{len(names) + 1}")
            metadata["namespace"] = spaces.get(metadata.get("namespace", ""), "namespace-0")
            results = _results(one)
            for result in results:
                result["pool"] = pools.get(str(result.get("pool")), result.get("pool"))
            made["status"] = _allocated(results)
        else:
            spec = made["spec"] = dict(one["spec"])
            pool = part_at(spec, "pool")
            spec["pool"] = {**pool, "name": pools.get(pool.get("name", ""), pool.get("name", ""))}
            if spec.get("nodeName") in pools:
                spec["nodeName"] = pools[spec["nodeName"]]
        kept.append(made)
    return kept, [pod if pod["status"] else {k: v for k, v in pod.items() if k != "status"} for pod in shown]


def _allocated(results: list[dict[str, Any]]) -> dict[str, Any]:
    return {"allocation": {"devices": {"results": results}}} if results else {}


def _results(one: Mapping[str, Any]) -> list[dict[str, Any]]:
    results = part_at(part_at(part_at(one, "status"), "allocation"), "devices").get("results")
    return [dict(result) for result in results if isinstance(result, dict)] if isinstance(results, list) else []


def _device(item: Mapping[str, Any]) -> dict[str, Any]:
    inner = part_at(item, "basic") or item
    kept = only(item, ("name", "nodeName")) | only(inner, ("allowMultipleAllocations",))
    attributes: dict[str, dict[str, object]] = {}
    # Values that can say where a device is stay: a number, a PCI address or a PCIe root.
    for name, value in part_at(inner, "attributes").items():
        for kind, told in value.items() if isinstance(value, dict) else ():
            texts = told if isinstance(told, list) else [told]
            if kind in ("int", "ints") or all(isinstance(text, str) and _PLACE.fullmatch(text) for text in texts):
                attributes.setdefault(name, {})[kind] = told
    return {**kept, "attributes": attributes}


UNKNOWN_NODES: Final = "MOOR-525"


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What is known about the devices of a node."""

    declared: Declared = field(default_factory=dict)
    record: DeviceRecord = DeviceRecord()
    allocatable: Mapping[str, tuple[Device, ...]] = field(default_factory=dict)
    """Healthy devices of plugins with their NUMA nodes, as the kubelet answers."""
    preferences: Mapping[str, Preference] = field(default_factory=dict)
    """Resource -> which of its devices its plugin prefers."""
    claims: tuple[ResourceClaim, ...] = ()
    slices: tuple[ResourceSlice, ...] = ()
    node: str = ""
    """Its name; empty where it is not known, then slices of all nodes count."""

    def of_plugins(self, machine: Machine) -> dict[str, tuple[Device, ...]]:
        """Return the devices of plugins by resource, with what the machine tells of them."""
        bus = {device.address: device for device in machine.pci}
        found: dict[str, dict[str, Device]] = {
            resource: {device.id: device for device in listed} for resource, listed in self.allocatable.items()
        }
        for resource, ids in self.record.registered.items():
            known = found.setdefault(resource, {})
            for one in sorted(ids - known.keys()):
                found_there = bus.get(pci_address(one))
                node = None if found_there is None else found_there.numa
                # The answer is newer than the record: what it leaves out is not healthy any more.
                known[one] = Device(one, None if node is None else (node,), healthy=resource not in self.allocatable)
        for entry in self.record.held:
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


def node_devices(
    facts: DeviceFacts, machine: Machine, pods: Iterable[Pod], rules: LocationRules | None = None
) -> tuple[DeviceState, tuple[Finding, ...]]:
    """Return the devices of a node by resource or driver with their holders, and what was odd.

    Args:
        facts: what is known.
        machine: of the node.
        pods: whose claims count.
        rules: attributes in which older drivers say where devices are.
    """
    own = offered_devices(facts.declared, machine)
    offered = dynamic_devices(current_devices(facts.slices, facts.node), machine.pci, rules)
    devices = {**own, **offered, **facts.of_plugins(machine), **{name: own[name] for name in facts.declared}}
    held: dict[str, dict[str, dict[str, frozenset[str]]]] = {}
    for one in facts.record.held:
        held.setdefault(one.uid, {}).setdefault(one.container, {})[one.resource] = one.ids
    claimed: dict[str, dict[str, dict[str, frozenset[str]]]] = {}
    claims = {(claim.namespace, claim.name): claim for claim in facts.claims}
    for pod in pods:
        of_space = {name: claim for (space, name), claim in claims.items() if space == pod.namespace}
        found = claimed_devices(pod, of_space)
        if found:
            claimed[pod.uid] = found
    for containers in (*held.values(), *claimed.values()):
        for resources in containers.values():
            for resource, ids in resources.items():
                # With those that are held and no longer listed.
                listed = devices.get(resource, ())
                gone = ids - {device.id for device in listed}
                devices[resource] = (*listed, *(Device(one, healthy=False) for one in sorted(gone)))
    known = {name: listed for name, listed in devices.items() if name not in facts.declared}
    state = DeviceState(dict(sorted(devices.items())), held, claimed, facts.preferences)
    return state, _findings(known, machine)


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
