"""Claims from the scheduler to the container: kubelet, agent and driver together, and restarts in the middle."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import mooring
from tests.e2e.folders import short_folder
from tests.e2e.kubelet.apiserver import PODS, APIServer, Ports, api_server
from tests.e2e.kubelet.arrival import runs
from tests.e2e.kubelet.cases import Wants, pod_of
from tests.e2e.kubelet.claimed import CASE, Claimed, claims_on
from tests.e2e.kubelet.claiming import CLAIMS, DRIVER, GROUP, claim_of, claim_of_devices, with_claims
from tests.e2e.kubelet.decided import Played, Playing
from tests.e2e.kubelet.patience import until
from tests.e2e.kubelet.placements import given

from mooring.cluster.dra.devices import Grouping, device_cpus, devices_of
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.topology import discover_topology
from mooring.inputs.machines.loader import load_machine
from mooring.service.apiserver import cluster_of, configuration_of

GATE = "DRANodeAllocatableResources"


@pytest.fixture
def claimed(api: APIServer, kube: Any, playing: Playing, played: Played) -> Iterator[Claimed]:
    with claims_on(api, kube, playing, played, "--immediate") as made:
        yield made


def test_a_claim_goes_from_the_scheduler_to_the_container_and_comes_back(claimed: Claimed) -> None:
    # CPUs 0 and 128 are reserved; with nobody else on the node all others can be claimed.
    until(lambda: claimed.capacity().get("numa1") == 32, "slices are whole")
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
    assert claimed.inside("user/second", "cat", "/run/mooring-claims/slow/cpuset") == str(slow)
    assert claimed.inside("user/second", "busybox", "ls", "/run/mooring-claims") == "slow\n"
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


def unschedulable(pod: dict[str, Any] | None, why: str = "cannot allocate all claims") -> bool:
    conditions = [] if pod is None else pod["status"].get("conditions", [])
    return any(why in one.get("message", "") for one in conditions)


def test_immediate_allocation_takes_the_cpus_before_any_pod_comes(claimed: Claimed) -> None:
    name = CASE.name
    annotations = {"mooring/allocate": "immediate", "mooring/node": name}
    claimed.claim("now", ("fast", 5), annotations=annotations)
    # The CPUs come first, then the allocation is written.
    until(lambda: "allocation" in claimed.api.get(f"{CLAIMS}/now").get("status", {}), "the claim is allocated")
    claim = claimed.api.get(f"{CLAIMS}/now")
    [result] = claim["status"]["allocation"]["devices"]["results"]
    assert (result["driver"], result["pool"], result["consumedCapacity"]) == (DRIVER, name, {"dra.cpu/cpu": "5"})
    held = claimed.claims()["default/now"]
    claimed.pod(with_claims(pod_of("user", Wants("app")), {"cpus": "now"}, app=[{"name": "cpus"}]))
    assert str(claimed.cpus("user/app")) == held


@pytest.mark.parametrize("grouping", [Grouping.SOCKET, Grouping.L3], ids=lambda grouping: grouping.value)
def test_claims_of_other_groups_get_cpus_of_one_group(
    api: APIServer, kube: Any, playing: Playing, played: Played, grouping: Grouping
) -> None:
    topology = discover_topology(load_machine(CASE.machine).info)
    free = {
        one.name: (one.cpus & ~CPUSet.parse(CASE.reserved).mask).bit_count() for one in devices_of(topology, grouping)
    }
    with claims_on(api, kube, playing, played, "--group", grouping.value) as claimed:
        until(lambda: claimed.capacity() == free, "all CPUs that are not reserved are offered")
        claimed.claim("two", ("fast", 10), ("slow", 4))
        uses = with_claims(pod_of("user", Wants("app")), {"cpus": "two"}, app=[{"name": "cpus"}])
        claimed.pod(uses)
        mine = claimed.cpus("user/app")
        assert len(mine) == 14
        environment = claimed.environment("user/app")
        fast, slow = (CPUSet.parse(environment[f"MOORING_REQUEST_{name}"]) for name in ("FAST", "SLOW"))
        assert (len(fast), len(slow), fast | slow) == (10, 4, mine)
        assert claimed.claims() == {"default/two": str(mine)}
        groups = [device_cpus(topology, name) for name in claimed.allocated("two")]
        assert all(any(not share.mask & ~cpus for cpus in groups) for share in (fast, slow))
        claimed.pod(pod_of("shared", Wants("app")))
        assert not claimed.cpus("shared/app") & mine
        claimed.api.delete(f"{PODS}/user")
        until(lambda: claimed.claims() == {}, "the claim has given back")


def test_a_claim_to_single_cpus_has_those_that_the_scheduler_chose(
    api: APIServer, kube: Any, playing: Playing, played: Played
) -> None:
    with claims_on(api, kube, playing, played, "--group", "cpu") as claimed:
        everything = {f"cpu{cpu}" for cpu in range(256)} - {"cpu0", "cpu128"}
        until(lambda: claimed.capacity().keys() == everything, "each CPU is a device, in two slices")
        claimed.api.post(CLAIMS, claim_of_devices("three", "own", 3))
        claimed.pod(with_claims(pod_of("user", Wants("app")), {"cpus": "three"}, app=[{"name": "cpus"}]))
        mine = claimed.cpus("user/app")
        assert {f"cpu{cpu}" for cpu in mine} == set(claimed.allocated("three"))
        assert claimed.environment("user/app")["MOORING_REQUEST_OWN"] == str(mine)
        claimed.pod(pod_of("own", Wants("app", "8", "64Mi")))
        taken = claimed.cpus("own/app")
        assert len(taken) == 8
        assert not taken & mine
        until(
            lambda: claimed.capacity().keys() == everything - {f"cpu{cpu}" for cpu in taken}, "the pod's are left out"
        )
        claimed.api.delete(f"{PODS}/user")
        until(lambda: claimed.claims() == {}, "the claim has given back")


@pytest.fixture
def gated_api(cluster: APIServer, kube: Any) -> Iterator[APIServer]:  # noqa: ARG001 - the network is private from then on
    """An API server that keeps how devices count against the node's allocatable CPUs."""
    with short_folder("kube-") as folder, api_server(kube, folder, Ports(22379, 22380, 26443), gates=[GATE]) as made:
        yield made


@pytest.mark.parametrize(("options", "count"), [(("core",), 3), (("l3", "--whole"), 2)], ids=["core", "l3"])
def test_whole_cores_and_caches_are_given_and_count_against_the_nodes_allocatable(
    gated_api: APIServer, kube: Any, playing: Playing, played: Played, options: tuple[str, ...], count: int
) -> None:
    topology = discover_topology(load_machine(CASE.machine).info)
    reserved = CPUSet.parse(CASE.reserved).mask
    whole = {one.name for one in devices_of(topology, Grouping(options[0])) if not one.cpus & reserved}
    more = ("--node-allocatable", "--group", *options)
    with claims_on(gated_api, kube, playing, played, *more, gates=[GATE]) as claimed:
        until(lambda: claimed.capacity().keys() == whole, "all devices without a reserved CPU are offered")
        claimed.api.post(CLAIMS, claim_of_devices("whole", "own", count))
        claimed.pod(with_claims(pod_of("user", Wants("app")), {"cpus": "whole"}, app=[{"name": "cpus"}]))
        devices = claimed.allocated("whole")
        mine = claimed.cpus("user/app")
        assert len(set(devices)) == count
        assert mine.mask == sum(device_cpus(topology, name) for name in devices)
        pod = claimed.api.pod("user")
        assert pod is not None
        [told] = pod["status"]["nodeAllocatableResourceClaimStatuses"]
        assert [(one["name"], one["quantity"]) for one in told["mapping"]] == [("cpu", str(len(mine)))]
        # 254 CPUs are allocatable: without the claim the pod would fit.
        claimed.api.create_pod(pod_of("large", Wants("app", str(255 - len(mine)), "64Mi")))
        until(lambda: unschedulable(claimed.api.pod("large"), "Insufficient cpu"), "the claim's CPUs are counted")


def test_a_driver_says_that_the_api_server_drops_how_devices_count(
    api: APIServer, kube: Any, playing: Playing, played: Played
) -> None:
    with claims_on(api, kube, playing, played, "--node-allocatable") as claimed:
        until(lambda: "turn on the feature gate" in str(claimed.driver.log), "the gate is off")


def test_cpus_of_the_machine_are_spread_over_numa_nodes_and_the_pod_knows_attributes_and_health(
    api: APIServer, kube: Any, playing: Playing, played: Played
) -> None:
    topology = discover_topology(load_machine(CASE.machine).info)
    online = played(CASE) / "sys/devices/system/cpu/online"
    everything = online.read_text(encoding="ascii")

    def health() -> list[tuple[str, str]]:
        pod = api.pod("user")
        [container] = [] if pod is None else pod["status"]["containerStatuses"]
        return [
            (one["health"], one.get("message", ""))
            for told in container.get("allocatedResourcesStatus", [])
            for one in told["resources"]
        ]

    with claims_on(api, kube, playing, played, "--group", "machine") as claimed:
        until(lambda: claimed.capacity() == {"machine0": 254}, "all CPUs are one device")
        content = claim_of("spread", ("fast", 18))
        parameters = {"apiVersion": "mooring/v1alpha1", "kind": "ClaimParameters", "numaNodes": 4}
        content["spec"]["devices"]["config"] = [{"opaque": {"driver": DRIVER, "parameters": parameters}}]
        claimed.api.post(CLAIMS, content)
        claimed.pod(with_claims(pod_of("user", Wants("app")), {"cpus": "spread"}, app=[{"name": "cpus"}]))
        mine = claimed.cpus("user/app")
        parts = [(mine.mask & node).bit_count() for node in topology.numa.values() if mine.mask & node]
        assert (len(parts), sum(parts), max(parts) - min(parts)) == (4, 18, 1)
        path = f"/var/run/kubernetes.io/dra-device-attributes/resourceclaims/spread/fast/{DRIVER}-metadata.json"
        newest, older = map(json.loads, claimed.inside("user/app", "cat", path).splitlines())
        assert [one.pop("apiVersion").rpartition("/")[2] for one in (newest, older)] == ["v1beta1", "v1alpha1"]
        [device] = newest["requests"][0]["devices"]
        assert (device["name"], device["attributes"]["dra.cpu/numCPUs"]) == ("machine0", {"int": 256})
        assert newest == older
        until(lambda: health() == [("Healthy", "")], "the kubelet knows that the device is healthy")
        lost = max(mine)
        try:
            online.write_text(f"{CPUSet.parse(everything.strip()) - CPUSet.from_ids([lost])}\n", encoding="ascii")
            until(lambda: health() == [("Unhealthy", f"offline CPUs: {lost}")], "the pod knows that it lost a CPU")
        finally:
            online.write_text(everything, encoding="ascii")
        until(lambda: health() == [("Healthy", "")], "the CPU is back")


def test_the_driver_has_its_rights_and_no_others(claimed: Claimed) -> None:
    """All tests of claims run with these rights; here is what they do not allow."""
    path = claimed.driver.kubeconfig
    assert path is not None
    with cluster_of(configuration_of(str(path))) as driver:
        for what in (PODS, "api/v1/nodes", "api/v1/secrets", "apis/apps/v1/deployments"):
            assert driver.http.get(what).status_code == 403, what
        assert driver.http.get(f"api/v1/nodes/{CASE.name}").is_success
        [name, *_] = [one["metadata"]["name"] for one in claimed.api.get(f"{GROUP}/resourceslices")["items"]]
        slice_ = claimed.api.get(f"{GROUP}/resourceslices/{name}")
        pool = {**slice_["spec"]["pool"], "name": "elsewhere"}
        other = {
            "apiVersion": slice_["apiVersion"],
            "kind": slice_["kind"],
            "metadata": {"name": "elsewhere"},
            "spec": {**slice_["spec"], "nodeName": "elsewhere", "pool": pool},
        }
        refused = driver.http.post(f"{GROUP}/resourceslices", json=other, params={"dryRun": "All"})
        assert refused.status_code in (403, 422)
        assert "the driver writes the slices of its own node only" in refused.text
        claimed.claim("one", ("fast", 4))
        headers = {"Content-Type": "application/merge-patch+json"}
        assert driver.http.delete(f"{CLAIMS}/one").status_code == 403
        assert driver.http.patch(f"{PODS}/x", json={}, headers=headers).status_code == 403


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
