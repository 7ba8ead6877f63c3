"""The counts of a shadow over its restarts: one file of its folder, the document of ``mooring shadow -o json``.

It is replaced whole after every judgement. A file that cannot be used is kept beside it under another name.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from mooring.documents.observed.shadow import ShadowDocument
from mooring.engine.checkpoint.salvage import BACKUP
from mooring.engine.checkpoint.store import read_state_file, system_words, write_atomically
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding
from mooring.inputs.decoding.fields import Report, ignore
from mooring.monitoring.shadow.tally import Tally, now_text, tally_of

COUNTS: Final = "counts.json"


def read_counts(folder: Path, node: str = "") -> ShadowDocument | None:
    """Return the last counts; None if there are none.

    Args:
        folder: of the shadow.
        node: that it must be about; empty for any.

    Raises:
        InputError: the file cannot be read, or has no counts of that node.
    """
    path = folder / COUNTS
    text = read_state_file(path)
    if text is None:
        return None
    try:
        found = msgspec.json.decode(text.encode(errors="surrogateescape"), type=ShadowDocument)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InputError(f"has no counts of a shadow: {error}", source=str(path)) from None
    if node and found.node != node:
        raise InputError(f"has the counts of {found.node}, not of {node}", source=str(path))
    return found


def continued(folder: Path, node: str, release: str, report: Report = ignore) -> Tally:
    """Return the counts to continue: those of the folder, or new ones.

    Args:
        folder: of the shadow.
        node: that is watched.
        release: of its kubelet.
        report: receives why a file is not used, and where it is now.

    Raises:
        InputError: a file that cannot be used cannot be moved either.
    """
    new = Tally(node, release, now_text())
    try:
        found = read_counts(folder, node)
        return new if found is None else replace(tally_of(found), release=release)
    except InputError as error:
        kept = _kept(folder / COUNTS)
        report(Finding("warning", COUNTS, f"{error}; it is kept as {kept.name}, and counting begins anew"))
        return new


def write_counts(folder: Path, tally: Tally) -> None:
    """Replace the file.

    Raises:
        InputError: that fails; the file is as it was.
    """
    content = msgspec.json.format(msgspec.json.encode(tally.document(now_text())), indent=1)
    write_atomically(folder / COUNTS, content.decode() + "\n")


def _kept(path: Path) -> Path:
    """Give a file the first name that is free."""
    number = 1
    while (other := path.with_name(f"{path.name}{BACKUP}{number}")).exists():
        number += 1
    try:
        return path.rename(other)
    except OSError as error:
        raise InputError(f"cannot be renamed: {system_words(error)}", source=str(path)) from None
