"""A NodeResourceTopology: zones with their CPUs, memory, huge pages, devices and costs, as counts, and policies.

Source: k8stopologyawareschedwg/noderesourcetopology-api, v1alpha1 and v1alpha2.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Mapping
from typing import Any, Final

from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import PublishedNode
from mooring.engine.core.machineinfo import HugePages
from mooring.engine.core.quantity import Quantity, QuantitySyntaxError
from mooring.inputs.decoding import fields as reading
from mooring.inputs.decoding.fields import as_mapping, each_at, list_at, mapping_at, name_at, text_at, within
from mooring.inputs.decoding.quantities import HUGE_PAGES, quantity_of
from mooring.inputs.machines.formats import description
from mooring.inputs.machines.formats.cpulists import places_of
from mooring.inputs.machines.formats.description import (
    MAX_BYTES,
    MAX_CPUS,
    MAX_DEVICES,
    OF_MEMORY,
    DescribedNode,
    Description,
    origin_of,
    row_of,
)
from mooring.inputs.machines.formats.linux_tools import described_table
from mooring.lazy import replace

KIND: Final = "NodeResourceTopology"
_ZONE: Final = re.compile(r"node-?([0-9]{1,5})", re.ASCII)


def read_resource_topology(content: Mapping[str, Any]) -> Description:
    """Return the machine of the zones of type Node, with its CPUs numbered from zone to zone.

    Raises:
        InputError: a zone cannot be understood, or there is none.
    """
    if detail := _json_annotation(content, "node.koordinator.sh/cpu-topology").get("detail"):
        return _with_zones(content, detail)
    amounts: dict[int, dict[str, int]] = {}
    costs: dict[int, dict[int, int]] = {}
    zones: dict[int, Mapping[str, Any]] = {}
    for index, entry in enumerate(list_at(content, "zones")):
        with within(f"zones[{index}]"):
            zone = as_mapping(entry)
            if text_at(zone, "type") == "Node":
                number = _number_of(zone, amounts)
                amounts[number], costs[number] = _amounts(zone, "capacity"), _costs(zone)
                zones[number] = zone
    if not any(found.get("cpu") for found in amounts.values()):
        raise InputError("have no CPUs", field="zones", remedy="name the object of a node with zones of type Node")
    nodes = sorted(amounts)
    cpus: dict[int, list[int]] = {}
    for node in nodes:
        first = sum(map(len, cpus.values()))
        cpus[node] = list(range(first, first + amounts[node].get("cpu", 0)))
    is_measured = all(len(costs[node]) == len(nodes) for node in nodes)
    has_memory = any("memory" in found for found in amounts.values())
    return Description(
        origin=origin_of(
            KIND,
            (
                *("numbers of CPUs", "cores", "sockets", "caches", not has_memory and "memory"),
                *(not is_measured and "distances", "offline CPUs", "PCI devices"),
            ),
            (
                *("CPUs numbered from zone to zone", description.ASSUMED_CORES, description.ASSUMED_SOCKETS),
                not has_memory and description.ASSUMED_MEMORY,
                not is_measured and description.ASSUMED_DISTANCES,
            ),
        ),
        cpus=places_of(cpus, sockets=sum(bool(listed) for listed in cpus.values()), threads=1),
        nodes=tuple(
            DescribedNode(
                node,
                amounts[node].get("memory", 0) if has_memory else description.MEMORY_OF_A_CPU * len(cpus[node]),
                _pools(amounts[node]),
                row_of(costs[node], node, nodes),
            )
            for node in nodes
        ),
        name=text_at(mapping_at(content, "metadata"), "name"),
        published=_published(content, zones),
    )


def _json_annotation(content: Mapping[str, Any], name: str) -> dict[str, Any]:
    text = text_at(mapping_at(mapping_at(content, "metadata"), "annotations"), name)
    with within(f"metadata.annotations.{name}"):
        try:
            return as_mapping(json.loads(text or "{}"))
        except (ValueError, RecursionError):
            raise InputError("is not valid JSON", remedy="give the object as the API server has it") from None


def _with_zones(content: Mapping[str, Any], detail: object) -> Description:
    """Return the machine of Koordinator's list of CPUs, with the memory of zones where they are NUMA nodes.

    Source: https://koordinator.sh/docs/designs/fine-grained-cpu-orchestration
    """
    rows = detail if isinstance(detail, list) else []
    table = [
        (f"detail[{index}]", {("cpu" if key == "id" else key): str(value) for key, value in row.items()})
        for index, row in enumerate(rows)
        if isinstance(row, dict)
    ]
    machine = described_table(table, "", "NodeResourceTopology of Koordinator")
    zones = {
        int(match[1]): zone
        for zone in list_at(content, "zones")
        if isinstance(zone, dict) and (match := _ZONE.fullmatch(str(zone.get("name"))))
    }
    kubelet = _json_annotation(content, "kubelet.koordinator.sh/cpu-manager-policy")
    published = _published(content, zones)
    fields = {"cpuManagerPolicy": kubelet.get("policy"), "reservedSystemCPUs": kubelet.get("reservedCPUs")}
    published = replace(published, fields={**published.fields, **{k: str(v) for k, v in fields.items() if v}})
    sizes = {node: _amounts(zone, "capacity").get("memory", 0) for node, zone in zones.items()}
    return _measured(machine, content, sizes, published)


def _measured(
    machine: Description, content: Mapping[str, Any], sizes: Mapping[int, int], published: PublishedNode
) -> Description:
    """Return a machine with the memory of its nodes where all have some, under the object's name."""
    name = text_at(mapping_at(content, "metadata"), "name")
    if not all(sizes.get(node.id) for node in machine.nodes):
        return replace(machine, name=name, published=published)
    origin = machine.origin
    known = replace(
        origin,
        unknown=tuple(part for part in origin.unknown if part != OF_MEMORY),
        assumed=tuple(text for text in origin.assumed if text != description.ASSUMED_MEMORY),
    )
    nodes = tuple(replace(node, size=sizes[node.id]) for node in machine.nodes)
    return replace(machine, origin=known, nodes=nodes, name=name, published=published)


_VOLCANO: Final = {"CPUManagerPolicy": "cpuManagerPolicy", "TopologyManagerPolicy": "topologyManagerPolicy"}


def read_numatopology(content: Mapping[str, Any]) -> Description:
    """Return the machine of Volcano's Numatopology; what is 0 is not written there.

    Source: https://github.com/volcano-sh/apis, nodeinfo/v1alpha1.

    Raises:
        InputError: it has no CPUs, or one cannot be understood.
    """
    spec = mapping_at(content, "spec")
    detail = mapping_at(spec, "cpuDetail") or mapping_at(spec, "cpudetail")
    table = [
        (
            f"spec.cpuDetail.{cpu}",
            {"cpu": cpu} | {column: str(as_mapping(place).get(name, 0)) for column, name in _OF_CPU.items()},
        )
        for cpu, place in detail.items()
    ]
    policies = mapping_at(spec, "policies")
    fields = {ours: str(policies[name]) for name, ours in _VOLCANO.items() if policies.get(name)}
    return _measured(described_table(table, "", "Numatopology"), content, {}, PublishedNode(fields))


_OF_CPU: Final = {"node": "numa", "socket": "socket", "core": "core"}
_POLICIES: Final = {
    "None": "none",
    "BestEffort": "best-effort",
    "Restricted": "restricted",
    "SingleNUMANode": "single-numa-node",
}
_SCOPES: Final = {"": "", "ContainerLevel": "container", "PodLevel": "pod"}
_OLD_POLICY: Final = re.compile(f"({'|'.join(_POLICIES)})({'|'.join(_SCOPES)})")
_KNOWN: Final = re.compile(r"cpu|memory|hugepages-.+")
_FIELDS: Final = ("topologyManagerPolicy", "topologyManagerScope", "cpuManagerPolicy", "memoryManagerPolicy")


def _published(content: Mapping[str, Any], zones: Mapping[int, Mapping[str, Any]]) -> PublishedNode:
    """Return what the object says of the node: attributes win over the older list of policies.

    What can be allocated and is not available is held by containers; what cannot be allocated is no device that works.

    Raises:
        InputError: an attribute or an amount cannot be understood.
    """
    given = dict(each_at(content, "attributes", lambda one: (name_at(one, "name"), text_at(one, "value"))))
    old = [match for text in list_at(content, "topologyPolicies") if (match := _OLD_POLICY.fullmatch(str(text)))]
    fields = dict(zip(_FIELDS, (_POLICIES[old[0][1]], _SCOPES[old[0][2] or ""]) if old else ("", ""), strict=False))
    fields |= {name: value for name, value in given.items() if name in _FIELDS}
    allocatable, available = (
        {node: _amounts(zone, field) for node, zone in zones.items()} for field in ("allocatable", "available")
    )
    devices: dict[str, dict[int, int]] = {}
    for node, amounts in allocatable.items():
        for name, amount in amounts.items():
            if "/" in name and not name.startswith(HUGE_PAGES) and amount <= MAX_DEVICES:
                devices.setdefault(name, {})[node] = amount
    taken = {
        node: {
            name: amount - available[node][name]
            for name, amount in amounts.items()
            if amount > available[node].get(name, amount) and (name in devices or _KNOWN.fullmatch(name))
        }
        for node, amounts in allocatable.items()
    }
    return PublishedNode(
        {name: value for name, value in fields.items() if value},
        devices,
        {node: amounts for node, amounts in taken.items() if amounts},
    )


def _number_of(zone: Mapping[str, Any], known: Container[int]) -> int:
    name = name_at(zone, "name")
    match = _ZONE.fullmatch(name)
    if not match or int(match[1]) in known:
        problem = "is there twice" if match else "is not the name of a zone"
        raise InputError(f"{name!r:.60} {problem}", field="name", remedy="write node-0, node-1, ... once each")
    return int(match[1])


def _amounts(zone: Mapping[str, Any], field: str) -> dict[str, int]:
    """Return the whole CPUs, bytes or devices of a zone's resources; without a capacity what can be allocated."""

    def amount_of(resource: Mapping[str, Any]) -> tuple[str, int]:
        name = name_at(resource, "name")
        told = next((one for one in (field, "allocatable", "capacity") if resource.get(one) is not None), field)
        most, value = MAX_CPUS - 1 if name == "cpu" else MAX_BYTES, resource.get(told)
        amount = quantity_of(value, told).nano // 10**9
        if not 0 <= amount <= most:
            raise InputError(f"{value!r:.60} is not between 0 and {most}", field=told)
        return name, amount

    return dict(each_at(zone, "resources", amount_of))


def _costs(zone: Mapping[str, Any]) -> dict[int, int]:
    costs: dict[int, int] = {}
    for index, entry in enumerate(list_at(zone, "costs")):
        with within(f"costs[{index}]"):
            cost = as_mapping(entry)
            costs[_number_of(cost, costs)] = reading.count_at(cost, "value", description.REMOTE_DISTANCE)
    return costs


def _pools(amounts: Mapping[str, int]) -> tuple[HugePages, ...]:
    pools = []
    for name, amount in amounts.items():
        if name.startswith(HUGE_PAGES):
            try:
                size = Quantity.parse(name.removeprefix(HUGE_PAGES)).nano // 10**9
            except QuantitySyntaxError:
                size = 0
            if size >= 1024:
                pools.append(HugePages(size // 1024, amount // size))
    return tuple(pools)
