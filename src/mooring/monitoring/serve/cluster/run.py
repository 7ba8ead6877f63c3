"""The pages of a cluster as a process: what it follows, and how it stops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from mooring.engine.core.errors import InputError
from mooring.monitoring.serve.cluster.html import exported_cluster
from mooring.monitoring.serve.cluster.known import KnownCluster
from mooring.monitoring.serve.cluster.listeners import followers, shadow_follower
from mooring.monitoring.serve.cluster.routes import cluster_application, ticking
from mooring.monitoring.serve.run import ServeOptions, connection, guard_of, run_application
from mooring.published.situation import NodeFaults
from mooring.service.cluster.apiserver import Cluster

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
