"""A pod whose CPUs are changed in place through the API server: what the kubelet asks of the runtime, and what becomes
of the pins.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import pytest
from tests.e2e.containerd.plugin import Watching, plugged
from tests.e2e.containerd.runtime import Runtime
from tests.e2e.kubelet.apiserver import PODS, APIServer
from tests.e2e.kubelet.arrival import arrive
from tests.e2e.kubelet.cases import Case, Wants, pod_of
from tests.e2e.kubelet.decided import Played, Playing
from tests.e2e.kubelet.kubelet import kubelet_on
from tests.e2e.kubelet.patience import until
from tests.e2e.kubelet.pinning import Pinned, pinned
from tests.e2e.kubelet.placements import containers, given

from mooring.agent.nri.session import PluginOptions
from mooring.engine.core.cpuset import CPUSet

EXTENSIONS = ("exclusive-resize", "scale-down-delay", "assigned-cpuset")
GATES = ("InPlacePodVerticalScalingExclusiveCPUs", "CPUManagerPolicyAlphaOptions")
DELAY_GATE = "InPlacePodVerticalScalingExclusiveCPUsScaleDownDelay"
GRACE = "mooring/scale-down-grace-period-seconds"
DELAY = 8
"""Seconds."""
DELAYED = MappingProxyType(
    {
        "cpuManagerPolicy": "static",
        "cpuManagerPolicyOptions": {"scale-delay-time": f"{DELAY}s"},
        "featureGates": dict.fromkeys((*GATES, DELAY_GATE), True),
    }
)
NODE_S, POD_S = "delay of the node", "delay of the pod"
FIRST_CPUS = "1,33"
IN_PROGRESS = "PodResizeInProgress"
BELOW_FIRST = "Not allowed to reduce container exclusively allocated pool below original"
FILE = "/run/mooring-assigned/assigned.cpuset"
RESIZED = Case("resized", "xeon-6338n-1s", MappingProxyType({"cpuManagerPolicy": "static"}), 2, 40, reserved="0,32")
EVERY = ("0-63", "0")
"""CPUs and memory nodes of its machine."""
FIRST = PluginOptions(index="10", budget=5.0)
"""Asked before the agent, so that what the kubelet wants is seen as it came."""


def ask(api: APIServer, pod: str, cpu: str) -> int:
    """Change requests and limits of the only container, and return the pod's generation."""
    amounts = {"cpu": cpu, "memory": "64Mi"}
    change = {"spec": {"containers": [{"name": "app", "resources": {"requests": amounts, "limits": amounts}}]}}
    return int(api.patch(f"{PODS}/{pod}/resize", change)["metadata"]["generation"])


def resize(api: APIServer, pod: str, cpu: str) -> None:
    """Change requests and limits of the only container and wait until the kubelet says that it is done."""
    generation = ask(api, pod, cpu)

    def done() -> bool:
        status = (api.pod(pod) or {})["status"]
        going_on = [one["type"] for one in status["conditions"] if one["type"].startswith("PodResize")]
        allocated = status["containerStatuses"][0]["allocatedResources"]["cpu"]
        return (status.get("observedGeneration"), allocated, going_on) == (generation, cpu, [])

    until(done, f"{pod} has {cpu} CPUs")


def limit_told(api: APIServer, pod: str) -> str:
    """Return the CPU limit of the only container that the pod's status says to be in force."""
    [status] = (api.pod(pod) or {})["status"]["containerStatuses"]
    found: str = status["resources"]["limits"]["cpu"]
    return found


def conditions(api: APIServer, pod: str) -> dict[str, tuple[str, str]]:
    """Return reason and message of what the kubelet says of a resize, by type of the condition."""
    found = (api.pod(pod) or {})["status"]["conditions"]
    return {
        one["type"]: (one.get("reason", ""), one.get("message", ""))
        for one in found
        if one["type"].startswith("PodResize")
    }


@dataclass(frozen=True, slots=True)
class Delayed:
    """A node on which CPUs that are given back stay for a while, and the pod ``own`` on it."""

    api: APIServer
    node: Runtime
    both: Pinned
    app: str
    """Id of the container."""

    @property
    def told(self) -> str:
        """The CPUs of which the container is told."""
        return self.node.cri.execute(self.app, "cat", FILE)

    @property
    def has(self) -> str:
        """The CPUs that the container has."""
        return str(self.container["cpus"])

    @property
    def container(self) -> dict[str, Any]:
        """What the agent says of the container."""
        [pod] = [one for one in self.both.agent.status()["pods"] if one["name"] == "own"]
        [container] = pod["containers"]
        return dict(container)

    def grow(self, cpus: str) -> str:
        """Resize the pod to more CPUs, and return them when it has them and is told."""
        before = self.has
        resize(self.api, "own", cpus)
        until(lambda: self.told == self.has == given(self.node)["own/app"][0] != before, "it has grown")
        assert len(CPUSet.parse(self.has)) == int(cpus)
        assert CPUSet.parse(before) <= CPUSet.parse(self.has)
        return self.has

    def shrink(self, cpus: str, left: str = "") -> float:
        """Resize the pod to fewer CPUs, and return when, in seconds, as soon as it is told what will be left."""
        before, began = self.has, time.monotonic()
        ask(self.api, "own", cpus)
        until(lambda: len(CPUSet.parse(self.told)) == int(cpus), "it is told what is left")
        assert self.told == (left or self.told) == self.container["pending"]["cpus"]
        assert self.has == before
        return began


def on_record(node: Runtime, place: str) -> tuple[int, int, str]:
    """Return shares, quota and CPU list of a container as the runtime has them."""
    [container] = [one.id for one in containers(node) if one.place == place]
    linux = node.cri.status(container).resources.linux
    return linux.cpu_shares, linux.cpu_quota, linux.cpuset_cpus


def test_a_pod_that_is_resized_keeps_its_cpus_and_gets_its_new_size(
    api: APIServer, kube: Any, playing: Playing, played: Played
) -> None:
    seen = Watching()
    with playing() as node, pinned(node, kube.kubelet, RESIZED, played(RESIZED), api=api) as both:
        with plugged(node.nri_socket, seen, FIRST):
            pods = [pod_of("own", Wants("app", "2", "64Mi")), pod_of("part", Wants("app", "300m", "64Mi"))]
            arrive(api, node, RESIZED.name, pods, both.says_no)
            before = given(node)
            assert before["own/app"] == ("1,33", "")
            records = [on_record(node, "own/app")]
            for cpu in ("4", "1"):
                resize(api, "own", cpu)
                records.append(on_record(node, "own/app"))
                assert given(node) == before
            resize(api, "part", "600m")
            records.append(on_record(node, "part/app"))
            assert given(node) == before
        # The kubelet asks once for each change, for whole settings, and never for a cpuset.
        assert [(one.shares, one.quota, one.cpus) for _, one in seen.asked] == [
            (4096, 400_000, ""),
            (1024, 100_000, ""),
            (614, 60_000, ""),
        ]
        # The runtime's record is the kubelet's wish until the first update, then what the agent made of that.
        pool = before["part/app"][0]
        assert records == [(2048, 200_000, ""), (4096, -1, "1,33"), (1024, -1, "1,33"), (614, 60_000, pool)]
        # Without a quota on record the kubelet goes on to tell the limit from before.
        assert (limit_told(api, "own"), limit_told(api, "part")) == ("2", "600m")
        assert both.agent.status()["cpus"]["exclusive"] == "1,33"


@pytest.fixture
def delayed(
    request: pytest.FixtureRequest, api: APIServer, kube: Any, playing: Playing, played: Played
) -> Iterator[Delayed]:
    """Return a node with all extensions, on which the pod ``own`` has two CPUs, and perhaps a delay of its own."""
    case = replace(RESIZED, name="delayed", policies=DELAYED)
    with playing() as node:
        cpus, mems = EVERY
        program = (sys.executable, "-m", "tests.e2e.containerd.pretended_cgroups", str(node.folder), cpus, mems)
        machine = played(case)
        with pinned(
            node, kube.kubelet, case, machine, api=api, extensions=EXTENSIONS, program_of_agent=program
        ) as both:
            grace = {GRACE: str(DELAY)} if getattr(request, "param", NODE_S) == POD_S else {}
            annotations = {"mooring/assigned": "true", **grace}
            own = pod_of("own", Wants("app", "2", "64Mi"), annotations=annotations)
            arrive(api, node, case.name, [own, pod_of("other", Wants("app"))], both.says_no)
            [app] = [one.id for one in containers(node) if one.place == "own/app"]
            made = Delayed(api, node, both, app)
            assert made.told == given(node)["own/app"][0] == FIRST_CPUS
            yield made


def test_a_pod_grows_at_once_gives_back_late_and_keeps_its_first_cpus(delayed: Delayed) -> None:
    grown = delayed.grow("6")
    began = delayed.shrink("2", FIRST_CPUS)
    assert not CPUSet.parse(grown) & CPUSet.parse(delayed.both.agent.status()["cpus"]["shared"])
    until(lambda: delayed.has == FIRST_CPUS, "the others are taken back")
    assert time.monotonic() - began >= DELAY
    until(lambda: conditions(delayed.api, "own") == {}, "the kubelet is done")


def test_a_refusal_is_reported_in_the_pod_s_condition_and_the_next_resize_is_none_the_worse(delayed: Delayed) -> None:
    ask(delayed.api, "own", "1")
    until(lambda: IN_PROGRESS in conditions(delayed.api, "own"), "the kubelet is told no")
    until(lambda: conditions(delayed.api, "own")[IN_PROGRESS][0] == "Error", "the kubelet tells it")
    assert BELOW_FIRST in conditions(delayed.api, "own")[IN_PROGRESS][1]
    assert (delayed.told, delayed.has) == (FIRST_CPUS, FIRST_CPUS)
    assert delayed.container["resize"]["reason"] == "Infeasible"
    resize(delayed.api, "own", "2")
    assert (delayed.told, delayed.has) == (FIRST_CPUS, FIRST_CPUS)
    delayed.grow("4")
    assert "resize" not in delayed.container


def test_nobody_else_gets_cpus_before_their_delay_is_over(delayed: Delayed) -> None:
    grown = delayed.grow("40")
    began = delayed.shrink("2", FIRST_CPUS)
    late = pod_of("late", Wants("app", "30", "64Mi"))
    node = {"nodeName": delayed.both.kubelet.name}
    uid = delayed.api.create_pod({**late, "spec": {**late["spec"], **node}})["metadata"]["uid"]
    until(lambda: delayed.both.says_no(uid) or delayed.has == FIRST_CPUS, "it is held back")
    assert delayed.has == grown
    assert "late/app" not in given(delayed.node)
    # The kubelet tries again by itself.
    until(lambda: "late/app" in given(delayed.node), "it starts")
    assert time.monotonic() - began >= DELAY
    assert delayed.has == FIRST_CPUS
    assert CPUSet.parse(given(delayed.node)["late/app"][0]) & CPUSet.parse(grown)


def test_a_growth_drops_what_is_pending_and_another_shrink_replaces_it(delayed: Delayed) -> None:
    grown = delayed.grow("8")
    began = delayed.shrink("2", FIRST_CPUS)
    larger = delayed.grow("10")
    assert CPUSet.parse(grown) <= CPUSet.parse(larger)
    assert "pending" not in delayed.container
    until(lambda: time.monotonic() - began > DELAY + 1, "the delay would be over")
    assert (delayed.told, delayed.has) == (larger, larger)
    delayed.shrink("6")
    again = delayed.shrink("4")
    left = delayed.told
    until(lambda: delayed.has != larger, "the others are taken back")
    assert time.monotonic() - again >= DELAY
    assert (delayed.told, delayed.has) == (left, left)


@pytest.mark.parametrize("delayed", [NODE_S, POD_S], indirect=True)
def test_a_killed_agent_begins_the_node_s_delay_anew_and_goes_on_with_a_pod_s_own(
    delayed: Delayed, request: pytest.FixtureRequest
) -> None:
    grown = delayed.grow("6")
    asked = delayed.shrink("2", FIRST_CPUS)
    told = time.monotonic()
    delayed.both.agent.end(signal.SIGKILL)
    assert (delayed.told, given(delayed.node)["own/app"][0]) == (FIRST_CPUS, grown)
    killed = time.monotonic()
    delayed.both.agent.start()
    assert delayed.told == FIRST_CPUS
    if request.node.callspec.params["delayed"] == POD_S:
        began, now = asked, time.monotonic()
        left = delayed.container.get("pending", {"secondsLeft": 0})["secondsLeft"]
        assert left == 0 or left <= DELAY - (now - told)
    else:
        began = killed
        assert delayed.has == grown
    until(lambda: delayed.has == FIRST_CPUS, "the others are taken back")
    assert time.monotonic() - began >= DELAY


@pytest.mark.parametrize("delayed", [POD_S], indirect=True)
def test_an_older_kubelet_reads_the_state_file_of_a_pending_release(
    delayed: Delayed, kube: Any, playing: Playing, played: Played
) -> None:
    delayed.grow("6")
    delayed.shrink("2", FIRST_CPUS)
    file = delayed.node.folder / "state-of-agent" / "cpu_manager_state"

    def has_followed() -> bool:
        members = json.loads(json.loads(file.read_text("utf-8"))["data"])
        return {"baselines", "preAssignments"} <= {*members}

    until(has_followed, "the state file has what is pending")
    text = file.read_text(encoding="utf-8")
    policies = {"cpuManagerPolicy": "static", **RESIZED.reservations}
    for name, gates in (("gate-off", {}), ("gate-on", {GATES[0]: True})):
        settings = {**policies, "featureGates": gates}
        with playing() as node:
            beginning = kubelet_on(node, kube.kubelet, name, settings, machine=played(RESIZED), cpu_state=text)
            with beginning as kubelet:
                # It reads the file when it starts, and ends where it cannot; of its pods nobody has told it.
                assert json.loads(json.loads(kubelet.state("cpu"))["data"])["policyName"] == "static"
                problems = [
                    line
                    for line in kubelet.log.splitlines()
                    # A fresh kubelet misses the device manager's checkpoint, and says so sooner or later.
                    if "checkpoint" in line.lower() and line[0] in "EF" and "kubelet_internal_checkpoint" not in line
                ]
                assert not problems, problems
