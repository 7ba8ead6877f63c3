"""What is wrapped and has to come out: values that may be missing and are not, refusals, archives of our own."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from mooring.engine.core.errors import InputError

Value = TypeVar("Value")


def not_none(value: Value | None) -> Value:
    """Return the value; fail where there is none."""
    assert value is not None
    return value


def refusal(read: Callable[..., object], *given: Any, **more: Any) -> str:
    """Return what is said of input that cannot be used."""
    with pytest.raises(InputError) as error:
        read(*given, **more)
    return str(error.value)


def unpack(archive: Path, folder: Path) -> None:
    """Unpack an archive, also with Pythons before 3.11.4, which have no filters."""
    with tarfile.open(archive) as packed:
        packed.extraction_filter = getattr(tarfile, "tar_filter", None)
        packed.extractall(folder)  # noqa: S202 - archives of our own
