"""The rules of the kernel about nested cpusets, as far as the order of writing matters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest.mock import patch

from mooring.agent.cgroups.files import CGroupTrouble, GroupError
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
        module = "mooring.agent.cgroups.cpuset"
        with patch.multiple(module, read=self.read, write=self.write, _children=self.children):
            yield
