"""Interrupts of this machine follow containers of a real containerd, and go back with them and with the agent."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from tests.e2e.containerd.agent_process import AgentProcess, agent_on, pod_on, whole_cpus
from tests.e2e.containerd.runtime import Runtime
from tests.e2e.containerd.test_agent_e2e_uninstall import left
from tests.patience import until

from mooring.agent.interrupts.files import IRQFiles
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.extensions.interrupts import NEW

pytestmark = pytest.mark.skipif(
    sorted(os.sched_getaffinity(0)) != [0, 1], reason="the expected CPUs are those of a machine with two"
)
FILES = IRQFiles()
CONFIGURATION = """\
kind: KubeletConfiguration
apiVersion: kubelet.config.k8s.io/v1beta1
cpuManagerPolicy: static
reservedSystemCPUs: "0"
---
kind: MooringConfiguration
apiVersion: mooring/v1alpha1
extensions: [irq-affinity]
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
irqAffinity: {mode}
logLevel: debug
"""


def shown() -> dict[int, CPUSet]:
    """Return where interrupts may go now, by number; :data:`NEW` stands for those to come."""
    return {one.number: one.allowed for one in FILES.read()}


@pytest.fixture
def before() -> Iterator[dict[int, CPUSet]]:
    """Where they may go before the agent came; they are there again in the end, whatever happens."""
    looked = FILES.read()
    there = {one.number: one.allowed for one in looked}
    movable = [one for one in looked if one.number != NEW and not one.managed]
    if not any(FILES.write(one.number, one.allowed) is None for one in movable):
        pytest.skip("this machine has no interrupt that may be moved")
    yield there
    for number, cpus in there.items():
        if shown().get(number, cpus) != cpus:
            FILES.write(number, cpus)


def on_second_cpu(there: dict[int, CPUSet]) -> set[int]:
    """Return the interrupts that may go to CPU 1 and could go elsewhere, too, by their number."""
    return {number for number, cpus in there.items() if 1 in cpus and len(cpus) > 1}


def managed() -> set[int]:
    return {one.number for one in FILES.read() if one.managed}


def configuration(node: Runtime, mode: str) -> str:
    return CONFIGURATION.format(folder=node.folder, socket=node.nri_socket, mode=mode)


def numbers(agent: AgentProcess, what: str) -> set[int]:
    """Return the numbers of the interrupts that the status names; none before the agent has looked."""
    return {one["number"] for one in agent.status().get("interrupts", {}).get(what, ())}


def test_interrupts_leave_the_cpu_of_a_container_and_come_back_after_it(
    node: Runtime, before: dict[int, CPUSet]
) -> None:
    concerned = on_second_cpu(before) - managed()
    with agent_on(node, configuration=configuration(node, "on")) as agent:
        own_pod = pod_on(node, "own")
        own = node.cri.run(own_pod, "a", resources=whole_cpus(1))
        assert node.cri.recorded_cpus(own) == "1"
        until(lambda: on_second_cpu(shown()) - managed() == set(), "no interrupt goes to CPU 1")
        until(lambda: numbers(agent, "moved") == concerned, "the agent says which it has moved")
        # Killed at any moment, the agent that comes again knows what it has moved.
        agent.end(signal.SIGKILL)
        agent.start()
        node.cri.remove_pod(own_pod.id)
        until(lambda: shown() == before, "every interrupt is where it was")
        node.cri.run(pod_on(node, "next"), "b", resources=whole_cpus(1))
        until(lambda: shown() != before, "interrupts have moved again")
        agent.end()
        assert left(agent).returncode == 0
        assert shown() == before


def test_a_dry_run_says_what_would_move_and_moves_nothing(node: Runtime, before: dict[int, CPUSet]) -> None:
    concerned = on_second_cpu(before) - managed()
    with agent_on(node, configuration=configuration(node, "dry-run")) as agent:
        node.cri.run(pod_on(node, "own"), "a", resources=whole_cpus(1))
        until(lambda: numbers(agent, "pending") == concerned, "the dry run tells of them")
        assert shown() == before
