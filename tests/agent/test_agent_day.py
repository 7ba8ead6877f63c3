"""Hours of a node in moments: pods, resizes with delays, claims and restarts of the agent, by the reactor's clock.

The tests take some minutes of the node's time; ``MOORING_DAY_HOURS=24`` takes a day (``make soak``),
``MOORING_DAY_SEED`` makes it another one, and ``-s`` prints the counts.
"""

from __future__ import annotations

import os
import random
import sys
from collections import Counter
from dataclasses import dataclass, field
from itertools import combinations

from tests.agent.laws_agent import differences, overlaps
from tests.agent.simulated_agent import Disk, SimulatedAgent, World
from tests.agent.simulated_runtime import Process, Runtime, Stage
from tests.agent.small_node import DELAYING, EXTENDED, INFO, START, guaranteed, shared, sizes

from mooring.agent.nri.types import LinuxResources, RefusalError
from mooring.agent.state import Options
from mooring.engine.core.bits import CPUMask
from mooring.engine.core.config import AssignedScope
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.moment import SECOND, Moment
from mooring.engine.node.claims import Claim, Share

HOURS = float(os.environ.get("MOORING_DAY_HOURS", "0.2"))
SEED = int(os.environ.get("MOORING_DAY_SEED", "1"))
ALL = (1 << 8) - 1
DELAY = 5 * SECOND
PODS, CLAIMS = 4, 2
LONGEST = 8
"""Seconds between two events at most."""


@dataclass
class Day:
    """A node over time."""

    draw: random.Random
    runtime: Runtime = field(default_factory=Runtime)
    disk: Disk = field(default_factory=Disk)
    counts: Counter[str] = field(default_factory=Counter)
    kept: dict[str, tuple[int, int, Moment]] = field(default_factory=dict)
    """By container: the CPUs that it keeps for its delay, how many it will have then, and when."""
    claims: dict[str, Claim] = field(default_factory=dict)
    numbers: int = 0

    def __post_init__(self) -> None:
        self.world = World(INFO, DELAYING, Options(telling=AssignedScope.ALL), mooring=EXTENDED, clock=[START])
        self.restart()

    def restart(self) -> None:
        """Start an agent over the journal of the last one."""
        self.agent = SimulatedAgent(self.world, self.runtime, self.disk)
        self.runtime.connect(self.agent)

    def run_pod(self) -> None:
        """Run a pod with CPUs of its own or of the pool; it may be refused."""
        self.numbers += 1
        uid, cpus = f"pod{self.numbers}", self.draw.choice((0, 1, 1, 2))
        self.world.pods[uid] = guaranteed(uid, str(cpus)) if cpus else shared(uid)
        sandbox = self.runtime.run_sandbox(uid, uid, {})
        asked = sizes(cpus) if cpus else LinuxResources(shares=2)
        made = self.runtime.create(sandbox, self.world.pods[uid].containers[0].name, asked)
        if made is not None:
            self.runtime.store(made)
            if self.runtime.make_task(made):
                self.runtime.started(made)
        self.counts["pods" if made is not None else "pods refused"] += 1

    def end_pod(self) -> None:
        """End a pod, and with it what it kept."""
        sandbox = self.draw.choice([*self.runtime.sandboxes])
        mine = [one for one in self.runtime.processes.values() if one.sandbox == sandbox]
        for one in mine:
            self.kept.pop(one.id, None)
            if one.stage is not Stage.EXITED:
                self.runtime.exit(one.id)
        self.runtime.stop_sandbox(sandbox)
        for one in mine:
            self.runtime.remove(one.id)
        self.runtime.remove_sandbox(sandbox)

    def resize(self) -> None:
        """Ask for more or fewer CPUs of a container."""
        cpu = self.agent.state.kubelet.node.cpu
        own = [one.id for one in self.running() if cpu.assignments.get(self.runtime.sandboxes[one.sandbox].uid)]
        if not own:
            return
        container = self.draw.choice(own)
        before = self.cpus(container)
        wanted = max(before.bit_count() + self.draw.choice((-2, -1, 1, 2)), 1)
        if not self.runtime.update(container, sizes(wanted)):
            self.counts["resizes refused"] += 1
            return
        self.counts["resizes"] += 1
        if wanted >= before.bit_count():
            self.kept.pop(container, None)
        elif container not in self.kept or self.kept[container][1] != wanted:
            # The same number again is no other resize: the delay goes on.
            self.kept[container] = before, wanted, self.world.now.plus(DELAY)
            self.counts["delays"] += 1

    def claim(self) -> None:
        """Prepare a claim, or release one."""
        if len(self.claims) >= CLAIMS or (self.claims and self.draw.random() < 0.5):
            uid = self.draw.choice([*self.claims])
            del self.claims[uid]
            self.agent.unprepare(uid)
            return
        self.numbers += 1
        made = Claim(f"u-{self.numbers}", "shop", "two", (Share("two", "numa1", 1, CPUMask(0xF0)),))
        try:
            self.agent.prepare(made, ())
        except RefusalError:
            self.counts["claims refused"] += 1
            return
        self.claims[made.uid] = made
        self.counts["claims"] += 1

    def let_time_pass(self) -> None:
        """Move the clock, and let the agent do what is due by then."""
        self.world.clock[:] = [self.world.now.plus(int(self.draw.uniform(0, LONGEST) * SECOND))]
        self.agent.reconcile()

    def wrong(self) -> list[str]:
        """Return what must not be."""
        found = [*overlaps(self.runtime, self.agent.state, ALL)]
        node, now = self.agent.state.kubelet.node, self.world.now
        for container, (cpus, _, until) in self.kept.items():
            if now < until and cpus & ~self.cpus(container):
                found.append(f"{container} lost {CPUSet(CPUMask(cpus & ~self.cpus(container)))} early")
        owned = [mask for per_pod in node.cpu.assignments.values() for mask in per_pod.values()]
        found += [f"{CPUSet(mask)} is shared and owned" for mask in owned if mask & node.cpu.default]
        found += [f"{one & other:#x} twice" for one, other in combinations(owned, 2) if one & other]
        return found

    def settled(self) -> list[str]:
        """Let every delay end, and return what is not as it was asked for."""
        self.world.clock[:] = [self.world.now.plus(2 * DELAY)]
        self.agent.reconcile()
        self.agent.next_reply()
        self.agent.reconcile()
        left = [f"{uid} still keeps CPUs" for uid in self.agent.state.kubelet.node.cpu.pre_assignments]
        return [*left, *differences(self.runtime, self.agent)]

    def cpus(self, container: str) -> int:
        text = self.runtime.processes[container].cgroup.cpus
        return CPUSet.parse(text).mask if text else ALL

    def running(self) -> list[Process]:
        return [one for one in self.runtime.processes.values() if one.stage is Stage.RUNNING]


def test_over_hours_no_cpu_has_two_owners_and_nothing_is_reclaimed_early_or_kept_for_ever() -> None:
    day = Day(random.Random(SEED))  # noqa: S311 - the same day every time
    end = START.plus(int(HOURS * 3600 * SECOND))
    while day.world.now < end:
        what = day.draw.random()
        if len(day.runtime.sandboxes) < PODS and what < 0.4:
            day.run_pod()
        elif day.runtime.sandboxes and what < 0.55:
            day.end_pod()
        elif what < 0.8:
            day.resize()
        elif what < 0.9:
            day.claim()
        elif what < 0.92:
            day.restart()
            day.counts["restarts"] += 1
        day.let_time_pass()
        day.counts["events"] += 1
        assert day.wrong() == []
        if day.counts["events"] % 50 == 0:
            assert day.settled() == []
    while day.runtime.sandboxes:
        day.end_pod()
    for uid in [*day.claims]:
        day.agent.unprepare(uid)
    cpu = day.agent.state.kubelet.node.cpu
    assert (dict(cpu.assignments), dict(cpu.pre_assignments), day.runtime.files) == ({}, {}, {})
    sys.stdout.write(f"\n{HOURS:g} hours: {dict(day.counts)}\n")
    assert day.counts["delays"] > 0
    assert day.counts["claims"] > 0
