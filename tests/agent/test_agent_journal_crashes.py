"""The journal is written in place: after a crash anywhere it holds the state before or the new one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.agent.small_node import container, guaranteed, sandbox, small_state

from mooring.agent.effects import ReportKind
from mooring.agent.journal import JournalWriter, read_journal, read_newest
from mooring.agent.reactor.create_container import create_container
from mooring.agent.state import AgentState
from mooring.agent.store import DAMAGED_FILE, JOURNAL_FILE, Store
from mooring.engine.kubelet.kubelet import StateTexts

CALLS = ("open", "write", "pwrite", "fsync", "fdatasync", "posix_fadvise", "replace", "close")
"""By which a folder is changed."""
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


@contextmanager
def crashing(folder: Path, copies: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Path]]:
    """Copy the folder before and after each call that may change it; yield the copies."""
    made: list[Path] = []

    def copy() -> None:
        made.append(copies / str(len(made)))
        # The system's own calls: the copy itself is not to be copied.
        with monkeypatch.context() as plain:
            for name, real in reals.items():
                plain.setattr(os, name, real)
            shutil.copytree(folder, made[-1])

    def watched(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*words: Any, **more: Any) -> Any:
            copy()
            try:
                return real(*words, **more)
            finally:
                copy()

        return call

    reals = {name: getattr(os, name) for name in CALLS}
    with monkeypatch.context() as patched:
        for name, real in reals.items():
            patched.setattr(os, name, watched(real))
        yield made


@pytest.mark.parametrize("what", ["first", "in place", "grown", "files", "ended"])
def test_killed_between_any_two_system_calls_an_agent_finds_the_state_before_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    # So that few pods are more than a slot has room for.
    monkeypatch.setattr("mooring.agent.store._STEP", 512)
    folder = tmp_path / "state"
    folder.mkdir()
    store, before = Store(folder), 0
    if what != "first":
        before = 2
        for count in range(before + 1):
            assert store.write(with_pods(count)) == ""
        store.write_files()
    after = {"first": 1, "in place": 3, "grown": 20}.get(what, before)
    found = (folder / JOURNAL_FILE).stat().st_ino if before else 0
    with crashing(folder, tmp_path / "copies", monkeypatch) as copies:
        if what == "files":
            store.write(with_pods(before))
            assert store.write_files() == ""
        elif what == "ended":
            assert store.finish() == ""
        else:
            assert store.write(with_pods(after)) == ""
    assert len(copies) > 4
    assert (found == (folder / JOURNAL_FILE).stat().st_ino) is (what in ("in place", "files"))
    seen = [pods_in(copy) for copy in copies]
    assert seen == sorted(seen)
    assert {*seen} <= {before, after}
    assert pods_in(folder) == after


@given(st.integers(1, 4), st.integers(0, 1 << 20), st.binary(max_size=16))
@settings(deadline=None, max_examples=150)
def test_a_write_that_ends_at_any_byte_leaves_the_record_before_or_the_new_one(
    tmp_path_factory: pytest.TempPathFactory, count: int, cut: int, garbage: bytes
) -> None:
    folder = tmp_path_factory.mktemp("state")
    store = Store(folder)
    for each in range(count + 1):
        store.write(with_pods(each))
    before = (folder / JOURNAL_FILE).read_bytes()
    store.write(with_pods(count + 1))
    after = (folder / JOURNAL_FILE).read_bytes()
    changed = [place for place, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
    first, last = changed[0], changed[-1] + 1
    cut = first + cut % (last - first + 1)
    torn = bytearray(after[:cut] + before[cut:])
    if cut < last:
        # Nor does it matter what a disk leaves where it was interrupted, as long as that is within the write.
        torn[cut : cut + len(garbage)] = garbage[: last - cut]
    (folder / JOURNAL_FILE).write_bytes(torn)
    stored = Store(folder).read()
    assert len(stored.pods) in ((count + 1,) if bytes(torn) == after else (count, count + 1))
    assert stored.texts == with_pods(len(stored.pods)).kubelet.files
    shutil.rmtree(folder)


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
