"""Leaving a cluster: the agents of a DaemonSet stop on every node, and give containers their CPUs back."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import Any

from mooring.engine.core.errors import MooringError
from mooring.service.cluster.apiserver import Cluster, check_response, cluster_errors

DAEMON_SET = "mooring-agent"
_CONTAINER = "agent"
_PERIOD = 2.0
"""Seconds between two requests for the state of the DaemonSet."""


def leave(cluster: Cluster, namespace: str, patience: float, *, wait: Callable[[float], None] = time.sleep) -> int:
    """Let the agents of all nodes leave; return the number of nodes.

    Args:
        cluster: with the right to read and patch the DaemonSet.
        namespace: of the DaemonSet.
        patience: seconds until all nodes must have been left.
        wait: between two requests.

    Raises:
        ClusterError: the API server refuses or does not answer.
        MooringError: some node was not left in time.
    """
    path = f"apis/apps/v1/namespaces/{namespace}/daemonsets/{DAEMON_SET}"
    headers = {"Content-Type": "application/merge-patch+json"}
    with cluster_errors():
        found = cluster.http.get(path)
        check_response(found)
        written = cluster.http.patch(path, json=leaving_patch(found.json()), headers=headers)
        check_response(written)
        state = written.json()
        waited = 0.0
        while not has_left(state):
            if waited >= patience:
                raise MooringError(_unfinished(state, patience))
            wait(_PERIOD)
            waited += _PERIOD
            found = cluster.http.get(path)
            check_response(found)
            state = found.json()
    return int(state["status"]["desiredNumberScheduled"])


def has_left(daemon_set: dict[str, Any]) -> bool:
    """Return whether the pods of all nodes are those that have left, and are ready.

    >>> status = {"observedGeneration": 2, "desiredNumberScheduled": 3, "updatedNumberScheduled": 3, "numberReady": 2}
    >>> has_left({"metadata": {"generation": 2}, "status": status})
    False
    """
    status, wanted = daemon_set.get("status", {}), daemon_set["metadata"]["generation"]
    nodes = status.get("desiredNumberScheduled", 0)
    return bool(
        status.get("observedGeneration", 0) >= wanted
        and status.get("updatedNumberScheduled", 0) == nodes
        and status.get("numberReady", 0) == nodes
    )


def leaving_patch(daemon_set: dict[str, Any]) -> dict[str, Any]:
    """Return the merge patch after which every pod leaves its node, with all that the agent has, and then only waits.

    Args:
        daemon_set: of the agents; one that was patched already stays as it is.
    """
    pod = daemon_set["spec"]["template"]["spec"]
    [agent] = [one for one in pod["containers"] if one["name"] == _CONTAINER]
    leaver = copy.deepcopy(agent)
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        leaver.pop(probe, None)
    resting = {**copy.deepcopy(leaver), "args": ["deploy", "wait"]}
    leaver = {**leaver, "name": "leave", "args": [*agent["args"], "--leave"]}
    before = [one for one in pod.get("initContainers", []) if one["name"] != "leave"]
    if agent["args"] == resting["args"]:  # a second try
        return {"spec": {}}
    return {
        "spec": {
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%"}},
            "template": {"spec": {"initContainers": [*before, leaver], "containers": [resting]}},
        }
    }


def _unfinished(daemon_set: dict[str, Any], patience: float) -> str:
    status = daemon_set.get("status", {})
    left = min(status.get("updatedNumberScheduled", 0), status.get("numberReady", 0))
    nodes = status.get("desiredNumberScheduled", 0)
    return (
        f"{left} of {nodes} nodes were left within {patience:.0f} s; see the logs of the container 'leave' in the pods "
        f"of {DAEMON_SET}, and repeat, or leave these nodes by hand with: mooring agent --config FILE --leave"
    )
