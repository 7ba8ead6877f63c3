"""The scripts of a release as modules."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from tests.values import script

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def compatibility() -> ModuleType:
    return script("release/compatibility")


@pytest.fixture(scope="session")
def krew() -> ModuleType:
    return script("release/krew")


@pytest.fixture(scope="session")
def licences() -> ModuleType:
    return script("release/licences")
