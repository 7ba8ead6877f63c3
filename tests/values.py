"""What is wrapped and has to come out: values that may be missing and are not, archives of our own."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import TypeVar

Value = TypeVar("Value")


def not_none(value: Value | None) -> Value:
    """Return the value; fail where there is none."""
    assert value is not None
    return value


def unpack(archive: Path, folder: Path) -> None:
    """Unpack an archive, also with Pythons before 3.11.4, which have no filters."""
    with tarfile.open(archive) as packed:
        packed.extraction_filter = getattr(tarfile, "tar_filter", None)
        packed.extractall(folder)  # noqa: S202 - archives of our own
