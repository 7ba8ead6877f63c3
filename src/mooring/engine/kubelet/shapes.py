"""What decides about a new pod: the shape of the pod, what the managers of a node look at, and the node's sums.

Pods of one shape get the same answer from nodes of one :func:`view_key` and one :class:`Load`, so that a caller with
many nodes asks the engine once for all of them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from hashlib import blake2b
from operator import attrgetter
from typing import Generic, TypeVar

from mooring.engine.core.pod import Pod, QoS, ResourceList, without_status
from mooring.engine.extensions import device_alignment
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.node import Node
from mooring.engine.node.resources import pod_requests
from mooring.lazy import dataclass, field, replace

_NATIVE = ("cpu", "memory", "ephemeral-storage", "pods")
_Key = TypeVar("_Key", bound=Hashable)
_Answer = TypeVar("_Answer")
_SIZES = attrgetter("total", "system_reserved", "allocatable", "reserved", "free")
"""What decides of a table of the memory manager."""
ASKED = "mooring.asked"
"""Uid of the pod about which nodes are asked: one answer serves all pods of its shape."""


@dataclass(frozen=True, slots=True)
class Load:
    """What the node resources check looks at."""

    used: tuple[tuple[str, int], ...] = ()
    """Requests of all pods of the node together, of the resources that it checks, by name."""
    pods: int = 0


@dataclass(frozen=True, slots=True)
class PodShape:
    """A pod without its identity."""

    key: bytes
    pod: Pod
    requests: Mapping[str, int] = field(compare=False)
    """What the node resources check adds up."""
    given: tuple[tuple[str, str, tuple[int, ...]], ...] = ()
    """Container, driver and NUMA nodes of each device that claims have given it."""
    asks_devices: bool = False
    """Whether its limits stand for devices that drivers have still to give."""


class Memo(Generic[_Key, _Answer]):
    """Answers by all that decides them, so that each question is asked once; for one thread at a time."""

    __slots__ = ("_known", "_most", "hits")

    def __init__(self, most: int) -> None:
        """Begin without answers; beyond ``most``, those are forgotten that were not used for the longest time."""
        self._known: OrderedDict[_Key, _Answer] = OrderedDict()
        self._most = most
        self.hits = 0
        """How often an answer was known."""

    def of(self, key: _Key, ask: Callable[[], _Answer]) -> _Answer:
        """Return the answer to a question; None is not remembered.

        >>> memo = Memo(100)
        >>> memo.of("key", lambda: "answer"), memo.of("key", lambda: "not asked"), memo.hits
        ('answer', 'answer', 1)
        """
        found = self._known.get(key)
        if found is not None:
            self.hits += 1
            self._known.move_to_end(key)
            return found
        found = ask()
        if found is not None:
            self.put(key, found)
        return found

    def __contains__(self, key: _Key) -> bool:
        return key in self._known

    def put(self, key: _Key, answer: _Answer) -> None:
        """Take an answer that is known from another question."""
        self._known[key] = answer
        if len(self._known) > self._most:
            self._known.popitem(last=False)


def shape_of(pod: Pod) -> PodShape:
    """Return what of a pod decides.

    >>> one, other = Pod("1", "web-1"), Pod("2", "web-2")
    >>> shape_of(one).key == shape_of(other).key
    True
    """
    asked = replace(without_status(pod), uid=ASKED, name="asked", namespace="")
    return PodShape(shape_key(pod), asked, pod_requests(pod))


def shape_key(pod: Pod) -> bytes:
    """Return a digest of all that decides about a pod; equal for replicas."""
    containers = [(one.name, one.kind.value, _amounts(one.requests), _amounts(one.limits)) for one in pod.containers]
    level = None if pod.resources is None else (_amounts(pod.resources.requests), _amounts(pod.resources.limits))
    alignment = pod.annotations.get(device_alignment.ANNOTATION, "")
    return _digest(containers, pod.qos.value, level, _amounts(pod.overhead), pod.scale_down_grace, alignment)


def is_plain(pod: Pod) -> bool:
    """Tell whether no manager ever gives the pod anything: not Guaranteed, and nothing that a device plugin may offer.

    Source: the first checks of the managers (spec: cpu-manager.md section 3, memory-manager.md section 5).
    """
    if pod.qos is QoS.GUARANTEED:
        return False
    return not any(
        name not in _NATIVE and not name.startswith("hugepages-")
        for container in pod.containers
        for name in (*container.requests, *container.limits)
    )


def view_key(digest: str, node: Node) -> bytes:
    """Return a digest of all that the managers of a node look at for a new pod.

    Args:
        digest: of the node's facts.
        node: settled: without anything that no active pod holds.
    """
    memory = [
        (id_, one.assignments, one.cells, [(kind, _SIZES(table)) for kind, table in sorted(one.memory.items())])
        for id_, one in sorted(node.memory.nodes.items())
    ]
    # The devices in the order of their ids, which is that in which they are taken, without the ids
    state = node.providers.devices
    found: list[object] = []
    for resource in sorted(state.devices):
        free = state.available(resource)
        devices = sorted(state.devices[resource], key=lambda device: device.id)
        found.append((resource, [(device.numa, device.healthy, device.id in free) for device in devices]))
    return _digest(digest, node.cpu.default, memory, found)


def load_of(kubelet: Kubelet) -> Load:
    """Return what the node resources check looks at on a node."""
    checked = kubelet.settings.reservation.capacity
    used = tuple(sorted((name, amount) for name, amount in kubelet.used.items() if name in checked and amount))
    return Load(used, len(kubelet.node.active))


def _amounts(resources: ResourceList) -> list[tuple[str, int]]:
    return sorted((name, quantity.nano) for name, quantity in resources.items())


def _digest(*parts: object) -> bytes:
    return blake2b(repr(parts).encode(), digest_size=16).digest()
