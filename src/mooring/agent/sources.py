"""Where this agent's pods come from and where its words go: the API server, the manifest folder, or neither."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mooring.agent.options import AgentOptions
from mooring.agent.pods.manifests import StaticPods
from mooring.agent.pods.outward import NoCluster, Outward
from mooring.agent.pods.source import PodSources
from mooring.manifest.defaults import PodGates
from mooring.manifest.fields import Report

if TYPE_CHECKING:
    from mooring.agent.pods.api import APIPods

_LISTING = 5.0
"""Seconds that the agent waits at its start for a slow API server's pods; a dead one it does not wait for."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Pod sources and the cluster, running."""

    pods: PodSources
    outward: Outward
    static: StaticPods | None = None
    api: APIPods | None = None

    def stop(self, patience: float) -> None:
        """End what runs; what waits to be written is tried once more."""
        self.outward.stop(patience)
        if self.api is not None:
            self.api.stop(patience)


def surroundings(
    options: AgentOptions, gates: PodGates, node: str, report: Report, evicted: Callable[[], object] = lambda: None
) -> Surroundings:
    """Open what the configuration names.

    Args:
        options: of the agent.
        gates: of the kubelet.
        node: name of the node.
        report: receives what goes wrong on the way.
        evicted: is called for every pod that was evicted, by another thread.

    Raises:
        InputError: the kubeconfig cannot be used.
    """
    static = StaticPods(options.pod_manifests, node, gates=gates, report=report) if options.pod_manifests else None
    if not options.kubeconfig:
        return Surroundings(PodSources(static), NoCluster(report), static)
    # Half of the agent's memory, which a node without API server does not need.
    from mooring.agent.pods.accounts import Account, connector, own_accounts  # noqa: PLC0415 - as said above
    from mooring.agent.pods.api import APIPods  # noqa: PLC0415 - as above
    from mooring.agent.pods.writer import ClusterWriter  # noqa: PLC0415 - as above

    # A mistake in the file is reported now, not by a thread.
    connect, own = connector(options.kubeconfig), own_accounts(options.kubeconfig)
    api = APIPods(own.get(Account.PODS, connect), node, gates=gates, report=report)
    writer = ClusterWriter(connect, node, own=own, report=report, evicted=evicted)
    api.start()
    writer.start()
    api.wait_until_tried(_LISTING)
    return Surroundings(PodSources(static, api), writer, static, api)
