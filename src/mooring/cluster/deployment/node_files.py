"""Files that a node's agent needs and that only a pod can make: tokens, a kubeconfig, the seccomp profile."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Event
from typing import Any

from mooring.engine.checkpoint.store import write_atomically
from mooring.engine.core.errors import InputError

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
