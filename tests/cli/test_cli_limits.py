"""Large questions are answered within an amount of memory and of CPU time that grows with the pods and no faster."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.command import NODE

GB = 2**30
CONFIG = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 200000\n"


def _pods(path: Path, count: int, name: str = "web") -> Path:
    """Write pods, each of which is small and lets the next one in."""
    resources = {"requests": {"cpu": "1m", "memory": "1Mi"}, "limits": {"memory": "2Mi"}}
    items = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{name}-{number:06d}", "namespace": "default"},
            "spec": {"containers": [{"name": "main", "image": "web:1", "resources": resources}]},
        }
        for number in range(count)
    ]
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}), encoding="utf-8")
    return path


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "count", "memory", "seconds"),
    [
        (("plan", "-f", "PODS"), 20_000, GB // 2, 300),
        (("plan", "-o", "json", "-f", "PODS"), 20_000, GB // 2, 300),
        (("explain", "-f", "PODS", "web-000000"), 2_000, GB, 120),
        (("whatif", "--set", "topologyManagerPolicy=restricted", "-f", "PODS"), 2_000, GB, 120),
        (("capacity", "--active", "PODS", "-f", "ONE"), 2_000, GB, 120),
    ],
    ids=["plan", "plan-json", "explain", "whatif", "capacity"],
)
def test_a_verb_keeps_its_limits_of_memory_and_time(
    words: tuple[str, ...], count: int, memory: int, seconds: int, tmp_path: Path
) -> None:
    found = {"PODS": str(_pods(tmp_path / "pods.json", count)), "ONE": str(_pods(tmp_path / "one.json", 1, "asked"))}
    config = tmp_path / "kubelet.yaml"
    config.write_text(CONFIG, encoding="utf-8")

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))

    arguments = [found.get(word, word) for word in words]
    command = [sys.executable, "-m", "mooring", *arguments, *NODE[:2], "--config", str(config), "--to", "/dev/null"]
    ended = subprocess.run(command, preexec_fn=limit, capture_output=True, check=False)
    assert ended.returncode in (0, 1), ended.stderr.decode()[-400:]
    assert b"Error" not in ended.stderr
