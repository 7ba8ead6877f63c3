"""Containers as the kernel sees them: from outside by ``/proc`` and the control groups, and by a witness inside.

Nothing of Mooring is used but the form of a CPU set: this is what its decisions are held against.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.patience import until

from mooring.engine.core.cpuset import CPUSet

TOUCHED = 2**20
"""Bytes that the witness has touched."""
PAGE = 4096
_TOLD, _READY = "tmp/told", "tmp/ready"
WITNESS = (
    "sh",
    "-c",
    """
text=0123456789abcdef
while [ ${#text} -lt 1048576 ]; do text=$text$text; done
tell() {
  while read -r key value; do
    case $key in *_allowed_list:) echo "$key $value" ;; esac
  done </proc/self/status
  for name in cpuset.cpus.effective cpuset.mems.effective cpu.max; do
    read -r value </sys/fs/cgroup/$name
    echo "$name: $value"
  done
  while read -r line; do
    case $line in *anon=*) echo "map: $line" ;; esac
  done </proc/self/numa_maps
  echo "end: "
}
trap 'tell >/tmp/told' USR1
: >/tmp/ready
sleep 1000000 &
while :; do wait; done
""",
)
"""A container's command: a shell that has touched memory, and writes down what the kernel shows it when it is asked."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """Where a process may run."""

    pid: int
    cpus: CPUSet
    mems: CPUSet


@dataclass(frozen=True, slots=True)
class Told:
    """What the witness in a container told."""

    cpus: CPUSet
    """Cpus_allowed_list."""
    mems: CPUSet
    """Mems_allowed_list."""
    effective_cpus: CPUSet
    effective_mems: CPUSet
    cpu_max: str
    pages: dict[int, int]
    """Of the touched memory, by NUMA node."""


def processes(group: Path) -> Iterator[Allowed]:
    """Yield the processes of a control group and of those below it.

    Those of the OCI runtime, which are not yet the user's program, are left out.
    """
    for pid in _pids(group):
        try:
            fields = dict(_fields(Path(f"/proc/{pid}/status").read_text(encoding="utf-8")))
        except OSError:
            continue
        if not fields["Name"].startswith(("runc", "crun")) and fields["State"][0] not in "XZ":
            yield Allowed(pid, CPUSet.parse(fields["Cpus_allowed_list"]), CPUSet.parse(fields["Mems_allowed_list"]))


def allowed(group: Path) -> Allowed | None:
    """Return where the processes of a group may run, all together; None when there is none."""
    found = list(processes(group))
    if not found:
        return None
    cpus, mems = CPUSet(), CPUSet()
    for one in found:
        cpus, mems = cpus | one.cpus, mems | one.mems
    return Allowed(found[0].pid, cpus, mems)


def started(group: Path, *, seconds: float = 60) -> Allowed:
    """Return where a container that was started may run: its program may come a moment after the runtime says so.

    Raises:
        AssertionError: no program comes.
    """
    until(lambda: allowed(group) is not None, f"a program runs in {group}", seconds=seconds, pause=0.01)
    found = allowed(group)
    assert found is not None, f"the program of {group} has ended"
    return found


def overlaps(exclusive: Sequence[Path], shared: Sequence[Path]) -> Iterator[tuple[Path, Path, CPUSet]]:
    """Yield groups of which the first has exclusive CPUs on which processes of the second may run.

    Sets change while this looks at them, one after another. An overlap counts when the exclusive group was the same
    before and after the other was looked at: then both were so at one moment.
    """
    before = {group: found for group in exclusive if (found := allowed(group)) is not None}
    for group in (*exclusive, *shared):
        other = allowed(group)
        if other is None:
            continue
        for one, found in before.items():
            if one != group and found.cpus & other.cpus and allowed(one) == found:
                yield one, group, found.cpus & other.cpus


def ask(group: Path, *, seconds: float = 60) -> Told:
    """Have the witness in a container tell.

    Raises:
        AssertionError: it does not.
    """
    pid = _pids(group)[0]
    answer = Path(f"/proc/{pid}/root", _TOLD)
    # The first process of a container hears of no signal that it does not wait for.
    until(Path(f"/proc/{pid}/root", _READY).exists, f"the witness of {group} listens", seconds=seconds, pause=0.01)
    answer.unlink(missing_ok=True)
    os.kill(pid, signal.SIGUSR1)

    def told() -> str:
        return answer.read_text(encoding="utf-8") if answer.exists() else ""

    until(lambda: told().endswith("end: \n"), f"the witness of {group} answers", seconds=seconds, pause=0.01)
    return told_by(told())


def told_by(text: str) -> Told:
    """Read what a witness wrote down."""
    fields = dict(_fields(text))
    return Told(
        cpus=CPUSet.parse(fields["Cpus_allowed_list"]),
        mems=CPUSet.parse(fields["Mems_allowed_list"]),
        effective_cpus=CPUSet.parse(fields["cpuset.cpus.effective"]),
        effective_mems=CPUSet.parse(fields["cpuset.mems.effective"]),
        cpu_max=fields["cpu.max"],
        pages=_largest(text),
    )


def _pids(group: Path) -> list[int]:
    found: list[int] = []
    for folder, _, _ in os.walk(group):
        with suppress(OSError):
            found += [int(line) for line in Path(folder, "cgroup.procs").read_text(encoding="utf-8").split()]
    return found


def _fields(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        name, _, value = line.partition(":")
        yield name, value.strip()


def _largest(text: str) -> dict[int, int]:
    """Return the pages of the largest mapping by node."""
    maps = [
        {int(node): int(pages) for node, pages in re.findall(r" N(\d+)=(\d+)", line)}
        for line in text.splitlines()
        if line.startswith("map: ")
    ]
    return max(maps, key=lambda pages: sum(pages.values()))
