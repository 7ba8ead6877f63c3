"""What is published says everything that decides: a node made from it decides as the one that it was made of."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from hypothesis import assume, event, example, given, settings
from hypothesis import strategies as st
from tests.cpumanager.pods import container, guaranteed
from tests.laws.strategies_whole_node import NIC, Hardware, configurations, hardware, pods
from tests.plans import started_kubelet
from tests.values import refusal

from mooring.engine.core.config import EXTENSIONS, FIXABLE_DEFECTS, KubeletConfig, MooringConfig, ReservedMemory
from mooring.engine.core.decision import StartRefusal
from mooring.engine.core.errors import InputError
from mooring.engine.core.machineinfo import Cache, MemoryModules
from mooring.engine.core.pod import Container, Pod, QoS
from mooring.engine.core.quantity import Quantity
from mooring.engine.devicemanager.state import Device, DeviceState
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import refusal_of, start_kubelet
from mooring.engine.releases.catalog import RELEASES
from mooring.inputs.configuration.kubelet_config import kubelet_config
from mooring.inputs.machines.compact import parse_compact
from mooring.published.facts_document import digest_of, facts_document, facts_of
from mooring.published.objects import LARGEST_OBJECT, NodeFacts, NodeState, PodKey, encoded, state_document, state_of
from mooring.published.observation import exclusive_cpus_of, fingerprint, topology_document, zones_of

BIG = "sockets=2 numa=8 cores=256 threads=2 l3=32 memory=2048Gi distances=10,12,32"


EMPTY_POOL = "start cpu manager error: default cpuset cannot be empty"


def over_the_wire(document: dict[str, Any]) -> object:
    return json.loads(encoded(document))


def started(facts: NodeFacts, state: NodeState | None = None) -> Kubelet:
    start = started_kubelet(facts.machine, facts.config, facts.mooring, state.files if state else None)
    return start.with_devices(state.devices) if state else start


def after_pods(kubelet: Kubelet, data: st.DataObject) -> Kubelet:
    for uid in ("a", "b", "c"):
        kubelet, _ = kubelet.admit(data.draw(pods(uid)))
    return kubelet.settled()


def test_a_state_whose_last_shared_cpu_is_given_away_is_published_and_no_kubelet_starts_on_it() -> None:
    config = KubeletConfig(
        cpu_manager_policy="static",
        cpu_manager_policy_options={"strict-cpu-reservation": "true"},
        reserved_system_cpus="0",
    )
    facts = NodeFacts(parse_compact("sockets=1 cores=2 threads=1").info, config, MooringConfig())
    kubelet, decision = started(facts).admit(guaranteed("a", container("x", "1")))
    assert decision.admitted
    state = NodeState("node", digest_of(facts), kubelet.files)

    read = state_of(over_the_wire(state_document(state)))

    assert read == state
    assert kubelet.admit(guaranteed("b", container("x", "1")))[1].reason == "UnexpectedAdmissionError"
    again = start_kubelet(facts.machine, facts.config, facts.mooring, read.files)
    assert refusal_of(again) == StartRefusal("start", EMPTY_POOL)


TEXTS = st.dictionaries(st.sampled_from(["cpu", "memory", "pid"]), st.sampled_from(["1", "500m", "2Gi"]))
CONFIGS = st.builds(
    KubeletConfig,
    cpu_manager_policy=st.sampled_from(["none", "static", "Static"]),
    cpu_manager_policy_options=st.dictionaries(st.text(max_size=9), st.text(max_size=9), max_size=2),
    reserved_system_cpus=st.text(max_size=5),
    kube_reserved=TEXTS,
    system_reserved=TEXTS,
    kube_reserved_cgroup=st.text(max_size=5),
    eviction_hard=st.none() | TEXTS,
    merge_default_eviction_settings=st.booleans(),
    cpu_cfs_quota=st.booleans(),
    cpu_cfs_quota_period_ns=st.integers(1, 2**62),
    feature_gates=st.dictionaries(st.text(max_size=9), st.booleans(), max_size=2),
    max_pods=st.integers(1, 2**31 - 1),
    pods_per_core=st.integers(0, 2**31 - 1),
    cpu_manager_reconcile_period_ns=st.integers(1, 2**62),
)
MOORINGS = st.builds(
    MooringConfig,
    extensions=st.frozensets(st.sampled_from(sorted(EXTENSIONS))),
    fixed_defects=st.frozensets(st.sampled_from(sorted(FIXABLE_DEFECTS))),
    release=st.sampled_from(list(RELEASES.values())),
)


@given(hardware(), CONFIGS, MOORINGS)
@settings(max_examples=50)
def test_facts_are_read_as_they_were_written(hard: Hardware, config: KubeletConfig, mooring: MooringConfig) -> None:
    facts = NodeFacts(hard.info, config, mooring)
    assert facts_of(over_the_wire(facts_document(facts))) == facts


@pytest.mark.parametrize("gates", [{}, {"CPUManagerPolicyOptions": False}, {"AllBeta": False}])
def test_a_node_without_options_has_none_where_an_empty_map_is_refused(gates: dict[str, bool]) -> None:
    """Up to v1.35 a kubelet whose gate of the options is off refuses an empty map (spec: releases.md section 8)."""
    facts = NodeFacts(parse_compact(BIG).info, KubeletConfig(feature_gates=gates), MooringConfig())
    assert facts_of(over_the_wire(facts_document(facts))).config == facts.config
    empty = kubelet_config({"cpuManagerPolicyOptions": {}, "featureGates": gates}, source="test")
    assert empty.checked.cpu_options_empty == bool(gates)
    assert facts_of(over_the_wire(facts_document(replace(facts, config=empty)))).config == empty


def test_facts_are_named_by_what_decides_and_nothing_else() -> None:
    facts = NodeFacts(parse_compact(BIG).info, KubeletConfig(feature_gates={"A": True, "B": False}), MooringConfig())
    first, *others = facts.machine.topology
    cores = tuple(replace(core, caches=(Cache(1, 2, "Data", 1),)) for core in first.cores)
    same = replace(
        facts.machine,
        cpu_frequency_khz=1,
        vendor_id="x",
        swap_capacity=9,
        memory_by_type=(MemoryModules("DDR4", 1, 1),),
        topology=(replace(first, cores=cores), *others),
    )
    assert digest_of(replace(facts, machine=same)) == digest_of(facts)
    turned = replace(facts.config, feature_gates={"B": False, "A": True})
    assert digest_of(replace(facts, config=turned)) == digest_of(facts)

    assert facts_document(facts)["metadata"]["name"] == digest_of(facts)
    different = [
        replace(facts, machine=replace(facts.machine, memory_capacity=1)),
        replace(facts, config=replace(facts.config, max_pods=3)),
        replace(facts, mooring=MooringConfig(fixed_defects=frozenset({"odd-uncore"}))),
    ]
    assert len({digest_of(one) for one in [facts, *different]}) == 4


def test_large_machine_is_a_small_object() -> None:
    facts = NodeFacts(parse_compact(BIG).info, KubeletConfig(), MooringConfig())
    assert facts.machine.num_cores == 512
    assert len(encoded(facts_document(facts))) < 20_000


def test_full_state_of_a_large_machine_fits() -> None:
    config = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0", max_pods=1000)
    facts = NodeFacts(parse_compact(BIG).info, config, MooringConfig())
    kubelet = started(facts)
    uids = [f"00000000-0000-0000-0000-{number:012d}" for number in range(511)]
    document = json.loads(kubelet.files.cpu or "")
    document["entries"] = {uid: {"container-with-a-name": str(cpu)} for cpu, uid in enumerate(uids, start=1)}
    held = {uid: {"container-with-a-name": {"vendor.example/gpu": frozenset({uid})}} for uid in uids}
    devices = {"vendor.example/gpu": tuple(Device(uid, (1,)) for uid in uids)}
    state = NodeState(
        "node",
        digest_of(facts),
        StateTexts(json.dumps(document), json.dumps(document) * 4),
        DeviceState(devices, held),
        tuple(PodKey("namespace", "pod-" + uid, uid) for uid in uids),
    )
    assert len(encoded(state_document(state))) < LARGEST_OBJECT / 2


def test_object_that_no_cluster_takes_is_not_made() -> None:
    state = NodeState("node", "0" * 64, StateTexts(cpu="x" * LARGEST_OBJECT))
    with pytest.raises(InputError, match=r"NodeState node: has 1\d* bytes"):
        encoded(state_document(state))


def test_status_tells_exclusive_cpus_only_where_they_are_known() -> None:
    state = NodeState("node", "0" * 64)
    assert "status" not in state_document(state)
    document = state_document(state, (6, 4))
    assert document["status"] == {"exclusiveCPUs": {"allocatable": 6, "available": 4}}
    assert state_of(document) == state


def pods_named(**names: Any) -> dict[str, Any]:
    return {"spec": {"facts": "f", "pods": [names]}}


def good_facts() -> dict[str, Any]:
    return facts_document(NodeFacts(parse_compact("cores=2 memory=1Gi").info, KubeletConfig(), MooringConfig()))


def packed(content: bytes) -> str:
    return base64.b64encode(zlib.compress(content)).decode()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"spec": None}, "spec: Expected 'object', got 'null'"),
        ({"spec": {"encoding": "gzip", "content": ""}}, "spec.encoding: Invalid enum value 'gzip'"),
        ({"spec": {"encoding": "zlib+base64", "content": "§"}}, "spec.content: is not zlib"),
        ({"spec": {"encoding": "zlib+base64", "content": "aGVsbG8="}}, "spec.content: is not zlib"),
        ({"spec": {"encoding": "zlib+base64", "content": packed(b"x" * 50)[:12]}}, "spec.content: is cut off"),
        ({"spec": {"encoding": "zlib+base64", "content": packed(bytes(17 * 2**20))}}, "or larger than any machine"),
        ({"spec": {"encoding": "zlib+base64", "content": packed(b"{}")}}, "is not the content that the name"),
        ({"kind": "Pod"}, "is Pod of mooring.dev/v1alpha1, not NodeFacts"),
        ({"apiVersion": "mooring.dev/v9"}, "is NodeFacts of mooring.dev/v9"),
        ({"metadata": {}}, "is not an object with a name"),
    ],
    ids=["no-spec", "encoding", "base64", "zlib", "cut", "bomb", "other", "kind", "version", "name"],
)
def test_facts_that_cannot_be_used_are_named(change: dict[str, Any], words: str) -> None:
    assert words in refusal(facts_of, {**good_facts(), **change})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"spec": {}}, "NodeState n: spec: Object missing required field 'facts'"),
        ({"spec": {"facts": ""}}, "NodeState n: spec.facts: Expected 'str' of length >= 1"),
        (pods_named(name=1), "NodeState n: spec.pods[0].name: Expected 'str', got 'int'"),
        (
            {"spec": {"facts": "f", "files": {"cpu": {}}}},
            "NodeState n: spec.files.cpu: Expected 'str | null', got",
        ),
        (
            {"spec": {"facts": "f", "devices": [{"resource": "r", "devices": [{"id": "d", "numa": [70000]}]}]}},
            "NodeState n: spec.devices[0].devices[0].numa[0]: Expected 'int' <= 65535",
        ),
        ({"metadata": {"name": 3}}, "NodeState: is not an object with a name"),
        (
            {"metadata": {"name": "n; curl evil|sh #"}},
            "NodeState: metadata.name: 'n; curl evil|sh #' is not a valid na",
        ),
        (
            pods_named(namespace="\x1b[2J", name="b"),
            "NodeState n: spec.pods[0].namespace: '\\x1b[2J' is not a valid na",
        ),
        (
            pods_named(namespace="a", name="$(reboot)"),
            "NodeState n: spec.pods[0].name: '$(reboot)' is not a valid name",
        ),
    ],
)
def test_state_that_cannot_be_used_is_named(change: dict[str, Any], words: str) -> None:
    document = {**state_document(NodeState("n", "0" * 64)), **change}
    assert refusal(state_of, document).startswith(words)


@pytest.mark.parametrize("document", [None, [], "x"], ids=["none", "list", "text"])
def test_what_is_no_object_is_refused(document: object) -> None:
    assert "NodeState: is not an object with a name" in refusal(state_of, document)


def test_members_of_a_later_version_are_skipped() -> None:
    document = state_document(NodeState("node", "0" * 64, pods=(PodKey("a", "b"),)))
    document["spec"]["later"] = document["spec"]["pods"][0]["later"] = 1
    assert state_of(document).pods == (PodKey("a", "b"),)


@pytest.mark.parametrize(("node", "label"), [("node-1", "node-1"), ("n" * 62 + ".eu.example", "n" * 62), ("", None)])
def test_facts_are_labelled_with_the_node_that_made_them(node: str, label: str | None) -> None:
    facts = NodeFacts(parse_compact("cores=2 memory=1Gi").info, KubeletConfig(), MooringConfig())
    made = facts_document(facts, node)
    assert made["metadata"].get("labels", {}).get("mooring.dev/node") == label
    assert made["metadata"]["name"] == digest_of(facts) == digest_of(facts_of(over_the_wire(made)))


# What is called available in a zone is what a pod gets there; fingerprints are those of other publishers.


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


WHOLE_CORES = KubeletConfig(
    cpu_manager_policy="static", cpu_manager_policy_options={"full-pcpus-only": "true"}, reserved_system_cpus="0"
)


class Amount(NamedTuple):
    capacity: int
    allocatable: int
    available: int


def fresh(text: str, config: KubeletConfig) -> Kubelet:
    return started_kubelet(parse_compact(text).info, config)


def guaranteed_topology(uid: str, **amounts: int) -> Pod:
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
def test_available_is_what_a_pod_gets_and_not_more(hard: Hardware, config: KubeletConfig, data: st.DataObject) -> None:
    for policy in (config.topology_manager_policy, "single-numa-node"):
        empty = start_kubelet(hard.info, replace(config, topology_manager_policy=policy), MooringConfig(), StateTexts())
        assume(isinstance(empty, Kubelet))
        assert isinstance(empty, Kubelet)
        kubelet = empty.with_devices(DeviceState(hard.devices))
        allocatable, available = exclusive_cpus_of(kubelet.node)
        assert available == allocatable <= hard.info.num_cores - 1
        for one in (amount for zone in zones_of(hard.info, kubelet.node) for amount in zone["resources"]):
            assert int(one["available"]) == int(one["allocatable"]) <= int(one["capacity"])
    kubelet = after_pods(kubelet, data)

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
            _, refused = now.decide(guaranteed_topology("more", **{resource: most + step}))
            assert not refused.admitted, (resource, most)
            if not most:
                break
            event(f"zone {number} of {resource} is emptied")
            now, taken = now.admit(guaranteed_topology(f"most{number}", **{resource: most}))
            assert taken.admitted, (resource, most, taken.rejection)


@pytest.mark.parametrize(
    ("config", "node_0", "exclusive"),
    [
        (KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0,1,4"), Amount(4, 1, 1), 5),
        (WHOLE_CORES, Amount(4, 2, 2), 6),
        (KubeletConfig(), Amount(4, 4, 4), 0),
    ],
    ids=["reserved CPUs are never available", "whole cores alone count", "no manager gives exclusive CPUs"],
)
def test_cpus_are_available_that_a_container_can_have(config: KubeletConfig, node_0: Amount, exclusive: int) -> None:
    kubelet = fresh(TWO_NODES, config)
    assert amounts(kubelet, "cpu") == {0: node_0, 1: Amount(4, 4, 4)}
    assert exclusive_cpus_of(kubelet.node) == (exclusive, exclusive)
    assert amounts(kubelet, "memory")[1] == Amount(4 * GIB, 4 * GIB, 4 * GIB)


def test_memory_of_a_group_is_available_on_none_of_its_nodes_alone() -> None:
    config = KubeletConfig(
        cpu_manager_policy="static",
        memory_manager_policy="Static",
        topology_manager_policy="best-effort",
        reserved_memory=(ReservedMemory(0, {"memory": "100Mi"}),),
        eviction_hard={"memory.available": "100Mi"},
        reserved_system_cpus="0",
    )
    kubelet, decision = fresh(TWO_NODES, config).admit(guaranteed_topology("a", cpu=1, memory=5 * GIB))
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


@pytest.mark.parametrize(
    ("changed", "costs"), [({"distances": None}, [[], []]), ({"node_id": -1}, [])], ids=["no costs", "no zones"]
)
def test_what_the_machine_does_not_tell_is_left_out(changed: dict[str, Any], costs: list[Any]) -> None:
    kubelet = fresh(TWO_NODES, KubeletConfig())
    info = replace(kubelet.info, topology=tuple(replace(node, **changed) for node in kubelet.info.topology))
    assert [zone["costs"] for zone in zones_of(info, kubelet.node)] == costs


def of(names: list[str]) -> str:
    return fingerprint((namespace, name) for namespace, _, name in (one.partition("/") for one in names))


@pytest.mark.parametrize(
    ("names", "expected"),
    [(PRODUCTION, "pfp0v001607b76a0e9d3aeb4"), (TEN, "pfp0v001567144e4a561bb5a")],
    ids=["three", "ten"],
)
def test_published_examples(names: list[str], expected: str) -> None:
    assert of(names) == expected


@given(st.lists(st.sampled_from(TEN), unique=True), st.lists(st.sampled_from(TEN), unique=True))
@example(TEN, TEN[::-1])
def test_other_pods_have_another_fingerprint_whatever_their_order(some: list[str], others: list[str]) -> None:
    assert (of(some) == of(others)) == (set(some) == set(others))
