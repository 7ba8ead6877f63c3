"""Where pods come from and where reports go: API server, manifest folder, or neither. No call waits or fails.

Each part of the agent can have an account of its own at the API server: a kubeconfig has a context for a part under the
name of that part's account in ``deploy/agent``; what has no context of its own uses the current one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from mooring.agent.effects import ClusterEvent, EventSubject, Evict, about_pod
from mooring.agent.options import AgentOptions
from mooring.agent.pods.manifests import StaticPods
from mooring.agent.pods.source import PodSources, is_static
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding
from mooring.inputs.decoding.fields import Report, ignore
from mooring.inputs.pods.defaults import PodGates
from mooring.lazy import lazily

if TYPE_CHECKING:
    from mooring.agent.pods.api import APIPods

with lazily():  # half of the agent's memory, which a node without API server does not need
    from mooring.agent.pods import api as pods_api
    from mooring.agent.pods import writer as cluster_writer
    from mooring.service.cluster import apiserver


PREFIX = "mooring-agent-"
"""Of contexts that belong to one part of the agent."""


class AgentAccount(Enum):
    """A part of the agent that can have an account of its own; the value is the name of its context."""

    PODS = "mooring-agent-pods"
    EVENTS = "mooring-agent-events"
    EVICT = "mooring-agent-evict"
    TAINT = "mooring-agent-taint"
    PUBLISH = "mooring-agent-publish"


def connector(kubeconfig: str, context: str | None = None) -> Callable[[], apiserver.Cluster]:
    """Return what opens the way to the API server; it reads the kubeconfig at each call, for renewed credentials.

    Raises:
        InputError: the kubeconfig cannot be used.
    """
    apiserver.configuration_of(kubeconfig, context)
    return lambda: apiserver.cluster_of(apiserver.configuration_of(kubeconfig, context))


def own_accounts(kubeconfig: str) -> Mapping[AgentAccount, Callable[[], apiserver.Cluster]]:
    """Return a connector for each account that has a context of its own.

    Raises:
        InputError: the kubeconfig cannot be used, or a context is named like an account that the agent does not have.
    """
    names = apiserver.contexts_of(kubeconfig)
    known = sorted(account.value for account in AgentAccount)
    for name in sorted(names):
        if name.startswith(PREFIX) and name not in known:
            raise InputError(
                "is not an account of the agent",
                source=kubeconfig,
                field=f"contexts[{name}]",
                remedy=f"name one of {', '.join(known)}",
            )
    return {account: connector(kubeconfig, account.value) for account in AgentAccount if account.value in names}


class ClusterReporter(Protocol):
    """Receives what the cluster is to know. Calls return at once; what becomes of them is reported elsewhere."""

    def event(self, event: ClusterEvent) -> None:
        """Write an event; the same one again is counted up."""

    def evict(self, about: EventSubject, message: str) -> None:
        """Ask for a pod's eviction, because of ``message``; once, however often it is called."""

    def taint(self, *, present: bool) -> None:
        """See to it that the node has, or has not, the taint that keeps new pods away."""

    def wait_until_tried(self, patience: float) -> bool:
        """Wait, for ``patience`` seconds at most, until all that was requested was tried; tell whether it was."""

    def stop(self, patience: float) -> None:
        """Write what can be written within ``patience`` seconds, and end."""


@dataclass(slots=True)
class NoCluster:
    """For a node without API server: tells that nothing was written, the first time for each kind of thing."""

    report: Report = ignore
    _reported: set[str] = field(default_factory=set)

    def event(self, event: ClusterEvent) -> None:
        """Leave it out."""
        self._report_once("events", f"{event.about.name}: events are not written")

    def evict(self, about: EventSubject, message: str) -> None:
        """Leave it out."""
        self._report_once(
            about.uid, f"{about.namespace}/{about.name} is not evicted, it is held back instead ({message})"
        )

    def taint(self, *, present: bool) -> None:
        """Leave it out."""
        if present:
            self._report_once(
                "taint", "the node gets no taint, so pods are scheduled to it while the agent is not running"
            )

    def wait_until_tried(self, patience: float) -> bool:
        """Do nothing."""
        del patience
        return True

    def stop(self, patience: float) -> None:
        """Do nothing."""
        del patience

    def _report_once(self, what: str, message: str) -> None:
        if what not in self._reported and len(self._reported) < 1000:
            self._reported.add(what)
            self.report(Finding("info", "API server", f"none is configured: {message}"))


_LISTING = 5.0
"""Seconds that the agent waits at its start for a slow API server's pods; a dead one it does not wait for."""


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """Pod sources and the cluster, running."""

    pods: PodSources
    outward: ClusterReporter
    static: StaticPods | None = None
    api: APIPods | None = None

    def stop(self, patience: float) -> None:
        """End what runs; what waits to be written is tried once more."""
        self.outward.stop(patience)
        if self.api is not None:
            self.api.stop(patience)


def open_cluster_access(
    options: AgentOptions, gates: PodGates, node: str, report: Report, evicted: Callable[[], object] = lambda: None
) -> ClusterAccess:
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
        return ClusterAccess(PodSources(static), NoCluster(report), static)
    # A mistake in the file is reported now, not by a thread.
    connect, own = connector(options.kubeconfig), own_accounts(options.kubeconfig)
    api = pods_api.APIPods(own.get(AgentAccount.PODS, connect), node, gates=gates, report=report)
    writer = cluster_writer.ClusterWriter(connect, node, own=own, report=report, evicted=evicted)
    api.start()
    writer.start()
    api.wait_until_tried(_LISTING)
    return ClusterAccess(PodSources(static, api), writer, static, api)


def announce(outward: ClusterReporter, effect: ClusterEvent | Evict, report: Report = ignore) -> None:
    """Pass on what the reactor wants the cluster to know. A static pod would come back: only its mirror would go."""
    if isinstance(effect, ClusterEvent):
        outward.event(effect)
    elif not is_static(effect.pod):
        outward.evict(about_pod(effect.pod), effect.message)
    else:
        name = f"{effect.pod.namespace}/{effect.pod.name}"
        report(Finding("info", name, "a static pod is not evicted, because it would return at once"))
