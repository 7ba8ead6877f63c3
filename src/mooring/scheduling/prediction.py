"""Would a node admit this pod? The engine's answer, run once for all nodes on which a new pod sees the same.

What decides about a new pod is reduced to two keys. :func:`view_key` stands for all that the managers look at, without
any name or uid of a pod; :class:`Load` for the sums of the node resources check. Nodes of one key share a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b

from mooring.core.pod import Pod, ResourceList
from mooring.devicemanager.state import DeviceState
from mooring.explain.chapters import Circumstances
from mooring.explain.why import why, why_crash, why_out_of
from mooring.kubelet.admit import AdmitMode, admit, decide, out_of
from mooring.kubelet.kubelet import Kubelet
from mooring.memorymanager.state import MemoryTable
from mooring.node import Decision, Node
from mooring.node.resources import pod_requests
from mooring.node.settings import Settings

ASKED = "mooring.asked"
"""Uid of the pod about which nodes are asked: one answer serves all pods of its shape."""


@dataclass(frozen=True, slots=True)
class Load:
    """What the node resources check looks at."""

    used: tuple[tuple[str, int], ...] = ()
    """Requests of all pods of the node together, of the resources that it checks, by name."""
    pods: int = 0


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a node's kubelet would do with a pod."""

    code: str = ""
    """Of the cause of a refusal; empty when it admits the pod."""
    reason: str = ""
    """The kubelet's reason of a refusal; empty when it would crash or never return."""

    @property
    def admitted(self) -> bool:
        """Whether it would admit the pod."""
        return not self.code


ADMITTED = Prediction()


@dataclass(frozen=True, slots=True)
class PodShape:
    """A pod without its identity."""

    key: bytes
    pod: Pod
    requests: Mapping[str, int] = field(compare=False)
    """What the node resources check adds up."""


def shape_of(pod: Pod) -> PodShape:
    """Return what of a pod decides.

    >>> one, other = Pod("1", "web-1"), Pod("2", "web-2")
    >>> shape_of(one).key == shape_of(other).key
    True
    """
    return PodShape(shape_key(pod), replace(pod, uid=ASKED, name="asked", namespace=""), pod_requests(pod))


def shape_key(pod: Pod) -> bytes:
    """Return a digest of all that decides about a pod; equal for replicas."""
    containers = [(one.name, one.kind.value, _amounts(one.requests), _amounts(one.limits)) for one in pod.containers]
    level = None if pod.resources is None else (_amounts(pod.resources.requests), _amounts(pod.resources.limits))
    return _digest(containers, pod.qos.value, level, _amounts(pod.overhead), pod.scale_down_grace)


def view_key(digest: str, node: Node) -> bytes:
    """Return a digest of all that the managers of a node look at for a new pod.

    Args:
        digest: of the node's facts.
        node: settled: without anything that no active pod holds.
    """
    memory = [
        (id_, one.assignments, one.cells, [(kind, _table(table)) for kind, table in sorted(one.memory.items())])
        for id_, one in sorted(node.memory.nodes.items())
    ]
    return _digest(digest, node.cpu.default, memory, _devices(node.providers.devices))


def load_of(kubelet: Kubelet) -> Load:
    """Return what the node resources check looks at on a node."""
    checked = kubelet.settings.reservation.capacity
    used = tuple(sorted((name, amount) for name, amount in kubelet.used.items() if name in checked and amount))
    return Load(used, len(kubelet.node.active))


def predicted(kubelet: Kubelet, pod: Pod) -> tuple[Kubelet, Prediction]:
    """Ask the managers of a node.

    Returns:
        The kubelet with the pod, its containers started; of no use when it is refused.
    """
    after, result = admit(kubelet, pod, AdmitMode.MANAGERS)
    if result.admitted:
        return after, ADMITTED
    if result.crash:
        return after, Prediction(why_crash(result.crash).code)
    facts: list[object] = []
    decide(kubelet, pod, observer=facts.append)
    node = after.node
    return after, _refusal(
        result.decision, Circumstances(after.settings, pod, facts, node.memory, node.providers.devices)
    )


def check(shape: PodShape, load: Load, settings: Settings) -> Prediction:
    """Make the node resources check."""
    refused = out_of(shape.requests, dict(load.used), load.pods, settings)
    return ADMITTED if refused is None else Prediction(why_out_of(refused).code, refused.reason)


def _refusal(decision: Decision, circumstances: Circumstances) -> Prediction:
    return Prediction(why(decision, circumstances).code, decision.reason)


def _table(table: MemoryTable) -> tuple[int, ...]:
    return table.total, table.system_reserved, table.allocatable, table.reserved, table.free


def _devices(state: DeviceState) -> list[object]:
    """Return the devices in the order of their ids, which is that in which they are taken, without the ids."""
    found: list[object] = []
    for resource in sorted(state.devices):
        free = state.available(resource)
        devices = sorted(state.devices[resource], key=lambda device: device.id)
        found.append((resource, [(device.numa, device.healthy, device.id in free) for device in devices]))
    return found


def _amounts(resources: ResourceList) -> list[tuple[str, int]]:
    return sorted((name, quantity.nano) for name, quantity in resources.items())


def _digest(*parts: object) -> bytes:
    return blake2b(repr(parts).encode(), digest_size=16).digest()
