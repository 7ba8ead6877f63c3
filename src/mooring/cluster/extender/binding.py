"""Bind: check once more, with the node to itself, and tell the API server.

Where another replica may have bound pods before, the pods of a node are read from the API server before the first bind
to it: what this replica watches may be late.

The scheduler asks again for a pod whose bind got no answer. Such a pod may be bound: it is read from the API server
before it is bound again, and after a conflict.

Between filter and bind the scheduler may have bound other pods. What is bound here was admitted by the engine on
everything that is known at that moment, and counts from that moment on. The scheduler allocates claims just before:
where they count, the pod and its claims are read from the API server, because watches may not show that yet; those of
pods that another replica has bound are read with these pods.

Pods at the API server: read, and bound.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from mooring.cluster.extender.claims import ClaimView
from mooring.cluster.extender.pods import Seen, Shapes, seen_pod
from mooring.cluster.extender.possible_nodes import NodeVerdict
from mooring.cluster.extender.view import ClusterView
from mooring.cluster.extender.wire import BindAnswer, BindArguments
from mooring.documents.plan import learn
from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Pod
from mooring.engine.kubelet.admit import is_plain
from mooring.service.apiserver import Cluster, ClusterError, asked, cluster_errors
from mooring.service.following import PODS, mapping_of, pods_of
from mooring.service.lease import Election

_REUSED_FOR = 300.0
"""Seconds for which a connection is used: certificates of the kubeconfig are read when it is opened."""


class _PodList(msgspec.Struct):
    items: list[msgspec.Raw] = []


learn(_PodList)


class PodAPI(Protocol):
    """Where pods are read and bound."""

    def read_pod(self, namespace: str, name: str) -> bytes:
        """Return a pod as JSON.

        Raises:
            ClusterError: it cannot be had.
        """

    def read_claim(self, namespace: str, name: str) -> bytes:
        """Return a ResourceClaim as JSON.

        Raises:
            ClusterError: it cannot be had.
        """

    def pods_on(self, node: str) -> list[msgspec.Raw]:
        """Return the pods that are bound to a node at this moment, as JSON.

        Raises:
            ClusterError: they cannot be had.
        """

    def bind(self, asked: BindArguments) -> None:
        """Bind a pod.

        Raises:
            ClusterError: it is not bound; where ``code`` is 0 or of the server, it may be all the same.
        """

    def close(self) -> None:
        """Close what is open."""


@dataclass(frozen=True, slots=True)
class ClusterPodAPI:
    """The API server. Connections are kept for the next pod: opening one costs more than a bind."""

    connect: Callable[[], Cluster]
    clock: Callable[[], float] = time.monotonic
    _idle: deque[tuple[float, Cluster]] = field(default_factory=deque)
    """Connections that no thread uses, with the seconds at which they were opened."""

    def close(self) -> None:
        """Close the connections that no thread uses."""
        while self._idle:
            self._idle.pop()[1].close()

    def read_pod(self, namespace: str, name: str) -> bytes:
        """Return a pod as JSON."""
        return self._answer("GET", f"api/v1/namespaces/{namespace}/pods/{name}")

    def read_claim(self, namespace: str, name: str) -> bytes:
        """Return a ResourceClaim as JSON."""
        return self._answer("GET", f"apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}")

    def pods_on(self, node: str) -> list[msgspec.Raw]:
        """Return the pods of a node: without a version the API server answers with the newest state."""
        with cluster_errors():
            return msgspec.json.decode(self._answer("GET", PODS, params=pods_of(node)), type=_PodList).items

    def bind(self, asked: BindArguments) -> None:
        """Create the Binding; the uid keeps a pod of the same name that came since from being bound."""
        body: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": asked.PodName, "namespace": asked.PodNamespace, "uid": asked.PodUID},
            "target": {"apiVersion": "v1", "kind": "Node", "name": asked.Node},
        }
        path = f"api/v1/namespaces/{asked.PodNamespace}/pods/{asked.PodName}/binding"
        self._answer("POST", path, json=body)

    def _answer(self, method: str, path: str, **more: Any) -> bytes:
        """Ask on a connection that no other thread uses; one on which something went wrong is not used again."""
        opened, cluster = self._from_idle() or (self.clock(), self.connect())
        try:
            found = asked(cluster.http, method, path, **more).content
        except BaseException:
            cluster.close()
            raise
        self._idle.append((opened, cluster))
        return found

    def _from_idle(self) -> tuple[float, Cluster] | None:
        # Popping is one step for all threads, so that none gets what another one has.
        with suppress(IndexError):
            while True:
                opened, cluster = self._idle.pop()
                if self.clock() - opened < _REUSED_FOR:
                    return opened, cluster
                cluster.close()
        return None


_BINDING = 2.0
"""Seconds for which a Lease must be held still when a bind is sent; no other replica takes it over for two more."""
_WAIT = 5.0
"""Seconds for which a node is waited for to which another pod is just being bound."""

_NOT_FOUND, _CONFLICT = 404, 409

_ANOTHER = "mooring: another replica binds pods by now"


@contextmanager
def _held(lock: threading.Lock | None) -> Iterator[None]:
    """Hold a lock of a node, if there is one to be held.

    Raises:
        ClusterError: others hold it for too long.
    """
    if lock is not None and not lock.acquire(timeout=_WAIT):
        raise ClusterError("other pods are being bound to the node")
    try:
        yield
    finally:
        if lock is not None:
            lock.release()


@dataclass(frozen=True, slots=True)
class Binder:
    """Binds pods; used by several threads, one at a time for each node where the order matters."""

    view: ClusterView
    server: PodAPI
    shapes: Shapes
    verdict: Callable[[Pod, str], NodeVerdict]
    """The last word about a pod and a node."""
    election: Election | None = None
    """Decides which of several replicas binds pods; None where there is one."""
    claims: ClaimView | None = None
    """Of the cluster; None where claims do not count."""
    _read: set[str] = field(default_factory=set)
    """Nodes whose pods were read since this replica is the one, and the claims of these pods."""

    def close(self) -> None:
        """Close the connections on which nothing is under way."""
        self.server.close()

    def bind(self, asked: BindArguments, in_time: Callable[[], bool] = lambda: True) -> BindAnswer:
        """Bind a pod, or say why not: then the scheduler tries again.

        Args:
            asked: by the scheduler.
            in_time: tells whether the scheduler still waits for the answer.
        """
        # In which order pods come to a node matters only where managers give them something: others are bound at once.
        pod = self.view.waiting(asked.PodUID) if self.claims is None else None
        lock = self.view.lock_of(asked.Node) if pod is None or not is_plain(pod) else None
        try:
            with _held(lock):
                with _held(self.view.lock_of(asked.Node, checks=True)):
                    refusal = self._checked(asked, in_time)
                return BindAnswer(refusal) if refusal else self._sent(asked)
        except (ClusterError, InputError) as error:
            return BindAnswer(f"mooring: {error}")

    def _checked(self, asked: BindArguments, in_time: Callable[[], bool]) -> str:
        """Count a pod as bound, or return why it is not to be."""
        if not self._may_bind():
            return _ANOTHER
        if self.election is not None and asked.Node not in self._read:
            # What another replica has bound there; once, while the node is locked.
            self.view.read_pods(lambda: [seen_pod(item, self.shapes) for item in self.server.pods_on(asked.Node)])
        pod = self._pod_to_bind(asked)
        if isinstance(pod, str):
            return f"mooring: {pod}"
        if self.claims is not None:
            others = () if asked.Node in self._read else self.view.pods_on(asked.Node).values()
            for namespace, name in {(one.namespace, name): None for one in (*others, pod) for name in one.claims}:
                try:
                    claim = self.claims.put_claim(mapping_of(msgspec.Raw(self.server.read_claim(namespace, name))))
                    self.view.given(claim.pods)
                except ClusterError as error:
                    if error.code != _NOT_FOUND or (namespace == pod.namespace and name in pod.claims):
                        raise
        self._read.add(asked.Node)
        if reason := self.verdict(pod, asked.Node).reason:
            return reason
        if not self._may_bind():
            return _ANOTHER
        if not in_time():
            return "mooring: not decided within the time of the request"
        self.view.assume(pod, asked.Node)
        return ""

    def _sent(self, asked: BindArguments) -> BindAnswer:
        """Bind a pod that counts as bound already."""
        try:
            self.server.bind(asked)
        except ClusterError as error:
            if error.code == _CONFLICT:
                self._settle_conflict(asked)
            elif 400 <= error.code < 500 and error.code not in (408, 429):
                self.view.not_bound(asked.PodUID)
            # Otherwise the outcome is unknown: the pod counts until the API server shows where it is.
            return BindAnswer(f"mooring: {error}")
        self.view.bound(asked.PodUID, asked.Node)
        return BindAnswer()

    def _pod_to_bind(self, asked: BindArguments) -> Pod | str:
        """Return a pod that waits; a text says why it does not."""
        if self.claims is None and (pod := self.view.waiting(asked.PodUID)) is not None:
            return pod
        seen = self._read_pod(asked)
        if seen is None:
            return "the pod has been deleted"
        return f"the pod is already bound to node {seen.node}" if seen.node else seen.pod

    def _read_pod(self, asked: BindArguments) -> Seen | None:
        """Read a pod; None when it is deleted. A bound one counts where it is until the watch shows it there."""
        try:
            seen = seen_pod(self.server.read_pod(asked.PodNamespace, asked.PodName), self.shapes)
        except ClusterError as error:
            if error.code == _NOT_FOUND:
                return None
            raise
        if seen.pod.uid != asked.PodUID:
            return None
        if seen.node and seen.pod.uid not in self.view.pods_on(seen.node):
            self.view.assume(seen.pod, seen.node)
        return seen

    def _settle_conflict(self, asked: BindArguments) -> None:
        """Find out whether the pod is bound already; without an answer it counts until the watch shows where it is."""
        with suppress(ClusterError, InputError):
            seen = self._read_pod(asked)
            if seen is None or not seen.node:
                self.view.not_bound(asked.PodUID)

    def _may_bind(self) -> bool:
        return self.election is None or self.election.may_work_for(_BINDING)
