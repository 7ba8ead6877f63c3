"""The pages of a cluster as a process: what it follows, and how it stops.

Nodes and pods of the API server, brought to the page's cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import msgspec

from mooring.engine.core.errors import InputError
from mooring.inputs.pods.pod_status import FINISHED
from mooring.inputs.pods.pods import MIRROR, pod_from_object
from mooring.inputs.pods.scheduling_fields import NO_FIELDS, scheduling_fields, taint_of
from mooring.monitoring.serve.app import ServeOptions, connection, guard_of, run_application
from mooring.monitoring.serve.cluster_html import exported_cluster
from mooring.monitoring.serve.cluster_known import ClusterNode, ClusterPod, KnownCluster
from mooring.monitoring.serve.cluster_routes import cluster_application, ticking
from mooring.published.facts_document import facts_of
from mooring.published.objects import FACTS, GROUP, PLURALS, SHADOW, STATE, VERSION, state_of
from mooring.published.possible_kubelets import NodeFaults, unjudged
from mooring.published.shadow_document import shadow_of
from mooring.service.apiserver import Cluster, ClusterError
from mooring.service.following import PODS, Follower, mapping_of

NODES: Final = "api/v1/nodes"
_PATH: Final = f"apis/{GROUP}/{VERSION}"
Content = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ObjectListener:
    """Brings objects of one kind to the cluster."""

    put: Callable[[Content], str]
    """Takes an object, and returns its name."""
    drop: Callable[[Content], object]
    keep: Callable[[list[str]], object]
    """Forgets all objects but those of these names."""
    report: Callable[[str], object]

    def listed(self, pages: Iterator[list[msgspec.Raw]]) -> None:
        """Take all objects."""
        self.keep([self.put(mapping_of(item)) for page in pages for item in page])

    def changed(self, item: msgspec.Raw) -> None:
        """Take an object."""
        self.put(mapping_of(item))

    def deleted(self, item: msgspec.Raw) -> None:
        """Forget an object."""
        self.drop(mapping_of(item))

    def failed(self, error: ClusterError, times: int) -> None:
        """Report an outage once; a kind that the cluster does not serve is none."""
        if times == 1 and error.code != HTTPStatus.NOT_FOUND:
            self.report(str(error))


def followers(cluster: KnownCluster, connect: Callable[[], Cluster], report: Callable[[str], object]) -> list[Follower]:
    """Return what follows the API server: facts first, because states are about them.

    Args:
        cluster: receives facts, states, nodes and pods.
        connect: opens a way to the API server.
        report: receives problems.
    """

    def read(name: str, ask: Callable[[], Any]) -> Any:
        return cluster.faults.guarded(name, lambda: _read(ask), unjudged)

    def facts(content: Content) -> str:
        name = _name(content)
        cluster.put_facts(name, read(name, lambda: facts_of(dict(content))))
        return name

    def state(content: Content) -> str:
        name = _name(content)
        cluster.put_state(name, read(name, lambda: state_of(dict(content))))
        return name

    def node(content: Content) -> str:
        cluster.put_node(node_of(content))
        return _name(content)

    def pod(content: Content) -> str:
        try:
            found = pod_of(content)
        except InputError as error:
            report(f"pod {_name(content)}: {error}")
            return ""
        cluster.put_pod(found)
        return found.pod.uid

    def follower(path: str, put: Callable[[Content], str], drop: Callable[[str], None], keep: Any) -> Follower:
        name: Callable[[Content], str] = _uid if path == PODS else _name
        listener = ObjectListener(put, lambda content: drop(name(content)), keep, report)
        return Follower(connect, path, listener, name="serve")

    facts_follower = follower(f"{_PATH}/{PLURALS[FACTS]}", facts, _nothing, cluster.keep_facts)
    facts_follower.is_behind = cluster.misses_facts
    return [
        facts_follower,
        follower(f"{_PATH}/{PLURALS[STATE]}", state, cluster.drop_state, cluster.keep_states),
        follower(NODES, node, cluster.drop_node, cluster.keep_nodes),
        follower(PODS, pod, cluster.drop_pod, cluster.keep_pods),
    ]


def shadow_follower(cluster: KnownCluster, connect: Callable[[], Cluster], report: Callable[[str], object]) -> Follower:
    """Return what follows the counts of ``mooring shadow --publish``; a cluster need not have any.

    Args:
        cluster: receives the counts.
        connect: opens a way to the API server.
        report: receives problems.
    """

    def put(content: Content) -> str:
        try:
            cluster.put_shadow(*shadow_of(dict(content)))
        except InputError as error:
            report(str(error))
        return _name(content)

    listener = ObjectListener(put, lambda content: cluster.drop_shadow(_name(content)), cluster.keep_shadows, report)
    return Follower(connect, f"{_PATH}/{PLURALS[SHADOW]}", listener, name="serve")


def node_of(content: Content) -> ClusterNode:
    """Return a Node; what is not as expected is left out."""
    spec, labels = content.get("spec") or {}, (content.get("metadata") or {}).get("labels") or {}
    taints = tuple(taint_of(one) for one in spec.get("taints") or () if isinstance(one, dict))
    return ClusterNode(
        _name(content),
        {str(key): str(value) for key, value in labels.items()},
        taints,
        spec.get("unschedulable") is True,
    )


def pod_of(content: Content) -> ClusterPod:
    """Return a pod.

    Raises:
        InputError: it is none that an API server would store.
    """
    spec, status = content.get("spec") or {}, content.get("status") or {}
    node, phase = str(spec.get("nodeName") or ""), status.get("phase")
    refusal = str(status.get("reason") or "") if phase == "Failed" and not status.get("containerStatuses") else ""
    fields = NO_FIELDS if node else scheduling_fields(spec)
    return ClusterPod(pod_from_object(content, source="API server"), node, phase in FINISHED, refusal, fields)


def _read(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except InputError as error:
        return str(error)


def _name(content: Content) -> str:
    metadata = content.get("metadata")
    return str(metadata.get("name") or "") if isinstance(metadata, dict) else ""


def _uid(content: Content) -> str:
    metadata = content.get("metadata")
    if not isinstance(metadata, dict):
        return ""
    return str((metadata.get("annotations") or {}).get(MIRROR) or metadata.get("uid") or "")


def _nothing(_one: object) -> None:
    """Keep facts: a state may still be about them, and they never change."""


LISTING: Final = 60.0
"""Seconds within which everything must have been listed for an export."""
NAME: Final = "Cluster"


@contextmanager
def following(
    cluster: KnownCluster, connect: Callable[[], Cluster], report: Callable[[str], object]
) -> Iterator[Callable[[float], bool]]:
    """Follow the API server until the end of the block; gives what waits until everything is listed."""
    needed = followers(cluster, connect, report)
    everything = [*needed, shadow_follower(cluster, connect, report)]
    for one in everything:
        one.start()
    try:
        yield lambda seconds: all(one.has_listed.wait(seconds) for one in needed)
    finally:
        for one in everything:
            one.stop()


def serve_cluster(options: ServeOptions, say: Callable[[str], object]) -> None:
    """Serve the pages of a cluster until SIGTERM or SIGINT.

    Raises:
        InputError: they cannot be served.
    """
    cluster, connect = (
        KnownCluster(NodeFaults(lambda about, problem: say(f"{about}: {problem}"))),
        connection(options.kubeconfig),
    )
    app, routes = cluster_application(cluster, NAME, guard_of(options), loopback=options.is_loopback)
    with following(cluster, connect, say), ticking(routes):
        run_application(app, options, say)


def export_cluster(kubeconfig: str) -> str:
    """Return a cluster as one file.

    Raises:
        InputError: the API server does not answer.
    """
    cluster, problems = KnownCluster(), list[str]()
    with following(cluster, connection(kubeconfig), problems.append) as listed:
        if not listed(LISTING):
            problem = f"did not list all objects within {LISTING:.0f} s: {'; '.join(problems[:1])}"
            raise InputError(problem, source="API server", remedy="check rights and connection")
    return exported_cluster(cluster, NAME)
