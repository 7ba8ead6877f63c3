"""The kernel of a world's node: control groups of what a runtime runs, and which CPUs are online."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.agent.simulated_runtime import Runtime

from mooring.agent.nri.types import LinuxResources
from mooring.agent.reconcile import ONLINE
from mooring.engine.core.bits import list_text
from mooring.engine.core.cpuset import CPUSet

ALL = 0xFF
"""All CPUs of the machine."""


class Kernel:
    """Control groups of the containers and sandboxes of a runtime, and which CPUs are online."""

    def __init__(self, runtime: Runtime, root: Path) -> None:
        self._runtime, self._root = runtime, root
        self.online = ALL

    def show_online(self, online: int) -> None:
        self.online = online
        file = self._root / ONLINE
        beside = file.with_name(".online")
        beside.write_text(f"{list_text(online)}\n", encoding="ascii")
        beside.replace(file)

    def is_group(self, path: str) -> bool:
        parts = path.strip("/").split("/")
        if len(parts) == 1:
            return parts == ["pods"]
        sandbox = self._runtime.sandboxes.get(parts[-1])
        if len(parts) == 3:
            return sandbox is not None and sandbox.uid == parts[1] and sandbox.id not in self._runtime.stopped
        running = self._runtime.processes.get(parts[1])
        return (running is not None and running.runs) or any(
            one.uid == parts[1] and one.id not in self._runtime.stopped for one in self._runtime.sandboxes.values()
        )

    def read(self, path: str) -> str | None:
        group, _, name = path.rpartition("/")
        if not self.is_group(group):
            return None
        made = self._runtime.processes.get(group.rpartition("/")[2])
        has = LinuxResources() if made is None else made.cgroup
        cpus = CPUSet.parse(has.cpus).mask if has.cpus else ALL
        quota = "max" if has.quota is None or has.quota < 0 else str(has.quota)
        return {
            "cpuset.cpus": has.cpus or "",
            "cpuset.mems": has.mems or "",
            "cpuset.cpus.effective": list_text(cpus & self.online or self.online),
            "cpuset.mems.effective": has.mems or "0-1",
            "cpu.max": f"{quota} 100000",
            "cgroup.events": "populated 1\nfrozen 0",
            "cgroup.procs": "1",
        }.get(name)

    def write(self, path: str, text: str) -> bool:
        group, _, name = path.rpartition("/")
        if not self.is_group(group):
            return False
        made = self._runtime.processes.get(group.rpartition("/")[2])
        if made is not None:
            quota = text.split(maxsplit=1)[0] if text else "max"
            change: dict[str, LinuxResources] = {
                "cpuset.cpus": replace(made.cgroup, cpus=text),
                "cpuset.mems": replace(made.cgroup, mems=text),
                "cpu.max": replace(made.cgroup, quota=-1 if quota == "max" or not quota.isdigit() else int(quota)),
            }
            made.cgroup = change.get(name, made.cgroup)
        return True
