"""Control groups and the command line on a real kernel with cgroup v2, 64 CPUs and 8 NUMA nodes: ``make e2e-numa``."""

from __future__ import annotations

import pytest
from tests.e2e.guest.runner import Ran, e2e_guest, run, steps_of, why_not

SCENARIO = "cgroups"


@pytest.fixture(scope="module", params=e2e_guest().editions())
def ran(request: pytest.FixtureRequest) -> Ran:
    if why_not():
        pytest.skip(f"e2e-numa: {why_not()}")
    try:
        return run(SCENARIO, edition=request.param)
    except e2e_guest().UnavailableError as why:
        pytest.skip(f"e2e-numa {request.param}: {why}")


@pytest.mark.parametrize("step", list(steps_of(SCENARIO)))
def test_in_the_guest(ran: Ran, step: str) -> None:
    ran.check(step)


def test_the_guest_powered_off_by_itself(ran: Ran) -> None:
    assert ran.ended, ran.console[-3000:]
