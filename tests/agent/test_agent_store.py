"""Tests."""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.agent.process import PATIENCE, SmallDisk, agent_in, begun, small_disk, why_no_small_disk
from tests.agent.small_node import SMALL, container, guaranteed, sandbox, small_state
from tests.agent.whole_agent import Node, counted, pod, start, until
from tests.laws.strategies_whole_node import pods

from mooring.agent.effects import AgentReport, ReportKind
from mooring.agent.journal import JournalError, JournalWriter, pod_of_text, read_journal, read_newest, text_of_pod
from mooring.agent.reactor.create_container import create_container
from mooring.agent.reactor.recovery import Stored, resume
from mooring.agent.state import AgentState
from mooring.agent.store import DAMAGED_FILE, JOURNAL_FILE, Store
from mooring.engine.core.config import MooringConfig
from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Container, Pod
from mooring.engine.core.quantity import Quantity
from mooring.engine.kubelet.kubelet import StateTexts


def with_pod(state: AgentState, uid: str = "a", cpus: str = "2") -> AgentState:
    return create_container(state, sandbox(uid), container(uid), guaranteed(uid, cpus)).state


def written(folder: Path, *states: AgentState) -> Store:
    """Write states and let the state files follow; return what wrote them, as that of an agent that runs."""
    store = Store(folder)
    for state in states:
        assert store.write(state) == ""
    assert store.write_files() == ""
    return store


def test_an_agent_waits_for_one_that_is_ending_and_not_for_ever(tmp_path: Path) -> None:
    ending, starting = Store(tmp_path), Store(tmp_path)
    ending.lock()
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            ending.unlock()

    assert starting.lock(60.0, pause) == ""
    assert len(pauses) == 3
    with pytest.raises(InputError, match="another agent uses this folder"):
        ending.lock(0.0)
    starting.unlock()
    assert ending.lock(0.0) == "", "who was refused has kept nothing"
    ending.unlock()


def test_what_a_killed_writer_left_behind_is_removed_and_nothing_else(tmp_path: Path) -> None:
    written(tmp_path, small_state())
    kept = {one.name for one in tmp_path.iterdir()}
    for name in (".journal.json.77-1", ".cpu_manager_state.77-0", ".machine.json.77-2"):
        (tmp_path / name).write_text("half")
    (tmp_path / ".journal").write_text("somebody's")
    store = Store(tmp_path)
    store.lock()
    store.unlock()
    assert {one.name for one in tmp_path.iterdir()} == {*kept, ".journal", "lock"}


@given(pods("pod"))
@settings(deadline=None, max_examples=50)
def test_a_pod_is_the_same_after_its_text(pod: Pod) -> None:
    assert pod_of_text(text_of_pod(pod)) == pod


@given(
    st.sampled_from(
        ["0.5Gi", "1000m", "1e3", "3k", "100n", "9223372036854775807", "1.5", "2Ei", "12345678901234567890"]
    )
)
def test_an_amount_keeps_the_way_in_which_the_engine_sees_it(text: str) -> None:
    amount = Quantity.parse(text)
    pod = Pod("u", "n", containers=(Container("c", requests={"memory": amount}),))
    back = pod_of_text(text_of_pod(pod)).containers[0].requests["memory"]
    assert (back.nano, back.format, back.fast, back.scale) == (amount.nano, amount.format, amount.fast, amount.scale)
    assert (back.as_int64(), back.milli) == (amount.as_int64(), amount.milli)


def test_a_state_file_is_replaced_only_where_it_differs_or_is_missing(tmp_path: Path) -> None:
    files = [tmp_path / "cpu_manager_state", tmp_path / "memory_manager_state"]
    state = small_state()
    store = written(tmp_path, state)
    first = [one.stat().st_ino for one in files]
    files[1].unlink()
    store.write(small_state())
    store.write_files()
    assert files[0].stat().st_ino == first[0]
    store.write(with_pod(state))
    store.write_files()
    assert [one.read_text() for one in files] == [
        with_pod(state).kubelet.files.cpu,
        with_pod(state).kubelet.files.memory,
    ]
    assert files[0].stat().st_ino != first[0]


def test_an_empty_folder_and_none_are_an_empty_state(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "none"):
        stored = Store(folder).read()
        assert (stored.texts.cpu, dict(stored.pods), stored.reports) == (None, {}, ())


@pytest.mark.parametrize("is_ended", [True, False], ids=["ended", "killed"])
def test_every_cut_of_the_journal_is_noticed_and_what_is_left_is_used(tmp_path: Path, is_ended: bool) -> None:
    states = [with_pod(small_state()), with_pod(with_pod(small_state()), "b")]
    store = written(tmp_path, *states)
    if is_ended:
        store.finish()
    whole = (tmp_path / JOURNAL_FILE).read_bytes()
    for length in [*range(0, len(whole), 97), len(whole) // 2]:
        (tmp_path / JOURNAL_FILE).write_bytes(whole[:length])
        stored = Store(tmp_path).read()
        if [report.finding for report in stored.reports] == [ReportKind.STATE_DAMAGED]:
            assert stored.texts in [state.kubelet.files for state in states]
        else:
            # Behind the newest record nothing was cut but line ends.
            assert (stored.texts, stored.reports) == (states[1].kubelet.files, ())
            assert not whole[length:].strip()
            assert not is_ended


@pytest.mark.parametrize(
    ("old", "new"),
    [('"version":1', '"version":2'), ("AgentJournal", "Other"), ("sha256:", "md5:")],
    ids=["a", "b", "c"],
)
def test_another_version_kind_or_checksum_is_no_journal(old: str, new: str) -> None:
    with pytest.raises(JournalError):
        read_journal(JournalWriter().text(small_state()).replace(old, new))


def test_files_that_differ_from_the_journal_are_reported_and_the_journal_counts(tmp_path: Path) -> None:
    first, second = with_pod(small_state()), with_pod(with_pod(small_state()), "b")
    written(tmp_path, first).finish()
    (tmp_path / "cpu_manager_state").write_text(second.kubelet.files.cpu or "")
    stored = Store(tmp_path).read()
    assert stored.texts == first.kubelet.files
    assert [report.finding for report in stored.reports] == [ReportKind.STATE_DIFFERED]


def test_state_files_that_a_killed_agent_left_behind_are_no_finding(tmp_path: Path) -> None:
    first, second = with_pod(small_state()), with_pod(with_pod(small_state()), "b")
    written(tmp_path, first).write(second)
    stored = Store(tmp_path).read()
    assert (stored.texts, stored.reports) == (second.kubelet.files, ())
    assert (tmp_path / "cpu_manager_state").read_text() == first.kubelet.files.cpu


def test_a_folder_that_cannot_be_written_is_a_problem_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "cannot be made" in Store(tmp_path / "file" / "state").write(small_state())


def test_a_problem_of_one_file_leaves_the_older_state_whole(tmp_path: Path) -> None:
    first = with_pod(small_state())
    store = written(tmp_path, first)
    (tmp_path / JOURNAL_FILE).unlink()
    (tmp_path / JOURNAL_FILE).mkdir()
    assert store.write(with_pod(first, "b")) != ""
    assert store.finish() != ""
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
    stored = Store(tmp_path).read()
    assert resume(*SMALL, MooringConfig(), stored).state.kubelet.node.cpu.assignments.keys() >= {"a"}


@pytest.mark.parametrize("name", ["pods", "plugins_registry"])
def test_a_kubelets_folder_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(InputError, match="looks like the root directory of a kubelet"):
        Store(tmp_path).check()


def test_a_folder_below_a_kubelets_is_refused_unmade_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pods").mkdir()
    Store(tmp_path / "mooring" / "state").check()
    (tmp_path / "plugins_registry").mkdir()
    with pytest.raises(InputError, match=f"lies in {tmp_path}, which looks like the root directory of a kubelet"):
        Store(tmp_path / "mooring" / "state").check()
    monkeypatch.setattr("mooring.agent.store.KUBELET_ROOT", tmp_path / "fresh")
    (tmp_path / "pods").rmdir()
    (tmp_path / "link").symlink_to(tmp_path / "fresh")
    with pytest.raises(InputError, match=f"lies in {tmp_path / 'fresh'}, which is the root directory of the kubelet"):
        Store(tmp_path / "link" / "mooring").check()


def test_a_link_to_a_folder_of_the_system_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc")
    with pytest.raises(InputError, match="link: is /etc, a folder of the system; give the agent a folder of its own"):
        Store(tmp_path / "link").check()


def test_a_path_that_no_folder_can_have_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be the folder of the state: File name too long; name another"):
        Store(tmp_path / ("x" * 300)).check()


def test_a_disk_that_fails_does_not_keep_agents_from_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_path: Path) -> bool:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Path, "exists", fails)
    Store(tmp_path).check()


def test_a_named_pipe_in_place_of_the_lock_does_not_hold_the_agent(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "lock")
    holding = Store(tmp_path)
    done = threading.Thread(target=holding.lock, daemon=True)
    done.start()
    done.join(60)
    assert not done.is_alive()
    holding.unlock()


@pytest.mark.parametrize("broken", ["cpu", "memory", "both"])
def test_state_that_the_engine_refuses_is_left_out_and_reported(tmp_path: Path, broken: str) -> None:
    state = with_pod(small_state())
    written(tmp_path, state)
    (tmp_path / JOURNAL_FILE).unlink()
    for name in ("cpu", "memory"):
        if broken in (name, "both"):
            (tmp_path / f"{name}_manager_state").write_text('{"policyName":')
    resumed = resume(*SMALL, MooringConfig(), Store(tmp_path).read())
    findings = [report.finding for report in resumed.effects if isinstance(report, AgentReport)]
    assert findings[0] is ReportKind.STATE_DAMAGED
    assert ReportKind.STATE_REFUSED in findings
    assert bool(resumed.state.kubelet.node.cpu.assignments) is (broken == "memory")
    assert bool(resumed.state.kubelet.node.memory.assignments) is (broken == "cpu")


def test_a_configuration_that_is_refused_with_and_without_state_is_bad_input() -> None:
    info, config = SMALL
    with pytest.raises(InputError, match=r"^agent\.yaml: the engine does not start"):
        resume(info, replace(config, reserved_system_cpus=""), MooringConfig(), source="agent.yaml")


def test_an_empty_state_file_is_named_when_it_is_refused() -> None:
    resumed = resume(*SMALL, MooringConfig(), Stored(StateTexts("", None)))
    reports = [one.message.partition(":")[0] for one in resumed.effects if isinstance(one, AgentReport)]
    assert reports == ["cpu_manager_state"]


def test_a_folder_that_cannot_be_locked_is_a_problem_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "cannot be made" in Store(tmp_path / "file" / "state").lock()
    (tmp_path / "lock").mkdir()
    assert "cannot be locked" in Store(tmp_path).lock()


# A disk that is full or read-only, files that are damaged, a machine that is another one: the agent comes back.


GARBAGE = b"\0\xff{not a state"


@pytest.mark.long
@pytest.mark.skipif(bool(why_no_small_disk()), reason=f"no file system of its own: {why_no_small_disk()}")
@pytest.mark.parametrize(
    ("fault", "word", "is_lost"),
    # A journal that is written in place needs no room.
    [("fill", "No space left", False), ("protect", "Read-only", True)],
    ids=["full", "ro"],
)
def test_a_disk_that_takes_nothing_stops_no_start(tmp_path: Path, fault: str, word: str, is_lost: bool) -> None:
    with (
        small_disk(tmp_path / "disk") as disk,
        agent_in(tmp_path, state=tmp_path / "disk" / "state", before=disk.inside) as (agent, listening),
    ):
        world, runtime = begun(agent, listening)
        assert world.create(runtime, "first", 2) == "1-2"
        mend = broken(disk, fault)
        assert world.create(runtime, "second", 2) == "3-4"
        until(lambda: agent.status["reasons"], "the agent says so", seconds=PATIENCE)
        (reason,) = agent.status["reasons"]
        assert reason.startswith("the state cannot be written: ")
        assert word in reason
        until(lambda: [line for line in agent.log if word in line["event"]], "the log says so", seconds=PATIENCE)
        agent.end(signal.SIGKILL)
        agent.start()
        assert world.synchronize(listening.next()) == [], "the runtime knows what the disk does not"
        until(lambda: agent.status["cpus"]["exclusive"] == "1-4", "both are known again", seconds=PATIENCE)
        if is_lost:
            agent.until_found("taken-over")
        else:
            assert "taken-over" not in agent.findings
        mend()
        agent.until_ready()
        assert agent.end() == 0
        assert b"uid-second" in (disk.seen / "state" / "journal.json").read_bytes()


def broken(disk: SmallDisk, fault: str) -> Callable[[], None]:
    mend: Callable[[], None] = getattr(disk, fault)()
    return mend


def test_an_agent_whose_files_are_all_garbage_comes_back_to_the_same_placement(node: Node) -> None:
    _, runtime = node.connected()
    own = start(node, runtime, "own", 2)
    node.agents.pop().close()
    for file in (node.folder / "state").iterdir():
        file.write_bytes(GARBAGE)
    agent = node.agent()
    assert list(node.listening.next().synchronize([pod("own")], [own]).update) == []
    assert node.status["cpus"]["exclusive"] == "1-2"
    assert [bool(counted(agent, "reports_total", kind=kind)) for kind in FOUND] == [True] * 3
    assert (node.folder / "state" / "journal.json.bak").read_bytes() == GARBAGE


FOUND = ("state-damaged", "state-refused", "taken-over")


@pytest.mark.parametrize("name", ["journal.json", "cpu_manager_state", "memory_manager_state"])
@pytest.mark.parametrize("damage", ["garbage", "empty", "folder", "missing"])
def test_no_file_of_the_folder_keeps_the_agent_from_running(node: Node, name: str, damage: str) -> None:
    _, runtime = node.connected()
    own = start(node, runtime, "own", 2)
    node.agents.pop().close()
    file = node.folder / "state" / name
    file.unlink(missing_ok=True)
    if damage == "folder":
        file.mkdir()
    elif damage != "missing":
        file.write_bytes(GARBAGE if damage == "garbage" else b"")
    agent = node.agent()
    runtime = node.listening.next()
    assert list(runtime.synchronize([pod("own")], [own]).update) == []
    until(lambda: agent.snapshot.runtime.synchronized, "everything is told")
    assert node.cpus(own) == "1-2"
    assert node.status["cpus"]["exclusive"] == "1-2"
    agent.holder.write_files()
    if damage == "folder":
        assert not node.status["ready"], "a file of this name cannot be written"
        file.rmdir()
        agent.holder.write_again()
    assert node.status["ready"]


# What an agent makes of a journal whose records are damaged, or of another agent; ``tests/world`` kills and tears.


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
