"""What the kernel lets each single process and thread use.

A group bounds its tasks, and a task may bound itself further. What a task is allowed is the last word on where it runs,
and costs a file per task: this is for tests, and for an operator who asks.

Source: proc_pid_status(5).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.agent.small_node import nodes

from mooring.agent.state import Setting
from mooring.engine.core.bits import NUMAMask
from mooring.engine.core.cpuset import CPUSet, CPUSetSyntaxError

_CPUS = "Cpus_allowed_list"
_MEMS = "Mems_allowed_list"


@dataclass(frozen=True, slots=True)
class Task:
    """A process or one of its threads."""

    pid: int
    """Of the process."""
    tid: int
    """Of the thread; the first one of a process has the number of the process."""
    allowed: Setting


def tasks_of(root: str, folder: str) -> tuple[Task, ...]:
    """Return the tasks of a group and of all groups below it; those that end meanwhile are left out.

    Args:
        root: where the machine's ``/`` is, as in :class:`~mooring.agent.cgroups.files.CGroupLayout`.
        folder: of the group.
    """
    return tuple(
        task
        for processes in sorted(Path(folder).rglob("cgroup.procs"))
        for pid in _numbers(processes)
        for task in _threads(root, pid)
    )


def tasks_outside(tasks: tuple[Task, ...], cpus: CPUSet, mems: NUMAMask) -> tuple[Task, ...]:
    """Return the tasks that may use more than these CPUs and NUMA nodes; an empty set of either allows all."""
    return tuple(
        task for task in tasks if (cpus and not task.allowed.cpus <= cpus) or (mems and task.allowed.mems & ~mems)
    )


def allowed(root: str, pid: int, tid: int = 0) -> Setting | None:
    """Return what a task may use; None when there is no such task."""
    try:
        text = Path(f"{root}/proc/{pid}/task/{tid or pid}/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return parse_status(text)


def parse_status(text: str) -> Setting | None:
    r"""Read ``/proc/PID/status``; None without the two lists.

    >>> parse_status("Name:\tx\nCpus_allowed_list:\t2-3\nMems_allowed_list:\t0\n").cpus
    CPUSet('2-3')
    """
    lines = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    try:
        return Setting(CPUSet.parse(lines[_CPUS].strip()), nodes(lines[_MEMS].strip()))
    except (KeyError, CPUSetSyntaxError):
        return None


def _threads(root: str, pid: int) -> Iterator[Task]:
    try:
        names = sorted(entry.name for entry in Path(f"{root}/proc/{pid}/task").iterdir())
    except OSError:
        return
    for name in names:
        if (found := allowed(root, pid, int(name))) is not None:
            yield Task(pid, int(name), found)


def _numbers(path: Path) -> list[int]:
    try:
        return [int(line) for line in path.read_text(encoding="ascii").split()]
    except (OSError, ValueError):
        return []
