"""Containers that are told their CPUs: what their files say at every moment, and what the files are like."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from tests.agent.resizable_node import EXTENDED, LATE, RESIZING, annotated, resizable, sized, sizes
from tests.agent.sets import assigned, cpuset_write
from tests.agent.small_node import container, guaranteed, running, sandbox, shared
from tests.agent.test_agent_resizing import update
from tests.patience import until

from mooring.agent.effects import DropAssigned, Effect, Persist, SweepAssigned, WriteAssigned, WriteCPUSet
from mooring.agent.executor import CPUSET_FILE, MEMSET_FILE, AssignedFiles
from mooring.agent.nri.types import Event, LinuxResources, Mount
from mooring.agent.reactor.create_container import create_container, prepare_claim
from mooring.agent.reactor.desired import are_files_behind
from mooring.agent.reactor.lifecycle import state_change
from mooring.agent.reactor.response import Adjusted, EventOutcome
from mooring.agent.reactor.synchronize import synchronize
from mooring.agent.reactor.update_container import released
from mooring.agent.state import AgentState, Options
from mooring.engine.core.bits import CPUMask, list_text
from mooring.engine.core.config import AssignedScope
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.pod import Pod
from mooring.engine.node.claims import Claim, Share


def created(state: AgentState, pod: Pod, asks: bool = True) -> EventOutcome:
    place = annotated(pod.uid) if asks else sandbox(pod.uid)
    limit = pod.containers[0].limits.get("cpu")
    asked = sizes(limit.milli / 1000) if limit is not None else LinuxResources(shares=2)
    return create_container(state, place, container(pod.uid, resources=asked), pod)


def told(state: AgentState | None = None) -> AgentState:
    """Return a state with ``a`` on CPUs 1-2, which is told so, and runs."""
    made = created(state or resizable(), guaranteed("a", "2"))
    assert isinstance(made.answer, Adjusted)
    live = container("a", pid=99, resources=replace(sizes(2), cpus="1-2", mems="0", quota=-1))
    after = made.state
    for event in (Event.POST_CREATE_CONTAINER, Event.START_CONTAINER, Event.POST_START_CONTAINER):
        after = state_change(after, event, annotated("a"), live).state
    return after


def resize(state: AgentState, cpus: int) -> EventOutcome:
    return update(state, "a", sizes(cpus), place=annotated("a"))


def after_update(state: AgentState) -> EventOutcome:
    return state_change(state, Event.POST_UPDATE_CONTAINER, annotated("a"), container("a"))


def files_of(outcome: EventOutcome) -> list[Effect]:
    return [one for one in outcome.effects if isinstance(one, WriteAssigned | DropAssigned)]


def says(outcome: EventOutcome) -> list[tuple[str, str]]:
    return [
        (str(one.assigned.cpus), list_text(one.assigned.mems))
        for one in outcome.effects
        if isinstance(one, WriteAssigned)
    ]


# Which, and what at creation.


def test_a_pod_that_asks_gets_files_a_mount_and_an_environment() -> None:
    made = created(resizable(), guaranteed("a", "2"))
    assert isinstance(made.answer, Adjusted)
    assert made.answer.adjustment.environment == {"MOORING_CPUSET": "1-2", "MOORING_MEMSET": "0"}
    assert made.answer.adjustment.mounts == (
        Mount(
            "/run/mooring-assigned",
            "/run/mooring/assigned/a-main-0",
            ("rbind", "ro", "nosuid", "nodev", "noexec"),
            "bind",
        ),
    )
    assert files_of(made) == [WriteAssigned("a-main-0", assigned("1-2", "0"), makes=True)]


def test_nobody_else_does_unless_all_do() -> None:
    quiet = created(resizable(), guaranteed("a", "2"), asks=False)
    assert isinstance(quiet.answer, Adjusted)
    assert (quiet.answer.adjustment.environment, quiet.answer.adjustment.mounts, files_of(quiet)) == ({}, (), [])
    everybody = resizable(options=Options(telling=AssignedScope.ALL, assigned_dir="/x/y", assigned_mount_path="/z"))
    loud = created(everybody, guaranteed("a", "2"), asks=False)
    assert isinstance(loud.answer, Adjusted)
    [mount] = loud.answer.adjustment.mounts
    assert (mount.source, mount.destination) == ("/x/y/a-main-0", "/z")


def test_without_the_extension_nobody_is_told() -> None:
    state = resizable(mooring=replace(EXTENDED, extensions=EXTENDED.extensions - {"assigned-cpuset"}))
    made = created(state, guaranteed("a", "2"))
    assert isinstance(made.answer, Adjusted)
    assert (made.answer.adjustment.mounts, files_of(made)) == ((), [])


def test_a_container_of_the_shared_pool_is_told_that_it_has_nothing() -> None:
    assert says(created(resizable(), shared("s"))) == [("", "")]


def test_cpus_of_claims_are_among_a_containers_own() -> None:
    two = Claim(
        "u-1", "shop", "two", (Share("fast", "numa1", 2, CPUMask(0xF0)), Share("slow", "numa1", 1, CPUMask(0xF0)))
    )
    slow = "MOORING_CLAIM_U_1_1"
    for pod, own in ((shared("a"), ""), (guaranteed("a", "2"), "1-2,")):
        state = prepare_claim(resizable(), two, ["a"]).state
        limit = pod.containers[0].limits.get("cpu")
        asked = sizes(limit.milli / 1000) if limit is not None else LinuxResources(shares=2)
        made = create_container(state, annotated("a"), container("a", claims=(slow,), resources=asked), pod)
        assert isinstance(made.answer, Adjusted)
        [(cpus, _)] = says(made)
        assert cpus == f"{own}6"
        assert made.answer.adjustment.environment["MOORING_CPUSET"] == cpus
        after = made.state
        live = container("a", pid=99, claims=(slow,), resources=replace(asked, cpus=cpus))
        for event in (Event.POST_CREATE_CONTAINER, Event.START_CONTAINER, Event.POST_START_CONTAINER):
            outcome = state_change(after, event, annotated("a"), live)
            after = outcome.state
            assert not says(outcome), "nothing has changed"
        assert not are_files_behind(after)


def test_an_id_that_is_no_name_of_a_folder_gets_no_files() -> None:
    pod = guaranteed("a", "2")
    strange = replace(sized("a", 2), id="../../etc")
    made = create_container(resizable(), annotated("a"), strange, pod)
    assert isinstance(made.answer, Adjusted)
    assert (made.answer.adjustment.mounts, files_of(made)) == ((), [])


# When.


def test_on_a_shrink_the_file_comes_first_and_the_cpuset_after_the_delay() -> None:
    grown = after_update(resize(told(), 4).state).state
    found = resize(grown, 2)
    assert says(found) == [("1-2", "0")]
    assert not [one for one in found.effects if isinstance(one, WriteCPUSet)]
    late = released(found.state, LATE)
    assert [str(one.cpus) for one in late.effects if isinstance(one, WriteCPUSet)] == ["1-2"]


def test_when_cpus_are_taken_back_the_files_come_again_because_older_kernels_have_undone_all_pins() -> None:
    grown = after_update(resize(told(), 4).state).state
    pending = resize(grown, 2).state
    late = released(pending, LATE)
    assert files_of(late) == [WriteAssigned("a-main-0", assigned("1-2", "0"), makes=False, again=True)]
    order = [type(one) for one in late.effects if isinstance(one, WriteCPUSet | WriteAssigned)]
    assert order == [WriteCPUSet, WriteAssigned]
    assert files_of(released(pending, LATE, {("a", "main")})) == []


def test_on_a_shrink_without_delay_the_file_is_written_before_the_reply_that_takes_the_cpus() -> None:
    grown = after_update(resize(told(resizable(RESIZING)), 4).state).state
    found = resize(grown, 2)
    assert [type(one) for one in found.effects][:2] == [Persist, WriteAssigned]
    assert says(found) == [("1-2", "0")]


def test_on_a_growth_the_cpuset_comes_first_and_the_file_when_it_is_there() -> None:
    found = resize(told(), 4)
    assert says(found) == []
    late = after_update(found.state)
    order = [one for one in late.effects if isinstance(one, WriteCPUSet | WriteAssigned)]
    assert order == [
        cpuset_write("a-main-0", 99, "", "1-4", "0"),
        WriteAssigned("a-main-0", assigned("1-4", "0"), makes=False),
    ]


def test_growing_back_during_a_delay_shows_the_cpus_again_afterwards() -> None:
    grown = after_update(resize(told(), 4).state).state
    shrunk = resize(grown, 2).state
    found = resize(shrunk, 4)
    assert says(found) == []
    assert says(after_update(found.state)) == [("1-4", "0")]


def test_a_refused_resize_changes_no_file() -> None:
    assert files_of(resize(told(), 1)) == []


def test_files_go_with_their_container() -> None:
    state = told()
    gone = state_change(state, Event.REMOVE_CONTAINER, annotated("a"), container("a"))
    assert files_of(gone) == [DropAssigned("a-main-0")]
    ended = state_change(state, Event.STOP_POD_SANDBOX, annotated("a"), None)
    assert files_of(ended) == [DropAssigned("a-main-0")]


def test_after_a_restart_files_are_written_anew_and_strays_are_cleared_away() -> None:
    found = synchronize(
        resizable(),
        [annotated("a"), sandbox("s")],
        [replace(running("a"), resources=LinuxResources(cpus="1-2", mems="0", quota=-1)), running("s")],
        {"a": guaranteed("a", "2"), "s": shared("s")},
    )
    assert says(found) == [("1-2", "0")]
    [sweep] = [one for one in found.effects if isinstance(one, SweepAssigned)]
    assert sweep == SweepAssigned(frozenset({"a-main-0"}), frozenset({"s-main-0"}))


# The files themselves.


@pytest.fixture
def mine(tmp_path: Path) -> AssignedFiles:
    return AssignedFiles(tmp_path / "run" / "assigned")


def write(mine: AssignedFiles, cpus: str, mems: str = "", name: str = "c1", *, makes: bool = True) -> str:
    return mine.do(WriteAssigned(name, assigned(cpus, mems), makes))


def read(mine: AssignedFiles, name: str = "c1") -> tuple[str, str]:
    folder = mine.folder / name
    return (folder / CPUSET_FILE).read_text("ascii"), (folder / MEMSET_FILE).read_text("ascii")


def test_everybody_may_read_and_a_new_text_is_a_new_file(mine: AssignedFiles) -> None:
    mine.folder.parent.mkdir()
    assert write(mine, "1-2", "0-1") == ""
    assert read(mine) == ("1-2", "0-1")
    file = mine.folder / "c1" / CPUSET_FILE
    assert stat.S_IMODE(file.stat().st_mode) == 0o444
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o755
    with file.open() as old:
        write(mine, "1-4", "0-1")
        assert (old.read(), file.read_text()) == ("1-2", "1-4")
    assert sorted(one.name for one in file.parent.iterdir()) == [CPUSET_FILE, MEMSET_FILE]


def test_a_text_that_is_there_is_not_written_again(mine: AssignedFiles) -> None:
    mine.folder.parent.mkdir()
    write(mine, "1-2")
    before = (mine.folder / "c1" / CPUSET_FILE).stat().st_ino
    write(mine, "1-2")
    assert (mine.folder / "c1" / CPUSET_FILE).stat().st_ino == before


def test_a_text_that_comes_again_is_a_new_file_for_those_who_watch(mine: AssignedFiles) -> None:
    mine.folder.parent.mkdir()
    write(mine, "1-2", "0")
    with (mine.folder / "c1" / CPUSET_FILE).open() as before:
        assert mine.do(WriteAssigned("c1", assigned("1-2", "0"), makes=False, again=True)) == ""
        assert os.fstat(before.fileno()).st_nlink == 0
    assert read(mine) == ("1-2", "0")


def test_a_container_that_runs_without_files_gets_none(mine: AssignedFiles) -> None:
    assert write(mine, "1-2", makes=False) == ""
    assert not mine.folder.exists()


def test_a_sweep_keeps_who_is_told_silences_who_is_not_and_removes_the_rest(mine: AssignedFiles) -> None:
    mine.folder.parent.mkdir()
    for name in ("told", "silent", "gone"):
        write(mine, "1-2", "0", name)
    (mine.folder / "gone" / ".assigned.cpuset").write_text("half")
    assert mine.do(SweepAssigned(frozenset({"told"}), frozenset({"silent"}))) == ""
    assert (read(mine, "told"), read(mine, "silent")) == (("1-2", "0"), ("", ""))
    assert sorted(one.name for one in mine.folder.iterdir()) == ["silent", "told"]
    assert mine.do(DropAssigned("told")) == ""
    assert not (mine.folder / "told").exists()


def test_what_cannot_be_written_is_told_in_words(mine: AssignedFiles) -> None:
    mine.folder.parent.write_text("a file where a folder should be")
    assert "Not a directory" in write(mine, "1-2") or "not a directory" in write(mine, "1-2")


# The example clients of the protocol, each on files as the agent writes them.


EXAMPLES = Path(__file__).parents[2] / "examples" / "assigned"
HERE = sorted(os.sched_getaffinity(0))
CLIENTS = ("python", "c", "shell")


@pytest.fixture
def files(tmp_path: Path) -> AssignedFiles:
    return AssignedFiles(tmp_path / "assigned")


def tell(files: AssignedFiles, *cpus: int) -> str:
    text = str(CPUSet.of(*cpus))
    assert files.do(WriteAssigned("c1", assigned(text), makes=True)) == ""
    return text


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    # It ends with its input: at the end of the test, and with the tests themselves whatever becomes of them.
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as made:
        yield made


def words(client: str, folder: Path, scratch: Path, sleeper: int) -> list[str]:
    if client == "python":
        return [sys.executable, str(EXAMPLES / "follow.py"), str(folder)]
    if client == "shell":
        if shutil.which("taskset") is None:
            pytest.skip("no taskset")
        return ["sh", str(EXAMPLES / "follow.sh"), str(sleeper), str(folder)]
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no compiler")
    program = scratch / "follow"
    flags = ["-O2", "-Wall", "-Wextra", "-Werror", "-o"]
    subprocess.run([compiler, *flags, str(program), str(EXAMPLES / "follow.c")], check=True)
    return [str(program), str(folder)]


@pytest.mark.skipif(len(HERE) < 2, reason="one CPU cannot be lost")
@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_follows_every_change_of_its_cpus(
    files: AssignedFiles, tmp_path: Path, sleeper: subprocess.Popen[bytes], client: str
) -> None:
    one, other = HERE[:2]
    tell(files, one)
    command = words(client, files.folder / "c1", tmp_path, sleeper.pid)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as follows:
        assert follows.stdout is not None
        pinned = sleeper.pid if client == "shell" else follows.pid
        try:
            assert follows.stdout.readline() == f"CPUs: {one}\n"
            for cpus in ((one, other), (other,)):
                tell(files, *cpus)
                said = follows.stdout.readline()
                assert CPUSet.parse(said.removeprefix("CPUs: ").strip()) == CPUSet.of(*cpus)
            # A thread that the program has waited for may be there for a moment longer.
            until(lambda: _pinned(pinned, client) == {other}, f"it runs on CPU {other}")
            tell(files)
            assert follows.stdout.readline() == "CPUs: those of everybody\n"
        finally:
            follows.kill()


def _pinned(pid: int, client: str) -> set[int]:
    """Return the CPUs of a process; of the Python client those of its threads beside the first."""
    if client != "python":
        return os.sched_getaffinity(pid)
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        if int(task.name) != pid:
            with suppress(ProcessLookupError):
                found |= os.sched_getaffinity(int(task.name))
    return found
