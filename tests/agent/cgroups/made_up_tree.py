"""Machines with control groups, made of plain files: what is written into a group is in effect at once.

A kernel's file has a value at any moment. A plain file that is written anew is empty for one: who reads it here reads
again, and what a test writes takes the place of the file in one step.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.patience import until

from mooring.agent.cgroups.files import find_layout
from mooring.agent.cgroups.protocol import KernelCGroups

V1 = """\
31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
"""
HYBRID = V1 + "41 31 0:40 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"
V2 = "31 23 0:28 / /sys/fs/cgroup rw,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
FILES = {
    1: {
        "cpuset": {"cpuset.cpus": "0-7", "cpuset.mems": "0-1"},
        "cpu": {"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"},
    },
    2: {"cpuset": {"cpuset.cpus": "", "cpuset.mems": ""}, "cpu": {"cpu.max": "max 100000"}},
}
IN_EFFECT = {
    1: {"cpuset.cpus": "cpuset.effective_cpus", "cpuset.mems": "cpuset.effective_mems"},
    2: {"cpuset.cpus": "cpuset.cpus.effective", "cpuset.mems": "cpuset.mems.effective"},
}


@dataclass(frozen=True, slots=True)
class MadeUpMachine:
    root: Path
    version: int

    @property
    def cgroups(self) -> KernelCGroups:
        return KernelCGroups(find_layout(self.root))

    def folder(self, controller: str, path: str = "") -> Path:
        name = "" if self.version == 2 else "cpu,cpuacct" if controller == "cpu" else controller
        # Runtimes begin paths with a slash, and joining such a one would lead out of the tree.
        return self.root / "sys/fs/cgroup" / name / path.lstrip("/")

    def group(self, path: str, **values: str) -> None:
        """Make a group; names of files are given with underscores for dots."""
        for controller, files in FILES[self.version].items():
            folder = self.folder(controller, path)
            folder.mkdir(parents=True, exist_ok=True)
            for name, text in files.items():
                self.put(controller, path, name, values.get(name.replace(".", "_"), text))
                if controller == "cpuset":
                    (folder / IN_EFFECT[self.version][name]).symlink_to(name)

    def remove(self, path: str) -> None:
        """Remove a group and all below it."""
        for controller in ("cpuset", "cpu"):
            shutil.rmtree(self.folder(controller, path), ignore_errors=True)

    def process(self, pid: int, text: str) -> None:
        (self.root / f"proc/{pid}").mkdir(parents=True)
        (self.root / f"proc/{pid}/cgroup").write_text(text)
        (self.root / f"proc/{pid}/stat").write_text(f"{pid} (the (main) program) S 1 1 1 0")

    def text(self, controller: str, path: str, name: str) -> str:
        """Return the value of a file of a group."""
        file = self.folder(controller, path) / name
        text = ""

        def has_value() -> bool:
            nonlocal text
            text = file.read_text()
            return bool(text)

        until(has_value, f"{file} has a value")
        return text.strip()

    def put(self, controller: str, path: str, name: str, text: str) -> None:
        """Write a value into a file of a group, past the agent."""
        file = self.folder(controller, path) / name
        beside = file.with_name(f".{name}")
        beside.write_text(f"{text}\n")
        beside.replace(file)


def made_up_machine(root: Path, version: int, mounts: str = "") -> MadeUpMachine:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/mountinfo").write_text(mounts or (V1, V2)[version - 1])
    machine = MadeUpMachine(root, version)
    machine.group("")
    if version == 2:
        (machine.folder("cpuset") / "cgroup.controllers").write_text("cpuset cpu io memory\n")
    return machine
