"""One containerd of each kind for all tests of a run; a kind that cannot be had is skipped by name and reason."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.containerd.runtime import Runtime
from tests.e2e.runtimes import CRIO, parts_or_skip, running

KINDS = os.environ.get("MOORING_E2E_RUNTIMES", "debian built").split()
"""``debian`` and ``built`` are containerds, ``crio`` is CRI-O (``make e2e-crio``)."""
NOT_ON_CRIO = {
    "test_agent_churn.py": "make e2e-size has the same on CRI-O, with kills and restarts",
    "test_agent_faults.py": "a proxy between agent and runtime: tried with containerd only so far",
    "test_agent_unlisted.py": "a shim that hangs: CRI-O has none",
    "test_e2e_containerd_lockup.py": "about locks of containerd; for what CRI-O waits see docs/how-to/run-the-agent.md",
    "test_of_two_containers_with_one_name_the_one_that_runs_is_shown_by_every_agent": "a container that was never "
    "started: CRI-O ends it when it is asked to stop it",
    "test_e2e_interrupts.py": "needs no runtime, and runs with containerd",
}
"""Name of a file or test -> why it says nothing about CRI-O."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip by name and reason what does not apply to CRI-O."""
    if KINDS != [CRIO]:
        return
    for item in items:
        names = {item.path.name, getattr(item, "originalname", item.name)}
        for name in names & NOT_ON_CRIO.keys():
            item.add_marker(pytest.mark.skip(reason=f"e2e crio: {name}: {NOT_ON_CRIO[name]}"))


@pytest.fixture(scope="session", params=KINDS)
def parts(request: pytest.FixtureRequest) -> Any:
    return parts_or_skip(request.param)


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
