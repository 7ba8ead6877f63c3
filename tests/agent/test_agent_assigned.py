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
from tests.agent.small_node import (
    CONFIG,
    DELAYING,
    EXTENDED,
    INFO,
    LATE,
    RESIZING,
    START,
    adjustment_of,
    annotated,
    assigned,
    container,
    cpus,
    cpuset_write,
    guaranteed,
    nodes,
    resizable,
    running,
    sandbox,
    shared,
    sized,
    sizes,
    updates_of,
)
from tests.agent.test_agent_resizing import update
from tests.patience import until

from mooring.agent.effects import DropAssigned, Effect, Persist, SweepAssigned, WriteAssigned, WriteCPUSet
from mooring.agent.executor import CPUSET_FILE, MEMSET_FILE, SHARED_FILE, AssignedFiles
from mooring.agent.nri.types import Event, LinuxResources, Mount, PodSandbox
from mooring.agent.reactor.create_container import create_container, prepare_claim
from mooring.agent.reactor.desired import DesiredSettings, are_files_behind
from mooring.agent.reactor.lifecycle import correct_deviation, state_change
from mooring.agent.reactor.recovery import reconfigured, resume
from mooring.agent.reactor.response import Adjusted, EventOutcome, enforced
from mooring.agent.reactor.synchronize import synchronize
from mooring.agent.reactor.update_container import reclaiming_writes, released, update_container
from mooring.agent.state import AgentState, Options
from mooring.agent.status import overlaps
from mooring.engine.core.bits import CPUMask, list_text
from mooring.engine.core.config import ASSIGNED_CPUSET, MIXED_CPUS, AssignedScope, KubeletConfig, MooringConfig
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.pod import Pod
from mooring.engine.node.claims import Claim, Share
from mooring.engine.node.providers import ANNOTATION


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
    assert adjustment_of(made).environment == {"MOORING_CPUSET": "1-2", "MOORING_MEMSET": "0"}
    assert adjustment_of(made).mounts == (
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
    assert (adjustment_of(quiet).environment, adjustment_of(quiet).mounts, files_of(quiet)) == ({}, (), [])
    everybody = resizable(options=Options(telling=AssignedScope.ALL, assigned_dir="/x/y", assigned_mount_path="/z"))
    loud = created(everybody, guaranteed("a", "2"), asks=False)
    [mount] = adjustment_of(loud).mounts
    assert (mount.source, mount.destination) == ("/x/y/a-main-0", "/z")


def test_without_the_extension_nobody_is_told() -> None:
    state = resizable(mooring=replace(EXTENDED, extensions=EXTENDED.extensions - {"assigned-cpuset"}))
    made = created(state, guaranteed("a", "2"))
    assert (adjustment_of(made).mounts, files_of(made)) == ((), [])


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
        [(cpus, _)] = says(made)
        assert cpus == f"{own}6"
        assert adjustment_of(made).environment["MOORING_CPUSET"] == cpus
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
    assert (adjustment_of(made).mounts, files_of(made)) == ((), [])


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


# Mixed containers in the agent's heart: cpusets follow the pool, and what containers are told says which is which.


ASKS = {ANNOTATION: "true"}
MIXING = MooringConfig(frozenset({MIXED_CPUS, ASSIGNED_CPUSET}), frozenset({"pod-restart"}))
BOTH = replace(EXTENDED, extensions=EXTENDED.extensions | {MIXED_CPUS})


def begun(
    mooring: MooringConfig = MIXING, telling: AssignedScope = AssignedScope.ALL, config: KubeletConfig = CONFIG
) -> AgentState:
    return resume(INFO, config, mooring, None, Options(telling=telling)).state


def place_of(pod: Pod) -> PodSandbox:
    return replace(sandbox(pod.uid), annotations=pod.annotations)


def created_mixed(state: AgentState, pod: Pod) -> EventOutcome:
    limit = pod.containers[0].limits.get("cpu")
    asked = sizes(limit.milli / 1000 if limit is not None else 0.002)
    return create_container(state, place_of(pod), container(pod.uid, resources=asked), pod)


def live(state: AgentState, pod: Pod) -> AgentState:
    """Create a container and let it run."""
    made = created_mixed(state, pod)
    linux = adjustment_of(made).resources
    told = replace(container(pod.uid), pid=99, resources=linux)
    after = made.state
    for event in (Event.POST_CREATE_CONTAINER, Event.START_CONTAINER, Event.POST_START_CONTAINER):
        after = state_change(after, event, place_of(pod), told).state
    return after


def mixing(uid: str, cpus: str = "2") -> Pod:
    return guaranteed(uid, cpus, annotations=ASKS)


def ended(state: AgentState, uid: str) -> EventOutcome:
    return state_change(state, Event.STOP_POD_SANDBOX, sandbox(uid), None)


def cpus_told(outcome: EventOutcome) -> dict[str, str]:
    return {one.container_id: one.resources.cpus for one in updates_of(outcome)}


def written(outcome: EventOutcome) -> list[WriteAssigned | WriteCPUSet]:
    return [one for one in outcome.effects if isinstance(one, WriteAssigned | WriteCPUSet)]


# Where it runs.


def test_a_mixed_container_is_created_with_its_own_cpus_and_the_pool_and_without_quota() -> None:
    made = created_mixed(begun(), mixing("m"))
    assert (adjustment_of(made).resources.cpus, adjustment_of(made).resources.quota) == ("0-7", -1)
    assert made.state.kubelet.node.cpu.assignments == {"m": {"main": 0b110}}
    plain = created_mixed(begun(replace(MIXING, extensions=frozenset())), mixing("m"))
    assert adjustment_of(plain).resources.cpus == "1-2"


def test_its_cpuset_shrinks_with_the_reply_that_gives_others_cpus_of_the_pool_and_grows_when_they_go() -> None:
    state = live(begun(), mixing("m"))
    assert cpus_told(created_mixed(state, guaranteed("o", "3"))) == {"m-main-0": "0-3,7"}
    assert cpuset_write("m-main-0", 99, "", "0-7", "0") in ended(live(state, guaranteed("o", "3")), "o").effects


def test_two_mixed_containers_meet_in_the_pool_and_nowhere_else() -> None:
    state = live(live(begun(), mixing("m")), mixing("n"))
    wanted = DesiredSettings.now(state)
    sets = [wanted.of(uid, "main").cpus for uid in ("m", "n")]
    assert str(sets[0] & sets[1]) == str(state.kubelet.node.shared_pool)
    assert overlaps(state, {}) == ()


def test_a_mixed_container_on_exclusive_cpus_of_another_is_an_overlap() -> None:
    state = live(live(begun(), mixing("m")), guaranteed("o", "2"))
    [found] = overlaps(state, {"m-main-0": CPUSet.parse("0-7")})
    assert found == ("m-main-0", "o-main-0", CPUSet.parse("4-5"))


def test_a_mixed_container_on_the_pool_is_no_deviation_and_one_without_it_is() -> None:
    state = live(begun(), mixing("m"))
    assert correct_deviation(state, "m-main-0", cpus("0-7"), nodes("0")).effects == ()
    found = correct_deviation(state, "m-main-0", cpus("1-2"), nodes("0"))
    assert cpuset_write("m-main-0", 99, "", "0-7", "0") in found.effects


def test_an_empty_pool_leaves_it_with_its_own_and_it_does_not_need_the_pool() -> None:
    strict = replace(CONFIG, cpu_manager_policy_options={"strict-cpu-reservation": "true"})
    state = live(begun(config=strict), mixing("m"))
    assert cpus_told(created_mixed(state, guaranteed("o", "5"))) == {"m-main-0": "1-2"}


def test_losers_are_written_before_those_who_get() -> None:
    state = live(live(live(begun(), shared("s")), guaranteed("o", "4")), mixing("m"))
    node = state.kubelet.node
    held = node.cpu.assignments["o"]["main"]
    for mask, order in ((held & ~0x80, ["o", "s", "m"]), (held | 0x08, ["s", "m", "o"])):
        cpu = replace(
            node.cpu,
            default=(node.cpu.default | held) & ~mask,
            assignments={**node.cpu.assignments, "o": {"main": mask}},
        )
        changed = replace(node, providers=replace(node.providers, cpu=cpu))
        _, effects = enforced(state, replace(state, kubelet=replace(state.kubelet, node=changed)))
        assert [one.container_id[0] for one in effects if isinstance(one, WriteCPUSet)] == order


def test_a_change_of_the_configuration_is_a_change_of_the_cpuset() -> None:
    state = live(begun(), mixing("m"))
    off = reconfigured(state, CONFIG, replace(MIXING, extensions=frozenset({ASSIGNED_CPUSET})))
    after, effects = enforced(state, off.state)  # type: ignore[union-attr]
    assert effects == (cpuset_write("m-main-0", 99, "", "1-2", "0"),)
    assert not DesiredSettings.now(after).is_mixed("m", "main")


# What it is told.


def test_its_environment_tells_its_cpus_apart_with_files_or_without() -> None:
    names = ("MOORING_EXCLUSIVE_CPUS", "MOORING_SHARED_CPUS")
    for telling, mooring in (
        (AssignedScope.ALL, MIXING),
        (AssignedScope.ANNOTATED, replace(MIXING, extensions=frozenset({MIXED_CPUS}))),
    ):
        made = created_mixed(begun(mooring, telling), mixing("m"))
        environment = adjustment_of(made).environment
        assert tuple(environment[name] for name in names) == ("1-2", "0,3-7")
        assert ("MOORING_CPUSET" in environment) == (telling is AssignedScope.ALL)
    plain = created_mixed(begun(), guaranteed("a", "2"))
    assert set(adjustment_of(plain).environment) == {"MOORING_CPUSET", "MOORING_MEMSET"}


def test_the_pools_file_loses_cpus_before_the_reply_that_takes_them() -> None:
    state = live(begun(), mixing("m"))
    found = created_mixed(state, guaranteed("o", "3"))
    mine = [one for one in found.effects if isinstance(one, WriteAssigned) and one.container_id == "m-main-0"]
    assert [one.assigned for one in mine] == [assigned("1-2", "0", "0,3,7")]
    assert isinstance(found.effects[0], Persist)
    assert found.effects.index(mine[0]) == 1


def test_the_pools_file_gets_cpus_when_the_cpuset_has_them() -> None:
    state = live(live(begun(), mixing("m")), guaranteed("o", "3"))
    found = [one for one in written(ended(state, "o")) if one.container_id == "m-main-0"]
    assert found == [
        cpuset_write("m-main-0", 99, "", "0-7", "0"),
        WriteAssigned("m-main-0", assigned("1-2", "0", "0,3-7"), makes=False),
    ]


def test_who_is_not_mixed_is_not_told_the_pool() -> None:
    made = created_mixed(begun(), guaranteed("a", "2"))
    assert [one.assigned.shared for one in made.effects if isinstance(one, WriteAssigned)] == [None]


# Resizing.


def test_a_cpu_that_goes_from_the_pool_to_its_own_leaves_one_file_before_it_comes_into_the_other() -> None:
    state = live(begun(BOTH, config=DELAYING), mixing("m"))
    found = update_container(state, place_of(mixing("m")), container("m"), sizes(3), None, START)
    assert [one.assigned for one in written(found) if isinstance(one, WriteAssigned)] == [assigned("1-2", "0", "0,4-7")]
    late = state_change(found.state, Event.POST_UPDATE_CONTAINER, place_of(mixing("m")), container("m"))
    assert [one.assigned for one in written(late) if isinstance(one, WriteAssigned)] == [assigned("1-3", "0", "0,4-7")]


def test_a_release_leaves_it_the_pool() -> None:
    state = live(begun(BOTH, config=DELAYING), mixing("m"))
    for count in (4, 2):
        found = update_container(state, place_of(mixing("m")), container("m"), sizes(count), None, START)
        state = state_change(found.state, Event.POST_UPDATE_CONTAINER, place_of(mixing("m")), container("m")).state
    [write] = reclaiming_writes(state, LATE)["m", "main"]
    assert str(write.cpus) == "0-2,5-7"
    assert str(DesiredSettings.now(released(state, LATE).state).of("m", "main").cpus) == "0-7"


# After a restart.


def test_after_a_restart_it_gets_both_again_and_its_files_say_no_more_than_it_has() -> None:
    pod = mixing("m")
    found = synchronize(
        begun(),
        [place_of(pod), sandbox("s")],
        [running("m", cpus="0-4", mems="0"), running("s")],
        {"m": pod, "s": shared("s")},
    )
    assert str(DesiredSettings.now(found.state).of("m", "main").cpus) == "0-7"
    says = [one.assigned for one in found.effects if isinstance(one, WriteAssigned) and one.container_id == "m-main-0"]
    assert says[0] == assigned("1-2", "0", "0,3-4")
    assert str(found.state.containers["m-main-0"].record.cpus) == "0-7"


# Files.


@pytest.fixture
def mine_mixed(tmp_path: Path) -> AssignedFiles:
    (tmp_path / "run").mkdir()
    return AssignedFiles(tmp_path / "run" / "assigned")


def test_only_a_mixed_container_has_the_pools_file_which_empties_and_goes_with_it(mine_mixed: AssignedFiles) -> None:
    folder = mine_mixed.folder / "c1"
    mine_mixed.do(WriteAssigned("c1", assigned("1-2", "0"), makes=True))
    assert {one.name for one in folder.iterdir()} == {CPUSET_FILE, MEMSET_FILE}
    mine_mixed.do(WriteAssigned("c1", assigned("1-2", "0", "0,3"), makes=True))
    assert (folder / SHARED_FILE).read_text("ascii") == "0,3"
    assert mine_mixed.do(SweepAssigned(frozenset(), frozenset({"c1"}))) == ""
    assert (folder / SHARED_FILE).read_text("ascii") == ""
    assert mine_mixed.do(SweepAssigned(frozenset(), frozenset())) == ""
    assert not folder.exists()
