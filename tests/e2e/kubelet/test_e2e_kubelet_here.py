"""Kubelet, agent, containerd and runc on this computer as it is, down to its control groups."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from tests.e2e.containerd.runtime import CGROUPS, UNIFIED, Runtime, running
from tests.e2e.kubelet.apiserver import PODS, APIServer
from tests.e2e.kubelet.arrival import arrive
from tests.e2e.kubelet.cases import Case, Wants, pod_of
from tests.e2e.kubelet.patience import until
from tests.e2e.kubelet.pinning import pinned
from tests.e2e.kubelet.placements import containers, planned

HERE = Case("here", "live", MappingProxyType({"cpuManagerPolicy": "static"}), 1, 2)
_QUOTA, _NO_QUOTA = ("cpu.max", "max 100000") if UNIFIED else ("cpu.cfs_quota_us", "-1")
_UNDOING = 11.0
"""Seconds in which a kubelet that wanted to would have put a cpuset back; its longest period is 10."""


@pytest.fixture
def node(parts: Any, cluster: APIServer, folder: Path) -> Iterator[Runtime]:  # noqa: ARG001 - network
    with running(parts, folder) as made:
        yield made


def group_of(node: Runtime, container: str, controller: str) -> Path:
    """Return the control group of a container."""
    root = (CGROUPS if UNIFIED else CGROUPS / controller) / node.cgroup_parent.lstrip("/")
    [found] = root.rglob(container)
    return found


def in_force(node: Runtime, controller: str, file: str) -> dict[str, str]:
    """Return a file of every container's control group, by ``POD/CONTAINER``."""
    found = {}
    for one in containers(node):
        with contextlib.suppress(FileNotFoundError, ValueError):
            text = (group_of(node, one.id, controller) / file).read_text(encoding="utf-8")
            found[one.place] = text.strip()
    return found


@pytest.mark.skipif(not {0, 1} <= os.sched_getaffinity(0), reason="needs CPUs 0 and 1")
def test_cpusets_and_quotas_in_the_kernel_are_the_plans_and_the_kubelet_leaves_them_alone(
    api: APIServer, kube: Any, node: Runtime, tmp_path: Path
) -> None:
    config = tmp_path / "kubelet.json"
    head = {"kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1"}
    config.write_text(json.dumps({**head, **HERE.policies, **HERE.reservations}), encoding="utf-8")
    with pinned(node, kube.kubelet, HERE, None, api=api) as both:
        stories = [
            pod_of("first", Wants("any")),
            pod_of("own", Wants("app", "1", "64Mi")),
            pod_of("late", Wants("any")),
        ]
        pods = arrive(api, node, HERE.name, stories, both.says_no)
        wanted = {place: cpus for place, (cpus, _) in planned(tmp_path, "live", config, pods).placements.items()}
        assert wanted["own/app"] not in ("", wanted["first/any"])
        until(lambda: in_force(node, "cpuset", "cpuset.cpus") == wanted, "the kernel has the plan's cpusets")
        threading.Event().wait(_UNDOING)
        assert in_force(node, "cpuset", "cpuset.cpus") == wanted
        assert in_force(node, "cpu", _QUOTA)["own/app"] == _NO_QUOTA
        assert both.agent.status()["cpus"]["overlap"] == ""
        assert both.agent.status()["counts"]["repairs"] == 0
        api.delete(f"{PODS}/own")
        everywhere = planned(tmp_path / "again", "live", config, pods[:1]).placements["first/any"][0]
        alone = {"first/any": everywhere, "late/any": everywhere}
        until(lambda: in_force(node, "cpuset", "cpuset.cpus") == alone, "all CPUs are shared again")
