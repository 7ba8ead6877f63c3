"""A scenario: the agent where systemd is the first process and makes the control groups, with runc and with crun.

Every pod is run by one of the two OCI runtimes in turn. crun puts the processes into a group of its own below the
scope, with a cpuset and a quota of its own, so that everything is looked at where the processes are: their
Cpus_allowed_list, and each group from theirs up to the pod's slice.

Values: ``runtime`` (``containerd`` or ``crio``), ``delay`` of resizes in seconds.
"""

from __future__ import annotations

import os
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests.e2e.guest import groups, sight
from tests.e2e.guest.groups import CGROUPS, Driver
from tests.e2e.guest.hotplug import online, switch
from tests.e2e.guest.node import SYSTEM_CPUS, Node, Running, Wanted, until
from tests.e2e.guest.report import tell, values
from tests.e2e.guest.runtimes import HANDLERS, RUN, containerd, crio

from mooring.engine.core.cpuset import CPUSet

MIB = 2**20
KUBELET = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "cpuManagerPolicy": "static",
    "topologyManagerPolicy": "best-effort",
    "reservedSystemCPUs": SYSTEM_CPUS,
    "featureGates": {
        "InPlacePodVerticalScalingExclusiveCPUs": True,
        "CPUManagerPolicyAlphaOptions": True,
        "InPlacePodVerticalScalingExclusiveCPUsScaleDownDelay": True,
    },
}
MOORING = {
    "apiVersion": "mooring/v1alpha1",
    "kind": "MooringConfiguration",
    "extensions": ["cpu-hotplug", "exclusive-resize", "scale-down-delay"],
    "cpuHotplug": {"replace": "same-nodes"},
    "fixedDefects": ["pod-restart"],
}


SYSTEMCTL = "/usr/bin/systemctl"
UNIT = "mooring-agent.service"
RELOAD_SECONDS = 15.0
"""For which control groups are looked at after a reload of systemd: longer than between two checks of the agent."""
PATIENCE_SECONDS = 90.0


def kubelet() -> dict[str, Any]:
    """Return the configuration that the agent places by."""
    return {**KUBELET, "cpuManagerPolicyOptions": {"scale-delay-time": f"{values()['delay']}s"}}


@dataclass(slots=True)
class Play:
    """The pods that live."""

    node: Node
    live: dict[str, Running] = field(default_factory=dict)
    every: CPUSet = field(default_factory=CPUSet)
    seconds: dict[str, float] = field(default_factory=dict)
    """How long it took until everything was right again, by what had been done."""

    def add(self, name: str, cpu: str = "", handler: str = HANDLERS[0]) -> Running:
        """Run a pod."""
        uid = str(uuid.uuid5(uuid.NAMESPACE_DNS, name))
        wanted = Wanted(name, cpu, 24 * MIB if cpu else 0, limited=bool(cpu), handler=handler, uid=uid)
        running = self.node.run_sandbox(wanted)
        self.node.create(running, sight.WITNESS)
        self.node.cri.start(running.container)
        self.live[name] = running
        return running

    def take(self, name: str) -> None:
        """Remove a pod and its slice."""
        running = self.live.pop(name)
        self.node.stop(running)
        self.node.remove(running)
        running.driver.remove(running.sandbox.cgroup_parent)

    def wrong(self) -> Iterator[str]:
        """Say what the kernel does otherwise than the agent says, for every container."""
        status = self.node.status()
        pool = CPUSet.parse(status["cpus"]["shared"])
        if status["cpus"]["overlap"]:
            yield f"the agent sees an overlap: {status['cpus']['overlap']}"
        said = {pod["name"]: pod["containers"][0] for pod in status["pods"]}
        if said.keys() != self.live.keys():
            yield f"the agent knows {sorted(said)}, not {sorted(self.live)}"
            return
        there = online()
        owned = CPUSet()
        for name, running in self.live.items():
            found = sight.allowed(running.cgroup)
            if found is None:
                yield f"{name} has no process in {running.cgroup}"
                continue
            own = CPUSet.parse(said[name]["cpus"]) if running.wanted.exclusive else CPUSet()
            right = (own & there or pool) if own else pool
            if found.cpus != right:
                yield f"{name} may run on {found.cpus} and not on {right}; {groups_text(running)}"
            if str(right) != said[name]["effective"]["cpus"]:
                yield f"{name}: the agent says {said[name]['effective']['cpus']} is in effect, not {right}"
            if own & owned:
                yield f"{name} shares {own & owned}"
            owned = owned | own
            leaf = group_of(found.pid)
            if (shown := text_of(leaf / "cpuset.cpus.effective")) != str(found.cpus):
                yield f"{name}: {leaf} has {shown} in effect, and its process may run on {found.cpus}"
            if running.wanted.exclusive:
                for group in path_of(leaf, running):
                    if not text_of(group / "cpu.max").startswith("max "):
                        yield f"{name}: {group} has the quota {text_of(group / 'cpu.max')}"

    def settle(self, what: str = "") -> list[str]:
        """Wait until everything is as the agent says; return what was wrong at the first look."""
        began = time.monotonic()
        first = last = list(self.wrong())

        def is_right() -> bool:
            nonlocal last
            last = list(self.wrong())
            return not last

        try:
            if first:
                until(is_right, "everything is as the agent says", seconds=PATIENCE_SECONDS)
        except AssertionError:
            raise AssertionError("\n".join(last)) from None
        if what:
            self.seconds[what] = round(time.monotonic() - began, 1)
        return first

    def reload(self, what: str) -> str:
        """Reload systemd; return what it wrote into control groups, and for how many seconds that stood."""
        self.settle()
        before = self.settings()
        began = time.monotonic()
        groups.reload()
        found: dict[str, list[float]] = {}
        # systemd writes after it has answered, and the agent soon after that.
        while (now := time.monotonic() - began) < RELOAD_SECONDS:
            for name, text in self.settings().items():
                if text != before.get(name, text):
                    found.setdefault(f"{name}: {before[name]} became {text}", []).append(now)
        self.settle()
        after = self.settings()
        assert after == before, {
            name: (text, after.get(name)) for name, text in before.items() if text != after.get(name)
        }
        lasted = {text: round(times[-1] - times[0], 1) for text, times in found.items()}
        self.seconds[what] = max(lasted.values(), default=0.0)
        return str(lasted)

    def settings(self) -> dict[str, str]:
        """Return what the groups of all containers have in the files that the agent writes."""
        found = {}
        for name, running in self.live.items():
            for folder in (running.cgroup.parent, running.cgroup, running.cgroup / "container"):
                for file in ("cpuset.cpus", "cpu.max"):
                    found[f"{name} {folder.name.rpartition('.')[2]} {file}"] = text_of(folder / file)
        return found

    def pool(self) -> CPUSet:
        return CPUSet.parse(self.node.status()["cpus"]["shared"])

    def said(self, name: str) -> Mapping[str, Any]:
        """Return what the agent says of a pod's container."""
        [found] = [pod for pod in self.node.status()["pods"] if pod["name"] == name]
        return dict(found["containers"][0])


def group_of(pid: int) -> Path:
    """Return the group of a process."""
    return CGROUPS / Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8").strip().rpartition("::/")[2]


def path_of(leaf: Path, running: Running) -> list[Path]:
    """Return the groups from the one with the processes up to the pod's slice."""
    above = [leaf, *leaf.parents]
    return above[: above.index(running.cgroup.parent) + 1]


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8").strip() if path.exists() else "nothing"


def groups_text(running: Running) -> str:
    """Say what cpusets the groups of a container have, with those below it."""
    found = [running.cgroup.parent, *(Path(folder) for folder, _, _ in os.walk(running.cgroup))]
    return ", ".join(f"{one.name[-24:]}: {text_of(one / 'cpuset.cpus') or 'none'}" for one in found)


def has_cpus(running: Running, count: int) -> bool:
    return len(sight.started(running.cgroup).cpus) == count


def knows_offline(cpus: str) -> bool:
    return bool(PLAY.node.status()["cpus"]["offline"] == cpus)


def printed(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()


PLAY = Play(Node(driver=Driver(systemd=True)))


def diagnosis() -> str:
    kernel = printed("/bin/busybox", "dmesg").splitlines()
    return "\n".join([PLAY.node.diagnosis(), *(line for line in kernel if "systemd" in line)][-30:])


def step_systemd_the_runtime_and_the_agent_come_up() -> str:
    PLAY.every = online()
    PLAY.node.runtime = crio() if values()["runtime"] == "crio" else containerd(systemd=True)
    assert text_of(Path("/proc/1/comm")) == "systemd"
    PLAY.node.come_up(kubelet(), MOORING)
    status = PLAY.node.status()
    versions = [
        printed(*words).splitlines()[0] for words in (("systemctl", "--version"), ("runc", "-v"), ("crun", "-v"))
    ]
    runtime = f"{status['runtime']['name']} {status['runtime']['version']}"
    tell("versions", kernel=os.uname().release, runtime=runtime, others=versions)
    return f"kernel {os.uname().release}, {runtime}, {versions}"


def step_shared_pods_of_both_runtimes_may_run_on_every_cpu() -> str:
    for handler in HANDLERS:
        PLAY.add(f"shared-{handler}", handler=handler)
    PLAY.settle()
    where = {
        name: str(group_of(sight.started(one.cgroup).pid).relative_to(one.cgroup)) for name, one in PLAY.live.items()
    }
    assert PLAY.pool() == PLAY.every
    return f"processes are in {where}"


def step_exclusive_pods_are_pinned_and_the_shared_ones_give_way() -> str:
    found, late = {}, []
    for handler in HANDLERS:
        for number in (1, 2):
            running = PLAY.add(f"own{number}-{handler}", str(number), handler)
            found[running.wanted.name] = str(sight.started(running.cgroup).cpus)
            late += PLAY.settle()
    return f"{found}; not at once: {late}; the pool is {PLAY.pool()}; {groups_text(PLAY.live['own2-crun'])}"


def step_a_pod_that_goes_leaves_its_cpus_to_the_pool() -> str:
    before = PLAY.pool()
    for handler in HANDLERS:
        PLAY.take(f"own1-{handler}")
        PLAY.settle(f"removal ({handler})")
    assert len(PLAY.pool()) == len(before) + len(HANDLERS)
    return f"from {before} to {PLAY.pool()}"


def step_a_quota_that_comes_back_is_lifted_on_every_group() -> str:
    told = []
    for handler in HANDLERS:
        running = PLAY.live[f"own2-{handler}"]
        leaf = group_of(sight.started(running.cgroup).pid)
        for group in path_of(leaf, running):
            (group / "cpu.max").write_text("150000 100000")
            PLAY.settle(f"quota of {group.name.rpartition('.')[2]} ({handler})")
        told.append(len(path_of(leaf, running)))
    return f"groups of a container up to its pod: {told}"


def step_a_cpuset_that_somebody_changes_is_written_again() -> str:
    told = []
    for name in ("own2-runc", "own2-crun", "shared-runc", "shared-crun"):
        running = PLAY.live[name]
        for group in path_of(group_of(sight.started(running.cgroup).pid), running)[:-1]:
            for cpus in ("0-3", "0"):
                (group / "cpuset.cpus").write_text(cpus)
                wrong = PLAY.settle()
                told.append(f"{name} {group.name[-9:]} {cpus}: {len(wrong)}")
    return "; ".join(told)


def step_a_reload_of_systemd_changes_nothing_for_long() -> str:
    return PLAY.reload("reload")


def step_pods_are_resized_and_shrink_after_their_delay() -> str:
    told = []
    for handler in HANDLERS:
        running = PLAY.live[f"own2-{handler}"]
        first = sight.started(running.cgroup).cpus
        PLAY.node.resize(running, "4")
        wrong = PLAY.settle()
        grown = sight.started(running.cgroup).cpus
        assert (len(grown), first <= grown) == (4, True), (first, grown)
        began = time.monotonic()
        PLAY.node.resize(running, "2")
        now = sight.started(running.cgroup).cpus
        assert now == grown or time.monotonic() - began >= values()["delay"], (now, grown)
        until(partial(has_cpus, running, 2), "CPUs are given back")
        taken = time.monotonic() - began
        assert taken >= values()["delay"], taken
        assert sight.started(running.cgroup).cpus == first
        PLAY.settle(f"shrink ({handler})")
        told.append(f"{handler}: {first} {grown} {first}, wrong after growth: {wrong}")
    return "; ".join(told)


def step_a_reload_after_a_resize_changes_nothing_for_long() -> str:
    return PLAY.reload("reload after a resize")


def step_cpus_go_offline_and_come_back() -> str:
    told = []
    first = {name: PLAY.said(name)["cpus"] for name, one in PLAY.live.items() if one.wanted.exclusive}
    for handler in HANDLERS:
        own = CPUSet.parse(first[f"own2-{handler}"])
        gone = [*own][-1]
        switch(gone, on=False)
        until(partial(knows_offline, str(gone)), "the agent knows that a CPU is away")
        PLAY.settle(f"CPU offline ({handler})")
        stands_in = PLAY.said(f"own2-{handler}")["cpus"]
        wrong = PLAY.reload(f"reload with a CPU offline ({handler})")
        switch(gone, on=True)
        until(partial(knows_offline, ""), "the agent knows that a CPU is back")
        PLAY.settle(f"CPU online ({handler})")
        told.append(f"{handler}: {own} became {stands_in}; wrong after a reload: {wrong}")
    now = {name: PLAY.said(name)["cpus"] for name in first}
    assert now == first, (now, first)
    last = [*PLAY.pool()][-1]
    switch(last, on=False)
    until(partial(knows_offline, str(last)), "the agent knows that a CPU is away")
    PLAY.settle("CPU of the pool offline")
    switch(last, on=True)
    until(partial(knows_offline, ""), "the agent knows that a CPU is back")
    PLAY.settle("CPU of the pool online")
    return "; ".join(told)


def step_the_agent_is_killed_and_finds_everything_as_it_was() -> str:
    before = {name: sight.allowed(one.cgroup) for name, one in PLAY.live.items()}
    PLAY.node.kill_agent()
    groups.reload()
    for handler in HANDLERS:
        PLAY.add(f"late-{handler}", handler=handler)
    PLAY.node.start_agent()
    PLAY.node.until_ready()
    PLAY.settle("restart of the agent")
    now = {name: sight.allowed(PLAY.live[name].cgroup) for name in before}
    assert now == before, (now, before)
    return f"{len(before)} stayed, and {len(HANDLERS)} that came meanwhile have {PLAY.pool()}"


def step_the_runtime_is_killed_and_everything_stays() -> str:
    before = {name: sight.allowed(one.cgroup) for name, one in PLAY.live.items()}
    PLAY.node.kill_runtime()
    PLAY.node.start_runtime()
    until(lambda: PLAY.node.status()["counts"]["reconnects"] >= 1, "the agent is connected again")
    PLAY.node.until_ready()
    PLAY.settle("restart of the runtime")
    assert {name: sight.allowed(one.cgroup) for name, one in PLAY.live.items()} == before
    for handler in HANDLERS:
        PLAY.add(f"last-{handler}", "1", handler)
        PLAY.settle()
    return f"{len(before)} stayed; the pool is {PLAY.pool()}"


def step_the_agent_runs_as_its_unit_and_is_started_again() -> str:
    """Of the shipped unit only paths and patience differ, which an emulated guest needs."""
    PLAY.node.kill_agent()
    folder = Path("/etc/systemd/system", f"{UNIT}.d")
    folder.mkdir()
    (folder / "guest.conf").write_text(drop_in())
    for words in (("daemon-reload",), ("start", UNIT)):
        done = subprocess.run([SYSTEMCTL, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, (done.stderr, PLAY.node.log("agent")[-2000:])
    PLAY.settle("start of the unit")
    for handler in HANDLERS:
        PLAY.add(f"unit-{handler}", "1", handler)
        PLAY.settle()
    first, before = shown("MainPID"), {name: sight.allowed(one.cgroup) for name, one in PLAY.live.items()}
    subprocess.run([SYSTEMCTL, "kill", "--signal=KILL", UNIT], check=True)
    until(lambda: shown("MainPID") not in ("0", first) and shown("ActiveState") == "active", "systemd starts it again")
    PLAY.settle("restart by systemd")
    assert {name: sight.allowed(one.cgroup) for name, one in PLAY.live.items()} == before
    exposure = printed("systemd-analyze", "security", "--no-pager", UNIT).rpartition(": ")[2]
    assert shown("NRestarts") == "1"
    subprocess.run([SYSTEMCTL, "stop", UNIT], check=True)
    assert shown("Result") == "success", shown("Result")
    PLAY.node.start_agent()
    PLAY.node.until_ready()
    PLAY.settle()
    return f"{len(before)} stayed; exposure {exposure}"


def drop_in() -> str:
    """Return what differs from the shipped unit."""
    environment = " ".join(f"{name}={os.environ[name]}" for name in ("PATH", "PYTHONPATH", "LANG"))
    return f"""\
[Service]
ExecStart=
ExecStart=/usr/bin/python3 -m mooring agent --config {RUN}/agent.yaml
Environment={environment}
StandardOutput=append:{RUN}/agent.log
StandardError=append:{RUN}/agent.log
ReadWritePaths={RUN}
AllowedCPUs={SYSTEM_CPUS}
TimeoutStartSec=600
TimeoutStopSec=600
WatchdogSec=300
"""


def shown(name: str) -> str:
    """Return a property of the agent's unit."""
    return printed(SYSTEMCTL, "show", "--value", f"--property={name}", UNIT)


def step_an_agent_that_leaves_gives_cpus_and_quotas_back() -> str:
    errors = [line for line in PLAY.node.log("agent").splitlines() if '"level": "error"' in line]
    tell("seconds", seconds=PLAY.seconds)
    said = PLAY.node.leave()
    wrong = list(not_given_back())
    assert not wrong, "\n".join(wrong)
    groups.reload()
    end = time.monotonic() + RELOAD_SECONDS
    while time.monotonic() < end:
        wrong = list(not_given_back())
        assert not wrong, "\n".join(["after a reload", *wrong])
    assert not errors, errors
    return said.strip()


def not_given_back() -> Iterator[str]:
    """Say what containers still lack when the agent has left."""
    for name, running in PLAY.live.items():
        found = sight.started(running.cgroup)
        if found.cpus != PLAY.every:
            yield f"{name} may run on {found.cpus}; {groups_text(running)}"
        for group in path_of(group_of(found.pid), running):
            if (quota := text_of(group / "cpu.max")) != running.wanted.quota:
                yield f"{name}: {group.name} has the quota {quota}"
