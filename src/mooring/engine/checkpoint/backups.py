"""Replacing state files so that what was there stays there: backups first, then everything or nothing.

A kubelet reads its state files by their names alone, so that backups beside them do not disturb it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from mooring.engine.checkpoint.store import read_state_file, system_words, write_together
from mooring.engine.core.errors import InputError

BACKUP = ".bak-"
MOST_BACKUPS = 10_000


def replace_with_backups(folder: Path, before: Mapping[str, str | None], after: Mapping[str, str | None]) -> list[Path]:
    """Replace or delete state files and keep a copy of each as ``NAME.bak-1``, or the next free number.

    All copies are on the disk before the first file is touched. When anything fails, every file is as it was and no new
    copy is left.

    Args:
        folder: the kubelet's root directory.
        before: name -> text on which the decision rests; None where there was no file.
        after: name -> text to be written; None where the file is to be deleted.

    Returns:
        The copies, in the order of ``after``.

    Raises:
        InputError: a file is no longer what it was, or something cannot be written.
    """
    _check_unchanged(folder, before)
    copies: list[Path] = []
    try:
        for name in after:
            text = before.get(name)
            if text is not None:
                copies.append(_backed_up(folder, name, text))
        _sync(folder)
        _check_unchanged(folder, before)
        _replace(folder, before, after)
    except BaseException:
        # A copy is superfluous only where the file itself is what it was.
        for copy in copies:
            name = copy.name.rpartition(BACKUP)[0]
            if _is_unchanged(folder, name, before[name]):
                _remove(copy)
        raise
    return copies


def _is_unchanged(folder: Path, name: str, text: str | None) -> bool:
    return read_state_file(folder / name) == text


def _check_unchanged(folder: Path, before: Mapping[str, str | None]) -> None:
    for name, text in before.items():
        if not _is_unchanged(folder, name, text):
            raise InputError(
                "was changed while it was read",
                source=str(folder / name),
                remedy="stop the kubelet first, then run this again",
            )


def _backed_up(folder: Path, name: str, text: str) -> Path:
    for number in range(1, MOST_BACKUPS):
        path = folder / f"{name}{BACKUP}{number}"
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            continue
        except (OSError, ValueError) as error:
            raise _unwritable(path, error) from None
        try:
            with open(descriptor, "wb") as file:  # noqa: PTH123 - the descriptor is what there is
                file.write(text.encode(errors="surrogateescape"))
                file.flush()
                os.fsync(file.fileno())
        except BaseException as error:
            _remove(path)
            if isinstance(error, OSError):
                raise _unwritable(path, error) from None
            raise
        return path
    raise InputError("has too many backups", source=str(folder / name), remedy="remove old ones")


def _replace(folder: Path, before: Mapping[str, str | None], after: Mapping[str, str | None]) -> None:
    done: dict[str, str] = {}
    try:
        for name, text in after.items():
            old = before.get(name)
            if text is not None:
                write_together(folder, {name: text})
            else:
                (folder / name).unlink(missing_ok=True)
            if old is not None:
                done[name] = old
        _sync(folder)
    except BaseException as error:
        if done:
            write_together(folder, done)
        if isinstance(error, OSError):
            raise _unwritable(folder, error) from None
        raise


def _remove(copy: Path) -> None:
    """Remove a copy that is not needed; where that fails, one too many is left."""
    with contextlib.suppress(OSError):
        copy.unlink(missing_ok=True)


def _sync(folder: Path) -> None:
    """Bring new and changed names to the disk."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise _unwritable(folder, error) from None
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise _unwritable(folder, error) from None
    finally:
        os.close(descriptor)


def _unwritable(path: Path, error: OSError | ValueError) -> InputError:
    remedy = "check the directory, its space and permissions; nothing was changed"
    return InputError(f"cannot be written: {system_words(error)}", source=str(path), remedy=remedy)
