"""A repaired file is written with a copy of what was there, or nothing is changed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from mooring.engine.checkpoint.store import replace_with_backups
from mooring.engine.core.errors import InputError

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


def failing(at: int, real: Callable[..., object]) -> Callable[..., object]:
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
    broken = failing(at, real)
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
