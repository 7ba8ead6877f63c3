"""CPUs that go offline and come back in a guest, under the whole agent with containerd and runc.

``make e2e-numa`` runs it; ``MOORING_E2E_NUMA=full`` has more rounds.
"""

from __future__ import annotations

import pytest
from tests.e2e.guest.runner import Ran, Shape, e2e_guest, is_full, run, steps_of, why_not

SCENARIO = "hotplug"
SHAPE = Shape(sockets=1, cores=8, threads=2, nodes=2, node_memory=1024)
ROUNDS = 40 if is_full() else 5
SECONDS = 3600 if is_full() else 1200


@pytest.fixture(scope="module", params=e2e_guest().editions())
def ran(request: pytest.FixtureRequest) -> Ran:
    if why_not():
        pytest.skip(f"e2e-numa hotplug: {why_not()}")
    try:
        return run(SCENARIO, SHAPE, edition=request.param, containers=True, values={"rounds": ROUNDS}, seconds=SECONDS)
    except e2e_guest().UnavailableError as why:
        pytest.skip(f"e2e-numa hotplug {request.param}: {why}")


@pytest.mark.parametrize("step", list(steps_of(SCENARIO)))
def test_in_the_guest(ran: Ran, step: str) -> None:
    ran.check(step)


def test_the_guest_powered_off_by_itself(ran: Ran) -> None:
    assert ran.ended, ran.console[-3000:]
