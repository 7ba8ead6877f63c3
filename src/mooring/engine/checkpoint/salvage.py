"""What is left of a damaged state file, and how far it can be believed.

The newest formats hold the state twice: as members for older kubelets and as ``data``, each with a checksum of its own.
So a copy whose checksum is right is exactly what a kubelet wrote, even when the other copy, or the JSON around it, is
broken. Without such a copy the best of what can be read is taken, and marked as doubtful.

Source: the formats of spec: state-files.md sections 2 to 4.

Replacing state files so that what was there stays there: backups first, then everything or nothing.

A kubelet reads its state files by their names alone, so that backups beside them do not disturb it.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from mooring.engine.checkpoint.checksum import data_checksum
from mooring.engine.checkpoint.formats import FormatFamily, bytes_of
from mooring.engine.checkpoint.gojson import quoted
from mooring.engine.checkpoint.goscan import JSONNumber, JSONObject, JSONValue, parse_prefix, unquote
from mooring.engine.checkpoint.store import read_state_file, system_words, write_together
from mooring.engine.core.errors import InputError
from mooring.lazy import dataclass

DEPTH = 3
"""Levels of unfinished JSON that still say something: the file, its entries, the containers of a pod."""

_DATA = re.compile(rb'"data"\s*:\s*"((?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*)"')
_DATA_CHECKSUM = re.compile(rb'"dataChecksum"\s*:\s*([0-9]{1,20})')


@dataclass(frozen=True, slots=True)
class Salvage:
    """One copy of the state in a file."""

    document: JSONObject
    """Its members."""

    in_data: bool
    """Whether it is the copy in ``data``, the only one with pod entries."""

    trusted: bool
    """Its checksum is right: a kubelet wrote exactly this."""

    whole: bool
    """Nothing of it is cut off."""


_OF_STATE = {"policyname", "entries", "machinestate", "defaultcpuset"}


def salvaged(text: str, family: FormatFamily, *, intact: bool = False) -> Salvage | None:
    """Return the best copy of the state, or None when nothing can be read.

    Of an intact file it is the copy that the kubelet goes by, ``data`` where there is one. Else a trusted copy comes
    before all others, a whole one before pieces, then the one with more containers, then ``data``.

    Args:
        text: the file, read with ``surrogateescape``.
        family: the formats of its manager.
        intact: the kubelet reads the file.
    """
    copies = list(_copies(bytes_of(text), family))
    if not copies:
        return None
    return max(
        copies,
        key=lambda one: (intact and one.in_data, one.trusted, one.whole, containers_in(one.document), one.in_data),
    )


def _copies(raw: bytes, family: FormatFamily) -> Iterator[Salvage]:
    outer = parse_prefix(raw, DEPTH)
    document = outer.value
    data, checksum = "", 0
    if not outer.whole:
        # The text is no JSON. Inside of ``data`` every quote is escaped.
        text, number = _DATA.search(raw), _DATA_CHECKSUM.search(raw)
        data, checksum = unquote(text[1]) if text else "", int(number[1]) if number else 0
    elif isinstance(document, JSONObject):
        value = family.decode(document, family.newest).value
        data, checksum = value["data"], value["dataChecksum"]
    if data:
        inner = parse_prefix(data.encode(), DEPTH)
        if isinstance(inner.value, JSONObject) and inner.value.members:
            trusted = inner.whole and not inner.fault and data_checksum(data) == checksum
            yield Salvage(inner.value, in_data=True, trusted=trusted, whole=inner.whole)
    # Pieces count where there is more than the newest format's ``data`` and checksums.
    if isinstance(document, JSONObject) and (
        outer.whole or any(name.lower() in _OF_STATE for name, _ in document.members)
    ):
        yield Salvage(document, in_data=False, trusted=_has_checksum(document, family), whole=outer.whole)


def _has_checksum(document: JSONObject, family: FormatFamily) -> bool:
    """Tell whether an older format's checksum is there and right; a 0, which any text can have, proves nothing."""
    for older in family.older:
        read = family.decode(document, older.structure)
        if read.fault is None and read.value["checksum"] and older.accepts(read.value):
            return True
    return False


def member(document: JSONObject, name: str) -> JSONValue:
    """Return a member as Go finds it: the last one of its name, in any case; None when there is none."""
    found: JSONValue = None
    for known, value in document.members:
        if known.lower() == name.lower():
            found = value
    return found


def containers_in(document: JSONObject) -> int:
    """Return how many containers the entries name."""
    entries = member(document, "entries")
    if not isinstance(entries, JSONObject):
        return 0
    return sum(len(held.members) if isinstance(held, JSONObject) else 1 for _, held in entries.members)


def unknown_members(document: JSONObject, known: frozenset[str]) -> list[str]:
    """Return the members that no format of this kubelet has, as they stand there."""
    names = {name.lower() for name in known}
    return sorted({name for name, _ in document.members if name.lower() not in names})


def json_of(value: JSONValue) -> str:
    """Return a JSON value as text, members in their order."""
    match value:
        case JSONObject(members=members):
            return f"{{{','.join(f'{quoted(name)}:{json_of(item)}' for name, item in members)}}}"
        case list():
            return f"[{','.join(map(json_of, value))}]"
        case str():
            return quoted(value)
        case JSONNumber(text=text):
            return text
        case None:
            return "null"
        case _:
            return "true" if value else "false"


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
