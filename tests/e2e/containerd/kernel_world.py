"""What runs where on this machine, by its control groups: the counterpart of the played machine's log."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tests.e2e.containerd.churn import Churn
from tests.e2e.containerd.runtime import cgroup_file

from mooring.engine.core.cpuset import CPUSet


@dataclass(slots=True)
class KernelWorld:
    """Reads cpusets while they change, and notes when two containers shared an exclusive CPU.

    Files are read one after another. So an overlap counts when the owner's program ran before and after the reading in
    which somebody else had its CPU: then it ran in between. While agent or runtime are away nothing is judged.
    """

    churn: Churn
    overlaps: list[str] = field(default_factory=list)
    looks: int = 0
    largest: int = 0
    written: int = 0
    _is_away: bool = False
    _seen: set[str] = field(default_factory=set)
    _gone: set[str] = field(default_factory=set)

    @property
    def lives(self) -> int:
        return self.churn.started

    @property
    def running(self) -> set[str]:
        """Containers whose program runs."""
        return {one for one in self._live() if self._runs(one)}

    @property
    def cpus(self) -> dict[str, int]:
        """Masks of the cpusets of all containers."""
        read = {one: self._cpus(one) for one in self._live()}
        return {one: found.mask for one, found in read.items() if found is not None}

    def mark(self, what: str) -> None:
        """Learn that agent or runtime go ``away``, or that both are back and all is ``settled``."""
        self._is_away = what == "away"

    def look(self) -> None:
        """Look at all containers."""
        self.looks += 1
        self.largest = max(self.largest, len(self._live()))
        if not self._is_away:
            self.overlaps += [f"{other} on CPUs of {owner}" for owner, other in self.sharing()]

    def sharing(self) -> list[tuple[str, str]]:
        """Return the pairs that share an exclusive CPU now: who has it, who else is there."""
        live = self._live()
        return [
            (owner, other)
            for owner in live
            if owner in self.churn.exclusive
            for other in live
            if other != owner and self._meet(owner, other)
        ]

    def _meet(self, owner: str, other: str) -> bool:
        own, its = self._cpus(owner), self._cpus(other)
        if own is None or its is None or not own & its or not self._runs(owner):
            return False
        its = self._cpus(other)
        return its is not None and bool(own & its) and self._runs(other) and self._runs(owner)

    def _live(self) -> list[str]:
        """Return the containers that have a cgroup."""
        known = [one for one in [*self.churn.made] if one not in self._gone]
        here = [one for one in known if self._file(one, "cgroup.procs").exists()]
        self._gone |= self._seen - {*here}
        self._seen = {*here}
        return here

    def _file(self, container: str, name: str) -> Path:
        return cgroup_file(self.churn.made[container], "cpuset", name)

    def _cpus(self, container: str) -> CPUSet | None:
        try:
            return CPUSet.parse(self._file(container, "cpuset.cpus").read_text(encoding="ascii").strip())
        except OSError:
            return None

    def _runs(self, container: str) -> bool:
        """Tell whether the container's own program runs, and not runc that prepares it."""
        try:
            pids = self._file(container, "cgroup.procs").read_text(encoding="ascii").split()
            return any(not Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").startswith("runc") for pid in pids)
        except OSError:
            return False
