"""Large questions are answered within an amount of memory and of CPU time that grows with the pods and no faster."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import NODE, mooring

GB = 2**30
POLICIES = {
    "maxPods": 200_000,
    "cpuManagerPolicy": "static",
    "reservedSystemCPUs": "0",
    "topologyManagerPolicy": "best-effort",
}
CLUSTER = {
    "apiVersion": "mooring/v1alpha1",
    "kind": "Cluster",
    "metadata": {"name": "large"},
    "groups": [
        {
            "name": "one",
            "count": 100,
            "machine": NODE[1],
            "kubelet": {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"},
        }
    ],
}
SMALL = {"requests": {"cpu": "1m", "memory": "1Mi"}, "limits": {"memory": "2Mi"}}
"""Of a pod that lets the next one in."""
EXCLUSIVE = {"limits": {"cpu": "2", "memory": "1Gi"}}


def _pods(count: int, name: str, resources: Mapping[str, object]) -> list[dict[str, Any]]:
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{name}-{number:06d}", "namespace": "default"},
            "spec": {"containers": [{"name": "main", "image": "web:1", "resources": resources}]},
        }
        for number in range(count)
    ]


def _written(folder: Path, count: int) -> dict[str, str]:
    """Write what the verbs are asked about, and return the names of the files."""
    steps: list[dict[str, Any]] = [{"admit": pod} for pod in _pods(count, "web", SMALL)]
    for number, step in enumerate(steps):
        step["admit"]["metadata"]["uid"] = str(number)
    kubelet = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", **POLICIES}
    documents: dict[str, dict[str, Any]] = {
        "PODS": {"apiVersion": "v1", "kind": "List", "items": _pods(count, "web", SMALL)},
        "REFUSED": {"apiVersion": "v1", "kind": "List", "items": _pods(count, "web", EXCLUSIVE)},
        "ONE": {"apiVersion": "v1", "kind": "List", "items": _pods(1, "asked", SMALL)},
        "CONFIG": kubelet,
        "CLUSTER": CLUSTER,
        "SCENARIO": {"id": "large", "machine": NODE[1], "kubelet": POLICIES, "steps": steps},
    }
    for name, document in documents.items():
        (folder / f"{name}.json").write_text(json.dumps(document), encoding="utf-8")
    return {name: str(folder / f"{name}.json") for name in documents} | {"STATE": str(folder)}


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "count", "memory", "seconds"),
    [
        ("plan -f PODS", 100_000, GB, 600),
        ("plan -o json -f PODS", 100_000, GB, 600),
        ("show -o resources -f PODS", 2_000, GB, 120),
        ("plan -f REFUSED", 5_000, GB // 2, 300),
        ("plan -o json -f REFUSED", 5_000, GB // 2, 300),
        ("explain -f PODS web-000000", 10_000, GB, 120),
        ("whatif --set topologyManagerPolicy=restricted -f PODS", 5_000, GB, 120),
        ("capacity --active PODS -f ONE", 2_000, GB, 120),
        ("compare --all-options -f PODS", 1_000, GB // 2, 120),
        ("upgrade --kubelet-version 1.34 -f PODS", 2_000, GB, 120),
        ("doctor --state STATE --active REFUSED", 1_000, GB, 120),
        ("replay -o jsonl SCENARIO", 4_000, GB, 120),
        ("fleet simulate --cluster CLUSTER -f PODS", 1_000, GB, 120),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_verb_keeps_its_limits_of_memory_and_time(
    words: str, count: int, memory: int, seconds: int, tmp_path: Path
) -> None:
    found = _written(tmp_path, count)
    node = () if words.startswith(("replay", "fleet")) else (*NODE[:2], "--config", found["CONFIG"])
    arguments = [*(found.get(word, word) for word in words.split()), *node]
    if "STATE" in words:
        # What runs already, and has CPUs.
        mooring("plan", "-f", found["REFUSED"], *node, "--save-state", str(tmp_path), "--to", "/dev/null")

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))

    command = [sys.executable, "-m", "mooring", *arguments]
    ended = subprocess.run(command, preexec_fn=limit, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    assert ended.returncode in (0, 1), ended.stderr.decode()[-400:]
    assert b"Error" not in ended.stderr
