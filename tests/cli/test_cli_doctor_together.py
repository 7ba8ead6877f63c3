"""``mooring doctor`` names what one file has lost from the other, from the running pods and from the device record."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.command import Answered, mooring

from mooring.engine.checkpoint.device_file import HeldDevices, device_text

CONFIG = """\
kind: KubeletConfiguration
cpuManagerPolicy: static
memoryManagerPolicy: Static
reservedSystemCPUs: "0"
kubeReserved: {memory: 924Mi}
reservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}]
"""
POD = """\
kind: Pod
metadata: {name: pNUMBER, uid: uid-NUMBER}
spec: {containers: [{name: app, resources: {limits: {cpu: CPUS, memory: 1Gi}}}]}
"""
RECORD = "device-plugins/kubelet_internal_checkpoint"


class Node:
    """A kubelet's root directory with eight running containers, of which the last shares CPUs."""

    def __init__(self, folder: Path) -> None:
        self.root, self.pods, self.config = folder / "root", folder / "pods.yaml", folder / "kubelet.yaml"
        self.config.write_text(CONFIG, encoding="utf-8")
        pods = [POD.replace("NUMBER", str(n)).replace("CPUS", "500m" if n == 7 else "4") for n in range(8)]
        self.pods.write_text("---\n".join(pods), encoding="utf-8")
        saved = mooring("plan", "-f", self.pods, *self._node(), "--save-state", self.root)
        assert saved.code == 0, saved.err

    def _node(self) -> tuple[str | Path, ...]:
        return ("--machine", "epyc-7763-2s-nps4", "--config", self.config)

    def doctor(self, *more: str | Path) -> Answered:
        return self.doctor_in_words("-o", "json", *more)

    def doctor_in_words(self, *more: str | Path) -> Answered:
        return mooring("doctor", "--state", self.root, *self._node(), *more)

    def truncate(self, file: str, after: str) -> None:
        text = (self.root / file).read_text(encoding="utf-8")
        (self.root / file).write_text(text[: text.index(after) + len(after)], encoding="utf-8")

    def record(self, text: str) -> None:
        (self.root / RECORD).parent.mkdir()
        (self.root / RECORD).write_text(text, encoding="utf-8")


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def concerned(answer: Answered, code: str) -> list[str]:
    """Return the uids of the containers that a problem names; fails where the problem is missing."""
    (found,) = [one for one in answer.document["problems"] if one["code"] == code]
    return sorted(entry["uid"] for entry in found["containers"])


def test_a_missing_cpu_file_is_not_sound_while_the_memory_file_has_containers(node: Node) -> None:
    (node.root / "cpu_manager_state").unlink()
    answer = node.doctor()
    assert (answer.code, answer.document["sound"]) == (1, False)
    assert concerned(answer, "MOOR-345") == [f"uid-{n}" for n in range(8)]


def test_running_pods_tell_which_containers_have_exclusive_cpus(node: Node) -> None:
    (node.root / "cpu_manager_state").unlink()
    few = node.pods.with_name("few.yaml")
    few.write_text("---".join(node.pods.read_text(encoding="utf-8").split("---")[6:]), encoding="utf-8")
    assert concerned(node.doctor("--active", few), "MOOR-345") == ["uid-6"]


def test_the_containers_that_a_truncated_file_has_lost_are_named(node: Node) -> None:
    node.truncate("cpu_manager_state", '"uid-1":{')
    answer = node.doctor()
    assert answer.code == 1
    assert concerned(answer, "MOOR-346") == [f"uid-{n}" for n in range(1, 8)]


def test_a_truncated_memory_file_is_completed_from_the_cpu_file(node: Node) -> None:
    node.truncate("memory_manager_state", '"machineState"')
    assert concerned(node.doctor(), "MOOR-346") == [f"uid-{n}" for n in range(7)]


@pytest.mark.parametrize("file", ["cpu_manager_state", "memory_manager_state"])
def test_a_lost_entry_is_named_with_the_file_that_lacks_it(node: Node, file: str) -> None:
    node.truncate(file, '"uid-1":{')
    rows = [line.split(maxsplit=1) for line in node.doctor_in_words().out.splitlines()]
    (outcome,) = [row[1] for row in rows if row and row[0] == "uid-3/app"]
    assert outcome.endswith(f"has no readable entry in {file}"), outcome


def test_the_device_record_names_containers_that_both_files_have_lost(node: Node) -> None:
    node.record(device_text([HeldDevices("uid-gpu", "app", "v.com/gpu", {0: ("a",)})], {}))
    for file in ("cpu_manager_state", "memory_manager_state"):
        (node.root / file).unlink()
    assert concerned(node.doctor(), "MOOR-345") == ["uid-gpu"]


def test_a_running_container_without_its_devices_in_the_record_is_named(node: Node) -> None:
    node.record(device_text([HeldDevices("other", "app", "v.com/gpu", {0: ("a",)})], {}))
    text = node.pods.read_text(encoding="utf-8")
    node.pods.write_text(text.replace("memory: 1Gi", "memory: 1Gi, v.com/gpu: 1", 1), encoding="utf-8")
    assert concerned(node.doctor("--active", node.pods), "MOOR-348") == ["uid-0"]


def test_a_damaged_device_record_is_a_warning(node: Node) -> None:
    node.record('{"Data":')
    answer = node.doctor()
    assert concerned(answer, "MOOR-347") == []
    assert answer.code == 0


def test_files_of_one_moment_are_sound(node: Node) -> None:
    answer = node.doctor("--active", node.pods)
    assert (answer.code, answer.document["problems"]) == (0, [])


def entry(number: int, device: str, node: int = 0) -> HeldDevices:
    return HeldDevices(f"uid-{number}", "app", "v.com/gpu", {node: (device,)})


def test_a_device_in_the_entries_of_two_running_pods_is_named(node: Node) -> None:
    node.record(device_text([entry(0, "a"), entry(1, "a"), entry(2, "b"), entry(9, "b")], {}))
    answer = node.doctor("--active", node.pods)
    assert concerned(answer, "MOOR-349") == ["uid-0", "uid-1"]
    assert answer.code == 0


def test_devices_elsewhere_than_the_cpus_are_named_under_a_policy_that_refuses_them(node: Node) -> None:
    node.record(device_text([entry(0, "a", 0), entry(1, "b", 3)], {}))
    assert "MOOR-352" not in {one["code"] for one in node.doctor("--active", node.pods).document["problems"]}
    node.config.write_text(f"{CONFIG}topologyManagerPolicy: single-numa-node\n", encoding="utf-8")
    assert concerned(node.doctor("--active", node.pods), "MOOR-352") == ["uid-1"]
