"""Mixed containers in the agent's heart: cpusets follow the pool, and what containers are told says which is which."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.agent.resizable_node import DELAYING, EXTENDED, LATE, START, sizes
from tests.agent.sets import assigned, cpus, cpuset_write, nodes
from tests.agent.small_node import CONFIG, INFO, container, guaranteed, running, sandbox, shared

from mooring.agent.effects import Persist, SweepAssigned, WriteAssigned, WriteCPUSet
from mooring.agent.executor import CPUSET_FILE, MEMSET_FILE, SHARED_FILE, AssignedFiles
from mooring.agent.nri.types import Event, PodSandbox
from mooring.agent.reactor.create_container import create_container
from mooring.agent.reactor.desired import DesiredSettings
from mooring.agent.reactor.lifecycle import correct_deviation, state_change
from mooring.agent.reactor.recovery import reconfigured, resume
from mooring.agent.reactor.response import Accepted, Adjusted, EventOutcome, enforced
from mooring.agent.reactor.synchronize import synchronize
from mooring.agent.reactor.update_container import reclaiming_writes, released, update_container
from mooring.agent.state import AgentState, Options
from mooring.agent.status.snapshot import overlaps
from mooring.engine.core.config import ASSIGNED_CPUSET, MIXED_CPUS, AssignedScope, KubeletConfig, MooringConfig
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.pod import Pod
from mooring.engine.node.isolation import ANNOTATION

ASKS = {ANNOTATION: "true"}
MIXING = MooringConfig(frozenset({MIXED_CPUS, ASSIGNED_CPUSET}), frozenset({"pod-restart"}))
BOTH = replace(EXTENDED, extensions=EXTENDED.extensions | {MIXED_CPUS})


def begun(
    mooring: MooringConfig = MIXING, telling: AssignedScope = AssignedScope.ALL, config: KubeletConfig = CONFIG
) -> AgentState:
    return resume(INFO, config, mooring, None, Options(telling=telling)).state


def place_of(pod: Pod) -> PodSandbox:
    return replace(sandbox(pod.uid), annotations=pod.annotations)


def created(state: AgentState, pod: Pod) -> EventOutcome:
    limit = pod.containers[0].limits.get("cpu")
    asked = sizes(limit.milli / 1000 if limit is not None else 0.002)
    return create_container(state, place_of(pod), container(pod.uid, resources=asked), pod)


def live(state: AgentState, pod: Pod) -> AgentState:
    """Create a container and let it run."""
    made = created(state, pod)
    assert isinstance(made.answer, Adjusted)
    linux = made.answer.adjustment.resources
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
    assert isinstance(outcome.answer, Accepted | Adjusted)
    return {one.container_id: one.resources.cpus for one in outcome.answer.updates}


def written(outcome: EventOutcome) -> list[WriteAssigned | WriteCPUSet]:
    return [one for one in outcome.effects if isinstance(one, WriteAssigned | WriteCPUSet)]


# Where it runs.


def test_a_mixed_container_is_created_with_its_own_cpus_and_the_pool_and_without_quota() -> None:
    made = created(begun(), mixing("m"))
    assert isinstance(made.answer, Adjusted)
    assert (made.answer.adjustment.resources.cpus, made.answer.adjustment.resources.quota) == ("0-7", -1)
    assert made.state.kubelet.node.cpu.assignments == {"m": {"main": 0b110}}
    plain = created(begun(replace(MIXING, extensions=frozenset())), mixing("m"))
    assert isinstance(plain.answer, Adjusted)
    assert plain.answer.adjustment.resources.cpus == "1-2"


def test_its_cpuset_shrinks_with_the_reply_that_gives_others_cpus_of_the_pool_and_grows_when_they_go() -> None:
    state = live(begun(), mixing("m"))
    assert cpus_told(created(state, guaranteed("o", "3"))) == {"m-main-0": "0-3,7"}
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
    assert cpus_told(created(state, guaranteed("o", "5"))) == {"m-main-0": "1-2"}


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
        made = created(begun(mooring, telling), mixing("m"))
        assert isinstance(made.answer, Adjusted)
        environment = made.answer.adjustment.environment
        assert tuple(environment[name] for name in names) == ("1-2", "0,3-7")
        assert ("MOORING_CPUSET" in environment) == (telling is AssignedScope.ALL)
    plain = created(begun(), guaranteed("a", "2"))
    assert isinstance(plain.answer, Adjusted)
    assert set(plain.answer.adjustment.environment) == {"MOORING_CPUSET", "MOORING_MEMSET"}


def test_the_pools_file_loses_cpus_before_the_reply_that_takes_them() -> None:
    state = live(begun(), mixing("m"))
    found = created(state, guaranteed("o", "3"))
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
    made = created(begun(), guaranteed("a", "2"))
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
def mine(tmp_path: Path) -> AssignedFiles:
    (tmp_path / "run").mkdir()
    return AssignedFiles(tmp_path / "run" / "assigned")


def test_only_a_mixed_container_has_the_pools_file_which_empties_and_goes_with_it(mine: AssignedFiles) -> None:
    folder = mine.folder / "c1"
    mine.do(WriteAssigned("c1", assigned("1-2", "0"), makes=True))
    assert {one.name for one in folder.iterdir()} == {CPUSET_FILE, MEMSET_FILE}
    mine.do(WriteAssigned("c1", assigned("1-2", "0", "0,3"), makes=True))
    assert (folder / SHARED_FILE).read_text("ascii") == "0,3"
    assert mine.do(SweepAssigned(frozenset(), frozenset({"c1"}))) == ""
    assert (folder / SHARED_FILE).read_text("ascii") == ""
    assert mine.do(SweepAssigned(frozenset(), frozenset())) == ""
    assert not folder.exists()
