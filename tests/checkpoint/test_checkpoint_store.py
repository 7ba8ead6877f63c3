"""State files on disk, and a repaired one with a copy of what was there."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from mooring.engine.checkpoint.store import (
    StateFolder,
    read_state_file,
    replace_with_backups,
    write_atomically,
    write_together,
)
from mooring.engine.core.errors import InputError


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_is_written_is_read(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path)
    assert folder.read_cpu() is None
    assert folder.read_memory() is None
    folder.write_both('{"policyName":"none"}', '{"policyName":"None"}')
    assert folder.read_cpu() == '{"policyName":"none"}'
    assert folder.read_memory() == '{"policyName":"None"}'
    assert names_in(tmp_path) == ["cpu_manager_state", "memory_manager_state"]


def test_bytes_that_are_not_utf8_survive(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_bytes(b'{"a":"\xff\xfe"}')
    text = read_state_file(path)
    assert text is not None
    write_atomically(path, text)
    assert path.read_bytes() == b'{"a":"\xff\xfe"}'


def test_a_file_is_replaced_whole_and_private(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_text("a much longer text than the new one", encoding="utf-8")
    before = path.stat().st_ino
    write_atomically(path, "new")
    assert path.read_text(encoding="utf-8") == "new"
    assert path.stat().st_ino != before
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def failing(*_: Any, **__: Any) -> Any:
    raise OSError(28, "No space left on device")


def interrupted(*_: Any) -> Any:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("name", "broken", "error", "text"),
    [
        ("fsync", failing, InputError, "cannot be written: No space left on device"),
        ("replace", failing, InputError, "cannot be written: No space left on device"),
        ("fsync", interrupted, KeyboardInterrupt, None),
    ],
    ids=["sync", "rename", "interrupted"],
)
def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    broken: Any,
    error: type[BaseException],
    text: str | None,
) -> None:
    path = tmp_path / "state"
    path.write_text("old", encoding="utf-8")
    monkeypatch.setattr(os, name, broken)
    with pytest.raises(error, match=text):
        write_atomically(path, "new")
    monkeypatch.undo()
    assert path.read_text(encoding="utf-8") == "old"
    assert names_in(tmp_path) == ["state"]


def test_file_and_directory_are_brought_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[bool] = []
    real = os.fsync

    def recording(descriptor: int) -> None:
        synced.append(stat.S_ISDIR(os.fstat(descriptor).st_mode))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", recording)
    write_atomically(tmp_path / "state", "new")
    assert synced == [False, True]


def test_every_text_is_on_the_disk_before_the_first_file_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    sync, replace = os.fsync, os.replace

    def synced(descriptor: int) -> None:
        sync(descriptor)
        done.append(f"on disk: {os.pread(descriptor, 20, 0).decode()}")

    def renamed(path: str, target: str) -> None:
        done.append(f"replaced: {Path(target).name}")
        replace(path, target)

    def begun(*_: int) -> None:
        done.append("begun")

    monkeypatch.setattr(os, "open", with_read_access(os.open))
    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    monkeypatch.setattr(os, "posix_fadvise", begun, raising=False)
    write_together(tmp_path, {"a": "one", "b": "two", "c": ""})
    expected = ["begun", "begun", "on disk: one", "on disk: two", "on disk: "]
    assert done == [*expected, "replaced: a", "replaced: b", "replaced: c"]
    assert {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()} == {
        "a": "one",
        "b": "two",
        "c": "",
    }


def with_read_access(real: Callable[..., int]) -> Callable[..., int]:
    """Return ``os.open`` with files that are to be written readable too, so that a test can look into them."""

    def opened(path: str, flags: int, mode: int = 0o777) -> int:
        return real(path, flags & ~os.O_WRONLY | os.O_RDWR if flags & os.O_WRONLY else flags, mode)

    return opened


def test_without_the_advice_or_with_advice_that_is_refused_files_are_written_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "posix_fadvise", failing, raising=False)
    write_together(tmp_path, {"a": "1", "b": "2"})
    monkeypatch.delattr(os, "posix_fadvise")
    write_together(tmp_path, {"b": "3", "c": "4"})
    assert [(tmp_path / name).read_text(encoding="utf-8") for name in names_in(tmp_path)] == ["1", "3", "4"]


def test_texts_are_written_whole_when_the_system_takes_them_piece_by_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:7]))
    text = "0123456789" * 5 + "\u00e4"
    write_together(tmp_path, {"a": text, "b": ""})
    assert [(tmp_path / name).read_text(encoding="utf-8") for name in names_in(tmp_path)] == [text, ""]


def test_names_that_are_taken_are_passed_over_and_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    real = os.open

    def noted(path: str, flags: int, mode: int = 0o777) -> int:
        opened.append(str(path))
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", noted)
    write_atomically(tmp_path / "state", "old")
    start, _, last = opened[0].rpartition("-")
    taken = [Path(f"{start}-{int(last) + step}") for step in (1, 2)]
    taken[0].write_text("a leftover", encoding="utf-8")
    taken[1].symlink_to(tmp_path / "elsewhere")
    write_atomically(tmp_path / "state", "new")
    assert names_in(tmp_path) == sorted(["state", *(path.name for path in taken)])
    assert taken[0].read_text(encoding="utf-8") == "a leftover"
    assert (tmp_path / "state").read_text(encoding="utf-8") == "new"


@pytest.mark.parametrize("failing_call", range(2))
def test_when_one_of_several_files_fails_all_are_whole_and_no_descriptor_stays_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing_call: int
) -> None:
    (tmp_path / "a").write_text("old", encoding="utf-8")
    (tmp_path / "b").write_text("old", encoding="utf-8")
    real, calls = os.replace, iter(range(9))
    before = len(os.listdir("/dev/fd"))  # noqa: PTH208 - names, not paths, are counted

    def replace(path: str, target: str) -> None:
        failing() if next(calls) == failing_call else real(path, target)

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(InputError, match=f"{'ab'[failing_call]}: cannot be written: No space left"):
        write_together(tmp_path, {"a": "new", "b": "new"})
    texts = [(tmp_path / name).read_text(encoding="utf-8") for name in names_in(tmp_path)]
    assert texts == [["old", "old"], ["new", "old"]][failing_call]
    assert len(os.listdir("/dev/fd")) == before  # noqa: PTH208 - as above


def test_what_is_no_ordinary_file_is_refused_at_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(InputError, match="not an ordinary file"):
        read_state_file(pipe)
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        read_state_file(tmp_path)


def test_a_file_beyond_the_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mooring.engine.checkpoint.store.SIZE_LIMIT", 10)
    path = tmp_path / "state"
    path.write_bytes(b"x" * 10)
    assert read_state_file(path) == "x" * 10
    path.write_bytes(b"x" * 11)
    with pytest.raises(InputError, match="larger than 10 bytes"):
        read_state_file(path)


def test_paths_that_cannot_be_used_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_text("", encoding="utf-8")
    with pytest.raises(InputError, match="no such directory"):
        StateFolder(tmp_path / "absent").read_cpu()
    with pytest.raises(InputError, match="cannot be read: Not a directory"):
        StateFolder(file).read_cpu()
    with pytest.raises(InputError, match="null byte"):
        read_state_file(Path("a\0b"))
    with pytest.raises(InputError, match="cannot be written: No such file or directory"):
        StateFolder(tmp_path / "absent").write_both("", "")
    with pytest.raises(InputError, match="cannot be written"):
        write_atomically(tmp_path / "state", "\ud800")

    def denied(*_: Any) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", denied)
    with pytest.raises(InputError, match="file: cannot be read: Permission denied; check the path"):
        read_state_file(file)


BEFORE = {"cpu_manager_state": "old cpu \udcff", "memory_manager_state": "old memory"}
AFTER = {"cpu_manager_state": "new cpu", "memory_manager_state": "new memory"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in BEFORE.items():
        (tmp_path / name).write_bytes(text.encode(errors="surrogateescape"))
    return tmp_path


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_files_are_replaced_and_their_copies_are_exact(folder: Path) -> None:
    old = files(folder)
    copies = replace_with_backups(folder, BEFORE, AFTER)
    assert [copy.name for copy in copies] == ["cpu_manager_state.bak-1", "memory_manager_state.bak-1"]
    now = files(folder)
    assert {name: now[f"{name}.bak-1"] for name in BEFORE} == old
    assert {name: now[name].decode() for name in BEFORE} == AFTER
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in copies)


def test_a_backup_is_never_overwritten(folder: Path) -> None:
    (folder / "cpu_manager_state.bak-1").write_text("precious")
    (folder / "cpu_manager_state.bak-3").write_text("precious too")
    copies = replace_with_backups(folder, BEFORE, {"cpu_manager_state": "new"})
    assert [copy.name for copy in copies] == ["cpu_manager_state.bak-2"]
    assert (folder / "cpu_manager_state.bak-1").read_text() == "precious"
    assert (folder / "cpu_manager_state.bak-3").read_text() == "precious too"


def test_a_deleted_file_leaves_its_copy(folder: Path) -> None:
    replace_with_backups(folder, BEFORE, {"memory_manager_state": None})
    assert sorted(files(folder)) == ["cpu_manager_state", "memory_manager_state.bak-1"]


def test_a_file_that_changed_meanwhile_is_not_touched(folder: Path) -> None:
    (folder / "cpu_manager_state").write_text("the kubelet runs")
    old = files(folder)
    with pytest.raises(InputError, match="stop the kubelet first"):
        replace_with_backups(folder, BEFORE, AFTER)
    assert files(folder) == old


def failing_at(at: int, real: Callable[..., object]) -> Callable[..., object]:
    """Return a function that fails at its n-th call."""
    calls = iter(range(1000))

    def call(*arguments: object, **named: object) -> object:
        if next(calls) == at:
            raise OSError(28, "No space left on device")
        return real(*arguments, **named)

    return call


@pytest.mark.parametrize("after", [AFTER, {**AFTER, "memory_manager_state": None}], ids=["replaced", "deleted"])
@pytest.mark.parametrize("name", ["open", "fsync", "rename", "unlink"])
@pytest.mark.parametrize("at", range(6))
def test_when_the_disk_fails_everything_is_as_it_was(
    folder: Path, name: str, at: int, after: dict[str, str | None]
) -> None:
    old = files(folder)
    place = {"rename": Path, "unlink": Path}.get(name, os)
    attribute = {"rename": "replace"}.get(name, name)
    real = getattr(place, attribute)
    broken = failing_at(at, real)
    with mock.patch.object(place, attribute, broken):
        try:
            replace_with_backups(folder, BEFORE, after)
        except InputError:
            failed = True
        else:
            failed = False
    now = files(folder)
    if failed:
        assert {file: now[file] for file in old} == old
        assert not [file for file in now if file.startswith(".")]
    else:
        assert {file for file in BEFORE if now.get(file, b"").decode(errors="replace") != after[file]} <= {
            file for file, text in after.items() if text is None
        }


def test_an_endless_number_of_backups_is_refused(folder: Path) -> None:
    (folder / "cpu_manager_state.bak-1").touch()
    with (
        mock.patch("mooring.engine.checkpoint.store.MOST_BACKUPS", 2),
        pytest.raises(InputError, match="too many backups"),
    ):
        replace_with_backups(folder, BEFORE, AFTER)
