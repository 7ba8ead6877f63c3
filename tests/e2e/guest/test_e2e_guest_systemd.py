"""The agent where systemd makes the control groups, with containerd and CRI-O, each with runc and crun; mooring heal.

Guests of 16 CPUs, and with ``MOORING_E2E_NUMA=full`` of 64 too. ``make e2e-systemd`` runs it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache
from importlib import import_module

import pytest
from tests.e2e.guest.runner import ROOT, Ran, Shape, e2e_guest, is_full, run, steps_of, why_not

SCENARIO = "systemd"
SHAPES: Mapping[str, Shape] = {
    "16": Shape(sockets=2, cores=4, threads=2, nodes=2, node_memory=2048),
    **({"64": Shape(node_memory=768)} if is_full() else {}),
}
RUNTIMES = ("containerd", "crio")
GUESTS = [(edition, runtime, size) for edition in e2e_guest().editions() for runtime in RUNTIMES for size in SHAPES]
SECONDS = 3600 if is_full() else 1500
DELAY = 6
"""Seconds of a scale-down; enough for a slow guest to look meanwhile."""
_log = logging.getLogger(__name__)


@cache
def ran(edition: str, runtime: str, size: str) -> Ran:
    """Run the scenario, once."""
    if why_not():
        pytest.skip(f"e2e-systemd: {why_not()}")
    try:
        if runtime == "crio":
            import_module("e2e_parts").crio_parts()
        values = {"runtime": runtime, "delay": DELAY}
        shape = SHAPES[size]
        return run(SCENARIO, shape, edition=edition, containers=True, systemd=True, values=values, seconds=SECONDS)
    except import_module("e2e_parts").UnavailableError as why:
        pytest.skip(f"e2e-systemd {edition} {runtime}: {why}")


@pytest.mark.parametrize(
    ("edition", "runtime", "size", "step"), [(*one, step) for one in GUESTS for step in steps_of(SCENARIO)]
)
def test_in_the_guest(edition: str, runtime: str, size: str, step: str) -> None:
    ran(edition, runtime, size).check(step)


@pytest.mark.parametrize(("edition", "runtime", "size"), GUESTS)
def test_the_guest_powered_off_by_itself(edition: str, runtime: str, size: str) -> None:
    found = ran(edition, runtime, size)
    for told in (*found.told("versions"), *found.told("seconds")):
        _log.info("%s %s %s: %s", edition, runtime, size, told)
    assert found.ended, found.console[-3000:]


@cache
def healed() -> Ran:
    """Run the scenario of the units of mooring heal, once."""
    if why_not():
        pytest.skip(f"e2e-systemd: {why_not()}")
    units = (ROOT / "packaging" / "systemd").glob("mooring-heal*.service")
    files = {f"/opt/mooring/packaging/systemd/{path.name}": path.read_bytes() for path in units}
    try:
        return run("heal", SHAPES["16"], systemd=True, files=files, seconds=SECONDS)
    except import_module("e2e_parts").UnavailableError as why:
        pytest.skip(f"e2e-systemd heal: {why}")


@pytest.mark.parametrize("step", steps_of("heal"))
def test_the_unit_heals_before_the_kubelet(step: str) -> None:
    healed().check(step)
