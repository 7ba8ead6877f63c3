"""Claims from the scheduler to the container: kubelet, agent and driver together, and restarts in the middle."""

from __future__ import annotations

import contextlib
import importlib
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import mooring
from tests.e2e.containerd.runtime import Containerd, e2e_parts
from tests.e2e.kubelet.apiserver import PODS, APIServer
from tests.e2e.kubelet.arrival import runs
from tests.e2e.kubelet.cases import Case, Wants, cases, pod_of
from tests.e2e.kubelet.claiming import (
    CLAIMS,
    DRIVER,
    GROUP,
    DriverProcess,
    claim_of,
    device_class,
    driver_on,
    forget_claims,
    scheduler_on,
    with_claims,
)
from tests.e2e.kubelet.decided import Played, Playing
from tests.e2e.kubelet.patience import until
from tests.e2e.kubelet.pinning import Pinned, pinned
from tests.e2e.kubelet.placements import containers, given

from mooring.core.cpuset import CPUSet

CASE: Case = cases()[0]
"""Eight NUMA nodes of 32 CPUs each."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """A node on which claims are prepared."""

    api: APIServer
    node: Containerd
    both: Pinned
    driver: DriverProcess

    def claim(self, name: str, *requests: tuple[str, int], **metadata: Any) -> dict[str, Any]:
        return self.api.post(CLAIMS, claim_of(name, *requests, **metadata))

    def pod(self, pod: dict[str, Any]) -> dict[str, Any]:
        """Create a pod, let the scheduler find its node, and wait until it runs."""
        made = self.api.create_pod(pod)
        until(partial(runs, self.node, made), f"pod {made['metadata']['name']} runs")
        return made

    def cpus(self, place: str) -> CPUSet:
        return CPUSet.parse(given(self.node)[place][0])

    def environment(self, place: str) -> dict[str, str]:
        [one] = [one for one in containers(self.node) if one.place == place and one.state == "RUNNING"]
        lines = self.node.cri.execute(one.id, "env").splitlines()
        return dict(line.split("=", 1) for line in lines if line.startswith("MOORING_"))

    def claims(self) -> dict[str, str]:
        """Return what the agent says of claims: name -> CPUs."""
        return {f"{one['namespace']}/{one['name']}": one["cpus"] for one in self.both.agent.status().get("claims", [])}

    def capacity(self) -> dict[str, int]:
        """Return what the slices offer, by device."""
        found = self.api.get(f"{GROUP}/resourceslices")["items"]
        return {
            device["name"]: int(device["capacity"]["dra.cpu/cpu"]["value"])
            for one in found
            for device in one["spec"]["devices"]
        }


@pytest.fixture
def claimed(api: APIServer, kube: Any, playing: Playing, played: Played) -> Iterator[Claimed]:
    script = importlib.import_module("e2e_kube_parts")
    try:
        scheduler = script.kube_program("kube-scheduler")
    except e2e_parts().UnavailableError as why:
        pytest.skip(f"e2e kubelet: {why}")
    forget_claims(api)
    api.post(f"{GROUP}/deviceclasses", device_class())
    with contextlib.ExitStack() as opened:
        node = opened.enter_context(playing())
        socket = str(node.folder / "claims.sock")
        machine = played(CASE)
        both = opened.enter_context(pinned(node, kube.kubelet, CASE, machine, api=api, claimsSocket=socket))
        opened.enter_context(scheduler_on(scheduler, api, node.folder))
        driver = DriverProcess(node, both.kubelet, api, socket, str(machine), ["--immediate"])
        opened.enter_context(driver_on(driver))
        made = Claimed(api, node, both, driver)
        until(lambda: made.capacity().get("numa1") == 32, "slices are published")
        yield made
        for pod in api.pods():
            api.delete(f"{PODS}/{pod['metadata']['name']}")
        until(lambda: not api.pods(), "all pods are gone")
    forget_claims(api)


def test_a_claim_goes_from_the_scheduler_to_the_container_and_comes_back(claimed: Claimed) -> None:
    # CPUs 0 and 128 are reserved; with nobody else on the node all others can be claimed.
    assert claimed.capacity() == {"numa0": 30, **{f"numa{node}": 32 for node in range(1, 8)}}
    claimed.pod(pod_of("shared", Wants("app")))
    claimed.claim("two", ("fast", 10), ("slow", 4))
    claimed.pod(
        with_claims(
            pod_of("user", Wants("first"), Wants("second"), Wants("none")),
            {"cpus": "two"},
            first=[{"name": "cpus"}],
            second=[{"name": "cpus", "request": "slow"}],
        )
    )
    everything, slow = claimed.cpus("user/first"), claimed.cpus("user/second")
    assert (len(everything), len(slow)) == (14, 4)
    assert slow <= everything
    assert not everything & claimed.cpus("shared/app")
    assert not everything & claimed.cpus("user/none")
    environment = claimed.environment("user/second")
    assert environment["MOORING_REQUEST_SLOW"] == str(slow)
    assert "MOORING_REQUEST_FAST" not in environment
    assert claimed.claims() == {"default/two": str(everything)}
    status = claimed.api.get(f"{CLAIMS}/two")["status"]
    assert {one["data"]["cpus"] for one in status["devices"]} >= {str(slow)}
    claimed.pod(pod_of("own", Wants("app", "8", "64Mi")))
    assert len(claimed.cpus("own/app")) == 8
    assert not claimed.cpus("own/app") & everything
    assert claimed.both.agent.status()["cpus"]["overlap"] == ""
    until(lambda: sum(claimed.capacity().values()) == 256 - 2 - 8, "the slices lack the pod's CPUs")
    claimed.api.delete(f"{PODS}/user")
    until(lambda: claimed.claims() == {}, "the claim has given back")
    until(lambda: not list(claimed.driver.cdi.iterdir()), "its file is gone")
    # On a machine that is played no control group is written; the runtime's record follows with its next question.
    claimed.pod(pod_of("late", Wants("app")))
    until(lambda: everything <= claimed.cpus("shared/app"), "the pool has the CPUs again")


def test_restarts_of_agent_and_driver_change_nothing_and_a_lost_state_is_restored(claimed: Claimed) -> None:
    claimed.claim("one", ("fast", 6))
    claimed.pod(with_claims(pod_of("user", Wants("app")), {"cpus": "one"}, app=[{"name": "cpus"}]))
    mine = claimed.cpus("user/app")
    assert len(mine) == 6
    for sign in (signal.SIGTERM, signal.SIGKILL):
        claimed.driver.end(sign)
        claimed.both.agent.end(sign)
        claimed.both.agent.start()
        claimed.driver.start()
        assert claimed.claims() == {"default/one": str(mine)}
        assert claimed.cpus("user/app") == mine
    # The agent's folder is lost.
    claimed.both.agent.end(signal.SIGKILL)
    for file in claimed.both.agent.journal.parent.iterdir():
        file.unlink()
    claimed.both.agent.start()
    until(lambda: claimed.claims() == {"default/one": str(mine)}, "the driver has told the claim again")
    claimed.pod(pod_of("later", Wants("app")))
    until(lambda: claimed.cpus("user/app") == mine and not claimed.cpus("later/app") & mine, "nobody else is there")
    claimed.driver.end()
    claimed.api.delete(f"{PODS}/user")
    until(lambda: claimed.api.pod("user") is not None, "the pod waits for the driver")
    claimed.driver.start()
    until(lambda: claimed.claims() == {}, "the claim has given back")


def test_a_claim_that_does_not_fit_is_left_to_the_scheduler_and_comes_in_when_there_is_room(claimed: Claimed) -> None:
    claimed.claim("big", ("fast", 32))
    claimed.claim("more", *((f"r{number}", 20) for number in range(8)))
    uses = [{"name": "cpus"}]
    claimed.pod(with_claims(pod_of("first", Wants("app")), {"cpus": "more"}, app=uses))
    waiting = claimed.api.create_pod(with_claims(pod_of("second", Wants("app")), {"cpus": "big"}, app=uses))
    until(lambda: unschedulable(claimed.api.pod("second")), "the scheduler has no node for it")
    claimed.api.delete(f"{PODS}/first")
    until(lambda: claimed.api.pod("first") is None, "the first pod is gone")
    # What the controller manager of a cluster does with a claim that nobody uses.
    headers = {"Content-Type": "application/merge-patch+json"}
    claimed.api.cluster.http.patch(f"{CLAIMS}/more/status", json={"status": None}, headers=headers)
    until(partial(runs, claimed.node, waiting), "the second pod runs")
    assert len(claimed.cpus("second/app")) == 32


def unschedulable(pod: dict[str, Any] | None) -> bool:
    conditions = [] if pod is None else pod["status"].get("conditions", [])
    return any("cannot allocate all claims" in one.get("message", "") for one in conditions)


def test_immediate_allocation_takes_the_cpus_before_any_pod_comes(claimed: Claimed) -> None:
    name = CASE.name
    annotations = {"mooring/allocate": "immediate", "mooring/node": name}
    claimed.claim("now", ("fast", 5), annotations=annotations)
    until(lambda: "default/now" in claimed.claims(), "the claim is allocated")
    claim = claimed.api.get(f"{CLAIMS}/now")
    [result] = claim["status"]["allocation"]["devices"]["results"]
    assert (result["driver"], result["pool"], result["consumedCapacity"]) == (DRIVER, name, {"dra.cpu/cpu": "5"})
    held = claimed.claims()["default/now"]
    claimed.pod(with_claims(pod_of("user", Wants("app")), {"cpus": "now"}, app=[{"name": "cpus"}]))
    assert str(claimed.cpus("user/app")) == held


def test_a_pod_cannot_take_part_in_the_claim_of_another(claimed: Claimed) -> None:
    claimed.claim("one", ("fast", 4))
    claimed.pod(with_claims(pod_of("user", Wants("app")), {"cpus": "one"}, app=[{"name": "cpus"}]))
    [variable] = [name for name in claimed.environment("user/app") if name.startswith("MOORING_CLAIM_")]
    thief = Wants("app", settings={"env": [{"name": variable, "value": "0"}]})
    claimed.api.create_pod(pod_of("thief", thief))
    until(lambda: any("ClaimNotReserved" in str(line) for line in claimed.both.agent.log), "it is refused")
    assert "thief/app" not in given(claimed.node)


def test_a_driver_beside_a_kubelet_that_owns_cpus_ends_at_once(tmp_path: Path) -> None:
    (tmp_path / "cpu_manager_state").write_text('{"policyName":"static"}', encoding="utf-8")
    done = mooring("dra", "--kubelet-root", str(tmp_path))
    assert done.code == 2
