"""What is called available in a zone is what a pod gets there; fingerprints are those of other publishers."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st
from tests.laws.strategies_whole_node import NIC, Hardware, configurations, hardware, pods

from mooring.engine.core.config import KubeletConfig, MooringConfig, ReservedMemory
from mooring.engine.core.pod import Container, Pod, QoS
from mooring.engine.core.quantity import Quantity
from mooring.engine.devicemanager.state import Device, DeviceState
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import start_kubelet
from mooring.inputs.machines.compact import parse_compact
from mooring.published.objects import NodeState, PodKey
from mooring.published.observation import exclusive_cpus_of, fingerprint, topology_document, xxh64, zones_of

GIB = 2**30
TWO_NODES = "sockets=1 numa=2 cores=4 threads=2 memory=8Gi distances=10,20"
PRODUCTION = ["production/jaeger-dpgjk", "production/nginx-rt684", "production/envoy-g9m22"]
TEN = [
    "analytics/controller-69dkj",
    "kube-public/subscriber-tq6v7",
    "kube-public/transformer-hfbng",
    "kube-public/validator-c6pn5",
    "kube-system/proxy-wszrd",
    "middleware/processor-jkrl4",
    "network/gateway-vsll5",
    "network/importer-kzdfr",
    "network/importer-q5vt9",
    "staging/prometheus-bwgbn",
]


class Amount(NamedTuple):
    capacity: int
    allocatable: int
    available: int


def fresh(text: str, config: KubeletConfig) -> Kubelet:
    start = start_kubelet(parse_compact(text).info, config, MooringConfig(), StateTexts())
    assert isinstance(start, Kubelet), start
    return start


def guaranteed(uid: str, **amounts: int) -> Pod:
    wanted = {name: Quantity.parse(str(amount)) for name, amount in amounts.items()}
    return Pod(uid, uid, containers=(Container("c", requests=wanted, limits=wanted),), qos=QoS.GUARANTEED)


def amounts(kubelet: Kubelet, resource: str) -> dict[int, Amount]:
    """Return capacity, allocatable and available by node."""
    return {
        int(zone["name"].removeprefix("node-")): Amount(*(int(one[name]) for name in Amount._fields))
        for zone in zones_of(kubelet.info, kubelet.node)
        for one in zone["resources"]
        if one["name"] == resource
    }


def steps(kubelet: Kubelet) -> int:
    policy = kubelet.settings.cpu
    assert policy is not None
    return policy.group_size if policy.rules.whole_cores else 1


@given(hardware(), configurations(), st.data())
@settings(max_examples=60)
def test_available_is_what_a_pod_gets_and_one_more_is_not(
    hard: Hardware, config: KubeletConfig, data: st.DataObject
) -> None:
    config = replace(config, topology_manager_policy="single-numa-node")
    start = start_kubelet(hard.info, config, MooringConfig(), StateTexts())
    assume(isinstance(start, Kubelet))
    assert isinstance(start, Kubelet)
    kubelet = start.with_devices(DeviceState(hard.devices))
    for uid in ("a", "b", "c"):
        kubelet, _ = kubelet.admit(data.draw(pods(uid)))
    kubelet = kubelet.settled()

    tried = [("cpu", steps(kubelet)), ("memory", 1)]
    if len(hard.info.topology) > 1:  # on one node a pod without memory has no default nodes, and no such pod exists
        tried.append(("hugepages-2Mi", 1))
    if all(device.numa for device in hard.devices[NIC]):  # others serve pods beside those of the zones
        tried.append((NIC, 1))
    for resource, step in tried:
        now = kubelet
        # The fullest zone first, and again until all are empty, so that the number of every zone is tried.
        for number in range(len(hard.info.topology) + 1):
            most = max((one.available for one in amounts(now, resource).values()), default=0)
            _, refused = now.decide(guaranteed("more", **{resource: most + step}))
            assert not refused.admitted, (resource, most)
            if not most:
                break
            event(f"zone {number} of {resource} is emptied")
            now, taken = now.admit(guaranteed(f"most{number}", **{resource: most}))
            assert taken.admitted, (resource, most, taken.rejection)


@given(hardware(), configurations())
@settings(max_examples=60)
def test_available_and_allocatable_are_the_same_on_an_empty_node(hard: Hardware, config: KubeletConfig) -> None:
    start = start_kubelet(hard.info, config, MooringConfig(), StateTexts())
    assume(isinstance(start, Kubelet))
    assert isinstance(start, Kubelet)
    for zone in zones_of(hard.info, start.with_devices(DeviceState(hard.devices)).node):
        for one in zone["resources"]:
            assert int(one["available"]) == int(one["allocatable"]) <= int(one["capacity"])
    allocatable, available = exclusive_cpus_of(start.node)
    assert available == allocatable <= hard.info.num_cores - 1


def test_reserved_cpus_are_never_available() -> None:
    config = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0,1,4")
    kubelet = fresh(TWO_NODES, config)
    assert amounts(kubelet, "cpu") == {0: Amount(4, 1, 1), 1: Amount(4, 4, 4)}
    assert exclusive_cpus_of(kubelet.node) == (5, 5)


def test_exclusive_cpus_are_available_to_nobody_else() -> None:
    config = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0")
    kubelet, decision = fresh(TWO_NODES, config).admit(guaranteed("a", cpu=3))
    assert decision.admitted
    assert exclusive_cpus_of(kubelet.node) == (7, 4)
    assert sum(one.available for one in amounts(kubelet, "cpu").values()) == 4


def test_with_whole_cores_only_whole_cores_count() -> None:
    config = KubeletConfig(
        cpu_manager_policy="static",
        cpu_manager_policy_options={"full-pcpus-only": "true"},
        reserved_system_cpus="0",
    )
    kubelet = fresh(TWO_NODES, config)
    assert amounts(kubelet, "cpu")[0] == Amount(4, 2, 2)
    assert exclusive_cpus_of(kubelet.node) == (6, 6)


def test_nobody_counts_where_nobody_keeps_account() -> None:
    kubelet = fresh(TWO_NODES, KubeletConfig())
    assert amounts(kubelet, "cpu")[0] == Amount(4, 4, 4)
    assert amounts(kubelet, "memory")[1] == Amount(4 * GIB, 4 * GIB, 4 * GIB)
    assert exclusive_cpus_of(kubelet.node) == (0, 0)


def test_memory_of_a_group_is_available_on_none_of_its_nodes_alone() -> None:
    config = KubeletConfig(
        cpu_manager_policy="static",
        memory_manager_policy="Static",
        topology_manager_policy="best-effort",
        reserved_memory=(ReservedMemory(0, {"memory": "100Mi"}),),
        eviction_hard={"memory.available": "100Mi"},
        reserved_system_cpus="0",
    )
    kubelet, decision = fresh(TWO_NODES, config).admit(guaranteed("a", cpu=1, memory=5 * GIB))
    assert decision.admitted
    assert [one.available for one in amounts(kubelet, "memory").values()] == [0, 0]
    assert amounts(kubelet, "memory")[0].allocatable == 4 * GIB - 100 * 2**20


def test_devices_count_where_they_are_near_and_healthy() -> None:
    devices = (Device("a", (0,)), Device("b", (0, 1)), Device("c", (1,), healthy=False), Device("d"))
    held = {"pod": {"c": {NIC: frozenset({"a"})}}}
    kubelet = fresh(TWO_NODES, KubeletConfig()).with_devices(DeviceState({NIC: devices}, held))
    assert amounts(kubelet, NIC) == {0: Amount(2, 2, 1), 1: Amount(2, 1, 1)}


def test_document_is_what_topology_aware_schedulers_read() -> None:
    config = KubeletConfig(
        cpu_manager_policy="static",
        cpu_manager_policy_options={"full-pcpus-only": "true", "align-by-socket": "false"},
        topology_manager_policy="restricted",
        topology_manager_scope="pod",
        reserved_system_cpus="0,4",
        feature_gates={"CPUManagerPolicyAlphaOptions": True},
    )
    state = NodeState("worker-1", "f" * 64, pods=(PodKey("production", "nginx-rt684"),), sequence=7)
    kubelet = fresh(TWO_NODES, config)
    document = topology_document(kubelet.info, kubelet.node, state)
    attributes = {entry["name"]: entry["value"] for entry in document.pop("attributes")}
    assert attributes == {
        "topologyManagerPolicy": "restricted",
        "topologyManagerScope": "pod",
        "cpuManagerPolicy": "static",
        "cpuManagerPolicyOptions": "align-by-socket=false,full-pcpus-only=true",
        "memoryManagerPolicy": "None",
        "nodeTopologyPodsFingerprint": "pfp0v001" + attributes["nodeTopologyPodsFingerprint"][8:],
        "nodeTopologyPodsFingerprintMethod": "exclude-terminal",
        "mooring.dev/exclusiveCPUsAllocatable": "6",
        "mooring.dev/exclusiveCPUsAvailable": "6",
        "mooring.dev/facts": "f" * 64,
        "mooring.dev/sequence": "7",
    }
    memory = {"name": "memory", "capacity": str(4 * GIB), "allocatable": str(4 * GIB), "available": str(4 * GIB)}
    assert document == {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": "worker-1"},
        "zones": [
            {
                "name": "node-0",
                "type": "Node",
                "costs": [{"name": "node-0", "value": 10}, {"name": "node-1", "value": 20}],
                "resources": [{"name": "cpu", "capacity": "4", "allocatable": "2", "available": "2"}, memory],
            },
            {
                "name": "node-1",
                "type": "Node",
                "costs": [{"name": "node-0", "value": 20}, {"name": "node-1", "value": 10}],
                "resources": [{"name": "cpu", "capacity": "4", "allocatable": "4", "available": "4"}, memory],
            },
        ],
    }


def test_costs_are_left_out_where_the_machine_tells_none() -> None:
    kubelet = fresh(TWO_NODES, KubeletConfig())
    info = replace(kubelet.info, topology=tuple(replace(node, distances=None) for node in kubelet.info.topology))
    assert [zone["costs"] for zone in zones_of(info, kubelet.node)] == [[], []]


def test_machine_without_numa_nodes_has_no_zones() -> None:
    kubelet = fresh("cores=2 memory=1Gi", KubeletConfig())
    info = replace(kubelet.info, topology=tuple(replace(node, node_id=-1) for node in kubelet.info.topology))
    assert zones_of(info, kubelet.node) == []


def of(names: list[str]) -> str:
    return fingerprint((namespace, name) for namespace, _, name in (one.partition("/") for one in names))


@pytest.mark.parametrize(
    ("names", "expected"),
    [(PRODUCTION, "pfp0v001607b76a0e9d3aeb4"), (TEN, "pfp0v001567144e4a561bb5a")],
    ids=["three", "ten"],
)
def test_published_examples(names: list[str], expected: str) -> None:
    assert of(names) == expected


@given(st.permutations(TEN))
def test_order_does_not_matter(names: list[str]) -> None:
    assert of(names) == of(TEN)


@given(st.sets(st.sampled_from(TEN)), st.sets(st.sampled_from(TEN)))
def test_other_pods_have_another_fingerprint(some: set[str], others: set[str]) -> None:
    assert (of(list(some)) == of(list(others))) == (some == others)


@pytest.mark.parametrize(
    ("data", "seed", "expected"),
    [
        (b"", 0, 0xEF46DB3751D8E999),
        (b"a", 0, 0xD24EC4F1A98C6E5B),
        (b"Nobody inspects the spammish repetition", 0, 0xFBCEA83C8A378BF1),
        (b"xxhash", 20141025, 13067679811253438005),
    ],
    ids=["empty", "one", "stripe", "seed"],
)
def test_hash_is_xxh64(data: bytes, seed: int, expected: int) -> None:
    assert xxh64(data, seed) == expected
