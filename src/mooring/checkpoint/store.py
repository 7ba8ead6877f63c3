"""State files on disk: read whole or not at all, replaced whole or not at all (:mod:`mooring.checkpoint.replacement`).

Source: kubelet v1.37.1, checkpointmanager and pkg/kubelet/util/store (file store); spec: state-files.md section 1.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from mooring.checkpoint.replacement import system_words, write_together
from mooring.core.errors import InputError
from mooring.node.start import CPU_FILE, MEMORY_FILE

SIZE_LIMIT = 8 * 1024 * 1024
"""Largest file that is read, in bytes. The state of a node with 1000 pods has less than a tenth of it."""


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
        with open(path, "rb", opener=_open_at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise InputError(
                    "not an ordinary file",
                    source=str(path),
                    remedy="name a state file or a kubelet root directory",
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
            f"larger than {SIZE_LIMIT} bytes", source=str(path), remedy="this is no state file of a kubelet"
        )
    return data.decode(errors="surrogateescape")


def _open_at_once(path: str, flags: int) -> int:
    """Open without waiting: a named pipe would else keep the reader until somebody writes."""
    return os.open(path, flags | os.O_NONBLOCK)


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
