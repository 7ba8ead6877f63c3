"""Lives of a node under a seed, and the laws that hold at every step of them."""

from __future__ import annotations

import random
from pathlib import Path

from tests.world.files import RATES, WIRE_RATES
from tests.world.kernel import ALL
from tests.world.laws import problems
from tests.world.living import BrokenLawError, Life
from tests.world.node import KINDS, PERIOD, Node, WatchedStore, Wire

from mooring.agent.nri.types import LinuxResources
from mooring.agent.store import Store
from mooring.engine.core.bits import list_text
from mooring.engine.node.hotplug import known_cpus

_QUIET = (0.5,) * 12 + (3.0,) * 23
"""Seconds without faults after which everything is as decided: more than retries, checks and silent runtimes take.

Between them others do their part. An agent that looks rarely comes to rest too: most looks would find nothing.
"""
_BUDGET = 0.5


class NodeLife(Life):
    """One life."""

    STEPS, CALM = 24, 0.15
    RATES = RATES

    def __init__(self, root: Path, seed: int, steps: int = 0, left_out: frozenset[str] = frozenset()) -> None:
        super().__init__(seed, steps, left_out)
        self.node = Node(root, seed, self.kind, self.faults, self.threads)
        self.node.runtime.ignores_refusals = self.numbers.random() < 0.3
        self._pods = 0

    def drawn_kind(self) -> str:
        return self.numbers.choice([*KINDS])

    def has(self, what: str) -> bool:
        return _ONLY.get(what, self.kind) == self.kind

    def last_words(self) -> tuple[str, ...]:
        program = self.node.program
        return (*self.node.log.lines, *(() if program is None else program.tracebacks))

    # What happens.

    def before_step(self) -> None:
        """Let a new agent come where there is none, and the runtime take its connection."""
        program = self.node.program
        if program is not None and program.is_dead:
            self.threads.wait(lambda: not program.alive)
            self.node.kill()
            if random.Random(f"{self.seed}/{self.threads.now}").random() < 0.7:  # noqa: S311 - as above
                self.start()
        self.node.serve()

    def start(self) -> None:
        is_up = self.node.start()
        self.hold(not self.node.lost, "the journal is not what was acknowledged last")
        if not is_up:
            failures = [] if self.node.program is None else self.node.program.failures
            self.say(f"the agent did not start: {failures}")
            self.node.kill()

    def run_pod(self, numbers: random.Random) -> None:
        """Run a pod; its containers start one after another, and agents may come and go meanwhile."""
        runtime = self.node.runtime
        if len(runtime.sandboxes) >= 6:
            return
        self._pods += 1
        uid = f"u{self._pods}"
        sandbox = runtime.run_sandbox(uid, f"pod-{uid}", {})
        for name in ("main", "c1")[: numbers.choice([1, 1, 2])]:
            self.run_container(numbers, sandbox, name)

    def create(self, numbers: random.Random, sandbox: str, name: str) -> str | None:
        """Have a container made; return its id unless that is refused."""
        return self.node.runtime.create(sandbox, name, sizes(numbers.choice([0, 1, 1, 2, 3])))

    def run_container(self, numbers: random.Random, sandbox: str, name: str) -> None:
        runtime = self.node.runtime
        made = self.create(numbers, sandbox, name)
        if made is None:
            return
        for go_on in (runtime.store, runtime.make_task, runtime.started):
            if numbers.random() < 0.15:
                self.before_step()
            if made not in runtime.processes or sandbox not in runtime.sandboxes:
                return
            if go_on(made) is False:
                return

    def end_pod(self, numbers: random.Random) -> None:
        runtime = self.node.runtime
        if runtime.sandboxes:
            runtime.end_pod(numbers.choice([*runtime.sandboxes]))

    def restart_container(self, numbers: random.Random) -> None:
        runtime = self.node.runtime
        if running := self.node.running():
            one = numbers.choice(running)
            runtime.exit(one.id)
            runtime.remove(one.id)
            self.run_container(numbers, one.sandbox, one.name)

    def resize(self, numbers: random.Random) -> None:
        if running := self.node.running():
            one = numbers.choice(running)
            runtime = self.node.runtime
            if self.node.faults.hit("lost update"):
                runtime.loses_next_update = True
            runtime.update(one.id, sizes(numbers.choice([1, 1, 2, 3, 4])))

    def update(self, numbers: random.Random) -> None:
        if running := self.node.running():
            one = numbers.choice(running)
            self.node.runtime.update(one.id, LinuxResources(shares=one.record.shares))

    def restart_runtime(self, _numbers: random.Random) -> None:
        if isinstance(self.node.runtime.plugin, Wire):
            self.node.runtime.plugin.side.close()
        self.node.runtime.restart()

    def kill(self, numbers: random.Random) -> None:
        """Kill the agent in a moment, in the middle of what comes next."""
        program, seconds = self.node.program, numbers.choice([0.0, 0.0002, 0.001, 0.003, 0.01])
        if program is None or program.is_dead:
            return

        def work() -> None:
            self.threads.sleep(seconds)
            self.threads.kill(program)
            self.node.files.end(program)
            self.node.network.end(program)

        self.threads.spawn(self.threads.outside, "killer", work)

    def stop(self, _numbers: random.Random) -> None:
        if self.node.program is not None and self.node.program.alive and self.node.agent is not None:
            self._orderly()
            self.start()

    def lose_power(self, _numbers: random.Random) -> None:
        self._await_killers()
        self.node.lose_power()
        self.start()

    def write_foreign(self, numbers: random.Random) -> None:
        if running := self.node.running():
            self.node.runtime.write_cgroup(
                numbers.choice(running).id, numbers.choice(["0-7", "0", "1-2", "5-7"]), "0-1"
            )

    def change_cpus(self, numbers: random.Random) -> None:
        online = ALL
        for _ in range(numbers.choice([0, 1, 1, 2])):
            online &= ~(1 << numbers.randrange(1, 8))
        self.node.kernel.show_online(online)

    def rest(self, numbers: random.Random) -> None:
        for _ in range(numbers.choice([1, 3, 12])):
            self.threads.sleep(numbers.choice([0.01, 0.4, 1.1]))
            self.node.serve()

    def downgrade(self, numbers: random.Random) -> None:
        """Kill the agent perhaps in the middle of a resize, and start one that knows no resizes."""
        self.kill(numbers)
        self.resize(numbers)
        self._await_killers()
        self.node.kill()
        self.node.kind = "plain" if self.node.kind == "resizing" else "resizing"
        self.start()

    # Laws.

    def look(self) -> None:
        """Check what holds at every step."""
        agent, program = self.node.agent, self.node.program
        if program is not None and program.failures:
            raise BrokenLawError(f"a thread of the agent has ended: {program.failures[0]!r}")
        if self.node.log.errors:
            raise BrokenLawError(f"the agent has logged an error: {self.node.log.errors[0]}")
        self.hold(WatchedStore.most < 2, "two events were decided at once")
        self.hold(self.node.slowest <= _BUDGET + 0.1, f"an answer took {self.node.slowest:.3f} s")
        if agent is None:
            return
        cpu = agent.holder.state.kubelet.node.cpu
        owned = 0
        for uid, containers in cpu.assignments.items():
            for name, cpus in containers.items():
                self.hold(not cpus & owned, f"{uid}/{name} owns {list_text(cpus)}, and another some of it")
                owned |= cpus
        self.hold(not owned & cpu.default, f"CPUs {list_text(owned & cpu.default)} are owned and shared")
        self.hash.update(str(agent.holder.state.kubelet.files.cpu).encode())

    def settle(self) -> None:
        """Let everything come to rest without faults, and check that all is as decided."""
        self._await_killers()
        faults = self.node.faults
        faults.is_quiet = True
        self.threads.wait(lambda: not self.node.files.hanging)
        self._rest_quietly()
        if self.node.program is None or not self.node.program.alive:
            self.node.kill()
            self.start()
            self._rest_quietly()
        self.node.period = PERIOD
        self.node.have_one_reply()
        self.threads.sleep(3.0)
        self.look()
        for problem in problems(self.node, self.kind):
            raise BrokenLawError(problem)
        faults.is_quiet = False

    def _rest_quietly(self) -> None:
        for seconds in _QUIET:
            self.before_step()
            self.node.period = seconds
            self.threads.sleep(seconds)

    def end(self) -> None:
        """End all pods, then the agent: nothing stays behind."""
        self._await_killers()
        self.before_step()
        self.node.kernel.show_online(ALL)
        self.settle()
        for sandbox in [*self.node.runtime.sandboxes]:
            self.node.runtime.end_pod(sandbox)
        self.settle()
        agent = self.node.agent
        assert agent is not None
        cpu = agent.holder.state.kubelet.node.cpu
        self.hold(not cpu.assignments, f"CPUs of pods that are gone: {cpu.assignments}")
        # CPUs that were offline when the agent first started are not used.
        missed = known_cpus(agent.holder.state.kubelet.node) & ~cpu.default
        told = self.node.root / "assigned/mooring"
        if self.node.kind != "plain":
            self.hold(not told.is_dir() or not [*told.iterdir()], "files of assigned CPUs are left")
        self.hold(not missed, f"CPUs that did not come back: {list_text(missed)}")
        state = agent.holder.state
        left = (*state.sandboxes, *state.containers, *state.held, *state.kubelet.node.active, *state.unstarted)
        self.hold(not (left or state.kubelet.node.stored_hints), f"of pods that are gone is known: {left}")
        self.node.faults.is_quiet = True
        self._orderly()
        found = Store(self.node.disk.folder).read()
        self.hold(not found.reports, f"an agent that ended left: {[one.message for one in found.reports]}")
        self.hold(not found.pods, f"an agent that ended left pods {[*found.pods]}")
        self.say(f"end {found.texts}")

    def _orderly(self) -> None:
        self._await_killers()
        node, program = self.node, self.node.program
        assert program is not None
        if not program.alive:
            return
        quiet, node.faults.is_quiet = node.faults.is_quiet, True
        began = self.threads.now
        node.ends = program
        main = node.main
        assert main is not None
        self.hold(self.threads.wait(lambda: main.is_over, 120.0), "the agent does not end")
        if not node.files.hanging:
            # One may wait for the answer to a registration still: it ends with the process, at the latest by itself.
            is_over = self.threads.wait(lambda: not program.alive, 10.0)
            self.hold(is_over, f"threads of an agent that ended: {[one.name for one in program.alive]}")
        if not any(one.startswith("hang") for one in node.faults.happened):
            self.hold(self.threads.now - began < 20.0, f"the end took {self.threads.now - began:.1f} s")
        self.hold(not program.failures, f"the agent's end failed: {program.failures}")
        held = [] if node.files.hanging else node.files.open_of(program)
        self.hold(not held, f"an agent that ended has files open: {held}")
        node.kill()
        node.faults.is_quiet = quiet

    def _await_killers(self) -> None:
        mine = self.threads.outside
        self.threads.wait(lambda: not any(one.name == "killer" for one in mine.alive))

    def leave(self) -> None:
        self.node.network.listening.clear()
        for end in self.node.network.ends:
            end.shut()
        for program in {one.program for one in self.threads.tasks} | {self.node.program}:
            if program is not None:
                self.node.files.end(program)


class WireLife(NodeLife):
    """One in which agent and runtime hear, now and then, what nobody sent."""

    RATES = WIRE_RATES


def sizes(cpus: int) -> LinuxResources:
    if not cpus:
        return LinuxResources(shares=2)
    return LinuxResources(shares=1024 * cpus, quota=100_000 * cpus, period=100_000, memory_limit=2**28)


NodeLife.EVENTS = {
    "run pod": (30, NodeLife.run_pod),
    "end pod": (14, NodeLife.end_pod),
    "restart container": (6, NodeLife.restart_container),
    "resize": (14, NodeLife.resize),
    "update": (4, NodeLife.update),
    "restart runtime": (3, NodeLife.restart_runtime),
    "kill": (10, NodeLife.kill),
    "stop": (3, NodeLife.stop),
    "power loss": (2, NodeLife.lose_power),
    "foreign write": (5, NodeLife.write_foreign),
    "CPUs": (12, NodeLife.change_cpus),
    "clock jump": (2, NodeLife.jump),
    "rest": (12, NodeLife.rest),
    "downgrade": (3, NodeLife.downgrade),
}
_ONLY = {"resize": "resizing", "CPUs": "hotplug", "downgrade": "resizing"}
