"""A scenario: the whole agent with containerd and runc, and what the kernel makes of its decisions.

Shared and exclusive pods come by the CRI, go and come again from two clients at once, while the agent is killed and
containerd after it. A watcher looks at all containers all the time (:mod:`tests.e2e.guest.sight`), and witnesses inside
tell what they see. The order of decisions is kept, so that the host asks its own engine the same (``told("played")``).

Values: ``policy`` of the topology manager, ``exclusive``, ``shared``, ``churned`` and ``late`` as numbers of pods.
"""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.containerd.cri import CRIError
from tests.e2e.guest import sight
from tests.e2e.guest.node import PATIENCE, SYSTEM_CPUS, Node, Running, Wanted, until
from tests.e2e.guest.report import tell, values

from mooring.engine.core.cpuset import CPUSet
from mooring.inputs.machines.machineinfo_json import machine_info_document

MIB = 2**20
RESERVED_MEMORY = 64 * MIB
"""Bytes on every NUMA node that the memory manager leaves alone."""
CLIENTS = 2


def online(what: str) -> CPUSet:
    """Return the ids of the guest's CPUs (``cpu``) or NUMA nodes (``node``)."""
    return CPUSet.parse(Path(f"/sys/devices/system/{what}/online").read_text(encoding="utf-8").strip())


def kubelet() -> dict[str, Any]:
    """Return the configuration that the agent places by."""
    nodes = [*online("node")]
    total = len(nodes) * RESERVED_MEMORY
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cpuManagerPolicy": "static",
        "memoryManagerPolicy": "Static",
        "topologyManagerPolicy": values()["policy"],
        "reservedSystemCPUs": SYSTEM_CPUS,
        "systemReserved": {"memory": str(total - 100 * MIB)},
        "evictionHard": {"memory.available": "100Mi"},
        "reservedMemory": [{"numaNode": node, "limits": {"memory": str(RESERVED_MEMORY)}} for node in nodes],
    }


@dataclass(slots=True)
class Play:
    """What has been played so far, and the pods that live."""

    node: Node = field(default_factory=Node)
    live: dict[str, Running] = field(default_factory=dict)
    doing: threading.Lock = field(default_factory=threading.Lock)
    """Held while a decision is made, so that their order is known."""
    order: list[dict[str, Any]] = field(default_factory=list)
    """Of the decisions: ``admit`` with a pod, ``remove`` with a uid."""
    placed: dict[str, sight.Allowed] = field(default_factory=dict)
    """By pod: where the kernel let an exclusive container run when it had started."""
    connecting: threading.Lock = field(default_factory=threading.Lock)
    """Held while the agent connects: containerd 2.1.9 can lock up when it removes a sandbox at that moment."""
    away: threading.Event = field(default_factory=threading.Event)
    """Set while the agent is dead or not yet ready: what starts then starts anywhere."""
    deaths: int = 0
    """Of the agent."""
    open: set[str] = field(default_factory=set)
    """Pods whose containers were made or started in such a time, until the agent has put them right."""
    found: list[str] = field(default_factory=list)
    """Overlaps that the watcher saw."""
    looks: int = 0
    over: threading.Event = field(default_factory=threading.Event)

    def add(self, wanted: Wanted) -> Running:
        """Run a pod."""
        running = self.node.run_sandbox(wanted)
        self.open.add(wanted.name)
        undisturbed, deaths = self._create(running)
        self.live[wanted.name] = running
        self.node.cri.start(running.container)
        # What was started before the agent was killed is right; what was not is put right when it is back.
        if undisturbed and self.deaths == deaths:
            self.open.discard(wanted.name)
            if wanted.exclusive:
                self.placed[wanted.name] = sight.started(running.cgroup)
        return running

    def _create(self, running: Running) -> tuple[bool, int]:
        """Create a pod's container; return whether the agent was there, and how often it had died.

        Who gets CPUs of its own waits until the agent is there: else it would be decided about later than it is noted.
        """
        while True:
            with self.doing:
                undisturbed = not self.away.is_set()
                if undisturbed or not running.wanted.exclusive:
                    self.order.append({"admit": running.wanted.manifest()})
                    self.node.create(running, sight.WITNESS)
                    return undisturbed, self.deaths
            until(lambda: not self.away.is_set(), "the agent is back")

    def take(self, name: str) -> None:
        """Remove a pod."""
        running = self.live.pop(name)
        with self.doing:
            self.node.stop(running)
            self.order.append({"remove": running.wanted.uid})
        with self.connecting:
            self.node.remove(running)
        running.cgroup.parent.rmdir()

    def watch(self) -> None:
        """Look at all containers until it is over."""
        while not self.over.wait(1):
            self.look()

    def look(self) -> None:
        """Look at all containers once."""
        live = dict(self.live)
        exclusive = {one.cgroup: name for name, one in live.items() if one.wanted.exclusive}
        shared = {one.cgroup: name for name, one in live.items() if not one.wanted.exclusive}
        names = exclusive | shared
        for one, other, cpus in sight.overlaps(list(exclusive), list(shared)):
            if not {names[one], names[other]} & self.open:
                self.found.append(f"{names[other]} may run on {cpus} of {names[one]}")
        self.looks += 1

    def check(self) -> CPUSet:
        """Hold what the kernel does against what the agent says, for every container; return the shared pool."""
        self.look()
        assert not self.found, self.found
        status = self.node.status()
        assert status["cpus"]["overlap"] == "", status["cpus"]
        said = {pod["name"]: pod["containers"][0] for pod in status["pods"]}
        assert said.keys() == self.live.keys(), (sorted(said), sorted(self.live))
        pool = CPUSet.parse(status["cpus"]["shared"])
        owned = CPUSet()
        for name, running in self.live.items():
            found = sight.allowed(running.cgroup)
            assert found is not None, name
            assert str(found.cpus) == said[name]["effective"]["cpus"], (name, found, said[name])
            if not running.wanted.exclusive:
                assert found.cpus == pool, (name, found, str(pool))
                continue
            assert (str(found.cpus), str(found.mems)) == (said[name]["cpus"], said[name]["mems"]), (name, found)
            assert len(found.cpus) == running.wanted.exclusive, (name, found)
            assert not owned & found.cpus, (name, found)
            owned = owned | found.cpus
            self.placed[name] = found
        assert pool == online("cpu") - owned, (str(pool), str(owned))
        return pool

    def settle(self) -> None:
        """Wait until the agent is ready and everything is as it says."""
        self.node.until_ready()

        def is_right() -> bool:
            try:
                self.check()
            except AssertionError:
                assert not self.found, self.found
                return False
            return True

        until(is_right, "every container runs where the agent says")
        self.open.clear()

    def lose_agent(self) -> None:
        """Kill the agent, at a moment at which it decides about nobody."""
        with self.doing:
            self.away.set()
            self.deaths += 1
            self.node.kill_agent()

    def bring_agent_back(self) -> None:
        """Start the agent again and wait until it is ready."""
        with self.connecting:
            self.node.start_agent()
            self.node.until_ready()
        self.away.clear()


PLAY = Play()
CHANCE = random.Random(6)  # noqa: S311 - the same pods in every run


def exclusive_pods(prefix: str, count: int) -> list[Wanted]:
    """Return Guaranteed pods of one or two whole CPUs."""
    return [Wanted(f"{prefix}{number}", CHANCE.choice("1122"), 24 * MIB) for number in range(count)]


def shared_pods(count: int) -> list[Wanted]:
    """Return pods of each QoS class, none of which gets CPUs of its own."""
    kinds = (Wanted("", "", limited=False), Wanted("", "300m", 24 * MIB, limited=False), Wanted("", "1500m", 24 * MIB))
    made = [kinds[number % 3] for number in range(count)]
    return [Wanted(f"s{number}", kind.cpu, kind.memory, kind.limited) for number, kind in enumerate(made)]


def stray(name: str) -> Wanted:
    """Return a pod for a time without agent: one that shares the pool, so that nothing is to be decided about it."""
    return Wanted(f"stray-{name}")


def diagnosis() -> str:
    return PLAY.node.diagnosis()


def step_containerd_and_the_agent_come_up() -> str:
    PLAY.node.come_up(kubelet())
    machine = PLAY.node.machine()
    tell("machine", info=machine_info_document(machine.info), kubelet=kubelet())
    threading.Thread(target=PLAY.watch, daemon=True).start()
    status = PLAY.node.status()
    return f"{status['runtime']['name']} {status['runtime']['version']}, {status['policies']}"


def step_shared_pods_may_run_on_every_cpu() -> str:
    for wanted in shared_pods(values()["shared"]):
        PLAY.add(wanted)
    pool = PLAY.check()
    assert pool == online("cpu"), str(pool)
    return f"{len(PLAY.live)} pods on {pool}"


def step_the_shared_pool_shrinks_as_exclusive_pods_come() -> str:
    left = [online("cpu")]
    for wanted in exclusive_pods("x", values()["exclusive"]):
        found = sight.started(PLAY.add(wanted).cgroup)
        assert len(found.cpus) == wanted.exclusive, (wanted, found)
        assert len(found.mems) == 1, (wanted, found)
        assert found.cpus <= left[-1], (wanted, found, str(left[-1]))
        left.append(left[-1] - found.cpus)
        for name, running in PLAY.live.items():
            if not running.wanted.exclusive:
                other = sight.allowed(running.cgroup)
                assert other is not None
                assert other.cpus == left[-1], (wanted, name, other, str(left[-1]))
    assert PLAY.check() == left[-1]
    tell("filled", order=list(PLAY.order), placed=placed(), pool=str(left[-1]))
    return f"{len(left) - 1} pods; from {len(left[0])} CPUs to {len(left[-1])}: {left[-1]}"


def step_a_pod_without_room_is_refused_with_the_kubelet_s_words() -> str:
    before = PLAY.check()
    wanted = Wanted("wide", str(len(before)), 24 * MIB)
    running = PLAY.node.run_sandbox(wanted)
    try:
        PLAY.node.create(running, sight.WITNESS)
    except CRIError as error:
        said = str(error.details())
    else:
        raise AssertionError("it was not refused")
    tell("refused", pod=wanted.manifest(), said=said)
    PLAY.node.stop(running)
    PLAY.node.remove(running)
    assert PLAY.check() == before
    return said.rpartition("desc = ")[2]


def step_processes_inside_see_what_was_decided_and_touch_memory_there() -> str:
    """Ask the witnesses inside, and start another process in some containers."""
    assert PLAY.live
    for name, running in PLAY.live.items():
        told, found = sight.ask(running.cgroup), sight.allowed(running.cgroup)
        assert found is not None
        assert (told.cpus, told.mems) == (found.cpus, found.mems), (name, told, found)
        assert (told.effective_cpus, told.effective_mems) == (told.cpus, told.mems), (name, told)
        assert sum(told.pages.values()) >= sight.TOUCHED // sight.PAGE, (name, told)
        assert CPUSet.of(*told.pages) <= told.mems, (name, told)
        for group in (running.cgroup, running.cgroup.parent):
            expected = "max 100000" if running.wanted.exclusive else running.wanted.quota
            assert (group / "cpu.max").read_text().strip() == expected, (name, group, expected)
        if running.wanted.exclusive:
            assert told.cpu_max == "max 100000", (name, told)
    chosen = [one for one in PLAY.live.values() if one.wanted.exclusive][:1]
    for running in chosen:
        text = PLAY.node.cri.execute(running.container, "grep", "Cpus_allowed_list", "/proc/self/status")
        assert CPUSet.parse(text.split()[1]) == sight.ask(running.cgroup).cpus, text
    return f"{len(PLAY.live)} witnesses, {len(chosen)} more process"


def step_the_agent_is_killed_while_pods_come_and_go() -> str:
    names = [name for name, one in PLAY.live.items() if one.wanted.exclusive]
    leaving, coming = CHANCE.sample(names, values()["churned"]), exclusive_pods("y", values()["churned"])
    half = len(leaving) // 2
    done = threading.Semaphore(0)

    def turn(name: str, wanted: Wanted) -> None:
        PLAY.take(name)
        done.release()
        if PLAY.away.is_set():
            wanted = stray(wanted.name)
        PLAY.add(wanted)

    with ThreadPoolExecutor(CLIENTS) as clients:
        ends = [clients.submit(turn, *pair) for pair in zip(leaving, coming, strict=True)]
        for _ in range(half):
            assert done.acquire(timeout=PATIENCE)
        PLAY.lose_agent()
        PLAY.add(stray("main"))
        PLAY.bring_agent_back()
        for end in ends:
            end.result()
    PLAY.settle()
    strays = sum(name.startswith("stray") for name in PLAY.live)
    return f"{len(leaving)} went, {len(coming) + 1} came, {strays} of them while it was away"


def step_containerd_is_killed_and_everything_stays_where_it_is() -> str:
    before = {name: sight.allowed(one.cgroup) for name, one in PLAY.live.items()}
    PLAY.node.kill_runtime()
    assert {name: sight.allowed(one.cgroup) for name, one in PLAY.live.items()} == before
    PLAY.node.start_runtime()
    until(lambda: PLAY.node.status()["counts"]["reconnects"] == 1, "the agent is connected again")
    PLAY.settle()
    assert {name: sight.allowed(one.cgroup) for name, one in PLAY.live.items()} == before
    for wanted in exclusive_pods("z", values()["late"]):
        PLAY.add(wanted)
    for name in CHANCE.sample([name for name, one in PLAY.live.items() if one.wanted.exclusive], values()["late"]):
        PLAY.take(name)
    # A sandbox from before its restart ends without a word of containerd: the agent's next check finds it gone.
    PLAY.settle()
    pool = PLAY.check()
    return f"{len(before)} containers stayed; then {values()['late']} came and went; the pool is {pool}"


def step_the_order_of_decisions_is_told_to_the_host() -> str:
    pool = PLAY.check()
    tell("played", order=PLAY.order, placed=placed(), live=sorted(PLAY.live), pool=str(pool))
    return f"{len(PLAY.order)} decisions"


def step_the_shared_pool_grows_back_as_exclusive_pods_go() -> str:
    sizes = [len(PLAY.check())]
    for name in [name for name, one in PLAY.live.items() if one.wanted.exclusive][: values()["leaving"]]:
        size = PLAY.live[name].wanted.exclusive
        PLAY.take(name)
        PLAY.settle()
        sizes.append(len(PLAY.check()))
        assert sizes[-1] == sizes[-2] + size, sizes
    return f"from {sizes[0]} to {sizes[-1]} CPUs"


def step_nothing_overlapped_at_any_look() -> str:
    PLAY.over.set()
    assert not PLAY.found, PLAY.found
    errors = [line for line in PLAY.node.log("agent").splitlines() if '"level": "error"' in line]
    assert not errors, errors
    return f"{PLAY.looks} looks at all containers"


def step_an_agent_that_leaves_gives_cpus_memory_nodes_and_quotas_back() -> str:
    for wanted in exclusive_pods("last", 1):
        PLAY.add(wanted)
    before = {name: sight.ask(one.cgroup).pages for name, one in PLAY.live.items() if one.wanted.exclusive}
    said = PLAY.node.leave()
    everywhere = (str(online("cpu")), str(online("node")))
    for name, running in PLAY.live.items():
        found = sight.allowed(running.cgroup)
        assert found is not None, name
        assert (str(found.cpus), str(found.mems)) == everywhere, (name, found)
        told = sight.ask(running.cgroup)
        assert (str(told.effective_cpus), str(told.effective_mems)) == everywhere, (name, told)
        for group in (running.cgroup, running.cgroup.parent):
            assert (group / "cpu.max").read_text().strip() == running.wanted.quota, (name, group)
        if running.wanted.exclusive:
            assert told.pages == before[name], f"{name}: what it has touched stays on its node"
    assert f"{len(PLAY.live)} containers may use every CPU" in said, said
    return said.strip()


def placed() -> dict[str, list[str]]:
    """Return CPUs and memory nodes of exclusive containers by their pod's uid."""
    return {
        running.wanted.uid: [str(PLAY.placed[name].cpus), str(PLAY.placed[name].mems)]
        for name, running in PLAY.live.items()
        if running.wanted.exclusive
    }
