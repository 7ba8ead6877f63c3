"""What is read of groups and written into them, on made-up files and on the kernel of this machine."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.agent.cgroups.made_up_tree import MadeUpMachine, made_up_machine
from tests.agent.small_node import cpuset_write, nodes
from tests.e2e.guest.process_tasks import allowed, tasks_of, tasks_outside
from tests.values import not_none

from mooring.agent.cgroups.files import CGroupTrouble, GroupError, Hierarchy, find_layout, read, write
from mooring.agent.cgroups.protocol import KernelCGroups, Quota, format_max, parse_max, write_quota
from mooring.agent.effects import LiftQuota, QuotaOf, WriteCPUSet
from mooring.agent.state import Setting
from mooring.engine.core.bits import list_text
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import InputError

POD = "kubepods/pod0a1b2c3d-0000-1111-2222-333344445555"


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> MadeUpMachine:
    made = made_up_machine(tmp_path, request.param)
    for path in ("kubepods", POD, f"{POD}/c3", f"{POD}/c4"):
        made.group(path, cpuset_cpus="0-7", cpuset_mems="0-1")
    return made


def wanted(cpus: str, mems: str = "", container: str = "c3") -> WriteCPUSet:
    return cpuset_write(container, 0, f"/{POD}/{container}", cpus, mems)


def test_an_empty_text_leaves_its_file_alone(machine: MadeUpMachine) -> None:
    assert machine.cgroups.write_cpuset(wanted("", "0")).is_right
    assert machine.text("cpuset", f"{POD}/c3", "cpuset.cpus") == "0-7"


def test_a_group_without_the_controller_is_a_deviation(machine: MadeUpMachine) -> None:
    for file in machine.folder("cpuset", f"{POD}/c3").iterdir():
        file.unlink()
    assert machine.cgroups.write_cpuset(wanted("2-3")).trouble is CGroupTrouble.NO_CONTROLLER
    (found,) = machine.cgroups.deviations([wanted("2-3")])
    assert (found.trouble, found.after) == (CGroupTrouble.NO_CONTROLLER, None)


def test_deviations_name_what_is_there_and_what_is_too_much(machine: MadeUpMachine) -> None:
    cgroups = machine.cgroups
    cgroups.write_cpuset(wanted("0-3", "0"))
    assert cgroups.deviations([wanted("0-3", "0"), wanted("0-7", container="c4")]) == ()
    (found,) = cgroups.deviations([wanted("2-5", "0")])
    assert found.trouble is None
    assert not_none(found.after).cpus == CPUSet.parse("0-3")
    (found,) = cgroups.deviations([wanted("0-3", "1")])
    assert not_none(found.after).mems == nodes("0")


def test_what_no_write_can_repair_is_told_apart(tmp_path: Path) -> None:
    machine = made_up_machine(tmp_path, 2)
    machine.group(f"{POD}/c3", cpuset_cpus="2-3")
    machine.group(POD)
    folder = machine.folder("cpuset", f"{POD}/c3")
    (folder / "cpuset.cpus.effective").unlink()
    (folder / "cpuset.cpus.effective").write_text("2\n")
    (offline,) = machine.cgroups.deviations([wanted("2-3")])
    assert offline.trouble is CGroupTrouble.NOT_TAKEN
    (machine.folder("cpuset", POD) / "cpuset.cpus").write_text("0-2\n")
    (narrow,) = machine.cgroups.deviations([wanted("2-3")])
    assert narrow.trouble is None


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


def test_a_value_that_the_kernel_drops_is_reported(machine: MadeUpMachine, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert limited.cgroups.lift_quota(CONTAINER_LIFT) == Quota(150000, 100000)
    assert limited.cgroups.quotas([CONTAINER_LIFT, POD_LIFT]) == ((POD_LIFT, Quota(150000, 100000)),)
    name, text = ("cpu.max", "max 100000") if limited.version == 2 else ("cpu.cfs_quota_us", "-1")
    assert limited.text("cpu", "kubepods/podb2/c3", name) == text
    assert limited.cgroups.lift_quota(CONTAINER_LIFT) is None, "there is nothing to lift a second time"


def test_a_quota_comes_back_as_it_was(limited: MadeUpMachine) -> None:
    cgroups = limited.cgroups
    lifted = not_none(cgroups.lift_quota(POD_LIFT))
    assert cgroups.restore_quota(POD_LIFT, lifted) is None
    assert [found for _, found in cgroups.quotas([POD_LIFT])] == [lifted]
    other = Quota(30000, 20000)
    assert cgroups.restore_quota(POD_LIFT, other) is None
    assert [found for _, found in cgroups.quotas([POD_LIFT])] == [other]


@pytest.mark.parametrize("path", ["/kubepods", "/kubepods/burstable", "kubepods-besteffort.slice"])
def test_the_quota_of_all_pods_is_never_lifted(limited: MadeUpMachine, path: str) -> None:
    with pytest.raises(GroupError, match="not permitted"):
        limited.cgroups.lift_quota(LiftQuota(QuotaOf.POD, "b2", "", 0, path))


def test_a_group_that_is_gone_is_reported(limited: MadeUpMachine) -> None:
    gone = LiftQuota(QuotaOf.CONTAINER, "b2", "c9", 0, "/kubepods/podb2/c9")
    with pytest.raises(GroupError, match="gone"):
        limited.cgroups.lift_quota(gone)
    assert limited.cgroups.restore_quota(gone, Quota(1000, 100000)) is CGroupTrouble.GONE
    assert limited.cgroups.quotas([gone]) == ()


def test_a_quota_that_the_kernel_drops_is_reported(limited: MadeUpMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mooring.agent.cgroups.protocol.write", lambda _path, _text: None)
    with pytest.raises(GroupError, match="not taken"):
        limited.cgroups.lift_quota(CONTAINER_LIFT)


# The control groups of the machine that the tests run on, in a group of our own that is removed again.


UID = "0a1b2c3d-0000-1111-2222-333344445555"


@dataclass(frozen=True)
class Place:
    """A pod's group with a container's in it, in which a process sleeps."""

    cgroups: KernelCGroups
    name: str
    pid: int

    def folder(self, hierarchy: Hierarchy, path: str = "") -> Path:
        return Path(hierarchy.mount, self.name.strip("/"), path)

    def wanted(self, cpus: str, mems: str = "") -> WriteCPUSet:
        return cpuset_write("c3", self.pid, f"{self.name}/pod{UID}/c3", cpus, mems)

    def everything(self) -> Setting:
        """Return what the group above the pod's has."""
        return not_none(self.cgroups.in_effect(cpuset_write("", 0, self.name, "", "")))


@pytest.fixture
def place() -> Iterator[Place]:
    if os.geteuid() != 0:
        pytest.skip("control groups are written by root only")
    try:
        cgroups = KernelCGroups(find_layout())
    except InputError as why:
        pytest.skip(f"no control groups here: {why}")
    layout = cgroups.layout
    made: list[Path] = []
    sleeper = subprocess.Popen(["sleep", "600"])  # noqa: S607 - any sleep
    try:
        name = f"/mooring-test-{os.getpid()}"
        here = Place(cgroups, name, sleeper.pid)
        for hierarchy in {one.mount: one for one in (layout.cpuset, layout.cpu) if one is not None}.values():
            _make(here, hierarchy, made)
        yield here
    finally:
        sleeper.kill()
        sleeper.wait()
        for folder in reversed(made):
            for below in sorted((one for one in folder.rglob("*") if one.is_dir()), reverse=True):
                below.rmdir()
            folder.rmdir()


def _make(here: Place, hierarchy: Hierarchy, made: list[Path]) -> None:
    try:
        for path in ("", f"pod{UID}", f"pod{UID}/c3"):
            folder = here.folder(hierarchy, path)
            if hierarchy.version == 2:
                write(f"{folder.parent}/cgroup.subtree_control", "+cpuset +cpu")
            folder.mkdir()
            made.append(folder)
            if hierarchy.version == 1 and hierarchy.controller == "cpuset":
                for file in ("cpuset.cpus", "cpuset.mems"):
                    write(f"{folder}/{file}", read(f"{folder.parent}/{file}"))
        write(f"{folder}/cgroup.procs", str(here.pid))
    except (OSError, GroupError) as why:
        for folder in reversed(made):
            folder.rmdir()
        made.clear()
        pytest.skip(f"control groups cannot be made here: {why}")


def test_a_real_process_follows_its_cpuset(place: Place) -> None:
    cpuset = place.cgroups.layout.cpuset
    everything = place.everything()
    first = CPUSet.of(next(iter(everything.cpus)))
    result = place.cgroups.write_cpuset(place.wanted(str(first), list_text(everything.mems)))
    assert result.is_right, result.problem
    assert not_none(allowed("", place.pid)).cpus == first
    tasks = tasks_of("", str(place.folder(cpuset)))
    assert [task.pid for task in tasks] == [place.pid]
    assert tasks_outside(tasks, first, everything.mems) == ()
    assert place.cgroups.deviations([place.wanted(str(first))]) == ()
    assert place.cgroups.write_cpuset(place.wanted(str(everything.cpus))).is_right


def test_a_real_group_is_found_through_its_process(place: Place) -> None:
    elsewhere = cpuset_write("c3", place.pid, "/nowhere/c3", "0", "")
    assert place.cgroups.in_effect(elsewhere) == place.cgroups.in_effect(place.wanted(""))


def test_a_real_kernel_says_no_to_what_it_does_not_have(place: Place) -> None:
    before = place.cgroups.in_effect(place.wanted(""))
    result = place.cgroups.write_cpuset(place.wanted("99999"))
    assert (result.trouble, result.after) == (CGroupTrouble.OUT_OF_RANGE, before)
    assert "99999" in result.problem
    cpuset = place.cgroups.layout.cpuset
    with pytest.raises(GroupError) as caught:
        write(f"{place.folder(cpuset, f'pod{UID}/c3')}/cpuset.cpus", "nonsense")
    assert caught.value.trouble is CGroupTrouble.REFUSED


def test_a_real_narrow_pod_is_widened_and_groups_below_are_narrowed(place: Place) -> None:
    cpuset = place.cgroups.layout.cpuset
    cpus = list(place.everything().cpus)
    if len(cpus) < 2:
        pytest.skip("two CPUs are needed")
    pod, container = (str(place.folder(cpuset, path)) for path in (f"pod{UID}", f"pod{UID}/c3"))
    first, second = CPUSet.of(cpus[0]), CPUSet.of(cpus[1])
    for folder in (container, pod):
        write(f"{folder}/cpuset.cpus", str(first))
    assert place.cgroups.write_cpuset(place.wanted(str(first | second))).is_right
    if cpuset.version == 1:
        Path(container, "own").mkdir()
        write(f"{container}/own/cpuset.cpus", str(second))
        assert place.cgroups.write_cpuset(place.wanted(str(first))).is_right
        assert read(f"{container}/own/cpuset.cpus") == str(first)


def test_a_real_quota_is_lifted_and_comes_back(place: Place) -> None:
    cpu = place.cgroups.layout.cpu
    if cpu is None or not (Path(cpu.mount) / place.name.strip("/")).exists():
        pytest.skip("no cpu controller here")
    lifts = [
        LiftQuota(QuotaOf.CONTAINER, UID, "c3", place.pid, f"{place.name}/pod{UID}/c3"),
        LiftQuota(QuotaOf.POD, UID, "", place.pid, f"{place.name}/pod{UID}"),
    ]
    limit = Quota(50000, 100000)
    for path in (f"pod{UID}", f"pod{UID}/c3"):
        write_quota(cpu, str(place.folder(cpu, path)), limit)
    assert [found for _, found in place.cgroups.quotas(lifts)] == [limit, limit]
    assert [place.cgroups.lift_quota(lift) for lift in lifts] == [limit, limit]
    assert place.cgroups.quotas(lifts) == ()
    for lift in reversed(lifts):
        assert place.cgroups.restore_quota(lift, Quota(20000, 50000)) is None
    assert len(place.cgroups.quotas(lifts)) == 2
