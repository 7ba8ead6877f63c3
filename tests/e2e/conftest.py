"""What every tier with real parts has."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def orderly_end() -> Iterator[None]:
    """Take everything away at SIGTERM too, which is how a limit of time ends the tests."""

    def end(_number: int, _frame: object) -> None:
        pytest.exit("SIGTERM")

    before = signal.signal(signal.SIGTERM, end)
    yield
    signal.signal(signal.SIGTERM, before)
