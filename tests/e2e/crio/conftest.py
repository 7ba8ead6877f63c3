"""One CRI-O for each test; where it is unavailable, the tests are skipped by name and reason."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.e2e.containerd.runtime import Runtime, e2e_parts, why_not
from tests.e2e.crio.runtime import running
from tests.e2e.folders import short_folder


@pytest.fixture(scope="session")
def parts() -> Any:
    if reason := why_not():
        pytest.skip(f"e2e CRI-O: {reason}")
    try:
        return e2e_parts().crio_parts()
    except e2e_parts().UnavailableError as why:
        pytest.skip(f"e2e CRI-O: {why}")


@pytest.fixture
def crio(parts: Any) -> Iterator[Runtime]:
    with short_folder("crio-") as folder, running(parts, folder) as made:
        yield made
