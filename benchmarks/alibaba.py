"""Alibaba's cluster-trace-gpu-v2023 as a document of kind Cluster and as work in lines of JSON.

    python benchmarks/alibaba.py NODES.csv PODS.csv FOLDER
    mooring fleet simulate --cluster FOLDER/cluster.json -f FOLDER/work.jsonl

What the tables leave open is assumed: nodes name no sockets, so that a machine of two sockets with two threads a core
is taken for every node of 64 CPUs or more, and one socket below; the GPUs are spread evenly over the sockets. Pods of
the classes LS and Guaranteed are Guaranteed pods, all others Burstable. A pod with a share of a GPU gets a whole one,
because the kubelet's device manager knows no shares; one without a creation time is created at the beginning; one that
was never scheduled is there until its deletion.

Source: github.com/alibaba/clusterdata, cluster-trace-gpu-v2023.
"""

from __future__ import annotations

import csv
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from mooring.engine.core.config import KubeletConfig
from mooring.fleet.cluster import NodeCluster, Work
from mooring.fleet.event_files import load_cluster
from mooring.fleet.work_files import load_work

GPU: Final = "nvidia.com/gpu"
GUARANTEED: Final = frozenset({"LS", "Guaranteed"})
TWO_SOCKETS: Final = 64
"""CPUs from which a node has two sockets."""


def rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a table."""
    with path.open(encoding="utf-8", newline="") as table:
        return list(csv.DictReader(table))


def cluster_document(nodes: Path) -> dict[str, Any]:
    """Return the cluster; equal rows are a group."""
    kinds = Counter(
        (int(row["cpu_milli"]) // 1000, int(row["memory_mib"]), int(row["gpu"]), row["model"]) for row in rows(nodes)
    )
    groups = []
    for (cpus, memory, gpus, model), count in sorted(kinds.items()):
        sockets = 2 if cpus >= TWO_SOCKETS else 1
        threads = 2 if cpus % (2 * sockets) == 0 else 1
        parts = [f"{cpus}cpu", f"{memory // 1024}gi", *([f"{gpus}{model.lower()}"] if gpus else [])]
        devices = [{"id": f"gpu{index:02d}", "numa": [index * sockets // gpus]} for index in range(gpus)]
        group = {
            "name": "-".join(parts),
            "count": count,
            "machine": f"sockets={sockets} cores={cpus // threads} threads={threads} memory={memory}Mi",
            "labels": {"gpu-model": model} if model else {},
        }
        groups.append(group | ({"devices": {"devices": {GPU: devices}}} if devices else {}))
    return {"apiVersion": "mooring/v1alpha1", "kind": "Cluster", "metadata": {"name": str(nodes)}, "groups": groups}


def work_lines(pods: Path) -> Iterator[dict[str, Any]]:
    """Yield a line for each pod."""
    for row in rows(pods):
        amounts = {"cpu": f"{row['cpu_milli']}m", "memory": f"{row['memory_mib']}Mi"}
        devices = {GPU: row["num_gpu"]} if int(row["num_gpu"]) else {}
        limits = amounts | devices if row["qos"] in GUARANTEED else devices
        containers = [{"name": "main", "resources": {"requests": amounts | devices, "limits": limits}}]
        created, deleted, scheduled = (
            float(row[name]) if row[name] else None for name in ("creation_time", "deletion_time", "scheduled_time")
        )
        line = {"pod": {"metadata": {"name": row["name"]}, "spec": {"containers": containers}}, "at": created or 0.0}
        if deleted is not None:
            line |= {"leaves": deleted} if scheduled is None else {"runs": deleted - scheduled}
        yield line


def write(nodes: Path, pods: Path, folder: Path) -> tuple[str, str]:
    """Write both, and return the paths of the cluster and the work."""
    cluster, work = folder / "cluster.json", folder / "work.jsonl"
    cluster.write_text(json.dumps(cluster_document(nodes)), encoding="utf-8")
    work.write_text("".join(f"{json.dumps(line)}\n" for line in work_lines(pods)), encoding="utf-8")
    return str(cluster), str(work)


def traced(folder: Path, pods: str, config: KubeletConfig) -> tuple[NodeCluster, Work]:
    """Return all nodes of the trace with one configuration, and the work of one of its tables of pods."""
    with tempfile.TemporaryDirectory() as made:
        nodes = folder / "openb_node_list_all_node.csv"
        cluster, work = write(nodes, folder / f"openb_{pods}.csv", Path(made))
        found = load_cluster(cluster).cluster
        return replace(found, groups=tuple(replace(one, config=config) for one in found.groups)), load_work([work])


if __name__ == "__main__":
    write(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))
