"""The scripts that write the docs, as modules: what they check and what these tests check is the same code."""

from __future__ import annotations

from types import ModuleType

import pytest
from tests.values import script


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
