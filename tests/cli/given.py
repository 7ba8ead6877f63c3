"""Files that describe a node to a command: pods, and what configures its kubelet."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.cli.command import SMALL

STATIC = {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"}
ALIGNED = STATIC | {"topologyManagerPolicy": "single-numa-node"}
SIXTEEN_CORES = "sockets=2 cores=16 threads=2 memory=64Gi"


def container(name: str, limits: Any = None, requests: Any = None, **more: Any) -> dict[str, Any]:
    """Return a container with these resources."""
    return {"name": name, "image": "demo", "resources": {"limits": limits or {}, "requests": requests or {}}, **more}


def pod(
    name: str, cpu: int | str = "", memory: str = "1Gi", uid: str = "", limits: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return a pod with one container called app, without amounts unless it has CPUs."""
    amounts: dict[str, Any] = {"cpu": str(cpu), "memory": memory} if cpu else {}
    named = {"name": name} | ({"uid": uid} if uid else {})
    spec = {"containers": [container("app", {**amounts, **(limits or {})})]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": named, "spec": spec}


def written(file: Path, *documents: Mapping[str, Any]) -> Path:
    """Write documents into a file, and return it."""
    file.write_text("\n---\n".join(map(json.dumps, documents)), encoding="utf-8")
    return file


def given(
    folder: Path,
    *pods: Mapping[str, Any],
    machine: str = SMALL[1],
    kubelet: Mapping[str, Any] = STATIC,
    more: tuple[Mapping[str, Any], ...] = (),
) -> tuple[str, ...]:
    """Write a node's configuration and pods into a folder, and return the options that name them and a machine.

    Args:
        folder: to write into.
        pods: what -f names, if there are any.
        machine: described in words, or by its name.
        kubelet: fields of its configuration.
        more: documents beside it, such as devices.
    """
    head = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
    config = written(folder / "kubelet.yaml", {**head, **kubelet}, *more)
    files = ("-f", str(written(folder / "pods.yaml", *pods))) if pods else ()
    return (*files, "--machine", machine, "--config", str(config))
