"""Small clusters and their work as files, and what ``mooring fleet`` says of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from tests.cli.command import Answered, mooring

GPU = "example.com/gpu"
MACHINE = "sockets=2 cores=8 memory=16Gi"
"""Two NUMA nodes of four CPUs each."""
SIX = "6"
"""More CPUs than one NUMA node has: the sums of a node take it, and single-numa-node does not."""


def group(name: str, count: int = 1, policy: str = "single-numa-node", gpus: int = 0, **fields: Any) -> dict[str, Any]:
    """Return nodes with a topology policy, one CPU of each reserved, and GPUs on their NUMA nodes in turn."""
    kubelet = {"cpuManagerPolicy": "static", "topologyManagerPolicy": policy, "reservedSystemCPUs": "0"}
    found = {"name": name, "count": count, "machine": MACHINE, "kubelet": kubelet | fields.pop("kubelet", {}), **fields}
    if gpus:
        found["devices"] = {"devices": {GPU: [{"id": f"gpu{one}", "numa": [one % 2]} for one in range(gpus)]}}
    return found


def template(cpu: str, gpus: int = 0, *, guaranteed: bool = True, **spec: Any) -> dict[str, Any]:
    """Return what a pod of one container is made of."""
    amounts: dict[str, Any] = {"cpu": cpu, "memory": "64Mi", **({GPU: gpus} if gpus else {})}
    limits = {name: amount for name, amount in amounts.items() if guaranteed or name == GPU}
    containers = [{"name": "main", "resources": {"requests": amounts, "limits": limits}, **spec.pop("container", {})}]
    return {"spec": {"containers": containers, **spec}}


def arrival(name: str, cpu: str, at: float = 0, runs: float | None = None, owner: str = "", **pod: Any) -> Any:
    """Return a line about a pod; ``leaves`` is of the line, everything else of the pod."""
    times = {"at": at, "runs": runs, "leaves": pod.pop("leaves", None)}
    given = {field: time for field, time in times.items() if time is not None}
    return {"pod": {"metadata": {"name": name}, **template(cpu, **pod)}, "owner": owner, **given}


def workload(
    kind: str, name: str, cpu: str, runs: float | None = None, leaves: float | None = None, **spec: Any
) -> Any:
    """Return a line about a controller."""
    described = {"kind": kind, "metadata": {"name": name}, "spec": {"template": template(cpu), **spec}}
    times = {field: time for field, time in (("runs", runs), ("leaves", leaves)) if time is not None}
    return {"workload": described, **times}


def cluster_file(folder: Path, *groups: dict[str, Any], **fields: Any) -> str:
    """Write a cluster; return the path of its file."""
    content = {"apiVersion": "mooring/v1alpha1", "kind": "Cluster", "groups": list(groups), **fields}
    (folder / "cluster.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    return str(folder / "cluster.yaml")


def work_file(folder: Path, *lines: object) -> str:
    """Write work, a line each; return the path of its file."""
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    (folder / "work.jsonl").write_text(text, encoding="utf-8")
    return str(folder / "work.jsonl")


def asked(
    question: str,
    folder: Path,
    groups: Sequence[dict[str, Any]],
    lines: Sequence[object],
    *words: str,
    events: Sequence[Any] = (),
) -> Answered:
    """Ask about a cluster, what happens to it, and its work."""
    files = ("--cluster", cluster_file(folder, *groups, events=list(events)), "-f", work_file(folder, *lines))
    return mooring("fleet", question, *files, *words)


def simulated(
    folder: Path, groups: Sequence[dict[str, Any]], lines: Sequence[object], *words: str, events: Sequence[Any] = ()
) -> Any:
    """Return the document of a simulation."""
    return asked("simulate", folder, groups, lines, "-o", "json", *words, events=events).document


def fates(document: Any) -> dict[str, str]:
    """Return what became of each pod."""
    return {one["name"].partition("/")[2]: one["fate"] for one in document["records"]}
