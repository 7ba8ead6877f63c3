"""A scenario: CPUs of the guest go offline and come back under the agent, containerd and runc.

Exclusive, mixed and shared containers run meanwhile; the agent is killed while CPUs are away, and some come back and
others go before it is there again. What the kernel makes of it is held against what the agent says.

Values: ``rounds`` of random changes.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.guest import sight
from tests.e2e.guest.node import SYSTEM_CPUS, Node, Running, Wanted, until
from tests.e2e.guest.report import tell, values

from mooring.engine.core.cpuset import CPUSet

MIB = 2**20
CPUS = Path("/sys/devices/system/cpu")
KUBELET = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "cpuManagerPolicy": "static",
    "topologyManagerPolicy": "best-effort",
    "reservedSystemCPUs": SYSTEM_CPUS,
    "systemReserved": {"memory": str(64 * MIB)},
    "evictionHard": {"memory.available": "100Mi"},
}
MOORING = {
    "apiVersion": "mooring/v1alpha1",
    "kind": "MooringConfiguration",
    "extensions": ["cpu-hotplug", "mixed-cpus"],
    "cpuHotplug": {"replace": "same-nodes"},
    "fixedDefects": ["pod-restart"],
}
CHANCE = random.Random(11)  # noqa: S311 - the same changes in every run


def online() -> CPUSet:
    """Return the guest's CPUs as the kernel lists them."""
    return CPUSet.parse((CPUS / "online").read_text(encoding="ascii").strip())


def switch(cpu: int, *, on: bool) -> None:
    """Take a CPU offline, or bring it back."""
    (CPUS / f"cpu{cpu}" / "online").write_text("1" if on else "0", encoding="ascii")


@dataclass(slots=True)
class Play:
    """The pods that live, and what they had at first."""

    node: Node = field(default_factory=Node)
    live: dict[str, Running] = field(default_factory=dict)
    every: CPUSet = field(default_factory=CPUSet)
    first: dict[str, str] = field(default_factory=dict)
    """Name of a pod -> CPUs of its own when all were online."""

    def add(self, wanted: Wanted) -> None:
        """Run a pod."""
        running = self.node.run_sandbox(wanted)
        self.node.create(running, sight.WITNESS)
        self.node.cri.start(running.container)
        self.live[wanted.name] = running

    def said(self) -> tuple[CPUSet, Mapping[str, Mapping[str, Any]]]:
        """Return what the agent says: the shared pool, and containers by pod."""
        status = self.node.status()
        assert status["cpus"]["offline"] == str(self.every - online()), status["cpus"]
        assert status["cpus"]["overlap"] == "", status["cpus"]
        return CPUSet.parse(status["cpus"]["shared"]), {pod["name"]: pod["containers"][0] for pod in status["pods"]}

    def check(self) -> None:
        """Hold what the kernel does against what the agent says, for every container."""
        pool, said = self.said()
        there = online()
        assert pool <= there, (str(pool), str(there))
        owned = CPUSet()
        for name, running in self.live.items():
            found = sight.allowed(running.cgroup)
            assert found is not None, name
            own = CPUSet.parse(said[name]["cpus"])
            if not running.wanted.exclusive:
                assert found.cpus == pool, (name, found, str(pool))
                continue
            assert len(own) == running.wanted.exclusive, (name, str(own))
            assert not own & owned, (name, str(own), str(owned))
            owned = owned | own
            wanted = own & there
            if running.wanted.annotations or not wanted:
                wanted = wanted | pool
            assert found.cpus == wanted, (name, found, str(wanted))
            configured = CPUSet.parse((running.cgroup / "cpuset.cpus").read_text().strip())
            assert configured == wanted, (name, str(configured), str(wanted))
        assert not pool & owned, (str(pool), str(owned))

    def settle(self) -> None:
        """Wait until the agent has done what follows from the last change."""

        def is_right() -> bool:
            try:
                self.check()
            except AssertionError:
                return False
            return True

        try:
            until(is_right, "every container runs where the agent says")
        except AssertionError:
            self.check()
            raise

    def own(self, name: str) -> CPUSet:
        """Return the CPUs that are assigned to a pod's container."""
        return CPUSet.parse(self.said()[1][name]["cpus"])

    def take(self, *cpus: int) -> None:
        """Take CPUs offline, and wait for what follows."""
        for cpu in cpus:
            switch(cpu, on=False)
        self.settle()

    def give(self, *cpus: int) -> None:
        """Bring CPUs back, and wait for what follows."""
        for cpu in cpus:
            switch(cpu, on=True)
        self.settle()

    def give_all(self) -> None:
        """Bring back everything; everybody must have his own again."""
        self.give(*(self.every - online()))
        _, said = self.said()
        now = {name: said[name]["cpus"] for name in self.first}
        assert now == self.first, (now, self.first)


PLAY = Play()


def exclusive(name: str, cpu: str, *, mixed: bool = False) -> Wanted:
    """Return a Guaranteed pod of whole CPUs."""
    return Wanted(name, cpu, 24 * MIB, annotations={"mooring/mixed-cpus": "true"} if mixed else {})


def step_containerd_and_the_agent_come_up() -> str:
    PLAY.every = online()
    PLAY.node.come_up(KUBELET, MOORING)
    tell("machine", online=str(PLAY.every))
    heard = "cannot be heard" not in PLAY.node.log("agent")
    return f"CPUs {PLAY.every}; the kernel's events are {'heard' if heard else 'not heard'}"


def step_pods_of_all_kinds_run() -> str:
    for wanted in (
        Wanted("shared", "", limited=False),
        exclusive("one", "1"),
        exclusive("two", "2"),
        exclusive("mixed", "2", mixed=True),
    ):
        PLAY.add(wanted)
    PLAY.settle()
    PLAY.first = {name: str(PLAY.own(name)) for name, one in PLAY.live.items() if one.wanted.exclusive}
    names = ("MOORING_EXCLUSIVE_CPUS", "MOORING_SHARED_CPUS")
    command = f"echo ${names[0]} ${names[1]}"
    told = PLAY.node.cri.execute(PLAY.live["mixed"].container, "sh", "-c", command).split()
    assert told[0] == PLAY.first["mixed"], (told, PLAY.first)
    assert CPUSet.parse(told[1]) == PLAY.said()[0], told
    return f"{PLAY.first}; the mixed one was told {told}"


def step_another_cpu_stands_in_for_one_that_went_offline() -> str:
    [*own] = PLAY.own("two")
    PLAY.take(own[-1])
    now = PLAY.own("two")
    assert own[-1] not in now, str(now)
    assert len(now) == 2, str(now)
    return f"{own} became {now}"


def step_its_own_cpu_comes_back_to_it() -> str:
    PLAY.give_all()
    return str(PLAY.own("two"))


def step_cpus_of_the_pool_and_of_a_mixed_container_go() -> str:
    pool, _ = PLAY.said()
    last = [*pool][-1]
    PLAY.take(last, next(iter(PLAY.own("mixed"))))
    pool, _ = PLAY.said()
    assert last not in pool, str(pool)
    return f"pool {pool}, mixed {PLAY.own('mixed')}"


def step_a_pod_that_comes_gets_none_of_them() -> str:
    gone = PLAY.every - online()
    PLAY.add(exclusive("late", "2"))
    PLAY.settle()
    own = PLAY.own("late")
    assert not own & gone, (str(own), str(gone))
    return f"{own} while {gone} are offline"


def step_the_agent_is_killed_while_cpus_are_away_and_others_go_before_it_is_back() -> str:
    back = next(iter(PLAY.every - online()))
    [away] = [*PLAY.own("one")]
    PLAY.node.kill_agent()
    switch(back, on=True)
    switch(away, on=False)
    PLAY.node.start_agent()
    PLAY.node.until_ready()
    PLAY.settle()
    assert "state-refused" not in PLAY.node.log("agent")
    return f"{back} came back and {away} went; offline are {PLAY.every - online()}"


def step_everybody_has_his_own_again_when_all_are_back() -> str:
    PLAY.give_all()
    return str(PLAY.first)


def step_random_changes_leave_nothing_behind() -> str:
    switched = [cpu for cpu in PLAY.every if cpu > 1]
    for _ in range(values()["rounds"]):
        there = online()
        for cpu in CHANCE.sample(switched, 3):
            switch(cpu, on=cpu not in there)
        PLAY.settle()
    PLAY.give_all()
    return f"{values()['rounds']} rounds"
