"""What an agent makes of a journal whose records are damaged, or of another agent; ``tests/world`` kills and tears."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import pytest
from tests.agent.small_node import container, guaranteed, sandbox, small_state

from mooring.agent.effects import ReportKind
from mooring.agent.journal import JournalWriter, read_journal, read_newest
from mooring.agent.reactor.create_container import create_container
from mooring.agent.state import AgentState
from mooring.agent.store import DAMAGED_FILE, JOURNAL_FILE, Store
from mooring.engine.kubelet.kubelet import StateTexts

NOTHING = StateTexts()


@lru_cache
def with_pods(count: int) -> AgentState:
    """Return a state with so many pods; the node has room for few with CPUs of their own."""
    if not count:
        return small_state()
    uid = f"pod{count}"
    made = create_container(
        with_pods(count - 1), sandbox(uid), container(uid), guaranteed(uid, "1" if count < 3 else "100m")
    )
    return made.state


def pods_in(folder: Path) -> int:
    """Return how many pods a starting agent finds."""
    stored = Store(folder).read()
    assert stored.texts == (with_pods(len(stored.pods)).kubelet.files if (folder / JOURNAL_FILE).exists() else NOTHING)
    return len(stored.pods)


@pytest.mark.parametrize("slot", [0, 1])
def test_of_two_records_one_damaged_the_other_counts_and_the_file_is_kept(tmp_path: Path, slot: int) -> None:
    store = Store(tmp_path)
    # Two records at the start of a file, then the second one in the first slot, and the third in the second.
    for count in (1, 2, 3):
        store.write(with_pods(count))
    file = tmp_path / JOURNAL_FILE
    data = bytearray(file.read_bytes())
    place = data.index(b'"pod', slot * len(data) // 2)
    data[place + 1] = ord("P")
    file.write_bytes(data)
    again = Store(tmp_path)
    stored = again.read()
    assert len(stored.pods) == (3 if slot == 0 else 2)
    (report,) = stored.reports
    assert report.finding is ReportKind.STATE_DAMAGED
    assert report.message == "journal.json: the checksum is wrong; the other record is used"
    again.write(with_pods(3))
    assert (tmp_path / DAMAGED_FILE).read_bytes() == data
    assert (Store(tmp_path).read().reports, pods_in(tmp_path)) == ((), 3)


@pytest.mark.parametrize("slot", [0, 1])
def test_a_record_whose_beginning_is_gone_is_missed(tmp_path: Path, slot: int) -> None:
    store = Store(tmp_path)
    store.write(with_pods(1))
    store.write(with_pods(2))
    file = tmp_path / JOURNAL_FILE
    data = bytearray(file.read_bytes())
    data[slot * len(data) // 2] = 0
    file.write_bytes(data)
    stored = Store(tmp_path).read()
    assert [one.finding for one in stored.reports] == [ReportKind.STATE_DAMAGED]
    assert len(stored.pods) == (1 if slot == 0 else 2)


def test_an_agent_that_ends_leaves_a_journal_that_one_without_slots_reads(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for count in (1, 2, 3):
        store.write(with_pods(count))
    assert store.finish() == ""
    text = (tmp_path / JOURNAL_FILE).read_text()
    assert text == JournalWriter().text(with_pods(3))
    assert read_journal(text).pods == with_pods(3).kubelet.node.active
    assert (tmp_path / "cpu_manager_state").read_text() == with_pods(3).kubelet.files.cpu


def test_the_journal_of_an_agent_without_slots_is_read(tmp_path: Path) -> None:
    (tmp_path / JOURNAL_FILE).write_text(JournalWriter().text(with_pods(2)))
    assert (pods_in(tmp_path), Store(tmp_path).read().reports) == (2, ())


@pytest.mark.parametrize("what", ["removed", "replaced", "cut"])
def test_a_journal_that_another_program_takes_away_is_made_again(tmp_path: Path, what: str) -> None:
    store, file = Store(tmp_path), tmp_path / JOURNAL_FILE
    store.write(with_pods(1))
    if what == "cut":
        file.write_text("short")
    else:
        file.unlink()
    if what == "replaced":
        file.write_text("another")
    assert store.write(with_pods(2)) == ""
    assert (pods_in(tmp_path), Store(tmp_path).read().reports) == (2, ())


def test_a_file_of_nothing_but_beginnings_is_no_journal_and_takes_no_time() -> None:
    text = JournalWriter().text(with_pods(1))
    newest, problem = read_newest((text[:22] * 1000 + "\n" + text).replace("\n", "\n" * 1000))
    assert (len(newest.pods), bool(problem)) == (1, True)
