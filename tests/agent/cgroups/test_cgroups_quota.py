from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.agent.cgroups.made_up_tree import MadeUpMachine, made_up_machine

from mooring.agent.cgroups.files import CGroupTrouble, GroupError
from mooring.agent.cgroups.protocol import Quota, format_max, parse_max
from mooring.agent.effects import LiftQuota, QuotaOf

CONTAINER = LiftQuota(QuotaOf.CONTAINER, "b2", "c3", 0, "/kubepods/podb2/c3")
POD = LiftQuota(QuotaOf.POD, "b2", "", 0, "/kubepods/podb2")


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> MadeUpMachine:
    made = made_up_machine(tmp_path, request.param)
    limits = {"cpu_max": "150000 100000", "cpu_cfs_quota_us": "150000"}
    made.group("kubepods", **limits)
    made.group("kubepods/podb2", **limits)
    made.group("kubepods/podb2/c3", **limits)
    return made


@given(st.none() | st.integers(1000, 10**9), st.integers(1000, 10**6))
def test_the_form_of_cpu_max_is_read_as_it_is_written(microseconds: int | None, period: int) -> None:
    quota = Quota(microseconds, period)
    assert parse_max(format_max(quota)) == quota


@pytest.mark.parametrize("text", ["", "max", "12", "a b", "max max"])
def test_what_is_no_quota_is_reported(text: str) -> None:
    with pytest.raises(GroupError) as caught:
        parse_max(text, "/x/cpu.max")
    assert caught.value.trouble is CGroupTrouble.REFUSED


def test_a_lift_takes_the_limit_and_leaves_the_period_and_everybody_else(machine: MadeUpMachine) -> None:
    lifted = machine.cgroups.lift_quota(CONTAINER)
    assert lifted.lifted == Quota(150000, 100000)
    assert machine.cgroups.quotas([CONTAINER, POD]) == ((POD, Quota(150000, 100000)),)
    name, text = ("cpu.max", "max 100000") if machine.version == 2 else ("cpu.cfs_quota_us", "-1")
    assert machine.text("cpu", "kubepods/podb2/c3", name) == text
    assert machine.cgroups.lift_quota(CONTAINER).lifted is None, "there is nothing to lift a second time"


def test_a_quota_comes_back_as_it_was(machine: MadeUpMachine) -> None:
    cgroups = machine.cgroups
    lifted = cgroups.lift_quota(POD).lifted
    assert lifted is not None
    assert cgroups.restore_quota(POD, lifted) is None
    assert [found for _, found in cgroups.quotas([POD])] == [lifted]
    other = Quota(30000, 20000)
    assert cgroups.restore_quota(POD, other) is None
    assert [found for _, found in cgroups.quotas([POD])] == [other]


@pytest.mark.parametrize("path", ["/kubepods", "/kubepods/burstable", "kubepods-besteffort.slice"])
def test_the_quota_of_all_pods_is_never_lifted(machine: MadeUpMachine, path: str) -> None:
    result = machine.cgroups.lift_quota(LiftQuota(QuotaOf.POD, "b2", "", 0, path))
    assert result.trouble is CGroupTrouble.NOT_PERMITTED


def test_a_group_that_is_gone_is_reported(machine: MadeUpMachine) -> None:
    gone = LiftQuota(QuotaOf.CONTAINER, "b2", "c9", 0, "/kubepods/podb2/c9")
    assert machine.cgroups.lift_quota(gone).trouble is CGroupTrouble.GONE
    assert machine.cgroups.restore_quota(gone, Quota(1000, 100000)) is CGroupTrouble.GONE
    assert machine.cgroups.quotas([gone]) == ()


def test_a_value_that_the_kernel_does_not_keep_is_reported(
    machine: MadeUpMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mooring.agent.cgroups.protocol.write", lambda _path, _text: None)
    assert machine.cgroups.lift_quota(CONTAINER).trouble is CGroupTrouble.NOT_TAKEN
