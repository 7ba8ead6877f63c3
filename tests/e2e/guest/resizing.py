"""A node on which pods are resized: who is asked, what comes of it inside, and how long it took."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests import patience
from tests.e2e.containerd.cri import CRIError
from tests.e2e.guest import inside, sight
from tests.e2e.guest.inside import Inside
from tests.e2e.guest.node import PATIENCE, SYSTEM_CPUS, Node, Running, Wanted
from tests.e2e.guest.report import TooSlowError, values

from mooring.agent.pods.source import shares_of

EXTENSIONS = ("exclusive-resize", "scale-down-delay", "assigned-cpuset")
GATES = ("InPlacePodVerticalScalingExclusiveCPUs", "CPUManagerPolicyAlphaOptions")
DELAY_GATE = "InPlacePodVerticalScalingExclusiveCPUsScaleDownDelay"
ASKS = {"mooring/assigned": "true"}
GRACE = "mooring/scale-down-grace-period-seconds"
SECOND = 10**9
MIB = 2**20
NO_ROOM = "not enough cpus available to satisfy request"
"""With these words CPUs are refused that are not free."""
until = partial(patience.until, seconds=PATIENCE, pause=0.1)
STATE = Path("/run/mooring/cpu_manager_state")


def delay() -> int:
    """Return the delay of the node and of pods with one of their own, in seconds."""
    return int(values()["delay"])


def old_version() -> tuple[dict[str, Any], ...]:
    """Return what the agent goes by where it does what a released kubelet does."""
    return ({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cpuManagerPolicy": "static",
        "topologyManagerPolicy": "best-effort",
        "reservedSystemCPUs": SYSTEM_CPUS,
    },)  # fmt: skip


def new_version(*, exposed: bool = True) -> tuple[dict[str, Any], ...]:
    """Return what the agent goes by with all of the proposals.

    Args:
        exposed: whether containers are told their CPUs.
    """
    [kubelet] = old_version()
    resizing = {
        "cpuManagerPolicyOptions": {"scale-delay-time": f"{delay()}s"},
        "featureGates": dict.fromkeys((*GATES, DELAY_GATE), True),
    }
    extensions = EXTENSIONS if exposed else EXTENSIONS[:-1]
    mooring = {"apiVersion": "mooring/v1alpha1", "kind": "MooringConfiguration", "extensions": list(extensions)}
    return {**kubelet, **resizing}, mooring


@dataclass(frozen=True, slots=True)
class Asked:
    """A resize that was accepted."""

    pod: str
    before: str
    """CPUs that it had."""
    sent: int
    """Nanoseconds. The delay begins between this and the answer."""
    answered: int


@dataclass(slots=True)
class Play:
    """The node and its pods."""

    node: Node = field(default_factory=Node)
    pods: dict[str, Running] = field(default_factory=dict)
    figures: dict[str, list[float]] = field(default_factory=dict)
    """Milliseconds by what was measured."""

    def come_up(self) -> None:
        """Start everything with all of the proposals."""
        (Path(inside.PROGRAMS) / inside.PROGRAM).chmod(0o755)
        self.node.come_up(*new_version())

    def run(self, name: str, cpus: int, **annotations: str) -> Inside:
        """Run a pod with the program in it, which is called ``app`` and asks to be told its CPUs."""
        self.pods[name] = self.node.run_sandbox(Wanted(name, str(cpus), 24 * MIB, annotations={**ASKS, **annotations}))
        return self.again(name)

    def again(self, name: str, attempt: int = 0) -> Inside:
        """Create and start the container of a pod, which is there or has ended."""
        running = self.pods[name]
        if attempt:
            self.node.cri.stop(running.container)
            self.node.cri.remove(running.container)
        self.node.create(running, inside.COMMAND, inside.MOUNTS, attempt)
        self.node.cri.start(running.container)
        within = self.inside(name)
        until(lambda: within.last("file") and within.last("cpus"), f"{name} tells")
        return within

    def inside(self, name: str) -> Inside:
        """Return what is seen from inside a pod."""
        return Inside(self.pods[name].cgroup)

    def remove(self, name: str) -> None:
        """End a pod."""
        running = self.pods.pop(name)
        self.node.stop(running)
        self.node.remove(running)

    def ask(self, name: str, cpus: int) -> Asked:
        """Resize a pod."""
        before, sent = self.inside(name).cpus(), time.monotonic_ns()
        self.node.resize(self.pods[name], str(cpus))
        return Asked(name, before, sent, time.monotonic_ns())

    def refusal(self, name: str, cpus: int) -> str:
        """Return the words with which a resize is refused; an empty text when it is not."""
        return refusal(lambda: self.node.resize(self.pods[name], str(cpus)))

    def grow(self, name: str, cpus: int) -> str:
        """Resize a pod to more CPUs than it has, see that it gets them at once, and return them."""
        asked = self.ask(name, cpus)
        within = self.inside(name)
        until(
            lambda: inside.size_of(within.file() if within.is_told else within.cpus()) == cpus,
            f"{name} has {cpus} CPUs",
        )
        found = within.cpus()
        assert inside.size_of(found) == cpus, found
        assert inside.within(asked.before, found), (asked, found)
        assert self.container(name)["cpus"] == found
        assert self.amounts(name) == ("max 100000", weight_of(cpus)), self.amounts(name)
        if within.is_told:
            assert within.file() == found
            until(lambda: within.last("pinned") == found and within.is_pinned(), f"{name} uses them")
            told = within.when("file", found, since=asked.sent)
            # The program looks at its cpuset after it has read the file, so that what came first is told first.
            had = [line for line in within.lines("cpus") if line.at <= told][-1]
            assert had.text == found, (had, found)
            self.measured("growth, request to file", told - asked.sent)
        return found

    def begin_to_shrink(self, name: str, cpus: int) -> tuple[Asked, str]:
        """Resize a pod to fewer CPUs, and return what it is told, while it has what it had.

        Raises:
            AssertionError: something is otherwise.
            TooSlowError: the delay is over meanwhile.
        """
        asked = self.ask(name, cpus)
        within = self.inside(name)
        has = within.cpus()
        meanwhile(asked, holds=has == asked.before, what=has)
        container = self.container(name)
        meanwhile(asked, holds="pending" in container, what=str(container))
        pending = str(container["pending"]["cpus"])
        assert (inside.size_of(pending), inside.within(pending, asked.before)) == (cpus, True), (asked, pending)
        assert inside.within(self.baseline(name), pending), (self.baseline(name), pending)
        if within.is_told:
            until(lambda: within.last("left") == pending, f"{name} has left the others")
            self.measured("shrink, request to file", within.when("file", pending, since=asked.sent) - asked.sent)
            self.measured("shrink, request to CPUs left", within.when("left", pending, since=asked.sent) - asked.sent)
        return asked, pending

    def end_to_shrink(self, asked: Asked, pending: str, *, since: int = 0) -> None:
        """See CPUs go not before their delay is over, and after the program has left them.

        Args:
            asked: for it.
            pending: what is left.
            since: when the delay began, where that was not the request; nanoseconds.
        """
        name = asked.pod
        within = self.inside(name)
        until(lambda: within.last("cpus") == pending, f"{name} has given CPUs back")
        taken = within.when("cpus", pending, since=asked.sent)
        assert taken - max(since, asked.sent) >= delay() * SECOND, (asked, taken)
        [change] = within.lines("cpus", since=asked.sent)
        assert change.text == within.cpus() == pending
        if within.is_told:
            assert within.file() == pending
            assert within.when("left", pending, since=asked.sent) < taken
            until(within.is_pinned, f"the threads of {name} are pinned again")
        until(lambda: "pending" not in self.container(name), f"nothing of {name} is pending")
        assert self.container(name)["cpus"] == pending
        until(lambda: self.amounts(name) == ("max 100000", weight_of(inside.size_of(pending))), f"{name} has its size")
        pod = self.pods[name].cgroup.parent / "cpu.max"
        until(lambda: pod.read_text(encoding="utf-8") == "max 100000\n", f"the pod {name} has no quota either")
        if not since:
            self.measured("shrink, deadline to cpuset", taken - asked.sent - delay() * SECOND)

    def shrink(self, *sizes: tuple[str, int]) -> None:
        """Resize pods to fewer CPUs, all at the same time, and see each through."""
        begun = [self.begin_to_shrink(name, cpus) for name, cpus in sizes]
        for asked, pending in begun:
            self.end_to_shrink(asked, pending)

    def container(self, name: str) -> Mapping[str, Any]:
        """Return what the agent says of the container of a pod."""
        [found] = [pod for pod in self.node.status()["pods"] if pod["name"] == name]
        [container] = found["containers"]
        return dict(container)

    def baseline(self, name: str) -> str:
        """Return the CPUs that a container got first, as the agent says."""
        found = self.container(name)
        return str(found.get("baseline", found["cpus"]))

    def amounts(self, name: str) -> tuple[str, str]:
        """Return quota and weight of a container as the kernel has them."""
        group = self.pods[name].cgroup
        quota, weight = ((group / file).read_text(encoding="utf-8").strip() for file in ("cpu.max", "cpu.weight"))
        return quota, weight

    def overlaps(self) -> list[str]:
        """Return what processes of one pod may run on CPUs of another; every pod has CPUs of its own."""
        groups = {running.cgroup: name for name, running in dict(self.pods).items()}
        return [
            f"{groups[other]} may run on {cpus} of {groups[one]}"
            for one, other, cpus in sight.overlaps(list(groups), ())
        ]

    def measured(self, what: str, nanoseconds: int) -> None:
        """Keep a figure."""
        self.figures.setdefault(what, []).append(round(nanoseconds / 1e6, 1))

    def restart(self, *documents: Mapping[str, Any]) -> int:
        """Kill the agent and start it with other documents; return when, in nanoseconds."""
        self.node.kill_agent()
        self.node.configure(*documents)
        began = time.monotonic_ns()
        self.node.start_agent()
        self.node.until_ready()
        return began


def weight_of(cpus: int) -> str:
    """Return what runc makes of a container's shares.

    Source: runc 1.1, ConvertCPUSharesToCgroupV2Value.
    """
    return str(1 + (shares_of(1000 * cpus) - 2) * 9999 // 262142)


def meanwhile(asked: Asked, *, holds: bool, what: str) -> None:
    """Check what holds while the delay of a resize is not over.

    Raises:
        AssertionError: it does not hold.
        TooSlowError: it does not, and the delay may be over. The kubelet allows 10 s at most, so that no longer delay
            can be chosen where other programs have the processors.
    """
    seconds = (time.monotonic_ns() - asked.sent) / SECOND
    if not holds and seconds >= delay():
        raise TooSlowError(f"{seconds:.0f} s have passed since a resize, of a delay of {delay()} s")
    assert holds, what


def refusal(ask: Callable[[], object]) -> str:
    """Return the words with which the runtime refuses what it is asked for; an empty text when it does not."""
    try:
        ask()
    except CRIError as error:
        return str(error.details())
    return ""


def wait_until(moment: int) -> None:
    """Wait for a moment, in nanoseconds."""
    until(lambda: time.monotonic_ns() >= moment, "it is time")
