"""Files that a node's agent needs and that only a pod can make: tokens, a kubeconfig, the seccomp profile.

Leaving a cluster: the agents of a DaemonSet stop on every node, and give containers their CPUs back.
"""

from __future__ import annotations

import copy
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Event
from typing import Any

from mooring.engine.checkpoint.store import write_atomically
from mooring.engine.core.errors import InputError, MooringError
from mooring.service.cluster.apiserver import Cluster, check_response, cluster_errors

PROFILE = "mooring-agent.json"
"""Name of the seccomp profile in the kubelet's folder."""
_PERIOD = 60.0
"""Seconds between two copies: the kubelet replaces a projected token 12 minutes before its end."""


def keep_token(source: Path, target: Path, stop: Event) -> None:
    """Copy a token now and once a minute, until the event is set.

    Args:
        source: the projected file.
        target: the file on the node, replaced by rename, for its owner only.
        stop: ends the copying.

    Raises:
        InputError: the token cannot be read or written.
    """
    os.umask(0o077)
    while True:
        write_atomically(target, _text(source))
        if stop.wait(_PERIOD):
            return


def write_profile(source: Path, folder: Path) -> None:
    """Copy the agent's seccomp profile into the kubelet's folder of profiles.

    Raises:
        InputError: a file cannot be read or written.
    """
    write_atomically(folder / PROFILE, _text(source))


def kubeconfig_of_pod(
    accounts: Sequence[str], tokens: Path, authority: Path, environment: Mapping[str, str]
) -> dict[str, Any]:
    """Return a kubeconfig for the pod's own API server, with one context for each account.

    Args:
        accounts: the first one is the current context.
        tokens: folder with a folder for each account.
        authority: file with the certificate authority of the API server.
        environment: of the pod; the kubelet names the API server there.

    Raises:
        InputError: this is not a pod.

    >>> pod = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    >>> made = kubeconfig_of_pod(["mooring-agent-pods"], Path("/tokens"), Path("/ca.crt"), pod)
    >>> made["clusters"][0]["cluster"]["server"]
    'https://[fd00::1]:443'
    """
    try:
        host, port = environment["KUBERNETES_SERVICE_HOST"], environment["KUBERNETES_SERVICE_PORT"]
    except KeyError as missing:
        raise InputError("is not set", source=str(missing.args[0]), remedy="run this in a pod") from None
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    users = [{"name": name, "user": {"tokenFile": str(tokens / name / "token")}} for name in accounts]
    contexts = [{"name": name, "context": {"cluster": "cluster", "user": name}} for name in accounts]
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": accounts[0],
        "clusters": [{"name": "cluster", "cluster": {"server": server, "certificate-authority": str(authority)}}],
        "users": users,
        "contexts": contexts,
    }


def write_kubeconfig(path: Path, content: Mapping[str, Any]) -> None:
    """Write a kubeconfig as JSON, which is YAML.

    Raises:
        InputError: it cannot be written.
    """
    write_atomically(path, json.dumps(content, indent=1) + "\n")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be read: {error}", source=str(path)) from None


DAEMON_SET = "mooring-agent"
_CONTAINER = "agent"
_LEAVING_PERIOD = 2.0
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
            wait(_LEAVING_PERIOD)
            waited += _LEAVING_PERIOD
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
