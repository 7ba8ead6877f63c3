"""Folders for real parts: their paths are short, because paths of sockets are."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def short_folder(prefix: str) -> Iterator[Path]:
    """Make an empty folder and remove it at the end of the block, with all that is in it."""
    made = Path(tempfile.mkdtemp(prefix=prefix, dir="/tmp"))
    try:
        yield made
    finally:
        shutil.rmtree(made)
