"""What is wrapped and has to come out: values that may be missing and are not, refusals, tables, archives, scripts."""

from __future__ import annotations

import importlib.util
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import pytest
import yaml

from mooring.engine.core.errors import InputError

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"
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


def cases(test: str, table: str, *members: str) -> list[Any]:
    """Return the cases of a YAML table beside a test, as these members of each; the last one names it."""
    found = yaml.safe_load((Path(test).parent / table).read_text(encoding="utf-8"))
    return [pytest.param(*(one[member] for member in members), id=str(one[members[-1]])) for one in found]


def unpack(archive: Path, folder: Path) -> None:
    """Unpack an archive, also with Pythons before 3.11.4, which have no filters."""
    with tarfile.open(archive) as packed:
        packed.extraction_filter = getattr(tarfile, "tar_filter", None)
        packed.extractall(folder)  # noqa: S202 - archives of our own


def script(name: str) -> ModuleType:
    """Import a script by its path: scripts are no package."""
    loaded = sys.modules.get(name)
    if loaded is not None:
        return loaded
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
