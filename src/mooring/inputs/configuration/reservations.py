"""What vendors reserve: by formulas that they publish, and what is assumed where none is known.

A formula does not say how the vendor rounds: ``reservedMemory`` decides between amounts that are less than 1 MiB apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from mooring.engine.core.decision import Fault
from mooring.engine.core.machine import Finding
from mooring.engine.core.machineinfo import MachineInfo
from mooring.engine.core.quantity import Quantity
from mooring.engine.core.release import Release
from mooring.engine.node.reservation import reserve
from mooring.inputs.configuration.kubelet_config import config_of_fields
from mooring.inputs.configuration.layers import FieldPlace, Layer, Tier, merged_layers
from mooring.inputs.configuration.part import RESERVATION_UNKNOWN

_GIB: Final = 1024**3
_MIB: Final = 1024**2

_MILLI_RANGES: Final = ((1, 600), (1, 100), (2, 50))
"""CPUs, and how many of 10,000 parts of each are reserved; of all further CPUs 25."""


def milli_by_ranges(cpus: int) -> int:
    """Return the thousandths of a CPU that GKE and EKS reserve: 6 % of the first, 1 %, twice 0.5 %, then 0.25 % each.

    Sources: https://cloud.google.com/kubernetes-engine/docs/concepts/plan-node-sizes;
    https://github.com/awslabs/amazon-eks-ami, get_cpu_millicores_to_reserve of bootstrap.sh

    >>> [milli_by_ranges(cpus) for cpus in (1, 2, 4, 8, 96)]
    [60, 70, 80, 90, 310]
    """
    total, left = 0, cpus
    for width, parts in _MILLI_RANGES:
        total += min(width, left) * 1000 * parts // 10_000
        left -= min(width, left)
    return total + left * 1000 * 25 // 10_000


_GKE_MEMORY: Final = ((4, 25), (4, 20), (8, 10), (112, 6))
"""GiB, and the percentage of them that is reserved; of all further memory 2 %."""


def gke_memory(memory: int) -> int:
    """Return the bytes that GKE reserves of a machine's memory, without the eviction threshold.

    Source: https://cloud.google.com/kubernetes-engine/docs/concepts/plan-node-sizes

    >>> [gke_memory(gib * 1024**3) // 1024**2 for gib in (4, 8, 16, 128)]
    [1024, 1843, 2662, 9543]
    """
    if memory < _GIB:
        return 255 * _MIB
    total, left = 0, memory
    for width, percent in _GKE_MEMORY:
        total += min(width * _GIB, left) * percent // 100
        left -= min(width * _GIB, left)
    return total + left * 2 // 100


_AKS_MILLI: Final = ((1, 60), (2, 100), (4, 140), (8, 180), (16, 260), (32, 420), (64, 740))
"""CPUs of a node, and the thousandths of a CPU that are reserved."""


def aks_milli(cpus: int) -> int:
    """Return the thousandths of a CPU that AKS reserves; the table's step below where it has no such size.

    Source: https://learn.microsoft.com/azure/aks/node-resource-reservations

    >>> [aks_milli(cpus) for cpus in (2, 8, 20, 96)]
    [100, 180, 260, 740]
    """
    return next((milli for size, milli in reversed(_AKS_MILLI) if cpus >= size), _AKS_MILLI[0][1])


def eks_memory(pods: int) -> int:
    """Return the bytes that EKS reserves on a node that can have so many pods.

    Source: https://github.com/awslabs/amazon-eks-ami, nodeadm/internal/kubelet/config.go
    (getMemoryMebibytesToReserve), read in November 2026

    >>> eks_memory(58) // 1024**2
    893
    """
    return (255 + 11 * pods) * _MIB


def aks_memory(pods: int, memory: int) -> int:
    """Return the bytes that AKS reserves from Kubernetes 1.29 on; no older kubelet is known here.

    Source: https://learn.microsoft.com/azure/aks/node-resource-reservations, read in November 2026

    >>> [aks_memory(pods, gib * 1024**3) // 1024**2 for pods, gib in ((30, 8), (70, 4))]
    [650, 1024]
    """
    return min((50 + 20 * pods) * _MIB, memory * 25 // 100)


_RESERVED_MEMORY: Final = "reservedMemory"


def with_computed(
    layers: Iterable[Layer], machine: MachineInfo | None, *, has_file: bool, release: Release
) -> tuple[list[Layer], list[Finding]]:
    """Return the layers with those of what vendors compute and no layer sets, and what to report of it.

    Without a formula, ``reservedMemory`` of policy Static tells what the node reserves: on a healthy node it adds up.
    """
    found = list(layers)
    findings: dict[str, Finding] = {}
    for layer in tuple(found):
        for path, computed in layer.computed.items():
            if path in findings or any(one.sets(path) for one in found):
                continue
            fields = merged_layers(found, has_file=has_file, release=release)
            exact, finding, origin = computed.formula(fields), computed.finding, "by its formula"
            amount = exact
            if fields.get("memoryManagerPolicy") == "Static":
                told = _told(path, fields, machine, release)
                if exact is None:
                    is_told = told is not None and told >= computed.least
                    amount, origin = (told, "assumed") if is_told else (computed.least or None, "at least")
                    finding = replace(finding, severity="warning", code=RESERVATION_UNKNOWN)
                elif told is not None and abs(told - exact) < _MIB:
                    amount = told
            words = "" if amount is None else f"; {path} is {Quantity.of_bytes(amount)} ({origin})"
            findings[path] = replace(finding, message=f"{finding.message}{words}")
            if amount is not None:
                found.append(_layer(path, amount, FieldPlace(f"{layer.vendor}, {origin}", ""), machine))
    return found, list(findings.values())


def _told(path: str, fields: Mapping[str, Any], machine: MachineInfo | None, release: Release) -> int | None:
    """Return the bytes with which ``reservedMemory`` adds up; None where no amount makes it add up."""
    config = config_of_fields(fields)
    info = machine or MachineInfo(0, 0, 0, ())
    kept = reserve(replace(config, reserved_system_cpus=""), info, "", release.rules)
    if isinstance(kept, Fault) or not info.memory_capacity:
        return None
    known = kept.reserved["memory"].units if "memory" in kept.reserved else 0
    if path == _RESERVED_MEMORY:
        return known or None
    listed = sum(
        Quantity.parse(entry.limits["memory"]).units for entry in config.reserved_memory if "memory" in entry.limits
    )
    return listed - known if listed > known else None


def _layer(path: str, amount: int, place: FieldPlace, machine: MachineInfo | None) -> Layer:
    text = str(Quantity.of_bytes(amount))
    field, _, key = path.partition(".")
    node = min((one.node_id for one in machine.topology), default=0) if machine else 0
    value: Any = {key: text} if key else [{"numaNode": node, "limits": {"memory": text}}]
    return Layer(Tier.VENDOR_FILE, {field: value}, lambda _: place, built_in=True)
