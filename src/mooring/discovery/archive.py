"""Snapshots in a tar archive, read into memory once.

An archive comes from somebody else: sizes are bounded, and nothing is ever unpacked onto the disk. hwloc's own snapshots
(``hwloc-gather-topology``) hold one top-level folder, other tools write ``./sys`` or ``sys``; all three read the same.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import tarfile
import zlib
from collections.abc import Iterable, Mapping
from typing import IO, Final, Protocol, cast

from mooring.core.errors import InputError
from mooring.discovery.tree import Entry, resolve

MAX_ARCHIVE_BYTES: Final = 64 * 2**20
"""Size of the archive file; a snapshot of 256 CPUs has about 1 MiB."""
MAX_UNPACKED_BYTES: Final = 512 * 2**20
"""Size of the tar stream; a tree of 4096 CPUs with about 90 files each (1 KiB of stream per file) needs about 380 MiB."""
MAX_MEMBERS: Final = 1_000_000
"""Files, folders and links of one archive."""
MAX_PATH_CHARS: Final = 4096
"""Longest member name and link target; the kernel's PATH_MAX."""

_REMEDY: Final = "make the archive again, for instance with hwloc-gather-topology or tar -czf of sys and proc"
_TOP_FOLDERS: Final = frozenset({"sys", "proc"})
"""A top level that holds one of these is the root of a machine."""


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class ArchiveTree:
    """Files in memory. Also what tests build small trees from.

    >>> tree = ArchiveTree("example", {"sys/a": b"1"}, {"sys/b": "a"})
    >>> tree.read("sys/b"), tree.names("sys"), tree.is_dir("sys")
    ('1', ('a', 'b'), True)
    """

    def __init__(
        self, name: str, files: Mapping[str, bytes], links: Mapping[str, str] | None = None, folders: Iterable[str] = ()
    ) -> None:
        """Take files (path to content), links (path to relative target) and folders that may be empty."""
        self.name = name
        self._files = files
        self._texts: dict[str, str] = {}
        self._entries: dict[str, str] = dict.fromkeys(files, Entry.FILE)
        # An absolute or empty target leads out of the tree: the name stays in listings, what it points at does not exist.
        self._links = dict(links or {})
        self._children: dict[str, set[str]] = {"": set()}
        for path in (*files, *self._links):
            self._enter(path)
        for path in folders:
            self._enter(path)
            self._children.setdefault(path, set())

    def _enter(self, path: str) -> None:
        while True:
            parent, _, base = path.rpartition("/")
            known = self._children.get(parent)
            if known is None:
                known = self._children[parent] = set()
            elif base in known:
                return
            known.add(base)
            if not parent:
                return
            path = parent

    def read(self, path: str) -> str | None:
        """See :meth:`mooring.discovery.tree.Tree.read`."""
        place = path if path in self._files else resolve(path, self._look)
        if place is None or place not in self._files:
            return None
        text = self._texts.get(place)
        if text is None:
            text = self._texts[place] = self._files[place].decode("utf-8", "replace")
        return text

    def names(self, path: str) -> tuple[str, ...]:
        """See :meth:`mooring.discovery.tree.Tree.names`."""
        place = resolve(path, self._look)
        return () if place is None else tuple(sorted(self._children.get(place, ())))

    def exists(self, path: str) -> bool:
        """See :meth:`mooring.discovery.tree.Tree.exists`."""
        return resolve(path, self._look) is not None

    def is_dir(self, path: str) -> bool:
        """See :meth:`mooring.discovery.tree.Tree.is_dir`."""
        place = resolve(path, self._look)
        return place is not None and place in self._children

    def _look(self, path: str) -> str | None:
        # A folder wins over a file or link of the same name: archives can be made to hold both.
        if path in self._children:
            return Entry.FOLDER
        return self._entries.get(path) or (self._links.get(path) or None)


def read_archive(path: str) -> ArchiveTree:
    """Read a tar archive, compressed or not (told by content, not by name), into memory.

    Raises:
        InputError: the file is larger than the limits, damaged, or no tar archive.
    """
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - the caller's path is text already
            if os.fstat(file.fileno()).st_size > MAX_ARCHIVE_BYTES:
                raise InputError(f"archive is larger than {MAX_ARCHIVE_BYTES} bytes", source=path, remedy=_REMEDY)
            return _read_members(path, _Bounded(_decompressed(file), path))
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise InputError(f"is no readable tar archive: {error}", source=path, remedy=_REMEDY) from None
    except OSError as error:  # gzip.BadGzipFile and bz2's complaints are OSErrors, too
        raise InputError(f"is no readable tar archive: {error.strerror or error}", source=path, remedy=_REMEDY) from None
    # What tarfile lets through on hostile headers: numbers, encodings, sizes.
    except (ValueError, OverflowError, MemoryError, RecursionError, IndexError, KeyError, AttributeError, TypeError) as error:
        raise InputError(f"is no readable tar archive: {type(error).__name__}", source=path, remedy=_REMEDY) from None


class _Bounded:
    """A stream that gives up once more than ``MAX_UNPACKED_BYTES`` came out of it."""

    def __init__(self, stream: _Readable, path: str) -> None:
        self._stream = stream
        self._path = path
        self._left = MAX_UNPACKED_BYTES

    def read(self, size: int, /) -> bytes:
        data = self._stream.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise InputError(f"archive unpacks to more than {MAX_UNPACKED_BYTES} bytes", source=self._path, remedy=_REMEDY)
        return data


def _decompressed(file: io.BufferedReader) -> _Readable:
    magic = file.peek(6)
    if magic.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=file)
    if magic.startswith(b"BZh"):
        return bz2.BZ2File(file)
    if magic.startswith((b"\xfd7zXZ\0", b"]\0\0")):
        return lzma.LZMAFile(file)
    return file


def _read_members(path: str, stream: _Bounded) -> ArchiveTree:
    files: dict[str, bytes] = {}
    links: dict[str, str] = {}
    folders: list[str] = []
    # Streaming mode only ever asks its source for bytes, in order.
    with tarfile.open(fileobj=cast("IO[bytes]", stream), mode="r|", errorlevel=1) as archive:
        for count, member in enumerate(archive):
            if count >= MAX_MEMBERS:
                raise InputError(f"archive has more than {MAX_MEMBERS} members", source=path, remedy=_REMEDY)
            archive.members = []  # tarfile keeps every header otherwise
            name = _clean(member.name)
            if name is None:
                continue
            if member.isdir():
                folders.append(name)
            elif member.issym():
                links[name] = member.linkname if len(member.linkname) <= MAX_PATH_CHARS else ""
            elif member.islnk():
                files[name] = files.get(_clean(member.linkname) or "", b"")
            elif member.isreg():
                if member.size > MAX_UNPACKED_BYTES:
                    raise InputError(f"member {name} is larger than {MAX_UNPACKED_BYTES} bytes", source=path, remedy=_REMEDY)
                content = archive.extractfile(member)
                files[name] = content.read() if content is not None else b""
    return ArchiveTree(path, *_machine_root(files, links, folders))


def _clean(name: str) -> str | None:
    """Return a member's path below the root; None for names that are absolute, climb, or are too long: they are ignored."""
    if name.startswith("/") or len(name) > MAX_PATH_CHARS:
        return None
    parts = [part for part in name.split("/") if part not in ("", ".")]
    return None if not parts or ".." in parts else "/".join(parts)


def _machine_root(
    files: dict[str, bytes], links: dict[str, str], folders: list[str]
) -> tuple[dict[str, bytes], dict[str, str], list[str]]:
    """Strip the single top-level folder around a machine's root, if there is one."""
    paths = [*files, *links, *folders]
    tops = {path.partition("/")[0] for path in paths}
    if len(tops) != 1 or tops & _TOP_FOLDERS:
        return files, links, folders
    skip = len(tops.pop()) + 1
    if not any(path[skip:].partition("/")[0] in _TOP_FOLDERS for path in paths):
        return files, links, folders
    return (
        {path[skip:]: data for path, data in files.items() if path[skip:]},
        {path[skip:]: target for path, target in links.items() if path[skip:]},
        [path[skip:] for path in folders if path[skip:]],
    )
