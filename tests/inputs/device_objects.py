"""What tells of devices, as readers of its bytes: claims, slices and classes, and the device manager's record."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from mooring.cluster.extender.claims import ClaimView
from mooring.engine.checkpoint.device_file import HeldDevices, device_record, device_text, without_answers
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import PCIDevice
from mooring.inputs.archive.claims import DeviceFacts, node_devices, reduced_claims
from mooring.inputs.decoding.documents import documents_in
from mooring.inputs.decoding.fields import mapping_at
from mooring.inputs.machines.compact import parse_compact
from mooring.inputs.pods.cluster_objects import dynamic_objects

NAME = "input"
PCI = (PCIDevice("0000:3b:00.0", "030200", "10de", "2330", 1, "pci0000:3a"),)
MACHINE = replace(parse_compact("sockets=2 cores=4"), pci=PCI)


def items_of(content: Any) -> list[dict[str, Any]]:
    """Return the objects of a list, or the only one."""
    items = content.get("items", [content]) if isinstance(content, dict) else None
    return [one for one in items if isinstance(one, dict)] if isinstance(items, list) else []


def dynamic(data: bytes) -> object:
    """Read claims, slices and classes, locate the devices, and reduce everything as an archive does."""
    documents = documents_in(data, NAME)
    found = dynamic_objects(documents)
    view = ClaimView()
    for one in (one for document in documents for one in items_of(document.content)):
        mapping_at(one, "metadata")
        if one.get("kind") == "DeviceClass":
            view.put_class(one)
        elif one.get("kind") == "ResourceClaim":
            view.put_claim(one)
    reduced_claims([document.content for document in documents], [], "n")
    return found, node_devices(DeviceFacts(claims=found[0], slices=found[1], node="n"), MACHINE, ())


def record(data: bytes) -> object:
    """Read the device manager's record; what an archive keeps of it reads the same."""
    text = data.decode(errors="surrogateescape")
    found, kept = device_record(text), without_answers(text)
    if kept is not None:
        again = device_record(kept)
        if (again.problem, again.registered) != (found.problem, found.registered):
            raise AssertionError("the kept record says something else")
    elif not found.problem:
        raise InputError("a record that can be read is kept")
    return found


def dynamic_seeds() -> list[bytes]:
    """Return a list with one object of each kind."""
    attributes = {
        "resource.kubernetes.io/numaNode": {"ints": [1, 0]},
        "resource.kubernetes.io/pciBusID": {"string": "0000:3b:00.0"},
        "resource.kubernetes.io/pcieRoot": {"strings": ["pci0000:3a"]},
        "model": {"version": "1.0.0"},
    }
    pool = {"name": "n", "generation": 2, "resourceSliceCount": 1}
    devices = [{"name": "g0", "attributes": attributes}, {"name": "g1", "basic": {"attributes": {"numa": {"int": 0}}}}]
    offered = {"driver": "gpu.example.com", "nodeName": "n", "pool": pool, "devices": devices}
    result = {"request": "r", "driver": "gpu.example.com", "pool": "n", "device": "g0", "adminAccess": False}
    status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [{"resource": "pods", "uid": "u"}]}
    exact = {"deviceClassName": "gpu", "count": 2}
    requests = {"devices": {"requests": [{"name": "r", "exactly": exact}]}}
    selectors = [{"cel": {"expression": 'device.driver == "gpu.example.com"'}}]
    items = [
        {"kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": offered},
        {"kind": "ResourceClaim", "metadata": {"name": "c", "namespace": "d"}, "spec": requests, "status": status},
        {"kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {"selectors": selectors}},
    ]
    return [json.dumps({"kind": "List", "items": items}).encode()]


def record_seeds() -> list[bytes]:
    """Return records as kubelets write them."""
    held = HeldDevices("u", "c", "v/gpu", {-1: ("a",), 0: ("b", "c")}, b"\x0a\x01x")
    return [device_text([held], {"v/gpu": ["a", "b"]}).encode(), device_text([], {}).encode()]
