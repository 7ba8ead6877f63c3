"""File trees: the running machine, an unpacked snapshot and an archive read the same.

A tree is rooted at ``/`` of *some* machine. Paths are written below that root without a leading slash
(``sys/devices/system/cpu/online``). Reading never raises for what a path holds or lacks: a missing file, a
directory in its place and a file that cannot be read all give None, because on real machines any file of
sysfs may be absent (hwloc and cAdvisor take it the same way). What is wrong with the *source* - no such
folder, a broken archive - is an InputError of :func:`mooring.inputs.machines.files.open_tree`.

Every tree remembers what it has read, so that the views made of one tree (hardware and cAdvisor) cost one
reading and agree with each other. A tree is therefore a snapshot: open a new one to look again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

MAX_FILE_BYTES: Final = 64 * 2**20
"""A file of the tree larger than this is an InputError; ``/proc/cpuinfo`` of 4096 CPUs has about 6 MiB."""
MAX_LINK_HOPS: Final = 40
"""Symbolic links followed on the way to one file; Linux gives up with ELOOP after as many."""


class Tree(Protocol):
    """Read-only files of one machine, rooted at its ``/``."""

    @property
    def name(self) -> str:
        """What the tree is called in messages: the path that the user gave."""

    def read(self, path: str) -> str | None:
        """Return the text of the file at ``path``, or None when it is missing, unreadable or no file.

        Relative links are followed inside the tree, never out of it. Bytes that are no UTF-8 are replaced.
        """

    def data(self, path: str) -> bytes | None:
        """Return the bytes of the file at ``path``; None as in :meth:`read`. They are not remembered."""

    def names(self, path: str) -> tuple[str, ...]:
        """Return the names in the directory at ``path`` in text order; empty without such a directory."""

    def exists(self, path: str) -> bool:
        """Tell whether there is a file or directory at ``path``; a link counts when its target does."""

    def is_dir(self, path: str) -> bool:
        """Tell whether there is a directory at ``path``; a link counts when its target is one."""

    def place(self, path: str) -> str | None:
        """Return the path of what is at ``path`` once all links are followed; None as in :meth:`read`."""


class Entry:
    """Kinds of entry that are no link, as a look-up for :func:`resolve` reports them."""

    FILE: Final = "/file"
    """Holds a slash, which no link target handed to :func:`resolve` starts with."""
    FOLDER: Final = "/folder"


def resolve(path: str, entry_at: Callable[[str], str | None]) -> str | None:
    """Return the path of what ``path`` names once every link on the way is followed, or None.

    ``look`` gets a path whose parents are no links and answers with :attr:`Entry.FILE`, :attr:`Entry.FOLDER`,
    the text of a relative link, or None for nothing. Paths that leave the tree (``..`` above the root), go
    through a file, or follow more than ``MAX_LINK_HOPS`` links name nothing.

    >>> entries = {"a": Entry.FOLDER, "a/b": "../c", "c": Entry.FOLDER, "c/d": Entry.FILE}
    >>> resolve("a/b/d", entries.get)
    'c/d'
    >>> resolve("a/../../c", entries.get) is None
    True
    """
    current, hops = "", 0
    pending = path.split("/")[::-1]
    while pending:
        part = pending.pop()
        if part in ("", "."):
            continue
        if part == "..":
            if not current:
                return None
            current = current.rpartition("/")[0]
            continue
        candidate = f"{current}/{part}" if current else part
        found = entry_at(candidate)
        if found == Entry.FOLDER or (found == Entry.FILE and not pending):
            current = candidate
            continue
        if found is None or found.startswith("/") or hops == MAX_LINK_HOPS:
            return None
        hops += 1
        pending.extend(found.split("/")[::-1])
    return current
