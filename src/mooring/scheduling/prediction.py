"""Would a node admit this pod? The engine's answer, also for a node that may have changed since it published its state.

What decides about a new pod is reduced to two keys. :func:`view_key` stands for all that the managers look at, without
any name or uid of a pod; :class:`Load` for the sums of the node resources check. Nodes of one key share a run.

Pods were bound to a node that its state does not name, and pods of the state are leaving. It is not known here how far
the node has come: whether a pod that leaves is gone yet, or was gone before another one was admitted. Where a pod lies
depends on that. So every sequence of events that the node can have had is followed, and a pod is promised a place only
where each of them admits it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b

from mooring.core.pod import Pod, ResourceList
from mooring.devicemanager.state import DeviceState
from mooring.explain.chapters import Circumstances
from mooring.explain.why import why, why_crash, why_out_of
from mooring.kubelet.admit import AdmitMode, added, admit, decide, out_of
from mooring.kubelet.kubelet import Kubelet
from mooring.memorymanager.state import MemoryTable
from mooring.node import Decision, Node
from mooring.node.resources import pod_requests
from mooring.node.settings import Settings
from mooring.publisher.restored import holds

ASKED = "mooring.asked"
"""Uid of the pod about which nodes are asked: one answer serves all pods of its shape."""
MOST_COURSES = 48
"""Courses that are followed at once; with more of them nothing is promised."""


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


@dataclass(frozen=True, slots=True)
class Pending:
    """A pod that is bound to the node, and that no state of it has named."""

    pod: Pod
    leaving: bool = False
    """Whether it is deleted or has finished: then it is there still, or gone again, or was never admitted."""


@dataclass(frozen=True, slots=True)
class _Course:
    """One way that things can have gone."""

    kubelet: Kubelet
    """With the sums of all that may be there still."""
    leaving: frozenset[str]
    """Of the pods that are on the node, those that can go at any moment."""


def courses(
    digest: str, base: Kubelet, leaving: Collection[str], pending: Sequence[Pending], most: int = MOST_COURSES
) -> tuple[Kubelet, ...] | None:
    """Return every node that the state can have become, without those that are equal; None when there are too many.

    The first one is that in which no pod has left. All count everything in their sums that may still be there.

    Args:
        digest: of the node's facts.
        base: the node on its state.
        leaving: uids of pods of the state that are gone or on their way.
        pending: pods bound since, in the order in which the node gets to see them.
        most: courses followed at once.
    """
    tied = frozenset(uid for uid in leaving if uid in base.node.active and holds(base.node, uid) is not None)
    found = _with_departures(digest, [_Course(base, tied)], most)
    if len(found) > most:
        return None
    for entry in pending:
        after = _distinct(digest, [step for course in found for step in _admitted(course, entry)])
        found = _with_departures(digest, after, most)
        if len(found) > most:
            return None
    return tuple(course.kubelet for course in found)


def _admitted(course: _Course, entry: Pending) -> list[_Course]:
    """Return what the node can be when it has come to a pod that was bound to it."""
    kubelet, pod = course.kubelet, entry.pod
    if pod.uid in kubelet.node.active:
        return [course]
    after, result = admit(kubelet, pod, AdmitMode.MANAGERS)
    if result.crash:
        return [course]
    if not result.admitted:
        return [_Course(kubelet.settled(), course.leaving)]
    wanted, used = pod_requests(pod), kubelet.used
    refused = out_of(wanted, used, len(kubelet.node.active), kubelet.settings)
    after = after.counting(added(used, wanted))
    if holds(after.node, pod.uid) is None:
        # It changes sums only, and these count it as long as it may be there.
        return [_Course(after, course.leaving)]
    there = _Course(after, course.leaving | {pod.uid} if entry.leaving else course.leaving)
    # The sums count those too that may have left, so that a refusal by them is not certain.
    return [there, course] if entry.leaving or refused is not None else [there]


def _with_departures(digest: str, begun: list[_Course], most: int) -> list[_Course]:
    """Return the courses, and those in which any of the leaving pods are gone."""
    found = list(begun)
    known = {_identity(digest, course) for course in found}
    position = 0
    while position < len(found) and len(found) <= most:
        course = found[position]
        position += 1
        for uid in sorted(course.leaving):
            less = _Course(_departed(course.kubelet, uid), course.leaving - {uid})
            identity = _identity(digest, less)
            if identity not in known:
                known.add(identity)
                found.append(less)
    return found


def _departed(kubelet: Kubelet, uid: str) -> Kubelet:
    """Return the kubelet without a pod, whose requests are still counted: a pod more in the sums is never wrong."""
    return kubelet.without([uid]).counting(kubelet.used)


def _distinct(digest: str, found: list[_Course]) -> list[_Course]:
    kept: dict[object, _Course] = {}
    for course in found:
        kept.setdefault(_identity(digest, course), course)
    return list(kept.values())


def _identity(digest: str, course: _Course) -> object:
    node = course.kubelet.node
    return view_key(digest, node), tuple((uid, repr(holds(node, uid))) for uid in sorted(course.leaving))
