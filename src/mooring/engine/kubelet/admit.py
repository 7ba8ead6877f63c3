"""The one way to ask a kubelet about a pod: its managers, the node resources check, and the start of containers.

Callers differ in two things only, and say so with an argument (:class:`AdmitMode`): whether what a refused pod had been
given stays, and whether the node resources check is made. A kubelet that would crash and an admission that would never
end are values.

Source: kubelet v1.37.1, pkg/kubelet/allocation/allocation_manager.go (canAdmitPod: the managers' handlers, then the
predicate handler); spec: metrics.md section 3.

What decides about a new pod: the shape of the pod, what the managers of a node look at, and the node's sums. Pods of
one shape get the same answer from nodes of one :func:`view_key` and one :class:`Load`, so that a caller with many nodes
asks the engine once for all of them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from enum import Enum
from hashlib import blake2b
from operator import attrgetter
from typing import Generic, TypeVar

from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import Observer, Placement, Rejection
from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.core.pod import Pod, QoS, ResourceList, without_status
from mooring.engine.extensions import device_alignment
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.node import Decision, Node
from mooring.engine.node.facts import PodNotSupported
from mooring.engine.node.resources import NO_DEVICES, check_amounts, pod_requests
from mooring.engine.node.settings import Settings
from mooring.lazy import dataclass, field, replace

POD_LEVEL_NOT_SUPPORTED = "PodLevelResourcesNotSupported"
"""The kubelet's reason for a pod with resources of its own while the gate PodLevelResources is off."""


class AdmitMode(Enum):
    """How a kubelet is asked about a pod."""

    ADMISSION = "admission"
    """As the kubelet asks itself. What a refused pod had been given stays until the managers are asked again."""
    TRIAL = "trial"
    """The same, but a refused pod leaves no trace: whether another pod fits can be asked again and again."""
    MANAGERS = "managers"
    """The managers alone, as the recordings and the node agent ask; what a refused pod had been given stays."""


@dataclass(frozen=True, slots=True)
class AdmitResult:
    """The answer about one pod."""

    pod: Pod
    decision: Decision
    decided: Kubelet
    """The kubelet when the managers had decided: before the node resources check, and before containers started."""
    out_of: Rejection | None = None
    """Set when the managers admitted the pod and the node resources check refused it."""
    crash: str = ""
    """Why the kubelet would crash; empty when it does not."""

    @property
    def admitted(self) -> bool:
        """Tell whether the pod was admitted."""
        return self.decision.admitted

    @property
    def never_returns(self) -> bool:
        """Tell whether the kubelet crashes or never returns, so that no other pod can be asked about."""
        return bool(self.crash) or self.decision.endless is not None


def admit(
    kubelet: Kubelet,
    pod: Pod,
    mode: AdmitMode = AdmitMode.ADMISSION,
    *,
    running: bool = False,
    observer: Observer | None = None,
) -> tuple[Kubelet, AdmitResult]:
    """Ask a kubelet about a pod; the containers of an admitted one start.

    Args:
        kubelet: before.
        pod: may be active already, where it was adopted from the state files.
        mode: what of a refused pod stays, and what is checked.
        running: whether the pod ran when the kubelet started, so that it is admitted again and its containers run.
        observer: receives what the engine found.
    """
    unsupported = None if mode is AdmitMode.MANAGERS else why_unsupported(pod, kubelet.settings)
    if unsupported is not None:
        refused_at_once = replace(_nothing_decided(kubelet, pod), rejection=unsupported)
        if observer is not None:
            observer(PodNotSupported(pod.uid, unsupported.reason, unsupported.message))
        is_kept = mode is AdmitMode.TRIAL or pod.uid not in kubelet.node.active
        after = kubelet if is_kept else replace(kubelet, node=kubelet.node.withdraw(pod.uid))
        return after, AdmitResult(pod, refused_at_once, after)
    result = decide(kubelet, pod, running=running, observer=observer)
    after = result.decided
    if result.never_returns:
        return after, result
    if not result.admitted:
        known = kubelet.requests
        if mode is AdmitMode.TRIAL or known is None or known.active is not kubelet.node.active:
            return (kubelet if mode is AdmitMode.TRIAL else after), result
        # The sums stay; a pod that had been adopted from the state files is active no more.
        gone = kubelet.node.active.get(pod.uid) if pod.uid not in after.node.active else None
        return after.counting(without(known.amounts, gone)), result
    if mode is AdmitMode.MANAGERS:
        return (after if running else after.start_containers(pod.uid, observer)), result
    used, wanted = without(kubelet.used, kubelet.node.active.get(pod.uid)), pod_requests(pod)
    devices = after.node.providers.devices.capacity(wanted)
    refused = out_of(wanted, used, len(after.node.active) - 1, after.settings, devices)
    if refused is not None:
        result = AdmitResult(pod, replace(result.decision, admitted=False, rejection=refused), after, refused)
        if mode is AdmitMode.TRIAL:
            return kubelet, result
        return replace(after, node=after.node.withdraw(pod.uid, refused, observer)).counting(used), result
    if not running:
        after = after.start_containers(pod.uid, observer)
    return after.counting(added(used, wanted)), result


def decide(kubelet: Kubelet, pod: Pod, *, running: bool = False, observer: Observer | None = None) -> AdmitResult:
    """Ask the managers of a kubelet about a pod, without starting its containers.

    Args:
        kubelet: before.
        pod: the pod.
        running: whether the pod ran when the kubelet started.
        observer: receives what the engine found.
    """
    try:
        if running:
            after, readmission = kubelet.readmit([pod], observer)
            return AdmitResult(pod, readmission.decisions[0], after)
        after, decision = kubelet.decide(pod, observer)
    except KubeletCrashError as error:
        return AdmitResult(pod, _nothing_decided(kubelet, pod), kubelet, crash=str(error))
    return AdmitResult(pod, decision, after)


def readmit(
    kubelet: Kubelet, pods: Iterable[Pod], mode: AdmitMode = AdmitMode.ADMISSION, observer: Observer | None = None
) -> tuple[Kubelet, tuple[AdmitResult, ...]]:
    """Ask a kubelet that has just started about the pods that run already, one after another.

    Pods after one from which the kubelet does not return are not asked about.
    """
    results: list[AdmitResult] = []
    for pod in pods:
        kubelet, result = admit(kubelet, pod, mode, running=True, observer=observer)
        results.append(result)
        if result.never_returns:
            break
    return kubelet, tuple(results)


def why_unsupported(pod: Pod, settings: Settings) -> Rejection | None:
    """Return why the kubelet rejects a pod without a question to its managers; None when it does not.

    Up to v1.33 it asks them about every pod (rule pod-level-pods-admitted-without-gate; spec: releases.md section 10).
    """
    is_supported = settings.gates["PodLevelResources"] or settings.release.rules.pod_level_pods_admitted_without_gate
    if is_supported or not pod.is_pod_level:
        return None
    return Rejection(POD_LEVEL_NOT_SUPPORTED, "PodLevelResources feature gate is disabled")


def out_of(
    wanted: Mapping[str, int],
    used: Mapping[str, int],
    running: int,
    settings: Settings,
    devices: Mapping[str, int] = NO_DEVICES,
) -> Rejection | None:
    """Make the node resources check; None when the pod fits.

    Args:
        wanted: what the pod requests.
        used: what the pods that are admitted already request together.
        running: how many pods these are.
        settings: of the node.
        devices: how many devices it has of the resources that the pod requests.
    """
    return check_amounts(wanted, used, running, settings.reservation, settings.max_pods, devices)


def added(used: Mapping[str, int], wanted: Mapping[str, int]) -> dict[str, int]:
    """Return what is used with one more pod.

    >>> added({"cpu": 2000, "memory": 7}, {"cpu": 500})
    {'cpu': 2500, 'memory': 7}
    """
    return {name: used.get(name, 0) + wanted.get(name, 0) for name in {**used, **wanted}}


def without(used: Mapping[str, int], pod: Pod | None) -> Mapping[str, int]:
    """Return what is used without one of the pods."""
    if pod is None:
        return used
    wanted = pod_requests(pod)
    return {name: amount - wanted.get(name, 0) for name, amount in used.items()}


def _nothing_decided(kubelet: Kubelet, pod: Pod) -> Decision:
    return Decision(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        admitted=False,
        rejection=None,
        endless=None,
        containers={},
        pod=Placement(),
        affinity={},
        shared_pool=CPUSet(kubelet.node.cpu.default),
    )


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
