"""File trees: the running machine, an unpacked snapshot and an archive read the same.

A tree is rooted at ``/`` of *some* machine. Paths are written below that root without a leading slash
(``sys/devices/system/cpu/online``). Reading never raises for what a path holds or lacks: a missing file, a
directory in its place and a file that cannot be read all give None, because on real machines any file of
sysfs may be absent (hwloc and cAdvisor take it the same way). What is wrong with the *source* - no such
folder, a broken archive - is an InputError of :func:`mooring.inputs.machines.tree.open_tree`.

Every tree remembers what it has read, so that the views made of one tree (hardware and cAdvisor) cost one
reading and agree with each other. A tree is therefore a snapshot: open a new one to look again.

Trees on a disk are the running machine, or a folder that holds an unpacked snapshot. The running kubelet of a computer
is found in its tree, by its name in ``/proc``.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from typing import Final, Protocol

from mooring.engine.core.errors import InputError
from mooring.lazy import dataclass

CPUS: Final = "sys/devices/system/cpu"
"""Folder of all CPUs."""
NODES: Final = "sys/devices/system/node"
"""Folder of all NUMA nodes; missing on machines whose kernel knows no NUMA."""
PCI_DEVICES: Final = "sys/bus/pci/devices"
MAX_FILE_BYTES: Final = 64 * 2**20
"""A file of the tree larger than this is an InputError; ``/proc/cpuinfo`` of 4096 CPUs has about 6 MiB."""
MAX_LINK_HOPS: Final = 40
"""Symbolic links followed on the way to one file; Linux gives up with ELOOP after as many."""


class Tree(Protocol):
    """Read-only files of one machine, rooted at its ``/``."""

    @property
    def name(self) -> str:
        """What the tree is called in messages: the path that the user gave."""

    @property
    def is_live(self) -> bool:
        """Whether it is the running machine."""

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


_OPEN_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
"""Opening must not wait: a folder handed to us may hold a named pipe."""
_CHUNK_BYTES: Final = 4096
"""Most files of sysfs fit into one page, which is what the kernel hands out at once."""
_REMEDY: Final = "name a folder with sys/ in it or a tar archive of one"
_UNREAD: Final = "\0unread"
"""Marks, in the caches, what was not read yet; None there means that it is missing."""


class FolderTree:
    """A folder that holds an unpacked snapshot; links that lead out of the folder are never followed.

    Where the folder is the root directory of a computer, such as ``/host`` in a debugging pod, absolute links are meant
    below it, as they are after chroot. Of the running machine nothing lies outside, so the kernel follows links to
    files.
    """

    def __init__(self, root: str, *, is_root_directory: bool = False) -> None:
        self.name = root
        self.is_live = False
        self._is_root_directory = is_root_directory
        self._prefix = root.rstrip("/") + "/"
        self._texts: dict[str, str | None] = {}
        self._listings: dict[str, tuple[str, ...]] = {}
        self._entries: dict[str, str | None] = {"": Entry.FOLDER}
        self._folders: dict[str, str | None] = {"": ""}

    def read(self, path: str) -> str | None:
        """See :meth:`mooring.inputs.machines.tree.Tree.read`."""
        text = self._texts.get(path, _UNREAD)
        if text is _UNREAD:
            data = self.data(path)
            text = self._texts[path] = None if data is None else data.decode("utf-8", "replace")
        return text

    def names(self, path: str) -> tuple[str, ...]:
        """See :meth:`mooring.inputs.machines.tree.Tree.names`."""
        known = self._listings.get(path)
        if known is None:
            folder = path if self.is_live else self._folder(path)
            known = ()
            with suppress(OSError, ValueError):
                if folder is not None:
                    known = tuple(sorted(os.listdir(self._prefix + folder)))  # noqa: PTH208 - for thousands of folders
            self._listings[path] = known
        return known

    def exists(self, path: str) -> bool:
        """See :meth:`mooring.inputs.machines.tree.Tree.exists`."""
        return resolve(path, self._entry_at) is not None

    def is_dir(self, path: str) -> bool:
        """See :meth:`mooring.inputs.machines.tree.Tree.is_dir`."""
        return self._folder(path) is not None

    def place(self, path: str) -> str | None:
        """See :meth:`mooring.inputs.machines.tree.Tree.place`."""
        return resolve(path, self._entry_at)

    def data(self, path: str) -> bytes | None:
        """See :meth:`mooring.inputs.machines.tree.Tree.data`."""
        parent, _, base = path.rpartition("/")
        folder = parent if self.is_live else self._folder(parent)
        if folder is None or base in ("", ".", ".."):
            return None
        # Most files are no links: the kernel tells at once, and only the rare link is resolved by hand.
        try:
            return _read_file(f"{self._prefix}{folder}/{base}", _OPEN_FLAGS | (0 if self.is_live else os.O_NOFOLLOW))
        except OSError as error:
            target = resolve(path, self._entry_at) if error.errno == errno.ELOOP else None
        except ValueError:  # a NUL inside the path
            target = None
        with suppress(OSError):
            return None if target is None else _read_file(self._prefix + target, _OPEN_FLAGS | os.O_NOFOLLOW)
        return None

    def _folder(self, path: str) -> str | None:
        """Return the path without links of the directory at ``path``."""
        folder = self._folders.get(path, _UNREAD)
        if folder is _UNREAD:
            folder = resolve(path, self._entry_at)
            if folder is not None and self._entry_at(folder) != Entry.FOLDER:
                folder = None
            self._folders[path] = folder
        return folder

    def _entry_at(self, path: str) -> str | None:
        entry = self._entries.get(path, _UNREAD)
        if entry is _UNREAD:
            depth = path.count("/") if self._is_root_directory else -1
            entry = self._entries[path] = _entry(self._prefix + path, depth)
        return entry


def live_tree() -> FolderTree:
    """Return the running machine.

    Its sysfs can be huge and its /proc changes while we look: only what is requested is listed.
    """
    tree = FolderTree("/", is_root_directory=True)
    tree.is_live = True
    return tree


def open_tree(source: str | os.PathLike[str]) -> Tree:
    """Open ``/`` (the running machine), a folder that holds ``sys``, or a (compressed) tar archive of one.

    Raises:
        InputError: there is no such folder or file, it cannot be read, or it is no archive.
    """
    path = os.fspath(source)
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - one call tells every case apart
    except (OSError, ValueError) as error:
        problem = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(f"cannot be opened: {problem}", source=path, remedy=_REMEDY) from None
    if stat.S_ISDIR(mode):
        return live_tree() if os.path.realpath(path) == "/" else FolderTree(path)
    if not stat.S_ISREG(mode):
        raise InputError("is neither a folder nor a file", source=path, remedy=_REMEDY)
    from mooring.inputs.machines.archive import read_archive  # noqa: PLC0415 - tarfile and codecs only for archives

    return read_archive(path)


def _read_file(path: str, flags: int) -> bytes | None:
    """Return the bytes of a regular file; None for a directory, pipe, socket or device.

    Raises:
        OSError: the file cannot be opened or read.
        InputError: the file is larger than ``MAX_FILE_BYTES``.
    """
    descriptor = os.open(path, flags)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return None
        data = os.read(descriptor, _CHUNK_BYTES)
        # A file on a disk tells its length; files of sysfs claim a page and files of /proc nothing, whatever
        # they hold, and end with an empty read.
        while data and len(data) != status.st_size:
            chunk = os.read(descriptor, max(len(data), _CHUNK_BYTES))
            if not chunk:
                break
            data += chunk
            if len(data) > MAX_FILE_BYTES:
                remedy = "no file of sysfs is: check the folder"
                raise InputError(f"larger than {MAX_FILE_BYTES} bytes", source=path, remedy=remedy)
    finally:
        os.close(descriptor)
    return data


def _entry(path: str, depth: int) -> str | None:
    """Look at one path, not following a link.

    Args:
        path: on the disk.
        depth: how many folders of the tree are above it, where absolute links are meant below the root of the tree; -1
            where they lead out of the tree and count as nothing.
    """
    try:
        mode = os.lstat(path).st_mode
        if stat.S_ISDIR(mode):
            return Entry.FOLDER
        if not stat.S_ISLNK(mode):
            return Entry.FILE
        target = os.readlink(path)  # noqa: PTH115 - called for every link
    except (OSError, ValueError):
        return None
    if target.startswith("/"):
        return None if depth < 0 else "../" * depth + target.lstrip("/")
    return target or None


NAME = "kubelet"
"""What the kernel calls the process. RKE2, k0s and all that run the kubelet as a program of its own are found."""

EMBEDDING = frozenset({"k3s-server", "k3s-agent", "kubelite"})
"""Processes that have the kubelet in them: k3s, which blanks its command line for the secrets in it, and MicroK8s,
which has the arguments in a file. The arguments of their kubelet are unknown."""


@dataclass(frozen=True, slots=True)
class KubeletProcess:
    """A kubelet that runs."""

    number: int
    """Process id."""
    arguments: tuple[str, ...]
    """Without its own name."""


def kubelet_here(tree: Tree) -> tuple[KubeletProcess | None, str]:
    """Look through all processes, once, for the kubelet of this computer.

    It is a program of its own, of several the one with the lowest process id; where there is none, the name of a
    running program that contains the kubelet is returned, if there is one.

    Those of a cluster inside containers, which have a process id of their own there, are no kubelets of this computer.
    """
    embedding = ""
    for number, name in processes(tree, EMBEDDING | {NAME}):
        if name == NAME:
            arguments = _arguments(tree, number)
            if arguments is not None and not _is_nested(tree, number):
                return KubeletProcess(number, arguments), ""
        elif not embedding and not _is_nested(tree, number):
            embedding = name
    return None, embedding


def still_runs(tree: Tree, process: KubeletProcess) -> bool:
    """Tell whether it is there and the same, without a look at all the others."""
    return _name(tree, process.number) == NAME and _arguments(tree, process.number) == process.arguments


def kubelet_arguments(tree: Tree) -> tuple[str, ...] | None:
    """Return the arguments of the running kubelet, without its own name; None when there is none."""
    found, _ = kubelet_here(tree)
    return None if found is None else found.arguments


def processes(tree: Tree, names: Collection[str]) -> Iterator[tuple[int, str]]:
    """Yield process ids and names of the processes with these names, the lowest first."""
    for number in sorted(int(name) for name in tree.names("proc") if name.isascii() and name.isdigit()):
        if (name := _name(tree, number)) in names:
            yield number, name


def _name(tree: Tree, number: int) -> str:
    return (tree.read(f"proc/{number}/comm") or "").strip()


def _arguments(tree: Tree, number: int) -> tuple[str, ...] | None:
    """Return the arguments; None for a process that has ended and is still listed."""
    line = tree.read(f"proc/{number}/cmdline") or ""
    return tuple(line.removesuffix("\0").split("\0")[1:]) if line else None


def _is_nested(tree: Tree, number: int) -> bool:
    """Tell whether the process is in a process namespace below this one (Linux, proc(5): NSpid)."""
    for line in (tree.read(f"proc/{number}/status") or "").splitlines():
        if line.startswith("NSpid:"):
            return len(line.split()) > 2
    return False
