"""What is so beside a real CRI-O only; all else is tested in ``tests/e2e/containerd``: ``make e2e-crio``."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from tests.e2e.containerd.agent_process import AgentProcess, agent_on, pod_on, whole_cpus
from tests.e2e.containerd.runtime import CGROUPS, UNIFIED, Runtime, cgroup_file
from tests.patience import until

pytestmark = pytest.mark.skipif(
    sorted(os.sched_getaffinity(0)) != [0, 1], reason="the expected CPUs are those of a machine with two"
)

TREE = str(CGROUPS if UNIFIED else CGROUPS / "cpuset")
_READ_ONLY = f'mount --bind {TREE} {TREE} && mount -o remount,bind,ro {TREE} && exec "$@"'
WITHOUT_WRITING = ("unshare", "--mount", "--propagation", "private", "sh", "-c", _READ_ONLY, "sh")
"""Words that run a program which can read the cpusets of this machine and cannot write them."""


def test_a_container_that_runs_although_its_start_was_refused_is_reported_and_corrected(crio: Runtime) -> None:
    with agent_on(crio, program=(*WITHOUT_WRITING, sys.executable, "-m", "mooring")) as agent:
        shared_pod, own_pod = pod_on(crio, "shared"), pod_on(crio, "own")
        shared = crio.cri.create(shared_pod, "a")
        own = crio.cri.run(own_pod, "b", resources=whole_cpus(1))
        # As if the runtime had lost the update that moves it away.
        group = crio.container_cgroup(shared_pod, shared)
        cgroup_file(group, "cpuset", "cpuset.cpus").write_text("0-1\n", encoding="utf-8")
        crio.cri.start(shared)
        assert crio.cri.containers()[shared] == "RUNNING", "CRI-O starts what a plugin refuses"
        until(lambda: agent.status()["cpus"]["overlap"] == "1", "the overlap is reported")
        assert any("run although their start was refused (1)" in one for one in agent.status()["reasons"])
        until(lambda: "started-despite-refusal" in findings(agent), "it is in the log")
        remount = ["nsenter", "-t", str(agent.pid), "-m", "mount", "-o", "remount,bind,rw", TREE]
        subprocess.run(remount, check=True, timeout=30)
        until(lambda: crio.cpus_of(shared_pod, shared) == "0", "the cpuset is corrected", seconds=30)
        until(lambda: agent.status()["ready"], "the agent is ready")
        assert (agent.status()["cpus"]["overlap"], crio.cpus_of(own_pod, own)) == ("", "1")


def findings(agent: AgentProcess) -> set[str]:
    return {one["finding"] for one in agent.events("finding")}
