"""Leaving a node for good, and a runtime that wants nobody without the agent: with a real containerd and runc."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest
from tests.e2e.containerd.agent_process import AgentProcess, agent_on, pod_on, whole_cpus
from tests.e2e.containerd.cri import CRIError, Pod
from tests.e2e.containerd.runtime import UNIFIED, Runtime, cgroup_file, read_cgroup

pytestmark = pytest.mark.skipif(
    sorted(os.sched_getaffinity(0)) != [0, 1], reason="the expected CPUs are those of a machine with two"
)
QUOTA = "cpu.max" if UNIFIED else "cpu.cfs_quota_us"
REQUIRED_BY_CRIO = """
[crio.nri.default_validator]
nri_enable_default_validator = true
nri_validator_required_plugins = ["mooring"]
nri_validator_tolerate_missing_plugins_annotation = "mooring/without-agent"
"""
REQUIRED = """
[plugins.'io.containerd.nri.v1.nri'.default_validator]
  enable = true
  required_plugins = ["mooring"]
  tolerate_missing_plugins_annotation = "mooring/without-agent"
"""


def quota(path: str) -> str:
    return read_cgroup(path, "cpu", QUOTA).split()[0]


def cpus(node: Runtime, pod: Pod, container: str) -> str:
    return read_cgroup(node.container_cgroup(pod, container), "cpuset", "cpuset.cpus")


def left(agent: AgentProcess) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*agent.words(), "--leave"], capture_output=True, text=True, check=False, timeout=60)


def test_an_agent_that_leaves_gives_cpus_and_quotas_back_to_containers_that_run(node: Runtime) -> None:
    with agent_on(node) as agent:
        other_pod, own_pod = pod_on(node, "other"), pod_on(node, "own")
        # A kubelet with policy none limits the pod as a whole before its containers are made.
        cgroup_file(own_pod.cgroup_parent, "cpu", QUOTA).write_text("100000", encoding="ascii")
        other, own = node.cri.run(other_pod, "a"), node.cri.run(own_pod, "b", resources=whole_cpus(1))
        mine = node.container_cgroup(own_pod, own)
        assert (cpus(node, own_pod, own), cpus(node, other_pod, other)) == ("1", "0")
        assert {quota(mine), quota(own_pod.cgroup_parent)} <= {"max", "-1"}
        refused = left(agent)
        assert refused.returncode == 2
        assert "another agent uses this folder" in refused.stderr
        agent.end()
        done = left(agent)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == (
            "2 containers may use every CPU and memory node again, and 2 groups have their CFS quota restored.\n"
        )
        assert (cpus(node, own_pod, own), cpus(node, other_pod, other)) == ("0-1", "0-1")
        assert (quota(mine), quota(own_pod.cgroup_parent)) == ("100000", "100000")
        assert node.cri.recorded_cpus(own) == "0-1"
        node.cri.update(own, cpu_shares=512)
        assert (cpus(node, own_pod, own), quota(mine)) == ("0-1", "100000"), "the runtime's record is the same"
        agent.start()
        assert (cpus(node, own_pod, own), cpus(node, other_pod, other)) == ("1", "0"), "who comes again finds its state"


def test_a_runtime_that_requires_the_agent_starts_nobody_without_it(node: Runtime) -> None:
    if node.name.startswith("containerd 2.1."):
        pytest.skip(f"{node.name} has no validator of NRI plugins")
    is_crio = node.name == "CRI-O"
    with (node.folder / ("crio.conf" if is_crio else "config.toml")).open("a", encoding="utf-8") as file:
        file.write(REQUIRED_BY_CRIO if is_crio else REQUIRED)
    node.restart(signal.SIGTERM)
    pod = pod_on(node, "own")
    with pytest.raises(CRIError, match='required plugin "mooring" not present'):
        node.cri.create(pod, "early", resources=whole_cpus(1))
    with agent_on(node):
        own = node.cri.run(pod, "app", resources=whole_cpus(1))
        assert cpus(node, pod, own) == "1"
