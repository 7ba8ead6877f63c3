"""Resizes of running containers through a real containerd: ``make e2e``.

On a machine of 256 CPUs that the wrapped runc plays, with real containers that read their own files, and on the real
cgroups of this machine as far as two CPUs go.
"""

from __future__ import annotations

import json
import logging
import os
import time
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.containerd.agent_process import AgentProcess, agent_on, pod_on, whole_cpus
from tests.e2e.containerd.cri import MESSAGES, CRIError, Pod
from tests.e2e.containerd.runtime import Runtime, read_cgroup
from tests.e2e.containerd.watch import agent_of_played_machine
from tests.e2e.containerd.wrapper import write_wrapper
from tests.e2e.runtimes import running
from tests.patience import until

CONFIGURATION = """\
kind: KubeletConfiguration
apiVersion: kubelet.config.k8s.io/v1beta1
cpuManagerPolicy: static
reservedSystemCPUs: "{reserved}"
cpuManagerPolicyOptions: {{scale-delay-time: "{delay}"}}
featureGates: {{CPUManagerPolicyAlphaOptions: true, InPlacePodVerticalScalingExclusiveCPUs: true}}
---
kind: MooringConfiguration
apiVersion: mooring/v1alpha1
extensions: [exclusive-resize, scale-down-delay, assigned-cpuset]
fixedDefects: [pod-restart]
---
kind: AgentConfiguration
apiVersion: mooring/v1alpha1
stateDir: {folder}/state-of-agent
nriSocket: {socket}
replyBudget: 4s
assignedDir: {folder}/assigned
statusSocket: {folder}/agent.sock
podResourcesSocket: ""
metricsAddress: ""
logLevel: debug
"""
INSIDE = "/run/mooring-assigned/assigned.cpuset"
ROUNDS = int(os.environ.get("MOORING_E2E_RESIZES", "5"))
FAST = 0.05
"""Seconds in which a container sees what it was resized to, on a quiet machine: at the full size of 50 resizes."""
FULL = 50
_log = logging.getLogger(__name__)


def configuration(node: Runtime, delay: str, reserved: str = "0-1") -> str:
    return CONFIGURATION.format(folder=node.folder, socket=node.nri_socket, delay=delay, reserved=reserved)


def large(node: Runtime, delay: str) -> dict[str, Any]:
    """Return what makes an agent one of the large machine."""
    return {**agent_of_played_machine(node.folder), "configuration": configuration(node, delay)}


def asking(node: Runtime, name: str) -> Pod:
    """Run the sandbox of a pod that asks to be told its CPUs."""
    parent = f"{node.cgroup_parent}/pod{name}"
    return node.cri.run_pod(name, f"uid-{name}", parent, annotations={"mooring/assigned": "true"})


def container(agent: AgentProcess, name: str) -> dict[str, Any]:
    return next(one for pod in agent.status()["pods"] for one in pod["containers"] if one["name"] == name)


def pid_of(node: Runtime, container: str) -> int:
    request = MESSAGES["ContainerStatusRequest"](container_id=container, verbose=True)
    answer = node.cri.call("ContainerStatus", request, "ContainerStatusResponse")
    return int(json.loads(answer.info["info"])["pid"])


@pytest.fixture
def played(parts: Any, folder: Path) -> Any:
    with running(parts, folder, oci_runtime=write_wrapper(folder, parts.runc, cpus="0-1", mems="0")) as node:
        yield node


def test_a_container_is_told_its_cpus_in_files_that_it_can_read_and_not_write(played: Runtime) -> None:
    node = played
    with agent_on(node, **large(node, "0s")):
        own = node.cri.run(asking(node, "own"), "a", resources=whole_cpus(4))
        cpus = node.cri.recorded_cpus(own)
        assert node.cri.execute(own, "cat", INSIDE) == cpus
        assert node.cri.execute(own, "sh", "-c", "echo $MOORING_CPUSET") == f"{cpus}\n"
        assert node.cri.execute(own, "busybox", "stat", "-c", "%a", INSIDE) == "444\n"
        for attempt in (f"echo 0 > {INSIDE}", f"busybox rm -f {INSIDE}", "echo > /run/mooring-assigned/other"):
            assert node.cri.execute(own, "sh", "-c", f"({attempt}) 2> /dev/null || echo no") == "no\n"
        mount = node.cri.execute(own, "grep", " /run/mooring-assigned ", "/proc/mounts").split()
        assert {"ro", "nosuid", "nodev", "noexec"} <= {*mount[3].split(",")}
        quiet = node.cri.run(pod_on(node, "quiet"), "b", resources=whole_cpus(1))
        assert node.cri.execute(quiet, "sh", "-c", "busybox ls /run/mooring-assigned 2> /dev/null || echo no") == "no\n"
        node.cri.stop(own)
        node.cri.remove(own)
        until(lambda: not (node.folder / "assigned" / own).exists(), "the files are gone")


def test_a_container_grows_at_once_and_gives_back_after_its_delay(played: Runtime) -> None:
    node = played
    with agent_on(node, **large(node, "2s")) as agent:
        pod = asking(node, "own")
        shared = node.cri.run(pod_on(node, "shared"), "s")
        own = node.cri.run(pod, "a", resources=whole_cpus(4))
        first = node.cri.recorded_cpus(own)
        node.cri.update(own, **whole_cpus(8))
        grown = node.cri.recorded_cpus(own)
        until(lambda: node.cri.execute(own, "cat", INSIDE) == grown, "the container is told what it got")
        assert not set(expanded(grown)) & set(expanded(node.cri.recorded_cpus(shared)))
        began = time.monotonic()
        node.cri.update(own, **whole_cpus(4))
        assert node.cri.execute(own, "cat", INSIDE) == first
        assert (node.cri.recorded_cpus(own), container(agent, "a")["cpus"]) == (grown, grown)
        assert container(agent, "a")["pending"]["cpus"] == first
        until(lambda: container(agent, "a")["cpus"] == first, "the CPUs have gone back")
        assert time.monotonic() - began >= 2
        # The runtime's record follows with the next reply.
        node.cri.update(shared, cpu_shares=4)
        assert node.cri.recorded_cpus(own) == first
        assert set(expanded(grown)) - set(expanded(first)) <= set(expanded(node.cri.recorded_cpus(shared)))


def test_a_killed_agent_begins_the_nodes_delay_anew(played: Runtime) -> None:
    node = played
    with agent_on(node, **large(node, "2s")) as agent:
        own = node.cri.run(asking(node, "own"), "a", resources=whole_cpus(2))
        first = node.cri.recorded_cpus(own)
        node.cri.update(own, **whole_cpus(6))
        node.cri.update(own, **whole_cpus(2))
        agent.end()
        began = time.monotonic()
        agent.start()
        assert container(agent, "a")["pending"]["cpus"] == first
        assert node.cri.execute(own, "cat", INSIDE) == first
        until(lambda: container(agent, "a")["cpus"] == first, "the CPUs have gone back")
        assert time.monotonic() - began >= 2


def test_a_container_sees_what_it_is_resized_to_within_a_short_time(played: Runtime) -> None:
    node = played
    with agent_on(node, **large(node, "10s")):
        own = node.cri.run(asking(node, "own"), "a", resources=whole_cpus(2))
        file = Path(f"/proc/{pid_of(node, own)}/root{INSIDE}")
        times: dict[str, list[float]] = {"growth": [], "shrink": []}
        for number in range(ROUNDS):
            before = file.read_text("ascii")
            began = time.monotonic()
            node.cri.update(own, **whole_cpus(4 - 2 * (number % 2)))
            while file.read_text("ascii") == before:
                assert time.monotonic() - began < 10
            times["shrink" if number % 2 else "growth"].append(time.monotonic() - began)
        for what, found in times.items():
            middle = sorted(found)[len(found) // 2]
            _log.info(
                "%s: %d seen after a median of %.1f ms, at most %.1f ms",
                what,
                len(found),
                *(1000 * one for one in (middle, max(found))),
            )
            if ROUNDS >= FULL:
                assert middle < FAST


@pytest.mark.skipif(sorted(os.sched_getaffinity(0)) != [0, 1], reason="the expected CPUs are those of two")
def test_on_real_cgroups_a_refused_resize_leaves_cpus_quota_and_shares(node: Runtime) -> None:
    with agent_on(node, configuration=configuration(node, "0s", reserved="0")) as agent:
        pod = asking(node, "own")
        own = node.cri.run(pod, "a", resources=whole_cpus(1))

        def seen() -> tuple[str, ...]:
            group = node.container_cgroup(pod, own)
            return (
                read_cgroup(group, "cpuset", "cpuset.cpus"),
                *(read_cgroup(group, "cpu", name) for name in ("cpu.cfs_quota_us", "cpu.shares")),
                node.cri.execute(own, "cat", INSIDE),
            )

        before = seen()
        assert before[0] == before[-1] == "1"
        for wanted in (2, 3):
            with pytest.raises(CRIError) as raised:
                node.cri.update(own, **whole_cpus(wanted))
            assert "ResizeAllocateCPUs Error" in str(raised.value) or "Node didn't have enough" in str(raised.value)
            assert seen() == before
        assert container(agent, "a")["resize"]["reason"] in ("Infeasible", "Deferred")


def expanded(cpus: str) -> list[int]:
    parts = (part.partition("-") for part in cpus.split(","))
    return [cpu for first, _, last in parts for cpu in range(int(first), int(last or first) + 1)]
