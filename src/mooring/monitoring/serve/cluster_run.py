"""The pages of a cluster as a process: what it follows, and how it stops.

Nodes and pods of the API server, brought to the page's cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from http import HTTPStatus
from typing import Any, Final

from mooring.engine.core.errors import InputError
from mooring.inputs.pods.cluster_objects import FINISHED
from mooring.inputs.pods.pods import MIRROR, pod_from_object
from mooring.inputs.pods.scheduling_fields import NO_FIELDS, scheduling_fields, taint_of
from mooring.monitoring.serve.app import ServeOptions, connection, guard_of, run_application
from mooring.monitoring.serve.cluster_html import exported_cluster
from mooring.monitoring.serve.cluster_known import NODE, POD, ClusterNode, ClusterPod, KnownCluster
from mooring.monitoring.serve.cluster_routes import cluster_application, ticking
from mooring.published.facts_document import facts_of
from mooring.published.objects import FACTS, GROUP, PLURALS, SHADOW, STATE, VERSION, object_name, state_of
from mooring.published.possible_kubelets import NodeFaults, unjudged
from mooring.published.shadow_document import shadow_of
from mooring.service.apiserver import Cluster, ClusterError
from mooring.service.following import PODS, Follower, ObjectListener

_PATHS: Final[Mapping[str, str]] = {
    **{kind: f"apis/{GROUP}/{VERSION}/{PLURALS[kind]}" for kind in (FACTS, STATE, SHADOW)},
    NODE: "api/v1/nodes",
    POD: PODS,
}
Content = Mapping[str, Any]


def followers(cluster: KnownCluster, connect: Callable[[], Cluster], report: Callable[[str], object]) -> list[Follower]:
    """Return what follows the API server: facts first, because states are about them.

    The last is that of the counts of ``mooring shadow --publish``; a cluster need not have any.

    Args:
        cluster: receives facts, states, nodes, pods and counts.
        connect: opens a way to the API server.
        report: receives problems.
    """

    def read(content: Content, of: Callable[[object], Any]) -> Any:
        return cluster.faults.guarded(object_name(content), partial(_read, of, content), unjudged)

    def pod(content: Content) -> str:
        try:
            found = pod_of(content)
        except InputError as error:
            report(f"pod {object_name(content)}: {error}")
            return ""
        cluster.put_pod(found)
        return found.pod.uid

    def shadow(content: Content) -> None:
        try:
            cluster.put_shadow(*shadow_of(dict(content)))
        except InputError as error:
            report(str(error))

    def failed(error: ClusterError) -> None:
        if error.code != HTTPStatus.NOT_FOUND:  # a kind that the cluster does not serve is no outage
            report(str(error))

    def follower(kind: str, take: Callable[[Content], object]) -> Follower:
        def put(content: Content) -> str:
            taken = take(content)
            return str(taken) if kind == POD else object_name(content)

        def drop(content: Content) -> None:
            if kind != FACTS:
                cluster.drop(kind, uid_of(content) if kind == POD else object_name(content))

        keep = cluster.keep_facts if kind == FACTS else partial(cluster.keep, kind)
        return Follower(connect, _PATHS[kind], ObjectListener(put, drop, failed, keep), name="serve")

    found = [
        follower(FACTS, lambda one: cluster.put_facts(object_name(one), read(one, facts_of))),
        follower(STATE, lambda one: cluster.put_state(object_name(one), read(one, state_of))),
        follower(NODE, lambda one: cluster.put_node(node_of(one))),
        follower(POD, pod),
        follower(SHADOW, shadow),
    ]
    found[0].is_behind = cluster.misses_facts
    return found


def node_of(content: Content) -> ClusterNode:
    """Return a Node; what is not as expected is left out."""
    spec, labels = content.get("spec") or {}, (content.get("metadata") or {}).get("labels") or {}
    taints = tuple(taint_of(one) for one in spec.get("taints") or () if isinstance(one, dict))
    return ClusterNode(
        object_name(content),
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
    fields = NO_FIELDS if node and not refusal else scheduling_fields(spec)
    # The kubelet sets the start time of a pod that it refuses when it writes the refusal.
    written = (status.get("startTime") if refusal else None) or (content.get("metadata") or {}).get("creationTimestamp")
    try:
        since = datetime.fromisoformat(str(written)).timestamp()
    except ValueError:
        since = 0.0
    pod, message = pod_from_object(content, source="API server"), str(status.get("message") or "")
    return ClusterPod(pod, node, phase in FINISHED, refusal, fields, since, message)


def _read(of: Callable[[object], Any], content: Content) -> Any:
    try:
        return of(dict(content))
    except InputError as error:
        return str(error)


def uid_of(content: Content) -> str:
    """Return the uid by which a kubelet knows a pod; empty where there is none."""
    metadata = content.get("metadata")
    if not isinstance(metadata, dict):
        return ""
    return str((metadata.get("annotations") or {}).get(MIRROR) or metadata.get("uid") or "")


LISTING: Final = 60.0
"""Seconds within which everything must have been listed for an export."""
NAME: Final = "Cluster"


@contextmanager
def following(
    cluster: KnownCluster, connect: Callable[[], Cluster], report: Callable[[str], object]
) -> Iterator[Callable[[float], bool]]:
    """Follow the API server until the end of the block; gives what waits until everything is listed."""
    everything = followers(cluster, connect, report)
    for one in everything:
        one.start()
    try:
        yield lambda seconds: all(one.has_listed.wait(seconds) for one in everything[:-1])
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
