"""Many containers at once on a machine of 256 CPUs that the wrapped runc plays: what runs is what the agent says."""

from __future__ import annotations

import random
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.containerd.agent_process import AgentProcess, agent_on, pod_on, whole_cpus
from tests.e2e.containerd.runtime import Containerd, running, until
from tests.e2e.containerd.wrapper import asked, write_wrapper

from mooring.core.cpuset import CPUSet

MACHINE = "sockets=2 numa=2 cores=128 threads=2 memory=512Gi"
CLIENTS = 8
CONTAINERS = 30
RESERVED = "0-1"


@dataclass(slots=True)
class Churn:
    """What clients do: each makes pods, and takes away about every second of them."""

    node: Containerd
    exclusive: dict[str, int] = field(default_factory=dict)
    """Container -> how many CPUs it asks for."""
    live: set[str] = field(default_factory=set)

    def one(self, number: int) -> None:
        chance = random.Random(number)  # noqa: S311 - the same pods in every run
        pod = pod_on(self.node, f"p{number}")
        count = chance.choice((0, 1, 2, 3, 8))
        container = self.node.cri.create(pod, "a", resources=whole_cpus(count) if count else None)
        if count:
            self.exclusive[container] = count
        self.live.add(container)
        self.node.cri.start(container)
        if chance.random() < 0.5:
            self.live.remove(container)
            self.node.cri.stop(container)
            self.node.cri.remove_pod(pod.id)


def last_asked(folder: Path) -> dict[str, CPUSet]:
    return {line.id: CPUSet.parse(line.cpus) for line in asked(folder) if line.cpus}


def told(agent: AgentProcess) -> dict[str, CPUSet]:
    """Return what the runtime has on record by the agent's word, by container id."""
    found: dict[str, CPUSet] = {}
    for pod in agent.status()["pods"]:
        for container in pod["containers"]:
            if "id" in container:
                found[container["id"]] = CPUSet.parse(container["told"]["cpus"])
    return found


def overlapping(churn: Churn, cpus: dict[str, CPUSet]) -> list[tuple[str, str]]:
    """Return pairs of live containers one of which is on exclusive CPUs of the other."""
    return [
        (one, other)
        for one, other in combinations(sorted(churn.live), 2)
        if {one, other} & churn.exclusive.keys() and cpus[one] & cpus[other]
    ]


@pytest.mark.parametrize("is_killed", [False, True], ids=["undisturbed", "killed"])
def test_eight_clients_at_once_never_make_two_containers_share_an_exclusive_cpu(
    parts: Any, folder: Path, is_killed: bool
) -> None:
    wrapper = write_wrapper(folder, parts.runc, python=Path(sys.executable), cpus="0-1", mems="0")
    with (
        running(parts, folder, oci_runtime=wrapper) as node,
        agent_on(node, machine=MACHINE, reserved=RESERVED) as agent,
    ):
        churn = Churn(node)
        with ThreadPoolExecutor(CLIENTS) as clients:
            ends = [clients.submit(churn.one, number) for number in range(CONTAINERS)]
            if is_killed:
                until(lambda: len(churn.live) >= 5, "some containers live")
                agent.end(signal.SIGKILL)
                until(lambda: len(churn.live) >= 8 or all(end.done() for end in ends), "some start anywhere")
                agent.start()
            for end in ends:
                end.result()

        def is_as_told() -> bool:
            found, said = last_asked(folder), told(agent)
            return said.keys() == churn.live and {one: found.get(one) for one in churn.live} == said

        until(is_as_told, "what runs is what the agent says")
        cpus = last_asked(folder)
        assert overlapping(churn, cpus) == []
        asked_for = {one: count for one, count in churn.exclusive.items() if one in churn.live}
        assert {one: len(cpus[one]) for one in asked_for} == asked_for
        status = agent.status()
        assert (status["cpus"]["overlap"], status["counts"]["rejections"]) == ("", 0)
        assert [line for line in agent.log if line["event"] == "an answer did not reach the runtime"] == []
