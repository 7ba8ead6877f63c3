"""The control groups of the machine that the tests run on, in a group of our own that is removed again."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.agent.sets import cpuset_write
from tests.e2e.guest.process_tasks import allowed, tasks_of, tasks_outside

from mooring.agent.cgroups.cpuset import in_effect, write_cpuset
from mooring.agent.cgroups.files import CGroupTrouble, GroupError, Hierarchy, find_layout, read, write
from mooring.agent.cgroups.locate import process_path
from mooring.agent.cgroups.protocol import KernelCGroups, Quota, write_quota
from mooring.agent.effects import LiftQuota, QuotaOf, WriteCPUSet
from mooring.engine.core.bits import NO_NODES, list_text
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import InputError

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
    everything = in_effect(cpuset, str(place.folder(cpuset)))
    first = CPUSet.of(next(iter(everything.cpus)))
    result = place.cgroups.write_cpuset(place.wanted(str(first), list_text(everything.mems)))
    assert result.is_right, result.problem
    seen = allowed("", place.pid)
    assert seen is not None
    assert seen.cpus == first
    tasks = tasks_of("", str(place.folder(cpuset)))
    assert [task.pid for task in tasks] == [place.pid]
    assert tasks_outside(tasks, first, everything.mems) == ()
    assert place.cgroups.deviations([place.wanted(str(first))]) == ()
    assert place.cgroups.write_cpuset(place.wanted(str(everything.cpus))).is_right


def test_a_real_group_is_found_through_its_process(place: Place) -> None:
    path = process_path(place.cgroups.layout, place.cgroups.layout.cpuset, place.pid)
    assert path is not None
    assert path.endswith(f"/pod{UID}/c3")
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
    cpus = list(in_effect(cpuset, str(place.folder(cpuset))).cpus)
    if len(cpus) < 2:
        pytest.skip("two CPUs are needed")
    pod, container = (str(place.folder(cpuset, path)) for path in (f"pod{UID}", f"pod{UID}/c3"))
    first, second = CPUSet.of(cpus[0]), CPUSet.of(cpus[1])
    for folder in (container, pod):
        write_cpuset(cpuset, folder, first, NO_NODES)
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
    assert [place.cgroups.lift_quota(lift).lifted for lift in lifts] == [limit, limit]
    assert place.cgroups.quotas(lifts) == ()
    for lift in reversed(lifts):
        assert place.cgroups.restore_quota(lift, Quota(20000, 50000)) is None
    assert len(place.cgroups.quotas(lifts)) == 2
