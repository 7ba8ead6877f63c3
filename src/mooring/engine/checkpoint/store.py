"""State files on disk: read whole or not at all, and replaced whole or not at all.

After a crash at any moment the old file or the new one is there, whole. What a repair replaces stays there too: backups
first, then everything or nothing. A kubelet reads its state files by their names alone, so that backups beside them do
not disturb it.

Source: kubelet v1.37.1, checkpointmanager and pkg/kubelet/util/store (file store); spec: state-files.md section 1.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Mapping
from itertools import count
from pathlib import Path

from mooring.engine.core.errors import InputError
from mooring.engine.node.settings import CPU_FILE, MEMORY_FILE
from mooring.lazy import dataclass

_numbers = count()
"""Makes the names of this process's temporary files differ."""
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
SIZE_LIMIT = 8 * 1024 * 1024
"""Largest file that is read, in bytes. The state of a node with 1000 pods has less than a tenth of it."""


def write_atomically(path: Path, text: str) -> None:
    """Replace a file by ``text``, and wait until the disk has the new name too.

    The text goes to a temporary file beside the target (its name begins with a dot, as in the kubelet), is
    brought to the disk, and takes the target's place by a rename, which is brought to the disk too. Readable
    for the owner only, as in the kubelet.

    Raises:
        InputError: when that fails. The target is whole even then, and no temporary file is left.
    """
    write_together(path.parent, {path.name: text})
    try:
        descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise _unwritable(path, error) from None


def write_together(folder: Path, texts: Mapping[str, str]) -> None:
    """Replace several files of one folder, each atomically.

    All texts are on the disk before the first file is replaced. The renames themselves are not waited for, as in the
    kubelet: a node that loses the last ones with its power has lost its containers too, and finds whole files.

    Raises:
        InputError: when that fails. Every target is whole even then, and no temporary file is left.
    """
    current, place = "", str(folder)
    waiting: dict[str, tuple[str, int]] = {}
    try:
        try:
            for current, text in texts.items():
                waiting[current] = _, descriptor = _opened(place, current)
                data = text.encode(errors="surrogateescape")
                written = os.write(descriptor, data)
                while written < len(data):
                    written += os.write(descriptor, data[written:])
            for _, descriptor in [*waiting.values()][1:]:
                _begin_writing_back(descriptor)
            for current in texts:
                os.fsync(waiting[current][1])
            for current in texts:
                temporary, descriptor = waiting[current]
                os.replace(temporary, f"{place}/{current}")  # noqa: PTH105 - as in _opened
                del waiting[current]
                os.close(descriptor)
        except BaseException:
            for temporary, descriptor in waiting.values():
                os.close(descriptor)
                Path(temporary).unlink(missing_ok=True)
            raise
    except (OSError, ValueError) as error:
        raise _unwritable(folder / current, error) from None


def _opened(folder: str, name: str) -> tuple[str, int]:
    """Make a temporary file beside ``name`` under a unique name, and return its path and descriptor."""
    while True:
        # Texts, not Path objects: these cost as much as the system calls, at every admission.
        path = f"{folder}/.{name}.{os.getpid()}-{next(_numbers)}"
        try:
            return path, os.open(path, _NEW_FILE, 0o600)
        except FileExistsError:
            # The name is taken by a process of another pid namespace, or by one that was killed.
            continue


def _begin_writing_back(descriptor: int) -> None:
    """Let the system write a file in the background.

    A journaling file system decides only then where the data will lie. When it knows that of all files before the first
    is waited for, one commit of its journal serves them all, and waiting for the others costs little: two state files
    together then take a third less time. This is advice and no promise: each file is waited for all the same.
    """
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    except (OSError, AttributeError):  # the system has no such advice
        return


def _unwritable(path: Path, error: OSError | ValueError, more: str = "") -> InputError:
    remedy = f"check the directory, its space and permissions{more}"
    return InputError(f"cannot be written: {system_words(error)}", source=str(path), remedy=remedy)


def system_words(error: OSError | ValueError) -> str:
    """Return the system's words for an error. A ValueError is about a name that no file can have."""
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


@dataclass(frozen=True, slots=True)
class StateFolder:
    """A kubelet's root directory, seen as the place of its state files."""

    root: Path

    def read_cpu(self) -> str | None:
        """Return the CPU manager's state file, or None when the directory has none.

        Raises:
            InputError: when there is no such directory, and as :func:`read_state_file`.
        """
        return self._read(CPU_FILE)

    def read_memory(self) -> str | None:
        """Return the memory manager's state file, or None when the directory has none.

        Raises:
            InputError: when there is no such directory, and as :func:`read_state_file`.
        """
        return self._read(MEMORY_FILE)

    def write_both(self, cpu: str, memory: str) -> None:
        """Replace both files. Raises InputError as :func:`write_together`."""
        write_together(self.root, {CPU_FILE: cpu, MEMORY_FILE: memory})

    def _read(self, name: str) -> str | None:
        text = read_state_file(self.root / name)
        if text is None and not self.root.is_dir():
            # A kubelet would make the directory; here it is rather a slip of the pen.
            remedy = "name the kubelet's root directory, usually /var/lib/kubelet"
            raise InputError("no such directory", source=str(self.root), remedy=remedy)
        return text


def read_state_file(path: Path) -> str | None:
    """Return the text of a state file, or None when there is no such file.

    Bytes that are not UTF-8 are kept as lone surrogates (``surrogateescape``), which the loaders understand.

    Raises:
        InputError: when the file is there but is no ordinary file, cannot be read or is beyond
            :data:`SIZE_LIMIT`.
    """
    try:
        # Without waiting: a named pipe would else keep the reader until a writer opens it.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise InputError(
                    "not an ordinary file", source=str(path), remedy="name a state file or a kubelet root directory"
                )
            data = file.read(SIZE_LIMIT + 1)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise InputError(
            f"cannot be read: {system_words(error)}", source=str(path), remedy="check the path and its permissions"
        ) from None
    if len(data) > SIZE_LIMIT:
        raise InputError(
            f"larger than {SIZE_LIMIT} bytes", source=str(path), remedy="this is not a kubelet's state file"
        )
    return data.decode(errors="surrogateescape")


def make_folder(path: Path) -> Path:
    """Make a directory for state files where there is none, and return it.

    Raises:
        InputError: it cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise InputError(
            f"the directory cannot be made ({system_words(error)})",
            source=str(path),
            remedy="name a directory that can be written",
        ) from None
    return path


BACKUP = ".bak-"
MOST_BACKUPS = 10_000
_NOTHING_CHANGED = "; nothing was changed"


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
            raise _unwritable(path, error, _NOTHING_CHANGED) from None
        try:
            with open(descriptor, "wb") as file:  # noqa: PTH123 - the descriptor is what there is
                file.write(text.encode(errors="surrogateescape"))
                file.flush()
                os.fsync(file.fileno())
        except BaseException as error:
            _remove(path)
            if isinstance(error, OSError):
                raise _unwritable(path, error, _NOTHING_CHANGED) from None
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
            raise _unwritable(folder, error, _NOTHING_CHANGED) from None
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
        raise _unwritable(folder, error, _NOTHING_CHANGED) from None
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise _unwritable(folder, error, _NOTHING_CHANGED) from None
    finally:
        os.close(descriptor)
