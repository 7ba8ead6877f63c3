"""What a process costs, as the kernel counts it: memory, descriptors, threads and CPU time, once per look."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

Look: TypeAlias = "dict[str, float]"


def look_at(pid: int) -> Look:
    """Return resident MiB, descriptors, threads and CPU seconds of a process."""
    folder = Path(f"/proc/{pid}")
    lines = dict(line.split(":", 1) for line in (folder / "status").read_text(encoding="ascii").splitlines())
    tasks = [(task / "schedstat").read_text(encoding="ascii") for task in (folder / "task").iterdir()]
    return {
        "resident": int(lines["VmRSS"].split()[0]) / 1024,
        "descriptors": len([*(folder / "fd").iterdir()]),
        "threads": int(lines["Threads"]),
        "cpu": sum(int(text.split()[0]) for text in tasks) / 1e9,
    }


@dataclass(slots=True)
class Census:
    """All looks at the processes of one kind, for example at every agent of a run."""

    looks: list[Look] = field(default_factory=list)

    def add(self, pid: int) -> Look:
        """Look at a process."""
        self.looks.append(look_at(pid))
        return self.looks[-1]

    def ranges(self) -> str:
        """Return the least and the most of each figure but CPU time, in words."""
        names = ("resident", "descriptors", "threads")
        both = {name: (min(one[name] for one in self.looks), max(one[name] for one in self.looks)) for name in names}
        return ", ".join(f"{name} {least:.0f} to {most:.0f}" for name, (least, most) in both.items())
