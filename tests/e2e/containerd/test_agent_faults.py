"""``mooring agent`` and a real containerd with a proxy between them that does harm, in every way and at any frame.

After each fault both find together again, nobody runs on CPUs of others, and what the agent says is what containerd has
on record and the kernel gives. Some frames by default (one to two minutes a containerd);
``MOORING_E2E_FAULTS=all`` takes every frame, ``MOORING_E2E_FAULTS=5`` every fifth.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.containerd.agent_process import AgentProcess, agent_on, pod_on, whole_cpus
from tests.e2e.containerd.cri import CRIError, Pod
from tests.e2e.containerd.fault_proxy import Act, Fault, FaultProxy, Way
from tests.e2e.containerd.faults import (
    cut_after,
    cut_before,
    cut_within,
    deafen,
    duplicate,
    eats_what_follows,
    endless_frame,
    garbage,
    go_silent,
    half_close,
    late,
    lose,
    overwritten,
    swap,
)
from tests.e2e.containerd.plugin import Watching, plugged
from tests.e2e.containerd.runtime import CGROUPS, UNIFIED, Runtime, read_cgroup
from tests.e2e.runtimes import running
from tests.patience import until

from mooring.agent.nri.session import PluginOptions
from mooring.agent.nri.types import Event

pytestmark = pytest.mark.skipif(
    sorted(os.sched_getaffinity(0)) != [0, 1], reason="the expected CPUs are those of a machine with two"
)
SIZE = os.environ.get("MOORING_E2E_FAULTS", "")
STEP = 1 if SIZE == "all" else int(SIZE or 0)
FRAMES = 24
"""Frames that go either way in the lives of a fault, from the registration on."""
Few = Mapping[Act, Sequence[int]]
"""The frames that are taken by default."""
CUTS: Few = {cut_before: (4,), cut_within: (12,), cut_after: (2, 16)}
MIXES: Few = {
    duplicate: (6,),
    swap: (4,),
    overwritten: (9,),
    garbage: (7,),
    endless_frame: (11,),
    eats_what_follows: (5,),
}
WAITS: Few = {late(2.0): (4,), lose: (6,), deafen: (13,), half_close: (9,)}


@dataclass
class FaultyNode:
    """A containerd and an agent with the proxy between, and what lives on them."""

    node: Runtime
    proxy: FaultProxy
    agent: AgentProcess
    live: dict[str, Pod] = field(default_factory=dict)
    """Pod by the container in it."""
    refusals: list[str] = field(default_factory=list)
    numbers: int = 0

    def run(self, cpus: int) -> tuple[Pod, str]:
        """Run a pod with one container; a refusal is tried again, as a kubelet does."""
        self.numbers += 1
        pod = pod_on(self.node, f"p{self.numbers}")
        made: list[str] = []

        def is_made() -> bool:
            resources = whole_cpus(cpus) if cpus else None
            try:
                container = self.node.cri.create(pod, "a", resources=resources, attempt=len(self.live))
                made.append(container)
                self.live[container] = pod
                self.node.cri.start(container)
            except CRIError as refusal:
                self.refusals.append(str(refusal))
                for container in made:
                    self.live.pop(container, None)
                    self.node.cri.remove(container)
                made.clear()
            return bool(made)

        until(is_made, "the container runs", seconds=60)
        return pod, made[0]

    def end(self, container: str) -> None:
        pod = self.live.pop(container)
        with contextlib.suppress(CRIError):
            # Refused by a plugin that was too slow or spoke nonsense; removing stops it again.
            self.node.cri.stop(container)
        self.node.cri.remove_pod(pod.id)
        # A kubelet's work; hundreds of empty groups are slow to take away at the end.
        for tree in CGROUPS.iterdir() if not UNIFIED else (CGROUPS,):
            with contextlib.suppress(OSError):
                (tree / pod.cgroup_parent.lstrip("/")).rmdir()

    def cpus(self, container: str) -> str:
        return read_cgroup(self.node.container_cgroup(self.live[container], container), "cpuset", "cpuset.cpus")

    def suffer(self, fault: Fault, *, seconds: float = 30.0) -> bool:
        """Live through a fault, from a new connection on; return whether it came to pass."""
        self.proxy.plan(fault)
        self.proxy.cut()
        until(lambda: min(self.proxy.passed.values()) >= 3 or not self.proxy.done.empty(), "a connection or the fault")
        _, shared = self.run(0)
        _, own = self.run(1)
        with contextlib.suppress(CRIError):
            self.node.cri.update(shared, cpu_shares=512)
        self.end(own)
        _, own = self.run(1)
        has_happened = not self.proxy.done.empty()
        while not self.proxy.done.empty():
            self.proxy.done.get()
        self.proxy.plan(None)
        self.recover(seconds)
        assert (self.cpus(own), self.cpus(shared)) == ("1", "0")
        assert self.agent.status()["cpus"]["exclusive"] == "1"
        self.end(own)
        self.end(shared)
        self.recover(seconds)
        status = self.agent.status()
        assert (status["pods"], status["held"], status["cpus"]["shared"]) == ([], [], "0-1")
        return has_happened

    def recover(self, seconds: float) -> None:
        """Wait until a container is created with the agent's word again, and hold all to it."""
        end = time.monotonic() + seconds
        while True:
            until(self.agent.is_ready, "the agent is ready", seconds=seconds)
            _, probe = self.run(0)
            wrong = self.wrong()
            self.end(probe)
            if not wrong:
                return
            assert time.monotonic() < end, wrong

    def on_record(self) -> dict[str, str]:
        """Return what containerd has on record, which only plugins are told: the CPU lists by container."""
        handler = Watching(events=frozenset({Event.REMOVE_POD_SANDBOX}))
        with plugged(self.node.nri_socket, handler, PluginOptions(name="looking", index="90")):
            return {one.id: one.resources.cpus for one in handler.synchronized[0][1]}

    def wrong(self) -> list[str]:
        """Return containers that agent, containerd and kernel do not agree about, and what else the agent has."""
        status = self.agent.status()
        said = {one["id"]: one["told"]["cpus"] for pod in status["pods"] for one in pod["containers"] if "id" in one}
        found = [f"only one of both has {one}" for one in said.keys() ^ self.live.keys()]
        record = self.on_record()
        for container in said.keys() & self.live.keys():
            three = (said[container], record[container], self.cpus(container))
            if len(set(three)) > 1:
                found.append(f"{container}: told {three[0]}, on record {three[1]}, in effect {three[2]}")
        return found


@pytest.fixture
def faulty(parts: Any, folder: Path) -> Iterator[FaultyNode]:
    with running(parts, folder, request_timeout="1s") as node:
        proxy = FaultProxy(folder / "proxy.sock", node.nri_socket)
        try:
            with agent_on(node, nri_socket=proxy.path) as agent:
                made = FaultyNode(node, proxy, agent)
                yield made
                assert [text for text in made.refusals if "internal error" in text] == []
        finally:
            proxy.close()


def suffer_all(faulty: FaultyNode, few: Few) -> None:
    chosen = [
        Fault(way, number, act)
        for act, numbers in few.items()
        for way in Way
        for number in (range(0, FRAMES, STEP) if STEP else numbers)
    ]
    happened = sum(faulty.suffer(fault) for fault in chosen)
    assert happened > len(chosen) * 3 // 4


def test_a_connection_may_be_cut_at_any_frame(faulty: FaultyNode) -> None:
    suffer_all(faulty, CUTS)


def test_frames_may_be_mixed_up_and_nonsense_come_between(faulty: FaultyNode) -> None:
    suffer_all(faulty, MIXES)


def test_answers_may_be_late_or_lost_and_a_connection_half_open(faulty: FaultyNode) -> None:
    suffer_all(faulty, WAITS)


@pytest.mark.skipif(not STEP, reason="takes a minute; MOORING_E2E_FAULTS=all runs it")
def test_an_agent_that_does_not_hear_its_runtime_hang_up_asks_and_comes_back(faulty: FaultyNode) -> None:
    assert faulty.suffer(Fault(Way.TO_PLUGIN, 6, go_silent), seconds=90.0)
