"""Bind: check once more, with the node to itself, and tell the API server.

Where another replica may have bound pods before, the pods of a node are read from the API server before the first bind
to it: what this replica watches may be late.

The scheduler asks again for a pod whose bind got no answer. Such a pod may be bound: it is read from the API server
before it is bound again, and after a conflict.

Between filter and bind the scheduler may have bound other pods. What is bound here was admitted by the engine on
everything that is known at that moment, and counts from that moment on. The scheduler allocates claims just before:
where they count, the pod and its claims are read from the API server, because watches may not show that yet.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec

from mooring.cluster.extender.claims import ClaimView
from mooring.cluster.extender.deciding import NodeVerdict
from mooring.cluster.extender.pod_api import PodAPI
from mooring.cluster.extender.pods import Seen, Shapes, seen_pod
from mooring.cluster.extender.view import ClusterView
from mooring.cluster.extender.wire import BindAnswer, BindArguments
from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Pod
from mooring.service.cluster.apiserver import ClusterError
from mooring.service.cluster.lease import Election
from mooring.service.cluster.watching import mapping_of

_BINDING = 2.0
"""Seconds for which a Lease must be held still when a bind is sent; nobody takes it over for two more."""
_WAIT = 5.0
"""Seconds for which a node is waited for to which another pod is just being bound."""

_NOT_FOUND, _CONFLICT = 404, 409

_ANOTHER = "mooring: another replica binds pods by now"


@dataclass(frozen=True, slots=True)
class Binder:
    """Binds pods; used by several threads, one at a time for each node."""

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
    """Nodes whose pods were read since this replica is the one."""

    def close(self) -> None:
        """Close the connections on which nothing is under way."""
        self.server.close()

    def bind(self, asked: BindArguments, in_time: Callable[[], bool] = lambda: True) -> BindAnswer:
        """Bind a pod, or say why not: then the scheduler tries again.

        Args:
            asked: by the scheduler.
            in_time: tells whether the scheduler still waits for the answer.
        """
        lock = self.view.lock_of(asked.Node)
        if not lock.acquire(timeout=_WAIT):
            return BindAnswer("mooring: other pods are being bound to the node")
        try:
            return self._bound(asked, in_time)
        except (ClusterError, InputError) as error:
            return BindAnswer(f"mooring: {error}")
        finally:
            lock.release()

    def _bound(self, asked: BindArguments, in_time: Callable[[], bool]) -> BindAnswer:
        if not self._may_bind():
            return BindAnswer(_ANOTHER)
        self._read_others(asked.Node)
        pod = self._pod_to_bind(asked)
        if isinstance(pod, str):
            return BindAnswer(f"mooring: {pod}")
        if self.claims is not None:
            for name in pod.claims:
                self.claims.put_claim(mapping_of(msgspec.Raw(self.server.read_claim(pod.namespace, name))))
        verdict = self.verdict(pod, asked.Node)
        if verdict.reason:
            return BindAnswer(verdict.reason)
        if not self._may_bind():
            return BindAnswer(_ANOTHER)
        if not in_time():
            return BindAnswer("mooring: not decided within the time of the request")
        self.view.assume(pod, asked.Node)
        try:
            self.server.bind(asked)
        except ClusterError as error:
            if error.code == _CONFLICT:
                self._settle_conflict(asked)
            elif 400 <= error.code < 500 and error.code not in (408, 429):
                self.view.not_bound(asked.PodUID)
            # Otherwise the outcome is unknown: the pod counts until the API server shows where it is.
            return BindAnswer(f"mooring: {error}")
        self.view.bound(asked.PodUID)
        return BindAnswer()

    def _pod_to_bind(self, asked: BindArguments) -> Pod | str:
        """Return a pod that waits; a text says why it does not."""
        pod = self.view.waiting(asked.PodUID) if self.claims is None else None
        if pod is not None:
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

    def _read_others(self, node: str) -> None:
        """Read what another replica has bound to a node, once; the node is locked."""
        if self.election is not None and node not in self._read:
            self.view.read_pods(lambda: [seen_pod(item, self.shapes) for item in self.server.pods_on(node)])
            self._read.add(node)
