"""One interrupt of this machine is moved and put back by the agent's own code; everything else is left alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mooring.agent.interrupts.files import (
    InterruptJournal,
    InterruptTrouble,
    IRQFiles,
    restore_interrupts,
)
from mooring.agent.store import INTERRUPT_FILE
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.extensions.interrupts import NEW, Interrupt, Memory

FILES = IRQFiles()
DIES = """
import os, signal, sys
from pathlib import Path
from mooring.agent.interrupts.files import IRQFiles
from mooring.agent.interrupts.files import InterruptJournal
from mooring.agent.interrupts.files import InterruptWriter
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.extensions.interrupts import InterruptCPUs, Owner
from mooring.engine.extensions.interrupts import steer

folder, number, closed = Path(sys.argv[1]), int(sys.argv[2]), CPUSet.parse(sys.argv[3])
files = IRQFiles()
journal = InterruptJournal(folder, files.boot())
looked = files.read()
one = [each for each in looked if each.number == number]
steering = steer(one, journal.read(), [Owner("pod", closed)], InterruptCPUs(files.online(), CPUSet()))
InterruptWriter(files, journal, lambda step, trouble: None).carry_out(*steering)
os.kill(os.getpid(), signal.SIGKILL)
"""


def allowed(number: int) -> CPUSet:
    found = FILES.shown(number)
    assert found is not None
    return found


@pytest.fixture
def quiet() -> Iterator[Interrupt]:
    """An interrupt that may be moved and may use several CPUs; it is put back whatever happens."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    looked = FILES.read()
    may_move = [
        one for one in looked if one.number != NEW and not one.managed and len(one.allowed & FILES.online()) > 1
    ]
    # Written as it is: what cannot be written back is not touched.
    one = next((one for one in may_move if FILES.write(one.number, one.allowed) is None), None)
    if one is None:
        pytest.skip("this machine has no interrupt that may be moved")
    yield one
    assert FILES.write(one.number, one.allowed) is None


def test_whoever_moved_an_interrupt_and_was_killed_is_made_up_for(quiet: Interrupt, tmp_path: Path) -> None:
    closed = CPUSet.of(next(iter(quiet.allowed & FILES.online())))
    others = {one.number: one.allowed for one in FILES.read() if one.number != quiet.number}
    ended = subprocess.run(
        [sys.executable, "-c", DIES, str(tmp_path), str(quiet.number), str(closed)], check=False, timeout=60
    )
    assert ended.returncode == -signal.SIGKILL
    assert allowed(quiet.number) == quiet.allowed - closed
    assert (tmp_path / INTERRUPT_FILE).is_file()
    assert restore_interrupts("/", tmp_path) == ()
    assert allowed(quiet.number) == quiet.allowed
    assert InterruptJournal(tmp_path, FILES.boot()).read() == Memory()
    assert {one.number: one.allowed for one in FILES.read() if one.number != quiet.number} == others


def test_what_somebody_else_has_written_meanwhile_stays(quiet: Interrupt, tmp_path: Path) -> None:
    first, second, *_ = quiet.allowed & FILES.online()
    subprocess.run([sys.executable, "-c", DIES, str(tmp_path), str(quiet.number), str(first)], check=False, timeout=60)
    assert first not in allowed(quiet.number)
    assert FILES.write(quiet.number, CPUSet.of(first)) is None
    (problem,) = restore_interrupts("/", tmp_path)
    assert "another program has moved it" in problem
    assert allowed(quiet.number) == CPUSet.of(first)
    assert second in quiet.allowed


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_an_interrupt_that_the_kernel_manages_refuses() -> None:
    managed = [one for one in FILES.read() if one.managed]
    if not managed:
        pytest.skip("this machine has no managed interrupt")
    assert FILES.write(managed[0].number, managed[0].allowed) is InterruptTrouble.MANAGED
    assert allowed(managed[0].number) == managed[0].allowed
