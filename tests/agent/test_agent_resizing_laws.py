"""Random lives of pods that are resized, in a time that stands still or jumps, under an agent that is killed anywhere.

No CPU has two owners; what a container is to lose it keeps for its delay; what it is told it has; what it got at first
it never loses; and when nothing happens any more everything is as it was asked for.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from hypothesis import event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.agent.laws_agent import differences, overlaps
from tests.agent.simulated_agent import Disk, SimulatedAgent, World
from tests.agent.simulated_runtime import KilledError, Process, Runtime, Stage
from tests.agent.small_node import DELAYING, EXTENDED, RESIZING, START, guaranteed, shared, sizes

from mooring.agent.nri.types import LinuxResources
from mooring.agent.quota import shares_of
from mooring.agent.reactor.desired import are_files_behind
from mooring.agent.state import Options
from mooring.engine.core.config import AssignedScope
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.machineinfo import Core, MachineInfo, NUMANode
from mooring.engine.core.moment import SECOND, Moment

GIB = 2**30
INFO = MachineInfo(
    12,
    1,
    16 * GIB,
    tuple(
        NUMANode(
            node,
            8 * GIB,
            cores=tuple(Core(core, (core,), 0) for core in range(6 * node, 6 * node + 6)),
            distances=(10, 20) if node == 0 else (20, 10),
        )
        for node in (0, 1)
    ),
)
ALL = (1 << 12) - 1
GRACE = st.sampled_from([None, None, 0, 2, 8])
DIES = st.sampled_from([None, None, None, None, 0, 1, 2, 3])
"""Steps after which the agent is killed."""


class ResizedLives(RuleBasedStateMachine):
    @initialize(delays=st.booleans(), strict=st.booleans(), grace=GRACE)
    def begin(self, grace: int | None, *, delays: bool, strict: bool) -> None:
        config = DELAYING if delays else RESIZING
        if strict:
            options = {**config.cpu_manager_policy_options, "strict-cpu-reservation": "true"}
            config = replace(config, cpu_manager_policy_options=options)
        self.delay = 5 * SECOND if delays else 0
        self.runtime = Runtime()
        self.disk = Disk()
        self.world = World(INFO, config, Options(telling=AssignedScope.ALL), mooring=EXTENDED, clock=[START])
        self.first: dict[str, int] = {}
        """What a container got at first."""
        self.kept: dict[str, tuple[int, int, Moment]] = {}
        """What a container must not lose, how many CPUs it asked for, and until when."""
        self._connect()
        self.run_pod([1, 1], grace)
        self.run_pod([], None)
        for container in self._own():
            self._resize(container, 3)

    def _connect(self) -> None:
        self.agent = SimulatedAgent(self.world, self.runtime, self.disk)
        self.runtime.connect(self.agent)

    @property
    def connected(self) -> bool:
        return self.runtime.plugin is self.agent

    # Pods.

    @rule(cpus=st.lists(st.integers(1, 3), min_size=0, max_size=2), grace=GRACE)
    def run_pod(self, cpus: list[int], grace: int | None) -> None:
        uid = f"pod{self.runtime.next_number}"
        pod = guaranteed(uid, *map(str, cpus)) if cpus else shared(uid)
        pod = replace(pod, scale_down_grace=grace)
        self.world.pods[uid] = pod
        sandbox = self.runtime.run_sandbox(uid, uid, {})
        for spec in pod.containers:
            asked = sizes(spec.requests["cpu"].milli / 1000) if spec.requests else LinuxResources(shares=2)
            self._start(sandbox, spec.name, asked)

    def _start(self, sandbox: str, name: str, asked: LinuxResources) -> None:
        made = self.runtime.create(sandbox, name, asked)
        if made is not None:
            self.runtime.store(made)
            if self.runtime.make_task(made):
                self.runtime.started(made)
        if made is not None and self.connected and self._is_own(made):
            self.first.setdefault(f"{sandbox}/{name}", self._cpus(made))

    @precondition(lambda self: self.runtime.sandboxes)
    @rule(data=st.data())
    def end_pod(self, data: st.DataObject) -> None:
        self._end(data.draw(st.sampled_from([*self.runtime.sandboxes])))

    def _end(self, sandbox: str) -> None:
        mine = [made.id for made in self.runtime.processes.values() if made.sandbox == sandbox]
        for container in mine:
            self.kept.pop(container, None)
            if self.runtime.processes[container].stage is not Stage.EXITED:
                self.runtime.exit(container)
        self.runtime.stop_sandbox(sandbox)
        for container in mine:
            self.runtime.remove(container)
        self.runtime.remove_sandbox(sandbox)

    # Resizes and time.

    @precondition(lambda self: self._own())
    @rule(
        data=st.data(),
        change=st.sampled_from([-3, -2, -2, -1, -1, 0, 1, 2, 3]),
        dies=DIES,
        comes_back=st.booleans(),
        soon=st.sampled_from([None, 0, 1, SECOND]),
    )
    def resize(self, data: st.DataObject, change: int, dies: int | None, soon: int | None, *, comes_back: bool) -> None:
        """Ask for more or fewer CPUs; the agent may be killed in the middle of it, or reconcile soon after."""
        container = data.draw(st.sampled_from(self._own()))
        if self.connected:
            self.agent.steps_to_live = dies
        self._resize(container, max(self._cpus(container).bit_count() + change, 1))
        self.agent.steps_to_live = None
        if comes_back and not self.connected:
            self._connect()
        if soon is not None:
            self.time_passes(soon, None)

    def _resize(self, container: str, cpus: int) -> None:
        made = self.runtime.processes[container]
        before, was_there = self._cpus(container), self.connected
        taken = self.runtime.update(container, sizes(cpus))
        after = self._cpus(container)
        if not taken:
            assert after == before
            event("refused")
        elif was_there and self.connected:
            grows = cpus >= before.bit_count()
            assert before & after == (before if grows else after)
            assert after.bit_count() == cpus or not grows
            if grows:
                self.kept.pop(container, None)
            elif container not in self.kept or self.kept[container][1] != cpus:
                # The same number again is no other resize: the delay goes on.
                event("shrinks")
                self.kept[container] = before, cpus, self.world.now.plus(self._delay(made))
        # An agent that was killed in the middle may or may not have written what it decided; both are right.

    @rule(nanoseconds=st.sampled_from([1, SECOND, 2 * SECOND, 5 * SECOND, 9 * SECOND]), dies=DIES)
    def time_passes(self, nanoseconds: int, dies: int | None) -> None:
        self.world.clock.append(self.world.now.plus(nanoseconds))
        if self.connected:
            self.agent.steps_to_live = dies
            with suppress(KilledError):
                self.agent.reconcile()
            if self.agent.steps_to_live is not None and self.agent.steps_to_live < 0:
                self.runtime.plugin = None
            self.agent.steps_to_live = None

    # Faults.

    @precondition(lambda self: self._own())
    @rule(data=st.data(), stuck=st.booleans())
    def the_kernel_gives_nothing_back(self, data: st.DataObject, *, stuck: bool) -> None:
        made = data.draw(st.sampled_from(self._own()))
        (self.runtime.stuck.add if stuck else self.runtime.stuck.discard)(made)

    @rule(settles=st.booleans())
    def start_agent(self, *, settles: bool) -> None:
        """Again, whether it lives or not."""
        self._connect()
        if settles:
            self.everything_settles()

    @precondition(lambda self: self.connected)
    @rule()
    def everything_settles(self) -> None:
        self.runtime.stuck.clear()
        self.time_passes(9 * SECOND, None)
        self.agent.next_reply()
        self.agent.reconcile()
        state = self.agent.state
        assert not state.kubelet.node.cpu.pre_assignments
        assert not are_files_behind(state)
        assert not [*differences(self.runtime, self.agent)]
        for container in self._own():
            made = self.runtime.processes[container]
            pod = state.kubelet.node.active[self.runtime.sandboxes[made.sandbox].uid]
            granted = next(one for one in pod.containers if one.name == made.name)
            assert granted.requests["cpu"].milli == 1000 * self._cpus(container).bit_count()
            assert made.record.shares == shares_of(granted.requests["cpu"].milli) or self._was_refused()
            # One that was created while the agent was disconnected has no files, as long as it runs.
            if container in self.runtime.files:
                assert CPUSet.parse(self.runtime.files[container]).mask == self._cpus(container)

    # Laws.

    @invariant()
    def no_cpu_has_two_owners(self) -> None:
        if self.connected:
            assert not [*overlaps(self.runtime, self.agent.state, ALL)]

    @invariant()
    def nothing_is_taken_early(self) -> None:
        for container, (cpus, _, until) in self.kept.items():
            if self.world.now < until:
                assert not cpus & ~self._cpus(container)

    @invariant()
    def nobody_is_told_a_cpu_that_he_does_not_have(self) -> None:
        for container, text in self.runtime.files.items():
            made = self.runtime.processes.get(container)
            if made is not None and made.runs:
                assert not CPUSet.parse(text).mask & ~self._cpus(container)

    @invariant()
    def the_first_cpus_stay(self) -> None:
        for made in self.runtime.processes.values():
            first = self.first.get(f"{made.sandbox}/{made.name}")
            if first is not None and made.stage is Stage.RUNNING:
                assert not first & ~self._cpus(made.id)

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        self.agent.steps_to_live = None
        if not self.connected:
            self._connect()
        for sandbox in [*self.runtime.sandboxes]:
            self._end(sandbox)
        node = self.agent.state.kubelet.node
        assert not node.cpu.assignments
        assert not node.cpu.pre_assignments
        assert not node.cpu.baselines
        assert not node.active
        assert not self.runtime.files

    # What there is.

    def _own(self) -> list[str]:
        """Containers that run and have CPUs of their own."""
        return [
            made.id for made in self.runtime.processes.values() if made.stage is Stage.RUNNING and self._is_own(made.id)
        ]

    def _was_refused(self) -> bool:
        """Tell whether the agent found a resize from before it that cannot be."""
        return bool(self.agent.counts["resize-missed"])

    def _is_own(self, container: str) -> bool:
        made = self.runtime.processes[container]
        uid = self.runtime.sandboxes[made.sandbox].uid
        return bool(self.agent.state.kubelet.node.cpu.assignments.get(uid, {}).get(made.name))

    def _delay(self, made: Process) -> int:
        grace = self.world.pods[self.runtime.sandboxes[made.sandbox].uid].scale_down_grace
        return self.delay if grace is None else grace * SECOND

    def _cpus(self, container: str) -> int:
        text = self.runtime.processes[container].cgroup.cpus
        return CPUSet.parse(text).mask if text else ALL


TestResizedLives = ResizedLives.TestCase
TestResizedLives.settings = settings(deadline=None, max_examples=35, stateful_step_count=30)
