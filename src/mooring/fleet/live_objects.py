"""Nodes, pods and disruption budgets of a live cluster, as far as they are read.

The machine of a node that publishes nothing is named by the person, or by its instance type. The table knows common
types of AWS, Google Cloud and Azure. It is an assumption: a provider may place an instance on another processor, and
documents sockets and NUMA nodes of few types.

Source: Kubernetes API v1.37, Node, Pod, policy/v1 PodDisruptionBudget; kube-scheduler v1.37.1, plugin
NodeUnschedulable; ``kubectl drain`` (filters of pods); ``kubectl get --selector``.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from importlib.resources import files
from typing import Any, Final

from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Machine
from mooring.engine.core.pod import Pod
from mooring.engine.devicemanager.state import Device
from mooring.fleet.cluster import PodDemand, asked_of
from mooring.inputs.decoding import fields as reading
from mooring.inputs.decoding.fields import as_mapping, count_at, list_at, mapping_at, text_at, texts_at, within
from mooring.inputs.decoding.quantities import resource_list
from mooring.inputs.machines.compact import parse_compact
from mooring.inputs.machines.loader import load_machine
from mooring.inputs.pods.cluster_objects import FINISHED
from mooring.inputs.pods.defaults import PodGates
from mooring.inputs.pods.pod_fields import SUBDOMAIN, check_name, with_allocated
from mooring.inputs.pods.pod_files import check_identity
from mooring.inputs.pods.pod_relations import PodSelector, label_requirements, pod_relations
from mooring.inputs.pods.pods import DEFAULT_GATES, MIRROR, pod_from_object
from mooring.inputs.pods.scheduling_fields import (
    CORDONED,
    NodeObject,
    Operator,
    Requirement,
    scheduling_fields,
    taints_at,
)

_NATIVE: Final = ("cpu", "memory", "ephemeral-storage", "pods")
_STATE_TAINTS: Final = ("node.kubernetes.io/unschedulable", "node.kubernetes.io/not-ready")
"""What ``closed`` says already."""
_NOT_READY: Final = "not ready"


def node_object(content: Mapping[str, Any], source: str) -> NodeObject:
    """Return a node.

    Raises:
        InputError: a field is of the wrong type, or the name is missing.
    """
    with reading.within("metadata", source=source):
        metadata, spec, status = (reading.mapping_at(content, part) for part in ("metadata", "spec", "status"))
        name = reading.name_at(metadata, "name")
        check_name(name, "name", SUBDOMAIN)
    with reading.within(source=f"{source}: node {name}"):
        labels = reading.texts_at(metadata, "labels") if metadata.get("labels") else {}
        taints = taints_at(spec)
        allocatable, capacity = _amounts(status, "allocatable"), _amounts(status, "capacity")
        cordoned = reading.flag_at(spec, "unschedulable", default=False)
        # A node without conditions was written by hand, and takes pods.
        conditions = [reading.as_mapping(one) for one in reading.list_at(status, "conditions")]
        ready = [reading.text_at(one, "status") for one in conditions if reading.text_at(one, "type") == "Ready"]
        closed = CORDONED if cordoned else "" if not ready or ready[0] == "True" else _NOT_READY
        return NodeObject(
            name,
            labels,
            tuple(one for one in taints if one.key not in _STATE_TAINTS),
            closed,
            allocatable or capacity,
            capacity,
            reading.text_at(reading.mapping_at(status, "nodeInfo"), "kubeletVersion"),
            frozenset(map(str, reading.list_at(status, "declaredFeatures"))),
        )


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


INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"
OLD_INSTANCE_TYPE: Final = "beta.kubernetes.io/instance-type"
EVERY: Final = "*"
"""Stands for all nodes of which nothing else is known."""
_KIB: Final = 1024


@cache
def instance_types() -> Mapping[str, Mapping[str, str]]:
    """Return the table by name: memory, sockets, numa (nodes), cores, threads."""
    text = (files(__package__) / "instances.csv").read_text(encoding="utf-8")
    return {row["type"]: row for row in csv.DictReader(one for one in text.splitlines() if not one.startswith("#"))}


def named_machines(given: Sequence[str]) -> dict[str, Machine]:
    """Return what ``--machine`` says by kind: an instance type, ``label=value``, or :data:`EVERY`.

    Raises:
        InputError: one has another form, or names no machine.
    """
    found: dict[str, Machine] = {}
    for text in given:
        kind, colon, source = text.partition(":")
        if not (kind and colon and source):
            raise InputError(
                f"{text!r:.80} is not KIND:MACHINE",
                source="--machine",
                remedy="write an instance type or label=value, a colon, and what --machine takes elsewhere, such as "
                "pool=gpu:epyc-7763-2s-nps4",
            )
        try:
            found.setdefault(kind, load_machine(source))
        except InputError as error:
            raise reading.caused_in(error, "--machine") from None
    return found


def is_of_kind(node: NodeObject, kind: str) -> bool:
    """Tell whether a node is of a kind that ``--machine`` names."""
    label, equals, value = kind.partition("=")
    return node.labels.get(label) == value if equals else kind in (EVERY, instance_type(node))


def instance_type(node: NodeObject) -> str:
    """Return the instance type of a node; empty where its labels tell none."""
    return node.labels.get(INSTANCE_TYPE) or node.labels.get(OLD_INSTANCE_TYPE) or ""


def machine_of_node(node: NodeObject, named: Mapping[str, Machine]) -> Machine | None:
    """Return the machine of a node; None where its kind is not known.

    Args:
        node: the node.
        named: machines that the person named, by kind; the first that is of the node counts.

    Raises:
        InputError: the node has another number of CPUs than the machine of its kind.
    """
    machine = next((machine for kind, machine in named.items() if is_of_kind(node, kind)), None)
    cpus = node.capacity.get("cpu", 0) // 1000
    if machine is None:
        kind = instance_types().get(instance_type(node))
        if kind is None:
            return None
        # A core of an instance may have one thread where simultaneous multithreading is switched off.
        threads = 1 if cpus == int(kind["cores"]) else kind["threads"]
        numa, told = int(kind["numa"]), node.capacity.get("memory", 0)
        memory = f"{told // (_KIB * numa) * numa}Ki" if told else kind["memory"]
        shape = f"sockets={kind['sockets']} numa={numa} cores={kind['cores']} threads={threads}"
        machine = parse_compact(f"{shape} memory={memory}")
    if cpus and machine.info.num_cores != cpus:
        raise InputError(
            f"has {cpus} CPUs, and the machine of its kind {machine.info.num_cores}",
            source=f"node {node.name}",
            field="status.capacity.cpu",
            remedy=f"name its machine: --machine {instance_type(node) or 'LABEL=VALUE'}:MACHINE",
        )
    return machine


def devices_of_node(node: NodeObject, machine: Machine) -> Mapping[str, tuple[Device, ...]]:
    """Return devices for the extended resources of a node, spread evenly over the NUMA nodes with CPUs."""
    places = [one.node_id for one in machine.info.topology if one.cores]
    return {
        resource: tuple(Device(f"{index:04d}", (places[index * len(places) // count],)) for index in range(count))
        for resource, count in node.allocatable.items()
        if count and places and resource not in _NATIVE and not resource.startswith("hugepages-")
    }


_DAEMON: Final = "DaemonSet"


class Fixed(Enum):
    """Why a pod is not moved; the value is its name in documents."""

    STATIC = "static"
    DAEMON = "daemonset"
    ALONE = "no-controller"
    """No controller makes it anew."""
    BUDGET = "disruption-budget"
    """A PodDisruptionBudget allows no disruption."""
    NOT_READ = "not-simulated"
    """It has fields that the model of the scheduler does not read."""
    PRIORITY = "priority"
    """It has a higher priority than the replicas."""
    NOT_CHOSEN = "not-selected"
    LEAVING = "leaving"
    """It is being deleted."""


@dataclass(frozen=True, slots=True)
class LivePod:
    """One pod."""

    name: str
    """``namespace/name``."""
    uid: str
    """As nodes name it: of a static pod that which its kubelet gave it."""
    pod: Pod
    asked: PodDemand
    node: str
    """Where it is bound; empty for a pod that waits."""
    order: tuple[bool, str, str]
    """Sorts pods by the time of their start."""
    labels: Mapping[str, str]
    owner: str
    """Kind of its controller; empty for a pod of its own."""
    leaving: bool

    @property
    def stays(self) -> Fixed | None:
        """Why a drain leaves it alone; None for a pod that a drain evicts."""
        if MIRROR in self.pod.annotations or self.owner == "Node":
            return Fixed.STATIC
        return Fixed.DAEMON if self.owner == _DAEMON else None


def live_pod(content: Mapping[str, Any], source: str, gates: PodGates = DEFAULT_GATES) -> LivePod | None:
    """Return a pod; None for one that has finished and counts no more.

    Raises:
        InputError: it is not valid.
    """
    metadata, spec, status = (mapping_at(content, part) for part in ("metadata", "spec", "status"))
    if text_at(status, "phase") in FINISHED:
        return None
    # An upgrade may lead to a release that reads statuses.
    gates = replace(gates, reads_statuses=True)
    pod = pod_from_object(with_allocated(content), source=source, gates=gates)
    with within(source=source):
        check_identity(pod)
    started, created = text_at(status, "startTime"), text_at(metadata, "creationTimestamp")
    owners = [as_mapping(one) for one in list_at(metadata, "ownerReferences")]
    return LivePod(
        name=f"{pod.namespace}/{pod.name}",
        uid=pod.uid,
        pod=pod,
        asked=asked_of(pod, scheduling_fields(spec), pod_relations(content)),
        node=text_at(spec, "nodeName"),
        # Times are texts of one form, which sort as what they mean; what was not started yet comes last.
        order=(not started, started or created, f"{pod.namespace}/{pod.name}"),
        labels=texts_at(metadata, "labels") if metadata.get("labels") else {},
        owner=next((text_at(one, "kind") for one in owners if one.get("controller") is True), ""),
        leaving=metadata.get("deletionTimestamp") is not None,
    )


EVERYTHING: Final = PodSelector(None, ())


def requirements_of_text(text: str, option: str = "") -> tuple[Requirement, ...]:
    """Return the selector of an option, in kubectl's form with equality and existence.

    Args:
        text: of the selector.
        option: its name, for messages.

    Raises:
        InputError: a part of it is not understood.

    >>> all(one.meets({"app": "web"}) for one in requirements_of_text("app=web,tier!=db,!old"))
    True
    """
    wanted = []
    for part in map(str.strip, text.split(",")):
        key, equals, value = part.replace("==", "=").partition("=")
        if equals and key.endswith("!"):
            found = Requirement(key[:-1], Operator.NOT_IN, (value,))
        elif equals:
            found = Requirement(key, Operator.IN, (value,))
        elif part.startswith("!"):
            found = Requirement(part[1:], Operator.DOES_NOT_EXIST)
        else:
            found = Requirement(part, Operator.EXISTS)
        if not found.key or " " in found.key:
            raise InputError(f"{text!r:.80} is not a selector", source=option, remedy="write app=web,tier!=db")
        wanted.append(found)
    return tuple(wanted)


def protected_pods(contents: Iterable[Mapping[str, Any]], source: str) -> tuple[PodSelector, ...]:
    """Return the pods of the PodDisruptionBudgets that allow no disruption now.

    Raises:
        InputError: one is not valid.
    """
    found = []
    for content in contents:
        with within(source=f"{source}: PodDisruptionBudget"):
            metadata, spec, status = (mapping_at(content, part) for part in ("metadata", "spec", "status"))
            wanted = label_requirements(mapping_at(spec, "selector")) if spec.get("selector") is not None else None
            selector = PodSelector((text_at(metadata, "namespace", "default"),), wanted)
            if count_at(status, "disruptionsAllowed", 0) < 1:
                found.append(selector)
    return tuple(found)
