"""What is captured of a machine makes the same machine again, and nothing that is named nowhere is captured."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest
from tests.values import cases

from mooring.documents.machine import UnreadFile
from mooring.engine.core.errors import InputError
from mooring.inputs.archive.collect import CollectRequest, collect
from mooring.inputs.machines.archive import ArchiveTree, archive_bytes, read_archive
from mooring.inputs.machines.tree import (
    FolderTree,
    KubeletProcess,
    kubelet_arguments,
    kubelet_here,
    still_runs,
)

ONLINE = {
    "sys/devices/system/cpu/online": b"0\n",
    "sys/fs/cgroup/cgroup.controllers": b"",
    "proc/hwloc-nofile-info": b"",
}


@pytest.mark.parametrize(("text", "expected", "path"), cases(__file__, "kept.yaml", "text", "kept", "path"))
def test_of_some_files_a_part_is_kept(text: str, expected: str, path: str) -> None:
    assert collect(ArchiveTree("x", {**ONLINE, path: text.encode()}), CollectRequest()).files[path] == expected.encode()


def test_files_that_nothing_names_stay_out() -> None:
    named = {**ONLINE, "sys/devices/system/cpu/cpu0/topology/core_id": b"0\n"}
    others = dict.fromkeys(("etc/shadow", "proc/1/environ", "sys/class/dmi/id/product_uuid"), b"s")
    found = collect(ArchiveTree("x", {**named, **others}), CollectRequest())
    assert set(found.files) == {*named, "mooring-node.json"}


def test_a_file_that_is_there_and_cannot_be_read_is_reported() -> None:
    class Unreadable(ArchiveTree):
        """A tree in which one file is hidden from its reader."""

        def data(self, path: str) -> bytes | None:
            return None if path == "proc/meminfo" else super().data(path)

    found = collect(Unreadable("x", {**ONLINE, "proc/meminfo": b"1", "proc/cpuinfo": b"2"}), CollectRequest())
    assert found.about.unread == [UnreadFile("proc/meminfo", "permission denied")]
    assert "proc/cpuinfo" in found.files


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
