"""A pod whose shim does not answer runs on without being listed: with real shims, made to hang by a signal."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.containerd.agent_process import AgentProcess, agent_on, pod_on, whole_cpus
from tests.e2e.containerd.cri import CRIError, Pod
from tests.e2e.containerd.runtime import Runtime, read_cgroup
from tests.patience import until

pytestmark = pytest.mark.skipif(
    sorted(os.sched_getaffinity(0)) != [0, 1], reason="the expected CPUs are those of a machine with two"
)
_SHIMS_LOADED = "id=io.containerd.grpc.v1.cri "
"""What containerd says after it has asked all shims for the first time, and before it asks them for their tasks. A shim
that hangs earlier is taken for dead, and its container is killed."""


def cpus(node: Runtime, pod: Pod, container: str) -> str:
    return read_cgroup(node.container_cgroup(pod, container), "cpuset", "cpuset.cpus")


def shim_of(node: Runtime, pod: Pod, container: str) -> int:
    """Return the process that looks after a container: the parent of its first."""
    pid = read_cgroup(node.container_cgroup(pod, container), "cpuset", "cgroup.procs").split()[0]
    return int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[1])


def told(agent: AgentProcess) -> set[tuple[str, str]]:
    """Return of which pods and containers the log says that they run unlisted."""
    found = [one for one in agent.events("finding") if one["finding"] == "runs-unlisted"]
    return {(one["pod"], one.get("container", "")) for one in found}


@contextlib.contextmanager
def restarted_beside(node: Runtime, shim: int) -> Iterator[None]:
    """Restart containerd so that a shim hangs when it is asked for its task; until the end of the block."""
    begins = len(node.log)
    node.kill(signal.SIGKILL)

    def hang() -> None:
        until(lambda: _SHIMS_LOADED in node.log[begins:], "containerd has loaded its shims", pause=0.001)
        os.kill(shim, signal.SIGSTOP)

    hanging = threading.Thread(target=hang)
    hanging.start()
    try:
        node.start()
        hanging.join()
        yield
    finally:
        hanging.join()
        with contextlib.suppress(ProcessLookupError):
            os.kill(shim, signal.SIGCONT)


def test_a_pod_that_the_runtime_does_not_list_keeps_its_cpus_until_it_ends(node: Runtime) -> None:
    with agent_on(node) as agent:
        shared_pod, own_pod, late_pod = (pod_on(node, name) for name in ("shared", "own", "late"))
        shared = node.cri.run(shared_pod, "a")
        own = node.cri.run(own_pod, "b", resources=whole_cpus(1))
        with restarted_beside(node, shim_of(node, own_pod, own)):
            until(lambda: agent.status()["counts"]["reconnects"] == 1 and agent.status()["ready"], "connected again")
            assert node.cri.containers() == {own: "UNKNOWN", shared: "RUNNING"}
            until(
                lambda: told(agent) == {("uid-own", ""), ("uid-own", own)},
                "both are told of: the sandbox and who is in it",
            )
            for _ in range(2):
                assert (cpus(node, own_pod, own), cpus(node, shared_pod, shared)) == ("1", "0")
                assert agent.status()["cpus"]["exclusive"] == "1"
                with pytest.raises(CRIError, match="not enough cpus available"):
                    node.cri.create(late_pod, "c", resources=whole_cpus(1))
                # An agent that comes back knows it from its journal only.
                agent.end(signal.SIGKILL)
                agent.start()
        node.restart(signal.SIGTERM)
        until(lambda: agent.status()["counts"]["reconnects"] >= 1 and agent.status()["ready"], "connected again")
        assert node.cri.containers() == {own: "RUNNING", shared: "RUNNING"}
        assert (cpus(node, own_pod, own), cpus(node, shared_pod, shared)) == ("1", "0")
        node.cri.remove_pod(own_pod.id)
        until(lambda: cpus(node, shared_pod, shared) == "0-1", "the pod that is gone has given its CPU back")
        late = node.cri.run(late_pod, "c", resources=whole_cpus(1))
        assert (cpus(node, late_pod, late), cpus(node, shared_pod, shared)) == ("1", "0")
