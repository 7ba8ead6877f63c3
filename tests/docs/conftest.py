"""The scripts that write the docs, as modules: what they check and what these tests check is the same code."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


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


@pytest.fixture(scope="session")
def documented() -> ModuleType:
    return script("documented")


@pytest.fixture(scope="session")
def draw_pictures() -> ModuleType:
    return script("draw_pictures")


@pytest.fixture(scope="session")
def specification() -> ModuleType:
    return script("specification")


@pytest.fixture(scope="session")
def releases_page() -> ModuleType:
    return script("releases_page")


@pytest.fixture(scope="session")
def rights() -> ModuleType:
    return script("rights")
