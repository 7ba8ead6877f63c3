"""The rules of the kernel about nested cpusets, as far as the order of writing matters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.agent.small_node import cpuset_write
from tests.values import not_none

from mooring.agent.cgroups.files import CGroupLayout, CGroupTrouble, GroupError, Hierarchy
from mooring.agent.cgroups.protocol import CPUSetSeen, KernelCGroups
from mooring.engine.core.bits import CPUMask
from mooring.engine.core.cpuset import CPUSet

TOP = "/cg"


@dataclass
class SimulatedCpusets:
    """Groups by path; the top is the machine. Only ``cpuset.cpus`` matters, NUMA nodes are all there always."""

    version: int
    groups: dict[str, CPUSet]
    ever: list[dict[str, CPUSet]] = field(default_factory=list)
    """What was in effect after each write."""

    def children(self, path: str) -> list[str]:
        return sorted(one for one in self.groups if one.rpartition("/")[0] == path)

    def in_effect(self, path: str) -> CPUSet:
        if path == TOP or self.version == 1:
            return self.groups[path]
        above = self.in_effect(path.rpartition("/")[0])
        return self.groups[path] & above or above

    def read(self, file: str) -> str:
        folder, _, name = file.rpartition("/")
        if folder not in self.groups:
            raise GroupError(CGroupTrouble.GONE, file)
        if "mems" in name:
            return "0"
        return str(self.in_effect(folder) if "effective" in name else self.groups[folder])

    def write(self, file: str, text: str) -> None:
        folder, _, name = file.rpartition("/")
        assert name == "cpuset.cpus"
        assert folder != TOP, "the top is not ours"
        wanted = CPUSet.parse(text)
        above = self.groups[folder.rpartition("/")[0]]
        if not wanted <= self.groups[TOP]:
            raise GroupError(CGroupTrouble.OUT_OF_RANGE, file)
        if self.version == 1:
            if not wanted:
                raise GroupError(CGroupTrouble.NO_ROOM, file)
            if not all(self.groups[child] <= wanted for child in self.children(folder)):
                raise GroupError(CGroupTrouble.BUSY, file)
            if not wanted <= above:
                raise GroupError(CGroupTrouble.OUTSIDE_PARENT, file)
        self.groups[folder] = wanted
        self.ever.append({path: self.in_effect(path) for path in self.groups})

    @contextmanager
    def in_place(self) -> Iterator[None]:
        cgroups = "mooring.agent.cgroups"
        with (
            patch.multiple(f"{cgroups}.cpuset", read=self.read, write=self.write, _children=self.children),
            patch(f"{cgroups}.locate.os.path.isdir", self.groups.__contains__),
        ):
            yield


# Laws of writing cpusets, against a simulation of the kernel's rules.


POD = f"{TOP}/kubepods/pod0a1b2c3d-0000-1111-2222-333344445555"
CONTAINER = f"{POD}/c3"
ALL = CPUSet.parse("0-7")


@dataclass(frozen=True)
class Case:
    cpusets: SimulatedCpusets
    wanted: CPUSet

    def written(self, *more: int) -> CPUSetSeen:
        """Give the container what is wanted, and further CPUs."""
        layout = CGroupLayout("", Hierarchy(self.cpusets.version, TOP, "cpuset"), None)
        cpus = str(self.wanted | CPUSet.of(*more))
        name = CONTAINER.removeprefix(TOP)
        return KernelCGroups(layout).write_cpuset(cpuset_write("c3", 0, name, cpus, ""))


@st.composite
def cases(draw: st.DrawFn, version: int, *, whole_pods: bool) -> Case:
    """A machine of 8 CPUs, a pod, a container, and groups of its own below the container."""

    def part(of: CPUSet) -> CPUSet:
        return CPUSet(draw(st.integers(1, 255)) & of.mask or of.mask)

    groups = {TOP: ALL, f"{TOP}/kubepods": ALL}
    groups[POD] = ALL if whole_pods else part(ALL)
    groups[CONTAINER] = part(groups[POD])
    for name in draw(st.lists(st.sampled_from(["a", "a/b", "a/b/c", "d"]), unique=True)):
        parts = name.split("/")
        for depth in range(len(parts)):
            path = f"{CONTAINER}/{'/'.join(parts[: depth + 1])}"
            groups.setdefault(path, part(groups[path.rpartition("/")[0]]))
    if version == 2:
        groups = {path: cpus if path == TOP or draw(st.booleans()) else CPUSet() for path, cpus in groups.items()}
        groups[f"{TOP}/kubepods"] = CPUSet()
    return Case(SimulatedCpusets(version, groups), CPUSet(CPUMask(draw(st.integers(1, 255)))))


@pytest.mark.parametrize("version", [1, 2])
@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_a_container_has_what_is_wanted_whatever_its_pod_and_own_groups_had(version: int, data: st.DataObject) -> None:
    case = data.draw(cases(version, whole_pods=False))
    before = dict(case.cpusets.groups)
    with case.cpusets.in_place():
        assert case.written().is_right
        writes = len(case.cpusets.ever)
        assert not case.written().wrote, "a second time nothing is written"
        assert len(case.cpusets.ever) == writes
    below = [path for path in before if path.startswith(f"{CONTAINER}/")]
    assert all(case.cpusets.in_effect(path) <= case.wanted for path in below)
    assert case.cpusets.groups[f"{TOP}/kubepods"] == before[f"{TOP}/kubepods"]
    assert before[POD] <= case.cpusets.groups[POD], "a pod never becomes narrower"


@pytest.mark.parametrize("version", [1, 2])
@settings(deadline=None, max_examples=100)
@given(data=st.data())
def test_nobody_is_on_a_cpu_meanwhile_that_is_neither_his_before_nor_after(version: int, data: st.DataObject) -> None:
    case = data.draw(cases(version, whole_pods=True))
    before = case.cpusets.in_effect(CONTAINER)
    with case.cpusets.in_place():
        case.written()
    assert all(seen[CONTAINER] <= (before | case.wanted) for seen in case.cpusets.ever)


@pytest.mark.parametrize("version", [1, 2])
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_what_the_machine_does_not_have_is_reported_and_the_rest_is_taken(version: int, data: st.DataObject) -> None:
    case = data.draw(cases(version, whole_pods=True))
    case.cpusets.groups = {path: cpus for path, cpus in case.cpusets.groups.items() if len(path) <= len(CONTAINER)}
    with case.cpusets.in_place():
        found = case.written(9)
    assert found.trouble is CGroupTrouble.OUT_OF_RANGE
    assert not_none(found.after).cpus == case.wanted
