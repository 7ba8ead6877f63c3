"""One containerd of each kind for all tests of a run; a kind that cannot be had is skipped by name and reason."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.containerd.runtime import Runtime, e2e_parts, parts_named, running, why_not

KINDS = ("debian", "built")


@pytest.fixture(scope="session", params=KINDS)
def parts(request: pytest.FixtureRequest) -> Any:
    name = request.param
    reason = why_not()
    if reason:
        pytest.skip(f"e2e containerd {name}: {reason}")
    try:
        return parts_named(name)
    except e2e_parts().UnavailableError as why:
        pytest.skip(f"e2e containerd {name}: {why}")


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty folder with a path short enough for sockets."""
    made = Path(tempfile.mkdtemp(prefix="nri-", dir="/tmp"))
    yield made
    shutil.rmtree(made)


@pytest.fixture
def folder_in_memory() -> Iterator[Path]:
    """An empty folder that no disk makes slow, where there is one, for tests of thousands of containers."""
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108 - mkdtemp makes it private
    made = Path(tempfile.mkdtemp(prefix="nri-", dir=place))
    yield made
    shutil.rmtree(made)


@pytest.fixture
def node(parts: Any, folder: Path) -> Iterator[Runtime]:
    with running(parts, folder) as made:
        yield made
