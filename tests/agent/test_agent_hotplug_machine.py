"""The machine with its offline CPUs: kept while some are away, and given up when it is another machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.agent.small_node import INFO

from mooring.agent.startup import keep_machine, known_machine
from mooring.agent.store import MACHINE_FILE
from mooring.engine.core.machine import Machine
from mooring.engine.core.machineinfo import Core, MachineInfo
from mooring.inputs.machines.loader import load_machine

WHOLE = load_machine("sockets=2 numa=2 cores=4 threads=2 memory=16Gi")
CPUS = {cpu for node in WHOLE.info.topology for core in node.cores for cpu in core.thread_ids}


def shown(machine: Machine, offline: set[int], memory: int = 0) -> Machine:
    """Return a machine as the kernel describes it while CPUs are offline."""
    nodes = tuple(
        replace(
            node,
            memory=node.memory + memory,
            cores=tuple(
                replace(core, thread_ids=left)
                for core in node.cores
                if (left := tuple(cpu for cpu in core.thread_ids if cpu not in offline))
            ),
        )
        for node in machine.info.topology
    )
    return replace(machine, info=replace(machine.info, num_cores=len(CPUS - offline), topology=nodes))


def with_core(info: MachineInfo, core: Core) -> MachineInfo:
    first, *rest = info.topology
    return replace(info, topology=(replace(first, cores=(core, *first.cores[1:])), *rest))


def test_a_machine_that_nobody_kept_is_what_the_kernel_shows(tmp_path: Path) -> None:
    assert known_machine(tmp_path / "none", WHOLE) == (WHOLE, "")


@given(st.sets(st.sampled_from(sorted(CPUS)), max_size=len(CPUS) - 1))
def test_whatever_is_offline_is_known(tmp_path_factory: pytest.TempPathFactory, offline: set[int]) -> None:
    folder = tmp_path_factory.mktemp("state")
    assert keep_machine(folder, WHOLE) == ""
    found, problem = known_machine(folder, shown(WHOLE, offline))
    assert (found.info, problem) == (WHOLE.info, "")


def test_memory_is_that_of_today(tmp_path: Path) -> None:
    keep_machine(tmp_path, WHOLE)
    found = known_machine(tmp_path, shown(WHOLE, {3}, memory=4096))[0].info
    assert [one.memory for one in found.topology] == [one.memory + 4096 for one in WHOLE.info.topology]
    assert [one.cores for one in found.topology] == [one.cores for one in WHOLE.info.topology]


def test_a_machine_with_more_cpus_or_others_is_another_one(tmp_path: Path) -> None:
    small = Machine("small", INFO)
    keep_machine(tmp_path, small)
    assert "another machine" in known_machine(tmp_path, WHOLE)[1]
    core = INFO.topology[0].cores[0]
    moved = Machine("small", with_core(INFO, replace(core, socket_id=core.socket_id + 1)))
    found, problem = known_machine(tmp_path, moved)
    assert found == moved
    assert "another machine" in problem


def test_a_damaged_description_is_said_and_not_used(tmp_path: Path) -> None:
    (tmp_path / MACHINE_FILE).write_text("{half")
    found, problem = known_machine(tmp_path, WHOLE)
    assert found == WHOLE
    assert MACHINE_FILE in problem


def test_it_is_written_once(tmp_path: Path) -> None:
    keep_machine(tmp_path, WHOLE)
    before = (tmp_path / MACHINE_FILE).stat().st_ino
    keep_machine(tmp_path, WHOLE)
    assert (tmp_path / MACHINE_FILE).stat().st_ino == before


def test_a_folder_that_cannot_be_written_is_a_problem_in_words(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    assert str(tmp_path / "state") in keep_machine(tmp_path / "state", WHOLE)
