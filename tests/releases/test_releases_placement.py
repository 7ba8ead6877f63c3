"""Placement by release: vectors of what v1.38.0-beta.0 changes (spec: preview.md sections 1 to 6)."""

from __future__ import annotations

import pytest
from tests.releases.flipped import machines

from mooring.answers.base.plan import Question, make_plan
from mooring.answers.doctor.diagnosis import diagnose
from mooring.engine.core.config import KubeletConfig, MooringConfig
from mooring.engine.core.machine import Machine
from mooring.engine.releases.catalog import RELEASES

SPREAD, DISTRIBUTE, UNCORE = (
    "distribute-cpus-across-cores",
    "distribute-cpus-across-numa",
    "prefer-align-cpus-by-uncorecache",
)


@pytest.mark.parametrize(
    ("release", "machine", "option", "warned"),
    [
        ("1.37", "n38-cross-2s4n48", UNCORE, True),
        ("1.38", "n38-cross-2s4n48", UNCORE, False),
        ("1.37", "square-4n32", UNCORE, False),
        ("1.37", "n38-cross-2s4n48", DISTRIBUTE, False),
    ],
)
def test_a_plan_and_the_doctor_warn_of_caches_that_are_counted_twice(
    release: str, machine: str, option: str, warned: bool
) -> None:
    config = KubeletConfig(
        cpu_manager_policy="static", cpu_manager_policy_options={option: "true"}, reserved_system_cpus="0"
    )
    asked = Question(Machine(machine, machines()[machine]), config, mooring=MooringConfig(release=RELEASES[release]))
    for findings in (make_plan(asked).findings, diagnose(asked).findings):
        found = [one.subject for one in findings if one.code == "MOOR-520"]
        assert found == (["each of the uncore caches 1, 4"] if warned else [])
