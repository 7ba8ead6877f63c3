"""The container runtimes of the tests: two containerds and CRI-O, started in the same way."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.containerd import runtime as containerd
from tests.e2e.containerd.runtime import Runtime, e2e_parts, parts_named, why_not
from tests.e2e.crio import runtime as crio

CRIO = "crio"
"""Beside ``debian`` and ``built``, which are containerds."""


def parts_or_skip(name: str) -> Any:
    """Return the parts of a runtime; where it is unavailable, the test is skipped by name and reason."""
    if reason := why_not():
        pytest.skip(f"e2e {name}: {reason}")
    try:
        return e2e_parts().crio_parts() if name == CRIO else parts_named(name)
    except e2e_parts().UnavailableError as why:
        pytest.skip(f"e2e {name}: {why}")


def running(parts: Any, folder: Path, **settings: Any) -> AbstractContextManager[Runtime]:
    """Start the runtime that the parts are of; the arguments are those of its own ``running``."""
    start = crio.running if hasattr(parts, CRIO) else containerd.running
    return start(parts, folder, **settings)
