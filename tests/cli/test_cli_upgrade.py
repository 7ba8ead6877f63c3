"""``mooring upgrade``: answers, exit codes, saved files, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.command import EXAMPLES, NODE, PODS, ROOT, mooring

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
    answered = mooring("upgrade", "--kubelet-version", "1.34", *PODS, *NODE)
    assert answered.code == 0
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


def test_a_gate_that_the_new_release_does_not_know_stops_it_and_is_to_be_removed(tmp_path: Path) -> None:
    answered = mooring(
        "upgrade", "--kubelet-version", "1.35", *node(tmp_path, "featureGates: {MemoryManager: true}"), "-o", "json"
    )
    found = answered.document
    assert answered.code == 1
    assert found["startError"].endswith("unrecognized feature gate: MemoryManager")
    assert {one["outcome"] for one in found["pods"]} == {"not asked"}
    assert ("featureGates.MemoryManager", "refused") in [(one["name"], one["effect"]) for one in found["settings"]]
    [advice] = found["advice"]
    assert (advice["kind"], advice["names"], advice["kept"]) == ("remove gates", ["MemoryManager"], 1)
    assert [one["startError"] is None for one in found["hops"]] == [False]


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


def test_what_cannot_be_answered_is_one_line(tmp_path: Path) -> None:
    config = ("--config", EXAMPLES / "kubelet.yaml")
    unknown = mooring("upgrade", *PODS, "--machine", "epyc-7763-2s-nps4", *config)
    assert (unknown.code, "--kubelet-version: is missing" in unknown.complaint) == (2, True)
    assert mooring("upgrade", "--kubelet-version", "1.12", *PODS, *NODE).code == 2
    assert mooring("upgrade", "--kubelet-version", "1.34", "2", *PODS, *NODE).code == 2
    several = ("upgrade", "-f", GOLDEN / "cluster.yaml", *NODE, "--save-state", tmp_path)
    assert (mooring(*several).code, list(tmp_path.iterdir())) == (2, [])


def test_the_archive_of_the_examples_names_its_release() -> None:
    found = mooring("upgrade", "--node", ROOT / "examples" / "node", "-o", "json").document
    assert found["node"]
    assert found["to"] == "v1.37.2"


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
def test_live_pods_whose_statuses_allocate_nothing_keep_what_they_were_admitted_with_here_and_in_fleet(
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
    fleet = mooring("fleet", "upgrade", *rest)
    assert fleet.code == 0
    assert "refused in that order, counted in sums only: default/c" in " ".join(fleet.out.split())
    assert "every pod runs in the end" in fleet.out


def test_a_running_pod_counts_with_what_is_allocated_while_its_resize_waits(tmp_path: Path) -> None:
    cluster, config = tmp_path / "live.yaml", tmp_path / "kubelet.yaml"
    cluster.write_text(LISTED.replace("OLD", "36.3") + running("a", 2, ", allocatedResources: {cpu: 4, memory: 1Gi}"))
    config.write_text(CONFIG.replace("0,4", "0,8"))
    machine = ("--machine", "sockets=2 cores=8 threads=2 memory=64Gi")
    found = mooring("upgrade", "1.37", "-f", cluster, *machine, "--config", config, "-o", "json").document
    assert found["pods"][0]["before"]["c"]["cpus"] == "1-2,9-10"
