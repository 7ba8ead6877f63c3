"""``mooring doctor``: what it says about a directory, what it writes, and what it never writes."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.agent.pods.fault_injector import Fault, FaultInjector
from tests.cli.command import EXAMPLES, Answered, mooring

from mooring.engine.checkpoint.device_file import HeldDevices, device_text
from mooring.engine.core.machineinfo import HIGHEST_NODE
from mooring.engine.releases.rule import RELEASE_NAMES

CONFIG = {
    "kind": "KubeletConfiguration",
    "cpuManagerPolicy": "static",
    "memoryManagerPolicy": "Static",
    "topologyManagerPolicy": "restricted",
    "reservedSystemCPUs": "0",
    "kubeReserved": {"memory": "924Mi"},
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
}
STRICT = {"cpuManagerPolicyOptions": {"strict-cpu-reservation": "true"}}
PODS = """
apiVersion: v1
kind: Pod
metadata: {name: web, uid: 6a1f}
spec: {containers: [{name: app, resources: {limits: {cpu: 2, memory: 1Gi}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: cache, uid: 81c2}
spec: {containers: [{name: app, resources: {limits: {cpu: 1, memory: 1Gi}}}]}
"""
MACHINE = ("--machine", "small-1s8")


class Site:
    """A kubelet's root directory and what it was configured with."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "root"
        self.pods = folder / "pods.yaml"
        self.pods.write_text(PODS)
        mooring("plan", "-f", self.pods, *MACHINE, "--config", self.config(), "--save-state", self.root, code=0)

    def config(self, **changes: object) -> Path:
        path = self.folder / "kubelet.yaml"
        path.write_text(json.dumps({**CONFIG, **changes}))
        return path

    def doctor(self, *more: str | Path, config: Path | None = None, machine: tuple[str, ...] = MACHINE) -> Answered:
        return mooring("doctor", "--state", self.root, *machine, "--config", config or self.config(), *more)

    @property
    def files(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.root.iterdir()}

    def damage(self, file: str, old: str, new: str) -> None:
        path = self.root / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def codes(answer: Answered) -> list[str]:
    document = answer.document
    every = [problem for file in document["files"] for problem in file["problems"]] + document["problems"]
    return [problem["code"] for problem in every]


def test_sound_files_are_called_sound(site: Site) -> None:
    answer = site.doctor("--active", site.pods)
    assert answer.code == 0
    assert "sound: the kubelet starts on these files" in " ".join(answer.out.split())
    assert "Repair" not in answer.out


def test_a_directory_without_files_is_a_fresh_start(site: Site) -> None:
    for file in site.files:
        (site.root / file).unlink()
    answer = site.doctor()
    assert (answer.code, answer.err) == (0, "")
    expected = f"{site.root}: no state files: the kubelet makes new ones when it starts"
    assert answer.out.split() == expected.split()
    assert site.doctor("--write").code == 0
    assert site.files == {}


def test_nothing_is_written_without_write(site: Site) -> None:
    before = site.files
    answer = site.doctor(config=site.config(reservedSystemCPUs="0-1"))
    assert answer.code == 1
    assert "1. Stop the kubelet" in answer.out
    assert site.files == before


@pytest.mark.parametrize(
    ("change", "code", "kept"),
    [
        ({"cpuManagerPolicy": "none"}, "MOOR-305", 0),
        ({"memoryManagerPolicy": "None", "reservedMemory": []}, "MOOR-305", 0),
        ({"reservedSystemCPUs": "0-1"}, "MOOR-313", 1),
        (STRICT, "MOOR-314", 2),
    ],
    ids=["cpu-none", "memory-none", "reserved", "strict"],
)
def test_a_changed_configuration_is_repaired_and_sound(
    site: Site, change: dict[str, Any], code: str, kept: int
) -> None:
    before = site.files
    config = site.config(**change)
    answer = site.doctor("-o", "json", config=config)
    assert (answer.code, codes(answer)) == (1, [code])
    (repair,) = answer.document["repairs"]
    assert (repair["action"], repair["kept"], repair["written"]) == ("replace", kept, False)
    written = site.doctor("--write", "-o", "json", config=config)
    assert written.code == 0
    assert written.document["repairs"][0]["backup"] == f"{repair['file']}.bak-1"
    assert site.files[repair["file"]].decode() == repair["text"]
    assert site.files[f"{repair['file']}.bak-1"] == before[repair["file"]]
    again = site.doctor("-o", "json", "--write", config=config)
    assert (again.code, codes(again), again.document["repairs"]) == (0, [], [])
    assert not (site.root / f"{repair['file']}.bak-2").exists()


def test_there_and_back_keeps_both_backups(site: Site) -> None:
    site.doctor("--write", config=site.config(**STRICT))
    assert codes(site.doctor("--write", "-o", "json")) == ["MOOR-315"]
    assert {"cpu_manager_state.bak-1", "cpu_manager_state.bak-2"} <= set(site.files)
    assert site.files["cpu_manager_state"] == site.files["cpu_manager_state.bak-1"]


def test_a_smaller_machine_names_everything_that_is_gone(site: Site) -> None:
    answer = site.doctor("-o", "json", machine=("--machine", "sockets=1 cores=2 threads=2 memory=8Gi"))
    assert codes(answer) == ["MOOR-316", "MOOR-332"]
    cpu, memory = answer.document["files"]
    assert cpu["problems"][0]["cpus"] == "4-7"
    assert "current set of available CPUs" in cpu["kubeletMessage"]
    assert "the expected machine state is different" in memory["kubeletMessage"]
    dropped, kept = answer.document["repairs"]
    assert [one["why"] for one in dropped["dropped"]] == ["CPU 5 is not there", "CPU 4 is not there"]
    assert (dropped["kept"], kept["kept"]) == (0, 2)


def test_running_pods_are_called_by_their_names_and_told_what_they_get(site: Site) -> None:
    answer = site.doctor("--active", site.pods, config=site.config(reservedSystemCPUs="0-1"))
    assert "default/web/app  MOOR-313  loses CPUs 1,5: CPU 1 is reserved; gets CPUs 2,6 after the start" in answer.out
    document = site.doctor("--active", site.pods, "-o", "json", config=site.config(reservedSystemCPUs="0-1")).document
    assert document["afterwards"] == [
        {"uid": "6a1f", "namespace": "default", "name": "web", "container": "app", "cpus": "2,6", "refused": ""},
        {"uid": "81c2", "namespace": "default", "name": "cache", "container": "app", "cpus": "4", "refused": ""},
    ]


@pytest.mark.parametrize("size", [1, 60, 110, 150, 200, 250])
def test_a_torn_file_is_read_as_far_as_it_goes(site: Site, size: int) -> None:
    path = site.root / "cpu_manager_state"
    whole = path.read_bytes()
    path.write_bytes(whole[:size])
    answer = site.doctor("-o", "json", "--active", site.pods)
    assert "MOOR-301" in codes(answer)
    (repair,) = answer.document["repairs"]
    held = [b'"6a1f":{"app":"1,5"', b'"81c2":{"app":"4"']
    assert repair["kept"] == sum(whole[:size].count(entry) > 0 for entry in held)
    assert ("MOOR-342" in codes(answer)) == (repair["kept"] < 2)
    if repair["kept"] == 2:
        site.doctor("--write")
        assert path.read_bytes() == whole


def test_an_empty_file_is_the_one_that_is_to_be_deleted(site: Site) -> None:
    (site.root / "memory_manager_state").write_bytes(b"")
    answer = site.doctor("--write")
    assert answer.code == 0
    assert "memory_manager_state was deleted, because nothing in it can be read" in answer.out
    assert sorted(site.files) == ["cpu_manager_state", "memory_manager_state.bak-1"]
    assert site.doctor().code == 0


def test_an_edited_file_is_taken_from_the_copy_that_nobody_edited(site: Site) -> None:
    before = site.files["cpu_manager_state"]
    site.damage("cpu_manager_state", r"\"app\":\"1,5\"", r"\"app\":\"1,6\"")
    answer = site.doctor("-o", "json")
    assert codes(answer) == ["MOOR-303"]
    assert "a right checksum: 2 containers" in answer.document["files"][0]["problems"][0]["message"]
    site.doctor("--write")
    assert site.files["cpu_manager_state"] == before


def test_what_nothing_vouches_for_is_said(site: Site) -> None:
    site.damage("cpu_manager_state", "1,5", "1,6")
    answer = site.doctor("--active", site.pods, "-o", "json")
    assert codes(answer) == ["MOOR-303", "MOOR-311", "MOOR-317"]
    assert "nothing vouches for it" in answer.document["files"][0]["problems"][0]["message"]


def test_stale_entries_are_noted_and_left_to_the_kubelet(site: Site, tmp_path: Path) -> None:
    only = tmp_path / "only.yaml"
    only.write_text(PODS.partition("---")[0])
    answer = site.doctor("--active", only)
    assert answer.code == 0
    assert "note[MOOR-341]" in answer.out
    assert "81c2/app   MOOR-341  is dropped by the kubelet" in answer.out


def test_a_configuration_that_stops_the_kubelet_before_is_said_to_do_so(site: Site) -> None:
    answer = site.doctor("--write", config=site.config(reservedSystemCPUs="0,99"))
    assert answer.code == 1
    assert "MOOR-350" in answer.out
    assert "MOOR-233" in answer.out
    assert 'Set reservedSystemCPUs to "0": the kubelet then starts (run here).' in answer.out
    assert "not checked" in answer.out


def test_a_running_kubelet_is_noticed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def disturbed(path: str | Path, flags: int, mode: int = 0o777) -> int:
        """Let the kubelet write while the backup is made."""
        name, backup, _ = Path(path).name.partition(".bak-")
        if backup:
            (site.root / name).write_text("the kubelet writes")
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", disturbed)
    answer = site.doctor("--write", config=site.config(reservedSystemCPUs="0-1"))
    assert answer.code == 2
    assert "was changed while it was read; stop the kubelet first" in answer.complaint
    assert site.files["cpu_manager_state"] == b"the kubelet writes"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_cannot_be_written_is_bad_input(site: Site) -> None:
    before = site.files
    site.root.chmod(0o500)
    answer = site.doctor("--write", config=site.config(reservedSystemCPUs="0-1"))
    site.root.chmod(0o700)
    assert answer.code == 2
    assert "cannot be written" in answer.complaint
    assert site.files == before


POD_LEVEL = """
apiVersion: v1
kind: Pod
metadata: {name: pool, uid: 90de}
spec:
  resources: {requests: {cpu: 4, memory: 2Gi}, limits: {cpu: 4, memory: 2Gi}}
  containers:
    - {name: app, resources: {requests: {cpu: 2, memory: 1Gi}, limits: {cpu: 2, memory: 1Gi}}}
    - {name: helper}
"""


@pytest.fixture
def pod_level(site: Site) -> Site:
    site.pods.write_text(POD_LEVEL)
    config = site.config(topologyManagerScope="pod", featureGates={"PodLevelResourceManagers": True})
    config = config.rename(site.folder / "pods-on.yaml")
    mooring("plan", "-f", site.pods, *MACHINE, "--config", config, "--save-state", site.root, code=0)
    return site


@pytest.mark.parametrize("release", [name for name in RELEASE_NAMES if name < "1.37"])
def test_an_older_kubelet_gets_a_file_of_its_own_format(pod_level: Site, release: str) -> None:
    config = pod_level.folder / "pods-on.yaml"
    answer = pod_level.doctor("--kubelet-version", release, "-o", "json", "--write", config=config)
    assert answer.document["release"] == release
    assert codes(answer) == ["MOOR-320", "MOOR-335", "MOOR-320"]
    assert [repair["file"] for repair in answer.document["repairs"]] == ["memory_manager_state"]
    text = (pod_level.root / "memory_manager_state").read_text()
    assert '"data"' not in text
    assert '"numberOfAssignments":2' in text
    assert pod_level.doctor("--kubelet-version", release, config=config).code == 0


def test_files_without_pod_entries_need_nothing_for_an_older_kubelet(site: Site) -> None:
    before = site.files
    for release in RELEASE_NAMES:
        assert site.doctor("--kubelet-version", release, "--write").code == 0
    assert site.files == before


def test_an_older_kubelet_answers_in_its_own_words(site: Site) -> None:
    (site.root / "cpu_manager_state").write_text('{"policyName":"static","defaultCpuSet":"x","checksum":0}')
    answers = {release: site.doctor("--kubelet-version", release, "-o", "json").document for release in RELEASE_NAMES}
    words = {release: answer["startError"] for release, answer in answers.items()}
    assert all(("default cpu set" in text) == (release < "1.37") for release, text in words.items())


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_text_fits_the_terminal(site: Site, columns: int) -> None:
    config = site.config(reservedSystemCPUs="0-1")
    mooring("doctor", "--state", "root", *MACHINE, "--config", config, columns=columns, code=2)
    found = mooring(
        "doctor", "--state", site.root, *MACHINE, "--config", config, "--active", site.pods, columns=columns
    )
    # The path of the directory is as long as it is.
    assert all(len(line) <= columns for line in found.out.splitlines() if str(site.root) not in line)


def test_numbers_that_no_machine_has_do_not_hurt(site: Site) -> None:
    huge = str(HIGHEST_NODE * 10**12)
    site.damage("memory_manager_state", r"\"numaAffinity\":[0]", rf"\"numaAffinity\":[{huge}]")
    site.damage("memory_manager_state", '"numaAffinity":[0]', f'"numaAffinity":[{huge}]')
    answer = site.doctor()
    assert answer.code == 1
    assert f"NUMA node {huge}" in answer.out


@pytest.mark.parametrize("release", ["1.37", "1.36"])
def test_a_text_nested_without_end_is_a_damaged_file(site: Site, release: str) -> None:
    deep = "[" * 9000 + "]" * 9000
    (site.root / "cpu_manager_state").write_text(f'{{"policyName":"static","more":{deep},"data":"","checksum":5}}')
    answer = site.doctor("--kubelet-version", release, "-o", "json")
    assert answer.code == 1
    assert codes(answer) == ["MOOR-303", "MOOR-307", "MOOR-346"]
    assert answer.document["repairs"]


def test_lint_asks_the_machine_and_not_the_files(site: Site, tmp_path: Path) -> None:
    answer = mooring("doctor", "--lint", "--machine", tmp_path, "--config", site.config(), "-o", "json", code=2)
    assert "Traceback" not in answer.err


# ``mooring doctor`` names what one file has lost from the other, from the running pods and from the device record.


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
        self.configure("none")
        pods = [POD.replace("NUMBER", str(n)).replace("CPUS", "500m" if n == 7 else "4") for n in range(8)]
        self.pods.write_text("---\n".join(pods), encoding="utf-8")
        mooring("plan", "-f", self.pods, *self._node(), "--save-state", self.root, code=0)

    def configure(self, alignment: str) -> None:
        self.config.write_text(json.dumps({**CONFIG, "topologyManagerPolicy": alignment}))

    def _node(self) -> tuple[str | Path, ...]:
        return ("--machine", "epyc-7763-2s-nps4", "--config", self.config)

    def doctor(self, *more: str | Path) -> Answered:
        return mooring("doctor", "--state", self.root, *self._node(), *more)

    def problems(self, *more: str | Path) -> dict[str, list[str]]:
        """Return each problem's code with the uids of the containers that it names."""
        problems = self.doctor("-o", "json", *more).document["problems"]
        return {one["code"]: sorted(entry["uid"] for entry in one["containers"]) for one in problems}

    def truncate(self, file: str, after: str) -> None:
        """End a file after a text; without one it goes away."""
        text = (self.root / file).read_text(encoding="utf-8")
        (self.root / file).unlink()
        if after:
            (self.root / file).write_text(text[: text.index(after) + len(after)], encoding="utf-8")

    def record(self, *held: HeldDevices) -> None:
        (self.root / RECORD).parent.mkdir()
        (self.root / RECORD).write_text(device_text(list(held), {}))


def held(number: int | str, device: str, node: int = 0) -> HeldDevices:
    return HeldDevices(f"uid-{number}", "app", "v.com/gpu", {node: (device,)})


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


CPU_FILE, MEMORY_FILE = "cpu_manager_state", "memory_manager_state"
EVERY = list(range(8))


@pytest.mark.parametrize(
    ("cut", "recorded", "code", "numbers"),
    [
        ({CPU_FILE: ""}, [], "MOOR-345", EVERY),
        ({CPU_FILE: '"uid-1":{'}, [], "MOOR-346", EVERY[1:]),
        ({MEMORY_FILE: '"machineState"'}, [], "MOOR-346", EVERY[:7]),
        ({CPU_FILE: "", MEMORY_FILE: ""}, [held("gpu", "a")], "MOOR-345", ["gpu"]),
    ],
    ids=["missing", "truncated", "truncated-memory", "only-the-device-record"],
)
def test_containers_that_a_file_has_lost_are_named(
    node: Node, cut: dict[str, str], recorded: list[HeldDevices], code: str, numbers: list[int | str]
) -> None:
    if recorded:
        node.record(*recorded)
    for file, after in cut.items():
        node.truncate(file, after)
    assert node.problems()[code] == [f"uid-{number}" for number in numbers]
    answer = node.doctor("-o", "json")
    assert (answer.code, answer.document["sound"]) == (1, False)


def test_running_pods_tell_which_containers_have_exclusive_cpus(node: Node) -> None:
    node.truncate(CPU_FILE, "")
    few = node.pods.with_name("few.yaml")
    few.write_text("---".join(node.pods.read_text(encoding="utf-8").split("---")[6:]), encoding="utf-8")
    assert node.problems("--active", few)["MOOR-345"] == ["uid-6"]


def test_a_running_container_without_its_devices_in_the_record_is_named(node: Node) -> None:
    node.record(held("other", "a"))
    text = node.pods.read_text(encoding="utf-8")
    node.pods.write_text(text.replace("memory: 1Gi", "memory: 1Gi, v.com/gpu: 1", 1), encoding="utf-8")
    assert node.problems("--active", node.pods)["MOOR-348"] == ["uid-0"]


def test_a_damaged_device_record_is_a_warning(node: Node) -> None:
    node.record()
    (node.root / RECORD).write_text('{"Data":')
    assert node.problems() == {"MOOR-347": []}
    assert node.doctor().code == 0


def test_files_of_one_moment_are_sound(node: Node) -> None:
    assert node.problems("--active", node.pods) == {}
    assert node.doctor("--active", node.pods).code == 0


def test_a_device_in_the_entries_of_two_running_pods_is_named(node: Node) -> None:
    node.record(held(0, "a"), held(1, "a"), held(2, "b"), held(9, "b"))
    assert node.problems("--active", node.pods)["MOOR-349"] == ["uid-0", "uid-1"]
    assert node.doctor("--active", node.pods).code == 0


def test_devices_elsewhere_than_the_cpus_are_named_under_a_policy_that_refuses_them(node: Node) -> None:
    node.record(held(0, "a"), held(1, "b", 3))
    assert "MOOR-352" not in node.problems("--active", node.pods)
    node.configure("single-numa-node")
    assert node.problems("--active", node.pods)["MOOR-352"] == ["uid-1"]


# ``mooring heal``: what it writes before a kubelet starts, what it never touches, what it notes and sends.


UIDS = {f"00000000-0000-0000-0000-00000000000{number}": cpus for number, cpus in enumerate(("2-3", "4-5", "6-7"))}
STATE = (CPU_FILE, MEMORY_FILE)
EVENTS = "POST /api/v1/namespaces/default/events"


class Computer:
    """The example node, whose kubelet has stopped while three containers with CPUs of their own run on."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self.kubelet = self.root / "var/lib/kubelet"
        self.record = folder / "noted" / "heal.json"
        for name in ("sys", "proc"):
            shutil.copytree(EXAMPLES / "node" / name, self.root / name)
        shutil.rmtree(self.root / "proc/90")
        self.kubelet.mkdir(parents=True)
        shutil.copy(EXAMPLES / "node/kubelet/config.json", self.kubelet / "config.yaml")
        for name in STATE:
            shutil.copy(EXAMPLES / "node/kubelet" / name, self.kubelet)
        (self.root / "var/log/containers").mkdir(parents=True)
        for number, (uid, cpus) in enumerate(UIDS.items()):
            self.run(uid, f"{number + 1:064x}", cpus)

    def run(self, uid: str, id_: str, cpus: str, quota: str = "200000 100000") -> None:
        group = f"kubepods.slice/kubepods-pod{uid.replace('-', '_')}.slice/cri-containerd-{id_}.scope"
        folder = self.root / "sys/fs/cgroup" / group
        folder.mkdir(parents=True)
        files = {"cpuset.cpus.effective": cpus, "cpuset.mems.effective": "0", "cpu.max": quota, "cgroup.procs": "77"}
        for name, text in {**files, "memory.max": "max"}.items():
            (folder / name).write_text(f"{text}\n")
        (self.root / f"var/log/containers/pod_default_app-{id_}.log").touch()

    def heal(self, *more: str | Path) -> Answered:
        node = ("--state", self.kubelet, "--machine", self.root, "--kubelet-version", "1.37", "--record", self.record)
        return mooring("heal", *node, *more)

    @property
    def files(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.kubelet.iterdir()}

    def tear(self, name: str = STATE[0], at: int = 40) -> None:
        text = (self.kubelet / name).read_bytes()
        (self.kubelet / name).write_bytes(text[:at])


@pytest.fixture
def computer(tmp_path: Path) -> Computer:
    return Computer(tmp_path)


def test_a_sound_state_is_not_touched(computer: Computer) -> None:
    before = computer.files
    answer = computer.heal()
    assert (answer.code, answer.err) == (0, "")
    assert "kubelet v1.37.2 starts on these files; nothing is written" in " ".join(answer.out.split())
    assert computer.heal("-o", "json").document["starts"] is True
    assert computer.files == before
    assert not computer.record.exists()


@pytest.mark.parametrize("at", [0, 40, 200])
def test_a_torn_file_gets_back_what_running_containers_have(computer: Computer, at: int) -> None:
    before = computer.files
    computer.tear(at=at)
    torn = computer.files[STATE[0]]
    answer = computer.heal()
    assert answer.code == 0, answer.out
    assert computer.files[STATE[0]] == before[STATE[0]]
    assert computer.files[f"{STATE[0]}.bak-1"] == torn
    assert computer.heal().code == 0
    assert set(computer.files) == {*before, f"{STATE[0]}.bak-1"}


def test_a_missing_file_is_written_if_containers_run_and_else_left_to_the_kubelet(computer: Computer) -> None:
    before = computer.files
    (computer.kubelet / STATE[0]).unlink()
    assert computer.heal().code == 0
    assert computer.files == before
    shutil.rmtree(computer.root / "sys/fs/cgroup/kubepods.slice")
    (computer.kubelet / STATE[0]).unlink()
    assert computer.heal().code == 0
    assert STATE[0] not in computer.files


def test_a_container_of_the_shared_pool_gets_no_entry(computer: Computer) -> None:
    before = computer.files
    computer.run("00000000-0000-0000-0000-000000000009", f"{9:064x}", "8-15", quota="50000 100000")
    computer.tear()
    assert computer.heal().code == 0
    assert computer.files[STATE[0]] == before[STATE[0]]


def test_damaged_files_of_pods_are_moved_away(computer: Computer) -> None:
    (computer.kubelet / "allocated_pods_state").write_text('{"data":"{}","checksum":1}')
    answer = computer.heal()
    assert answer.code == 0, answer.out
    assert "allocated_pods_state" not in computer.files
    assert computer.files["allocated_pods_state.bak-1"] == b'{"data":"{}","checksum":1}'


def test_nothing_is_written_beside_a_kubelet(computer: Computer) -> None:
    computer.tear()
    before = computer.files
    process = computer.root / "proc/812"
    process.mkdir()
    (process / "comm").write_text("kubelet\n")
    (process / "cmdline").write_text("/usr/bin/kubelet\0--config=x\0")
    answer = computer.heal()
    assert answer.code == 2
    assert answer.complaint == "mooring: mooring heal: a kubelet runs (process 812); stop it first"
    assert computer.files == before


def test_classes_of_repair_can_be_left(computer: Computer) -> None:
    computer.tear()
    before = computer.files
    answer = computer.heal("--leave", "damage")
    assert answer.code == 1
    assert answer.err == "nothing is written: --leave damage\n"
    assert computer.files == before
    assert computer.heal("--leave", "machine").code == 0


def test_a_dry_run_prints_what_the_doctor_prints(computer: Computer) -> None:
    computer.tear()
    shutil.rmtree(computer.root / "sys/fs/cgroup/kubepods.slice")
    before = computer.files
    answer = computer.heal("--dry-run")
    said = mooring(
        "doctor", "--state", computer.kubelet, "--machine", computer.root, "--config", computer.kubelet / "config.yaml"
    )
    assert (answer.code, answer.out) == (said.code, said.out) == (1, said.out)
    assert computer.files == before


def test_repairs_are_counted_and_noted(computer: Computer) -> None:
    for _ in range(2):
        computer.tear()
        assert computer.heal().code == 0
    assert (
        'mooring_heal_repairs_total{class="damage"} 2' in computer.record.with_suffix(".prom").read_text().splitlines()
    )
    assert len(json.loads(computer.record.read_text())["events"]) == 2


def test_a_torn_record_does_not_keep_a_repair_from_being_noted(computer: Computer) -> None:
    computer.record.parent.mkdir()
    computer.record.write_text('{"counts": {"dam')
    computer.tear()
    assert computer.heal().code == 0
    assert len(json.loads(computer.record.read_text())["events"]) == 1


def test_what_is_noted_is_sent_once_as_events_of_the_node(computer: Computer, tmp_path: Path) -> None:
    computer.tear()
    assert computer.heal().code == 0
    with FaultInjector() as cluster:
        report = ("--report", cluster.kubeconfig(tmp_path / "kubeconfig"), "--node-name", "node-7")
        cluster.fail(EVENTS, Fault(503))
        assert [computer.heal(*report).code for _ in range(3)] == [2, 0, 0]
    refused, event = (request.body for request in cluster.asked(EVENTS))
    assert refused == event
    assert (event["reason"], event["involvedObject"]["name"]) == ("StateHealed", "node-7")
    assert "cpu_manager_state (replaced); MOOR-301; lost: nothing" in event["message"]


@pytest.mark.parametrize("text", ["[]", "{", '{"counts": 1}'])
def test_a_damaged_record_is_named(computer: Computer, text: str) -> None:
    computer.record.parent.mkdir()
    computer.record.write_text(text)
    answer = computer.heal("--report", "kubeconfig")
    assert (answer.code, "is no record of mooring heal" in answer.err) == (2, True)


def test_a_kubelet_that_does_not_tell_its_release_is_named(computer: Computer) -> None:
    answer = mooring(
        "heal", "--state", computer.kubelet, "--machine", computer.root, "--kubelet", "/does/not/exist", code=2
    )
    assert "/does/not/exist: --kubelet: does not tell its release" in answer.complaint
