"""A machine is found by the form of its name, and whatever cannot be one is refused in one line."""

from __future__ import annotations

import os
import shutil
import tarfile
from pathlib import Path

import pytest
from msgspec import to_builtins
from tests.values import cases

from mooring.documents.machine import machine_document
from mooring.engine.core.errors import InputError
from mooring.inputs.machines.loader import load_machine, shipped_machine
from mooring.inputs.machines.machineinfo_json import machine_info_json

CORPUS = Path(__file__).parents[1] / "corpora" / "machines.jsonl"
SYSTEM = "sys/devices/system"
FILES = {
    "proc/cpuinfo": "flags : lm\ncpu MHz : 1000.0\n",
    "proc/meminfo": "MemTotal: 4096 kB\nSwapTotal: 0 kB\n",
    f"{SYSTEM}/cpu/online": "0-1\n",
    f"{SYSTEM}/node/online": "0\n",
    f"{SYSTEM}/node/node0/cpumap": "3\n",
    f"{SYSTEM}/node/node0/cpulist": "0-1\n",
    f"{SYSTEM}/node/node0/meminfo": "Node 0 MemTotal: 4096 kB\n",
    f"{SYSTEM}/node/node0/distance": "10\n",
} | {
    f"{SYSTEM}/cpu/cpu{cpu}/topology/{name}": f"{value}\n"
    for cpu in (0, 1)
    for name, value in (
        ("core_id", cpu),
        ("physical_package_id", 0),
        ("thread_siblings", f"{1 << cpu:x}"),
        ("core_siblings", "3"),
    )
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "tiny"
    for path, text in FILES.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    for cpu in (0, 1):
        (root / f"{SYSTEM}/node/node0/cpu{cpu}").symlink_to(f"../../cpu/cpu{cpu}")
    return root


def test_a_folder_gives_both_views(folder: Path) -> None:
    machine = load_machine(str(folder))
    assert (machine.name, machine.info.num_cores, machine.info_error) == ("tiny", 2, "")
    assert machine.hardware is not None
    assert str(machine.hardware.online) == "0-1"
    assert machine.findings == ()


def test_an_archive_gives_the_same_machine_as_its_folder(folder: Path, tmp_path: Path) -> None:
    archive = tmp_path / "tiny.tar.gz"
    with tarfile.open(archive, "w:gz") as file:
        file.add(folder, arcname=".")
    assert load_machine(str(archive)) == load_machine(str(folder))
    assert load_machine(f"{archive} node0.memory=3Gi").info.topology[0].memory == 3 * 2**30


def test_findings_tell_where_the_views_differ(folder: Path) -> None:
    (folder / f"{SYSTEM}/node/node0/cpu1").unlink()
    machine = load_machine(str(folder))
    told = [finding.message for finding in machine.findings]
    assert "The kubelet does not see CPU 1, which the kernel has online." in told
    assert machine.info.num_cores == 1


def test_what_stops_a_kubelet_is_an_error_of_the_machine_and_a_finding(folder: Path) -> None:
    (folder / "proc/meminfo").unlink()
    (folder / f"{SYSTEM}/node/node0/distance").write_text("10  20")
    machine = load_machine(str(folder))
    assert machine.info_error == "open /proc/meminfo: no such file or directory"
    told = " ".join(finding.message for finding in machine.findings)
    assert "so a kubelet does not start: open /proc/meminfo" in told
    assert "cAdvisor cannot read the topology: cannot convert  to int" in told
    assert "could not detect number of cpus" in told


@pytest.mark.parametrize("source", ["", "live"])
def test_an_empty_name_is_this_computer(source: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    opened: list[str] = []

    def open_here(path: str) -> object:
        opened.append(path)
        from mooring.inputs.machines.tree import FolderTree  # noqa: PLC0415 - stands in for the real machine

        return FolderTree(str(folder))

    monkeypatch.setattr("mooring.inputs.machines.tree.open_tree", open_here)
    assert load_machine(source).name == "live"
    assert opened == ["/"]


def test_a_json_file_is_a_description(tmp_path: Path) -> None:
    path = tmp_path / "node.json"
    path.write_text(machine_info_json(shipped_machine("small-1s8").info))
    machine = load_machine(str(path))
    assert (machine.name, machine.hardware) == ("node", None)
    assert machine.info == shipped_machine("small-1s8").info


def test_a_line_of_a_file_is_found_by_its_name(tmp_path: Path) -> None:
    assert load_machine(f"{CORPUS}#t-1s8").info.num_cores == 8
    single = tmp_path / "one.jsonl"
    single.write_bytes(CORPUS.read_bytes().splitlines()[0])
    assert load_machine(str(single)).name == "t-1s8"


def test_shipped_machines_go_before_files_of_their_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "small-1s8").mkdir()
    monkeypatch.chdir(tmp_path)
    assert load_machine("small-1s8").info.num_cores == 8
    with pytest.raises(InputError):
        load_machine("./small-1s8")


def test_text_with_an_equals_sign_is_compact() -> None:
    assert load_machine("sockets=2 cores=8").info.num_cores == 8


@pytest.mark.parametrize(
    ("source", "error"),
    [
        *cases(__file__, "no-machines.yaml", "source", "says"),
        ("a\0b", r"'a\x00b': unknown machine"),
        ("x" * 300, f"{'x' * 80}...: unknown machine"),
    ],
)
def test_what_is_no_machine_is_refused_with_the_nearest_thing_that_is(source: str, error: str) -> None:
    with pytest.raises(InputError) as caught:
        load_machine(source)
    assert str(caught.value).startswith(error)
    assert "\n" not in str(caught.value)


def test_a_folder_without_a_machine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        load_machine(str(tmp_path))
    assert str(caught.value) == (
        f"{tmp_path}: holds no machine: sys/devices/system/cpu is missing; name a folder or archive that holds "
        "sys/devices/system/cpu of a machine"
    )


@pytest.mark.parametrize("name", ["x.json", "x.jsonl", "x.tar.gz", "x"])
def test_a_file_that_is_no_machine_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"\x1f\x8b\x08 not what it seems \xff")
    with pytest.raises(InputError, match=name):
        load_machine(str(tmp_path / name))


def test_a_named_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(InputError, match="is not a file"):
        load_machine(str(tmp_path / "pipe.json"))


def test_a_description_beyond_the_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mooring.inputs.machines.loader.MAX_DESCRIPTION_BYTES", 10)
    (tmp_path / "big.json").write_text(" " * 11)
    with pytest.raises(InputError, match="is larger than 10 bytes"):
        load_machine(str(tmp_path / "big.json"))


def test_an_unreadable_description_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "secret.json"
    path.write_text("{}")
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user reads every file")
    with pytest.raises(InputError, match="cannot be read: Permission denied"):
        load_machine(str(path))


@pytest.mark.parametrize(("kind", "number"), [("cpu", 99_999_999_999), ("node", 5_000_000)])
def test_ids_that_no_kernel_gives_are_refused(kind: str, number: int, folder: Path) -> None:
    if kind == "cpu":
        (folder / f"{SYSTEM}/cpu/online").unlink()
        shutil.copytree(folder / f"{SYSTEM}/cpu/cpu0", folder / f"{SYSTEM}/node/node0/cpu{number}")
    else:
        shutil.copytree(folder / f"{SYSTEM}/node/node0", folder / f"{SYSTEM}/node/node{number}", symlinks=True)
    with pytest.raises(InputError, match=str(number)):
        load_machine(str(folder))


def test_the_document_of_a_machine_has_the_hardware_and_the_findings() -> None:
    document = to_builtins(machine_document(shipped_machine("xeon-6230-2s-snc2")))
    assert (document["apiVersion"], document["kind"], document["name"]) == (
        "mooring/v1alpha1",
        "Machine",
        "xeon-6230-2s-snc2",
    )
    assert document["cpus"]
    assert document["findings"]


def test_the_document_of_a_machine_info_says_what_the_kubelet_sees() -> None:
    document = to_builtins(machine_document(load_machine(f"{CORPUS}#t-2s12")))
    assert document["online"] == "0-11"
    counts = document["counts"]
    assert isinstance(counts, dict)
    assert (counts["pus"], counts["cores"], counts["packages"]) == (12, 6, 2)
    findings = document["findings"]
    assert isinstance(findings, list)
    assert findings[-1]["subject"] == "source"
