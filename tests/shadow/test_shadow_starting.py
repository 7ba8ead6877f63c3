"""A kubelet that starts without its state files: the order in which it asked about many pods of one second is found."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.cli.command import mooring
from tests.plans import started_kubelet
from tests.shadow import observing
from tests.shadow.listing import listing
from tests.shadow.observing import PINNED, STATIC, Node, agreed, container, devices, node, said
from tests.shadow.test_shadow_judging import unlike
from tests.shadow.test_shadow_watching import LIMITED, Watching
from tests.values import not_none

from mooring.engine.core.config import KubeletConfig, MooringConfig
from mooring.engine.core.machine import Finding
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.releases.catalog import release_of
from mooring.inputs.machines.compact import parse_compact
from mooring.inputs.pods.cluster_objects import REJECTED
from mooring.inputs.pods.defaults import PodGates
from mooring.inputs.pods.pods import pod_from_object
from mooring.monitoring.shadow.judge import new_tally
from mooring.monitoring.shadow.judgement import Agreement, Mismatch, unlike_outcome
from mooring.monitoring.shadow.shadow import PATIENCE, Shadow
from mooring.monitoring.shadow.sources import STARTING, BoundPods, KubeletPods
from mooring.monitoring.shadow.unseen import UnseenPods, observed_pod
from mooring.published.shadow_document import WouldBePart
from mooring.service.apiserver import Cluster, ClusterError, cluster_of, configuration_at

PODS = 30
LEAVING = 6
MACHINE = parse_compact("sockets=2 numa=4 cores=16 threads=2 memory=16Gi").info
CONFIG = replace(PINNED, topology_manager_policy="single-numa-node")
ASKED = [("1", "64Mi"), ("2", "64Mi"), ("1", "512Mi"), ("500m", "128Mi"), ("100m", "64Mi"), ("1500m", "256Mi")]


def busy(drawn: random.Random, in_a_second: int) -> Node:
    """Return a node on which pods came and ended, some of them with init containers."""
    watched = node(CONFIG)
    for number in range(PODS):
        cpus, memory = drawn.choice(ASKED)
        before = drawn.choice(["", "", "", "2"])
        watched.admit(f"pod-{number}", cpus, memory=memory, before=before, created=number // in_a_second)
        if drawn.random() < 0.25 and watched.kubelet.node.active:
            watched.end(some(drawn, watched, 1)[0])
    return watched


def some(drawn: random.Random, watched: Node, most: int) -> list[str]:
    active = list(watched.kubelet.node.active)
    return drawn.sample(active, min(most, len(active)))


def start_without_files(drawn: random.Random, watched: Node) -> None:
    """Start on no state file: pods of one second come in any order, and some end before or after that."""
    for uid in some(drawn, watched, drawn.randint(0, LEAVING)):
        watched.leave(uid)
    shuffled = some(drawn, watched, PODS)
    created = {uid: content["metadata"]["creationTimestamp"] for uid, content in watched.objects.items()}
    active = {uid: watched.kubelet.node.active[uid] for uid in sorted(shuffled, key=lambda uid: created[uid])}
    emptied = replace(watched.kubelet.node, active=active)
    watched.kubelet = replace(watched.kubelet, node=emptied, cpu_file=None, memory_file=None)
    watched.restart(CONFIG)
    for uid in some(drawn, watched, drawn.randint(0, LEAVING)):
        watched.end(uid, released=drawn.random() < 0.7)


@pytest.mark.long
@settings(max_examples=4)
@example(3, 12)
@example(8, 5)
@example(23, 12)
@given(st.integers(0, 2**32), st.sampled_from([3, 5, 8, 12]))
def test_the_order_of_many_pods_of_one_second_is_found(seed: int, in_a_second: int) -> None:
    drawn = random.Random(seed)  # noqa: S311 - no secret
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(observing, "MACHINE", MACHINE)
        watched = busy(drawn, in_a_second)
    before = watched.observed()
    start_without_files(drawn, watched)
    judgements = said(before, watched.observed())
    assert [one.line() for one in judgements if one.verdict is not Agreement.AGREED] == []
    assert "agreed: kubelet restarted" in [one.line() for one in judgements]


ALLOCATED = {"name": "c0", "allocatedResources": {"cpu": "2", "memory": "1Mi"}}
WAITING = {"name": "c0"}


@pytest.mark.parametrize("version", ["v1.34.4", "v1.37.1"])
@pytest.mark.parametrize(
    ("told", "counted", "seen"),
    [
        pytest.param([WAITING], [WAITING], [ALLOCATED], id="the container is made still"),
        pytest.param([WAITING], [ALLOCATED], [ALLOCATED], id="the container was made before the start"),
        pytest.param([], [WAITING], [ALLOCATED], id="the status came before the start"),
        pytest.param([ALLOCATED], [ALLOCATED], [ALLOCATED], id="the container runs"),
        pytest.param([ALLOCATED], [WAITING], [ALLOCATED], id="the container ran before the start"),
    ],
)
def test_up_to_v1_34_a_status_that_allocates_nothing_leaves_a_pod_without_cpus(
    version: str, told: list[object], counted: list[object], seen: list[object]
) -> None:
    watched = _node(version)
    watched.admit("early", "2")
    watched.admit("late", "2")
    _tell(watched, "early", [ALLOCATED])
    _tell(watched, "late", told)
    before = watched.observed()
    _count(watched, "late", counted)
    watched.lose_cpu_file()
    watched.restart()
    _tell(watched, "late", seen)
    after = watched.observed()
    is_without = version == "v1.34.4" and counted == [WAITING]
    assert ("late" in watched.kubelet.node.cpu.assignments) is not is_without
    is_known = not is_without or told != [ALLOCATED]
    assert [one.verdict for one in said(before, after)] == [Agreement.AGREED if is_known else Agreement.DIFFERS]
    assert list(unlike(before, after)) == []


def _node(version: str) -> Node:
    return Node(started_kubelet(observing.MACHINE, STATIC, MooringConfig(release=release_of(version))))


def _tell(watched: Node, uid: str, statuses: list[object]) -> None:
    """Let the API server have these statuses of a pod's containers."""
    content = watched.objects[uid]
    watched.objects[uid] = {**content, "status": {**content["status"], "containerStatuses": statuses}}


def _count(watched: Node, uid: str, statuses: list[object]) -> None:
    """Let the kubelet have these statuses of a pod when it starts."""
    _tell(watched, uid, statuses)
    pod = pod_from_object(watched.objects[uid], source="it", gates=watched.gates)
    active = {**watched.kubelet.node.active, uid: pod}
    watched.kubelet = replace(watched.kubelet, node=replace(watched.kubelet.node, active=active))


# The node of another configuration: it has the pods of the real one, also where no steps tell of them.


def others_pods(watching: Watching) -> list[str]:
    kubelet, _ = not_none(watching.shadow.would_be)
    return sorted(kubelet.node.active)


def test_pods_of_which_no_order_tells_come_and_go_on_the_other_node() -> None:
    watching = Watching(node(), proposed=LIMITED)
    watching.watched.admit("old", "2")
    watching.wait()
    for uid, cpus in (("web", "2"), ("wide", "10"), ("secret", "1")):
        assert watching.watched.admit(uid, cpus)
    # The API server does not tell of a pod that the kubelet lists: nothing can be said of what happened.
    secret = watching.watched.objects.pop("secret")
    watching.watched.end("old")
    watching.wait(PATIENCE)
    assert watching.shadow.tally.unknown == 3
    assert others_pods(watching) == ["web"]
    watching.watched.objects["secret"] = secret
    watching.wait(PATIENCE)
    assert others_pods(watching) == ["secret", "web"]
    other = not_none(watching.shadow.tally.would_be)
    assert (other.refused, other.refusals) == (["default/wide"], 1), "it is asked once about a pod that it refuses"


def test_a_pod_that_the_kubelet_refused_does_not_stay_on_the_other_node() -> None:
    watching = Watching(node(LIMITED), proposed=STATIC)
    watching.watched.admit("wide", "10")
    watching.wait()
    assert not_none(watching.shadow.tally.would_be).admitted == ["default/wide"]
    assert others_pods(watching) == []


def test_a_pod_that_is_not_decided_at_the_begin_is_asked_about_once() -> None:
    watched = node()
    assert watched.admit_pod("shared", [], [{"name": "c0", "resources": {"requests": {"cpu": "10"}}}])
    status = watched.objects["shared"].pop("status")
    watching = Watching(watched, proposed=LIMITED)
    assert others_pods(watching) == []
    watched.objects["shared"]["status"] = {**status, "qosClass": "Burstable"}
    watching.wait()
    assert others_pods(watching) == ["shared"]
    other = not_none(watching.shadow.tally.would_be)
    assert (other.refused, [(one.refused, one.refusals) for one in other.days]) == ([], [(0, 0)])


def test_counts_of_an_earlier_configuration_are_not_those_of_one_that_does_not_start() -> None:
    watched, told = node(), list[Finding]()
    tally = new_tally("node", "", "2026-01-01T00:00:00Z")
    tally.would_be = WouldBePart(1, ["default/web"], [], "2026-01-01T00:00:00Z", [], "earlier")
    source = Watching(watched).source
    pods = BoundPods(lambda: watched.gates)
    Shadow(source, pods, tally, proposed=KubeletConfig(cpu_manager_policy="static"), report=told.append).step()
    assert [one.subject for one in told] == ["--would-be"]
    assert tally.would_be is None


# Refusals that name how much was used: the pods that were counted are found, however many they were.


SHARED = replace(STATIC, cpu_manager_policy="none")
REFUSED = ("10", "11", "12", "13", "14")
"""CPUs of pods that the node with 15 of them refuses beside one with 7; any sum of some is a sum of no others."""


def refused_after(*counted: str) -> Node:
    """Return a node whose kubelet refused a pod while it was still ending pods that it had refused before."""
    watched = node(SHARED)
    watched.admit("first", "7")
    return and_refused(watched, 7 + sum(map(int, counted)))


def and_refused(watched: Node, used: int) -> Node:
    for cpus in REFUSED:
        assert not watched.admit(f"large-{cpus}", cpus)
    return last_refused(watched, "9", cpu=used * 1000)


def last_refused(watched: Node, cpus: str, asked: str = "1Mi", **used: int) -> Node:
    """Refuse a pod while this much is used."""
    kubelet = watched.kubelet
    watched.kubelet = kubelet.counting({**kubelet.used, **used})
    assert not watched.admit("last", cpus, memory=asked)
    assert f"used: {[*used.values()][-1]}," in watched.objects["last"]["status"]["message"]
    watched.kubelet = kubelet
    return watched


@pytest.mark.parametrize("counted", [(), REFUSED[:1], REFUSED[1:3], REFUSED[:4], REFUSED])
def test_refused_pods_that_a_kubelet_was_ending_are_found_by_their_sum(counted: tuple[str, ...]) -> None:
    before = node(SHARED)
    before.admit("first", "7")
    watched = refused_after(*counted)
    found = agreed(before.observed(), watched.observed())
    assert found == [*(f"large-{cpus} refused" for cpus in REFUSED), "last refused"]


def test_a_pod_that_was_refused_long_ago_counts_while_it_is_deleted() -> None:
    watched = node(SHARED)
    watched.admit("first", "7")
    assert not watched.admit("large", "10")
    before = watched.observed()
    assert agreed(before, last_refused(watched, "9", cpu=17_000).observed()) == ["last refused"]


def test_a_sum_that_no_pods_explain_differs() -> None:
    before = node(SHARED)
    before.admit("first", "7")
    watched = node(SHARED)
    watched.admit("first", "7")
    lines = agreed(before.observed(), and_refused(watched, 9).observed())
    assert lines[-1].startswith("differs: default/last refused: message: ")


def test_pods_that_are_too_large_by_what_is_checked_first_are_not_among_those_that_counted() -> None:
    watched = node(SHARED)
    watched.admit("first", "7", memory="3Gi")
    before = watched.observed()
    for number in range(12):
        assert not watched.admit(f"large-{number}", "1000", memory="6Gi")
    for number in range(2):
        assert not watched.admit(f"wide-{number}", "1", memory="6Gi")
    memory = watched.kubelet.used["memory"] + 12 * 2**30
    last_refused(watched, "1", "1Gi", cpu=9_000, memory=memory)
    assert {one.verdict for one in said(before, watched.observed())} == {Agreement.AGREED}


def test_a_pod_that_has_nothing_of_the_named_resource_can_have_left_before_another_that_counts() -> None:
    watched = node(SHARED)
    watched.admit("wide", "7", memory="0")
    watched.admit("has-memory", "1", memory="1Gi")
    base = watched.kubelet
    watched.end("wide")
    assert not watched.admit("last", "9", memory="9Gi")
    assert watched.objects["last"]["status"]["reason"] == "OutOfmemory"
    assert mismatch_of(watched, base, UnseenPods(leaving=["has-memory", "wide"]))[0] is None


@pytest.mark.parametrize("is_listed", [True, False])
def test_the_requests_of_a_pod_that_ends_count_when_its_cpus_are_released(*, is_listed: bool) -> None:
    watched = node(STATIC)
    watched.admit("stays", "7")
    base = watched.kubelet
    watched.admit("ends", "6")
    ending = watched.kubelet.node.active["ends"]
    before = watched.kubelet if is_listed else base
    besides = UnseenPods(leaving=["ends"]) if is_listed else UnseenPods(possible=[ending])
    watched.kubelet = base.counting(watched.kubelet.used)
    assert not watched.admit("last", "3")
    assert "requested: 3000, used: 13000, capacity: 15000" in watched.objects["last"]["status"]["message"]
    assert mismatch_of(watched, before, besides) == (None, None)


GPU = "vendor.example/gpu"
ONE_GPU = [container("c0", "1", gpu="1")]


def mismatch_of(watched: Node, base: Kubelet, besides: UnseenPods) -> tuple[Mismatch | None, int | None]:
    """Return in what the engine departs from the refusal of the pod ``last``."""
    refused = observed_pod(watched.objects["last"], watched.gates)
    return unlike_outcome(refused.pod, refused, [base], besides)


def with_gpus(count: int, config: KubeletConfig = STATIC) -> Node:
    watched = node(config)
    watched.kubelet = watched.kubelet.with_devices(devices(gpu=count))
    return watched


def test_a_refused_pod_that_ends_counts_with_its_devices_too() -> None:
    watched = with_gpus(2)
    assert watched.admit_pod("stays", [], ONE_GPU)
    base = watched.kubelet
    assert watched.admit_pod("ends", [], ONE_GPU)
    ending, watched.kubelet = watched.kubelet.node.active["ends"], base.counting(watched.kubelet.used)
    assert not watched.admit_pod("last", [], ONE_GPU)
    refused = observed_pod(watched.objects["last"], watched.gates)
    assert (refused.reason, refused.message) == (
        f"OutOf{GPU}",
        f"Node didn't have enough resource: {GPU}, requested: 1, used: 2, capacity: 2",
    )
    assert mismatch_of(watched, base, UnseenPods(ending=[ending]))[0] is None


@pytest.mark.parametrize("is_accepted", [True, False])
def test_a_pod_that_only_the_node_resources_check_refused_has_devices_until_it_ends(*, is_accepted: bool) -> None:
    watched = with_gpus(1, replace(STATIC, topology_manager_policy="single-numa-node"))
    base = watched.kubelet
    assert watched.admit_pod("ends", [], ONE_GPU)
    ending = watched.kubelet.node.active["ends"]
    assert not watched.admit_pod("last", [], ONE_GPU)
    refused = observed_pod(watched.objects["last"], watched.gates)
    assert refused.reason == "TopologyAffinityError"
    accepted = frozenset({"ends"} if is_accepted else ())
    mismatch, _ = mismatch_of(watched, base, UnseenPods(ending=[ending], accepted=accepted))
    assert (mismatch is None) is is_accepted


# The pods of a node without an API server, as its kubelet lists them.


ADDRESS = "http://127.0.0.1:10255"
SECURE = "https://127.0.0.1:10250"
STATIC_PODS = {"kubernetes.io/config.source": "file"}


def pod(name: str, **status: str) -> dict[str, Any]:
    """Return a static pod as a kubelet lists it."""
    metadata = {"name": name, "namespace": "default", "uid": f"of-{name}", "annotations": STATIC_PODS}
    return {
        "metadata": {**metadata, "creationTimestamp": None},
        "spec": {"containers": [{"name": "c", "image": "none"}]},
        "status": status,
    }


@dataclass
class Asking:
    """Asks a kubelet that is its test."""

    objects: dict[str, list[dict[str, Any]]]
    cluster: Cluster
    now: float = 0.0
    told: list[Finding] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.pods = BoundPods(PodGates, self.told.append, "kubelet")
        self.kubelet = KubeletPods(lambda: self.cluster, self.pods, clock=lambda: self.now)

    def ask(self, *found: dict[str, Any], after: float = 1.0) -> dict[str, bool]:
        """Ask, and return for each pod whether it is leaving."""
        self.now += after
        self.objects["pods"] = list(found)
        self.kubelet.ask(self.cluster)
        return {one.pod.name: one.leaving for one in self.pods.snapshot().values()}


@pytest.fixture
def asking(tmp_path: Path) -> Iterator[Asking]:
    objects = dict[str, list[dict[str, Any]]]()
    with listing(objects, tmp_path) as kubeconfig:
        server = json.loads(kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
        with cluster_of(configuration_at(server)) as cluster:
            yield Asking(objects, cluster)


def test_a_static_pod_has_the_uid_and_the_outcome_that_its_kubelet_says(asking: Asking) -> None:
    asking.ask(pod("large", phase="Failed", reason="OutOfcpu", message=f"{REJECTED}no"))
    seen = asking.pods.snapshot()["of-large"]
    assert (seen.reason, seen.message, seen.created) == ("OutOfcpu", "no", "")
    assert asking.pods.names() == {("default", "large"): "of-large"}


def test_a_pod_that_is_not_listed_any_more_is_leaving(asking: Asking) -> None:
    assert asking.ask(pod("one"), pod("two")) == {"one": False, "two": False}
    assert asking.ask(pod("one"), after=STARTING) == {"one": False, "two": True}


def test_a_kubelet_that_starts_has_time_to_read_its_manifests(asking: Asking) -> None:
    asking.ask(pod("one"), pod("two"))
    asking.ask(pod("one"), pod("two"), after=STARTING)
    asking.kubelet.failed(ClusterError("no answer"))
    assert asking.ask() == {"one": False, "two": False}
    assert asking.ask(pod("one")) == {"one": False, "two": False}
    assert asking.ask(pod("one"), after=STARTING) == {"one": False, "two": True}
    assert [one.message for one in asking.told] == ["no answer", "answers again"]
    assert {one.subject for one in asking.told} == {"kubelet"}


def test_only_changes_are_passed_on(asking: Asking) -> None:
    asking.ask(pod("one"))
    before = asking.pods.changes
    asking.ask(pod("one"))
    assert asking.pods.changes == before
    asking.ask(pod("one", phase="Running"))
    assert asking.pods.changes == before + 1


@pytest.mark.parametrize(
    ("found", "words"), [([], "cannot be read"), ({"metadata": {"uid": 7}}, "uid")], ids=["no object", "no pod"]
)
def test_what_is_no_list_of_pods_is_reported_and_asked_for_again(asking: Asking, found: Any, words: str) -> None:
    asking.objects["pods"] = [found]
    told = threading.Event()

    def report(finding: Finding) -> None:
        asking.told.append(finding)
        told.set()

    asking.pods = BoundPods(PodGates, report, "kubelet")
    asking.kubelet = KubeletPods(
        lambda: cluster_of(configuration_at(str(asking.cluster.http.base_url).rstrip("/"))), asking.pods
    )
    asking.kubelet.start()
    assert told.wait(60)
    asking.objects["pods"] = [pod("one")]
    assert asking.kubelet.has_listed.wait(60)
    asking.kubelet.stop()
    assert words in asking.told[0].message


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ("shadow", "--kubelet-pods", "kubelet"),
            f"--kubelet-pods: 'kubelet' is not the address of a kubelet; write {ADDRESS} (readOnlyPort) or {SECURE}",
        ),
        (
            ("shadow", "--kubelet-pods", ADDRESS, "--publish"),
            "--publish: writes to an API server, and there is none; leave out --kubelet-pods",
        ),
        (
            ("record", "node-1", "--folder", "none", "--kubelet-pods", ADDRESS),
            "--kubelet-pods: is for the kubelet of this computer, and NODE names others; leave out one of the two",
        ),
    ],
)
def test_a_mistake_is_one_line(words: tuple[str, ...], line: str) -> None:
    answered = mooring(*words)
    assert (answered.code, answered.err.strip()) == (2, f"mooring: {line}")
