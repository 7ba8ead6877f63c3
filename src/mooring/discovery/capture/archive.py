"""Writing an archive: the same files give the same bytes, on whatever day and for whatever user."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Iterable, Mapping
from typing import Final

from mooring.core.errors import InputError

MOST_BYTES: Final = 256 * 2**20
"""What files may have together; those of a computer with 4096 CPUs have about 60 MiB."""
_LEVEL: Final = 9


def archive_bytes(
    top: str, files: Mapping[str, bytes], links: Mapping[str, str] | None = None, folders: Iterable[str] = ()
) -> bytes:
    """Return a compressed tar archive with everything below one folder.

    Entries are in text order, have no owner and no time, and are readable for everybody.

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
    every = {*folders, *(folder for path in (*files, *(links or {})) for folder in _above(path))}
    packed = io.BytesIO()
    # A gzip header holds a file name and a time unless it is told otherwise.
    with (
        gzip.GzipFile(filename="", mode="wb", compresslevel=_LEVEL, fileobj=packed, mtime=0) as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        archive.addfile(_entry(top, tarfile.DIRTYPE))
        for path in sorted({*files, *(links or {}), *every}):
            name = f"{top}/{path}"
            if path in files:
                archive.addfile(_entry(name, tarfile.REGTYPE, size=len(files[path])), io.BytesIO(files[path]))
            elif links and path in links:
                archive.addfile(_entry(name, tarfile.SYMTYPE, target=links[path]))
            else:
                archive.addfile(_entry(name, tarfile.DIRTYPE))
    return packed.getvalue()


def _above(path: str) -> Iterable[str]:
    parts = path.split("/")
    return ("/".join(parts[:count]) for count in range(1, len(parts)))


def _entry(name: str, kind: bytes, *, size: int = 0, target: str = "") -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type = kind
    entry.size = size
    entry.linkname = target
    entry.mode = 0o755 if kind == tarfile.DIRTYPE else 0o644
    return entry
