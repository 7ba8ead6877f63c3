"""A node whose agent and runtime talk through a proxy that does harm, and what must hold when the harm is over."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import cast

import pytest
from tests.agent.laws_agent import differences, overlaps
from tests.agent.simulated_agent import SimulatedAgent
from tests.agent.small_node import nodes
from tests.agent.wire import faults
from tests.agent.wire.fault_proxy import Act, Fault, FaultProxy, Way
from tests.agent.wire.wired_runtime import NEW, OLD, Kubelet, Manners, WiredRuntime, until
from tests.service.recorded_log import RecordedLog

from mooring.agent.agent import Agent
from mooring.agent.cgroups.cpuset import Cpuset, parsed
from mooring.agent.cgroups.files import CGroupTrouble
from mooring.agent.cgroups.protocol import CPUSetWritten, Deviation, UnseenCGroups, shows
from mooring.agent.effects import WriteCPUSet
from mooring.agent.nri import plugin
from mooring.agent.startup import Startup
from mooring.engine.core.bits import list_text
from mooring.inputs.machines.loader import load_machine
from mooring.service.agent_configuration import load_agent_configuration

MACHINE = "sockets=1 numa=2 cores=16 threads=1 memory=32Gi"
CPUS = "0-15"
ALL_CPUS = 0xFFFF
MEMORY_FOLDER = Path("/dev/shm")  # noqa: S108 - below it a folder of our own is made
_CONFIGURATION = """\
kind: KubeletConfiguration
cpuManagerPolicy: static
topologyManagerPolicy: best-effort
reservedSystemCPUs: "0"
---
kind: AgentConfiguration
stateDir: {folder}/state
nriSocket: {folder}/proxy.sock
statusSocket: ""
podResourcesSocket: ""
metricsAddress: ""
replyBudget: 60s
"""


@dataclass
class RuntimeCGroups(UnseenCGroups):
    """The control groups of the simulated runtime's containers."""

    wired: WiredRuntime

    def write_cpuset(self, wanted: WriteCPUSet) -> CPUSetWritten:
        before = self.in_effect(wanted)
        wrote = self.wired.runtime.write_cgroup(wanted.container_id, str(wanted.cpus), list_text(wanted.mems))
        return CPUSetWritten(wanted, before, self.in_effect(wanted), wrote, None if before else CGroupTrouble.GONE)

    def in_effect(self, place: WriteCPUSet) -> Cpuset | None:
        made = self.wired.runtime.processes.get(place.container_id)
        if made is None or not made.runs:
            return None
        return Cpuset(parsed(made.cgroup.cpus or CPUS), nodes(made.cgroup.mems or "0-1"))

    def deviations(self, wanted: Iterable[WriteCPUSet]) -> tuple[Deviation, ...]:
        seen = [(one, self.in_effect(one)) for one in wanted]
        return tuple(Deviation(one, found) for one, found in seen if found is not None and not shows(found, one))


@dataclass
class FaultyNode:
    """An agent on a runtime, with the proxy between."""

    wired: WiredRuntime
    proxy: FaultProxy
    agent: Agent
    kubelet: Kubelet
    log: RecordedLog

    def is_settled(self) -> bool:
        """Tell whether both sides say that they are connected, and the agent of the runtime's newest connection."""
        return self.wired.has_plugin and self.agent.snapshot.runtime.synchronized

    def recover(self) -> None:
        """Wait until agent and runtime have found together again, and hold them to what must be then."""
        until(self._is_used_again, "a pod lives without anybody being given up")
        until(self._is_right, "a pod lives over a connection on which nobody is in a hurry")

    def _is_right(self) -> bool:
        """Let a pod live with patience, so that nothing is left out or refused for time, and hold both sides to it."""
        with self.wired.waiting_long():
            if not self._is_used_again():
                return False
            self.check()
        return True

    def _is_used_again(self) -> bool:
        """Let a pod live over a connection, and tell whether it is still the same one afterwards."""
        until(self.is_settled, "agent and runtime are together again")
        before = self.wired.synchronized
        assert self.overlaps() == []
        # A reply carries what the runtime's record lacks: that of this one's end.
        self.kubelet.end(self.kubelet.run("flush", 0))
        return self.is_settled() and self.wired.synchronized == before

    def overlaps(self) -> list[str]:
        """Return who may run on somebody else's exclusive CPUs."""
        return self.wired.does(lambda runtime: [*overlaps(runtime, self.agent.holder.state, ALL_CPUS)])

    def check(self) -> None:
        """Hold the agent's state to the runtime's record and to the cgroups."""
        state = self.agent.holder.state
        view = cast("SimulatedAgent", self.agent.holder)
        assert self.wired.does(lambda runtime: [*differences(runtime, view)]) == []
        assert self.overlaps() == []
        uids = {one.uid for one in self.wired.runtime.sandboxes.values()}
        assert state.kubelet.node.active.keys() <= uids
        assert state.kubelet.node.cpu.assignments.keys() <= uids
        assert state.containers.keys() == self.wired.runtime.processes.keys()
        self.check_health()

    def check_health(self) -> None:
        """See to it that nothing in the agent broke."""
        assert self.agent.failure is None
        assert not self.agent.is_over
        assert self.log.events("error") == []
        assert [line for line in self.wired.heard if "internal error" in line[1]] == []

    def meet(self, fault: Fault, lives: Callable[[], object]) -> bool:
        """Let pods live through a fault, counted from a new connection on, and recover; return whether it happened."""
        before = self.wired.synchronized
        self.proxy.plan(fault)
        self.proxy.cut()
        until(lambda: self.wired.synchronized > before or not self.proxy.done.empty(), "a connection or the fault")
        lives()
        has_happened = not self.proxy.done.empty()
        while not self.proxy.done.empty():
            self.proxy.done.get()
        self.proxy.plan(None)
        self.recover()
        return has_happened

    def suffer(self, fault: Fault, *, patient: bool) -> bool:
        """Live through a fault, from a new connection on; return whether it came to pass.

        Args:
            fault: is counted from the new connection on.
            patient: whether the kubelet waits for the agent after it, before it goes on.
        """
        has_happened = self.meet(fault, lambda: live(self, patient=patient))
        self.kubelet.end_all()
        self.recover()
        state = self.agent.holder.state
        assert not state.kubelet.node.active
        assert not state.held
        assert str(state.kubelet.node.shared_pool) == CPUS
        return has_happened


def live(node: FaultyNode, *, patient: bool) -> None:
    """Run pods through what the fault makes of it, and leave some of them."""

    def go_on() -> None:
        if patient and not node.wired.has_plugin:
            until(node.is_settled, "agent and runtime are together again")

    kubelet = node.kubelet
    first = kubelet.run("first", 0)
    go_on()
    own = kubelet.run("own", 2)
    go_on()
    kubelet.run("both", 1, 1)
    go_on()
    shared = [made.id for made in node.wired.runtime.processes.values() if made.sandbox == first]
    for one in shared:
        kubelet.resize(one, 512)
        go_on()
    kubelet.end(own)
    go_on()
    kubelet.run("last", 3)


@contextlib.contextmanager
def faulty_node(manners: Manners) -> Iterator[FaultyNode]:
    """Run all three until the end of the block; inside, the agent is connected. No thread or socket stays behind."""
    before = _handles()
    folder = Path(tempfile.mkdtemp(prefix="wire-", dir=MEMORY_FOLDER if MEMORY_FOLDER.is_dir() else None))
    file = folder / "agent.yaml"
    file.write_text(_CONFIGURATION.format(folder=folder), encoding="utf-8")
    load = partial(load_agent_configuration, str(file))
    wired, log = WiredRuntime(folder / "nri.sock", manners), RecordedLog()
    proxy = FaultProxy(folder / "proxy.sock", wired.path)
    agent = Agent(Startup(load(), load, load_machine(MACHINE), RuntimeCGroups(wired), "edge-7"), log)
    over = threading.Event()

    def reconcile() -> None:
        while not over.wait(0.1):
            agent.reconcile()

    caretaker = threading.Thread(target=reconcile, name="caretaker", daemon=True)
    made = FaultyNode(wired, proxy, agent, Kubelet(wired), log)
    try:
        agent.start()
        caretaker.start()
        until(made.is_settled, "agent and runtime are together")
        yield made
        made.check_health()
    finally:
        over.set()
        caretaker.join(60)
        agent.close()
        proxy.close()
        wired.close()
        shutil.rmtree(folder)
    until(lambda: _handles() <= before, "threads and sockets are gone")


def _handles() -> tuple[int, int]:
    return threading.active_count(), sum(1 for _ in Path("/proc/self/fd").iterdir())


# The agent's main loop against a runtime whose connection goes wrong, at every frame and in every way.
#
# After each fault agent and runtime find together again, nobody runs on CPUs of others, and the state is the runtime's
# record. The tests take some frames; ``MOORING_WIRE=all`` takes every one (ten minutes).


IS_ALL = os.environ.get("MOORING_WIRE") == "all"
FRAMES = 33
"""Frames that go either way in the lives of a test, from the registration on, when nothing goes wrong."""
LONG = {"mooring-test/long": "x" * 10_000}
"""Makes three frames or four of a request, so that there are some to be mixed up."""
LONG_FRAMES = 96
TRIES = 10
"""How often lives are lived until a fault comes to pass."""
SHORT = 0.3
"""Seconds that a runtime waits here where it is to be kept waiting."""

INTRUDERS = [
    faults.garbage,
    faults.unknown_connection,
    faults.endless_frame,
    faults.endless_message,
    faults.eats_what_follows,
    faults.large_request,
    faults.answer_to_nobody,
]


def suffer_at(node: FaultyNode, way: Way, act: Act, *numbers: int, frames: int = FRAMES) -> None:
    """Have frames go wrong, each in lives of its own: those with these numbers, or all that there are when asked to.

    How many there are depends on what the runtime has to say, and how often; about ``frames``.
    """

    def is_suffered(number: int) -> bool:
        # A runtime with little patience on a busy machine may go on without the agent before it comes to pass.
        return any(node.suffer(Fault(way, number, act), patient=number % 2 == 0) for _ in range(TRIES))

    if IS_ALL:
        reached = next(number for number in count() if not is_suffered(number))
        print(f"{reached} frames {way.name}")
        assert reached > frames // 2
        return
    for number in numbers:
        assert is_suffered(number), f"frame {number} was never reached"


@pytest.mark.parametrize("act", [faults.cut_before, faults.cut_within, faults.cut_after], ids=lambda act: act.__name__)
def test_a_connection_may_be_cut_at_any_frame(act: Act) -> None:
    with faulty_node(OLD) as node:
        suffer_at(node, Way.TO_RUNTIME, act, 2, 8)
    with faulty_node(NEW) as node:
        suffer_at(node, Way.TO_PLUGIN, act, 12, 27)


@pytest.mark.parametrize("act", [faults.duplicate, faults.swap, faults.overwritten], ids=lambda act: act.__name__)
def test_frames_may_come_twice_in_another_order_or_as_nonsense(act: Act) -> None:
    with faulty_node(replace(NEW, timeout=SHORT)) as node:
        node.kubelet.annotations.update(LONG)
        suffer_at(node, Way.TO_PLUGIN, act, 7, frames=LONG_FRAMES)
        suffer_at(node, Way.TO_RUNTIME, act, 4)


def test_something_that_nobody_sent_may_come_between_frames() -> None:
    with faulty_node(replace(OLD, timeout=SHORT)) as node:
        for place, act in enumerate(INTRUDERS):
            suffer_at(node, Way.TO_PLUGIN, act, 5 * place)


@pytest.mark.parametrize(
    "act", [faults.late(2 * SHORT), faults.lose, faults.deafen, faults.half_close], ids=["late", "lost", "deaf", "half"]
)
def test_a_runtime_that_waited_too_long_goes_on_and_takes_the_agent_back(act: Act) -> None:
    with faulty_node(replace(NEW, timeout=SHORT, registration_timeout=1.0)) as node:
        suffer_at(node, Way.TO_RUNTIME, act, 5)
        suffer_at(node, Way.TO_PLUGIN, act, 16)


@pytest.mark.parametrize("manners", [OLD, NEW], ids=["nri-0.8", "nri-0.12"])
def test_an_agent_whose_runtime_hung_up_unheard_comes_back(manners: Manners, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin, "QUIET_SECONDS", 0.3)
    monkeypatch.setattr(plugin, "PATIENCE_SECONDS", 0.3)
    with faulty_node(replace(manners, timeout=SHORT, registration_timeout=1.0)) as node:
        suffer_at(node, Way.TO_PLUGIN, faults.go_silent, 3)


def lives_by_chance(node: FaultyNode, chance: random.Random, name: str) -> None:
    """Run a few pods of all sorts, change and end others; some stay for the next time."""
    kubelet, runtime = node.kubelet, node.wired.runtime
    for number in range(chance.randrange(2, 6)):
        running = [made.id for made in runtime.processes.values() if made.runs]
        match chance.randrange(5):
            case 0 if running:
                kubelet.resize(chance.choice(running), chance.choice((2, 256, 2048)))
            case 1 if running:
                kubelet.stop(chance.choice(running))
            case 2 if runtime.sandboxes:
                kubelet.end(chance.choice([*runtime.sandboxes]))
            case _:
                kubelet.run(
                    f"{name}-{number}", *chance.choice(((0,), (0, 0), (1,), (2,), (1, 1), (3,), (2, 1, 1), (9,)))
                )
        if chance.random() < 0.3 and not node.wired.has_plugin:
            until(node.is_settled, "agent and runtime are together again")
    while len(runtime.sandboxes) > 10:
        kubelet.end(next(iter(runtime.sandboxes)))


@pytest.mark.parametrize("manners", [OLD, NEW], ids=["nri-0.8", "nri-0.12"])
def test_one_fault_after_another_among_pods_that_stay_leaves_nothing_wrong(manners: Manners) -> None:
    chance = random.Random(manners.introduction.version)  # noqa: S311 - the same faults in every run
    acts = [
        faults.cut_before,
        faults.cut_within,
        faults.cut_after,
        faults.duplicate,
        faults.swap,
        faults.overwritten,
        faults.late(2 * SHORT),
        faults.lose,
        faults.deafen,
        faults.half_close,
    ]
    with faulty_node(replace(manners, timeout=SHORT, registration_timeout=1.0)) as node:
        for number in range(200 if IS_ALL else 3):
            fault = Fault(chance.choice([*Way]), chance.randrange(FRAMES), chance.choice([*acts, *INTRUDERS]))
            node.meet(fault, partial(lives_by_chance, node, chance, f"pod{number}"))
