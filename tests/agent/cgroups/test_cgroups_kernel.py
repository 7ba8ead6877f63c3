"""Tests."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.agent.cgroups.made_up_tree import MadeUpMachine, made_up_machine
from tests.agent.sets import cpuset_write, nodes
from tests.e2e.guest.process_tasks import Task, tasks_of, tasks_outside

from mooring.agent.cgroups.cpuset import Cpuset
from mooring.agent.cgroups.files import CGroupTrouble, GroupError, write
from mooring.agent.cgroups.protocol import Quota, format_max, parse_max
from mooring.agent.effects import LiftQuota, QuotaOf, WriteCPUSet
from mooring.engine.core.bits import NO_NODES
from mooring.engine.core.cpuset import CPUSet

POD = "kubepods/pod0a1b2c3d-0000-1111-2222-333344445555"


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> MadeUpMachine:
    made = made_up_machine(tmp_path, request.param)
    for path in ("kubepods", POD, f"{POD}/c3", f"{POD}/c4"):
        made.group(path, cpuset_cpus="0-7", cpuset_mems="0-1")
    return made


def wanted(cpus: str, mems: str = "", container: str = "c3") -> WriteCPUSet:
    return cpuset_write(container, 0, f"/{POD}/{container}", cpus, mems)


def test_a_cpuset_is_written_read_back_and_reported(machine: MadeUpMachine) -> None:
    result = machine.cgroups.write_cpuset(wanted("2-3", "1"))
    assert (result.wrote, result.is_right, result.trouble) == (True, True, None)
    assert result.before == Cpuset(CPUSet.parse("0-7"), nodes("0-1"))
    assert machine.text("cpuset", f"{POD}/c3", "cpuset.cpus") == "2-3"
    assert machine.text("cpuset", f"{POD}/c3", "cpuset.mems") == "1"


def test_nothing_is_written_where_all_is_right(machine: MadeUpMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.cgroups.write_cpuset(wanted("2,3"))
    monkeypatch.setattr("mooring.agent.cgroups.cpuset.write", None)
    result = machine.cgroups.write_cpuset(wanted("2-3"))
    assert (result.wrote, result.is_right) == (False, True)


def test_an_empty_text_leaves_its_file_alone(machine: MadeUpMachine) -> None:
    assert machine.cgroups.write_cpuset(wanted("", "0")).is_right
    assert machine.text("cpuset", f"{POD}/c3", "cpuset.cpus") == "0-7"


def test_a_container_that_has_ended_is_told_and_is_no_deviation(machine: MadeUpMachine) -> None:
    gone = wanted("2-3", container="c9")
    result = machine.cgroups.write_cpuset(gone)
    assert (result.trouble, result.is_right, result.wrote) == (CGroupTrouble.GONE, False, False)
    assert machine.cgroups.deviations([gone]) == ()
    assert machine.cgroups.in_effect(gone) is None


def test_a_group_without_the_controller_is_a_deviation(machine: MadeUpMachine) -> None:
    for file in machine.folder("cpuset", f"{POD}/c3").iterdir():
        file.unlink()
    assert machine.cgroups.write_cpuset(wanted("2-3")).trouble is CGroupTrouble.NO_CONTROLLER
    (found,) = machine.cgroups.deviations([wanted("2-3")])
    assert (found.trouble, found.found, found.beyond) == (CGroupTrouble.NO_CONTROLLER, None, CPUSet())


def test_deviations_name_what_is_there_and_what_is_too_much(machine: MadeUpMachine) -> None:
    cgroups = machine.cgroups
    cgroups.write_cpuset(wanted("0-3", "0"))
    assert cgroups.deviations([wanted("0-3", "0"), wanted("0-7", container="c4")]) == ()
    (found,) = cgroups.deviations([wanted("2-5", "0")])
    assert found.can_be_repaired
    assert found.beyond == CPUSet.parse("0-1")
    (found,) = cgroups.deviations([wanted("0-3", "1")])
    assert found.found is not None
    assert found.found.mems == nodes("0")


def test_what_no_write_can_repair_is_told_apart(tmp_path: Path) -> None:
    machine = made_up_machine(tmp_path, 2)
    machine.group(f"{POD}/c3", cpuset_cpus="2-3")
    machine.group(POD)
    folder = machine.folder("cpuset", f"{POD}/c3")
    (folder / "cpuset.cpus.effective").unlink()
    (folder / "cpuset.cpus.effective").write_text("2\n")
    (offline,) = machine.cgroups.deviations([wanted("2-3")])
    assert not offline.can_be_repaired
    (machine.folder("cpuset", POD) / "cpuset.cpus").write_text("0-2\n")
    (narrow,) = machine.cgroups.deviations([wanted("2-3")])
    assert narrow.can_be_repaired


@pytest.mark.parametrize(
    ("number", "trouble"),
    [
        (errno.ERANGE, CGroupTrouble.OUT_OF_RANGE),
        (errno.EACCES, CGroupTrouble.OUTSIDE_PARENT),
        (errno.EBUSY, CGroupTrouble.BUSY),
        (errno.ENOSPC, CGroupTrouble.NO_ROOM),
        (errno.ENODEV, CGroupTrouble.GONE),
        (errno.EINVAL, CGroupTrouble.REFUSED),
    ],
    ids=lambda value: value.value if isinstance(value, CGroupTrouble) else errno.errorcode[value],
)
def test_every_no_of_the_kernel_is_reported(
    machine: MadeUpMachine, monkeypatch: pytest.MonkeyPatch, number: int, trouble: CGroupTrouble
) -> None:
    def refuse(_descriptor: int, _data: bytes) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "write", refuse)
    result = machine.cgroups.write_cpuset(wanted("2-3"))
    assert result.trouble is trouble
    assert not result.is_right
    assert "cpuset.cpus" in result.problem
    assert os.strerror(number) in result.problem


def test_a_value_that_the_kernel_does_not_keep_is_reported(
    machine: MadeUpMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mooring.agent.cgroups.cpuset.write", lambda _path, _text: None)
    assert machine.cgroups.write_cpuset(wanted("2-3")).trouble is CGroupTrouble.NOT_TAKEN


def test_a_write_is_never_of_no_bytes(tmp_path: Path) -> None:
    file = tmp_path / "cpuset.cpus"
    file.write_text("0-3\n")
    write(str(file), "")
    assert file.read_text() == "\n"


def test_a_file_that_may_not_be_written_is_reported(tmp_path: Path) -> None:
    with pytest.raises(GroupError) as caught:
        write(str(tmp_path), "0")
    assert caught.value.trouble is CGroupTrouble.NOT_PERMITTED


def test_the_tasks_of_a_group_are_read_with_those_below(tmp_path: Path) -> None:
    machine = made_up_machine(tmp_path, 2)
    machine.group("c3/own")
    (machine.folder("cpuset", "c3") / "cgroup.procs").write_text("10\n99\n")
    (machine.folder("cpuset", "c3/own") / "cgroup.procs").write_text("12\n")
    for pid, tid, cpus in ((10, 10, "0-1"), (10, 11, "1"), (12, 12, "0-3")):
        task = tmp_path / f"proc/{pid}/task/{tid}"
        task.mkdir(parents=True)
        (task / "status").write_text(f"Name:\tx\nCpus_allowed_list:\t{cpus}\nMems_allowed_list:\t0-1\n")
    tasks = tasks_of(str(tmp_path), str(machine.folder("cpuset", "c3")))
    assert [(task.pid, task.tid) for task in tasks] == [(10, 10), (10, 11), (12, 12)]
    assert [task.tid for task in tasks_outside(tasks, CPUSet.parse("0-1"), NO_NODES)] == [12]
    assert len(tasks_outside(tasks, CPUSet(), nodes("0"))) == 3
    assert tasks_outside((Task(1, 1, Cpuset(CPUSet.of(5), NO_NODES)),), CPUSet(), NO_NODES) == ()


CONTAINER_LIFT = LiftQuota(QuotaOf.CONTAINER, "b2", "c3", 0, "/kubepods/podb2/c3")
POD_LIFT = LiftQuota(QuotaOf.POD, "b2", "", 0, "/kubepods/podb2")


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def limited(request: pytest.FixtureRequest, tmp_path: Path) -> MadeUpMachine:
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


def test_a_lift_takes_the_limit_and_leaves_the_period_and_everybody_else(limited: MadeUpMachine) -> None:
    assert limited.cgroups.lift_quota(CONTAINER_LIFT).lifted == Quota(150000, 100000)
    assert limited.cgroups.quotas([CONTAINER_LIFT, POD_LIFT]) == ((POD_LIFT, Quota(150000, 100000)),)
    name, text = ("cpu.max", "max 100000") if limited.version == 2 else ("cpu.cfs_quota_us", "-1")
    assert limited.text("cpu", "kubepods/podb2/c3", name) == text
    assert limited.cgroups.lift_quota(CONTAINER_LIFT).lifted is None, "there is nothing to lift a second time"


def test_a_quota_comes_back_as_it_was(limited: MadeUpMachine) -> None:
    cgroups = limited.cgroups
    lifted = cgroups.lift_quota(POD_LIFT).lifted
    assert lifted is not None
    assert cgroups.restore_quota(POD_LIFT, lifted) is None
    assert [found for _, found in cgroups.quotas([POD_LIFT])] == [lifted]
    other = Quota(30000, 20000)
    assert cgroups.restore_quota(POD_LIFT, other) is None
    assert [found for _, found in cgroups.quotas([POD_LIFT])] == [other]


@pytest.mark.parametrize("path", ["/kubepods", "/kubepods/burstable", "kubepods-besteffort.slice"])
def test_the_quota_of_all_pods_is_never_lifted(limited: MadeUpMachine, path: str) -> None:
    result = limited.cgroups.lift_quota(LiftQuota(QuotaOf.POD, "b2", "", 0, path))
    assert result.trouble is CGroupTrouble.NOT_PERMITTED


def test_a_group_that_is_gone_is_reported(limited: MadeUpMachine) -> None:
    gone = LiftQuota(QuotaOf.CONTAINER, "b2", "c9", 0, "/kubepods/podb2/c9")
    assert limited.cgroups.lift_quota(gone).trouble is CGroupTrouble.GONE
    assert limited.cgroups.restore_quota(gone, Quota(1000, 100000)) is CGroupTrouble.GONE
    assert limited.cgroups.quotas([gone]) == ()


def test_a_quota_that_the_kernel_does_not_keep_is_reported(
    limited: MadeUpMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mooring.agent.cgroups.protocol.write", lambda _path, _text: None)
    assert limited.cgroups.lift_quota(CONTAINER_LIFT).trouble is CGroupTrouble.NOT_TAKEN
