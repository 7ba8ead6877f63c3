"""The scripts of a release as modules."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


def release_script(name: str) -> ModuleType:
    """Import a script of ``scripts/release`` by its path: scripts are no package."""
    spec = importlib.util.spec_from_file_location(f"release_{name}", ROOT / "scripts" / "release" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def compatibility() -> ModuleType:
    return release_script("compatibility")


@pytest.fixture(scope="session")
def krew() -> ModuleType:
    return release_script("krew")


@pytest.fixture(scope="session")
def licences() -> ModuleType:
    return release_script("licences")
