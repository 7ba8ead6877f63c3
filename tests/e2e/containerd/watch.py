"""What is looked at while clients churn: nobody shares an exclusive CPU, and all who know something agree."""

from __future__ import annotations

import contextlib
import json
import logging
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from tests.e2e.containerd.agent_process import AgentProcess, agent_on
from tests.e2e.containerd.churn import Churn
from tests.e2e.containerd.kernel_world import KernelWorld
from tests.e2e.containerd.runtime import Runtime
from tests.e2e.containerd.world import World
from tests.patience import until

from mooring.agent.journal import read_newest
from mooring.engine.core.bits import CPUMask
from mooring.engine.core.cpuset import CPUSet

RESERVED = "0-1"
EVERY_NODE = "0-1"
ASKING = 0.1
"""Seconds between two questions to the agent: with hundreds of containers an answer is dear."""
_log = logging.getLogger(__name__)


def agent_of_played_machine(folder: Path, cpus: int = 256) -> dict[str, Any]:
    """Return what makes an agent one of the machine with two NUMA nodes that an OCI runtime plays."""
    module = "tests.e2e.containerd.pretended_cgroups"
    return {
        "machine": f"sockets=2 numa=2 cores={cpus // 2} threads=2 memory=512Gi",
        "program": (sys.executable, "-m", module, str(folder), f"0-{cpus - 1}", EVERY_NODE),
    }


@contextlib.contextmanager
def large_machine(
    starting: AbstractContextManager[Runtime], folder: Path, cpus: int = 256, **settings: Any
) -> Iterator[tuple[Runtime, AgentProcess]]:
    """Run an agent on the machine that the OCI runtime of a container runtime plays.

    Args:
        starting: starts the container runtime.
        folder: of the OCI runtime's log.
        cpus: of the machine, two of which are reserved.
        settings: further ones of the agent.
    """
    with (
        starting as node,
        agent_on(node, reserved=RESERVED, budget="4s", **agent_of_played_machine(folder, cpus), **settings) as agent,
    ):
        node.patience = 120
        yield node, agent


class Watch:
    """What is looked at while the clients work."""

    def __init__(self, node: Runtime, agent: AgentProcess, churn: Churn, world: World | KernelWorld) -> None:
        self.node, self.agent, self.churn, self.world = node, agent, churn, world

    def look(self) -> None:
        """Look at what is new; nobody may share an exclusive CPU."""
        self.world.look()
        assert not self.world.overlaps, "\n".join([*self.world.overlaps[:5], *self._shared_now()[:5]])

    def tell(self, when: str) -> None:
        world, churn = self.world, self.churn
        _log.info(
            "%s: %d lives, %d live, at most %d; %d cpusets written past the runtime, %d rejected, %d calls interrupted",
            when,
            world.lives,
            len(world.running),
            world.largest,
            world.written,
            churn.rejected,
            churn.interrupted,
        )

    def has_looked(self, steps: int) -> bool:
        """Look, and tell whether the clients have done so many steps."""
        self.look()
        return self.churn.steps >= steps

    def is_settled(self) -> bool:
        self.look()
        return self.agent.is_ready() and not self.world.sharing()

    def settle(self) -> None:
        """Wait until nobody shares an exclusive CPU, and from then on excuse nothing.

        A start that the runtime asked about while the agent was away may come long after: runc takes its time.
        """
        have_started = self.churn.all_started()
        with contextlib.suppress(AssertionError):
            what = "those that started meanwhile are in their places"
            self.churn.until(lambda: have_started() and self.is_settled(), what, seconds=120, pause=ASKING)
        wrong = [*self.agent.status()["reasons"], *self._shared_now()]
        assert not wrong, "\n".join(wrong[:60])
        self.world.mark("settled")
        self.look()

    def _shared_now(self) -> list[str]:
        """Return who shares an exclusive CPU, with what the agent says of both, in words."""
        status = self.agent.status()
        said = {
            one["id"]: f"{one['name']} {one['phase']} on {one['cpus'] or 'the pool'}, told {one['told']['cpus']}"
            for pod in status["pods"]
            for one in pod["containers"]
            if "id" in one
        }
        said |= {
            one["id"]: f"{one['name']} {one['phase']}, {pod['reason']}, told {one['told']['cpus']}"
            for pod in status["held"]
            for one in pod["running"]
        }
        sharing = self.world.sharing()
        history = [line for owner in {owner for owner, _ in sharing[:1]} for line in self._history(owner)]
        return [
            *history,
            *(
                f"{other} ({said.get(other, 'unknown')}) is on {self._common(owner, other)} of {owner} "
                f"({said.get(owner, 'unknown')})"
                for owner, other in sharing
            ),
        ]

    def _common(self, one: str, other: str) -> CPUSet:
        return CPUSet(CPUMask(self.world.cpus[one] & self.world.cpus[other]))

    def _history(self, container: str) -> list[str]:
        """Return what OCI runtime, agent and containerd wrote down about a container."""
        folder = self.node.folder
        return [
            f"{name}: {line[:400]}"
            for name in ("asked.jsonl", "agent.log", "log")
            if (folder / name).exists()
            for line in (folder / name).read_text(encoding="utf-8", errors="replace").splitlines()
            if container in line
        ]

    def compare(self) -> None:
        """Let the clients halt; then engine, state files, runtime's record and cpusets must say the same."""
        with self.churn.paused():
            with contextlib.suppress(AssertionError):
                until(lambda: not self._differences(), "what runs is what the agent says", seconds=30, pause=ASKING)
            found = self._differences()
            assert not found, "\n".join([*found[:20], *self._history(found[0].partition(":")[0])])
            status = self.agent.status()
            assert status["cpus"]["overlap"] == ""
            decided = {
                (pod["uid"], one["name"]): CPUSet.parse(one["cpus"])
                for pod in status["pods"]
                for one in pod["containers"]
                if one["cpus"]
            }
            until(lambda: _stored(self.agent) == decided, "the state file says the same", pause=ASKING)

    def _differences(self) -> list[str]:
        """Return what is not as the agent says, in words."""
        self.look()
        status = self.agent.status()
        said = {one["id"]: one for pod in status["pods"] for one in pod["containers"] if "id" in one}
        # CRI-O reports no start to an agent that it synchronizes meanwhile; the container has its CPUs already.
        started = {one for one, pod in said.items() if pod["phase"] == "running"}
        shared = CPUSet.parse(status["cpus"]["shared"])
        # A containerd that was killed in the middle of a creation may have forgotten the container, which runs on.
        listed = {one for one, state in self.node.cri.containers().items() if state == "RUNNING"}
        running = self.world.running & listed
        waiting = {one["id"] for pod in status["held"] for one in pod["running"]}
        found = [f"{one}: runs, and the agent does not know it" for one in running - said.keys() - waiting]
        found += [
            f"{one}: waits for CPUs on {CPUSet(CPUMask(self.world.cpus[one]))} instead of {shared}"
            for one in running & waiting
            if self.world.cpus[one] != shared.mask
        ]
        # One whose shim does not answer a containerd that was restarted is not listed, and runs on.
        found += [f"{one}: the agent takes it for running" for one in started - self.world.running]
        for one in running & said.keys():
            decided = CPUSet.parse(said[one]["cpus"]) or shared
            runs = CPUSet(CPUMask(self.world.cpus[one]))
            record = self.node.cri.recorded_cpus(one)
            wanted = self.churn.exclusive.get(one, 0)
            if runs != decided:
                found.append(f"{one}: runs on {runs} instead of {decided}")
            # Where a repair or a late message made the agent doubt the record, the next reply tells the container anew.
            told = CPUSet.parse(said[one]["told"]["cpus"])
            if told and CPUSet.parse(record) != told:
                found.append(f"{one}: the record is {record} and not {said[one]['told']}")
            if wanted and len(decided) != wanted:
                found.append(f"{one}: has {decided} and asked for {wanted}")
        return found


def _stored(agent: AgentProcess) -> dict[tuple[str, str], CPUSet]:
    """Return the exclusive CPUs of the state file."""
    document = json.loads((agent.journal.parent / "cpu_manager_state").read_text(encoding="utf-8"))
    return {
        (uid, name): CPUSet.parse(cpus)
        for uid, containers in document.get("entries", {}).items()
        for name, cpus in containers.items()
    }


def nothing_is_left(node: Runtime, agent: AgentProcess, *, was_restarted: bool = False) -> None:
    """See to it that after all pods are removed nobody remembers any, and no process and no cgroup is left.

    Args:
        node: whose pods were removed.
        agent: beside it.
        was_restarted: containerd was. Then no plugin is told of the end of pods from before (containerd's NRI learns
            containers anew and no pods), so that a pod that has no container then is remembered until the next
            Synchronize; a new agent has one.
    """
    for pod in node.cri.pods():
        # Of a creation that was interrupted: nobody was told of it, and a kubelet would find it as this does.
        node.cri.remove_pod(pod)
    if was_restarted:
        agent.end()
        agent.start()
    assert (node.cri.containers(), node.cri.pods()) == ({}, [])
    until(lambda: agent.status()["pods"] == [], "the agent has forgotten every pod")
    status = agent.status()
    assert (status["pods"], status["held"], status["cpus"]["exclusive"]) == ([], [], "")
    until(lambda: _stored(agent) == {}, "the state file is empty", pause=ASKING)
    stored = read_newest(agent.journal.read_text(encoding="utf-8"))[0]
    assert (stored.pods, stored.last_seen.containers) == ({}, {})
    if was_restarted:
        # A containerd that ends in the middle of a creation forgets the sandbox that it was making (2.1.9).
        return
    until(lambda: node.left_over() == (set(), []), "no process and no cgroup is left")
