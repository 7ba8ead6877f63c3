"""Settings of all tests.

No example of a property test is timed: a busy machine must not make a law fail. With the environment variable ``CI``
set, every run draws the same examples. Plugins have a test's patience too.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from mooring.core.plugins import BUDGET, Work
from mooring.plugging.watching import Watchman

settings.register_profile("mooring", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "mooring-ci", parent=settings.get_profile("mooring"), derandomize=True, database=None, print_blob=True
)
settings.load_profile("mooring-ci" if os.environ.get("CI") else "mooring")

# A shell without job control starts what it puts into the background deaf to Ctrl-C, and programs inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


PLUGIN_PATIENCE = 60 * 10**9
"""Nanoseconds that plugins have in tests where no other budget is written."""


@pytest.fixture(scope="session", autouse=True)
def _no_plugin_is_hurried() -> Iterator[None]:
    """Let the usual budget of plugins be longer than a busy machine stands still: who is late would be left out."""
    watch = Watchman.__call__

    def patient(self: Watchman, work: Work, budget: int) -> object:
        return watch(self, work, PLUGIN_PATIENCE if budget == BUDGET else budget)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Watchman, "__call__", patient)
        yield
