"""All kubelets of a cluster in one process: they hear of their pods as kubelets do, and publish what they have."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from tests.e2e.kube.played import PlayedNode
from tests.e2e.kubelet.apiserver import APIServer

from mooring.engine.core.machine import Finding
from mooring.inputs.pods.pods import pod_from_object
from mooring.published.publisher import LOOKING, Publisher
from mooring.service.apiserver import (
    Cluster,
    ClusterError,
    check_response,
    cluster_errors,
    cluster_of,
    configuration_of,
)
from mooring.service.following import PODS, Follower

_MERGE = {"Content-Type": "application/merge-patch+json"}


@dataclass(frozen=True, slots=True)
class Refusal:
    """A pod that its node refused."""

    pod: str
    uid: str
    node: str
    reason: str
    message: str


@dataclass(slots=True)
class Nodes:
    """The kubelets; a listener to the pods of all nodes."""

    played: Mapping[str, PlayedNode]
    connect: Any
    admitted: dict[str, str] = field(default_factory=dict)
    """Uid -> node, of every pod that was ever admitted."""
    refusals: list[Refusal] = field(default_factory=list)
    told: list[Finding] = field(default_factory=list)
    """What the publishers said."""
    outages: list[str] = field(default_factory=list)
    publishing: threading.Event = field(default_factory=threading.Event)
    """Cleared, nobody publishes."""
    writes: int = 0
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Uid -> pod, of all that there are, as they were heard of; copied before anybody walks through them."""
    _known: dict[str, str] = field(default_factory=dict)
    """Uid -> node, of pods that were decided about and are there still."""
    _work: queue.SimpleQueue[tuple[str, str, dict[str, Any] | None] | None] = field(default_factory=queue.SimpleQueue)
    _stopping: threading.Event = field(default_factory=threading.Event)

    # What the kubelets hear.

    def listed(self, pages: Iterator[list[msgspec.Raw]]) -> None:
        """Take all pods: a kubelet admits those that are new to it in the order of their creation."""
        found = [msgspec.json.decode(item) for page in pages for item in page]
        there = {pod["metadata"]["uid"] for pod in found}
        for uid in [uid for uid in (*self._known, *self.pods) if uid not in there]:
            self._gone(uid)
        for pod in sorted(found, key=lambda one: str(one["metadata"]["creationTimestamp"])):
            self._take(pod)

    def changed(self, item: msgspec.Raw) -> None:
        """Take a pod that is new or changed."""
        self._take(msgspec.json.decode(item))

    def deleted(self, item: msgspec.Raw) -> None:
        """Take a pod that is gone."""
        self._gone(str(msgspec.json.decode(item)["metadata"]["uid"]))

    def failed(self, error: ClusterError, _times: int) -> None:
        """Keep what an outage said."""
        self.outages.append(str(error))

    def _take(self, document: dict[str, Any]) -> None:
        metadata, status = document["metadata"], document.get("status", {})
        uid, name = str(metadata["uid"]), str(document["spec"].get("nodeName", ""))
        node = self.played.get(name)
        self.pods[uid] = document
        if node is None or status.get("phase") in ("Failed", "Succeeded"):
            return
        if uid not in self._known:
            self._known[uid] = name
            self._decide(node, document, uid)
        if "deletionTimestamp" in metadata:
            node.remove(uid)
            self._work.put((metadata["name"], uid, None))

    def _decide(self, node: PlayedNode, document: dict[str, Any], uid: str) -> None:
        name, pod = document["metadata"]["name"], pod_from_object(document, source="API server")
        refused = node.admit(pod)
        if refused is None:
            self.admitted[uid] = node.name
            self._work.put((name, uid, {"phase": "Running"}))
            return
        self.refusals.append(Refusal(name, uid, node.name, refused.reason, refused.message))
        self._work.put((name, uid, {"phase": "Failed", "reason": refused.reason, "message": refused.message}))

    def _gone(self, uid: str) -> None:
        self.pods.pop(uid, None)
        name = self._known.pop(uid, "")
        if name:
            self.played[name].remove(uid)

    # What the kubelets say.

    def write(self) -> None:
        """Tell the API server, one thing after another and as often as it takes."""
        with contextlib.ExitStack() as opened:
            http = opened.enter_context(self.connect()).http
            while (work := self._work.get()) is not None:
                while not self._stopping.is_set():
                    try:
                        self._tell(http, *work)
                        break
                    except ClusterError as error:
                        if 400 <= error.code < 500 and error.code != 429:
                            break  # the pod is gone, or another one of its name is there
                        self._stopping.wait(0.2)

    def _tell(self, http: Any, name: str, uid: str, status: dict[str, Any] | None) -> None:
        path = f"api/v1/namespaces/default/pods/{name}"
        with cluster_errors():
            if status is None:
                body = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
                response = http.request("DELETE", path, json=body)
            else:
                content = msgspec.json.encode({"metadata": {"uid": uid}, "status": status})
                response = http.patch(f"{path}/status", content=content, headers=_MERGE)
            check_response(response)

    def publish(self) -> None:
        """Publish all nodes, one after another, with the product's own publishers."""
        with self.connect() as cluster:
            shared = _Shared(cluster)
            publishers = [
                Publisher(node.observe, lambda: shared, name, report=self.told.append)  # type: ignore[arg-type, return-value]  # see _Shared
                for name, node in self.played.items()
            ]
            while not self._stopping.is_set():
                if self.publishing.is_set():
                    for publisher in publishers:
                        publisher.step()
                    self.writes = sum(publisher.counts.writes for publisher in publishers)
                self._stopping.wait(LOOKING)

    def stop(self) -> None:
        """End all threads."""
        self._stopping.set()
        self._work.put(None)


class _Shared:
    """One way to the API server for a hundred publishers that take turns; none of them closes it."""

    def __init__(self, cluster: Cluster) -> None:
        self.http = cluster.http

    def close(self) -> None:
        """Do nothing."""


@contextlib.contextmanager
def nodes_playing(api: APIServer, played: Mapping[str, PlayedNode]) -> Iterator[Nodes]:
    """Play nodes until the end of the block."""

    def connect() -> Cluster:
        return cluster_of(configuration_of(str(api.kubeconfig)))

    made = Nodes(played, connect)
    made.publishing.set()
    follower = Follower(connect, PODS, made, name="nodes")
    threads = [threading.Thread(target=one, daemon=True) for one in (made.write, made.publish)]
    follower.start()
    for thread in threads:
        thread.start()
    try:
        yield made
    finally:
        made.stop()
        follower.stop()
        for thread in threads:
            thread.join(20)
