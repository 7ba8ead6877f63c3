"""Settings of all tests.

Property tests draw the same examples on every machine and in every run: their seed is derived from the source of the
test, no example is remembered, and no example is timed. `make test` draws the first of them, `make test-laws` as many
as a test asks for (profile ``mooring``), `make fuzz` others (profile ``fuzz``, tests/fuzzing.py).
Plugins get a longer budget, because a busy machine can stand still for longer than theirs.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

from mooring.engine.core.config import BUDGET, Work
from mooring.engine.plugins.loading import Watchman

# A kubelet that runs beside the tests is none of their business.
os.environ.setdefault("MOORING_ROOT", "none")

settings.register_profile(
    "mooring",
    deadline=None,
    max_examples=50,
    derandomize=True,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("fuzz", parent=settings.get_profile("mooring"), max_examples=100, derandomize=False)
settings.load_profile("mooring")

SHARE_OF_EXAMPLES = 5
"""Without a profile on the command line property tests draw one of so many examples that they ask for."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--hypothesis-profile"):
        return
    # Where Hypothesis keeps the settings of a test: a function has them itself, a state machine in its class.
    owners = {
        (item.cls, "settings") if item.name == "runTest" else (item.function, "_hypothesis_internal_use_settings")
        for item in items
        if isinstance(item, pytest.Function) and is_hypothesis_test(item.obj)
    }
    for owner, place in owners:
        asked: settings = getattr(owner, place)
        setattr(owner, place, settings(asked, max_examples=-(-asked.max_examples // SHARE_OF_EXAMPLES)))


# Hypothesis also draws constants that it finds in the modules loaded at that moment. Those depend on the tests that ran
# before in the same process and on the path of the checkout: examples would differ from machine to machine, and a seed
# would not repeat a failure. Without constants they do not.
LOCAL_CONSTANTS = "_get_local_constants"
assert hasattr(providers, LOCAL_CONSTANTS), "hypothesis has renamed it: where does it read local constants now?"
setattr(providers, LOCAL_CONSTANTS, Constants)

# A shell without job control starts what it puts into the background deaf to Ctrl-C, and programs inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Most of what the engine makes is freed without garbage collection. With the usual 700 allocations between two
# collections, a fifth of a replay's time is spent on going through the objects of all collected tests.
gc.set_threshold(50_000, 20, 50)

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
