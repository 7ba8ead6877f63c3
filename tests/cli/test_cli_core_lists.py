"""Programs that name CPUs themselves: what the container gets instead is said, with a code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import mooring

CONFIG = "{kind: KubeletConfiguration, cpuManagerPolicy: static, reservedSystemCPUs: '0'}"


def planned(folder: Path, container: dict[str, Any]) -> tuple[str, list[str]]:
    container = {"name": "main", "resources": {"limits": {"cpu": 2, "memory": "1Gi"}}, **container}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "packet"}, "spec": {"containers": [container]}}
    (folder / "pod.yaml").write_text(json.dumps(pod))
    (folder / "kubelet.yaml").write_text(CONFIG)
    machine = ("--machine", "sockets=2 cores=16 threads=2 memory=64Gi", "--config", folder / "kubelet.yaml")
    explained = mooring("explain", "packet", "-f", folder / "pod.yaml", *machine, "-o", "json").document
    remarks = [one["message"] for one in explained["remarks"] if one["code"] == "MOOR-548"]
    return mooring("plan", "-f", folder / "pod.yaml", *machine).err, remarks


@pytest.mark.parametrize(
    ("container", "named", "written"),
    [
        ({"args": ["-l", "8,9"]}, "8-9", "-l 8,9"),
        ({"args": ["--lcores=(0,1)@(8-9),2@1"]}, "1,8-9", "--lcores=(0,1)@(8-9),2@1"),
        ({"command": ["sh", "-c", "exec taskset -c 8 app"]}, "8", "taskset -c 8"),
        ({"args": ["--cpuset", "$(CPUS)"], "env": [{"name": "CPUS", "value": "8-9"}]}, "8-9", "--cpuset 8-9"),
        ({"env": [{"name": "GOMP_CPU_AFFINITY", "value": "8 9"}]}, "8-9", "GOMP_CPU_AFFINITY=8 9"),
        ({"command": ["taskset", "0x300", "app"]}, "8-9", "taskset 0x300"),
    ],
)
def test_cores_that_the_container_does_not_get_are_named(
    tmp_path: Path, container: dict[str, Any], named: str, written: str
) -> None:
    told, remarks = planned(tmp_path, container)
    others = named.removeprefix("1,")
    verb = "are" if "-" in others else "is"
    said = f"container main names CPUs {named} ({written}), of which {others} {verb} not among those that it gets here"
    assert told.startswith(f"note[MOOR-548]: default/packet: {said} (1,17); ")
    assert [one.startswith(said) for one in remarks] == [True]


@pytest.mark.parametrize(
    "container",
    [
        {"args": ["-l", "1,17"]},
        {"args": ["-l", "8080"]},
        {"command": ["ls", "-l"], "args": ["-c", "8-9"]},
        {"args": ["-l", "2024-01-01"], "env": [{"name": "KMP_AFFINITY", "value": "compact"}]},
        {"args": [], "env": [{"name": "GOMP_CPU_AFFINITY"}]},
    ],
)
def test_cores_that_it_gets_and_other_numbers_are_no_word_worth(tmp_path: Path, container: dict[str, Any]) -> None:
    assert planned(tmp_path, container) == ("", [])
