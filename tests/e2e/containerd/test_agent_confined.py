"""The agent with the rights of ``deploy/agent/agent.yaml`` beside a real containerd: enough, and each is needed."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.containerd.agent_process import pod_on, whole_cpus
from tests.e2e.containerd.confined import ConfinedAgent, Rights, confined, everything
from tests.e2e.containerd.runtime import Runtime, cgroup_file
from tests.e2e.containerd.wrapper import write_wrapper
from tests.e2e.runtimes import running
from tests.patience import until

from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import InputError

pytestmark = pytest.mark.skipif(
    sorted(os.sched_getaffinity(0)) != [0, 1], reason="the expected CPUs are those of a machine with two"
)

INSIDE = "/run/mooring-assigned/assigned.cpuset"
_ATTEMPTS = """
import ctypes, os, socket
libc = ctypes.CDLL(None, use_errno=True)

def refused(name, call):
    try:
        done = call()
        code = ctypes.get_errno() if done == -1 else 0
    except OSError as error:
        code = error.errno
    print(name, os.strerror(code) if code else "ALLOWED", flush=True)

refused("mount", lambda: libc.mount(b"none", b"/dev", b"tmpfs", 0, None))
refused("user namespace", lambda: libc.unshare(0x10000000))
refused("namespace of a child", lambda: libc.syscall(56, 0x10000011, 0, 0, 0, 0))
refused("trace", lambda: libc.ptrace(16, os.getppid(), 0, 0))
refused("memory of others", lambda: os.open(f"/proc/{os.getppid()}/mem", os.O_RDWR))
refused("signal", lambda: os.kill(os.getppid(), 0))
refused("device", lambda: os.mknod("/dev/x", 0o20600, os.makedev(1, 1)))
refused("raw socket", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
refused("key ring", lambda: libc.syscall(250, 0, -3, 0, 0, 0))
refused("programs of the kernel", lambda: libc.syscall(321, 5, 0, 0))
refused("root file system", lambda: os.open("/evil", os.O_CREAT | os.O_WRONLY))
refused("configuration", lambda: os.open(CONFIG, os.O_WRONLY))
refused("kernel parameter", lambda: os.open("/proc/sys/kernel/hostname", os.O_WRONLY))
refused("interrupts", lambda: os.open("/proc/irq/default_smp_affinity", os.O_WRONLY))
refused("other files of root", lambda: os.open("/etc/shadow", os.O_RDONLY))
"""


@pytest.mark.parametrize("namespace", [False, True], ids=["host-cgroups", "cgroup-namespace"])
def test_without_capabilities_and_under_its_seccomp_profile_the_agent_does_all_of_its_work(
    node: Runtime, *, namespace: bool
) -> None:
    with confined(node, lambda rights: replace(rights, cgroup_namespace=namespace)) as agent:
        everything(node, agent)


def test_the_confined_agent_resizes_and_shows_containers_their_cpus(parts: Any, folder: Path) -> None:
    """On a larger machine, which a wrapped runc plays."""
    wrapper = write_wrapper(folder, parts.runc, cpus="0-1", mems="0")
    with running(parts, folder, oci_runtime=wrapper) as node, confined(node) as agent:
        agent.launch("--machine", "sockets=2 numa=2 cores=16 threads=2 memory=64Gi")
        until(lambda: agent.ended() or agent.is_ready(), "the agent is ready", seconds=40)
        pod = node.cri.run_pod(
            "own", "uid-own", f"{node.cgroup_parent}/podown", annotations={"mooring/assigned": "true"}
        )
        own = node.cri.run(pod, "a", resources=whole_cpus(4))
        first = node.cri.recorded_cpus(own)
        assert node.cri.execute(own, "cat", INSIDE) == first
        node.cri.update(own, **whole_cpus(8))
        grown = node.cri.recorded_cpus(own)
        assert set(CPUSet.parse(first)) < set(CPUSet.parse(grown))
        until(lambda: node.cri.execute(own, "cat", INSIDE) == grown, "the container reads its new CPUs")
        node.cri.update(own, **whole_cpus(4))
        assert (node.cri.recorded_cpus(own), node.cri.execute(own, "cat", INSIDE)) == (first, first)
        assert agent.end() == 0


def test_the_confined_agent_has_no_capability_and_cannot_get_one(node: Runtime) -> None:
    with confined(node) as agent:
        agent.start()
        text = Path(f"/proc/{agent.pid}/status").read_text(encoding="ascii")
        found = dict(line.split(":\t") for line in text.splitlines())
        assert {found[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {16 * "0"}
        assert (found["NoNewPrivs"], found["Seccomp"]) == ("1", "2")
        assert agent.end() == 0


def test_what_takes_over_the_confined_agent_reaches_nothing_else_of_the_node(node: Runtime) -> None:
    with confined(node) as agent:
        config = agent.folders["configuration"] / "agent.yaml"
        agent.program = (sys.executable, "-c", f"CONFIG = {str(config)!r}\n{_ATTEMPTS}")
        agent.launch()
        assert agent.code() == 0, agent.output
        assert len(agent.output.splitlines()) == _ATTEMPTS.count("refused(") - 1
        assert "ALLOWED" not in agent.output


@pytest.mark.parametrize("volume", ["state", "run", "cgroups", "runtime"])
def test_each_volume_is_needed(node: Runtime, volume: str) -> None:
    def taken(rights: Rights) -> Rights:
        return rights.without(volume) if volume == "runtime" else rights.read_only(volume)

    missed: dict[str, Callable[[ConfinedAgent], bool]] = {
        "state": lambda agent: "cannot be written" in reasons(agent),
        "run": lambda agent: agent.ended() and agent.code() == 2 and "status.sock" in agent.output,
        "cgroups": lambda agent: any(one["finding"] == "deviation-lasts" for one in agent.log if "finding" in one),
        "runtime": lambda agent: "not connected" in reasons(agent),
    }
    with confined(node, taken) as agent:
        agent.launch()
        if volume == "cgroups":
            until(lambda: agent.ended() or agent.is_ready(), "the agent is ready", seconds=40)
            own_pod = pod_on(node, "own")
            own = node.cri.run(own_pod, "b", resources=whole_cpus(1))
            group = node.container_cgroup(own_pod, own)
            cgroup_file(group, "cpuset", "cpuset.cpus").write_text("0-1\n", encoding="utf-8")
        until(lambda: missed[volume](agent), f"the agent misses {volume}", seconds=40)


def reasons(agent: ConfinedAgent) -> str:
    with contextlib.suppress(InputError):
        return "\n".join(agent.status()["reasons"])
    return ""
