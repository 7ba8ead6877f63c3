"""What the agent reads and writes of interrupts, and what it remembers on the disk."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.agent.made_up_interrupts import made_up_interrupts

from mooring.agent.interrupts import JOURNAL
from mooring.agent.interrupts.files import (
    RETRYING,
    InterruptJournal,
    InterruptTrouble,
    InterruptWriter,
    IRQFiles,
    mask_text,
)
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.extensions.interrupts import NEW, InterruptCPUs, Kept, Memory, Owner, Step, steer
from mooring.inputs.machines.hardware.kernelfiles import parse_mask


def cpus(text: str) -> CPUSet:
    return CPUSet.parse(text)


MEMORY = Memory({NEW: Kept("default_smp_affinity", cpus("0-7"), (cpus("0-1"),)), 24: Kept("a", cpus("2"), ())})


@given(st.frozensets(st.integers(0, 200), min_size=1))
def test_masks_are_written_as_they_are_read(ids: frozenset[int]) -> None:
    assert parse_mask(mask_text(CPUSet.from_ids(ids))) == CPUSet.from_ids(ids).mask


def test_interrupts_are_seen_with_their_devices(tmp_path: Path) -> None:
    made_up_interrupts(tmp_path)
    (tmp_path / "proc/irq/26/smp_affinity_list").chmod(0o444)
    looked = IRQFiles(str(tmp_path)).read()
    assert [(one.number, one.name, str(one.allowed), one.device, one.managed) for one in looked.interrupts] == [
        (NEW, "default_smp_affinity", "0-7", "", False),
        (24, "eth0-rx", "0-7", "0000:03:00.1", False),
        (25, "eth0-tx", "2", "0000:03:00.1", False),
        (26, "nvme0q0", "4-5", "", True),
    ]
    assert looked.online == cpus("0-7")


def test_the_kernels_own_word_on_a_managed_interrupt_counts(tmp_path: Path) -> None:
    made = made_up_interrupts(tmp_path)
    made.put("sys/kernel/debug/irq/irqs/26", "handler: x\ndstate: 0x1\n  IRQD_AFFINITY_MANAGED")
    made.put("sys/kernel/debug/irq/irqs/24", "handler: x\ndstate: 0x1")
    looked = IRQFiles(str(tmp_path)).read()
    assert [one.number for one in looked.interrupts if one.managed] == [26]


def test_what_is_written_is_in_force(tmp_path: Path) -> None:
    made = made_up_interrupts(tmp_path)
    files = IRQFiles(str(tmp_path))
    assert files.write(24, cpus("0,3-4")) is None
    assert files.write(NEW, cpus("0-1")) is None
    assert (made.cpus(24), made.beginning) == ("0,3-4", "00000003")
    assert (files.shown(24), files.shown(NEW), files.shown(99)) == (cpus("0,3-4"), cpus("0-1"), None)
    assert files.write(99, cpus("0")) is InterruptTrouble.GONE


@pytest.mark.parametrize(
    ("number", "trouble"),
    [
        (errno.EIO, InterruptTrouble.MANAGED),
        (errno.EPERM, InterruptTrouble.MANAGED),
        (errno.EINVAL, InterruptTrouble.REFUSED),
        (errno.ENOSPC, InterruptTrouble.REFUSED),
    ],
)
def test_noes_of_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, trouble: InterruptTrouble
) -> None:
    made_up_interrupts(tmp_path)

    def refuse(_descriptor: int, _data: bytes) -> int:
        raise OSError(number, "no")

    monkeypatch.setattr(os, "write", refuse)
    found = IRQFiles(str(tmp_path)).write(24, cpus("0"))
    monkeypatch.undo()
    assert found is trouble


def test_files_that_cannot_be_opened_for_writing_are_read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_up_interrupts(tmp_path)

    def refuse(_path: str, _flags: int) -> int:
        raise OSError(errno.EROFS, "no")

    monkeypatch.setattr(os, "open", refuse)
    found = IRQFiles(str(tmp_path)).write(24, cpus("0"))
    monkeypatch.undo()
    assert found is InterruptTrouble.UNWRITABLE


def test_the_memory_survives_and_a_boot_ends_it(tmp_path: Path) -> None:
    assert InterruptJournal(tmp_path, "b1").read() == Memory()
    assert InterruptJournal(tmp_path, "b1").write(MEMORY)
    assert InterruptJournal(tmp_path, "b1").read() == MEMORY
    assert InterruptJournal(tmp_path, "b2").read() == Memory()


def test_nothing_to_remember_makes_no_file(tmp_path: Path) -> None:
    journal = InterruptJournal(tmp_path / "none", "b1")
    assert journal.write(journal.read())
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"kind": "Else", "version": 1, "boot": "b1", "interrupts": {}}', "\udcff", "\0"]
)
def test_a_damaged_memory_is_told_and_nothing_is_guessed(tmp_path: Path, text: str) -> None:
    (tmp_path / JOURNAL).write_text(text, encoding="utf-8", errors="surrogateescape")
    journal = InterruptJournal(tmp_path, "b1")
    assert journal.read() == Memory()
    assert journal.problem.startswith(f"{tmp_path / JOURNAL}: cannot be used")


def written_by(
    root: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    noes: dict[int, InterruptTrouble],
    clock: Callable[[], float] = lambda: 0.0,
) -> tuple[InterruptWriter, list[tuple[int, InterruptTrouble | None]], IRQFiles]:
    """Return a writer to whom the kernel says these noes, with what it was told."""
    told: list[tuple[int, InterruptTrouble | None]] = []
    files = IRQFiles(str(root))
    writing = files.write
    monkeypatch.setattr(files, "write", lambda number, cpus: noes.get(number) or writing(number, cpus))

    def tell(step: Step, trouble: InterruptTrouble | None) -> None:
        told.append((step.interrupt.number, trouble))

    return InterruptWriter(files, InterruptJournal(folder, "b1"), tell, clock), told, files


ROOM = InterruptCPUs(cpus("0-7"), cpus("0"))
HELD = (Owner("web", cpus("2-3")),)


def test_what_the_kernel_refuses_is_not_tried_at_the_next_look_and_not_remembered_as_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = made_up_interrupts(tmp_path)
    noes = {24: InterruptTrouble.MANAGED, 25: InterruptTrouble.REFUSED}
    writer, told, files = written_by(tmp_path, tmp_path / "state", monkeypatch, noes)
    memory = Memory()
    for _ in range(3):
        _, memory = writer.carry_out(steer(writer.known(files.read().interrupts), memory, HELD, ROOM))
    assert told == [(NEW, None), (24, InterruptTrouble.MANAGED), (25, InterruptTrouble.REFUSED)]
    assert set(memory.kept) == {NEW}
    other = (Owner("web", cpus("2-4")),)
    made.move(25, "2")
    writer.carry_out(steer(writer.known(files.read().interrupts), memory, other, ROOM))
    assert (26, None) not in told[:3]
    assert [number for number, _ in told[3:]] == [NEW, 26]


def test_a_refusal_is_tried_again_after_some_minutes_and_a_managed_interrupt_never(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_up_interrupts(tmp_path)
    noes, seconds = {24: InterruptTrouble.MANAGED, 25: InterruptTrouble.REFUSED}, [0.0]
    writer, told, files = written_by(tmp_path, tmp_path / "state", monkeypatch, noes, lambda: seconds[-1])
    memory = Memory()
    for moment in (0, RETRYING - 1, RETRYING, RETRYING + 1, 2 * RETRYING):
        seconds.append(moment)
        if moment > RETRYING:
            noes.clear()
        _, memory = writer.carry_out(steer(writer.known(files.read().interrupts), memory, HELD, ROOM))
    assert told[2:] == [(25, InterruptTrouble.REFUSED), (25, InterruptTrouble.REFUSED), (25, None)]


def test_an_interrupt_whose_own_cpu_is_offline_is_given_back_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = made_up_interrupts(tmp_path)
    noes, seconds = dict[int, InterruptTrouble](), [0.0]
    writer, _, files = written_by(tmp_path, tmp_path / "state", monkeypatch, noes, lambda: seconds[-1])
    _, memory = writer.carry_out(steer(files.read().interrupts, Memory(), HELD, ROOM))
    noes[25] = InterruptTrouble.REFUSED
    _, memory = writer.carry_out(steer(files.read().interrupts, memory, (), ROOM))
    assert made.cpus(25) == "0"
    noes.clear()
    seconds.append(RETRYING)
    _, memory = writer.carry_out(steer(files.read().interrupts, memory, (), ROOM))
    assert (made.cpus(25), memory.kept) == ("2", {})


def test_while_a_refusal_lasts_the_journal_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_up_interrupts(tmp_path)
    noes = {25: InterruptTrouble.REFUSED}
    writer, _, files = written_by(tmp_path, tmp_path / "state", monkeypatch, noes)
    _, memory = writer.carry_out(steer(writer.known(files.read().interrupts), Memory(), HELD, ROOM))
    writes: list[object] = []
    monkeypatch.setattr("mooring.agent.interrupts.files.write_together", lambda *what: writes.append(what))
    writer.carry_out(steer(writer.known(files.read().interrupts), memory, HELD, ROOM))
    assert writes == []


def test_a_write_that_changes_nothing_is_a_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_up_interrupts(tmp_path)
    seconds = [0.0]
    writer, told, files = written_by(tmp_path, tmp_path / "state", monkeypatch, {}, lambda: seconds[-1])
    monkeypatch.setattr(files, "write", lambda _number, _cpus: None)
    for moment in (0, 1, RETRYING):
        seconds.append(moment)
        writer.carry_out(steer(writer.known(files.read().interrupts), Memory(), HELD, ROOM))
    assert told == [(number, InterruptTrouble.REFUSED) for number in (NEW, 24, 25)] * 2


def test_another_device_under_a_refused_number_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = made_up_interrupts(tmp_path)
    writer, told, files = written_by(tmp_path, tmp_path / "state", monkeypatch, {24: InterruptTrouble.MANAGED})
    writer.carry_out(steer(writer.known(files.read().interrupts), Memory(), HELD, ROOM))
    made.add(24, "eth9")
    monkeypatch.undo()
    told.clear()
    writer.carry_out(steer(writer.known(files.read().interrupts), Memory(), HELD, ROOM))
    assert (24, None) in told


def test_without_a_memory_on_the_disk_nothing_is_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = made_up_interrupts(tmp_path)
    (tmp_path / "state").write_text("no folder")
    writer, told, files = written_by(tmp_path, tmp_path / "state", monkeypatch, {})
    _, memory = writer.carry_out(steer(files.read().interrupts, Memory(), HELD, ROOM))
    assert (made.cpus(24), made.cpus(25), told, memory) == ("0-7", "2", [], Memory())


def test_read_only_files_end_a_look_at_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_up_interrupts(tmp_path)
    noes = dict.fromkeys((NEW, 24, 25, 26), InterruptTrouble.UNWRITABLE)
    writer, told, files = written_by(tmp_path, tmp_path / "state", monkeypatch, noes)
    _, memory = writer.carry_out(steer(files.read().interrupts, Memory(), HELD, ROOM))
    assert told == [(NEW, InterruptTrouble.UNWRITABLE)]
    assert writer.unwritable
    assert memory == Memory()


@pytest.mark.skipif(not Path("/proc/irq/default_smp_affinity").is_file(), reason="this machine shows no interrupts")
def test_the_interrupts_of_this_machine_can_be_read() -> None:
    looked = IRQFiles().read()
    assert looked.online
    assert looked.interrupts[0].number == NEW
    for one in looked.interrupts:
        assert one.allowed
        assert one.effective is None or one.effective <= looked.online
    assert steer(looked.interrupts, Memory(), (), InterruptCPUs(looked.online, CPUSet())).writes == ()
