"""What is captured of a machine makes the same machine again, and nothing that is named nowhere is captured."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest

from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Machine
from mooring.inputs.machines.archive import ArchiveTree, archive_bytes, read_archive
from mooring.inputs.machines.capture import Capture, capture_isolation, capture_machine, kept
from mooring.inputs.machines.isolation import read_isolation
from mooring.inputs.machines.loader import machine_of
from mooring.inputs.machines.tree import (
    FolderTree,
    KubeletProcess,
    Tree,
    kubelet_arguments,
    kubelet_here,
    open_tree,
    still_runs,
)

MACHINES = Path(__file__).parents[2].parent / "shared" / "machines"
SNAPSHOTS = sorted(MACHINES.glob("*/*.tar.*"))
needs_machines = pytest.mark.skipif(not SNAPSHOTS, reason="../shared/machines with the recorded machines is absent")


def copy_of(capture: Capture) -> ArchiveTree:
    return ArchiveTree("copy", capture.files, capture.links, capture.folders)


def machine_or_problem(tree: Tree) -> Machine | str:
    try:
        return machine_of(tree, "same")
    except InputError as error:
        return error.problem


@needs_machines
@pytest.mark.parametrize("snapshot", SNAPSHOTS[::3], ids=lambda path: path.parent.name)
def test_the_captured_machine_is_the_machine(snapshot: Path) -> None:
    tree = open_tree(snapshot)
    assert machine_or_problem(copy_of(capture_machine(tree))) == machine_or_problem(tree)


@needs_machines
@pytest.mark.parametrize("snapshot", SNAPSHOTS[::6], ids=lambda path: path.parent.name)
def test_the_captured_isolation_is_the_isolation(snapshot: Path) -> None:
    tree, online = open_tree(snapshot), CPUSet.parse("0-63")
    assert read_isolation(copy_of(capture_isolation(tree)), online) == read_isolation(
        copy_of(capture_isolation(copy_of(capture_isolation(tree)))), online
    )


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("proc/cmdline", "root=x nohz_full=2-3 token=s isolcpus=1", "nohz_full=2-3 isolcpus=1\n"),
        ("proc/cmdline", "isolcpus=1 -- isolcpus=2", "isolcpus=1\n"),
        ("proc/cpuinfo", "processor : 0\nSerial : 12ab\nModel : x\n", "processor : 0\nModel : x\n"),
        ("proc/cpuinfo", "processor 0: version = FF, identification = 2733E8\n",
         "processor 0: version = FF, identification = 0\n"),
        ("proc/mounts", "a:/b /c nfs rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n",
         "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"),
        ("proc/self/cgroup", "3:cpuset:/a\n2:memory:/b\n0::/c\n", "3:cpuset:/a\n0::/c\n"),
        ("etc/systemd/system.conf.d/x.conf", "[Manager]\n CPUAffinity = 0-1\nX=1\n", "[Manager]\n CPUAffinity = 0-1\n"),
        ("etc/default/irqbalance", "A=b\nIRQBALANCE_BANNED_CPUS=ff\n", "IRQBALANCE_BANNED_CPUS=ff\n"),
        ("sys/fs/cgroup/a/cgroup.procs", "12\n13\n", "0\n"),
        ("sys/fs/cgroup/a/cgroup.procs", "", ""),
        ("proc/meminfo", "MemTotal: 1 kB\n", "MemTotal: 1 kB\n"),
    ],
)  # fmt: skip
def test_of_some_files_a_part_is_kept(path: str, text: str, expected: str) -> None:
    assert kept(path, text.encode()) == expected.encode()


def test_files_that_nothing_names_stay_out() -> None:
    tree = ArchiveTree("x", {"sys/devices/system/cpu/online": b"0\n", "etc/shadow": b"s", "proc/1/environ": b"s",
                             "sys/devices/system/cpu/cpu0/topology/core_id": b"0\n",
                             "sys/class/dmi/id/product_uuid": b"s"})  # fmt: skip
    assert set(capture_machine(tree).files) == {
        "sys/devices/system/cpu/online",
        "sys/devices/system/cpu/cpu0/topology/core_id",
    }
    assert capture_isolation(tree).files == {}


def test_a_file_that_is_there_and_cannot_be_read_is_reported() -> None:
    class Unreadable:
        """A tree in which one file is hidden from its reader."""

        name = "x"
        is_live = False

        def __init__(self, inner: ArchiveTree) -> None:
            self.read, self.names, self.exists, self.is_dir = inner.read, inner.names, inner.exists, inner.is_dir
            self.place, self._inner, self.is_live = inner.place, inner, False

        def data(self, path: str) -> bytes | None:
            return None if path == "proc/meminfo" else self._inner.data(path)

    tree = Unreadable(ArchiveTree("x", {"proc/meminfo": b"1", "proc/cpuinfo": b"2"}))
    capture = capture_machine(tree)
    assert capture.unread == {"proc/meminfo": "permission denied"}
    assert "proc/cpuinfo" in capture.files


def test_the_kubelet_is_found_by_its_name() -> None:
    files = {
        "proc/9/comm": b"kubelet\n",
        "proc/9/cmdline": b"kubelet\0--v=2\0",
        "proc/10/comm": b"kubelet\n",
        "proc/10/cmdline": b"kubelet\0--v=3\0",
        "proc/2/comm": b"kubelet-helper\n",
    }
    assert kubelet_arguments(ArchiveTree("x", files)) == ("--v=2",)
    assert kubelet_arguments(ArchiveTree("x", {"proc/1/comm": b"init\n"})) is None


def test_a_kubelet_inside_a_container_or_one_that_has_ended_is_not_meant() -> None:
    files = {
        "proc/2/comm": b"kubelet\n",
        "proc/2/cmdline": b"",
        "proc/3/comm": b"kubelet\n",
        "proc/3/cmdline": b"kubelet\0--v=3\0",
        "proc/3/status": b"Name:\tkubelet\nNSpid:\t3\t1\n",
        "proc/4/comm": b"kubelet\n",
        "proc/4/cmdline": b"kubelet\0",
        "proc/4/status": b"Name:\tkubelet\nNSpid:\t4\n",
    }
    tree = ArchiveTree("x", files)
    assert kubelet_here(tree) == (KubeletProcess(4, ()), "")
    assert still_runs(tree, KubeletProcess(4, ()))
    assert not still_runs(tree, KubeletProcess(4, ("--v=1",)))
    assert not still_runs(tree, KubeletProcess(5, ()))


def test_a_program_that_has_the_kubelet_in_it_is_known_by_name() -> None:
    files = {
        "proc/7/comm": b"k3s\n",
        "proc/8/comm": b"k3s-server\n",
        "proc/8/cmdline": b"/usr/local/bin/k3s server\0\0",
    }
    assert kubelet_here(ArchiveTree("x", files)) == (None, "k3s-server")
    nested = {**files, "proc/8/status": b"NSpid:\t8\t1\n"}
    assert kubelet_here(ArchiveTree("x", nested)) == (None, "")
    # A kubelet of its own counts more, also when it came later.
    both = {**files, "proc/9/comm": b"kubelet\n", "proc/9/cmdline": b"kubelet\0--v=2\0"}
    assert kubelet_here(ArchiveTree("x", both)) == (KubeletProcess(9, ("--v=2",)), "")


def test_a_look_for_the_kubelet_reads_each_process_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = ArchiveTree("x", {f"proc/{number}/comm": b"init\n" for number in range(5)})
    read = Mock(wraps=tree.read)
    monkeypatch.setattr(tree, "read", read)
    assert kubelet_here(tree) == (None, "")
    assert [one.args for one in read.call_args_list] == [(f"proc/{number}/comm",) for number in range(5)]


def test_an_archive_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "x.tar.gz"
    file.write_bytes(archive_bytes("top", {"sys/a/b": b"1"}, {"sys/c": "a/b"}, ["sys/empty"]))
    tree = read_archive(str(file))
    assert (tree.data("sys/a/b"), tree.read("sys/c"), tree.names("sys")) == (b"1", "1", ("a", "c", "empty"))


def test_an_archive_beyond_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mooring.inputs.machines.archive.MOST_BYTES", 3)
    with pytest.raises(InputError, match="4 bytes together"):
        archive_bytes("top", {"a": b"12", "b": b"34"})


@pytest.mark.parametrize(("target", "found"), [("/a/file", "1"), ("../a/file", "1"), ("/../a/file", None)])
def test_links_of_a_root_directory_stay_below_it(tmp_path: Path, target: str, found: str | None) -> None:
    (tmp_path / "root/a").mkdir(parents=True)
    (tmp_path / "root/b").mkdir()
    (tmp_path / "root/a/file").write_text("1", encoding="utf-8")
    (tmp_path / "root/b/link").symlink_to(target)
    tree = FolderTree(str(tmp_path / "root"), is_root_directory=True)
    assert tree.read("b/link") == found
    # A snapshot's absolute links lead out of it.
    plain = FolderTree(str(tmp_path / "root"))
    assert plain.read("b/link") == (found if target.startswith("..") else None)
