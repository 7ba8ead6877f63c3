"""PCI devices on the NUMA nodes of a guest, and containers beside them: ``make e2e-numa`` runs it."""

from __future__ import annotations

import pytest
from tests.e2e.guest.runner import Ran, Shape, e2e_guest, run, steps_of, why_not

SCENARIO = "devices"
SHAPE = Shape(sockets=2, cores=4, threads=2, nodes=4, node_memory=768, devices=True)
SECONDS = 900


@pytest.fixture(scope="module", params=e2e_guest().editions())
def ran(request: pytest.FixtureRequest) -> Ran:
    if why_not():
        pytest.skip(f"e2e-numa devices: {why_not()}")
    values = {"policy": "single-numa-node"}
    try:
        return run(SCENARIO, SHAPE, edition=request.param, containers=True, values=values, seconds=SECONDS)
    except e2e_guest().UnavailableError as why:
        pytest.skip(f"e2e-numa devices {request.param}: {why}")


@pytest.mark.parametrize("step", list(steps_of(SCENARIO)))
def test_in_the_guest(ran: Ran, step: str) -> None:
    ran.check(step)


def test_the_guest_powered_off_by_itself(ran: Ran) -> None:
    assert ran.ended, ran.console[-3000:]
