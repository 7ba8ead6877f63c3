"""``mooring upgrade``: answers, exit codes, saved files, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import NODE, PODS, mooring
from tests.releases.flipped import OF_BOTH, PREVIEW, machines, recorded

from mooring.answers.base.scenario import replay_scenario
from mooring.engine.checkpoint.checksum import data_checksum
from mooring.engine.releases.catalog import RELEASES
from mooring.inputs.pods.scenario import scenario

GOLDEN = Path(__file__).parent / "golden"
MACHINE = ("--machine", "sockets=1 cores=4 threads=2 memory=8Gi")
POD = """
{apiVersion: v1, kind: Pod, metadata: {name: big},
 spec: {containers: [{name: c, resources: {limits: {cpu: 4, memory: 1Gi}}}]}}
"""
CONFIG = """
kind: KubeletConfiguration
cpuManagerPolicy: static
cpuManagerPolicyOptions: {full-pcpus-only: "true"}
reservedSystemCPUs: "0,4"
"""


def node(tmp_path: Path, more: str = "") -> tuple[str | Path, ...]:
    config, pod = tmp_path / "kubelet.yaml", tmp_path / "pod.yaml"
    config.write_text(CONFIG + more)
    pod.write_text(POD)
    return ("-f", pod, *MACHINE, "--config", config)


def test_nothing_changes_for_the_node_of_the_examples() -> None:
    answered = mooring("upgrade", "--kubelet-version", "1.34", *PODS, *NODE, code=0)
    assert "all 8 running pods keep their CPUs and memory" in " ".join(answered.out.split())


def test_a_pod_that_the_old_release_rejects_again_names_the_rule_and_the_option_to_remove(tmp_path: Path) -> None:
    """Rule smt-check-before-existing: a rollback to 1.36 rejects a pod that holds most of the node's cores."""
    answered = mooring("upgrade", "--kubelet-version", "1.37", "1.36", *node(tmp_path), "-o", "json")
    found = answered.document
    assert (answered.code, found["startError"], found["safe"]) == (1, None, False)
    [pod] = found["pods"]
    assert (pod["outcome"], pod["reason"], pod["before"]["c"]["cpus"]) == ("rejected", "SMTAlignmentError", "1-2,5-6")
    [cause] = found["causes"]
    assert (cause["kind"], cause["name"], cause["releases"]) == ("rule", "smt-check-before-existing", "1.31 to 1.36")
    assert [one["name"] for one in cause["pods"]] == ["big"]
    assert found["advice"][0]["kind"] == "remove option"
    assert (found["advice"][0]["names"], found["advice"][0]["kept"]) == (["full-pcpus-only"], 1)


def test_advice_leads_from_one_refusal_to_the_next_until_the_kubelet_starts(tmp_path: Path) -> None:
    more = "featureGates: {MemoryManager: true}\nrunOnce: true"
    found = mooring("upgrade", "--kubelet-version", "1.31", *node(tmp_path, more), "-o", "json").document
    first, second = found["advice"]
    assert (first["names"], first["text"]) == (["MemoryManager"], "Remove MemoryManager from featureGates.")
    assert (second["names"], second["kept"]) == (["runOnce"], 1)


def test_pods_of_a_node_whose_kubelet_does_not_start_do_not_run(tmp_path: Path) -> None:
    more = "featureGates: {PodLevelResourceManagers: true}"
    found = mooring("upgrade", "--kubelet-version", "1.35", *node(tmp_path, more), "-o", "json").document
    assert "PodLevelResourceManagers" in found["startErrorBefore"]
    [pod] = found["pods"]
    assert (pod["running"], pod["outcome"], pod["admitted"]) == (False, "admitted", True)


def test_a_pod_that_the_old_kubelet_rejects_does_not_run_and_is_named(tmp_path: Path) -> None:
    given = list(node(tmp_path))
    Path(given[1]).write_text(POD.replace("cpu: 4", "cpu: 3"))
    answered = mooring("upgrade", "--kubelet-version", "1.34", *given, "-o", "json")
    found = answered.document
    assert (answered.code, found["pods"], found["recreated"]) == (0, [], [])
    assert [one["code"] for one in found["findings"] if one["subject"] == "default/big"] == ["MOOR-582"]


def test_an_example_has_only_the_pods_that_it_needs(tmp_path: Path) -> None:
    given = list(node(tmp_path))
    small = POD.replace("name: big", "name: logs").replace("cpu: 4", "cpu: 100m")
    Path(given[1]).write_text(f"{POD}---{small}")
    found = mooring("upgrade", "--kubelet-version", "1.37", "1.36", *given, "-o", "json").document
    assert [one["name"] for one in found["pods"]] == ["big", "logs"]
    [cause] = found["causes"]
    assert [one["name"] for one in cause["pods"]] == ["big"]


def test_a_file_that_the_new_release_does_not_read_is_to_be_deleted_on_a_drained_node(tmp_path: Path) -> None:
    """Version 1 of the CPU manager's file names containers by their ids; 1.37 does not read it."""
    given, state = list(node(tmp_path)), tmp_path / "state"
    state.mkdir()
    (state / "cpu_manager_state").write_text(
        '{"policyName":"static","defaultCpuSet":"0,3-4,7","entries":{"abc":"1-2,5-6"},"checksum":0}'
    )
    running = ("--active", given[1], *given[2:], "--state", state)
    answered = mooring("upgrade", "--kubelet-version", "1.36", *running, "-o", "json")
    found = answered.document
    assert "could not restore state from checkpoint" in found["startError"]
    [advice] = found["advice"]
    assert (advice["kind"], advice["moved"], advice["rejected"]) == ("drain", 1, 0)
    assert mooring("upgrade", "--kubelet-version", "1.36", *running).out.count("Drain the node") == 1


def test_the_saved_files_are_those_on_which_the_new_kubelet_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "after"
    found = mooring(
        "upgrade", "--kubelet-version", "1.34", *node(tmp_path), "--save-state", folder, "-o", "json"
    ).document
    assert (folder / "cpu_manager_state").read_text() == found["cpuManagerState"]
    assert (folder / "memory_manager_state").read_text() == found["memoryManagerState"]
    assert '"1-2,5-6"' in found["cpuManagerState"]
    assert found["rollback"]["startError"] is None


def test_each_node_of_a_cluster_has_a_line_with_its_own_release() -> None:
    cluster = GOLDEN / "cluster.yaml"
    answered = mooring("upgrade", "-f", cluster, *NODE, "-o", "json")
    nodes = answered.document["nodes"]
    assert "Node" not in answered.err
    assert [(one["node"], one["from"], one["kept"]) for one in nodes] == [("n1", "v1.34.4", 1), ("n2", "v1.36.3", 0)]
    assert mooring("upgrade", "-f", "-", *NODE, stdin=cluster.read_bytes()).code == answered.code == 0
    assert mooring("upgrade", "-f", cluster, "--node-name", "n1", *NODE, "-o", "json").document["kind"] == "Upgrade"


def test_releases_that_are_not_known_are_named_with_their_option(tmp_path: Path) -> None:
    newer = mooring("upgrade", "--kubelet-version", "1.36", "1.99", *node(tmp_path))
    assert newer.err.startswith("warning[MOOR-580]: kubelet 1.99")
    for name, typed in (("--kubelet-version", ("--kubelet-version",)), ("VERSION", ("--kubelet-version", "1.36"))):
        older = mooring("upgrade", *node(tmp_path), *typed, "1.30")
        assert (older.code, older.complaint.startswith(f"mooring: {name}: kubelet 1.30 is older")) == (2, True)
        empty = mooring("upgrade", *node(tmp_path), *typed, "").complaint
        called = "the argument" if name == "VERSION" else name
        assert empty == f"mooring: {called}: is empty; give it a value, or leave it out"
        nonsense = mooring("upgrade", *node(tmp_path), *typed, "nonsense")
        assert (nonsense.code, nonsense.complaint.startswith(f"mooring: {name}: 'nonsense' is not")) == (2, True)


def test_a_flag_that_the_new_release_lacks_stops_it_and_is_to_be_removed_from_its_file(tmp_path: Path) -> None:
    flags = tmp_path / "kubeadm-flags.env"
    flags.write_text('KUBELET_KUBEADM_ARGS="--max-pods=50 --pod-infra-container-image=images.example/pause:3.10"\n')
    given = (*node(tmp_path), "--config", flags)
    answered = mooring("upgrade", "--kubelet-version", "1.34", "1.35", *given, "-o", "json")
    found = answered.document
    assert answered.code == 1
    assert found["startError"] == "failed to parse kubelet flag: unknown flag: --pod-infra-container-image"
    [advice] = found["advice"]
    assert advice["kind"] == "remove flags"
    assert advice["names"] == [f"--pod-infra-container-image from {flags}:1"]
    text = " ".join(mooring("upgrade", "--kubelet-version", "1.34", "1.35", *given).out.split())
    assert "Remove --pod-infra-container-image from" in text
    starts = mooring("upgrade", "--kubelet-version", "1.33", "1.34", *given, "-o", "json")
    # Both reject the running pod at a restart (smt-check-before-existing).
    assert (starts.code, starts.document["startError"], starts.document["changed"]) == (1, None, False)


LISTED = """
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: node-a}, status: {
    capacity: {cpu: "16", memory: 64Gi, pods: "110"}, allocatable: {cpu: "15", memory: 63Gi, pods: "110"},
    nodeInfo: {kubeletVersion: v1.OLD}}}
"""


def running(name: str, cpus: int, allocated: str = "") -> str:
    """Return a pod that runs, whose status says what is allocated, or does not."""
    size = f"{{cpu: {cpus}, memory: 1Gi}}"
    return (
        f"- {{apiVersion: v1, kind: Pod, metadata: {{name: {name}, uid: u-{name}}}, spec: {{nodeName: node-a, "
        f"containers: [{{name: c, image: i, resources: {{requests: {size}, limits: {size}}}}}]}}, "
        f"status: {{phase: Running, containerStatuses: [{{name: c, state: {{running: {{}}}}{allocated}}}]}}}}\n"
    )


@pytest.mark.parametrize(("old", "new"), [("33.13", "34.4"), ("35.4", "34.4"), ("36.3", "37.2")])
def test_live_pods_without_allocations_keep_what_they_were_admitted_with_in_fleet_too(
    old: str, new: str, tmp_path: Path
) -> None:
    """What was admitted had no status yet; what the old kubelet refuses already is no loss by the upgrade."""
    cluster, config = tmp_path / "live.yaml", tmp_path / "kubelet.yaml"
    cluster.write_text(LISTED.replace("OLD", old) + running("a", 6) + running("b", 6) + running("c", 6))
    config.write_text(CONFIG.replace("0,4", "0,8") + "topologyManagerPolicy: single-numa-node\n")
    machine = "sockets=2 cores=8 threads=2 memory=64Gi"
    shared = ("--config", config, "-o", "json")
    here = mooring("upgrade", f"1.{new}", "-f", cluster, "--machine", machine, *shared).document
    assert [(one["name"], one["outcome"], one["before"]["c"]["cpus"]) for one in here["pods"] if one["running"]] == [
        ("a", "kept", "1-3,9-11"),
        ("b", "kept", "4-6,12-14"),
    ]
    assert [one["subject"] for one in here["findings"] if one["code"] == "MOOR-582"] == ["default/c"]
    rest = (f"v1.{new}", "--cluster", cluster, "--machine", f"*:{machine}", "--config", config)
    fleet = mooring("fleet", "upgrade", *rest, code=0)
    assert "refused in that order, counted in sums only: default/c" in " ".join(fleet.out.split())
    assert "every pod runs in the end" in fleet.out


def test_a_running_pod_counts_with_what_is_allocated_while_its_resize_waits(tmp_path: Path) -> None:
    cluster, config = tmp_path / "live.yaml", tmp_path / "kubelet.yaml"
    cluster.write_text(LISTED.replace("OLD", "36.3") + running("a", 2, ", allocatedResources: {cpu: 4, memory: 1Gi}"))
    config.write_text(CONFIG.replace("0,4", "0,8"))
    machine = ("--machine", "sockets=2 cores=8 threads=2 memory=64Gi")
    found = mooring("upgrade", "1.37", "-f", cluster, *machine, "--config", config, "-o", "json").document
    assert found["pods"][0]["before"]["c"]["cpus"] == "1-2,9-10"


# Kubelet 1.37 to 1.38 and back: each hazard, as ``mooring upgrade`` tells it.


SMT = "sockets=1 cores=8 threads=2 siblings=adjacent memory=16Gi"
TWO_NODES = "sockets=1 numa=2 cores=16 memory=32Gi"
SPREAD: dict[str, Any] = {
    "cpuManagerPolicyOptions": {"distribute-cpus-across-cores": "true"},
    "featureGates": {"CPUManagerPolicyAlphaOptions": True},
    "kubeReserved": {"cpu": "2"},
}
WHOLE: dict[str, Any] = {
    "featureGates": {"PodLevelResourceManagers": True},
    "reservedSystemCPUs": "0",
    "topologyManagerPolicy": "restricted",
    "topologyManagerScope": "pod",
    "memoryManagerPolicy": "Static",
    "evictionHard": {"memory.available": "100Mi"},
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "100Mi"}}],
}
NAMED = {"reservedSystemCPUs": "0"}


def pod(name: str, *cpus: str, whole: str = "") -> dict[str, Any]:
    def resources(cpu: str) -> dict[str, Any]:
        return {"resources": {"limits": {"cpu": cpu, "memory": "1Gi"}}} if cpu else {}

    containers = [{"name": f"c{index}", **resources(cpu)} for index, cpu in enumerate(cpus)]
    amounts = {"cpu": whole, "memory": "4Gi"}
    spec = {"containers": containers, **({"resources": {"limits": amounts, "requests": amounts}} if whole else {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "uid": name}, "spec": spec}


def upgrade(
    tmp_path: Path, old: str, new: str, kubelet: dict[str, Any], *pods: dict[str, Any], machine: str = SMT
) -> dict[str, Any]:
    config, active = tmp_path / "kubelet.json", tmp_path / "pods.json"
    config.write_text(json.dumps({"kind": "KubeletConfiguration", "cpuManagerPolicy": "static", **kubelet}))
    active.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(pods) or [pod("a", "2")]}))
    asked = ("--kubelet-version", old, new, "--machine", machine, "--config", config, "--active", active)
    found: dict[str, Any] = mooring("upgrade", *asked, "-o", "json").document
    return found


@pytest.mark.parametrize(
    ("old", "new", "gates", "told"),
    [
        ("1.37", "1.38", {"DynamicResourceAllocation": True}, "unrecognized feature gate: DynamicResourceAllocation"),
        ("1.38", "1.37", {"SecurityProfileOCI": False}, "unrecognized feature gate: SecurityProfileOCI"),
        ("1.37", "1.38", {"EnvFiles": False}, "cannot set feature gate EnvFiles to false, feature is locked to true"),
    ],
)
def test_a_gate_that_came_or_went_stops_the_other(
    tmp_path: Path, old: str, new: str, gates: dict[str, bool], told: str
) -> None:
    found = upgrade(tmp_path, old, new, {**NAMED, "featureGates": gates})
    assert found["startError"].endswith(told)
    assert [(one["kind"], one["names"], one["kept"]) for one in found["advice"]] == [("remove gates", [*gates], 1)]
    refused = [one["name"] for one in found["settings"] if one["effect"] == "refused"]
    assert refused == [f"featureGates.{name}" for name in gates]


@pytest.mark.parametrize(("old", "new", "cpus"), [("1.37", "1.38", ["0-1", "0,2"]), ("1.38", "1.37", ["0,2", "0-1"])])
def test_reserved_cpus_chosen_anew_can_be_a_pods(tmp_path: Path, old: str, new: str, cpus: list[str]) -> None:
    found = upgrade(tmp_path, old, new, SPREAD, pod("a", "6"), pod("b", "6"))
    assert found["startError"].startswith(f'start cpu manager error: not all reserved cpus: "{cpus[1]}" are present in')
    assert [one["name"] for one in found["causes"]] == ["spread-by-cpu-number"]
    assert ("reserved CPUs", "computed", *cpus) in [
        (one["name"], one["effect"], one["before"], one["after"]) for one in found["settings"]
    ]
    [advice] = found["advice"]
    assert (advice["kind"], advice["names"], advice["kept"]) == ("reserve CPUs", [cpus[0]], 2)


def test_strictly_reserved_cpus_are_outside_of_the_shared_pool_and_chosen_anew_too(tmp_path: Path) -> None:
    options = {**SPREAD["cpuManagerPolicyOptions"], "strict-cpu-reservation": "true"}
    found = upgrade(tmp_path, "1.37", "1.38", {**SPREAD, "cpuManagerPolicyOptions": options}, pod("a", "1500m"))
    assert found["startError"].startswith('start cpu manager error: some of strictly reserved cpus: "2" are present in')
    assert found["advice"][0]["kind"] == "reserve CPUs"


@pytest.mark.parametrize(("old", "new"), [("1.37", "1.38"), ("1.38", "1.37")])
@pytest.mark.parametrize("scope", ["container", "pod"])
def test_other_pods_keep_what_they_have_and_files_their_text(tmp_path: Path, old: str, new: str, scope: str) -> None:
    kubelet = {**WHOLE, "topologyManagerScope": scope}
    found = upgrade(tmp_path, old, new, kubelet, pod("a", "2", "1"), pod("b", "3"), machine=TWO_NODES)
    assert (found["safe"], [one["outcome"] for one in found["pods"]]) == (True, ["kept", "kept"])
    [cpu, memory, *others] = found["stateFiles"]
    for one in (cpu, memory):
        assert one["writtenBefore"] == one["writtenAfter"]
    assert [one["file"] for one in others] == ["allocated_pods_state", "actuated_pods_state"]
    versions = {(one["writtenBefore"], one["writtenAfter"]) for one in others}
    assert versions == {("V1", "V2") if old < new else ("V2", "V1")}


def test_pods_with_cpus_as_a_whole_are_kept_by_1_38_and_rejected_after_a_rollback(tmp_path: Path) -> None:
    found = upgrade(tmp_path, "1.37", "1.38", WHOLE, pod("a", "2", "", whole="4"), machine=TWO_NODES)
    assert found["safe"]
    assert [one["name"] for one in found["causes"]] == ["pod-allocation-not-restored"]
    assert [one["outcome"] for one in found["rollback"]["pods"]] == ["rejected"]
    back = upgrade(tmp_path, "1.38", "1.37", WHOLE, pod("a", "2", "", whole="4"), machine=TWO_NODES)
    assert [one["outcome"] for one in back["pods"]] == ["rejected"]


def replayed_with_restart(name: str, release: str) -> list[dict[str, Any]]:
    """Return the steps of a recording of 1.37.2, and a restart as another release."""
    content = next(one for one in recorded(PREVIEW / OF_BOTH) if one["id"] == name)
    restart = {"restart": True, "release": RELEASES[release].tag}
    asked = scenario({**content, "steps": [*content["steps"], restart]}, source="test")
    found: list[dict[str, Any]] = replay_scenario(asked, machines())["expect"]["steps"]
    return found


def test_cpus_that_a_restart_of_1_37_lost_stop_the_start_before_anything_is_restored() -> None:
    for release in ("1.37", "1.38"):
        *_, after = replayed_with_restart("difference-pl-prefix", release)
        assert "doesn't match with CPUs in state" in after["startError"]


def test_the_doctor_reads_the_files_of_allocated_pods_in_both_versions(tmp_path: Path) -> None:
    data = '{"entries":{"u1":{"ContainerResources":{}}}}'
    folder = tmp_path / "kubelet"
    folder.mkdir()
    config = tmp_path / "kubelet.yaml"
    config.write_text("kind: KubeletConfiguration\ncpuManagerPolicy: static\nreservedSystemCPUs: '0'\n")

    def told(member: str, release: str) -> tuple[int, str]:
        text = f'{{{member}"data":{json.dumps(data)},"checksum":{data_checksum(data)}}}'
        (folder / "allocated_pods_state").write_text(text)
        asked = ("--state", folder, "--machine", SMT, "--config", config, "--kubelet-version", release)
        answered = mooring("doctor", *asked, "-o", "json")
        [found] = [one for one in answered.document["files"] if one["file"] == "allocated_pods_state"]
        return answered.code, found["format"] if found["sound"] else found["kubeletMessage"]

    assert told("", "1.37") == told("", "1.38") == (0, "pods with their resources, format V1, 1 pod")
    assert told('"version":"v2",', "1.37") == (0, "pods with their resources, format V2, 1 pod")
    assert told('"version":"v2",', "1.38") == (0, "pods with their resources, format V2, 1 pod")
    code, words = told('"version":"v3",', "1.38")
    assert code == 1
    assert 'unsupported checkpoint version "v3": this kubelet reads legacy (unversioned) and "v2" checkpoints' in words
