"""A v1 Node, as far as it is read.

Source: Kubernetes API v1, Node; kube-scheduler v1.37.1, plugin NodeUnschedulable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from mooring.engine.core.errors import InputError
from mooring.inputs.decoding.fields import as_mapping, flag_at, inside, list_at, mapping_at, name_at, text_at, texts_at
from mooring.inputs.decoding.quantities import resource_list
from mooring.inputs.pods.pod_fields import SUBDOMAIN, check_name
from mooring.inputs.pods.scheduling_fields import Taint, taints_at

_NATIVE: Final = ("cpu", "memory", "ephemeral-storage", "pods")
_STATE_TAINTS: Final = ("node.kubernetes.io/unschedulable", "node.kubernetes.io/not-ready")
"""What ``closed`` says already."""
_CORDONED: Final = "cordoned"
_NOT_READY: Final = "not ready"


@dataclass(frozen=True, slots=True)
class NodeObject:
    """One node."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    allocatable: Mapping[str, int]
    """cpu in millicores, everything else in whole units."""
    capacity: Mapping[str, int]
    """As above."""
    version: str
    """Of its kubelet; empty where it is not told."""
    closed: str
    """Why it takes no pods; empty where it does."""

    @property
    def extended(self) -> Mapping[str, int]:
        """Allocatable resources of device plugins."""
        return {
            name: amount
            for name, amount in self.allocatable.items()
            if name not in _NATIVE and not name.startswith("hugepages-")
        }


def node_object(content: Mapping[str, Any], source: str) -> NodeObject:
    """Return a node.

    Raises:
        InputError: a field is of the wrong type, or the name is missing.
    """
    try:
        metadata, spec, status = (mapping_at(content, part) for part in ("metadata", "spec", "status"))
        name = name_at(metadata, "name")
        check_name(name, "name", SUBDOMAIN)
    except InputError as error:
        raise inside(error, "metadata").at(source) from None
    try:
        labels = texts_at(metadata, "labels") if metadata.get("labels") else {}
        taints = taints_at(spec)
        allocatable, capacity = (_amounts(status, part) for part in ("allocatable", "capacity"))
        cordoned = flag_at(spec, "unschedulable", default=False)
        closed = _CORDONED if cordoned else "" if _is_ready(status) else _NOT_READY
        return NodeObject(
            name,
            labels,
            tuple(one for one in taints if one.key not in _STATE_TAINTS),
            allocatable or capacity,
            capacity,
            text_at(mapping_at(status, "nodeInfo"), "kubeletVersion"),
            closed,
        )
    except InputError as error:
        raise error.at(f"{source}: node {name}") from None


def check_names(names: Iterable[str], kind: str, source: str) -> None:
    """Refuse two objects of one name.

    Args:
        names: of all objects of a kind; of pods with their namespace.
        kind: of the objects, such as ``node``.
        source: where they are listed.

    Raises:
        InputError: there are two.
    """
    twice = next((name for name, count in Counter(names).items() if count > 1), "")
    if twice:
        raise InputError(
            "is there twice", source=f"{source}: {kind} {twice}", remedy=f"give the {kind}s of one cluster"
        )


def _amounts(status: Mapping[str, Any], field: str) -> dict[str, int]:
    found = resource_list(status, field)
    for name, one in found.items():
        if one.nano < 0:
            raise InputError(f"must not be negative, but is {one}", field=f"{field}.{name}")
    return {name: one.milli if name == "cpu" else one.units for name, one in found.items()}


def _is_ready(status: Mapping[str, Any]) -> bool:
    """Tell whether a node takes pods; one without conditions was written by hand and does."""
    conditions = [as_mapping(one) for one in list_at(status, "conditions")]
    ready = [text_at(one, "status") for one in conditions if text_at(one, "type") == "Ready"]
    return not ready or ready[0] == "True"
