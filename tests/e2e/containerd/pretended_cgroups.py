"""The control groups of the large machine that the wrapped runc plays: cpusets by the lines of its log.

``python -m tests.e2e.containerd.pretended_cgroups FOLDER CPUS MEMS agent ...`` is ``mooring agent`` over them.
Everything else is the agent as it is: what it writes past the runtime goes into the log as lines with the verb
``write``.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from unittest.mock import patch

from tests.agent.small_node import nodes
from tests.e2e.containerd.wrapper import Reader, tell

from mooring.agent.cgroups.cpuset import parsed, shows
from mooring.agent.cgroups.files import CGroupTrouble
from mooring.agent.cgroups.protocol import CPUSetSeen, UnseenCGroups
from mooring.agent.effects import WriteCPUSet
from mooring.agent.state import Setting
from mooring.command.main import run
from mooring.engine.core.bits import list_text

_ID_LENGTH = 64
"""Of a container's id, with which the path of its group ends."""


class PretendedCGroups(UnseenCGroups):
    """:class:`~mooring.agent.cgroups.protocol.CGroups` of the wrapper's log; quotas are not played."""

    def __init__(self, folder: Path, every: Setting) -> None:
        """Begin to follow a log.

        Args:
            folder: of the log.
            every: what a container may use of which no list was asked.
        """
        self._folder, self._every = folder, every
        self._lock = threading.Lock()
        self._log = Reader(folder)
        self._cpus: dict[str, str] = {}
        self._mems: dict[str, str] = {}
        self._running: set[str] = set()

    def write_cpuset(self, wanted: WriteCPUSet) -> CPUSetSeen:
        before = self.in_effect(wanted)
        if before is None:
            return CPUSetSeen(wanted, trouble=CGroupTrouble.GONE)
        if shows(before, wanted):
            return CPUSetSeen(wanted, before, before)
        tell(self._folder, "write", wanted.container_id, str(wanted.cpus), list_text(wanted.mems))
        return CPUSetSeen(wanted, before, self.in_effect(wanted), wrote=True)

    def in_effect(self, place: WriteCPUSet) -> Setting | None:
        with self._lock:
            self._follow()
            if place.container_id not in self._cpus:
                return None
            cpus, mems = self._cpus[place.container_id], self._mems[place.container_id]
        return Setting(parsed(cpus) if cpus else self._every.cpus, nodes(mems) if mems else self._every.mems)

    def has_processes(self, cgroup: str, pid: int) -> bool:
        del pid
        with self._lock:
            self._follow()
            return cgroup[-_ID_LENGTH:] in self._running

    def deviations(self, wanted: Iterable[WriteCPUSet]) -> tuple[CPUSetSeen, ...]:
        found = [(one, self.in_effect(one)) for one in wanted]
        return tuple(CPUSetSeen(one, after=seen) for one, seen in found if seen is not None and not shows(seen, one))

    def _follow(self) -> None:
        for line in self._log.new():
            if line.verb == "start":
                self._running.add(line.id)
            elif line.verb in ("kill", "delete"):
                self._running.discard(line.id)
            if line.verb == "delete":
                self._cpus.pop(line.id, None)
                self._mems.pop(line.id, None)
            elif line.verb in ("create", "update", "write"):
                self._cpus[line.id] = line.cpus or self._cpus.get(line.id, "")
                self._mems[line.id] = line.mems or self._mems.get(line.id, "")


def main(folder: Path, every: Setting, words: list[str]) -> int:
    with patch("mooring.agent.startup.UnseenCGroups", lambda: PretendedCGroups(folder, every)):
        return run(words)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Setting(parsed(sys.argv[2]), nodes(sys.argv[3])), sys.argv[4:]))
