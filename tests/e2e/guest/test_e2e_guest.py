"""Control groups and the command line on a real kernel with cgroup v2, 64 CPUs and 8 NUMA nodes: ``make e2e-numa``."""

from __future__ import annotations

import os

import pytest
from tests.e2e.guest.boot import INSIDE, Boot, boot, e2e_guest
from tests.e2e.guest.inside import steps


@pytest.fixture(scope="module")
def booted() -> Boot:
    if not os.environ.get("MOORING_E2E_NUMA"):
        pytest.skip("e2e-numa: a guest boots for minutes; make e2e-numa runs it")
    script = e2e_guest()
    try:
        guest = script.guest()
    except script.UnavailableError as why:
        pytest.skip(f"e2e-numa: {why}")
    return boot(guest, script.image(guest, INSIDE))


@pytest.mark.parametrize("step", list(steps()))
def test_in_the_guest(booted: Boot, step: str) -> None:
    result = booted.results.get(step)
    assert result is not None, f"the guest did not come to this step:\n{booted.console[-3000:]}"
    print(f"{step}: {result['told']} ({result['seconds']} s)")
    assert result["ok"], result["told"]


def test_the_guest_powered_off_by_itself(booted: Boot) -> None:
    assert booted.ended
    assert "GUEST-RC=0" in booted.console
