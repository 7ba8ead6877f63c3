"""Tar archives of files of a machine: snapshots read into memory once, and archives written.

An archive is foreign input: sizes are bounded, damage is an error, and nothing is unpacked onto the disk.
hwloc's own snapshots (``hwloc-gather-topology``) hold one top-level folder, other tools write ``./sys`` or ``sys``; all
three read the same. An archive that is written has the same bytes for the same files, on every day and for every user.
"""

from __future__ import annotations

import io
import os
import zlib
from collections.abc import Iterable, Mapping
from typing import IO, Any, Final, Protocol, cast

from mooring.engine.core.errors import InputError
from mooring.inputs.machines.tree import MAX_FILE_BYTES, Entry, resolve
from mooring.lazy import lazily

with lazily():
    import bz2
    import gzip
    import lzma
    import tarfile

MAX_ARCHIVE_BYTES: Final = 64 * 2**20
"""Size of the archive file; a snapshot of 256 CPUs has about 1 MiB."""
MAX_UNPACKED_BYTES: Final = 512 * 2**20
"""Size of the tar stream: 4096 CPUs with 90 files each, at 1 KiB of stream per file, need 380 MiB."""
MAX_MEMBERS: Final = 1_000_000
"""Files, folders and links of one archive."""
MAX_PATH_CHARS: Final = 4096
"""Longest member name and link target; the kernel's PATH_MAX."""

_REMEDY: Final = "make the archive again: copy the files of sys and proc to a folder first, then pack that folder"
_TOP_FOLDERS: Final = frozenset({"sys", "proc"})
"""A top level that holds one of these is the root of a machine."""
_BLOCK: Final = 512
"""Block size of tar; a block of zeros ends the archive."""


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
        self.is_live = False
        self._files = files
        self._texts: dict[str, str] = {}
        # An absolute or empty target leads out of the tree: listings show the name, nothing is behind it.
        self._links = links or {}
        self._children: dict[str, set[str]] = {"": set()}
        for path in (*files, *self._links):
            self._enter(path)
        for path in folders:
            self._enter(path)
            self._children.setdefault(path, set())

    def read(self, path: str) -> str | None:
        """See :meth:`mooring.inputs.machines.tree.Tree.read`."""
        text = self._texts.get(path)
        if text is None:
            data = self.data(path)
            if data is None:
                return None
            text = self._texts[path] = data.decode("utf-8", "replace")
        return text

    def data(self, path: str) -> bytes | None:
        """See :meth:`mooring.inputs.machines.tree.Tree.data`."""
        place = self.place(path)
        return None if place is None or place in self._children else self._files[place]

    def names(self, path: str) -> tuple[str, ...]:
        """See :meth:`mooring.inputs.machines.tree.Tree.names`."""
        place = self.place(path)
        return () if place is None else tuple(sorted(self._children.get(place, ())))

    def exists(self, path: str) -> bool:
        """See :meth:`mooring.inputs.machines.tree.Tree.exists`."""
        return self.place(path) is not None

    def is_dir(self, path: str) -> bool:
        """See :meth:`mooring.inputs.machines.tree.Tree.is_dir`."""
        return self.place(path) in self._children

    def place(self, path: str) -> str | None:
        """See :meth:`mooring.inputs.machines.tree.Tree.place`."""
        # What the archive holds under this very path is there: no parent of it is a link.
        return path if path in self._files or path in self._children else resolve(path, self._entry_at)

    def _enter(self, path: str) -> None:
        """Make every parent of ``path`` a folder that lists it."""
        while path:
            parent, _, base = path.rpartition("/")
            siblings = self._children.get(parent)
            if siblings is None:
                siblings = self._children[parent] = set()
            elif base in siblings:
                return
            siblings.add(base)
            path = parent

    def _entry_at(self, path: str) -> str | None:
        # Archives can be made to hold a file, a link and a folder of one name: folders win, then files.
        if path in self._children:
            return Entry.FOLDER
        return Entry.FILE if path in self._files else self._links.get(path) or None


def read_archive(path: str, data: bytes | None = None) -> ArchiveTree:
    """Read a tar archive, compressed or not (told by content, not by name), into memory.

    Args:
        path: of the file.
        data: the archive where it is no file; its path is a name for messages.

    Raises:
        InputError: the file is larger than the limits, damaged, or no tar archive.
    """
    try:
        with open(path, "rb") if data is None else io.BufferedReader(io.BytesIO(data)) as file:  # noqa: PTH123 - the path is text already
            if (os.fstat(file.fileno()).st_size if data is None else len(data)) > MAX_ARCHIVE_BYTES:
                raise _problem(path, f"larger than {MAX_ARCHIVE_BYTES} bytes")
            return _read_members(path, _Bounded(_decompressed(file), path))
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, OSError) as error:
        # gzip and bz2 complain with OSErrors, too.
        raise _problem(path, f"no readable tar archive ({error})") from None
    except (ValueError, ArithmeticError, LookupError, AttributeError, TypeError, MemoryError, RecursionError):
        # What tarfile lets through on hostile headers.
        raise _problem(path, "no readable tar archive (malformed header)") from None


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class _Bounded:
    """A stream that gives up beyond ``MAX_UNPACKED_BYTES`` and remembers the last of what went through it."""

    def __init__(self, stream: _Readable, path: str) -> None:
        self._stream = stream
        self._path = path
        self._count = 0
        self._last = (b"", b"")

    def read(self, size: int, /) -> bytes:
        data = self._stream.read(size)
        self._count += len(data)
        if self._count > MAX_UNPACKED_BYTES:
            raise _problem(self._path, f"unpacks to more than {MAX_UNPACKED_BYTES} bytes")
        if data:
            self._last = (self._last[1], data)
        return data

    def block(self, offset: int) -> bytes:
        """Return the block at a recent ``offset``; less than a block, or nothing, beyond the end."""
        recent = b"".join(self._last)
        start = offset - (self._count - len(recent))
        return recent[start : start + _BLOCK] if start >= 0 else b""

    def drain(self) -> None:
        """Read to the end, so that the checksum behind the last byte is verified."""
        while self.read(1 << 20):
            pass


def _decompressed(file: io.BufferedReader[Any]) -> _Readable:
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
    # Streaming mode only ever asks its source for bytes, in order, and keeps nothing but headers.
    with tarfile.open(fileobj=cast("IO[bytes]", stream), mode="r|") as archive:
        count = 0
        while (member := archive.next()) is not None:
            archive.members.clear()  # type: ignore[attr-defined]  # a million headers need a gigabyte
            count += 1
            if count > MAX_MEMBERS:
                raise _problem(path, f"more than {MAX_MEMBERS} members")
            name = _clean(member.name)
            if name is None:
                continue
            if member.isdir():
                folders.append(name)
            elif member.issym():
                links[name] = "" if _is_outside(member.linkname) else member.linkname
            elif member.islnk():
                files[name] = files.get(_clean(member.linkname) or "", b"")
            elif member.isreg():
                if member.size > MAX_FILE_BYTES:
                    raise _problem(path, f"{name} is larger than {MAX_FILE_BYTES} bytes")
                content = archive.extractfile(member)
                files[name] = content.read() if content is not None else b""
        # tarfile treats garbage between two members as the end of the archive.
        if stream.block(archive.offset) != bytes(_BLOCK):
            raise _problem(path, "damaged or cut off")
    stream.drain()
    return ArchiveTree(path, *_machine_root(files, links, folders))


def _problem(path: str, problem: str) -> InputError:
    return InputError(f"archive: {problem}", source=path, remedy=_REMEDY)


def _is_outside(target: str) -> bool:
    return target.startswith("/") or len(target) > MAX_PATH_CHARS


def _clean(name: str) -> str | None:
    """Return a member's path below the root; None to ignore absolute, climbing and overlong names."""
    if _is_outside(name):
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


MOST_BYTES: Final = 256 * 2**20
"""What files may have together; those of a computer with 4096 CPUs have about 60 MiB."""
_LEVEL: Final = 9


def archive_bytes(
    top: str, files: Mapping[str, bytes], links: Mapping[str, str] | None = None, folders: Iterable[str] = ()
) -> bytes:
    """Return a compressed tar archive with everything below one folder.

    Entries are in text order, have no owner and no time, and are readable for all.

    Args:
        top: the folder around everything.
        files: path -> content.
        links: path -> relative target.
        folders: that may be empty; those around files need not be named.

    Raises:
        InputError: it would be too large.
    """
    size = sum(map(len, files.values()))
    if size > MOST_BYTES:
        raise InputError(f"the files have {size} bytes together, more than {MOST_BYTES}", source=top)
    targets = links or {}
    every = {*folders, *(folder for path in (*files, *targets) for folder in folders_above(path))}
    packed = io.BytesIO()
    # A gzip header holds a file name and a time by default.
    with (
        gzip.GzipFile(filename="", mode="wb", compresslevel=_LEVEL, fileobj=packed, mtime=0) as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path in ("", *sorted({*files, *targets, *every})):
            entry, content = tarfile.TarInfo(f"{top}/{path}".rstrip("/")), files.get(path, b"")
            if path in files:
                entry.size = len(content)
            elif path in targets:
                entry.type, entry.linkname = tarfile.SYMTYPE, targets[path]
            else:
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def folders_above(path: str) -> Iterable[str]:
    """Return the folders that a path leads through."""
    parts = path.split("/")
    return ("/".join(parts[:count]) for count in range(1, len(parts)))
