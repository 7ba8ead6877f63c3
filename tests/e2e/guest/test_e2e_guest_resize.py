"""Resizing in guests with 16 CPUs on 2 NUMA nodes, with containerd and runc: ``make e2e-resize``.

One guest for the nine cases of KEP-6122, and one for a program with a thread on each CPU that is resized again and
again while other pods come and go; ``MOORING_E2E_NUMA=full`` has a hundred such resizes.
"""

from __future__ import annotations

import logging
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.guest.inside import PROGRAM, PROGRAMS
from tests.e2e.guest.runner import Ran, Shape, e2e_guest, is_full, run, steps_of, why_not

SHAPE = Shape(sockets=2, cores=4, threads=2, nodes=2, node_memory=1024)
SCENARIOS: Mapping[str, Mapping[str, Any]] = {
    "resize": {"delay": 10},
    "resize_churn": {"delay": 6, **({"resizes": 100, "looks": 500} if is_full() else {"resizes": 15, "looks": 50})},
}
"""With the values of each. A delay gives a slow guest the time to do something before it is over."""
SECONDS = 10800 if is_full() else 5400
"""Long, because other programs may have the processors."""
GUESTS = [(edition, scenario) for edition in e2e_guest().editions() for scenario in SCENARIOS]
STEPS = [(*guest, step) for guest in GUESTS for step in steps_of(guest[1])]
_log = logging.getLogger(__name__)


def program() -> bytes:
    """Return the program that runs in the containers, built for any kernel."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("e2e-resize: there is no C compiler")
    words = [compiler, "-O2", "-Wall", "-Wextra", "-Werror", "-static", "-pthread"]
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder, PROGRAM)
        subprocess.run([*words, "-o", str(built), str(Path(__file__).with_name(f"{PROGRAM}.c"))], check=True)
        return built.read_bytes()


@cache
def ran(edition: str, scenario: str) -> Ran:
    """Run a scenario, once."""
    if why_not():
        pytest.skip(f"e2e-resize: {why_not()}")
    values, files = SCENARIOS[scenario], {f"{PROGRAMS}/{PROGRAM}": program()}
    try:
        return run(scenario, SHAPE, edition=edition, containers=True, values=values, files=files, seconds=SECONDS)
    except e2e_guest().UnavailableError as why:
        pytest.skip(f"e2e-resize {edition}: {why}")


@pytest.mark.parametrize(("edition", "scenario", "step"), STEPS)
def test_in_the_guest(edition: str, scenario: str, step: str) -> None:
    ran(edition, scenario).check(step)


@pytest.mark.parametrize(("edition", "scenario"), GUESTS)
def test_the_guest_powered_off_by_itself(edition: str, scenario: str) -> None:
    found = ran(edition, scenario)
    for told in found.told("figures"):
        for what, times in told["milliseconds"].items():
            middle = sorted(times)[len(times) // 2]
            _log.info(
                "%s: %s: %d times, median %.0f ms, at most %.0f ms", scenario, what, len(times), middle, max(times)
            )
    assert found.ended, found.console[-3000:]
