"""The process that plays a cluster: it registers nodes, renews leases, writes, publishes, and removes all at the end.

Writes go through a few threads, each with a connection of its own: one thread alone would wait for the API server most
of the time. What is about one pod goes through one thread, so that it arrives in its order.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import urlencode
from zlib import crc32

import msgspec

from mooring.cluster.dra.objects import GROUP, ClaimObjects
from mooring.cluster.play.claims import PlayedClaims, PlayedSlices, with_drivers
from mooring.cluster.play.kubelets import Play, Write
from mooring.cluster.play.nodes import (
    ADDRESSES,
    LEASE_SECONDS,
    PLAYED,
    Document,
    PlayedNode,
    lease_object,
    node_object,
    stamp,
    taints_of,
)
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.fleet.cluster import NodeAction, NodeCluster, NodeEvent, NodeTaints
from mooring.published import observation
from mooring.published.objects import FACTS, NODE_LABEL, PATHS, STATE, NodeState, state_document, state_of
from mooring.published.observation import EngineObserver, LiveSource
from mooring.published.publisher import LOOKING, Publisher
from mooring.service.apiserver import Cluster, ClusterError, ClusterOnDemand, asked
from mooring.service.daemon import settle
from mooring.service.following import CACHED, PODS, Follower, ObjectListener, objects_at
from mooring.service.logs import Log
from mooring.service.podresources import serve_pod_resources

NODES: Final = "api/v1/nodes"
LEASES: Final = "apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_BOUND: Final = {"fieldSelector": "spec.nodeName!="}
_RENEWAL: Final = LEASE_SECONDS / 2
"""Seconds between two renewals of a lease; a kubelet's own 10 would be 100 writes a second for 1,000 nodes."""
_WRITERS: Final = 8
_PATCH: Final = {"Content-Type": "application/strategic-merge-patch+json"}
_JSON: Final = {"Content-Type": "application/json"}
_SAVING: Final = 5.0
"""Seconds between two times at which states are saved."""
_TICK: Final = 0.05
"""Seconds between two looks for what is due."""
_PATIENCE: Final = 30.0
"""Seconds for what is under way at the end."""


class Writers:
    """Threads that write to the API server, each thing as often as it takes."""

    def __init__(self, connect: Callable[[], Cluster], report: Callable[[str, str], object]) -> None:
        """Start them.

        Args:
            connect: opens a way to the API server.
            report: receives what is refused, and outages.
        """
        self._connect, self._report = connect, report
        self._queues = [queue.Queue[tuple[str, str, str, Document] | None]() for _ in range(_WRITERS)]
        self._stopping = threading.Event()
        self._refusal: ClusterError | None = None
        self._threads = [threading.Thread(target=self._run, args=(one,), daemon=True) for one in self._queues]
        for thread in self._threads:
            thread.start()

    def write(self, about: str, method: str, path: str, body: Document) -> None:
        """Have something written soon."""
        self._queues[crc32(about.encode()) % _WRITERS].put((about, method, path, body))

    def settle(self) -> ClusterError | None:
        """Wait until everything is written; return what was refused first since the last time."""
        for one in self._queues:
            one.join()
        refusal, self._refusal = self._refusal, None
        return refusal

    def close(self) -> None:
        """End the threads; what waits is not written."""
        self._stopping.set()
        for one in self._queues:
            one.put(None)
        for thread in self._threads:
            thread.join(_PATIENCE)

    def _run(self, waiting: queue.Queue[tuple[str, str, str, Document] | None]) -> None:
        way, tries = ClusterOnDemand(self._connect), 0
        while (task := waiting.get()) is not None:
            while not self._stopping.is_set():
                about, method, path, body = task
                headers = _PATCH if method == "PATCH" else _JSON
                try:
                    asked(way.http, method, path, (404, 409), content=msgspec.json.encode(body), headers=headers)
                except ClusterError as error:
                    if not error.may_pass:
                        self._refusal = self._refusal or error
                        self._report(about, f"not written: {error}")
                        break
                    way.close()
                    tries += 1
                    if tries == 1:
                        self._report("writes", str(error))
                    self._stopping.wait(error.pause or min(0.1 * tries, 5.0))
                else:
                    tries = 0
                    break
            waiting.task_done()
        way.close()


@dataclass(slots=True)
class PlayedCluster:
    """A cluster that is played."""

    cluster: NodeCluster
    connect: Callable[[], Cluster]
    report: Callable[[str, str], object]
    speed: float = 1.0
    publishes: bool = False
    folder: Path | None = None
    """Where the states of nodes are kept."""
    keep: bool = False
    """Whether everything stays at the API server at the end."""
    sockets: Path | None = None
    """Where each node's PodResources API is served."""
    play: Play = field(init=False)
    _writers: Writers = field(init=False)
    members: dict[str, PlayedNode] = field(init=False)
    _saved: dict[str, Kubelet] = field(default_factory=dict)
    _stopping: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        started = {group.name: group.started() for group in self.cluster.groups}
        self.members = {
            one.name: PlayedNode(one, with_drivers(started[one.group.name], one), str(ADDRESSES + number))
            for number, one in enumerate(self.cluster.members())
        }

    def kubelets(self, names: Iterable[str], write: Write) -> Play:
        """Return the kubelets of some members, which go on from the states that were saved.

        Args:
            names: of the members.
            write: takes what they write to the API server.

        Raises:
            InputError: the states cannot be read.
        """
        saved: list[NodeState] = []
        if self.folder is not None:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                saved = [state_of(msgspec.json.decode(one.read_bytes())) for one in self.folder.glob("*.json")]
            except (OSError, ValueError) as error:
                raise InputError(f"cannot be read: {error}", source=str(self.folder)) from None
        nodes, states = {name: self.members[name] for name in names}, {one.node: one for one in saved}
        claims = PlayedClaims() if self._drives else None
        return Play(nodes, write, self.report, self.speed, states, claims=claims)

    @contextmanager
    def playing(self) -> Iterator[Play]:
        """Play it until the end of the block.

        Raises:
            InputError: a node of another origin has the name of one, or an event cannot be played.
            ClusterError: the API server says no, or nothing.
        """
        events = [one for one in self.cluster.events if isinstance(one, NodeEvent)]
        if len(events) < len(self.cluster.events) or any(one.change is NodeAction.DRAIN for one in events):
            raise InputError("drain and resize are not played", field="events", remedy="use kubectl drain and resize")
        joining = {one.node for one in events if one.change is NodeAction.ADD}
        first = [name for name in self.members if name not in joining]
        with self.connect() as cluster:
            known = self._known(cluster)
        writers = self._writers = Writers(self.connect, self.report)
        self.play = self.kubelets(first, writers.write)
        try:
            for name in first:
                self._register(name, is_known=name in known)
            if refusal := writers.settle():
                raise refusal
            with self._working(events), ExitStack() as served:
                for node in self.members.values() if self.sockets is not None else ():
                    service = serve_pod_resources(f"{self.sockets}/{node.name}.sock", node.now, Log("play"))
                    served.callback(service.close)
                yield self.play
            self._save()
            if self.keep:
                writers.settle()
        finally:
            if not self.keep:
                self._remove()
            writers.close()

    @contextmanager
    def _working(self, events: Iterable[NodeEvent]) -> Iterator[None]:
        """Let kubelets, timers and publishers run until the end of the block."""
        play = self.play
        nodes = ObjectListener(play.put_node, play.drop_node, lambda error: self.report("nodes", str(error)))
        followers = [
            Follower(self.connect, PODS, play, _BOUND, CACHED, name="play"),
            Follower(self.connect, NODES, nodes, self._own, CACHED, name="play"),
        ]
        if (claims := play.claims) is not None:
            listener = ObjectListener(claims.put, claims.drop, lambda error: self.report("claims", str(error)))
            followers.append(Follower(self.connect, f"{GROUP}/resourceclaims", listener, name="play"))
        for event in events:
            play.timers.enter(event.at / self.speed, 0, self._happens, (event,))
        settle()
        for one in followers:
            one.start()
        work = [
            self._keep_time,
            self._renew,
            *([self._publish] if self.publishes else []),
            *([self._offer] if self._drives else []),
        ]
        threads = [threading.Thread(target=one, daemon=True) for one in work]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            for one in followers:
                one.stop()
            self._stopping.set()
            for thread in threads:
                thread.join(_PATIENCE)

    @property
    def _own(self) -> dict[str, str]:
        return {"labelSelector": f"{PLAYED}={self.cluster.name}"}

    @property
    def _drives(self) -> bool:
        """Whether drivers of dynamic resource allocation are played."""
        return any(group.drivers for group in self.cluster.groups)

    # Nodes of the API server.

    def _known(self, cluster: Cluster) -> set[str]:
        """Return the names of nodes that an earlier play has left."""
        known = set()
        for one in objects_at(cluster.http, NODES):
            name, labels = one["metadata"]["name"], one["metadata"].get("labels") or {}
            if name in self.members and labels.get(PLAYED) != self.cluster.name:
                raise InputError(
                    f"the cluster has a node {name} that is not played by this file",
                    field="groups",
                    remedy="choose another name for the group or, of two plays, for the cluster",
                )
            known.add(name)
        return known

    def _register(self, name: str, *, is_known: bool = False) -> None:
        """Make a Node and its Lease; those of an earlier play get the status of now."""
        node, writers = self.members[name], self._writers
        made = node_object(node.member, node.kubelet, self.cluster.name, node.address)
        path, spec = f"{NODES}/{name}", {"spec": made["spec"]}
        if is_known:
            writers.write(name, "PATCH", f"{path}/status", {"status": made["status"]})
        else:
            writers.write(name, "POST", NODES, made)
        # The API server taints a new node as not ready; the controller that takes that away is not in every cluster.
        writers.write(name, "PATCH", path, spec)
        writers.write(name, "POST", LEASES, lease_object(name, self.cluster.name))

    def _renew(self) -> None:
        """Renew leases one after another, in a thread of its own: statuses of pods do not wait for them."""
        way = ClusterOnDemand(self.connect)
        while not self._stopping.wait(_TICK):
            for name, node in list(self.play.nodes.items()):
                lease = msgspec.json.encode({"spec": {"renewTime": stamp(fraction=".%f")}})
                try:
                    if not node.problem:
                        asked(way.http, "PATCH", f"{LEASES}/{name}", (404,), content=lease, headers=_PATCH)
                except ClusterError:  # writers and followers report outages
                    way.close()
                if self._stopping.wait(_RENEWAL / len(self.members)):
                    break
        way.close()

    def _happens(self, event: NodeEvent) -> None:
        """Let an event of the file happen."""
        name, change, path = event.node, event.change, f"{NODES}/{event.node}"
        if change is NodeAction.ADD:
            self._register(name)
            self.play.nodes[name] = self.members[name]
        elif name not in self.play.nodes:
            return
        elif change is NodeAction.REMOVE:
            self.play.write(name, "DELETE", path, {})
        elif isinstance(change, NodeAction):
            self.play.write(name, "PATCH", path, {"spec": {"unschedulable": change is NodeAction.CORDON}})
        elif isinstance(change, NodeTaints):
            self.play.write(name, "PATCH", path, {"spec": {"taints": taints_of(change.taints)}})
        else:
            self.play.happens(name, change)

    def _remove(self) -> None:
        """Delete what was made, and pods that were bound to it: the garbage collector of pods would do the same."""
        with self.connect() as cluster:
            made = [(PODS, _BOUND), (NODES, self._own), (LEASES, self._own)]
            made += [(f"{GROUP}/resourceslices", {})] if self._drives else []
            for path, query in made:
                for one in objects_at(cluster.http, path, query):
                    metadata = one["metadata"]
                    if path in (NODES, LEASES) or one["spec"].get("nodeName") in self.members:
                        place = path if path != PODS else f"api/v1/namespaces/{metadata['namespace']}/pods"
                        conditions = {"gracePeriodSeconds": 0, "preconditions": {"uid": metadata["uid"]}}
                        self._writers.write(metadata["uid"], "DELETE", f"{place}/{metadata['name']}", conditions)
        for name in self.members if self.publishes else ():
            for path in (PATHS[STATE], f"apis/{observation.API_VERSION}/{observation.PLURAL}"):
                self._writers.write(name, "DELETE", f"{path}/{name}", {})
            facts = urlencode({"labelSelector": f"{NODE_LABEL}={name}"})
            self._writers.write(name, "DELETE", f"{PATHS[FACTS]}?{facts}", {})
        self._writers.settle()

    # What passes time.

    def _keep_time(self) -> None:
        """Run what is due, and save states now and then."""
        saved = time.monotonic()
        while not self._stopping.is_set():
            due = self.play.timers.run(blocking=False)
            if time.monotonic() - saved >= _SAVING:
                self._save()
                saved = time.monotonic()
            self._stopping.wait(_TICK if due is None else min(due, _TICK))

    def _publish(self) -> None:
        """Publish all nodes, one after another, as ``mooring publish`` does each."""
        with self.connect() as cluster:
            shared, publishers = Cluster(cluster.http, is_shared=True), dict[str, Publisher]()

            def told(finding: Finding) -> None:
                self.report(finding.subject, finding.message)

            while not self._stopping.wait(LOOKING):
                for name, node in list(self.play.nodes.items()):
                    if name not in publishers:
                        source = LiveSource(partial(getattr, node, "kubelet"), name)
                        publishers[name] = Publisher(source.observe, lambda: shared, name, report=told)
                    publishers[name].step()

    def _offer(self) -> None:
        """Publish the slices of all nodes, one after another, as drivers do each."""
        objects, known, failed = ClaimObjects(self.connect), dict[str, PlayedSlices](), ""
        while not self._stopping.wait(LOOKING):
            for name, node in list(self.play.nodes.items()):
                if name not in known:
                    known[name] = PlayedSlices(node, objects, Log("play"))
                try:
                    known[name].publish(time.monotonic())
                    failed = ""
                except ClusterError as error:
                    if str(error) != failed:
                        failed = str(error)
                        self.report("slices", failed)
        objects.close()

    def _save(self) -> None:
        """Write the states of the nodes that have changed."""
        if self.folder is None:
            return
        for name, node in list(self.play.nodes.items()):
            kubelet = node.kubelet
            if self._saved.get(name) is not kubelet:
                file = self.folder / f"{name}.json"
                document = state_document(EngineObserver(name).observe(kubelet).state)
                file.with_suffix(".new").write_bytes(msgspec.json.encode(document))
                file.with_suffix(".new").replace(file)
                self._saved[name] = kubelet
