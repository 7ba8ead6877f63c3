"""Live clusters as exact nodes: what is published counts, what is assumed is said, and what is unknown is refused."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from importlib.resources import files
from typing import Any

import pytest
from tests.fleet.live_clusters import ALIGNED, MACHINE, live, node, objects, pod

from mooring.engine.core.bits import CPUMask
from mooring.engine.core.errors import InputError
from mooring.engine.extensions.owners import claims_of
from mooring.engine.kubelet.admit import admit
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.node.claims import Claim, Share
from mooring.fleet.live_cluster import LiveCluster, live_cluster
from mooring.inputs.decoding.fields import Document
from mooring.published.facts_document import digest_of, facts_document
from mooring.published.objects import NodeFacts, NodeState, PodKey, state_document


def kubelet_of(found: LiveCluster, name: str) -> Kubelet:
    [group] = [one for one in found.cluster.groups if one.name == name]
    return found.cluster.started(group)


def published(name: str, *, named: tuple[str, ...], claims: tuple[Claim, ...] = ()) -> list[dict[str, Any]]:
    """Return what a node published after claims and two pods, the second of which is named only."""
    empty = kubelet_of(live(node(name)), name)
    facts = NodeFacts(empty.info, empty.settings.config, empty.mooring)
    kubelet = empty
    found = live(node(name), pod("late", name, "2", second=1), pod("early", name, "2", second=2))
    for one in claims:
        kubelet, _ = kubelet.claim(one)
    for uid in named:
        [wanted] = [had.pod for had in found.pods[name] if had.uid == uid]
        kubelet, answer = admit(kubelet, wanted)
        assert answer.admitted
    keys = tuple(PodKey("default", uid.removeprefix("uid-"), uid) for uid in named)
    return [facts_document(facts), state_document(NodeState(name, digest_of(facts), kubelet.files, pods=keys))]


def test_a_published_state_decides_which_cpus_a_pod_has() -> None:
    pods = [pod("late", "n0", "2", second=1), pod("early", "n0", "2", second=2)]
    assumed, known = live(node("n0"), *pods), live(node("n0"), *pods, *published("n0", named=("uid-early", "uid-late")))
    first = kubelet_of(assumed, "n0").node.cpu.assignments
    assert first["uid-late"] == kubelet_of(known, "n0").node.cpu.assignments["uid-early"]
    assert any("2 running pods" in one and "order of their start" in one for one in assumed.cluster.findings)
    assert not any("running pod" in one for one in known.cluster.findings)


def test_pods_that_a_published_state_does_not_name_are_admitted_and_counted() -> None:
    pods = [pod("late", "n0", "2", second=1), pod("early", "n0", "2", second=2)]
    found = live(node("n0"), *pods, *published("n0", named=("uid-early",)))
    assert set(kubelet_of(found, "n0").node.cpu.assignments) == {"uid-early", "uid-late"}
    assert any("1 running pod " in one for one in found.cluster.findings)


def test_cpus_of_claims_are_taken_as_the_state_says_and_pods_with_other_claims_are_counted() -> None:
    claims = [{"name": "cpus", "resourceClaimName": "known"}]
    both = [*claims, {"name": "more", "resourceClaimName": "other"}]
    pods = [pod("one", "n0", "1", resourceClaims=claims), pod("two", "n0", "1", resourceClaims=both)]
    share = Share("fast", "numa0", 2, CPUMask(0b1111))
    found = live(node("n0"), *pods, *published("n0", named=(), claims=(Claim("c", "default", "known", (share,)),)))
    kubelet = kubelet_of(found, "n0")
    assert [one.name for one in claims_of(kubelet.node.cpu).values()] == ["known"]
    assert kubelet.node.cpu.default.bit_count() == 8 - 2 - 2
    assert "1 running pod with claims that are assumed to take no CPU (MOOR-549)" in found.cluster.findings


def test_pods_that_are_gone_from_the_cluster_hold_nothing() -> None:
    found = live(node("n0"), pod("early", "n0", "2", second=2), *published("n0", named=("uid-early", "uid-late")))
    assert set(kubelet_of(found, "n0").node.cpu.assignments) == {"uid-early"}


def test_pods_that_have_finished_count_nowhere_and_those_that_wait_are_said() -> None:
    ended = pod("ended", "n0", "2")
    ended["status"]["phase"] = "Succeeded"
    found = live(node("n0"), ended, pod("waits", "", "2"))
    assert found.pods["n0"] == ()
    assert "1 pod without a node left out" in found.cluster.findings


def test_every_instance_type_is_a_machine_on_which_a_kubelet_starts() -> None:
    table = (files("mooring.fleet") / "instances.csv").read_text(encoding="utf-8").splitlines()
    types = {row["type"]: row for row in csv.DictReader(line for line in table if not line.startswith("#"))}
    assert 30 <= len(types) <= 80
    for name, kind in types.items():
        one = node("n0", labels={"node.kubernetes.io/instance-type": name})
        one["status"]["capacity"] = {"cpu": str(int(kind["cores"]) * int(kind["threads"]))}
        live_cluster(objects(one))
    some = node("n0", labels={"node.kubernetes.io/instance-type": "m7i.48xlarge"})
    some["status"] = {"capacity": {"cpu": "192", "memory": "804000000Ki"}, "allocatable": {"cpu": "191", "pods": "8"}}
    found = live_cluster(objects(some), config=[Document(dict(ALIGNED), "kubelet.yaml", 1, 1)])
    assert len(kubelet_of(found, "n0").info.topology) == 2


def test_a_core_without_a_second_thread_is_read_from_the_number_of_cpus() -> None:
    one = node("n0", labels={"node.kubernetes.io/instance-type": "m7i.2xlarge"})
    one["status"]["capacity"]["cpu"] = "4"
    assert kubelet_of(live_cluster(objects(one)), "n0").info.num_cores == 4


@pytest.mark.parametrize(
    ("label", "machines", "said"),
    [
        ("x9.huge", (), "node n0 and 1 more: the machine of instance type 'x9.huge' is not known"),
        ("", (), "the machine of a node without the label of an instance type is not known"),
        ("m5.24xlarge", (), "node n0: status.capacity.cpu: has 8 CPUs, and the machine of its kind 96"),
        ("x9.huge", ("x9.huge",), "--machine: 'x9.huge' is not KIND:MACHINE"),
        ("x9.huge", ("x9.huge:banana",), "--machine: banana: unknown machine"),
        ("x9.huge", ("x9.huge:cores=0",), "--machine: cores: must not be 0"),
    ],
)
def test_an_unknown_machine_is_one_line_with_a_remedy(label: str, machines: tuple[str, ...], said: str) -> None:
    labels = {"node.kubernetes.io/instance-type": label} if label else {}
    with pytest.raises(InputError) as raised:
        live_cluster(objects(node("n0", labels=labels), node("n1", labels=labels)), machines)
    assert said in str(raised.value)
    assert "--machine" in str(raised.value)
    assert raised.value.remedy


def test_machines_are_named_by_instance_type_or_label_or_for_all() -> None:
    small, by_label = "sockets=1 cores=8 memory=16Gi", node("n1", labels={"pool": "small"})
    found = live(node("n0"), by_label, machines=(f"pool=small:{small}", MACHINE))
    assert [len(kubelet_of(found, name).info.topology) for name in ("n0", "n1")] == [2, 1]


def test_extended_resources_of_a_node_are_devices_on_its_numa_nodes_in_turn() -> None:
    found = live(node("n0", devices={"example.com/gpu": "2"}))
    devices = kubelet_of(found, "n0").node.providers.devices.devices["example.com/gpu"]
    assert [one.numa for one in devices] == [(0,), (1,)]


def test_a_live_node_has_the_features_that_it_declares() -> None:
    shown = node("n0")
    shown["status"]["declaredFeatures"] = ["VolumeBindMountOptions"]
    assert [one.declared for one in live(shown).cluster.groups] == [{"VolumeBindMountOptions"}]
    assert [one.declared for one in live(node("n0")).cluster.groups] == [set()]


def owing(part: str) -> dict[str, Any]:
    wrong = node("n0")
    wrong["status"][part]["pods"] = "-5"
    return wrong


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([node("n0"), node("n0")], "node n0: is there twice"),
        (
            [node("n0"), pod("p0", "n0", "1"), pod("p0", "", "1")],
            "pod default/p0: is there twice; give the pods",
        ),
        ([owing("allocatable")], r"cluster.json: node n0: allocatable\.pods: must not be negative, but is -5"),
        ([owing("capacity")], r"cluster.json: node n0: capacity\.pods: must not be negative, but is -5"),
        ([node("n0"), pod("p0", "n0", "1", containers=[{}])], r"cluster.json: pod p0: .*name: must not be empty"),
        ([pod("p0", "n0", "1")], "has no Node object"),
    ],
)
def test_objects_of_no_cluster_are_refused_with_their_place(found: list[dict[str, Any]], said: str) -> None:
    with pytest.raises(InputError, match=said):
        live(*found)


def test_a_pod_that_has_ended_leaves_its_name() -> None:
    ended = {**pod("p0", "n0", "1"), "status": {"phase": "Succeeded"}}
    assert [one.name for one in live(node("n0"), ended, pod("p0", "n0", "1")).pods["n0"]] == ["default/p0"]


def test_pods_on_nodes_that_are_not_listed_are_counted() -> None:
    findings = live(node("n0"), pod("p0", "gone", "1"), pod("p1", "n0", "1")).cluster.findings
    assert "1 pod on nodes that are not listed left out" in findings
    own = "1 running pod with CPUs, memory or devices of its own is named by no published state"
    assert f"{own}: admitted in the order of its start" in findings


def test_a_node_without_allocatable_offers_what_its_kubelet_would() -> None:
    bare = node("n0")
    bare["status"] = {}
    [now] = live(bare).cluster.now.values()
    assert (now.offers["cpu"], now.offers["pods"]) == (7000, 110)


def test_kubectls_list_on_standard_input_is_a_cluster() -> None:
    listed = {"apiVersion": "v1", "kind": "List", "items": [node("n0"), pod("p0", "n0", "2")]}
    command = [sys.executable, "-m", "mooring", "fleet", "drain", "n0", "--cluster", "-", "--machine", MACHINE]
    given = json.dumps(listed).encode()
    ran = subprocess.run([*command, "-o", "json"], input=given, capture_output=True, check=False)
    assert (ran.returncode, json.loads(ran.stdout)["pods"][0]["outcome"]) == (1, "waits")
