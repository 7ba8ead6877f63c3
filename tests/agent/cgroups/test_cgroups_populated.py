"""Whether something runs in a group, in both versions."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.agent.cgroups.made_up_tree import MadeUpMachine, made_up_machine

from mooring.agent.cgroups.protocol import UnseenCGroups


def show(machine: MadeUpMachine, path: str, processes: str) -> None:
    """Let a group have processes, as the kernel shows it."""
    if machine.version == 1:
        machine.put("cpuset", path, "cgroup.procs", processes)
        return
    while path:
        machine.put("cpuset", path, "cgroup.events", f"populated {int(bool(processes))}\nfrozen 0")
        path = path.rpartition("/")[0]


@pytest.mark.parametrize("version", [1, 2])
def test_a_group_runs_while_there_is_a_process_in_it_or_below_it(tmp_path: Path, version: int) -> None:
    machine = made_up_machine(tmp_path, version)
    for path in ("/pods/p", "/pods/p/c", "/pods/p/c/init"):
        machine.group(path)
        show(machine, path, "")
    cgroups = machine.cgroups
    assert not cgroups.has_processes("/pods/p/c", 0)
    assert cgroups.has_group("/pods/p/c", 0), "an empty group is still one"
    show(machine, "/pods/p/c/init", "12\n14")
    assert cgroups.has_processes("/pods/p/c", 0)
    show(machine, "/pods/p/c/init", "")
    show(machine, "/pods/p/c", "12")
    assert cgroups.has_processes("/pods/p/c", 0)
    machine.remove("/pods/p/c")
    assert not cgroups.has_processes("/pods/p/c", 0)
    assert not cgroups.has_processes("", 0)


@pytest.mark.parametrize("version", [1, 2])
def test_a_group_that_cannot_be_looked_into_counts_as_running(tmp_path: Path, version: int) -> None:
    machine = made_up_machine(tmp_path, version)
    machine.group("/pods/p")
    assert machine.cgroups.has_processes("/pods/p", 0)


def test_on_a_simulated_machine_nothing_is_seen_to_run() -> None:
    assert not UnseenCGroups().has_processes("/pods/p", 1)
