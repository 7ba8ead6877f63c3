"""Nodes that ``mooring play`` plays, and what tests want to know of them; publishers see each change as late as asked.

Nothing here decides: kubelets, pods and statuses are the product's.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial, reduce
from operator import or_
from pathlib import Path
from typing import Any, TypeAlias

from tests.e2e.kubelet.apiserver import APIServer

from mooring.cluster.play.nodes import PlayedNode
from mooring.cluster.play.pods import PlayedPod
from mooring.cluster.play.run import PlayedCluster
from mooring.engine.core.bits import CPUMask
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import Rejection
from mooring.engine.core.machine import Finding
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.fleet.cluster import NodeCluster
from mooring.inputs.node_groups import NodeGroup
from mooring.published.observation import LiveSource
from mooring.published.publisher import LOOKING, Publisher
from mooring.service.apiserver import Cluster, cluster_of, configuration_of
from mooring.service.following import PODS, Follower, ObjectListener

NO_DELAY: Callable[[], float] = float
PlayedNodes: TypeAlias = Mapping[str, PlayedNode]


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
    """The played nodes, and what happened on them."""

    played: PlayedNodes
    admitted: dict[str, str] = field(default_factory=dict)
    """Uid -> node, of every pod that was ever admitted."""
    refusals: list[Refusal] = field(default_factory=list)
    told: list[Finding] = field(default_factory=list)
    """What the publishers said."""
    publishing: threading.Event = field(default_factory=threading.Event)
    """Cleared, nobody publishes."""
    writes: int = 0
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Uid -> pod, of all that there are, as they were heard of; copied before anybody walks through them."""
    stopping: threading.Event = field(default_factory=threading.Event)

    def decided(self, pod: PlayedPod, rejection: Rejection | None) -> None:
        """Take note of a decision."""
        if rejection is None:
            self.admitted[pod.uid] = pod.node
        else:
            self.refusals.append(Refusal(pod.name, pod.uid, pod.node, rejection.reason, rejection.message))

    def put(self, document: dict[str, Any]) -> str:
        """Take a pod."""
        uid = str(document["metadata"]["uid"])
        self.pods[uid] = document
        return uid

    def keep(self, uids: list[str]) -> None:
        """Forget all pods but these."""
        for uid in self.pods.keys() - set(uids):
            del self.pods[uid]

    def publish(self, connect: Callable[[], Cluster], delay: Callable[[], float]) -> None:
        """Publish all nodes with the product's own publishers."""
        with connect() as cluster:
            shared = Cluster(cluster.http, is_shared=True)
            publishers = [
                Publisher(LiveSource(_Late(node, delay), name).observe, lambda: shared, name, report=self.told.append)
                for name, node in self.played.items()
            ]
            while not self.stopping.is_set():
                if self.publishing.is_set():
                    for publisher in publishers:
                        publisher.step()
                    self.writes = sum(publisher.writes for publisher in publishers)
                self.stopping.wait(LOOKING)


class _Late:
    """A node as its publisher may know it by now: each change a while after it was made, and no later one before."""

    def __init__(self, node: PlayedNode, delay: Callable[[], float]) -> None:
        self._node, self._delay = node, delay
        self._later: deque[tuple[float, Kubelet]] = deque([(0.0, node.kubelet)])

    def __call__(self) -> Kubelet:
        now, kubelet = time.monotonic(), self._node.kubelet
        if kubelet is not self._later[-1][1]:
            self._later.append((max(now + self._delay(), self._later[-1][0]), kubelet))
        while len(self._later) > 1 and self._later[1][0] <= now:
            self._later.popleft()
        return self._later[0][1]


def contradiction(node: PlayedNode) -> str:
    """Return what is wrong with who has which CPUs: two pods with one, or a pod with a CPU of the shared pool.

    Where cores have different numbers of CPUs the kubelet does that itself (MOOR-312), and nothing is wrong.
    """
    topology, cpu = node.kubelet.settings.topology, node.kubelet.node.cpu
    if topology is None or len({cpus.bit_count() for cpus in topology.cores.values()}) > 1:
        return ""
    given = 0
    for uid, containers in cpu.assignments.items():
        own = reduce(or_, containers.values(), 0)
        if own & (given | cpu.default):
            return f"{node.name}: {CPUSet(CPUMask(own))} of {uid} belong to others too"
        given |= own
    return ""


@contextlib.contextmanager
def nodes_playing(
    api: APIServer,
    groups: list[NodeGroup],
    *,
    delay: Callable[[], float] = NO_DELAY,
    kind: Callable[..., PlayedNode] = PlayedNode,
    sockets: Path | None = None,
) -> Iterator[Nodes]:
    """Play nodes until the end of the block; what they leave stays.

    Args:
        api: where.
        groups: of one node each.
        delay: draws the seconds after which a change is seen by the publisher.
        kind: of the nodes.
        sockets: folder of their PodResources APIs.
    """
    connect = partial(cluster_of, configuration_of(str(api.kubeconfig)))
    said: list[str] = []
    cluster = PlayedCluster(
        NodeCluster("e2e", tuple(groups)), connect, lambda *told: said.append(str(told)), keep=True, sockets=sockets
    )
    cluster.members = {name: kind(one.member, one.kubelet, one.address) for name, one in cluster.members.items()}
    made = Nodes(cluster.members)
    made.publishing.set()
    listener = ObjectListener(
        made.put, lambda one: made.pods.pop(one["metadata"]["uid"], None), lambda why: said.append(str(why)), made.keep
    )
    follower = Follower(connect, PODS, listener, name="nodes")
    publisher = threading.Thread(target=made.publish, args=(connect, delay), daemon=True)
    with cluster.playing() as play:
        play.decided = made.decided
        follower.start()
        publisher.start()
        try:
            yield made
        finally:
            made.stopping.set()
            follower.stop()
            publisher.join(20)
