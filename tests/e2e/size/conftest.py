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
import tests.e2e.crio.runtime
from tests.e2e.containerd.runtime import Runtime, e2e_parts, parts_named, running, why_not
from tests.e2e.containerd.wrapper import write_player

RUNTIMES = os.environ.get("MOORING_E2E_SIZE_RUNTIMES", "debian crio").split()
"""``debian`` and ``built`` are containerds, ``crio`` is CRI-O."""
Starting: TypeAlias = Callable[[Path], AbstractContextManager[Runtime]]
"""Starts the runtime in a folder."""


@pytest.fixture(params=RUNTIMES)
def starting(request: pytest.FixtureRequest) -> Starting:
    name = request.param
    if reason := why_not():
        pytest.skip(f"e2e size {name}: {reason}")
    try:
        parts = e2e_parts().crio_parts() if name == "crio" else parts_named(name)
    except e2e_parts().UnavailableError as why:
        pytest.skip(f"e2e size {name}: {why}")
    start = tests.e2e.crio.runtime.running if name == "crio" else running
    return lambda folder: start(parts, folder, oci_runtime=write_player(folder, parts.busybox))


@pytest.fixture
def folder_in_memory() -> Iterator[Path]:
    """An empty folder that no disk makes slow, where there is one."""
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else "/tmp"  # noqa: S108 - mkdtemp makes it private
    made = Path(tempfile.mkdtemp(prefix="size-", dir=place))
    yield made
    shutil.rmtree(made)
