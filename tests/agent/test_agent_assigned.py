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
from tests.agent import small_node as small
from tests.agent.small_node import (
    CONFIG,
    DELAYING,
    EXTENDED,
    LATE,
    START,
    adjustment_of,
    assigned,
    container,
    cpuset_write,
    create,
    effects_of,
    ended,
    guaranteed,
    resizable,
    running,
    sandbox,
    shared,
    sizes,
    started,
    told,
    writes,
)
from tests.patience import until

from mooring.agent.effects import DropAssigned, Persist, SweepAssigned, WriteAssigned, WriteCPUSet
from mooring.agent.executor import CPUSET_FILE, MEMSET_FILE, SHARED_FILE, AssignedFiles
from mooring.agent.nri.types import Event, LinuxResources, Mount
from mooring.agent.reactor.create_container import prepare_claim
from mooring.agent.reactor.desired import DesiredSettings, are_files_behind
from mooring.agent.reactor.lifecycle import correct_deviation, state_change
from mooring.agent.reactor.response import EventOutcome
from mooring.agent.reactor.synchronize import synchronize
from mooring.agent.reactor.update_container import reclaiming_writes, released, update_container
from mooring.agent.state import AgentState, Options
from mooring.engine.core.bits import CPUMask, list_text
from mooring.engine.core.config import ASSIGNED_CPUSET, MIXED_CPUS, AssignedScope, KubeletConfig, MooringConfig
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.pod import Pod
from mooring.engine.node.claims import Claim, Share
from mooring.engine.node.providers import ANNOTATION

A = guaranteed("a", "2", annotations={"mooring/assigned": "true"})
"""A pod that asks to be told its CPUs."""


def resize(state: AgentState, cpus: int, pod: Pod = A) -> EventOutcome:
    return update_container(state, small.place_of(pod), container(pod.uid, pid=99), sizes(cpus), None, START)


def after_update(state: AgentState, pod: Pod = A) -> EventOutcome:
    return state_change(state, Event.POST_UPDATE_CONTAINER, small.place_of(pod), container(pod.uid))


def grown(state: AgentState | None = None) -> AgentState:
    """Return a state in which ``a`` runs, has grown from CPUs 1-2 to 1-4, and is told so."""
    return after_update(resize(started(state or resizable(), A), 4).state).state


def files_of(outcome: EventOutcome) -> list[WriteAssigned | DropAssigned]:
    return [one for one in outcome.effects if isinstance(one, WriteAssigned | DropAssigned)]


def says(outcome: EventOutcome) -> list[tuple[str, str]]:
    written = effects_of(outcome, WriteAssigned)
    return [(str(one.assigned.cpus), list_text(one.assigned.mems)) for one in written]


# Which, and what at creation.


def test_a_pod_that_asks_gets_files_a_mount_and_an_environment() -> None:
    made = create(resizable(), A)
    assert adjustment_of(made).environment == {"MOORING_CPUSET": "1-2", "MOORING_MEMSET": "0"}
    options = ("rbind", "ro", "nosuid", "nodev", "noexec")
    assert adjustment_of(made).mounts == (
        Mount("/run/mooring-assigned", "/run/mooring/assigned/a-main-0", options, "bind"),
    )
    assert files_of(made) == [WriteAssigned("a-main-0", assigned("1-2", "0"), makes=True)]
    assert says(create(resizable(), replace(shared("s"), annotations=A.annotations))) == [("", "")]


def test_nobody_else_does_unless_all_do() -> None:
    without = resizable(mooring=replace(EXTENDED, extensions=EXTENDED.extensions - {"assigned-cpuset"}))
    for quiet in (create(resizable(), guaranteed("a", "2")), create(without, A)):
        assert (adjustment_of(quiet).environment, adjustment_of(quiet).mounts, files_of(quiet)) == ({}, (), [])
    everybody = resizable(options=Options(telling=AssignedScope.ALL, assigned_dir="/x/y", assigned_mount_path="/z"))
    [mount] = adjustment_of(create(everybody, guaranteed("a", "2"))).mounts
    assert (mount.source, mount.destination) == ("/x/y/a-main-0", "/z")


def test_an_id_that_is_no_name_of_a_folder_gets_no_files() -> None:
    strange = create(resizable(), A, id="../../etc")
    assert (adjustment_of(strange).environment, adjustment_of(strange).mounts, files_of(strange)) == ({}, (), [])


@pytest.mark.parametrize(("pod", "own"), [(shared("a"), ""), (A, "1-2,")], ids=["shared", "guaranteed"])
def test_cpus_of_claims_are_among_a_containers_own(pod: Pod, own: str) -> None:
    shares = (Share("fast", "numa1", 2, CPUMask(0xF0)), Share("slow", "numa1", 1, CPUMask(0xF0)))
    state = prepare_claim(resizable(), Claim("u-1", "shop", "two", shares), ["a"]).state
    pod, slow = replace(pod, annotations=A.annotations), "MOORING_CLAIM_U_1_1"
    made = create(state, pod, claims=(slow,))
    assert says(made)[0][0] == adjustment_of(made).environment["MOORING_CPUSET"] == f"{own}6"
    after = made.state
    asked = made.state.containers["a-main-0"].asked
    live = container("a", pid=99, claims=(slow,), resources=replace(asked, cpus=f"{own}6"))
    for event in small.STARTS:
        outcome = state_change(after, event, small.place_of(pod), live)
        after = outcome.state
        assert not says(outcome), "nothing has changed"
    assert not are_files_behind(after)


# When.


def test_on_a_shrink_the_file_comes_first_and_the_cpuset_after_the_delay() -> None:
    """Older kernels undo all pins when CPUs are taken back, so that the files come again then."""
    found = resize(grown(), 2)
    assert (says(found), writes(found)) == ([("1-2", "0")], [])
    late = released(found.state, LATE)
    assert writes(late) == [("a", "1-2")]
    assert files_of(late) == [WriteAssigned("a-main-0", assigned("1-2", "0"), makes=False, again=True)]
    order = [type(one) for one in late.effects if isinstance(one, WriteCPUSet | WriteAssigned)]
    assert order == [WriteCPUSet, WriteAssigned]
    assert files_of(released(found.state, LATE, {("a", "main")})) == []


def test_after_a_restart_files_are_written_anew_and_strays_are_cleared_away() -> None:
    live = replace(running("a"), resources=LinuxResources(cpus="1-2", mems="0", quota=-1))
    pods = {"a": A, "s": shared("s")}
    found = synchronize(resizable(), [small.place_of(A), sandbox("s")], [live, running("s")], pods)
    assert says(found) == [("1-2", "0")]
    sweep = SweepAssigned(frozenset({"a-main-0"}), frozenset({"s-main-0"}))
    assert effects_of(found, SweepAssigned) == [sweep]


# The files themselves.


@pytest.fixture
def mine(tmp_path: Path) -> AssignedFiles:
    (tmp_path / "run").mkdir()
    return AssignedFiles(tmp_path / "run" / "assigned")


def write(mine: AssignedFiles, cpus: str, mems: str = "", name: str = "c1", *, makes: bool = True) -> str:
    return mine.do(WriteAssigned(name, assigned(cpus, mems), makes))


def read(mine: AssignedFiles, name: str = "c1") -> tuple[str, str]:
    folder = mine.folder / name
    return (folder / CPUSET_FILE).read_text("ascii"), (folder / MEMSET_FILE).read_text("ascii")


def test_everybody_may_read_and_a_new_text_is_a_new_file(mine: AssignedFiles) -> None:
    assert write(mine, "1-2", "0-1") == ""
    assert read(mine) == ("1-2", "0-1")
    file = mine.folder / "c1" / CPUSET_FILE
    assert stat.S_IMODE(file.stat().st_mode) == 0o444
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o755
    with file.open() as old:
        write(mine, "1-4", "0-1")
        assert (old.read(), file.read_text()) == ("1-2", "1-4")
    assert sorted(one.name for one in file.parent.iterdir()) == [CPUSET_FILE, MEMSET_FILE]


def test_a_text_that_is_there_is_not_written_again_but_for_those_who_watch(mine: AssignedFiles) -> None:
    write(mine, "1-2", "0")
    with (mine.folder / "c1" / CPUSET_FILE).open() as before:
        write(mine, "1-2", "0")
        assert os.fstat(before.fileno()).st_nlink == 1
        assert mine.do(WriteAssigned("c1", assigned("1-2", "0"), makes=False, again=True)) == ""
        assert os.fstat(before.fileno()).st_nlink == 0
    assert read(mine) == ("1-2", "0")


def test_a_container_that_runs_without_files_gets_none(mine: AssignedFiles) -> None:
    assert write(mine, "1-2", makes=False) == ""
    assert not mine.folder.exists()


def test_a_sweep_keeps_who_is_told_silences_who_is_not_and_removes_the_rest(mine: AssignedFiles) -> None:
    for name in ("told", "silent", "gone"):
        write(mine, "1-2", "0", name)
    (mine.folder / "gone" / ".assigned.cpuset").write_text("half")
    assert mine.do(SweepAssigned(frozenset({"told"}), frozenset({"silent"}))) == ""
    assert (read(mine, "told"), read(mine, "silent")) == (("1-2", "0"), ("", ""))
    assert sorted(one.name for one in mine.folder.iterdir()) == ["silent", "told"]
    assert mine.do(DropAssigned("told")) == ""
    assert not (mine.folder / "told").exists()


def test_what_cannot_be_written_is_told_in_words(mine: AssignedFiles) -> None:
    mine.folder.write_text("a file where a folder should be")
    assert "not a directory" in write(mine, "1-2").lower()


# The example clients of the protocol, each on files as the agent writes them.


EXAMPLES = Path(__file__).parents[2] / "examples" / "assigned"
HERE = sorted(os.sched_getaffinity(0))
CLIENTS = ("python", "c", "shell")


def tell(mine: AssignedFiles, *cpus: int) -> None:
    assert write(mine, str(CPUSet.of(*cpus))) == ""


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
    mine: AssignedFiles, tmp_path: Path, sleeper: subprocess.Popen[bytes], client: str
) -> None:
    one, other = HERE[:2]
    tell(mine, one)
    command = words(client, mine.folder / "c1", tmp_path, sleeper.pid)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as follows:
        assert follows.stdout is not None
        pinned = sleeper.pid if client == "shell" else follows.pid
        try:
            assert follows.stdout.readline() == f"CPUs: {one}\n"
            for cpus in ((one, other), (other,)):
                tell(mine, *cpus)
                said = follows.stdout.readline()
                assert CPUSet.parse(said.removeprefix("CPUs: ").strip()) == CPUSet.of(*cpus)
            # A thread that the program has waited for may be there for a moment longer.
            until(lambda: _pinned(pinned, client) == {other}, f"it runs on CPU {other}")
            tell(mine)
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


# Mixed containers in the agent's heart: cpusets follow the pool, and what containers are told says which is which.


M = guaranteed("m", "2", annotations={ANNOTATION: "true"})
"""A pod with a mixed container."""
OTHER = guaranteed("o", "3")
MIXING = MooringConfig(frozenset({MIXED_CPUS, ASSIGNED_CPUSET}), frozenset({"pod-restart"}))
BOTH = replace(EXTENDED, extensions=EXTENDED.extensions | {MIXED_CPUS})


def begun(
    mooring: MooringConfig = MIXING, telling: AssignedScope = AssignedScope.ALL, config: KubeletConfig = CONFIG
) -> AgentState:
    return resizable(config, options=Options(telling=telling), mooring=mooring)


def of_m(outcome: EventOutcome) -> list[WriteAssigned | WriteCPUSet]:
    """Return what is written of the mixed container."""
    every = [one for one in outcome.effects if isinstance(one, WriteAssigned | WriteCPUSet)]
    return [one for one in every if one.container_id == "m-main-0"]


# Where it runs.


def test_its_cpuset_and_file_shrink_with_the_reply_that_gives_others_cpus_of_the_pool_and_grow_when_they_go() -> None:
    state = started(begun(), M)
    found = create(state, OTHER)
    assert told(found) == [("m-main-0", "0-3,7")]
    # The file loses CPUs before the reply that takes them, and gets some when the cpuset has them.
    [mine] = of_m(found)
    assert mine == WriteAssigned("m-main-0", assigned("1-2", "0", "0,3,7"), makes=False)
    assert isinstance(found.effects[0], Persist)
    assert found.effects.index(mine) == 1
    assert of_m(ended(started(state, OTHER), "o")) == [
        cpuset_write("m-main-0", 99, "", "0-7", "0"),
        WriteAssigned("m-main-0", assigned("1-2", "0", "0,3-7"), makes=False),
    ]


def test_a_mixed_container_on_the_pool_is_no_deviation_and_one_without_it_is() -> None:
    state = started(begun(), M)
    assert correct_deviation(state, "m-main-0", small.cpus("0-7"), small.nodes("0")).effects == ()
    found = correct_deviation(state, "m-main-0", small.cpus("1-2"), small.nodes("0"))
    assert cpuset_write("m-main-0", 99, "", "0-7", "0") in found.effects


def test_an_empty_pool_leaves_it_with_its_own_and_it_does_not_need_the_pool() -> None:
    state = started(begun(config=small.STRICT), M)
    assert told(create(state, guaranteed("o", "5"))) == [("m-main-0", "1-2")]


# What it is told.


@pytest.mark.parametrize("has_files", [True, False])
def test_its_environment_tells_its_cpus_apart_with_files_or_without(has_files: bool) -> None:
    mooring = MIXING if has_files else replace(MIXING, extensions=frozenset({MIXED_CPUS}))
    environment = adjustment_of(create(begun(mooring), M)).environment
    assert environment["MOORING_EXCLUSIVE_CPUS"] == "1-2"
    assert environment["MOORING_SHARED_CPUS"] == "0,3-7"
    assert ("MOORING_CPUSET" in environment) is has_files


def test_who_is_not_mixed_is_not_told_the_pool() -> None:
    made = create(begun(), guaranteed("a", "2"))
    assert set(adjustment_of(made).environment) == {"MOORING_CPUSET", "MOORING_MEMSET"}
    assert [one.assigned.shared for one in effects_of(made, WriteAssigned)] == [None]


# Resizing.


def test_a_cpu_that_goes_from_the_pool_to_its_own_leaves_one_file_before_it_comes_into_the_other() -> None:
    found = resize(started(begun(BOTH, config=DELAYING), M), 3, M)
    assert [one.assigned for one in effects_of(found, WriteAssigned)] == [assigned("1-2", "0", "0,4-7")]
    late = after_update(found.state, M)
    assert [one.assigned for one in effects_of(late, WriteAssigned)] == [assigned("1-3", "0", "0,4-7")]


def test_a_release_leaves_it_the_pool() -> None:
    state = started(begun(BOTH, config=DELAYING), M)
    for count in (4, 2):
        state = after_update(resize(state, count, M).state, M).state
    [write] = reclaiming_writes(state, LATE)["m", "main"]
    assert str(write.cpus) == "0-2,5-7"
    assert str(DesiredSettings.now(released(state, LATE).state).of("m", "main").cpus) == "0-7"


# After a restart.


def test_after_a_restart_it_gets_both_again_and_its_files_say_no_more_than_it_has() -> None:
    live = [running("m", cpus="0-4", mems="0"), running("s")]
    found = synchronize(begun(), [small.place_of(M), sandbox("s")], live, {"m": M, "s": shared("s")})
    assert str(DesiredSettings.now(found.state).of("m", "main").cpus) == "0-7"
    says = [one for one in of_m(found) if isinstance(one, WriteAssigned)]
    assert says[0].assigned == assigned("1-2", "0", "0,3-4")
    assert str(found.state.containers["m-main-0"].record.cpus) == "0-7"


# Files.


def test_only_a_mixed_container_has_the_pools_file_which_empties_and_goes_with_it(mine: AssignedFiles) -> None:
    folder = mine.folder / "c1"
    write(mine, "1-2", "0")
    assert {one.name for one in folder.iterdir()} == {CPUSET_FILE, MEMSET_FILE}
    mine.do(WriteAssigned("c1", assigned("1-2", "0", "0,3"), makes=True))
    assert (folder / SHARED_FILE).read_text("ascii") == "0,3"
    assert mine.do(SweepAssigned(frozenset(), frozenset({"c1"}))) == ""
    assert (folder / SHARED_FILE).read_text("ascii") == ""
    assert mine.do(SweepAssigned(frozenset(), frozenset())) == ""
    assert not folder.exists()
