"""Played nodes without an API server: the engine decides, and what is written is what a kubelet writes."""

from __future__ import annotations

import random
import sched
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import httpx2
import msgspec
import pytest

from mooring.cluster.play.claims import PlayedSlices
from mooring.cluster.play.run import PlayedCluster
from mooring.engine.core.config import (
    CPU_HOTPLUG,
    DEVICE_ALIGNMENT,
    EXCLUSIVE_RESIZE,
    SCALE_DOWN_DELAY,
    KubeletConfig,
    MooringConfig,
)
from mooring.engine.core.errors import InputError
from mooring.engine.devicemanager.state import Device
from mooring.engine.extensions.owners import CPU_DRIVER
from mooring.engine.kubelet.events import Admit, Event, Readmit, Remove, after_event
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.releases.catalog import release_of
from mooring.fleet.cluster import NodeCluster
from mooring.inputs.machines.compact import parse_compact
from mooring.inputs.node_groups import NodeGroup
from mooring.inputs.pods.pods import pod_from_object
from mooring.published.observation import EngineObserver
from mooring.service.apiserver import Cluster, ClusterError
from mooring.service.logs import Log

FAULT, PLAYED = "play.mooring.dev/fault", "mooring.dev/played"
STARTS, RUNS, STOPS = (f"play.mooring.dev/{name}" for name in ("starts-after", "runs-for", "stops-after"))
NIC = "example.com/nic"
GROUP = NodeGroup(
    "lab",
    2,
    parse_compact("sockets=1 numa=2 cores=16 threads=1 memory=64Gi"),
    KubeletConfig(cpu_manager_policy="static", topology_manager_policy="single-numa-node", reserved_system_cpus="0"),
    MooringConfig(extensions=frozenset({CPU_HOTPLUG})),
    devices={NIC: (Device("nic-0", (0,)), Device("nic-1", (1,)))},
)
CLUSTER = NodeCluster("test", (GROUP,))


@dataclass
class World:
    """Two nodes, their pods, a clock, and everything that was written."""

    now: float = 0.0
    written: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    reported: list[str] = field(default_factory=list)
    made: int = 0
    group: NodeGroup = GROUP

    def __post_init__(self) -> None:
        cluster = PlayedCluster(
            NodeCluster("test", (self.group,)),
            lambda: pytest.fail("no server"),
            lambda about, problem: self.reported.append(f"{about}: {problem}"),
        )
        self.play = cluster.kubelets(
            cluster.members, lambda _about, method, path, body: self.written.append((method, path, body))
        )
        self.play.timers = sched.scheduler(lambda: self.now)

    def pod(self, cpus: str, node: str = "lab-0", annotations: dict[str, str] | None = None, **status: Any) -> Any:
        self.made += 1
        limits = {"cpu": cpus, "memory": "1Gi"}
        return {
            "metadata": {
                "name": f"pod-{self.made}",
                "namespace": "default",
                "uid": f"uid-{self.made}",
                "creationTimestamp": f"2026-01-01T00:00:{self.made:02}Z",
                "annotations": annotations or {},
            },
            "spec": {
                "nodeName": node,
                "restartPolicy": "Never",
                "containers": [{"name": "app", "image": "none", "resources": {"requests": limits, "limits": limits}}],
            },
            "status": status,
        }

    def take(self, document: Any) -> Any:
        self.play.changed(msgspec.Raw(msgspec.json.encode(document)))
        return document

    def delete(self, document: Any) -> None:
        self.play.deleted(msgspec.Raw(msgspec.json.encode(document)))

    def listed(self, *documents: Any) -> None:
        self.play.listed(iter([[msgspec.Raw(msgspec.json.encode(one)) for one in documents]]))

    def passes(self, seconds: float) -> None:
        self.now += seconds
        self.play.timers.run(blocking=False)

    def resized(self, document: Any, **requests: str) -> Any:
        """Change what its container requests; limits follow where there are some."""
        resources = document["spec"]["containers"][0]["resources"]
        for kind in ("requests", "limits"):
            resources[kind] |= requests if resources[kind] else {}
        document["metadata"]["generation"] = document["metadata"].get("generation", 1) + 1
        return self.take(document)

    def statuses(self, document: Any) -> list[Any]:
        """What was written about a pod."""
        path = f"api/v1/namespaces/default/pods/{document['metadata']['name']}/status"
        return [body["status"] for _, place, body in self.written if place == path]

    def events(self, document: Any) -> list[tuple[str, str]]:
        name = document["metadata"]["name"]
        told = [body for _, place, body in self.written if place.endswith("/events")]
        return [(one["reason"], one["message"]) for one in told if one["involvedObject"]["name"] == name]

    def phases(self, document: Any) -> list[str]:
        return [status["phase"] for status in self.statuses(document)]

    def fault(self, text: str, node: str = "lab-0") -> None:
        self.play.put_node({"metadata": {"name": node, "annotations": {FAULT: text}}})
        self.play.put_node({"metadata": {"name": node}})

    def cpus(self, node: str = "lab-0") -> Any:
        return self.play.nodes[node].kubelet.node.cpu.assignments


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("seed", range(8))
def test_a_verdict_is_the_engines_for_the_same_order_of_bindings(world: World, seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311 - no secret
    kubelets = {name: node.kubelet for name, node in world.play.nodes.items()}
    there: list[Any] = []
    for _ in range(40):
        name = draw.choice(sorted(kubelets))
        if there and draw.random() < 0.3:
            leaving = there.pop(draw.randrange(len(there)))
            node, uid = leaving["spec"]["nodeName"], leaving["metadata"]["uid"]
            world.delete(leaving)
            kubelets[node], _ = happens(kubelets[node], Remove(uid))
            continue
        made = world.take(world.pod(draw.choice(("500m", "1", "2", "3", "6", "9")), name))
        kubelets[name], refused = happens(kubelets[name], Admit(pod_from_object(made, source="test")))
        status, *events = [body for method, _, body in world.written if method in ("PATCH", "POST")]
        world.written.clear()
        if refused is None:
            there.append(made)
            assert (status["status"]["phase"], events) == ("Running", [])
        else:
            said = [status["status"][one] for one in ("phase", "reason", "message")]
            assert said == ["Failed", refused.reason, f"Pod was rejected: {refused.message}"]
            assert [events[0][one] for one in ("reason", "message")] == [refused.reason, refused.message]
    assert {name: node.kubelet for name, node in world.play.nodes.items()} == kubelets
    assert world.play.counts.total() > world.play.counts["admitted"] > 5


def happens(kubelet: Kubelet, event: Event) -> tuple[Kubelet, Any]:
    after, result = after_event(kubelet, event)
    return after, next((one.decision.rejection for one in result.admissions), None)


@pytest.mark.parametrize(
    ("annotations", "at", "phases"),
    [
        ({}, (), ["Running"]),
        ({STARTS: "2s"}, (1, 2), ["Pending", "Running"]),
        ({RUNS: "5s"}, (4, 2), ["Running", "Succeeded"]),
        ({STARTS: "2s", RUNS: "5s", "play.mooring.dev/exit-code": "3"}, (2, 5), ["Pending", "Running", "Failed"]),
        ({RUNS: "soon"}, (60,), ["Running"]),
    ],
)
def test_containers_start_and_end_when_annotations_say(
    world: World, annotations: dict[str, str], at: Sequence[float], phases: list[str]
) -> None:
    made = world.take(world.pod("2", annotations=annotations))
    for seconds in at:
        world.passes(seconds)
    assert world.phases(made) == phases
    assert (made["metadata"]["uid"] in world.cpus()) == (phases[-1] in ("Pending", "Running"))
    assert bool(world.reported) == ("soon" in annotations.values())


@pytest.mark.parametrize(("stops", "grace", "after"), [("0", 30, 0), ("3s", 30, 3), ("60s", 5, 5)])
def test_a_deleted_pod_holds_its_cpus_for_its_grace_at_most(world: World, stops: str, grace: int, after: float) -> None:
    made = world.take(world.pod("4", annotations={STOPS: stops}))
    made["metadata"] |= {"deletionTimestamp": "2026-01-01T00:01:00Z", "deletionGracePeriodSeconds": grace}
    world.take(world.take(made))
    if after:
        assert world.cpus()
        world.passes(after)
    assert not world.cpus()
    asked = [(path, body) for method, path, body in world.written if method == "DELETE"]
    preconditions = {"gracePeriodSeconds": 0, "preconditions": {"uid": "uid-1"}}
    assert asked == [("api/v1/namespaces/default/pods/pod-1", preconditions)]


def test_a_pod_that_cannot_be_read_is_reported_and_left_alone(world: World) -> None:
    odd = world.take(world.pod("2", qosClass="Odd"))
    fine = world.take(world.pod("2"))
    assert (world.phases(odd), world.phases(fine), len(world.reported)) == ([], ["Running"], 1)


def test_faults_happen_once_and_are_taken_out_of_the_annotations(world: World) -> None:
    made = world.take(world.pod("4"))
    before = world.cpus()
    for text in ("restart", "lose-state", "offline=1", "online=1", "unhealthy=nic-0,nic-1", "healthy=nic-1"):
        world.fault(text)
    for _ in range(2):
        world.play.put_node({"metadata": {"name": "lab-0", "annotations": {FAULT: "restart"}}})
    cleared = [body for _, path, body in world.written if path == "api/v1/nodes/lab-0"]
    assert cleared == [{"metadata": {"annotations": {FAULT: None}}}] * 7
    statuses = [body["status"] for _, path, body in world.written if path == "api/v1/nodes/lab-0/status"]
    assert [one["allocatable"][NIC] for one in statuses] == ["2", "2", "2", "2", "0", "1", "1"]
    assert {one["capacity"][NIC] for one in statuses} == {"2"}
    assert (world.cpus(), world.phases(made), world.reported) == (before, ["Running"], [])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("explode", "'explode' is not known; write one of restart, lose-state"),
        ("offline=99", "the machine has no CPU 99"),
        ("unhealthy=nic-7", "the node has no device 'nic-7'"),
    ],
)
def test_a_fault_that_cannot_be_is_reported_and_changes_nothing(world: World, text: str, words: str) -> None:
    before = world.play.nodes["lab-0"].kubelet
    world.fault(text)
    assert words in world.reported[0]
    assert world.play.nodes["lab-0"].kubelet is before


def test_what_a_restart_refuses_fails_as_a_new_pod_does(world: World) -> None:
    first, *others = (world.take(world.pod(cpus)) for cpus in ("4", "5"))
    world.delete(first)
    others += [world.take(world.pod(cpus)) for cpus in ("7", "3")]
    world.fault("lose-state")
    # Without its files the kubelet gives the pod of 5 CPUs the other NUMA node.
    assert [world.phases(one) for one in others] == [["Running"], ["Running"], ["Running", "Failed"]]
    assert world.play.counts["TopologyAffinityError"] == 1


def test_pods_of_a_kubelet_that_does_not_run_wait_until_it_does(world: World) -> None:
    first = world.take(world.pod("2"))
    node = world.play.nodes["lab-0"]
    broken = node.kubelet
    object.__setattr__(broken, "cpu_file", "{torn")
    world.fault("restart")
    assert "does not start" in world.reported[0]
    ready = world.written[-2][2]["status"]["conditions"][-1]
    assert (ready["type"], ready["status"]) == ("Ready", "Unknown")
    late, deleted, unlisted = (world.take(world.pod("3")) for _ in range(3))
    world.delete(deleted)
    world.listed(first, late)
    assert [world.phases(one) for one in (late, deleted, unlisted)] == [[], [], []]
    world.fault("lose-state")
    assert [world.phases(one) for one in (late, deleted, unlisted)] == [["Running"], [], []]
    assert set(world.cpus()) == {"uid-1", "uid-2"}


def test_after_a_list_pods_that_run_are_admitted_again_first_by_their_start(world: World) -> None:
    new = world.pod("6")
    late, early = (
        world.pod(cpus, phase="Running", startTime=f"2026-01-01T01:00:0{at}Z") for cpus, at in (("5", 2), ("7", 1))
    )
    world.listed(new, late, early)
    kubelet = GROUP.started()
    for event, one in ((Readmit, early), (Readmit, late), (Admit, new)):
        kubelet, _ = happens(kubelet, event(pod_from_object(one, source="test")))
    assert world.play.nodes["lab-0"].kubelet.node.cpu == kubelet.node.cpu
    assert world.phases(new) == ["Failed"]
    world.listed(new)
    assert not world.cpus()


def test_a_saved_state_goes_on_where_it_was(world: World) -> None:
    made = [world.take(world.pod(cpus)) for cpus in ("2", "3", "4", "2")]
    world.delete(made.pop(0))
    state = EngineObserver("lab-0").observe(world.play.nodes["lab-0"].kubelet).state
    again = World()
    again.play.states = {"lab-0": state}
    gone = made.pop()
    for one in made:
        one["status"] = {"phase": "Running", "startTime": "2026-01-01T01:00:00Z"}
    again.listed(*made)
    assert again.cpus() == {uid: held for uid, held in world.cpus().items() if uid != gone["metadata"]["uid"]}
    assert (again.written, again.reported, again.play.counts["admitted"]) == ([], [], 2)


def played_at(answer: Callable[[httpx2.Request], httpx2.Response], **more: Any) -> PlayedCluster:
    def connect() -> Cluster:
        return Cluster(httpx2.Client(base_url="http://server/", transport=httpx2.MockTransport(answer)))

    return PlayedCluster(CLUSTER, connect, lambda *_: None, **more)


def test_a_node_that_others_have_made_is_never_touched() -> None:
    asked: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.method)
        labels = {PLAYED: "another"}
        return httpx2.Response(200, json={"metadata": {}, "items": [{"metadata": {"name": "lab-1", "labels": labels}}]})

    with pytest.raises(InputError, match="lab-1"), played_at(answer).playing():
        pass
    assert asked == ["GET"]


def test_a_node_has_the_labels_taints_and_amounts_of_its_group_and_a_refusal_of_the_api_server_is_told() -> None:
    made: dict[str, Any] = {}

    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.method == "POST" and request.url.path.endswith("/nodes"):
            content = msgspec.json.decode(request.content)
            made[content["metadata"]["name"]] = content
        refused = request.url.path.endswith("/leases")
        return httpx2.Response(403 if refused else 200, json={"metadata": {}, "items": []})

    with pytest.raises(ClusterError, match="403"), played_at(answer, keep=True).playing():
        pass
    labels = made["lab-0"]["metadata"]["labels"]
    assert labels | {PLAYED: "test", "kubernetes.io/hostname": "lab-0"} == labels
    status = made["lab-0"]["status"]
    assert [status["capacity"][one] for one in ("cpu", NIC, "pods")] == ["16", "2", "110"]
    assert [status["allocatable"][one] for one in ("cpu", NIC, "pods")] == ["15000m", "2", "110"]
    assert status["nodeInfo"]["kubeletVersion"].startswith("v1.37.")
    assert "RestartAllContainersOnContainerExits" in status["declaredFeatures"]


def burstable(world: World, cpus: str, **more: Any) -> Any:
    made = world.pod(cpus, **more)
    made["spec"]["containers"][0]["resources"]["limits"] = {}
    return made


INFEASIBLE = 'Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"'
NO_ROOM = "Node didn't have enough resource: cpu, requested: 14000, used: 4000, capacity: 15000"


@pytest.mark.parametrize(
    ("limited", "cpu", "pending", "events", "given"),
    [
        (True, "3", ("Infeasible", INFEASIBLE), ["ResizeInfeasible"], "2"),
        (False, "14", ("Deferred", NO_ROOM), ["ResizeDeferred"], "2"),
        (False, "3", None, ["ResizeStarted", "ResizeCompleted"], "3"),
    ],
)
def test_a_resize_is_answered_in_status_and_events(
    world: World, limited: bool, cpu: str, pending: tuple[str, str] | None, events: list[str], given: str
) -> None:
    world.take(world.pod("4"))
    made = world.take(world.pod("2") if limited else burstable(world, "2"))
    world.resized(made, cpu=cpu)
    status = world.statuses(made)[-1]
    found = [one for one in status["conditions"] if one["type"] == "PodResizePending" and "$patch" not in one]
    assert [(one["reason"], one["message"]) for one in found] == ([pending] if pending else [])
    assert status["containerStatuses"][0]["allocatedResources"]["cpu"] == given
    assert (status["observedGeneration"], [reason for reason, _ in world.events(made)]) == (2, events)
    word = "OutOfcpu" if events == ["ResizeDeferred"] else events[0].removeprefix("Resize")
    limits = f'"limits":{{"cpu":"{cpu}","memory":"1Gi"}},' if limited else ""
    error = f',"error":{msgspec.json.encode(pending[1]).decode()}' if pending else ""
    assert world.events(made)[0][1] == (
        f"Pod resize {word if pending else 'started'}: "
        f'{{"containers":[{{"name":"app","resources":{{{limits}"requests":{{"cpu":"{cpu}","memory":"1Gi"}}}}}}],'
        f'"generation":2{error}}}'
    )


@pytest.mark.parametrize("release", ["1.34", "1.37"])
def test_a_resize_is_decided_by_what_is_wanted_whatever_the_status_says(release: str) -> None:
    world = World(group=replace(GROUP, mooring=MooringConfig(release=release_of(release))))
    made = world.take(burstable(world, "2"))
    for cpu, given in (("3", "3"), ("14", "14"), ("15", "14"), ("2", "2")):
        made["status"] = world.statuses(made)[-1]
        if cpu == "15":
            world.take(world.pod("1"))
        world.resized(made, cpu=cpu)
        assert world.statuses(made)[-1]["containerStatuses"][0]["allocatedResources"]["cpu"] == given
    assert world.play.nodes["lab-0"].kubelet.used["cpu"] == 3000


def test_a_deferred_resize_is_taken_when_another_pod_has_left(world: World) -> None:
    first, made = world.take(world.pod("4")), world.take(burstable(world, "2"))
    world.resized(made, cpu="14")
    world.delete(first)
    status = world.statuses(made)[-1]
    assert status["containerStatuses"][0]["resources"] == {"requests": {"cpu": "14", "memory": "1Gi"}}
    assert {"type": "PodResizePending", "$patch": "delete"} in status["conditions"]
    assert [reason for reason, _ in world.events(made)] == ["ResizeDeferred", "ResizeStarted", "ResizeCompleted"]


@pytest.mark.parametrize("again", [True, False], ids=["played again", "restarted"])
def test_a_kubelet_that_starts_gives_what_it_had_given_and_then_tries_resizes_again(world: World, again: bool) -> None:
    first, made = world.take(world.pod("4")), world.take(burstable(world, "2"))
    world.resized(made, cpu="14")
    new = world
    if again:
        new = World()
        for one in (first, made):
            one["status"] = world.statuses(one)[-1]
        new.listed(first, made)
    else:
        world.fault("restart")
    assert new.play.nodes["lab-0"].kubelet.node.active["uid-2"].containers[0].requests["cpu"].milli == 2000
    assert new.play.counts["admitted"] == 2
    new.written.clear()
    new.passes(29)
    assert new.events(made) == []
    new.passes(1)
    assert [reason for reason, _ in new.events(made)] == (["ResizeDeferred"])
    new.delete(first)
    assert new.statuses(made)[-1]["containerStatuses"][0]["allocatedResources"]["cpu"] == "14"


def test_cpus_that_are_released_later_are_free_after_the_delay() -> None:
    config = replace(
        GROUP.config,
        topology_manager_policy="none",
        cpu_manager_policy_options={"scale-delay-time": "5s"},
        feature_gates={"InPlacePodVerticalScalingExclusiveCPUs": True, "CPUManagerPolicyAlphaOptions": True},
    )
    extensions = frozenset({EXCLUSIVE_RESIZE, SCALE_DOWN_DELAY})
    group = replace(GROUP, config=config, mooring=MooringConfig(extensions=extensions))
    world = World(group=group)
    made = world.take(world.pod("2"))
    world.resized(made, cpu="6")
    world.resized(made, cpu="4")
    conditions = [one["type"] for one in world.statuses(made)[-1]["conditions"] if one.get("status") == "True"]
    assert (conditions[-1], world.cpus()["uid-1"]["app"].bit_count()) == ("PodResizeInProgress", 6)
    world.passes(9)
    assert world.cpus()["uid-1"]["app"].bit_count() == 6
    world.passes(1)
    assert world.cpus()["uid-1"]["app"].bit_count() == 4
    assert {"type": "PodResizeInProgress", "$patch": "delete"} in world.statuses(made)[-1]["conditions"]
    assert world.events(made)[-1][0] == "ResizeCompleted"


def test_a_slow_kubelet_hears_of_pods_late_and_never_of_those_that_are_gone(world: World) -> None:
    world.fault("slow=2s")
    first, gone = world.take(world.pod("4")), world.take(world.pod("4"))
    world.passes(1)
    second = world.take(world.pod("3"))
    world.delete(gone)
    assert (world.phases(first), world.cpus()) == ([], {})
    world.passes(1)
    assert (world.phases(first), world.phases(second)) == (["Running"], [])
    world.fault("slow=0")
    assert (world.phases(second), world.phases(gone)) == (["Running"], [])
    assert world.phases(world.take(world.pod("1"))) == ["Running"]


DRIVER = "gpu.example.com"
GPUS = [{"name": f"gpu-{node}", "attributes": {"resource.kubernetes.io/numaNode": {"int": node}}} for node in (0, 1)]
ALIGNED = replace(
    GROUP,
    config=replace(GROUP.config, topology_manager_policy="none"),
    mooring=MooringConfig(extensions=frozenset({DEVICE_ALIGNMENT})),
    drivers={DRIVER: GPUS, CPU_DRIVER: "numa"},
)


def claiming(world: World, *results: dict[str, Any], **more: Any) -> tuple[Any, Any]:
    """Return a pod and the claim that it names, which is allocated to the pod on its node."""
    made = world.pod("2", **more)
    name = f"claim-{world.made}"
    made["spec"]["resourceClaims"] = [{"name": "it", "resourceClaimName": name}]
    made["spec"]["containers"][0]["resources"]["claims"] = [{"name": "it"}]
    given = [{"request": "it", "pool": "lab-0", **one} for one in results]
    status = {
        "allocation": {"devices": {"results": given}},
        "reservedFor": [{"resource": "pods", "name": made["metadata"]["name"], "uid": made["metadata"]["uid"]}],
    }
    return made, {"metadata": {"name": name, "namespace": "default", "uid": name}, "status": status}


def cpus_of_numa(node: int, count: str) -> dict[str, Any]:
    return {"driver": CPU_DRIVER, "device": f"numa{node}", "consumedCapacity": {"dra.cpu/cpu": count}}


def reserve(world: World, claim: Any) -> None:
    assert world.play.claims is not None
    world.play.claims.put(claim)
    world.passes(1)


@pytest.mark.parametrize("node", [0, 1])
def test_a_pod_waits_for_its_claims_and_then_is_near_their_devices(node: int) -> None:
    world = World(group=ALIGNED)
    made, claim = claiming(world, {"driver": DRIVER, "device": f"gpu-{node}"})
    world.take(made)
    reserve(world, {**claim, "status": {**claim["status"], "reservedFor": []}})
    assert (world.phases(made), world.events(made)) == ([], [])
    reserve(world, claim)
    assert world.phases(made) == ["Running"]
    near = (1 << 8) - 1 << 8 * node
    assert world.cpus()["uid-1"]["app"] & ~near == 0


def test_cpus_of_a_claim_are_its_own_until_the_last_pod_that_uses_it_has_ended() -> None:
    world = World(group=ALIGNED)
    made, claim = claiming(world, cpus_of_numa(1, "4"))
    other = world.pod("1")
    other["spec"]["resourceClaims"] = made["spec"]["resourceClaims"]
    claim["status"]["reservedFor"].append({"resource": "pods", "name": "pod-2", "uid": "uid-2"})
    reserve(world, claim)
    [first, second] = map(world.take, (made, other))
    held = "claim:claim-1"
    assert [mask.bit_count() for mask in world.cpus()[held].values()] == [4]
    world.delete(first)
    assert held in world.cpus()
    world.delete(second)
    assert held not in world.cpus()


@pytest.mark.parametrize("leaves", ["rejected", "deleted while it waits"])
def test_cpus_of_claims_go_back_where_no_pod_comes_to_use_them(leaves: str) -> None:
    world = World(group=ALIGNED)
    made, claim = claiming(world, cpus_of_numa(1, "4"))
    if leaves == "rejected":
        made["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "40"
        made["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "40"
        reserve(world, claim)
        world.take(made)
        assert world.phases(made) == ["Failed"]
    else:
        made["spec"]["resourceClaims"].append({"name": "more", "resourceClaimName": "claim-2"})
        more = {**claim, "metadata": {**claim["metadata"], "name": "claim-2", "uid": "claim-2"}}
        more["status"] = {**claim["status"], "allocation": {"devices": {"results": [cpus_of_numa(1, "8")]}}}
        more["status"]["allocation"]["devices"]["results"][0] |= {"request": "it", "pool": "lab-0"}
        reserve(world, claim)
        reserve(world, more)
        world.take(made)
        assert "claim:claim-1" in world.cpus()
        world.delete(made)
    assert not world.cpus()


def test_a_claim_that_the_node_cannot_give_is_an_event_and_its_pod_waits() -> None:
    world = World(group=ALIGNED)
    made, claim = claiming(world, cpus_of_numa(1, "8"))
    reserve(world, claim)
    blocking = [world.take(world.pod("7")) for _ in range(2)]
    world.take(made)
    for _ in range(3):
        world.passes(1)  # it is tried again, and the event is not sent again
    [(reason, message)] = world.events(made)
    assert (reason, world.phases(made)) == ("FailedPrepareDynamicResources", [])
    assert message.startswith("Failed to prepare dynamic resources: claim claim-1: InsufficientCPUs: device numa1 has ")
    for one in blocking:
        world.delete(one)
    world.passes(1)
    assert world.phases(made) == ["Running"]


@dataclass
class Written:
    """Slices as the API server keeps them; stands in for the client of it."""

    kept: dict[str, Any] = field(default_factory=dict)

    def slices(self, driver: str, node: str) -> list[Any]:
        return [one for one in self.kept.values() if (one["spec"]["driver"], one["spec"]["nodeName"]) == (driver, node)]

    def node_uid(self, name: str) -> str:
        return f"uid-{name}"

    def apply_slice(self, content: Any) -> Any:
        self.kept[content["metadata"]["name"]] = content
        return content


def test_slices_have_what_is_declared_and_the_cpus_that_are_left() -> None:
    world, written = World(group=ALIGNED), Written()
    slices = PlayedSlices(world.play.nodes["lab-0"], written, Log("test"))  # type: ignore[arg-type]  # a stand-in
    slices.publish(0.0)
    world.take(world.pod("3"))
    slices.publish(60.0)
    gpus, cpus = (written.kept[f"lab-0-{driver}-0"]["spec"] for driver in (DRIVER, CPU_DRIVER))
    assert (gpus["devices"], gpus["pool"]["generation"], cpus["pool"]["generation"]) == (GPUS, 1, 2)
    left = [one["capacity"]["dra.cpu/cpu"]["value"] for one in cpus["devices"]]
    # CPU 0 is reserved, and the last CPU of the shared pool is kept back.
    assert sum(map(int, left)) == 16 - 1 - 3


@pytest.mark.parametrize(
    ("drivers", "policy", "words"),
    [
        ({CPU_DRIVER: "nima"}, "static", "groups.lab.dra.cpu.mooring.dev: 'nima' is not known; did you mean numa"),
        ({CPU_DRIVER: "numa"}, "none", "groups.lab.dra.cpu.mooring.dev: needs exclusive CPUs"),
        ({DRIVER: "numa"}, "static", "groups.lab.dra.gpu.example.com"),
        ({DRIVER: [{"attributes": {}}]}, "static", "name"),
    ],
)
def test_drivers_that_cannot_be_played_are_refused_with_their_place(
    drivers: dict[str, Any], policy: str, words: str
) -> None:
    config = KubeletConfig(cpu_manager_policy=policy, reserved_system_cpus="0")
    with pytest.raises(InputError) as refused:
        World(group=replace(GROUP, config=config, drivers=drivers))
    assert words in str(refused.value)
