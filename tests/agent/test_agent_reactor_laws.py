"""Random lives of pods over a runtime that loses updates, and an agent that is killed at any point.

At every moment at which the agent is there no running program may use exclusive CPUs of another; what the runtime was
told equals the state when it is quiet; a restart changes nothing; at the end everything has come back.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import reduce
from operator import or_

from hypothesis import assume, event, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.agent.laws_agent import differences, overlaps
from tests.agent.simulated_agent import Disk, SimulatedAgent, World
from tests.agent.simulated_runtime import KilledError, Process, Runtime, Stage
from tests.agent.small_node import CONFIG, DELAYING, EXTENDED, GIB, INFO, RESIZING, START, guaranteed, shared, sizes
from tests.laws.strategies_whole_node import configurations, hardware, pods
from tests.node.nodes import machine
from tests.values import not_none

from mooring.agent.nri.types import LinuxResources
from mooring.agent.pods.source import shares_of
from mooring.agent.reactor.desired import DesiredSettings, are_files_behind, expected, set_of
from mooring.agent.state import AgentState, Options
from mooring.engine.core.bits import CPUMask
from mooring.engine.core.config import CPU_HOTPLUG, MIXED_CPUS, AssignedScope, MooringConfig
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.moment import SECOND, Moment
from mooring.engine.core.pod import Container, ContainerKind, Pod
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import start_kubelet
from mooring.engine.node.providers import ANNOTATION

OPT_OUT = "example.org/share"


@st.composite
def any_pods(draw: st.DrawFn, uid: str) -> Pod:
    """Draw a pod of any kind, now and then one that shares the pool or asks to."""
    kind = draw(st.integers(0, 9))
    if kind < 3:
        return Pod(uid, uid, containers=tuple(Container(f"app{number}") for number in range(1 + kind // 2)))
    pod = draw(pods(uid))
    if kind == 9:
        return Pod(
            uid, uid, containers=pod.containers, qos=pod.qos, resources=pod.resources, annotations={OPT_OUT: "true"}
        )
    return pod


class AgentLives(RuleBasedStateMachine):
    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        self.runtime = Runtime(ignores_refusals=data.draw(st.booleans()))
        self.agent: SimulatedAgent | None = None
        self.disk = Disk()
        while True:
            machine = data.draw(hardware())
            config = data.draw(configurations())
            # Not every configuration starts on every machine.
            start = start_kubelet(machine.info, config, MooringConfig(), StateTexts())
            if isinstance(start, Kubelet):
                break
        self.fresh = start
        self.world = World(machine.info, config, Options(opt_out_annotation=OPT_OUT))
        topology = not_none(start.settings.topology)
        self.all_cpus = topology.all_cpus
        self._connect()

    def _connect(self) -> SimulatedAgent:
        self._list_what_nobody_knows()
        self.agent = SimulatedAgent(self.world, self.runtime, self.disk)
        self.runtime.connect(self.agent)
        return self.agent

    def _list_what_nobody_knows(self) -> None:
        """Let the runtime list everything again when an agent begins that has lost what it knew.

        What runs unlisted and is on no disk nobody can know.
        """
        if self.disk.is_stale:
            self.runtime.unlisted = set()

    @property
    def connected(self) -> bool:
        return self.agent is not None and self.runtime.plugin is self.agent

    # Pods and containers.

    @rule(data=st.data(), derived=st.booleans())
    def run_pod(self, data: st.DataObject, *, derived: bool) -> None:
        uid = f"pod{self.runtime.next_number}"
        pod = self.drawn(data, uid)
        self.world.pods[uid] = pod
        if derived and pod.resources is None:
            self.world.without_source.add(uid)
        self.runtime.run_sandbox(uid, pod.name, dict(pod.annotations))

    def drawn(self, data: st.DataObject, uid: str) -> Pod:
        return data.draw(any_pods(uid))

    @precondition(lambda self: self._creatable())
    @rule(data=st.data())
    def create(self, data: st.DataObject) -> None:
        sandbox, name = data.draw(st.sampled_from(self._creatable()))
        spec = next(one for one in self._pod(sandbox).containers if one.name == name)
        limit = spec.limits.get("cpu")
        quota = limit.milli * 100 if limit is not None else None
        if self.runtime.create(sandbox, name, LinuxResources(quota=quota)) is None:
            event("refused")

    @precondition(lambda self: self._in(Stage.MAKING))
    @rule(data=st.data())
    def store(self, data: st.DataObject) -> None:
        self.runtime.store(data.draw(st.sampled_from(self._in(Stage.MAKING))))

    @precondition(lambda self: self._in(Stage.CREATED))
    @rule(data=st.data())
    def make_task(self, data: st.DataObject) -> None:
        self.runtime.make_task(data.draw(st.sampled_from(self._in(Stage.CREATED))))

    @precondition(lambda self: self._in(Stage.TASK))
    @rule(data=st.data())
    def started(self, data: st.DataObject) -> None:
        self.runtime.started(data.draw(st.sampled_from(self._in(Stage.TASK))))

    @precondition(lambda self: self._creatable())
    @rule(data=st.data())
    def bring_up(self, data: st.DataObject) -> None:
        """A whole start at once, as most of them are."""
        self._bring_up(*data.draw(st.sampled_from(self._creatable())))

    def _bring_up(self, sandbox: str, name: str = "") -> None:
        name = name or next((one for place, one in self._creatable() if place == sandbox), "")
        if name:
            self.runtime.bring_up(sandbox, name, LinuxResources(quota=100_000))

    @precondition(lambda self: self._in(Stage.TASK, Stage.RUNNING))
    @rule(data=st.data())
    def exits(self, data: st.DataObject) -> None:
        self.runtime.exit(data.draw(st.sampled_from(self._in(Stage.TASK, Stage.RUNNING))))

    @precondition(lambda self: self._in(Stage.RUNNING))
    @rule(data=st.data(), shares=st.sampled_from([2, 512]))
    def resize(self, data: st.DataObject, shares: int) -> None:
        asked = LinuxResources(shares=shares, quota=data.draw(st.sampled_from([None, 0, 50_000])), period=100_000)
        self.runtime.update(data.draw(st.sampled_from(self._in(Stage.RUNNING))), asked)

    @precondition(lambda self: self.runtime.sandboxes)
    @rule(data=st.data(), removed=st.booleans())
    def end_pod(self, data: st.DataObject, *, removed: bool) -> None:
        self.runtime.end_pod(data.draw(st.sampled_from([*self.runtime.sandboxes])), removed=removed)

    @precondition(lambda self: self._in(Stage.RUNNING))
    @rule(data=st.data())
    def replace_pod(self, data: st.DataObject) -> None:
        """A pod ends, and one like it comes in its place: the shared pool grows and shrinks again."""
        old = self.runtime.processes[data.draw(st.sampled_from(self._in(Stage.RUNNING)))].sandbox
        uid = f"pod{self.runtime.next_number}"
        self.world.pods[uid] = replace(self._pod(old), uid=uid, name=uid)
        self.runtime.end_pod(old)
        sandbox = self.runtime.run_sandbox(uid, uid, {})
        for _ in self.world.pods[uid].containers:
            self._bring_up(sandbox)

    # Faults.

    @precondition(lambda self: self.connected)
    @rule(steps=st.integers(0, 4))
    def kill_agent_soon(self, steps: int) -> None:
        assert self.agent is not None
        self.agent.steps_to_live = steps

    @precondition(lambda self: not self.connected)
    @rule()
    def start_agent(self) -> None:
        self._connect()

    @rule()
    def restart_runtime(self) -> None:
        """The agent lives on and connects again, or is killed by chance before."""
        self.runtime.restart()
        if self.agent is not None and self.agent.steps_to_live is None:
            self.runtime.connect(self.agent)

    @precondition(lambda self: self.connected and self._known_to_run())
    @rule(data=st.data(), restarted=st.booleans())
    def restart_runtime_that_loses_shims(self, data: st.DataObject, *, restarted: bool) -> None:
        """The runtime does not list what it cannot ask; the agent lives on, or starts again at the same time.

        Only what the agent has written down can it know after its own restart.
        """
        self.runtime.unlisted = data.draw(st.sets(st.sampled_from(self._known_to_run()), min_size=1))
        self.runtime.restart()
        if restarted and not self.disk.is_stale:
            self._connect()
        elif self.agent is not None and self.agent.steps_to_live is None:
            self.runtime.connect(self.agent)

    @rule()
    def an_update_fails(self) -> None:
        self.runtime.loses_next_update = True

    @rule(full=st.booleans())
    def disk_fills(self, *, full: bool) -> None:
        self.disk.is_full = full

    @precondition(lambda self: self.connected)
    @rule()
    def a_reply_about_nobody(self) -> None:
        assert self.agent is not None
        if self.agent.steps_to_live is None:
            self.agent.next_reply()

    @precondition(lambda self: self.connected and not self._in(Stage.MAKING, Stage.TASK))
    @rule()
    def quiet(self) -> None:
        agent = not_none(self.agent)
        agent.steps_to_live = None
        agent.verify_all()
        agent.verify_sandboxes()
        agent.next_reply()
        found = [*differences(self.runtime, agent)]
        assert not found, found

    @precondition(lambda self: self.connected and not self._in(Stage.MAKING, Stage.TASK) and not self.disk.is_stale)
    @rule()
    def restart_changes_nothing(self) -> None:
        self.quiet()
        assert self.agent is not None
        before = self.agent.state
        waiting = self._waiting(before)
        failed = {*self.runtime.failed}
        records = {made.id: made.record for made in self.runtime.processes.values()}
        agent = self._connect()
        for made in self.runtime.processes.values():
            assert made.record == records[made.id] or made.id in failed
        assert agent.state.kubelet.node.cpu.assignments == before.kubelet.node.cpu.assignments
        assert agent.state.kubelet.node.cpu.default == before.kubelet.node.cpu.default
        assert agent.state.kubelet.node.memory.assignments == before.kubelet.node.memory.assignments
        assert agent.state.kubelet.node.active.keys() == before.kubelet.node.active.keys()
        assert self._waiting(agent.state) == waiting

    # Laws.

    @invariant()
    def nobody_runs_on_exclusive_cpus_of_another(self) -> None:
        if self.connected:
            assert self.agent is not None
            found = [*overlaps(self.runtime, self.agent.state, self.all_cpus)]
            assert not found, found

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        if self.agent is not None:
            self.agent.steps_to_live = None
        self.disk.is_full = False
        if not self.connected:
            self._connect()
        for sandbox in [*self.runtime.sandboxes]:
            self.runtime.end_pod(sandbox)
        assert self.agent is not None
        self.agent.verify_sandboxes()
        state = self.agent.state
        assert not state.containers
        assert not state.held
        assert not state.sandboxes
        node = state.kubelet.node
        assert not node.cpu.assignments
        assert node.cpu.default == self.fresh.node.cpu.default
        assert node.memory.nodes == self.fresh.node.memory.nodes
        assert not node.active
        assert not node.stored_hints

    # What there is.

    def _waiting(self, state: AgentState) -> set[str]:
        """Pods that run although they are not placed."""
        return {uid for uid in state.held.keys() - state.kubelet.node.active.keys() if state.containers_of(uid)}

    def _known_to_run(self) -> list[str]:
        """Containers that run and sandboxes, known to the agent and written down."""
        if self.agent is None:
            return []
        known = {**self.agent.state.sandboxes, **self.agent.state.containers}
        live = [*(made.sandbox for made in self.runtime.processes.values() if made.runs), *self._in(Stage.RUNNING)]
        return [one for one in dict.fromkeys(live) if one in known]

    def _pod(self, sandbox: str) -> Pod:
        return self.world.pods[self.runtime.sandboxes[sandbox].uid]

    def _in(self, *stages: Stage) -> list[str]:
        return [made.id for made in self.runtime.processes.values() if made.stage in stages]

    def _of(self, sandbox: str, name: str) -> list[Process]:
        return [made for made in self.runtime.processes.values() if (made.sandbox, made.name) == (sandbox, name)]

    def _creatable(self) -> list[tuple[str, str]]:
        """Containers that the kubelet would create next: init containers one by one, then all that do not run."""
        found: list[tuple[str, str]] = []
        for sandbox in self.runtime.sandboxes:
            if sandbox in self.runtime.stopped:
                continue
            for spec in self._pod(sandbox).containers:
                lives = self._of(sandbox, spec.name)
                has_ended = any(made.stage is Stage.EXITED for made in lives)
                is_there = any(made.stage is not Stage.EXITED for made in lives)
                if spec.kind is ContainerKind.INIT and has_ended:
                    continue
                if not is_there:
                    found.append((sandbox, spec.name))
                if spec.kind is ContainerKind.INIT:
                    break
        return found


TestAgentLives = AgentLives.TestCase
TestAgentLives.settings = settings(deadline=None, max_examples=50, stateful_step_count=40)


# The random lives of the reactor's laws, while CPUs go and come at any moment, also while the agent is dead.
#
# Nobody may run on exclusive CPUs of another, nothing exclusive is on an offline CPU, a restart changes nothing,
# and when all CPUs are back everybody has what he had.


class HotplugLives(AgentLives):
    @initialize(
        chosen=st.sampled_from(["never", "same-nodes", "anywhere"]),
        sizes=st.sampled_from(["11", "21", "3"]),
        gone=st.integers(1, INFO.num_cores - 1),
    )
    def begin(self, chosen: str, sizes: str, gone: int) -> None:
        """Begin with pods that run: on a node with nobody on it CPUs come and go unnoticed."""
        self.runtime, self.agent, self.disk = Runtime(), None, Disk()
        mooring = MooringConfig(frozenset({CPU_HOTPLUG}), frozenset({"pod-restart"}), replace_offline=chosen)
        self.world = World(INFO, CONFIG, Options(opt_out_annotation=OPT_OUT), mooring=mooring)
        start = start_kubelet(INFO, CONFIG, MooringConfig(), StateTexts())
        assert isinstance(start, Kubelet)
        self.fresh, self.all_cpus = start, CPUMask((1 << INFO.num_cores) - 1)
        self.online = self.all_cpus
        self._connect()
        for number, pod in enumerate([shared("s"), *(guaranteed(f"a{one}", size) for one, size in enumerate(sizes))]):
            self.world.pods[pod.uid] = pod
            self._bring_up(self.runtime.run_sandbox(pod.uid, f"first{number}", {}))
        self.online &= ~(1 << gone)
        self._seen()

    def _connect(self) -> SimulatedAgent:
        self._list_what_nobody_knows()
        agent = self.agent = SimulatedAgent(self.world, self.runtime, self.disk)
        agent.see_online(self.online)
        self.runtime.connect(agent)
        return agent

    @rule(data=st.data())
    def switch(self, data: st.DataObject) -> None:
        """Some CPUs change; the first stays, as the kernel needs one."""
        changing = data.draw(st.integers(0, self.all_cpus)) & ~(self.all_cpus & -self.all_cpus)
        self.online ^= changing & self.all_cpus
        self._seen()

    @rule()
    def all_come_back(self) -> None:
        self.online = self.all_cpus
        self._seen()
        if self.connected and self.agent is not None and self.agent.steps_to_live is None:
            cpu = self.agent.state.kubelet.node.cpu
            assert (cpu.offline, dict(cpu.displaced)) == (0, {})

    def _seen(self) -> None:
        """Let the agent see it: who ran where he should before, does so afterwards, at once."""
        if not self.connected or self.agent is None:
            return
        right = self._right()
        try:
            self.agent.see_online(self.online)
        except KilledError:
            event("killed")
            self.runtime.plugin = None
            return
        assert right <= self._right()

    def _right(self) -> set[str]:
        """Return the containers whose cgroup is as the agent's state wants it."""
        assert self.agent is not None
        wanted = expected(self.agent.state)
        return {
            made.id
            for made in self.runtime.processes.values()
            if made.runs and made.id in wanted and set_of(made.cgroup.cpus) == wanted[made.id].cpus
        }

    @precondition(lambda self: self.connected and not self._in(Stage.MAKING, Stage.TASK) and not self.disk.is_stale)
    @rule(cpu=st.integers(1, INFO.num_cores - 1))
    def restart_remembers_what_stands_in(self, cpu: int) -> None:
        self.quiet()
        self.online &= ~(1 << cpu)
        self._seen()
        if self.disk.is_stale:
            return
        assert self.agent is not None
        before = self.agent.state.kubelet.node.cpu.displaced
        after = self._connect().state.kubelet.node.cpu.displaced
        if before:
            event("remembered")
        assert all(pairs.items() <= after.get(uid, {}).items() for uid, pairs in before.items())

    @precondition(lambda self: self.connected)
    @invariant()
    def nothing_wanted_is_offline(self) -> None:
        assert self.agent is not None
        state = self.agent.state
        for one in expected(state).values():
            assert not one.cpus.mask & state.kubelet.node.cpu.offline

    def teardown(self) -> None:
        if hasattr(self, "online"):
            if self.agent is not None:
                self.agent.steps_to_live = None
            self.all_come_back()
        super().teardown()


TestHotplugLives = HotplugLives.TestCase
TestHotplugLives.settings = settings(deadline=None, max_examples=30, stateful_step_count=40)


# The random lives of the reactor's laws, with mixed containers among them.
#
# No exclusive CPU of anybody else is ever in a mixed container's set, a restart changes nothing, and at the end
# everything has come back.


class MixedLives(AgentLives):
    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        super().begin(data)
        extended = replace(self.world.mooring, extensions=frozenset({MIXED_CPUS}))
        self.world = replace(self.world, mooring=extended)
        self._connect()

    def drawn(self, data: st.DataObject, uid: str) -> Pod:
        pod = super().drawn(data, uid)
        is_mixed = data.draw(st.integers(0, 2))
        return replace(pod, annotations={**pod.annotations, ANNOTATION: "true"}) if is_mixed else pod

    @invariant()
    def no_exclusive_cpu_of_another_pod_is_in_a_mixed_containers_set(self) -> None:
        if self.agent is None:
            return
        wanted = DesiredSettings.now(self.agent.state)
        node = self.agent.state.kubelet.node
        for uid, pod in node.active.items():
            of_others = 0
            for other, held in node.cpu.assignments.items():
                of_others |= 0 if other == uid else reduce(or_, held.values(), 0)
            for one in pod.containers:
                if wanted.is_mixed(uid, one.name):
                    event("mixed")
                    cpus = wanted.of(uid, one.name).cpus.mask
                    assert cpus == node.cpu.assignments[uid][one.name] | node.cpu.default
                    assert not cpus & of_others


TestMixedLives = MixedLives.TestCase
TestMixedLives.settings = settings(deadline=None, max_examples=30, stateful_step_count=40)


# Random lives of pods that are resized, in a time that stands still or jumps, under an agent that is killed anywhere.
#
# No CPU has two owners; what a container is to lose it keeps for its delay; what it is told it has; what it got at
# first it never loses; and when nothing happens any more everything is as it was asked for.


WIDE = machine(2, 6, threads=1, sockets=1, memory=8 * GIB)
ALL = CPUMask((1 << 12) - 1)
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
        self.world = World(WIDE, config, Options(telling=AssignedScope.ALL), mooring=EXTENDED, clock=[START])
        self.first: dict[str, int] = {}
        """What a container got at first."""
        self.kept: dict[str, tuple[int, int, Moment]] = {}
        """What a container must not lose, how many CPUs it asked for, and until when."""
        self._connect()
        self.run_pod([1, 1], grace)
        self.run_pod([], None)
        for container in self.own():
            self.ask(container, 3)

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
        made = self.runtime.bring_up(sandbox, name, asked)
        if made is not None and self.connected and self._is_own(made):
            self.first.setdefault(f"{sandbox}/{name}", self.cpus_of(made))

    @precondition(lambda self: self.runtime.sandboxes)
    @rule(data=st.data())
    def end_pod(self, data: st.DataObject) -> None:
        self.end(data.draw(st.sampled_from([*self.runtime.sandboxes])))

    def end(self, sandbox: str) -> None:
        for container in self.runtime.end_pod(sandbox):
            self.kept.pop(container, None)

    # Resizes and time.

    @precondition(lambda self: self.own())
    @rule(
        data=st.data(),
        change=st.sampled_from([-3, -2, -2, -1, -1, 0, 1, 2, 3]),
        dies=DIES,
        comes_back=st.booleans(),
        soon=st.sampled_from([None, 0, 1, SECOND]),
    )
    def resize(self, data: st.DataObject, change: int, dies: int | None, soon: int | None, *, comes_back: bool) -> None:
        """Ask for more or fewer CPUs; the agent may be killed in the middle of it, or reconcile soon after."""
        container = data.draw(st.sampled_from(self.own()))
        if self.connected:
            self.agent.steps_to_live = dies
        self.ask(container, max(self.cpus_of(container).bit_count() + change, 1))
        self.agent.steps_to_live = None
        if comes_back and not self.connected:
            self._connect()
        if soon is not None:
            self.time_passes(soon, None)

    def ask(self, container: str, cpus: int) -> None:
        made = self.runtime.processes[container]
        before, was_there = self.cpus_of(container), self.connected
        taken = self.runtime.update(container, sizes(cpus))
        after = self.cpus_of(container)
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

    @precondition(lambda self: self.own())
    @rule(data=st.data(), stuck=st.booleans())
    def the_kernel_gives_nothing_back(self, data: st.DataObject, *, stuck: bool) -> None:
        made = data.draw(st.sampled_from(self.own()))
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
        for container in self.own():
            made = self.runtime.processes[container]
            pod = state.kubelet.node.active[self.runtime.sandboxes[made.sandbox].uid]
            granted = next(one for one in pod.containers if one.name == made.name)
            assert granted.requests["cpu"].milli == 1000 * self.cpus_of(container).bit_count()
            assert made.record.shares == shares_of(granted.requests["cpu"].milli) or self._was_refused()
            # One that was created while the agent was disconnected has no files, as long as it runs.
            if container in self.runtime.files:
                assert CPUSet.parse(self.runtime.files[container]).mask == self.cpus_of(container)

    # Laws.

    @invariant()
    def no_cpu_has_two_owners(self) -> None:
        if self.connected:
            assert not [*overlaps(self.runtime, self.agent.state, ALL)]

    @invariant()
    def nothing_is_taken_early(self) -> None:
        for container, (cpus, _, until) in self.kept.items():
            if self.world.now < until:
                assert not cpus & ~self.cpus_of(container)

    @invariant()
    def nobody_is_told_a_cpu_that_he_does_not_have(self) -> None:
        for container, text in self.runtime.files.items():
            made = self.runtime.processes.get(container)
            if made is not None and made.runs:
                assert not CPUSet.parse(text).mask & ~self.cpus_of(container)

    @invariant()
    def the_first_cpus_stay(self) -> None:
        for made in self.runtime.processes.values():
            first = self.first.get(f"{made.sandbox}/{made.name}")
            if first is not None and made.stage is Stage.RUNNING:
                assert not first & ~self.cpus_of(made.id)

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        self.agent.steps_to_live = None
        if not self.connected:
            self._connect()
        for sandbox in [*self.runtime.sandboxes]:
            self.end(sandbox)
        node = self.agent.state.kubelet.node
        assert not node.cpu.assignments
        assert not node.cpu.pre_assignments
        assert not node.cpu.baselines
        assert not node.active
        assert not self.runtime.files

    # What there is.

    def own(self) -> list[str]:
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

    def cpus_of(self, container: str) -> int:
        text = self.runtime.processes[container].cgroup.cpus
        return CPUSet.parse(text).mask if text else ALL


def test_a_growth_whose_cpus_others_have_got_meanwhile_is_no_longer_granted() -> None:
    lives = ResizedLives()
    lives.begin(None, delays=False, strict=False)
    for sandbox in [*lives.runtime.sandboxes]:
        lives.end(sandbox)
    lives.run_pod([2, 3], None)
    lives.run_pod([2], None)
    container = lives.own()[0]
    lives.agent.steps_to_live = 1
    lives.ask(container, 3)
    assert not lives.connected
    lives.run_pod([1, 3], None)
    lives.ask(container, 1)
    lives.start_agent(settles=True)
    assert lives.cpus_of(container).bit_count() == 2


TestResizedLives = ResizedLives.TestCase
TestResizedLives.settings = settings(deadline=None, max_examples=35, stateful_step_count=30)


# The agent decides what the planner says for the same pods in the same order.


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_lives_of_pods_get_the_planners_decisions(data: st.DataObject) -> None:
    machine, config = data.draw(hardware()), data.draw(configurations())
    planned = start_kubelet(machine.info, config, MooringConfig(fixed_defects=frozenset({"pod-restart"})), StateTexts())
    assume(isinstance(planned, Kubelet))
    assert isinstance(planned, Kubelet)
    assert isinstance(planned, Kubelet)
    runtime = Runtime()
    world = World(machine.info, config)
    agent = SimulatedAgent(world, runtime, Disk())
    runtime.connect(agent)
    sandboxes: dict[str, str] = {}
    for number in range(data.draw(st.integers(1, 8))):
        if sandboxes and data.draw(st.integers(0, 3)) == 0:
            uid = data.draw(st.sampled_from(sorted(sandboxes)))
            runtime.stop_sandbox(sandboxes.pop(uid))
            planned, _ = planned.remove(uid)
        pod = data.draw(pods(f"pod{number}"))
        world.pods[pod.uid] = pod
        planned, decision = planned.admit(pod)
        sandbox = runtime.run_sandbox(pod.uid, pod.name, {})
        refusals = len(runtime.refusals)
        # With an empty shared pool the agent goes its own way: where the kubelet widens, somebody may have to wait.
        assume(not decision.admitted or planned.node.cpu.default)
        for one in pod.containers:
            made = runtime.create(sandbox, one.name, LinuxResources())
            assert (made is not None) is decision.admitted
            if made is None:
                break
        if decision.admitted:
            sandboxes[pod.uid] = sandbox
            assert agent.state.kubelet.node.cpu.assignments.get(pod.uid) == planned.node.cpu.assignments.get(pod.uid)
            assert agent.state.kubelet.node.memory.assignments.get(pod.uid) == planned.node.memory.assignments.get(
                pod.uid
            )
            wanted = DesiredSettings.by(agent.state.kubelet)
            for name, placement in decision.containers.items():
                if placement.cpus:
                    assert str(wanted.of(pod.uid, name).cpus) == str(placement.cpus)
        elif decision.rejection is not None:
            assert runtime.refusals[refusals:] == [f"{decision.reason}: {decision.message}".removesuffix(": ")]
    assert agent.state.kubelet.settled().node.cpu == planned.settled().node.cpu
