"""What the program ``one_thread_per_cpu`` tells from inside its container of the CPUs that it has and is told.

Its times are the guest's ``CLOCK_MONOTONIC``, as :func:`time.monotonic_ns` has it, so that they can be compared with
those of requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from mooring.engine.core.cpuset import CPUSet

PROGRAM = "one_thread_per_cpu"
PROGRAMS = "/opt/programs"
"""The folder that has it: in the guest, where the host has put it, and mounted into containers."""
FOLDER = "/run/mooring-assigned"
FILE = f"{FOLDER}/assigned.cpuset"
LOG = "/tmp/told"  # noqa: S108 - of a container that is alone with it
COMMAND = (f"{PROGRAMS}/{PROGRAM}", FOLDER, LOG)
MOUNTS: Mapping[str, str] = {PROGRAMS: PROGRAMS}
NOT_TOLD = "none"
"""What the program says of its file where the container has none."""


@dataclass(frozen=True, slots=True)
class Line:
    """Something that was told."""

    at: int
    """Nanoseconds."""
    what: str
    text: str


@dataclass(frozen=True)
class Inside:
    """A container in which the program runs."""

    group: Path
    """Its control group."""

    @cached_property
    def pid(self) -> int:
        return int((self.group / "cgroup.procs").read_text(encoding="utf-8").split()[0])

    def lines(self, what: str = "", *, since: int = 0) -> list[Line]:
        """Return what was told, of one kind or all, from a moment on."""
        path = Path(f"/proc/{self.pid}/root{LOG}")
        whole = path.read_text(encoding="utf-8").rpartition("\n")[0] if path.exists() else ""
        found = (Line(int(at), kind, text) for at, kind, text in (line.split(" ", 2) for line in whole.splitlines()))
        return [line for line in found if line.at >= since and what in ("", line.what)]

    def last(self, what: str) -> str:
        """Return what was told last of one kind; nothing is an empty text."""
        found = self.lines(what)
        return found[-1].text if found else ""

    def says(self, what: str, text: str) -> bool:
        """Tell whether a text of one kind was told last."""
        found = self.lines(what)
        return bool(found) and found[-1].text == text

    def when(self, what: str, text: str, *, since: int) -> int:
        """Return when something was told first after a moment.

        Raises:
            AssertionError: it was not.
        """
        found = [line for line in self.lines(what, since=since) if line.text == text]
        assert found, (what, text, self.lines(since=since))
        return found[0].at

    def cpus(self) -> str:
        """Return where the kernel lets the program run: Cpus_allowed_list."""
        return allowed_of(Path(f"/proc/{self.pid}"))

    def file(self) -> str:
        """Return what the mounted file says now."""
        path = Path(f"/proc/{self.pid}/root{FILE}")
        return path.read_text("ascii") if path.exists() else NOT_TOLD

    @property
    def is_told(self) -> bool:
        """Whether the file is there and names CPUs."""
        return self.file() not in ("", NOT_TOLD)

    def threads(self) -> Iterator[tuple[str, int, str]]:
        """Yield name, CPU on which it runs or ran last, and Cpus_allowed_list of each thread."""
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            try:
                yield *name_and_processor(task), allowed_of(task)
            except (OSError, StopIteration):
                continue

    def is_pinned(self) -> bool:
        """Tell whether each thread that is called after a CPU may run there and nowhere else."""
        return all(name == f"cpu{allowed}" for name, _, allowed in self.threads() if name.startswith("cpu"))

    def complaints(self) -> list[Line]:
        """Return what the program found wrong."""
        return [line for line in self.lines() if line.what in ("error", "stray")]


def allowed_of(process: Path) -> str:
    """Return the Cpus_allowed_list of a process or thread."""
    lines = (process / "status").read_text(encoding="utf-8").splitlines()
    return next(line for line in lines if line.startswith("Cpus_allowed_list:")).split()[1]


def name_and_processor(task: Path) -> tuple[str, int]:
    """Return name and CPU of a thread from its ``stat``; names may contain spaces and brackets.

    Source: proc(5), field 39.
    """
    text = (task / "stat").read_text(encoding="utf-8")
    name, _, rest = text.partition("(")[2].rpartition(")")
    return name, int(rest.split()[36])


def size_of(cpus: str) -> int:
    """Return how many CPUs a list has."""
    return len(CPUSet.parse(cpus))


def within(one: str, other: str) -> bool:
    """Tell whether a list of CPUs is part of another."""
    return CPUSet.parse(one) <= CPUSet.parse(other)


def ids(cpus: str) -> set[int]:
    """Return the CPUs of a list."""
    return set(CPUSet.parse(cpus))
