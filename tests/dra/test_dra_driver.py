"""A node with a running agent, a driver and the kubelet's side of its sockets; the API server is made up."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

import grpc
import pytest
from tests.agent.nri.runtime_side import RuntimeSide
from tests.agent.whole_agent import Node, start, until
from tests.e2e.folders import short_folder

from mooring.cluster.dra.cdi import CDISpecs
from mooring.cluster.dra.devices import Grouping, SlicePublisher
from mooring.cluster.dra.driver import Driver, Reconciler
from mooring.cluster.dra.objects import ClaimsClient, ClaimsError
from mooring.cluster.dra.plugin import (
    DeviceHealth,
    DriverMetrics,
    NodeWatchResourcesRequestMessage,
    NodeWatchResourcesResponseMessage,
    Plugin,
)
from mooring.service import messages
from mooring.service.apiserver import ClusterError
from mooring.service.logs import Log

DRIVER, NODE = "cpu.example", "edge-7"


@dataclass
class MadeUpObjects:
    """What the driver asks of an API server."""

    known: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    published: dict[str, dict[str, Any]] = field(default_factory=dict)
    devices: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    away: bool = False
    has_gates: bool = True

    def add(self, name: str, *results: dict[str, Any], pods: tuple[str, ...] = (), **metadata: Any) -> dict[str, Any]:
        """Add a claim, allocated when there are results."""
        content: dict[str, Any] = {
            "metadata": {"uid": f"uid-{name}", "namespace": "default", "name": name, **metadata},
            "status": {"reservedFor": [{"resource": "pods", "uid": uid} for uid in pods]},
        }
        if results:
            content["status"]["allocation"] = {"devices": {"results": list(results)}}
        self.known["default", name] = content
        return content

    def claim(self, namespace: str, name: str) -> dict[str, Any] | None:
        self._ask()
        return self.known.get((namespace, name))

    def claims(self) -> list[dict[str, Any]]:
        self._ask()
        return [*self.known.values()]

    def classes(self) -> list[dict[str, Any]]:
        expression = f'device.driver == "{DRIVER}"'
        return [{"metadata": {"name": "cpus"}, "spec": {"selectors": [{"cel": {"expression": expression}}]}}]

    def slices(self, _driver: str, _node: str) -> list[dict[str, Any]]:
        self._ask()
        return [*self.published.values()]

    def node_uid(self, _name: str) -> str:
        return "uid-of-node"

    def apply_slice(self, content: dict[str, Any]) -> dict[str, Any]:
        self._ask()
        if not self.has_gates:
            devices = [{**one, "nodeAllocatableResources": {}} for one in content["spec"]["devices"]]
            content = {**content, "spec": {**content["spec"], "devices": devices}}
        self.published[content["metadata"]["name"]] = content
        return content

    def delete_slice(self, name: str) -> None:
        self.published.pop(name, None)

    def apply_claim_devices(self, _namespace: str, name: str, devices: list[dict[str, Any]]) -> None:
        self._ask()
        self.devices[name] = devices

    def allocate(self, claim: Mapping[str, Any], allocation: Mapping[str, Any]) -> None:
        self._ask()
        if claim["metadata"].get("conflict"):
            raise ClusterError("changed meanwhile", code=409)
        self.known["default", claim["metadata"]["name"]]["status"]["allocation"] = allocation

    def _ask(self) -> None:
        if self.away:
            raise ClusterError("nobody answers")


@dataclass
class ClaimNode:
    """Everything of one node."""

    node: Node
    runtime: RuntimeSide
    objects: MadeUpObjects
    grouping: Grouping = Grouping.NUMA
    now: float = 0.0
    metrics: DriverMetrics = field(default_factory=lambda: DriverMetrics(lambda: True))

    @property
    def agent_socket(self) -> str:
        return str(self.node.folder / "claims.sock")

    @property
    def specs(self) -> CDISpecs:
        return CDISpecs(self.node.folder / "cdi", DRIVER)

    @contextlib.contextmanager
    def driver(self) -> Iterator[Kubelet]:
        """Run a driver, and return the kubelet's side of it."""
        objects: Any = self.objects
        log = Log("test")
        agent = ClaimsClient(self.agent_socket)
        publisher = SlicePublisher(DRIVER, NODE, self.grouping, objects, log)
        driver = Driver(agent, self.specs, publisher)
        health = DeviceHealth(NODE, self.node.folder)
        reconciler = Reconciler(driver, health, immediate=True)
        with short_folder("dra-") as root:
            plugin = Plugin(driver, root / "p", root / "r", self.metrics, health)
            kubelet = Kubelet(self, root / "r" / f"{DRIVER}-reg.sock", reconciler, publisher, plugin)
            try:
                yield kubelet
            finally:
                kubelet.close()
                plugin.close()

    def claims(self) -> dict[str, str]:
        """Return what the agent says: name -> CPUs."""
        return {one["name"]: one["cpus"] for one in self.node.status.get("claims", [])}

    def pods(self) -> dict[str, list[str]]:
        return {one["name"]: one["pods"] for one in self.node.status.get("claims", [])}


class Kubelet:
    """Speaks to a driver as a kubelet does."""

    def __init__(
        self, place: ClaimNode, registration: Path, reconciler: Reconciler, publisher: SlicePublisher, plugin: Plugin
    ) -> None:
        self.place, self.reconciler, self.publisher, self.plugin = place, reconciler, publisher, plugin
        self._channels = contextlib.ExitStack()
        self._registration = str(registration)
        self.info = self._register("GetInfo", messages.InfoRequestMessage(), messages.PluginInfoMessage)

    def notify(self, *, registered: bool, error: str = "") -> None:
        status = messages.RegistrationStatusMessage(plugin_registered=registered, error=error)
        self._register("NotifyRegistrationStatus", status, messages.RegistrationStatusResponseMessage)

    def prepare(self, name: str, uid: str = "") -> Any:
        return self._claims("NodePrepareResources", name, uid)

    def unprepare(self, name: str, uid: str = "") -> str:
        return str(self._claims("NodeUnprepareResources", name, uid).error)

    def reconcile(self, seconds: float = 100.0) -> None:
        self.place.now += seconds
        self.reconciler.reconcile(self.place.now)

    def watch(self, service: str) -> Iterator[dict[str, tuple[int, str]]]:
        """Yield what the driver reports of its devices."""
        path, response = f"{service}/NodeWatchResources", NodeWatchResourcesResponseMessage
        for report in self._call(self.info.endpoint, path, NodeWatchResourcesRequestMessage(), response, stream=True):
            assert {one.device.pool_name for one in report.devices} <= {NODE}
            yield {one.device.device_name: (one.health, one.message) for one in report.devices}

    def close(self) -> None:
        self._channels.close()

    def _claims(self, method: str, name: str, uid: str) -> Any:
        uid = uid or f"uid-{name}"
        request, response = (getattr(messages, f"{method}{what}Message") for what in ("Request", "Response"))
        asked = request(claims=[messages.ClaimMessage(namespace="default", uid=uid, name=name)])
        return self._call(self.info.endpoint, f"{messages.DRA_SERVICE}/{method}", asked, response).claims[uid]

    def _register(self, method: str, request: Any, response: Any) -> Any:
        return self._call(self._registration, f"{messages.REGISTRATION_SERVICE}/{method}", request, response)

    def _call(self, socket: str, path: str, request: Any, response: Any, *, stream: bool = False) -> Any:
        channel = grpc.insecure_channel(f"unix:{socket}", [("grpc.default_authority", "localhost")])
        self._channels.callback(channel.close)
        call: Any = (channel.unary_stream if stream else channel.unary_unary)(
            f"/{path}", lambda message: message.SerializeToString(), response.FromString
        )
        return call(request, timeout=60)


def result(device: str, count: int, request: str = "r", share: str = "") -> dict[str, Any]:
    amounts = {"shareID": share or None, "consumedCapacity": {"dra.cpu/cpu": str(count)}}
    return {"request": request, "driver": DRIVER, "pool": NODE, "device": device, **amounts}


# Driver and agent together, on a node of 8 CPUs in two NUMA nodes of which CPU 0 is reserved.


def agent_on(node: Node) -> RuntimeSide:
    """Start an agent that takes claims, and let the runtime tell it everything."""
    agent = node.agent(f"claimsSocket: {node.folder}/claims.sock")
    runtime = node.listening.next()
    runtime.synchronize()
    # The runtime has its answer a moment before the agent says of itself that it was told.
    until(lambda: agent.snapshot.runtime.synchronized, "the agent was told what runs")
    return runtime


@pytest.fixture
def place(node: Node) -> ClaimNode:
    return ClaimNode(node, agent_on(node), MadeUpObjects())


VERSIONS = ["v1.DRAPlugin", "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"]


@pytest.mark.parametrize("service", VERSIONS[1:])
def test_a_device_is_unhealthy_while_cpus_that_a_claim_has_of_it_are_offline(place: ClaimNode, service: str) -> None:
    online = place.node.folder / "devices/system/cpu/online"
    online.parent.mkdir(parents=True)
    place.objects.add("c", result("numa1", 2))
    healthy, unknown = (1, ""), (0, "the list of online CPUs cannot be read")
    with place.driver() as kubelet:
        reports = kubelet.watch(service)
        for cpus, seconds, expected in (
            ("", 1, {"numa0": unknown, "numa1": unknown}),
            ("0-7", 1, {"numa0": healthy, "numa1": healthy}),
            ("0-2,4-6", 1, {"numa0": (2, "offline CPUs: 3"), "numa1": (2, "offline CPUs: 7")}),
            ("0-7", 1, {"numa0": healthy, "numa1": healthy}),
            ("0-7", 11, {"numa0": healthy, "numa1": healthy}),
        ):
            online.write_text(f"{cpus}\n", encoding="ascii")
            kubelet.reconcile(seconds)
            assert next(reports) == expected
        kubelet.prepare("c")
        online.write_text("0-6\n", encoding="ascii")
        kubelet.reconcile(11)
        assert next(reports) == {"numa0": healthy, "numa1": healthy}
        online.write_text("0-3,5-7\n", encoding="ascii")
        kubelet.reconcile(1)
        assert next(reports) == {"numa0": healthy, "numa1": (2, "offline CPUs: 4")}


def test_a_kubelet_registers_the_driver_and_prepared_and_failed_claims_are_counted(place: ClaimNode) -> None:
    place.objects.add("c", result("numa1", 2))
    with place.driver() as kubelet:
        info = kubelet.info
        assert (info.type, info.name, [*info.supported_versions]) == ("DRAPlugin", DRIVER, VERSIONS)
        assert not kubelet.plugin.registered.is_set()
        kubelet.notify(registered=True)
        assert kubelet.plugin.registered.is_set()
        kubelet.notify(registered=False, error="no")
        assert not kubelet.plugin.registered.is_set()
        assert kubelet.prepare("c").error == ""
        assert kubelet.prepare("unknown").error != ""
        assert kubelet.unprepare("c") == ""
    counted = ("mooring_dra_claims_total", "mooring_dra_claim_seconds_count")
    lines = place.metrics.page().body.decode().splitlines()
    assert sorted(line for line in lines if line.startswith(counted)) == [
        'mooring_dra_claim_seconds_count{step="prepare"} 2.0',
        'mooring_dra_claim_seconds_count{step="unprepare"} 1.0',
        'mooring_dra_claims_total{result="done",step="prepare"} 1.0',
        'mooring_dra_claims_total{result="done",step="unprepare"} 1.0',
        'mooring_dra_claims_total{result="failed",step="prepare"} 1.0',
        'mooring_dra_claims_total{result="failed",step="unprepare"} 0.0',
    ]


def test_a_claim_is_prepared_once_and_given_back(place: ClaimNode) -> None:
    other = start(place.node, place.runtime, "other", 0)
    place.objects.add("c", result("numa1", 2, "fast", "s-1"), result("numa0", 1, "slow"), pods=("p",))
    with place.driver() as kubelet:
        answer = kubelet.prepare("c")
        assert answer.error == ""
        found = [
            ([*one.request_names], one.pool_name, one.device_name, [*one.cdi_device_ids], one.share_id)
            for one in answer.devices
        ]
        # Devices of a claim are in the order of its results; entries of the ledger in that of devices.
        assert found[0] == (["fast"], NODE, "numa1", [f"{DRIVER}/claim=uid-c-1"], "s-1")
        assert found[1] == (["slow"], NODE, "numa0", [f"{DRIVER}/claim=uid-c-0"], "")
        assert place.claims() == {"c": "1,4-5"}
        assert place.node.cpus(other) == "0,2-3,6-7"
        assert {one["data"]["cpus"] for one in place.objects.devices["c"]} == {"4-5", "1"}
        [given] = [one.given for one in place.specs.all()]
        assert {one.request: one.cpus for one in given} == {"fast": "4-5", "slow": "1"}
        assert len({one.variable for one in given}) == 2
        assert kubelet.prepare("c") == answer
        assert kubelet.unprepare("c") == ""
        assert kubelet.unprepare("c") == ""
        assert place.claims() == {}
        assert [*place.specs.all()] == []
        assert place.node.cpus(other) == "0-7"
        # Results of one request and device are one share.
        place.objects.add("d", result("numa1", 2, "r", "s-1"), result("numa1", 1, "r", "s-2"))
        answer = kubelet.prepare("d")
        assert [one.share_id for one in answer.devices] == ["s-1", "s-2"]
        assert len({one.cdi_device_ids[0] for one in answer.devices}) == 1
        assert place.claims() == {"d": "4-6"}


def test_a_call_that_waits_long_for_another_does_nothing(place: ClaimNode, monkeypatch: pytest.MonkeyPatch) -> None:
    place.objects.add("c", result("numa1", 2))
    monkeypatch.setattr("mooring.cluster.dra.driver._WAITING", 0.05)
    began, may_go_on, write = Event(), Event(), CDISpecs.write

    def slow(*given: Any) -> None:
        began.set()
        may_go_on.wait(30.0)
        write(*given)

    monkeypatch.setattr(CDISpecs, "write", slow)
    with place.driver() as kubelet, ThreadPoolExecutor(1) as pool:
        first = pool.submit(kubelet.prepare, "c")
        assert began.wait(30.0)
        assert kubelet.unprepare("c") == "the driver is busy with other claims"
        may_go_on.set()
        assert first.result().error == ""
        assert place.claims() == {"c": "4-5"}


def test_a_claim_that_cannot_be_had_says_why_and_leaves_nothing(place: ClaimNode) -> None:
    place.objects.add("big", result("numa1", 5))
    place.objects.add("waits")
    with place.driver() as kubelet:
        assert kubelet.prepare("big").error.startswith("InsufficientCPUs")
        assert "nothing of cpu.example is allocated" in kubelet.prepare("waits").error
        assert "is not there" in kubelet.prepare("absent").error
        assert "another one of the same name" in kubelet.prepare("big", uid="uid-older").error
        assert place.claims() == {}
        assert [*place.specs.all()] == []


def test_a_claim_is_prepared_again_for_a_second_pod_and_without_the_api_server_where_a_new_one_waits(
    place: ClaimNode,
) -> None:
    place.objects.add("c", result("numa1", 2), pods=("p",))
    place.objects.add("new", result("numa1", 1))
    with place.driver() as kubelet:
        first = kubelet.prepare("c")
        place.objects.add("c", result("numa1", 2), pods=("p", "q"))
        assert kubelet.prepare("c") == first
        place.objects.away = True
        assert kubelet.prepare("c") == first
        assert kubelet.prepare("new").error == "nobody answers"
        assert place.pods() == {"c": ["p", "q"]}


def test_restarts_of_driver_and_agent_keep_claims(place: ClaimNode) -> None:
    place.objects.add("c", result("numa1", 2), pods=("p",))
    with place.driver() as kubelet:
        first = kubelet.prepare("c")
    place.node.agents.pop().close()
    with place.driver() as kubelet:
        assert "does not answer" in kubelet.prepare("c").error
        place.runtime = agent_on(place.node)
        assert place.claims() == {"c": "4-5"}
        assert kubelet.prepare("c") == first
        kubelet.reconcile()
        assert place.pods() == {"c": ["p"]}


def test_an_agent_that_lost_its_state_is_told_every_claim_with_its_cpus(place: ClaimNode) -> None:
    place.objects.add("a", result("numa1", 1))
    place.objects.add("b", result("numa1", 2), pods=("p",))
    with place.driver() as kubelet:
        kubelet.prepare("a")
        kubelet.prepare("b")
        assert kubelet.unprepare("a") == ""
        assert place.claims() == {"b": "5-6"}
        place.node.agents.pop().close()
        for file in (place.node.folder / "state").iterdir():
            file.unlink()
        place.runtime = agent_on(place.node)
        assert place.claims() == {}
        place.objects.away = True
        with pytest.raises(ClusterError):
            kubelet.reconcile()  # slices cannot be written, and claims are told before
        assert place.claims() == {"b": "5-6"}
        assert place.pods() == {"b": ["p"]}


def test_a_claim_that_cannot_be_given_again_stops_no_other_and_gets_what_a_deleted_one_still_has(
    place: ClaimNode,
) -> None:
    # An agent that could not write its state and starts again may have an older one.
    state, older = place.node.folder / "state", place.node.folder / "older"
    for name, device, count in (("a", "numa1", 3), ("b", "numa1", 3), ("c", "numa0", 1)):
        place.objects.add(name, result(device, count))
    with place.driver() as kubelet:
        kubelet.prepare("a")
        shutil.copytree(state, older)
        assert kubelet.unprepare("a") == kubelet.prepare("b").error == kubelet.prepare("c").error == ""
        place.node.agents.pop().close()
        shutil.rmtree(state)
        older.rename(state)
        place.runtime = agent_on(place.node)
        with pytest.raises(ClaimsError, match="InsufficientCPUs"):
            kubelet.reconcile()
        assert place.claims() == {"a": "4-6", "c": "1"}
        del place.objects.known["default", "a"]
        kubelet.reconcile()
        assert place.claims() == {"b": "4-6", "c": "1"}


def test_claims_are_not_given_before_the_runtime_has_told_what_runs(place: ClaimNode) -> None:
    place.node.agents.pop().close()
    place.node.agent(f"claimsSocket: {place.node.folder}/claims.sock")
    runtime = place.node.listening.next()
    place.objects.add("c", result("numa1", 2))
    with place.driver() as kubelet:
        assert kubelet.prepare("c").error.startswith("NotReady")
        with pytest.raises(ClaimsError, match="waits for its container runtime"):
            kubelet.reconcile()
        runtime.synchronize()
        # As in agent_on.
        until(lambda: kubelet.prepare("c").error == "", "the claim is prepared")


def test_slices_follow_the_ledger_and_are_written_when_they_change(place: ClaimNode) -> None:
    def capacity() -> dict[str, str]:
        [one] = place.objects.published.values()
        return {each["name"]: each["capacity"]["dra.cpu/cpu"]["value"] for each in one["spec"]["devices"]}

    with place.driver() as kubelet:
        kubelet.reconcile()
        assert capacity() == {"numa0": "3", "numa1": "4"}
        place.objects.add("c", result("numa1", 2))
        kubelet.prepare("c")
        kubelet.reconcile()
        assert kubelet.publisher.writes == 1
        # Those who have no hint get CPUs where fewest are left that suffice.
        start(place.node, place.runtime, "own", 2)
        kubelet.reconcile(0.5)
        assert capacity() == {"numa0": "3", "numa1": "2"}
        start(place.node, place.runtime, "next", 3)
        kubelet.reconcile(0.5)
        assert kubelet.publisher.writes == 2
        kubelet.reconcile(5)
        assert capacity() == {"numa1": "2"}
        place.objects.published.clear()
        kubelet.reconcile(40)
        [one] = place.objects.published.values()
        assert one["metadata"]["ownerReferences"][0]["uid"] == "uid-of-node"


def test_a_driver_whose_fields_the_api_server_drops_says_so_until_they_are_kept(place: ClaimNode) -> None:
    place.objects.has_gates = False
    with place.driver() as kubelet:
        kubelet.publisher.node_allocatable = True
        for seconds in (1, 1, 40):
            with pytest.raises(ClusterError, match="turn on the feature gate"):
                kubelet.reconcile(seconds)
        assert kubelet.publisher.writes == 2
        place.objects.has_gates = True
        kubelet.reconcile(40)
        kubelet.reconcile(1)


def immediate(place: ClaimNode, name: str, count: int, **more: Any) -> dict[str, Any]:
    annotations = {"mooring/allocate": "immediate", "mooring/node": NODE}
    content = place.objects.add(name, annotations=annotations, **more)
    capacity = {"requests": {"dra.cpu/cpu": str(count)}}
    exactly = {"deviceClassName": "cpus", "capacity": capacity}
    content["spec"] = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    return content


def test_immediate_allocation_that_is_written_and_fits_takes_cpus_first_and_keeps_them_between_pods(
    place: ClaimNode,
) -> None:
    immediate(place, "changed", 3, conflict=True)
    immediate(place, "big", 5)
    claim = immediate(place, "now", 3)
    with place.driver() as kubelet:
        kubelet.reconcile()
        assert place.claims() == {"now": "1-3"}
        assert claim["status"]["allocation"]["devices"]["results"][0]["device"] == "numa0"
        assert kubelet.prepare("now").error == ""
        assert kubelet.unprepare("now") == ""
        kubelet.reconcile()
        assert place.claims() == {"now": "1-3"}
        place.objects.known.clear()
        kubelet.reconcile()
        assert place.claims() == {}
