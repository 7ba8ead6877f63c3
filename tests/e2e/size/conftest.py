"""The container runtimes of the size tier, each with an OCI runtime that plays a machine of 256 CPUs."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeAlias

import pytest
from tests.e2e.containerd.runtime import Runtime
from tests.e2e.containerd.wrapper import write_player
from tests.e2e.runtimes import parts_or_skip, running

RUNTIMES = os.environ.get("MOORING_E2E_SIZE_RUNTIMES", "debian crio").split()
"""``debian`` and ``built`` are containerds, ``crio`` is CRI-O."""
Starting: TypeAlias = Callable[[Path], AbstractContextManager[Runtime]]
"""Starts the runtime in a folder."""


@pytest.fixture(params=RUNTIMES)
def starting(request: pytest.FixtureRequest) -> Starting:
    parts = parts_or_skip(request.param)
    return lambda folder: running(parts, folder, oci_runtime=write_player(folder, parts.busybox))


@pytest.fixture
def folder_in_memory() -> Iterator[Path]:
    """An empty folder that no disk makes slow, where there is one."""
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else "/tmp"  # noqa: S108 - mkdtemp makes it private
    made = Path(tempfile.mkdtemp(prefix="size-", dir=place))
    yield made
    shutil.rmtree(made)
