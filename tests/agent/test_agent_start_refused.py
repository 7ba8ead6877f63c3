"""StartContainer when a cgroup cannot be given what was decided: no program runs on somebody else's CPUs."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest
from tests.agent.nri.runtime_side import TIMEOUT, RuntimeSide
from tests.agent.small_node import STRICT, guaranteed, running, sandbox, shared, small_state
from tests.agent.whole_agent import Node, pod, start, whole

from mooring.agent.agent import Agent
from mooring.agent.cgroups import cpuset
from mooring.agent.cgroups.files import CGroupTrouble, GroupError
from mooring.agent.effects import ClusterEvent, Evict
from mooring.agent.nri.types import Event, RemoteError, RuntimeContainer
from mooring.agent.reactor.synchronize import synchronize
from mooring.agent.state import Phase
from mooring.agent.status.api import unready

PID = 77


class Told:
    """What an agent wants the cluster to know."""

    def __init__(self, agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
        self._agent, self.all = agent, list[ClusterEvent | Evict]()
        monkeypatch.setattr(agent.executor, "announce", self.all.append)

    def reasons(self) -> list[str]:
        done = threading.Event()
        self._agent.work.put(done.set)
        assert done.wait(TIMEOUT)
        return [one.reason for one in self.all if isinstance(one, ClusterEvent)]


def begun(node: Node) -> tuple[Agent, RuntimeSide]:
    agent = node.agent()
    runtime = node.listening.next()
    runtime.synchronize()
    return agent, runtime


def with_lost_update(node: Node, runtime: RuntimeSide, name: str = "shared", pid: int = PID) -> RuntimeContainer:
    """Make a shared container that missed the update for the sake of an exclusive one; its task is made."""
    runtime.state_change(Event.RUN_POD_SANDBOX, pod(name))
    first = runtime.create(pod(name), whole(name, 0)).adjust.linux.resources.cpu.cpus
    assert first == "0-7"
    start(node, runtime, "own", 2)
    made = replace(node.running(whole(name, 0), first), pid=pid)
    runtime.state_change(Event.POST_CREATE_CONTAINER, pod(name), made)
    return made


def counted(agent: Agent, name: str, **labels: str) -> float:
    inner = ",".join(f'{key}="{text}"' for key, text in labels.items())
    line = f"mooring_agent_{name}{{{inner}}} "
    return next((float(one.removeprefix(line)) for one in agent.metrics.text().splitlines() if one.startswith(line)), 0)


def test_an_update_that_was_lost_is_a_repair_before_the_program_runs(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, runtime = begun(node)
    told = Told(agent, monkeypatch)
    made = with_lost_update(node, runtime)
    assert counted(agent, "repairs_total", kind="cpuset") == 0
    runtime.state_change(Event.START_CONTAINER, pod("shared"), made)
    assert node.cpus(made) == "0,3-7"
    assert counted(agent, "repairs_total", kind="cpuset") == 1
    assert told.reasons() == ["CPUSetRepaired"]
    assert agent.snapshot.overlaps() == ()


def test_who_missed_making_room_has_left_before_the_program_of_the_newcomer_runs(node: Node) -> None:
    agent, runtime = begun(node)
    other = start(node, runtime, "shared", 0)
    busy = threading.Event()
    agent.work.put(busy.wait)
    try:
        runtime.state_change(Event.RUN_POD_SANDBOX, pod("own"))
        reply = runtime.create(pod("own"), whole("own", 2))
        assert [one.container_id for one in reply.update] == [other.id]
        made = node.running(whole("own", 2), "1-2", -1)
        runtime.state_change(Event.POST_CREATE_CONTAINER, pod("own"), made)
        assert node.cpus(other) == "0-7", "the runtime has failed to update it, and who looks for that is busy"
        runtime.state_change(Event.START_CONTAINER, pod("own"), made)
        assert node.cpus(other) == "0,3-7"
        assert counted(agent, "repairs_total", kind="cpuset") == 1
    finally:
        busy.set()
    assert agent.snapshot.overlaps() == ()


def test_what_the_agent_carries_out_itself_is_no_repair(node: Node) -> None:
    agent, runtime = begun(node)
    first, second = start(node, runtime, "first", 0), start(node, runtime, "own", 2)
    runtime.state_change(Event.RUN_POD_SANDBOX, pod("late"))
    runtime.create(pod("late"), whole("late", 0))
    made = node.running(whole("late", 0), "0,3-7")
    runtime.state_change(Event.POST_CREATE_CONTAINER, pod("late"), made)
    # The pool grows by an event whose answer carries no updates: nobody could have told the runtime.
    runtime.state_change(Event.STOP_POD_SANDBOX, pod("own"))
    runtime.state_change(Event.START_CONTAINER, pod("late"), made)
    assert (node.cpus(first), node.cpus(made), node.cpus(second)) == ("0-7", "0-7", "1-2")
    assert agent.metrics.counts().repairs == 0


def test_a_container_that_came_while_the_agent_was_away_is_no_repair(node: Node) -> None:
    agent, runtime = begun(node)
    start(node, runtime, "own", 2)
    runtime.state_change(Event.RUN_POD_SANDBOX, pod("stray"))
    made = node.running(whole("stray", 0), "0-7")
    runtime.state_change(Event.START_CONTAINER, pod("stray"), made)
    assert (node.cpus(made), agent.metrics.counts().repairs) == ("0,3-7", 0)


def test_a_container_of_which_nothing_was_heard_before_it_ran_is_placed_and_others_leave_its_cpus(node: Node) -> None:
    agent, runtime = begun(node)
    shared = start(node, runtime, "shared", 0)
    made = node.running(whole("stray", 2), "0-7", 200_000)
    runtime.state_change(Event.POST_START_CONTAINER, pod("stray"), made)
    assert (node.cpus(made), node.cpus(shared)) == ("1-2", "0,3-7")
    assert [one["containers"][0]["id"] for one in node.status["pods"]] == [shared.id, made.id]
    assert agent.metrics.counts().repairs == 0


def test_a_container_of_which_nothing_was_heard_before_it_ran_stays_in_the_pool_without_room(node: Node) -> None:
    _, runtime = begun(node)
    start(node, runtime, "own", 6)
    made = node.running(whole("stray", 2), "0-7", 200_000)
    runtime.state_change(Event.POST_START_CONTAINER, pod("stray"), made)
    assert node.cpus(made) == "0,3"
    assert [one["running"][0]["id"] for one in node.status["held"]] == [made.id]


def test_a_record_that_is_right_over_a_cgroup_that_is_not_is_a_repair_at_synchronize(node: Node) -> None:
    agent, runtime = begun(node)
    own, shared = start(node, runtime, "own", 2), start(node, runtime, "shared", 0)
    node.write(shared.id, shared.cgroups_path, "0-7")
    runtime.close()
    runtime = node.listening.next()
    runtime.synchronize([pod("own"), pod("shared")], [own, shared])
    assert (node.cpus(shared), counted(agent, "repairs_total", kind="cpuset")) == ("0,3-7", 1)
    assert counted(agent, "repairs_total", kind="record") == 0


def refused(runtime: RuntimeSide, made: RuntimeContainer, name: str = "shared") -> str:
    with pytest.raises(RemoteError) as raised:
        runtime.state_change(Event.START_CONTAINER, pod(name), made)
    return raised.value.message


def test_a_write_that_is_not_permitted_keeps_the_program_from_running(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, runtime = begun(node)
    told = Told(agent, monkeypatch)
    made = with_lost_update(node, runtime)

    def no(path: str, _text: str) -> None:
        raise GroupError(CGroupTrouble.NOT_PERMITTED, path, "Read-only file system")

    with monkeypatch.context() as patched:
        patched.setattr(cpuset, "write", no)
        text = refused(runtime, made)
        again = replace(made, id="c-again")
        runtime.create(pod("shared"), replace(whole("shared", 0), id="c-again"))
        assert refused(runtime, again) == text
    assert text.startswith("CPUSetNotEnforced: shared has CPUs 0-7 instead of 0,3-7: ")
    assert text.endswith("not permitted (Read-only file system)")
    assert told.reasons() == ["CPUSetNotEnforced"]
    assert counted(agent, "rejections_total", reason="CPUSetNotEnforced") == 1
    assert counted(agent, "reports_total", kind="start-refused") == 1
    [reason] = unready(agent.snapshot)
    assert reason == f"container starts are refused (1), the newest because {text.partition(': ')[2]}"
    runtime.create(pod("shared"), replace(whole("shared", 0), id="c-third"))
    runtime.state_change(Event.START_CONTAINER, pod("shared"), replace(made, id="c-third"))
    assert unready(agent.snapshot) == ()


def test_a_refused_container_leaves_nothing_behind(node: Node) -> None:
    agent, runtime = begun(node)
    made = with_lost_update(node, runtime)
    shadow(node, made, "0-7")
    refused(runtime, made)
    assert (agent.holder.state.containers[made.id].phase, agent.snapshot.overlaps()) == (Phase.REFUSED, ())
    runtime.stop(pod("shared"), made)
    runtime.state_change(Event.REMOVE_CONTAINER, pod("shared"), made)
    runtime.state_change(Event.STOP_POD_SANDBOX, pod("shared"))
    state = agent.holder.state
    assert (set(state.containers), set(state.kubelet.node.active)) == ({"c-own"}, {"uid-own"})
    assert unready(agent.snapshot) == ()


def not_permitted(path: str, _text: str) -> None:
    raise GroupError(CGroupTrouble.NOT_PERMITTED, path, "Read-only file system")


def test_a_container_that_runs_although_its_start_was_refused_is_reported_until_it_is_corrected(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, runtime = begun(node)
    told = Told(agent, monkeypatch)
    made = with_lost_update(node, runtime)
    with monkeypatch.context() as patched:
        patched.setattr(cpuset, "write", not_permitted)
        refused(runtime, made)
        # CRI-O logs the refusal and starts the container.
        runtime.state_change(Event.POST_START_CONTAINER, pod("shared"), made)
        assert [(one, owner, str(cpus)) for one, owner, cpus in agent.snapshot.overlaps()] == [
            ("c-shared", "c-own", "1-2")
        ]
        assert "CPUSetNotEnforced" in told.reasons()[1:]
        assert counted(agent, "reports_total", kind="started-despite-refusal") == 1
        reasons = unready(agent.snapshot)
        assert reasons[0].startswith("containers run although their start was refused (1), the newest: shared has ")
        assert reasons[1:] == ("1 container may run on exclusive CPUs of others",)
    agent.verify_all()
    assert (node.cpus(made), agent.snapshot.overlaps(), unready(agent.snapshot)) == ("0,3-7", (), ())
    assert counted(agent, "repairs_total", kind="cpuset") == 1
    runtime.stop(pod("shared"), made)
    assert agent.holder.state.containers[made.id].phase is Phase.ENDED


def test_a_container_that_runs_although_its_start_was_refused_is_corrected_at_once(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, runtime = begun(node)
    made = with_lost_update(node, runtime)
    with monkeypatch.context() as patched:
        patched.setattr(cpuset, "write", not_permitted)
        refused(runtime, made)
    runtime.state_change(Event.POST_START_CONTAINER, pod("shared"), made)
    assert (node.cpus(made), agent.snapshot.overlaps(), unready(agent.snapshot)) == ("0,3-7", (), ())
    assert counted(agent, "repairs_total", kind="cpuset") == 1


def test_a_pod_without_room_that_runs_although_it_was_refused_stays_in_the_shared_pool(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, runtime = begun(node)
    told = Told(agent, monkeypatch)
    start(node, runtime, "own", 2)
    # Created while the agent did not answer: its start is the first that the agent knows of it.
    made = node.running(whole("wide", 7), "0-7", 700_000)
    runtime.state_change(Event.RUN_POD_SANDBOX, pod("wide"))
    assert refused(runtime, made, "wide").startswith("UnexpectedAdmissionError: ")
    runtime.state_change(Event.POST_START_CONTAINER, pod("wide"), made)
    assert (node.cpus(made), agent.snapshot.overlaps()) == ("0,3-7", ())
    assert told.reasons() == ["UnexpectedAdmissionError", "UnexpectedAdmissionError"]
    assert counted(agent, "reports_total", kind="started-despite-refusal") == 1


def test_a_container_that_ended_before_its_start_is_reported_stays_ended(node: Node) -> None:
    agent, runtime = begun(node)
    made = with_lost_update(node, runtime)
    shadow(node, made, "0-7")
    refused(runtime, made)
    runtime.stop(pod("shared"), made)
    runtime.state_change(Event.POST_START_CONTAINER, pod("shared"), made)
    assert agent.holder.state.containers[made.id].phase is Phase.ENDED
    assert agent.snapshot.overlaps() == ()


def shadow(node: Node, made: RuntimeContainer, cpus: str) -> None:
    """Let the kernel show these CPUs whatever is written."""
    node.tree.put("cpuset", made.cgroups_path, "cpuset.cpus.effective", cpus)


def test_what_was_written_and_is_not_in_effect_keeps_the_program_from_running(node: Node) -> None:
    agent, runtime = begun(node)
    made = with_lost_update(node, runtime)
    shadow(node, made, "0-7")
    assert refused(runtime, made) == "CPUSetNotEnforced: shared has CPUs 0-7 instead of 0,3-7, though it was written"
    assert node.cpus(made) == "0,3-7"
    assert unready(agent.snapshot)


def test_less_than_was_decided_is_reported_and_keeps_nobody_from_running(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, runtime = begun(node)
    told = Told(agent, monkeypatch)
    made = with_lost_update(node, runtime)
    shadow(node, made, "0,3-6")
    runtime.state_change(Event.START_CONTAINER, pod("shared"), made)
    assert (counted(agent, "reports_total", kind="deviation-lasts"), unready(agent.snapshot)) == (1, ())
    assert told.reasons() == ["CPUSetDiffers"]


def lost(node: Node, made: RuntimeContainer, *, lives: bool) -> RuntimeContainer:
    """Take the group of a container away, with its process or not."""
    node.tree.remove(made.cgroups_path)
    if lives:
        node.tree.process(PID, "0::/elsewhere\n")
    return made


def test_a_container_that_has_ended_is_not_refused_and_not_told(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    agent, runtime = begun(node)
    told = Told(agent, monkeypatch)
    made = lost(node, with_lost_update(node, runtime), lives=False)
    runtime.state_change(Event.START_CONTAINER, pod("shared"), made)
    agent.verify_all()
    assert (told.reasons(), agent.metrics.counts().rejections) == ([], 0)
    runtime.stop(pod("shared"), made)
    assert unready(agent.snapshot) == ()
    runtime.state_change(Event.REMOVE_CONTAINER, pod("shared"), made)
    assert set(agent.holder.state.containers) == {"c-own"}


def test_a_process_that_lives_in_no_group_that_can_be_found_is_not_let_run(node: Node) -> None:
    agent, runtime = begun(node)
    made = lost(node, with_lost_update(node, runtime), lives=True)
    text = refused(runtime, made)
    assert text == (
        "CPUSetNotEnforced: shared has no control group /pods/shared/c-shared that can be found (process 77); "
        "the agent must see the control groups and processes of the host"
    )
    assert unready(agent.snapshot)


def test_on_a_node_where_no_group_can_be_found_the_refusal_and_the_readiness_say_so(node: Node) -> None:
    agent, runtime = begun(node)
    made = with_lost_update(node, runtime)
    node.tree.remove("/pods")
    # Neither groups nor processes of the host are to be seen, so that nobody can tell that it has ended.
    text = refused(runtime, made)
    assert "the agent must see the control groups and processes of the host" in text
    assert any("the agent must see the control groups" in one for one in unready(agent.snapshot))


def test_a_container_without_a_process_and_without_a_group_of_its_name_is_refused(node: Node) -> None:
    _agent, runtime = begun(node)
    made = lost(node, with_lost_update(node, runtime, pid=0), lives=False)
    assert "the runtime does not name its process" in refused(runtime, made)


@pytest.mark.parametrize("how", ["unreadable", "not found"])
def test_verification_tells_once_of_who_cannot_be_seen_and_the_agent_is_not_ready(
    node: Node, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    agent, runtime = begun(node)
    told = Told(agent, monkeypatch)
    own = start(node, runtime, "own", 2)
    if how == "not found":
        kept = node.cpus(own)
        lost(node, own, lives=True)
    else:
        blocked: Path = node.tree.folder("cpuset", own.cgroups_path) / "cpuset.cpus.effective"
        blocked.unlink()
        blocked.mkdir()
    for _ in range(3):
        agent.verify_all()
    assert told.reasons() == ["CPUSetDiffers"]
    assert counted(agent, "reports_total", kind="deviation-lasts") == 1
    assert counted(agent, "repairs_total", kind="cpuset") == 0
    [reason] = unready(agent.snapshot)
    assert reason.startswith("the CPUs of containers cannot be read (1), the newest: own has ")
    if how == "not found":
        node.tree.group(own.cgroups_path, cpuset_cpus=kept)
        agent.verify_all()
        assert unready(agent.snapshot) == ()
        node.tree.remove(own.cgroups_path)
        agent.verify_all()
        assert told.reasons() == ["CPUSetDiffers", "CPUSetDiffers"]


def test_what_cannot_be_put_right_is_no_repair_however_often_it_is_tried(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, runtime = begun(node)
    told = Told(agent, monkeypatch)
    own = start(node, runtime, "own", 2)
    shadow(node, own, "0-7")
    for _ in range(3):
        agent.verify_all()
    node.tree.put("cpuset", own.cgroups_path, "cpuset.cpus", "0-7")
    for _ in range(3):
        agent.verify_all()
    assert agent.metrics.counts().repairs == 0
    assert set(told.reasons()) == {"CPUSetDiffers"}
    assert len(told.reasons()) == counted(agent, "reports_total", kind="deviation-lasts") <= 3
    assert agent.snapshot.overlaps() == ()


def test_wishes_for_evictions_are_none_without_an_api_server(node: Node) -> None:
    agent = node.agent("onRejection: evict")
    runtime = node.listening.next()
    runtime.synchronize()
    for _ in range(2):
        with pytest.raises(RemoteError):
            runtime.create(pod("wide"), whole("wide", 8))
    assert (agent.metrics.counts().rejections, agent.metrics.counts().evictions) == (1, 0)


def test_who_runs_on_an_empty_shared_pool_when_the_agent_comes_is_told_to_the_cluster() -> None:
    own = running("own", cpus="1-7", mems="0-1")
    before = synchronize(small_state(STRICT), [sandbox("own")], [own], {"own": guaranteed("own", "7")}).state
    boxes = [sandbox("own"), sandbox("other")]
    found = synchronize(before, boxes, [own, running("other")], {"other": shared("other")})
    events = [(one.about.uid, one.reason, one.note) for one in found.effects if isinstance(one, ClusterEvent)]
    assert events == [("other", "EmptySharedPool", "main runs on all CPUs, and the shared pool is empty")]
