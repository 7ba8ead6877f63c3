"""Claims as the API server has them, and files of the Container Device Interface."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.cli.command import mooring
from tests.node.nodes import machine
from tests.values import refusal

from mooring.cluster.dra.cdi import AllocationResult, CDISpecs, PreparedClaim, allocation_of, request_variable
from mooring.cluster.dra.devices import (
    CAPACITY,
    CPUGroup,
    Grouping,
    device_cpus,
    devices_of,
    is_same,
    near_nodes,
    newest_generation,
    offered,
    pcie_roots,
    slices,
)
from mooring.cluster.dra.driver import allocation_for, is_allocated, is_asked_for, own_classes
from mooring.cluster.dra.objects import ClaimableCPUs, PreparedShare
from mooring.engine.core.bits import CPUMask
from mooring.engine.core.topology import discover_topology
from mooring.engine.extensions.owners import HeldClaim
from mooring.inputs.machines.loader import load_machine

DRIVER, NODE = "cpu.example", "n1"
CPUS = {"numa0": 0x0F, "numa1": 0xF0, "cpu3": 0b1000}


def claim(*results: dict[str, Any], **allocated: Any) -> dict[str, Any]:
    return {
        "metadata": {"uid": "u", "namespace": "shop", "name": "c"},
        "status": {
            "allocation": {"devices": {"results": list(results), **allocated}},
            "reservedFor": [{"resource": "pods", "name": "p", "uid": "pod-1"}, {"resource": "jobs", "uid": "x"}],
        },
    }


def result(device: str = "numa0", request: str = "r", **more: Any) -> dict[str, Any]:
    return {"request": request, "driver": DRIVER, "pool": NODE, "device": device, **more}


def read(content: dict[str, Any]) -> PreparedClaim:
    return allocation_of(content, DRIVER, NODE, lambda name: CPUS.get(name, 0))


def parameters(*requests: str, **more: Any) -> dict[str, Any]:
    content = {"apiVersion": "mooring/v1alpha1", "kind": "ClaimParameters", **more}
    own = {"requests": list(requests), "opaque": {"driver": DRIVER, "parameters": content}}
    other = {"opaque": {"driver": "gpu.example", "parameters": {"numaNodes": 7}}}
    return claim(result(request="fast/big"), result("numa1"), config=[{}, other, own])


def test_results_of_this_driver_count_with_parameters_for_the_requests_that_they_name_or_all() -> None:
    shared = result(shareID="s-1", consumedCapacity={"dra.cpu/cpu": "3"})
    other = {**result("gpu0"), "driver": "gpu.example"}
    found = read(claim(shared, other, result("cpu3", "single")))
    assert found.results == (AllocationResult("r", "numa0", 3, "s-1"), AllocationResult("single", "cpu3", 1))
    assert found.pods == ("pod-1",)
    for requests, numa_nodes in (((), [2, 2]), (("fast",), [2, 0]), (("fast/big", "r"), [2, 2]), (("big",), [0, 0])):
        assert [one.numa_nodes for one in read(parameters(*requests, numaNodes=2)).results] == numa_nodes


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"metadata": {"uid": "u", "namespace": "shop", "name": "c"}}, "nothing of cpu.example is allocated"),
        (claim({**result(), "pool": "n2"}), "allocated on n2 and not on n1"),
        (claim(result("numa7")), "device numa7 is not on this node"),
        (claim(result(consumedCapacity={"dra.cpu/cpu": "500m"})), "which is not a number of CPUs"),
        (parameters(), "missing required field `numaNodes`"),
        (parameters(numaNodes=0), "`int` >= 1 - at "),
        (parameters(numaNodes=2, cpuset="1-4"), "unknown field `cpuset`"),
        (parameters(numaNodes=2, kind="Other"), "Invalid enum value 'Other'"),
        (claim(result(), config=[{"opaque": {"driver": DRIVER}}]), "parameters that this driver does not support"),
    ],
)
def test_what_cannot_be_prepared_says_why(content: dict[str, Any], words: str) -> None:
    assert words in refusal(read, content)


PREPARED = PreparedClaim(
    "u",
    "shop",
    "c",
    (AllocationResult("fast/big", "numa0", 2, "s-1"), AllocationResult("slow", "numa1", 1)),
    (
        PreparedShare("fast/big", "numa0", "1-2", "MOORING_CLAIM_U_0"),
        PreparedShare("slow", "numa1", "4", "MOORING_CLAIM_U_1"),
    ),
    ("pod-1",),
)


ATTRIBUTES = {"numa0": {"dra.cpu/numCPUs": {"int": 4}}}


def test_a_claim_of_a_template_has_its_metadata_under_the_pods_name_for_it(tmp_path: Path) -> None:
    specs = CDISpecs(tmp_path, DRIVER)
    annotated = claim(result())
    annotated["metadata"]["annotations"] = {"resource.kubernetes.io/pod-claim-name": "cpus"}
    prepared = msgspec.structs.replace(read(annotated), given=(PreparedShare("r", "numa0", "0-3", "V"),))
    specs.write(prepared, NODE, {})
    [device] = json.loads(specs.path("u").read_text(encoding="utf-8"))["devices"]
    metadata = device["containerEdits"]["mounts"][1]
    assert "/resourceclaimtemplates/cpus/r/" in metadata["containerPath"]
    newest = json.loads(Path(metadata["hostPath"]).read_text(encoding="utf-8").splitlines()[0])
    assert newest["podClaimName"] == "cpus"


def test_a_file_has_a_device_for_each_share_and_tells_the_next_driver_everything(tmp_path: Path) -> None:
    specs = CDISpecs(tmp_path / "cdi", DRIVER)
    specs.write(PREPARED, NODE, ATTRIBUTES)
    content = json.loads(specs.path("u").read_text(encoding="utf-8"))
    assert (content["cdiVersion"], content["kind"]) == ("0.6.0", "cpu.example/claim")
    assert [one["name"] for one in content["devices"]] == ["u-0", "u-1"]
    assert content["devices"][0]["containerEdits"]["env"] == ["MOORING_CLAIM_U_0=1-2", "MOORING_REQUEST_FAST=1-2"]
    mount, metadata = content["devices"][0]["containerEdits"]["mounts"]
    assert mount["containerPath"] == "/run/mooring-claims/fast"
    assert metadata["containerPath"] == (
        "/var/run/kubernetes.io/dra-device-attributes/resourceclaims/c/fast/cpu.example-metadata.json"
    )
    newest, older = Path(metadata["hostPath"]).read_text(encoding="utf-8").splitlines()
    assert json.loads(newest) == {
        "apiVersion": "metadata.resource.k8s.io/v1beta1",
        "kind": "DeviceMetadata",
        "metadata": {"name": "c", "namespace": "shop", "uid": "u", "generation": 1},
        "requests": [
            {
                "name": "fast/big",
                "devices": [{"driver": DRIVER, "pool": NODE, "name": "numa0", "attributes": ATTRIBUTES["numa0"]}],
            }
        ],
    }
    assert older == newest.replace("v1beta1", "v1alpha1")
    assert {"ro", "nosuid", "nodev", "noexec", "bind"} == {*mount["options"]}
    file = Path(mount["hostPath"]) / "cpuset"
    assert (file.read_text(encoding="ascii"), file.stat().st_mode & 0o777) == ("1-2", 0o644)
    assert specs.device("u", 1) == "cpu.example/claim=u-1"
    assert specs.read("u") == PREPARED
    assert [*specs.all()] == [PREPARED]
    assert [PREPARED.given_for(one) for one in PREPARED.results] == [0, 1]
    specs.remove("u")
    assert not file.exists()
    specs.remove("u")
    assert [*specs.all()] == []
    assert specs.read("u") is None


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"annotations": {}}', '{"annotations": {"mooring.dev/prepared": "{}"}}']
)
def test_a_damaged_file_counts_as_none(tmp_path: Path, text: str) -> None:
    specs = CDISpecs(tmp_path, DRIVER)
    specs.path("u").write_text(text, encoding="utf-8")
    assert specs.read("u") is None
    assert [*specs.all()] == []


def test_what_a_killed_driver_left_half_written_goes_with_the_next_start(tmp_path: Path) -> None:
    specs = CDISpecs(tmp_path, DRIVER)
    specs.write(PREPARED, NODE, ATTRIBUTES)
    whole = sorted(tmp_path.rglob("*"))
    (tmp_path / f".{specs.path('v').name}.4711-1").write_text("{", encoding="utf-8")
    (specs.files("v") / "r").mkdir(parents=True)
    specs.tidy()
    assert sorted(tmp_path.rglob("*")) == whole


def test_several_devices_of_a_request_are_one_list_for_the_program(tmp_path: Path) -> None:
    given = (PreparedShare("r", "numa0", "1", "A"), PreparedShare("r", "numa1", "4-5", "B"))
    specs = CDISpecs(tmp_path, DRIVER)
    specs.write(PreparedClaim("u", "s", "c", (), given), NODE, {})
    devices = json.loads(specs.path("u").read_text(encoding="utf-8"))["devices"]
    assert {one["containerEdits"]["env"][1] for one in devices} == {"MOORING_REQUEST_R=1,4-5"}
    assert (specs.files("u") / "r" / "cpuset").read_text(encoding="ascii") == "1,4-5"
    assert request_variable("a.b-c/d") == "MOORING_REQUEST_A_B_C"


def immediate(*requests: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "namespace": "shop",
            "name": "c",
            "annotations": {"mooring/allocate": "immediate", "mooring/node": NODE},
        },
        "spec": {"devices": {"requests": list(requests), **spec}},
    }


def wants(count: str = "3", **exact: Any) -> dict[str, Any]:
    capacity = {"requests": {"dra.cpu/cpu": count}}
    return {"name": "r", "exactly": {"deviceClassName": "cpus", "capacity": capacity, **exact}}


def allocate(content: dict[str, Any], room: ClaimableCPUs) -> list[dict[str, Any]]:
    devices = [CPUGroup(name, CPUS[name], {}) for name in ("numa0", "numa1")]
    made = allocation_for(content, DRIVER, NODE, ["cpus"], devices, room)
    assert made["nodeSelector"]["nodeSelectorTerms"][0]["matchFields"][0]["values"] == [NODE]
    results: list[dict[str, Any]] = made["devices"]["results"]
    return results


def test_immediate_allocation_takes_the_group_with_just_enough_left_and_rounds_up_to_whole_cores() -> None:
    [found] = allocate(immediate(wants()), ClaimableCPUs(0x7F, last=False))
    assert (found["device"], found["consumedCapacity"], found["pool"]) == ("numa1", {"dra.cpu/cpu": "3"}, NODE)
    first, second = allocate(immediate(wants("4"), wants("1")), ClaimableCPUs(0x7F, last=False))
    assert (first["device"], second["device"]) == ("numa0", "numa1")
    assert first["shareID"] != second["shareID"]
    [found] = allocate(immediate(wants("3")), ClaimableCPUs(0xFF, last=False, group_size=2, whole_cores=True))
    assert found["consumedCapacity"] == {"dra.cpu/cpu": "4"}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (immediate(), "requests nothing"),
        (immediate(wants("5")), "no group of n1 has 5 CPUs left"),
        (immediate(wants(deviceClassName="other")), "no class of this driver alone"),
        (immediate({"name": "r", "firstAvailable": []}), "no class of this driver alone"),
        (immediate(wants(selectors=[{}])), "leave it to the scheduler"),
        (immediate({"name": "r", "exactly": {"deviceClassName": "cpus", "count": 2}}), "leave it to the scheduler"),
        (immediate(wants("0")), "is for 0 CPUs"),
        (immediate(wants(), constraints=[{}]), "constraints or parameters"),
    ],
    ids=["nothing", "room", "class", "choice", "selectors", "several", "zero", "constraints"],
)
def test_what_only_the_scheduler_can_judge_is_not_allocated(content: dict[str, Any], words: str) -> None:
    assert words in refusal(allocate, content, ClaimableCPUs(0xFF, last=False))


def test_who_asks_for_immediate_allocation_names_this_node() -> None:
    asked = immediate(wants())
    assert is_asked_for(asked, NODE)
    assert not is_asked_for(asked, "n2")
    assert not is_asked_for({"metadata": {}}, NODE)
    going = {**asked, "metadata": {**asked["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert not is_asked_for(going, NODE)
    assert not is_allocated(asked)
    assert is_allocated(claim(result()))


def test_a_class_of_this_driver_alone_is_known_by_its_expression() -> None:
    def device_class(name: str, *expressions: str, **more: Any) -> dict[str, Any]:
        selectors = [{"cel": {"expression": one}} for one in expressions]
        return {"metadata": {"name": name}, "spec": {"selectors": selectors, **more}}

    mine = f'device.driver == "{DRIVER}"'
    classes = [
        device_class("cpus", f" {mine}\n"),
        device_class("narrow", mine, "device.attributes['dra.cpu'].smtEnabled"),
        device_class("other", 'device.driver == "gpu.example"'),
        device_class("configured", mine, config=[{}]),
        device_class("everything"),
    ]
    assert own_classes(classes, DRIVER) == {"cpus"}


def test_pcie_roots_are_read_from_sysfs(tmp_path: Path) -> None:
    for root, cpus in (("pci0000:00", "0-3\n"), ("pci0000:40", "\n")):
        folder = tmp_path / "devices" / root / "pci_bus" / root.removeprefix("pci")
        folder.mkdir(parents=True)
        (folder / "cpulistaffinity").write_text(cpus, encoding="ascii")
    (tmp_path / "devices" / "pci0001:00").mkdir()
    assert pcie_roots(tmp_path) == {"pci0000:00": 0xF}


def test_the_verb_says_who_owns_the_cpus_and_that_no_agent_answers(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    user = {"name": "u", "user": {"token": "t"}}
    cluster = {"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}
    context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
    content = {"current-context": "x", "users": [user], "clusters": [cluster], "contexts": [context]}
    kubeconfig.write_text(json.dumps(content), encoding="utf-8")
    root, kept = tmp_path / "kubelet", ("--agent", tmp_path / "no.sock", "--kubeconfig", kubeconfig)
    root.mkdir()
    static = tmp_path / "kubelet.yaml"
    static.write_text("kind: KubeletConfiguration\ncpuManagerPolicy: static\n", encoding="utf-8")
    silent, owned, shared = "does not answer", "two cannot own them", "allocates capacity"
    for state, words, why in (
        (None, (), silent),
        ('{"policyName":"none"}', (), silent),
        ("damaged", (), silent),
        ("damaged", ("--kubelet-config", static), f"{static}: the kubelet gives CPUs to containers itself"),
        ('{"policyName":"static"}', (), owned),
        (None, ("--immediate", "--whole"), shared),
        (None, ("--immediate", "--group", "core"), shared),
    ):
        if state is not None:
            (root / "cpu_manager_state").write_text(state, encoding="utf-8")
        answered = mooring("dra", *words, "--kubelet-root", root, "--machine", "i7-1370p", *kept)
        assert (answered.code, why in answered.err) == (2, True), answered.err
        assert "Traceback" not in answered.err


# Two NUMA nodes with four cores each; CPU n and n + 8 are siblings.
SMALL = discover_topology(machine())
NUMA0, NUMA1 = 0x0F0F, 0xF0F0
_NUMA_NODE = "resource.kubernetes.io/numaNode"


def test_groups_are_named_by_their_numbers_and_have_all_their_cpus() -> None:
    assert {one.name: one.cpus for one in devices_of(SMALL, Grouping.NUMA)} == {"numa0": NUMA0, "numa1": NUMA1}
    assert [one.name for one in devices_of(SMALL, Grouping.CPU)] == [f"cpu{cpu}" for cpu in range(16)]
    others = ("numa2", "numa", "numa00", "gpu0", "cpu-1", "l3-", "numa٣")
    assert {name: device_cpus(SMALL, name) for name in others} == dict.fromkeys(others, 0)


@pytest.mark.parametrize("grouping", Grouping, ids=lambda grouping: grouping.value)
@pytest.mark.parametrize("name", ["epyc-7763-2s-nps4", "i7-1370p"])
def test_a_device_is_found_by_its_name_whatever_the_driver_publishes(name: str, grouping: Grouping) -> None:
    topology = discover_topology(load_machine(name).info)
    covered = 0
    for one in devices_of(topology, grouping):
        assert device_cpus(topology, one.name) == one.cpus
        assert not one.cpus & covered
        covered |= one.cpus
    assert covered == topology.all_cpus


def test_attributes_have_the_names_of_the_ecosystem_and_a_group_across_numa_nodes_has_no_numa_node() -> None:
    numa = devices_of(SMALL, Grouping.NUMA)[1].attributes
    assert numa == {
        "dra.cpu/smtEnabled": True,
        "dra.cpu/numCPUs": 8,
        "dra.cpu/numaNodeID": 1,
        "resource.kubernetes.io/numaNode": 1,
        "dra.cpu/socketID": 1,
    }
    cpu = devices_of(SMALL, Grouping.CPU)[12].attributes
    assert (cpu["dra.cpu/cpuID"], cpu["dra.cpu/coreID"], cpu["dra.cpu/numaNodeID"]) == (12, 4, 1)
    assert "dra.cpu/cacheL3ID" in devices_of(SMALL, Grouping.L3)[0].attributes
    [socket] = devices_of(discover_topology(machine(sockets=1)), Grouping.SOCKET)
    assert "dra.cpu/numaNodeID" not in socket.attributes
    assert socket.attributes["dra.cpu/socketID"] == 0


def test_a_list_of_numa_nodes_begins_with_the_own_and_has_the_nearest_of_its_socket() -> None:
    machine_info = load_machine("kunpeng-920-2s").info
    assert near_nodes(machine_info) == {0: (0, 1), 1: (1, 0), 2: (2, 3), 3: (3, 2)}
    assert near_nodes(load_machine("xeon-8480-2s").info) == {0: (0,), 1: (1,)}
    flat = near_nodes(load_machine("xeonmax-9460-2s-snc4-flat").info)
    assert (flat[0], flat[8]) == ((0, 1, 2, 3), (8, 0)), "a NUMA node without CPUs is near to every socket"
    topology = discover_topology(machine_info)
    groups = devices_of(topology, Grouping.NUMA, near_nodes=near_nodes(machine_info))
    rows = offered(groups, ClaimableCPUs(topology.all_cpus, last=False))
    assert [row["attributes"][_NUMA_NODE] for row in rows] == [
        {"ints": list(two)} for two in ((0, 1), (1, 0), (2, 3), (3, 2))
    ]
    sockets = devices_of(topology, Grouping.SOCKET, near_nodes=near_nodes(machine_info))
    assert [one.attributes[_NUMA_NODE] for one in sockets] == [(0, 1), (2, 3)]


def test_kinds_of_cores_are_told_where_a_group_has_one_kind() -> None:
    hybrid = load_machine("i7-1370p")
    topology = discover_topology(hybrid.info)
    kinds = {one.attributes.get("dra.cpu/coreType") for one in devices_of(topology, Grouping.CPU, hybrid.hardware)}
    assert kinds == {"p-core", "e-core"}
    [whole] = devices_of(topology, Grouping.SOCKET, hybrid.hardware)
    assert "dra.cpu/coreType" not in whole.attributes
    plain = load_machine("epyc-7763-2s-nps4")
    one = devices_of(discover_topology(plain.info), Grouping.NUMA, plain.hardware)[0]
    assert one.attributes["dra.cpu/coreType"] == "standard"


def test_pcie_roots_are_a_list() -> None:
    roots = {"pci0000:00": NUMA0, "pci0000:40": NUMA1, "pci0000:50": NUMA1}
    [row] = offered(devices_of(SMALL, Grouping.NUMA, None, roots)[1:], ClaimableCPUs(NUMA1, last=False))
    assert row["attributes"]["resource.kubernetes.io/pcieRoot"] == {"strings": ["pci0000:40", "pci0000:50"]}


HELD = HeldClaim("u", "s", "c", {("numa1", "r"): CPUMask(0xF0), ("socket0", "r"): CPUMask(0x3)})


@pytest.mark.parametrize(
    ("room", "expected"),
    [
        # A pod has CPUs 12 to 15; two CPUs of NUMA node 0 are held by a claim of another grouping.
        (ClaimableCPUs(0x0F0C, last=False, claims=(HELD,)), {"numa0": "6", "numa1": "4"}),
        (ClaimableCPUs(0x0F00, last=False), {"numa0": "4"}),
        (ClaimableCPUs(0x0F0E | NUMA1, last=True), {"numa0": "7", "numa1": "7"}),
    ],
    ids=["what claims have and could get", "a group with nothing to give", "the last CPU of the pool is kept back"],
)
def test_capacity_is_what_claims_have_and_what_they_could_get(room: ClaimableCPUs, expected: dict[str, str]) -> None:
    rows = offered(devices_of(SMALL, Grouping.NUMA), room)
    assert {one["name"]: one["capacity"][CAPACITY]["value"] for one in rows} == expected
    for row in rows:
        assert row["allowMultipleAllocations"] is True
        assert row["capacity"][CAPACITY]["requestPolicy"] == {"default": "1", "validRange": {"min": "1", "step": "1"}}


def test_whole_cores_are_offered_in_their_size() -> None:
    room = ClaimableCPUs(0x0F0E | NUMA1, last=False, group_size=2, whole_cores=True)
    first, second = offered(devices_of(SMALL, Grouping.NUMA), room)
    assert (first["capacity"][CAPACITY]["value"], second["capacity"][CAPACITY]["value"]) == ("6", "8")
    assert first["capacity"][CAPACITY]["requestPolicy"]["validRange"] == {"min": "2", "step": "2"}


def test_single_cpus_are_offered_while_they_are_free_or_claimed() -> None:
    held = HeldClaim("u", "s", "c", {("cpu3", "r"): CPUMask(0b1000)})
    rows = offered(devices_of(SMALL, Grouping.CPU), ClaimableCPUs(0b10, last=False, claims=(held,)), whole=True)
    assert [one["name"] for one in rows] == ["cpu1", "cpu3"]
    assert all("capacity" not in one and "allowMultipleAllocations" not in one for one in rows)


def test_a_device_is_given_whole_while_all_of_its_cpus_are_one_claims_or_free() -> None:
    room = ClaimableCPUs(0xF0F0, last=True, group_size=2, whole_cores=True)
    whole = offered(devices_of(SMALL, Grouping.L3), room, whole=True, node_allocatable=True)
    assert [one["name"] for one in whole] == ["l3-1"]
    assert whole[0]["nodeAllocatableResources"] == {"cpu": {"mapping": {"deviceMultiplier": "8"}}}
    assert {"capacity", "allowMultipleAllocations"}.isdisjoint(whole[0])
    held = HeldClaim("u", "s", "c", {("l3-0", "r"): CPUMask(0x0F0F), ("l3-1", "r"): CPUMask(0x10)})
    room = ClaimableCPUs(0xF0E0, last=False, claims=(held,))
    # A claim has a part of l3-1, from when it was given by capacity.
    assert [one["name"] for one in offered(devices_of(SMALL, Grouping.L3), room, whole=True)] == ["l3-0"]
    cores = offered(devices_of(SMALL, Grouping.CORE), ClaimableCPUs(0x0E0F, last=False), whole=Grouping.CORE.is_whole)
    assert [one["name"] for one in cores] == ["core1", "core2", "core3"]
    assert cores[0]["attributes"].items() >= {"dra.cpu/coreID": {"int": 1}, "dra.cpu/numCPUs": {"int": 2}}.items()


def test_a_capacity_counts_against_the_nodes_allocatable_cpus_where_that_is_wanted() -> None:
    rows = offered(devices_of(SMALL, Grouping.MACHINE), ClaimableCPUs(0xFF, last=False), node_allocatable=True)
    assert [(one["name"], one["nodeAllocatableResources"]) for one in rows] == [
        ("machine0", {"cpu": {"mapping": {"capacityKey": CAPACITY, "capacityMultiplier": "1"}}})
    ]


def test_a_slice_has_at_most_128_devices_and_all_have_one_generation() -> None:
    topology = discover_topology(load_machine("epyc-7763-2s-nps4").info)
    devices = devices_of(topology, Grouping.CPU)
    rows = offered(devices, ClaimableCPUs(topology.all_cpus, last=False), whole=True)
    made = slices("cpu.example", "n", rows, 7, "node-uid")
    assert [len(one["spec"]["devices"]) for one in made] == [128, 128]
    assert {one["spec"]["pool"]["resourceSliceCount"] for one in made} == {2}
    assert newest_generation(made) == 7
    assert newest_generation([]) == 0
    assert made[0]["metadata"]["ownerReferences"][0]["uid"] == "node-uid"
    [empty] = slices("cpu.example", "n", [], 1)
    assert empty["spec"]["devices"] == []


def test_slices_are_the_same_whatever_their_generation() -> None:
    rows: list[dict[str, Any]] = [{"name": "numa0"}]
    assert is_same(slices("d", "n", rows, 1), slices("d", "n", rows, 2))
    assert not is_same(slices("d", "n", rows, 1), slices("d", "n", [], 1))
    assert not is_same([], slices("d", "n", rows, 1))
    first, second = slices("d", "n", [{"name": f"cpu{cpu}"} for cpu in range(129)], 1)
    second["spec"]["pool"]["generation"] = 2
    assert not is_same([first, second], [first, second])
