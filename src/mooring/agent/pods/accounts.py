"""Which account of the API server each part of the agent uses.

A kubeconfig has a context for a part under the name of that part's account in ``deploy/agent``; what has no context of
its own uses the current one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum

from mooring.engine.core.errors import InputError
from mooring.service.cluster.apiserver import Cluster, cluster_of, configuration_of, contexts_of

PREFIX = "mooring-agent-"
"""Of contexts that belong to one part of the agent."""


class AgentAccount(Enum):
    """A part of the agent that can have an account of its own; the value is the name of its context."""

    PODS = "mooring-agent-pods"
    EVENTS = "mooring-agent-events"
    EVICT = "mooring-agent-evict"
    TAINT = "mooring-agent-taint"
    PUBLISH = "mooring-agent-publish"


def connector(kubeconfig: str, context: str | None = None) -> Callable[[], Cluster]:
    """Return what opens the way to the API server; it reads the kubeconfig at each call, for renewed credentials.

    Raises:
        InputError: the kubeconfig cannot be used.
    """
    configuration_of(kubeconfig, context)
    return lambda: cluster_of(configuration_of(kubeconfig, context))


def own_accounts(kubeconfig: str) -> Mapping[AgentAccount, Callable[[], Cluster]]:
    """Return a connector for each account that has a context of its own.

    Raises:
        InputError: the kubeconfig cannot be used, or a context is named like an account that the agent does not have.
    """
    names = contexts_of(kubeconfig)
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
