"""Trees: the same files give the same answers from a folder, an archive of any kind and the running machine."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.engine.core.errors import InputError
from mooring.inputs.machines.archive import MAX_ARCHIVE_BYTES, ArchiveTree, read_archive
from mooring.inputs.machines.tree import FolderTree, Tree, open_tree

FILES = {"sys/b/one": b"1\n", "sys/b/bytes": b"\xff\n", "sys/b/empty": b"", "proc/meminfo": b"MemTotal: 4 kB\n"}
LINKS = {
    "sys/link": "b",
    "sys/b/up": "../b/one",
    "sys/b/far": "../link/up",
    "sys/b/loop": "loop",
    "sys/b/out": "../../../etc/passwd",
    "sys/b/root": "/etc/passwd",
    "sys/b/dangling": "nothing",
}
SUFFIXES: dict[str, Callable[[bytes], bytes]] = {
    ".tar": bytes,
    ".tar.gz": gzip.compress,
    ".tar.bz2": bz2.compress,
    ".tar.xz": lzma.compress,
}


def packed(prefix: str = "", extra: tuple[tarfile.TarInfo, ...] = ()) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for path, data in FILES.items():
            member = tarfile.TarInfo(prefix + path)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        for path, target in LINKS.items():
            member = tarfile.TarInfo(prefix + path)
            member.type, member.linkname = tarfile.SYMTYPE, target
            archive.addfile(member)
        for member in extra:
            archive.addfile(member, io.BytesIO(bytes(member.size)))
    return stream.getvalue()


def unpacked(root: Path) -> Path:
    for path, data in FILES.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
    for path, target in LINKS.items():
        (root / path).symlink_to(target)
    return root


def stored(root: Path, data: bytes, name: str = "machine.tar.gz") -> Path:
    (root / name).write_bytes(data)
    return root / name


MAKERS: dict[str, Callable[[Path], Tree]] = {
    "folder": lambda root: open_tree(unpacked(root)),
    "memory": lambda _: ArchiveTree("memory", FILES, LINKS),
    "archive": lambda root: open_tree(stored(root, packed())),
}


@pytest.fixture(params=MAKERS)
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> Tree:
    made: Tree = MAKERS[request.param](tmp_path)
    return made


def test_files_are_read_and_undecodable_bytes_replaced(tree: Tree) -> None:
    assert tree.read("sys/b/one") == "1\n"
    assert tree.read("sys/b/one") == "1\n"
    assert tree.read("sys/b/bytes") == "\ufffd\n"
    assert tree.read("sys/b/empty") == ""


@pytest.mark.parametrize("path", ["sys/b", "sys/none", "none/at/all", "sys/b/one/below", "", "sys/b/..", "sys/\0"])
def test_what_is_no_file_has_no_text(tree: Tree, path: str) -> None:
    assert tree.read(path) is None


def test_names_are_in_text_order_and_links_are_listed(tree: Tree) -> None:
    assert tree.names("") == ("proc", "sys")
    assert tree.names("sys") == ("b", "link")
    assert (
        tree.names("sys/link")
        == tree.names("sys/b")
        == tuple(sorted(p[6:] for p in FILES | LINKS if p[:6] == "sys/b/"))
    )
    assert tree.names("sys/b/one") == tree.names("missing") == ()


def test_relative_links_are_followed_inside_the_tree(tree: Tree) -> None:
    assert tree.read("sys/link/one") == tree.read("sys/b/up") == tree.read("sys/b/far") == "1\n"
    assert tree.is_dir("sys/link")
    assert tree.exists("sys/b/far")
    assert not tree.is_dir("sys/b/far")


@pytest.mark.parametrize("path", ["sys/b/loop", "sys/b/out", "sys/b/root", "sys/b/dangling"])
def test_links_that_loop_dangle_or_leave_the_tree_lead_nowhere(tree: Tree, path: str) -> None:
    assert tree.read(path) is None
    assert not tree.exists(path)
    assert not tree.is_dir(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("prefix", ["", "./", "machine/", "./machine/"])
def test_every_form_of_archive_reads_the_same_whatever_its_name(suffix: str, prefix: str, tmp_path: Path) -> None:
    tree = open_tree(stored(tmp_path, SUFFIXES[suffix](packed(prefix)), "m.tgz"))
    assert tree.read("sys/b/far") == "1\n"
    assert tree.names("") == ("proc", "sys")


def test_a_top_folder_is_kept_when_no_machine_is_in_it() -> None:
    assert ArchiveTree("x", {"proc/cpuinfo": b""}).names("") == ("proc",)


def test_members_that_are_devices_absolute_or_climbing_are_ignored(tmp_path: Path) -> None:
    extra = []
    for name, kind in (("sys/dev", tarfile.CHRTYPE), ("sys/pipe", tarfile.FIFOTYPE), ("/sys/abs", tarfile.REGTYPE)):
        member = tarfile.TarInfo(name)
        member.type = kind
        extra.append(member)
    extra.append(tarfile.TarInfo("sys/../../climb"))
    tree = read_archive(str(stored(tmp_path, packed(extra=tuple(extra)))))
    assert tree.names("sys") == ("b", "link")


def test_a_hard_link_has_the_content_of_its_member(tmp_path: Path) -> None:
    link = tarfile.TarInfo("sys/hard")
    link.type, link.linkname = tarfile.LNKTYPE, "sys/b/one"
    assert open_tree(stored(tmp_path, packed(extra=(link,)))).read("sys/hard") == "1\n"


MEMBER_BLOCKS = len(FILES) + len(LINKS) + sum(1 for data in FILES.values() if data)


@pytest.mark.parametrize(
    "data",
    [packed()[:length] for length in (1, 511, 700, 3000, 3072, MEMBER_BLOCKS * 512)]
    + [compress(packed())[:-missing] for compress in list(SUFFIXES.values())[1:] for missing in (1, 9, 100)],
    ids=len,
)
def test_a_cut_archive_is_refused_and_not_half_read(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="archive"):
        open_tree(stored(tmp_path, data))


def test_a_wrong_checksum_is_noticed(tmp_path: Path) -> None:
    data = bytearray(gzip.compress(packed()))
    data[-5] ^= 0xFF
    with pytest.raises(InputError, match="CRC"):
        open_tree(stored(tmp_path, bytes(data)))


def test_garbage_between_members_is_noticed(tmp_path: Path) -> None:
    data = packed()
    with pytest.raises(InputError, match="damaged"):
        open_tree(stored(tmp_path, data[:2048] + b"x" * 512 + data[2560:]))


@pytest.mark.parametrize(
    ("limit", "most", "size", "told"),
    [
        ("MAX_UNPACKED_BYTES", 100_000, 10_000_000, "unpacks to more than 100000 bytes"),
        ("MAX_FILE_BYTES", 5000, 5001, "sys/large is larger than 5000 bytes"),
        ("MAX_MEMBERS", 3, 0, "more than 3 members"),
    ],
)
def test_an_archive_beyond_a_limit_is_refused(
    limit: str, most: int, size: int, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"mooring.inputs.machines.archive.{limit}", most)
    large = tarfile.TarInfo("sys/large")
    large.size = size
    with pytest.raises(InputError, match=told):
        open_tree(stored(tmp_path, gzip.compress(packed(extra=(large,)))))


def test_a_too_large_archive_file_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "large.tar"
    with path.open("wb") as file:
        file.truncate(MAX_ARCHIVE_BYTES + 1)
    with pytest.raises(InputError, match="larger than"):
        open_tree(path)


@pytest.mark.parametrize("size", [5001, 100_000])
def test_a_too_large_file_of_a_folder_is_refused(size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mooring.inputs.machines.tree.MAX_FILE_BYTES", 5000)
    (tmp_path / "large").write_bytes(bytes(size))
    (tmp_path / "largest").write_text("x" * 5000)
    assert FolderTree(str(tmp_path)).read("largest") == "x" * 5000
    with pytest.raises(InputError, match="larger than 5000 bytes"):
        FolderTree(str(tmp_path)).read("large")


@pytest.mark.parametrize("length", [1, 4095, 4096, 4097, 100_000])
def test_files_of_any_length_are_read_whole(length: int, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x" * length)
    assert FolderTree(str(tmp_path)).read("file") == "x" * length


def test_a_named_pipe_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert FolderTree(str(tmp_path)).read("pipe") is None


@pytest.mark.parametrize("source", ["missing", "missing.tar.gz", "with\0nul", "/dev/null"])
def test_what_is_no_folder_and_no_file_is_an_input_error(source: str) -> None:
    with pytest.raises(InputError, match="name a folder"):
        open_tree(source)


def test_the_root_is_the_running_machine() -> None:
    tree = open_tree("/")
    assert tree.is_live
    assert "proc" in tree.names("")
    assert tree.is_dir("proc")
    assert tree.read("proc/self/mounts") == tree.read("proc/self/mounts")
    assert tree.read("no/such/file") is None
    assert tree.read("nul\0") is None
    assert not tree.exists("no/such/file")


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=2000))
def test_random_bytes_are_no_archive(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = stored(tmp_path_factory.getbasetemp(), data, "random")
    with pytest.raises(InputError, match="archive") as refusal:
        read_archive(str(path))
    assert str(refusal.value).startswith(f"{path}: ")


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 6000), st.binary(min_size=1, max_size=40), st.sampled_from(list(SUFFIXES.values())))
def test_a_mutated_archive_reads_or_is_refused(
    tmp_path_factory: pytest.TempPathFactory, where: int, patch: bytes, pack: Callable[[bytes], bytes]
) -> None:
    data = pack(packed("machine/"))
    where %= len(data)
    path = stored(tmp_path_factory.getbasetemp(), data[:where] + patch + data[where + len(patch) :], "mutated")
    with contextlib.suppress(InputError):
        read_archive(str(path)).read("sys/b/far")
