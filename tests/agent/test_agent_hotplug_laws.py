"""The random lives of the reactor's laws, while CPUs go and come at any moment, also while the agent is dead.

Nobody may run on exclusive CPUs of another, nothing exclusive is on an offline CPU, a restart changes nothing, and when
all CPUs are back everybody has what he had.
"""

from __future__ import annotations

from hypothesis import event, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule
from tests.agent.simulated_agent import Disk, SimulatedAgent, World
from tests.agent.simulated_runtime import KilledError, Runtime, Stage
from tests.agent.small_node import CONFIG, INFO, guaranteed, shared
from tests.agent.test_agent_reactor_laws import OPT_OUT, AgentLives

from mooring.agent.reactor.desired import expected, set_of
from mooring.agent.state import Options
from mooring.engine.core.bits import CPUMask
from mooring.engine.core.config import CPU_HOTPLUG, MooringConfig
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import start_kubelet


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
