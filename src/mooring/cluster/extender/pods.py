"""Pods of the API server, reduced to what the extender reads, and kept small; with what their nodes have allocated.

A cluster has a hundred thousand pods of a few hundred shapes: replicas share everything but their names.

All pods of the cluster: where they are bound as the API server shows it, and what was bound here since.

The API server's word on where a pod is bound is the truth, and it may come late: then this extender's own binds count.
Used within the lock of the view.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Final

import msgspec
from cachetools import LRUCache

from mooring.cluster.extender.known_node import BoundPod, KnownNode, Rank
from mooring.documents.plan import learn
from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Pod
from mooring.engine.extensions import device_alignment
from mooring.engine.kubelet.admit import shape_key
from mooring.inputs.decoding.fields import within
from mooring.inputs.pods.cluster_objects import FINISHED
from mooring.inputs.pods.pod_fields import SCALE_DOWN_ANNOTATION as SCALE_DOWN
from mooring.inputs.pods.pod_fields import SCALE_DOWN_FIELD, with_allocated
from mooring.inputs.pods.pods import MIRROR, identity_of, pod_from_object

SOURCE: Final = "API server"
_KEPT: Final = (MIRROR, SCALE_DOWN, device_alignment.ANNOTATION)
_MOST_SHAPES: Final = 20_000
_MOST_DELETED: Final = 10_000


class _PodMetadata(msgspec.Struct, omit_defaults=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    generateName: str = ""  # noqa: N815 - the field's name on the wire
    resourceVersion: str = ""  # noqa: N815 - as above
    deletionTimestamp: str | None = None  # noqa: N815 - as above
    annotations: dict[str, Any] | None = None


class _Resources(msgspec.Struct, omit_defaults=True):
    requests: dict[str, Any] | None = None
    limits: dict[str, Any] | None = None
    claims: list[Any] | None = None


class _Container(msgspec.Struct, omit_defaults=True):
    name: str = ""
    restartPolicy: str | None = None  # noqa: N815 - as above
    resources: _Resources | None = None


class _PodSpec(msgspec.Struct, omit_defaults=True, rename={"scale_down": SCALE_DOWN_FIELD}):
    nodeName: str = ""  # noqa: N815 - as above
    containers: list[_Container] = []
    initContainers: list[_Container] | None = None  # noqa: N815 - as above
    resources: _Resources | None = None
    overhead: dict[str, Any] | None = None
    priority: int | None = None
    resourceClaims: list[Any] | None = None  # noqa: N815 - as above
    scale_down: Any = None


class _ContainerStatus(msgspec.Struct, omit_defaults=True):
    name: str = ""
    allocatedResources: dict[str, Any] | None = None  # noqa: N815 - as above
    resources: _Resources | None = None


class _Status(msgspec.Struct, omit_defaults=True):
    phase: str = ""
    reason: str = ""
    nominatedNodeName: str = ""  # noqa: N815 - as above
    qosClass: str = ""  # noqa: N815 - as above
    containerStatuses: list[_ContainerStatus] | None = None  # noqa: N815 - as above
    initContainerStatuses: list[_ContainerStatus] | None = None  # noqa: N815 - as above
    allocatedResources: dict[str, Any] | None = None  # noqa: N815 - as above
    resources: _Resources | None = None
    resourceClaimStatuses: list[Any] | None = None  # noqa: N815 - as above
    extendedResourceClaimStatus: dict[str, Any] | None = None  # noqa: N815 - as above


class _SeenPodObject(msgspec.Struct, omit_defaults=True):
    """A v1 Pod, as far as it is read."""

    metadata: _PodMetadata = msgspec.field(default_factory=_PodMetadata)
    spec: _PodSpec = msgspec.field(default_factory=_PodSpec)
    status: _Status = msgspec.field(default_factory=_Status)


learn(_SeenPodObject)


@dataclass(frozen=True, slots=True)
class Seen:
    """A pod as the API server has it."""

    pod: Pod
    node: str = ""
    """Where it is bound; empty when it is not."""
    nominated: str = ""
    """The node on which others were preempted for it, while it is not bound."""
    leaving: bool = False
    """Whether it is being deleted."""
    finished: bool = False
    refusal: str = ""
    """Why a node refused it, where one did."""


class Shapes:
    """Lets pods of one shape share what they have in common: replicas are read once."""

    def __init__(self) -> None:
        """Begin without any."""
        self._known: dict[bytes, Pod] = {}
        self._read: dict[bytes, Pod] = {}
        """By all that is read of an object but its identity."""

    def shared(self, pod: Pod) -> Pod:
        """Return the pod with parts that are shared with other pods of its shape."""
        if len(self._known) >= _MOST_SHAPES:
            self._known.clear()
        kept = {name: value for name, value in pod.annotations.items() if name in _KEPT}
        if pod.claims:
            # Claims are a pod's own.
            return replace(pod, annotations=kept or _NONE)
        first = self._known.setdefault(shape_key(pod), pod)
        return replace(
            pod,
            containers=first.containers,
            resources=first.resources,
            overhead=first.overhead,
            annotations=kept or _NONE,
        )

    def pod_of(self, found: _SeenPodObject) -> Pod:
        """Return the pod as its node counts it: while a resize is on its way, with what is allocated.

        Raises:
            InputError: the object is no pod that an API server would store.
        """
        same = msgspec.json.encode((found.spec, found.status, found.metadata.annotations))
        key = blake2b(same, digest_size=16).digest()
        known = self._read.get(key)
        with within(source=SOURCE):
            if known is not None:
                name, namespace, uid, _ = identity_of(msgspec.to_builtins(found.metadata))
                return replace(known, name=name, namespace=namespace, uid=uid)
            content = {"spec": {}, **msgspec.to_builtins(found)}
            pod = self.shared(pod_from_object(with_allocated(content), source=SOURCE))
        if not pod.claims and not pod.unmade_claims:
            if len(self._read) >= _MOST_SHAPES:
                self._read.clear()
            self._read[key] = pod
        return pod


_NONE: Mapping[str, str] = {}


def seen_pod(data: bytes | msgspec.Raw, shapes: Shapes) -> Seen:
    """Return a pod from its JSON.

    Raises:
        InputError: it is none.
    """
    try:
        found = msgspec.json.decode(data, type=_SeenPodObject)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"the pod cannot be read: {error}", source=SOURCE) from None
    status, node, nominated = found.status, found.spec.nodeName, found.status.nominatedNodeName
    found.spec.nodeName = status.nominatedNodeName = ""  # where replicas differ
    return Seen(
        shapes.pod_of(found),
        node,
        "" if node else nominated,
        found.metadata.deletionTimestamp is not None,
        status.phase in FINISHED,
        status.reason if status.phase == "Failed" else "",
    )


class ClusterPods:
    """Takes what is reported about pods and brings it to their nodes."""

    def __init__(self, node: Callable[[str], KnownNode], clock: Callable[[], float]) -> None:
        """Begin without any.

        Args:
            node: returns the node of a name, made if nothing is known about it.
            clock: seconds that only go forward.
        """
        self._node = node
        self._clock = clock
        self._waiting: dict[str, Pod] = {}
        self.nominated: dict[str, str] = {}
        """Uid -> node, of waiting pods for which others were preempted there."""
        self._count = 0
        self._lists = 0
        """How many lists are being read beside the watch."""
        self._ended: set[str] = set()
        """Uids of pods that were reported as ended or deleted since the first of these lists began."""
        self._deleted: LRUCache[str, None] = LRUCache(_MOST_DELETED)
        """Uids of pods that the watch has shown as deleted: nothing more will be heard of them."""
        self.bound: dict[str, BoundPod] = {}
        """By uid."""
        self.refused: Callable[[str], object] = lambda _reason: None
        """Told the reason when a node refused a pod that this extender had bound to it."""

    # What the API server shows.

    def put(self, seen: Seen) -> None:
        """Take a pod; pods are shown in the order of their binding."""
        rank = 0, self._next()
        if seen.node:
            self._put_bound(seen, rank)
            return
        uid = seen.pod.uid
        if uid in self.bound:
            return  # an answer that is older than the bind
        if seen.finished:
            self._waiting.pop(uid, None)
        else:
            self._waiting[uid] = seen.pod
        self._nominate(uid, seen.nominated)

    def replace(self, listed: Iterable[Seen]) -> None:
        """Take all pods that there are; the order of new ones is known by the second only."""
        found = list(listed)
        there = {seen.pod.uid for seen in found}
        for uid in [uid for uid in (*self.bound, *self._waiting) if uid not in there]:
            self.drop(uid)
        self._put_listed(found)

    def begin_list(self) -> None:
        """Begin to note what is reported while a list of some pods is read."""
        self._lists += 1

    def end_list(self, listed: Iterable[Seen]) -> None:
        """Take the pods of such a list of whose binding nothing was reported; nothing when it could not be read."""
        # A pod that is confirmed or has ended is newer here: the list would revive it, and no event would correct that.
        missed = [seen for seen in listed if not (seen.pod.uid in self._ended or self._is_confirmed(seen.pod.uid))]
        self._put_listed(missed)
        self._lists -= 1
        if not self._lists:
            self._ended.clear()

    def _put_listed(self, listed: Iterable[Seen]) -> None:
        ours = {uid: entry.rank for uid, entry in self.bound.items() if entry.ours and not entry.confirmed}
        for seen in sorted(listed, key=lambda one: ours.get(one.pod.uid, (0, 0))):
            is_new = seen.pod.uid not in self.bound
            self.put(seen)
            if is_new and seen.pod.uid in self.bound:
                self.bound[seen.pod.uid].listed = True

    def deleted(self, uid: str) -> None:
        """Take the watch's word that a pod is deleted."""
        self._deleted[uid] = None
        self.drop(uid)

    def drop(self, uid: str) -> None:
        """Take it that a pod has ended, or that a list does not show it."""
        self._waiting.pop(uid, None)
        self._nominate(uid, "")
        if self._lists:
            self._ended.add(uid)
        entry = self.bound.get(uid)
        if entry is None:
            return
        if entry.ours and not entry.confirmed:
            # A list that was made before the bind does not show it, and a delete cannot tell whether it was bound.
            entry.certain = False
        entry.leaving = True
        entry.gone = entry.gone if entry.gone is not None else self._clock()
        self._node(entry.node).changed()

    # What this extender does.

    def assume(self, pod: Pod, name: str) -> None:
        """Count a pod as bound after all others, unless the API server has shown where it is bound, or that it is gone.

        Whether the API server takes it is still open.
        """
        if pod.uid not in self._deleted and not self._is_confirmed(pod.uid):
            self._place(BoundPod(pod, name, (1, self._next()), self._clock(), ours=True, certain=False))

    def is_bound(self, uid: str) -> None:
        """Take the API server's word that a pod is bound."""
        entry = self.bound.get(uid)
        if entry is not None and entry.ours and entry.gone is None:
            entry.certain = True
            self._waiting.pop(uid, None)
            if not entry.has_no_place:
                self._node(entry.node).changed()

    def is_not_bound(self, uid: str) -> None:
        """Take the API server's word that a pod is not bound to where it was to be."""
        entry = self.bound.get(uid)
        if entry is not None and entry.ours and not entry.confirmed:
            self.forget(uid)

    def forget(self, uid: str) -> None:
        """Forget a pod that is bound or may be."""
        self._node(self.bound.pop(uid).node).remove(uid)

    # What can be said.

    def waiting(self, uid: str) -> Pod | None:
        """Return a pod that is known to wait; None for one that is bound or may be."""
        return self._waiting.get(uid) if uid not in self.bound else None

    def possibly_before(self, name: str, asked: Pod) -> list[Pod]:
        """Return waiting pods that may be bound to a node before the one that is asked about.

        Others were preempted there for them, and their priority is not lower.
        """
        uids = [uid for uid, node in self.nominated.items() if node == name and uid != asked.uid]
        pods = [self._waiting[uid] for uid in sorted(uids) if uid in self._waiting]
        return [pod for pod in pods if pod.priority >= asked.priority]

    def __len__(self) -> int:
        return len(self.bound) + len(self._waiting)

    def _put_bound(self, seen: Seen, rank: Rank) -> None:
        uid, entry = seen.pod.uid, self.bound.get(seen.pod.uid)
        self._waiting.pop(uid, None)
        self._nominate(uid, "")
        if seen.finished:
            if entry is None:
                self.drop(uid)
            elif entry.gone is None:
                if entry.ours and seen.refusal:
                    self.refused(seen.refusal)
                entry.confirmed = entry.certain = True
                self.drop(uid)
            return
        if entry is not None and entry.node != seen.node:
            self.forget(uid)
            entry = None
        if entry is None:
            self._place(BoundPod(seen.pod, seen.node, rank, self._clock(), leaving=seen.leaving, confirmed=True))
            return
        is_another = entry.gone is not None or (entry.pod, entry.leaving) != (seen.pod, seen.leaving)
        if not entry.confirmed or entry.gone is not None:
            others = self._node(entry.node).pods.values()
            comes_before = any(rank < one.rank < entry.rank and not one.named for one in others)
            is_another |= not entry.has_no_place and (entry.named or not entry.certain or comes_before)
            entry.rank, entry.confirmed, entry.certain, entry.gone = rank, True, True, None
        if is_another:
            entry.pod, entry.leaving = seen.pod, seen.leaving
            self._node(entry.node).changed()

    def _place(self, entry: BoundPod) -> None:
        if entry.pod.uid in self.bound:
            self.forget(entry.pod.uid)
        self.bound[entry.pod.uid] = entry
        self._node(entry.node).add(entry)

    def _is_confirmed(self, uid: str) -> bool:
        return uid in self.bound and self.bound[uid].confirmed

    def _nominate(self, uid: str, node: str) -> None:
        if node:
            self.nominated[uid] = node
        else:
            self.nominated.pop(uid, None)

    def _next(self) -> int:
        self._count += 1
        return self._count
