"""The files that tell containers their CPUs: a folder for each, mounted into it, where it cannot be written.

A file is replaced by a rename, so that a reader finds the old text or the new one, whole, and a watch on the folder
sees ``IN_MOVED_TO``. The texts have no line end, like the files of a downward API volume.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from mooring.agent.reactor.effects import DropAssigned, SweepAssigned, WriteAssigned
from mooring.agent.reactor.values import Assigned
from mooring.engine.checkpoint.store import system_words
from mooring.engine.core.bits import list_text

CPUSET_FILE = "assigned.cpuset"
MEMSET_FILE = "assigned.memset"
SHARED_FILE = "shared.cpuset"
"""The pool in which a mixed container may run besides; other containers do not have this file."""
_FOLDER_MODE = 0o755
"""All users may read, only the owner may write: a container sees it through a read-only mount."""
_FILE_MODE = 0o444


class AssignedFiles:
    """Folders of containers in one folder of the agent's own; calls come one after another."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def do(self, effect: WriteAssigned | DropAssigned | SweepAssigned) -> str:
        """Do what an effect says; return the problem in words, empty when there is none."""
        try:
            match effect:
                case WriteAssigned():
                    self._write(effect)
                case DropAssigned():
                    _remove(self.folder / effect.container_id)
                case SweepAssigned():
                    self._sweep(effect)
        except OSError as error:
            return f"{self.folder}: {system_words(error)}"
        return ""

    def _write(self, effect: WriteAssigned) -> None:
        mine = self.folder / effect.container_id
        if effect.makes:
            _make(self.folder.parent)
            _make(self.folder)
            _make(mine)
        elif not mine.is_dir():
            return
        _write_assigned(mine, effect.assigned, again=effect.again)

    def _sweep(self, effect: SweepAssigned) -> None:
        for mine in self._folders():
            if mine.name in effect.silent:
                _write_assigned(mine, Assigned())
            elif mine.name not in effect.told:
                _remove(mine)

    def _folders(self) -> Iterator[Path]:
        with suppress(FileNotFoundError):
            yield from [one for one in self.folder.iterdir() if one.is_dir() and not one.is_symlink()]


def _write_assigned(mine: Path, assigned: Assigned, *, again: bool = False) -> None:
    texts = {CPUSET_FILE: str(assigned.cpus), MEMSET_FILE: list_text(assigned.mems)}
    if assigned.shared is not None or (mine / SHARED_FILE).exists():
        # Who is not mixed any more may have it open in a watch.
        texts[SHARED_FILE] = str(assigned.shared or "")
    for name, text in texts.items():
        if again or _text(mine / name) != text:
            _replace(mine, name, text)


def _text(path: Path) -> str | None:
    try:
        return path.read_text("ascii")
    except (OSError, ValueError):
        return None


def _replace(mine: Path, name: str, text: str) -> None:
    new = mine / f".{name}"
    new.unlink(missing_ok=True)
    # Nothing is brought to the disk: the folder is one of a file system that a reboot empties.
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, _FILE_MODE)
    try:
        os.fchmod(descriptor, _FILE_MODE)
        os.write(descriptor, text.encode("ascii"))
    finally:
        os.close(descriptor)
    new.replace(mine / name)


def _make(folder: Path) -> None:
    """Make a folder that all users may read, whatever the process's mask."""
    with suppress(FileExistsError):
        folder.mkdir(_FOLDER_MODE)
        folder.chmod(_FOLDER_MODE)


def _remove(mine: Path) -> None:
    """Remove a container's folder; files of other programs in it stay."""
    with suppress(FileNotFoundError):
        names = (CPUSET_FILE, MEMSET_FILE, SHARED_FILE)
        for one in (*(mine / name for name in names), *(mine / f".{name}" for name in names)):
            one.unlink(missing_ok=True)
        mine.rmdir()
