"""``mooring doctor``: what it says about a directory, what it writes, and what it never writes."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import ROOT, Answered, mooring

from mooring.engine.core.machineinfo import HIGHEST_NODE
from mooring.engine.releases.rule import RELEASE_NAMES
from mooring.explanations.codes import all_codes

SOURCE = ROOT / "src" / "mooring"
CONFIG = """
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cpuManagerPolicy: {policy}
cpuManagerPolicyOptions: {options}
memoryManagerPolicy: {memory}
topologyManagerPolicy: restricted
reservedSystemCPUs: "{reserved}"
kubeReserved: {{memory: 924Mi}}
reservedMemory: [{{numaNode: 0, limits: {{memory: 1Gi}}}}]
featureGates: {{PodLevelResourceManagers: {pods}}}
"""
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
        saved = mooring("plan", "-f", self.pods, *MACHINE, "--config", self.config(), "--save-state", self.root)
        assert saved.code == 0, saved.err

    def config(
        self,
        *,
        policy: str = "static",
        memory: str = "Static",
        reserved: str = "0",
        options: str = "{}",
        pods: bool = False,
    ) -> Path:
        path = self.folder / "kubelet.yaml"
        flag = str(pods).lower()
        path.write_text(
            CONFIG.format(policy=policy, memory=memory, reserved=reserved, options=options, pods=flag)
            if memory == "Static"
            else CONFIG.format(policy=policy, memory=memory, reserved=reserved, options=options, pods=flag).replace(
                "reservedMemory", "# "
            )
        )
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
    answer = site.doctor(config=site.config(reserved="0-1"))
    assert answer.code == 1
    assert "1. Stop the kubelet" in answer.out
    assert site.files == before


@pytest.mark.parametrize(
    ("change", "code", "kept"),
    [
        ({"policy": "none"}, "MOOR-305", 0),
        ({"memory": "None"}, "MOOR-305", 0),
        ({"reserved": "0-1"}, "MOOR-313", 1),
        ({"options": '{strict-cpu-reservation: "true"}'}, "MOOR-314", 2),
    ],
    ids=["cpu-none", "memory-none", "reserved", "strict"],
)
def test_a_changed_configuration_is_repaired_and_then_sound(
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
    strict = '{strict-cpu-reservation: "true"}'
    site.doctor("--write", config=site.config(options=strict))
    answer = site.doctor("--write", "-o", "json")
    assert codes(answer) == ["MOOR-315"]
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
    answer = site.doctor("--active", site.pods, config=site.config(reserved="0-1"))
    assert "default/web/app  MOOR-313  loses CPUs 1,5: CPU 1 is reserved; gets CPUs 2,6 after the start" in answer.out
    document = site.doctor("--active", site.pods, "-o", "json", config=site.config(reserved="0-1")).document
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
    answer = site.doctor("--write", config=site.config(reserved="0,99"))
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
    answer = site.doctor("--write", config=site.config(reserved="0-1"))
    assert answer.code == 2
    assert "was changed while it was read; stop the kubelet first" in answer.complaint
    assert site.files["cpu_manager_state"] == b"the kubelet writes"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_cannot_be_written_is_bad_input(site: Site) -> None:
    before = site.files
    site.root.chmod(0o500)
    answer = site.doctor("--write", config=site.config(reserved="0-1"))
    site.root.chmod(0o700)
    assert answer.code == 2
    assert "cannot be written" in answer.complaint
    assert site.files == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "--state: is missing"),
        (("--state", "nowhere"), "no such directory"),
        (("--node", "n.tar.gz", "--write"), "--write: needs --state"),
        (("--lint", "--write", "--state", "."), "either --lint or --write"),
        (("--lint", "--machine", "small-1s8"), "contains no isolation settings"),
    ],
    ids=["no-state", "no-directory", "write-node", "lint-write", "lint-shipped"],
)
def test_what_cannot_be_asked_is_bad_input(arguments: tuple[str, ...], words: str) -> None:
    answer = mooring("doctor", *arguments)
    assert answer.code == 2
    assert words in answer.complaint


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
    text = site.config(pods=True).read_text() + "topologyManagerScope: pod\n"
    (site.folder / "pods-on.yaml").write_text(text)
    saved = mooring(
        "plan", "-f", site.pods, *MACHINE, "--config", site.folder / "pods-on.yaml", "--save-state", site.root
    )
    assert saved.code == 0, saved.out + saved.err
    return site


def test_entries_of_whole_pods_are_missed_without_their_gate(pod_level: Site) -> None:
    assert pod_level.doctor(config=pod_level.folder / "pods-on.yaml").code == 0
    answer = pod_level.doctor("-o", "json")
    assert codes(answer) == ["MOOR-320", "MOOR-335", "MOOR-320"]
    (repair,) = answer.document["repairs"]
    assert (repair["file"], repair["kept"], repair["dropped"]) == ("memory_manager_state", 2, [])
    assert "podEntries" not in repair["text"]
    assert pod_level.doctor("--write").code == 0
    assert pod_level.doctor().code == 0


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
    config = site.config(reserved="0-1")
    answer = mooring("doctor", "--state", "root", *MACHINE, "--config", config, columns=columns)
    assert answer.code == 2
    found = mooring(
        "doctor", "--state", site.root, *MACHINE, "--config", config, "--active", site.pods, columns=columns
    )
    # The path of the directory is as long as it is.
    assert all(len(line) <= columns for line in found.out.splitlines() if str(site.root) not in line)


def test_every_code_has_a_page() -> None:
    files = [*(SOURCE / "answers" / "doctor").glob("*.py"), SOURCE / "answers" / "base" / "plan_findings.py"]
    sources = "".join(file.read_text(encoding="utf-8") for file in files)
    used = set(re.findall(r'"(MOOR-3\d\d)"', sources))
    pages = {code for code in all_codes() if code.startswith("MOOR-3")}
    assert used == pages


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
    answer = mooring("doctor", "--lint", "--machine", tmp_path, "--config", site.config(), "-o", "json")
    assert answer.code == 2
    assert "Traceback" not in answer.err
