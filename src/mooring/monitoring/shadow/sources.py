"""What a shadow observes: the pods that are bound to a node, and kubelets as they publish themselves.

Pods are as the API server has them, deleted ones until they are forgotten; a kubelet without an API server lists them
itself: static pods with their outcomes.

Nodes publish within about a second of a change, so that more can happen between two observations than beside a kubelet.
A start of a kubelet is detected by the facts that it changed; one that changed none decides as before.

Source: kubelet v1.37.1, pkg/kubelet/kubelet_pods.go (GetPods: the status of a static pod is the kubelet's own), served
as ``/pods`` on ``port`` and ``readOnlyPort``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import msgspec

from mooring.engine.core.errors import InputError, MooringError
from mooring.engine.core.machine import Finding
from mooring.inputs.decoding.fields import Report, ignore, mapping_at, text_at
from mooring.inputs.pods.defaults import PodGates
from mooring.monitoring.shadow.unseen import ObservedPod, observed_pod
from mooring.published.facts_document import facts_of
from mooring.published.naming import Names, names_of
from mooring.published.objects import FACTS, PATHS, STATE, NodeFacts, NodeState, object_name, state_of
from mooring.published.observation import Observation
from mooring.published.restored import kind_of, restored
from mooring.service.apiserver import Cluster, ClusterError
from mooring.service.following import CACHED, PODS, Follower, ObjectListener, Pages, mapping_of, pods_of


class BoundPods:
    """Told in a thread what there is; read by another."""

    def __init__(self, gates: Callable[[], PodGates], report: Report = ignore, teller: str = "API server") -> None:
        """Know nothing yet.

        Args:
            gates: of the node.
            report: receives outages, and pods that cannot be read.
            teller: of the pods, for what is reported.
        """
        self._gates, self._report, self._teller = gates, report, teller
        self._lock = threading.Lock()
        self._pods: dict[str, ObservedPod] = {}
        self._items: dict[str, dict[str, Any]] = {}
        self._is_down = False
        self.changes = 0
        """Grows with every change."""

    def snapshot(self) -> Mapping[str, ObservedPod]:
        """Return the pods by the uid that their kubelet knows them by, in the order of their arrival."""
        with self._lock:
            return dict(self._pods)

    def names(self, _pods: object = None) -> Names:
        """Return the uids by namespace and name."""
        with self._lock:
            return names_of(self._items.values())

    def forget(self, uids: Collection[str]) -> None:
        """Forget pods that are deleted and that the kubelet does not list any more."""
        with self._lock:
            for uid in [one for one in uids if one in self._pods and one not in self._items]:
                del self._pods[uid]

    def listed(self, pages: Iterator[list[msgspec.Raw]]) -> None:
        """Take all pods; those that are not among them were deleted meanwhile."""
        found = [_content_of(item) for page in pages for item in page]
        kept = {seen.pod.uid: (seen, item) for item in found if (seen := self._seen(item)) is not None}
        with self._lock:
            for uid in self._items.keys() - kept.keys():
                self._mark_deleted(uid)
            for uid, (seen, item) in kept.items():
                self._pods[uid], self._items[uid] = seen, item
            self._changed()

    def changed(self, item: msgspec.Raw) -> None:
        """Take a pod that is new or changed."""
        content = _content_of(item)
        seen = self._seen(content)
        if seen is not None:
            with self._lock:
                self._pods[seen.pod.uid], self._items[seen.pod.uid] = seen, content
                self._changed()

    def deleted(self, item: msgspec.Raw) -> None:
        """Keep a deleted pod, as it was last, as one that is leaving."""
        content = _content_of(item)
        seen = self._seen(content)
        if seen is not None:
            with self._lock:
                self._pods[seen.pod.uid] = seen
                self._mark_deleted(seen.pod.uid)
                self._changed()

    def failed(self, error: ClusterError, times: int) -> None:
        """Report an outage once; what is known stays."""
        del times
        if not self._is_down:
            self._is_down = True
            self._report(Finding("warning", self._teller, str(error)))

    def _changed(self) -> None:
        self.changes += 1
        if self._is_down:
            self._is_down = False
            self._report(Finding("info", self._teller, "answers again"))

    def _mark_deleted(self, uid: str) -> None:
        seen = self._pods[uid]
        self._pods[uid] = replace(seen, leaving=True, deleted=True)
        self._items.pop(uid, None)

    def _seen(self, content: Mapping[str, Any]) -> ObservedPod | None:
        try:
            return observed_pod(content, self._gates())
        except InputError as error:
            self._report(Finding("warning", self._teller, str(error)))
            return None


def _content_of(item: msgspec.Raw) -> dict[str, Any]:
    """Return a pod without managedFields, which take half of its size and decide nothing."""
    content = mapping_of(item)
    if isinstance(metadata := content.get("metadata"), dict):
        metadata.pop("managedFields", None)
    return content


def follower_of(pods: BoundPods, connect: Callable[[], Cluster], node: str) -> Follower:
    """Return what keeps the pods of a node up to date once it is started."""
    return Follower(connect, PODS, pods, query=pods_of(node), first=CACHED, name=node)


PATH: Final = "pods"
ASKING: Final = 0.5
"""Seconds between two questions."""
STARTING: Final = 5.0
"""Seconds in which a kubelet that has just begun to answer may not have read all of its manifests yet."""


class KubeletPods:
    """Asks a kubelet for its pods in a thread."""

    def __init__(
        self, connect: Callable[[], Cluster], pods: BoundPods, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Do nothing yet; :meth:`start` does. ``connect`` opens the way to the kubelet."""
        self._connect, self._pods, self._clock = connect, pods, clock
        self.has_listed = threading.Event()
        """Set when the pods have been listed once."""
        self._known: Mapping[str, bytes] = {}
        """By uid, as listed last."""
        self._answering: float | None = None
        """Since when the kubelet answers; None while it does not."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="follow-kubelet-pods", daemon=True)

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def stop(self, patience: float = 5.0) -> None:
        """End the thread, and wait for it for a while."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(patience)

    def ask(self, cluster: Cluster) -> None:
        """Ask once, and pass on what has changed.

        Raises:
            ClusterError: the kubelet does not answer, or not with objects.
            InputError: an object is no pod.
        """
        found = {
            text_at(mapping_at(mapping_of(item), "metadata"), "uid"): bytes(item)
            for page in Pages(cluster.http, PATH)
            for item in page
        }
        now, has_begun = self._clock(), self._answering is None
        if self._answering is None:
            self._answering = now
        if now - self._answering < STARTING:
            found = {**self._known, **found}
        if has_begun or found != self._known:
            self._known = found
            self._pods.listed(iter([[msgspec.Raw(one) for one in found.values()]]))
        self.has_listed.set()

    def failed(self, error: MooringError) -> None:
        """Keep what is known while the kubelet does not answer."""
        self._answering = None
        self._pods.failed(ClusterError(str(error)), 1)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                with self._connect() as cluster:
                    while not self._stopping.is_set():
                        self.ask(cluster)
                        self._stopping.wait(ASKING)
            except MooringError as error:
                self.failed(error)
            self._stopping.wait(ASKING)


QUIET: Final = 3.0
"""Seconds without a change after which a change is judged: pods change before nodes publish."""


class UnpublishedError(MooringError):
    """A node publishes nothing, or nothing that can be read."""


class PublishedNodes:
    """Facts and states by name; written by threads, read by another."""

    def __init__(self) -> None:
        """Hold nothing yet."""
        self._lock = threading.Lock()
        self._facts: dict[str, NodeFacts | str] = {}
        self._states: dict[str, NodeState | str] = {}

    def known(self, node: str) -> tuple[NodeState, NodeFacts]:
        """Return what a node publishes.

        Raises:
            UnpublishedError: it publishes nothing, or nothing that can be read.
        """
        with self._lock:
            state = self._states.get(node, f"node {node} publishes nothing")
            if isinstance(state, str):
                raise UnpublishedError(state)
            facts = self._facts.get(state.facts, f"the facts of node {node} are not known")
        if isinstance(facts, str):
            raise UnpublishedError(facts)
        return state, facts

    def take_facts(self, content: dict[str, Any]) -> str:
        """Take facts; they never change, and a state may name them after their object is gone."""
        return self._take(self._facts, facts_of, content)

    def take_state(self, content: dict[str, Any]) -> str:
        """Take what a node publishes."""
        return self._take(self._states, state_of, content)

    def _take(self, known: dict[str, Any], read: Callable[[object], Any], content: dict[str, Any]) -> str:
        name = object_name(content)
        try:
            found = read(content)
        except InputError as error:
            found = str(error)
        with self._lock:
            known[name] = found
        return name

    def drop_state(self, content: dict[str, Any]) -> None:
        """Forget what a node published."""
        with self._lock:
            self._states.pop(object_name(content), None)


class PublishedKubelet:
    """What one node publishes, as a source of a shadow; used by one thread."""

    def __init__(self, node: str, nodes: PublishedNodes) -> None:
        """Observe nothing yet."""
        self._node, self._nodes = node, nodes
        self._seen: Observation | None = None
        self.starts = 1
        """How often the kubelet has started with other facts while it was observed, counted from 1."""

    def gates(self) -> PodGates:
        """Return the gates of the node, as it publishes itself.

        Raises:
            UnpublishedError: it does not.
        """
        _, facts = self._nodes.known(self._node)
        return PodGates.of_node(facts.config, facts.mooring)

    def observe(self) -> Observation:
        """Return what the node publishes now, the same object while nothing changes.

        Raises:
            UnpublishedError: nothing that can be read.
        """
        found, facts = self._nodes.known(self._node)
        # It counts how often it was written.
        state = replace(found, sequence=0)
        if self._seen is not None and state == self._seen.state:
            return self._seen
        if self._seen is not None and state.facts != self._seen.state.facts:
            self.starts += 1
        kind = kind_of(state.facts, facts)
        kubelet = kind if isinstance(kind, str) else restored(kind, state, {})
        if isinstance(kubelet, str):
            self._seen = Observation(facts, state, None, kubelet)
        else:
            self._seen = Observation(facts, state, kubelet.node)
        return self._seen


def followers_of(
    nodes: PublishedNodes, names: Iterable[str], connect: Callable[[], Cluster], report: Report = ignore
) -> list[Follower]:
    """Return what keeps the objects of nodes up to date once they are started."""

    def failed(error: ClusterError) -> None:
        report(Finding("warning", "API server", str(error)))

    states = ObjectListener(nodes.take_state, nodes.drop_state, failed)
    queries = [{"fieldSelector": f"metadata.name={name}"} for name in names]
    return [
        Follower(connect, PATHS[FACTS], ObjectListener(nodes.take_facts, lambda _: None, failed), name="record"),
        *(Follower(connect, PATHS[STATE], states, query=query, name="record") for query in queries),
    ]
