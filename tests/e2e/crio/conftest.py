"""One CRI-O for each test; where it is unavailable, the tests are skipped by name and reason."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.e2e.containerd.runtime import Runtime
from tests.e2e.folders import short_folder
from tests.e2e.runtimes import CRIO, parts_or_skip, running


@pytest.fixture(scope="session")
def parts() -> Any:
    return parts_or_skip(CRIO)


@pytest.fixture
def crio(parts: Any) -> Iterator[Runtime]:
    with short_folder("crio-") as folder, running(parts, folder) as made:
        yield made
