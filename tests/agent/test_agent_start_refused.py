"""StartContainer when a cgroup cannot be given what was decided: no program runs on somebody else's CPUs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.agent.nri.runtime_side import RuntimeSide
from tests.agent.pods.fault_injector import FaultInjector
from tests.agent.small_node import STRICT, cpus, guaranteed, running, sandbox, shared, small_state
from tests.agent.whole_agent import MACHINE, Node, counted, leave, listing, pod, rest, start, until, whole
from tests.cli.command import mooring

from mooring.agent.cgroups.files import CGroupTrouble, GroupError
from mooring.agent.effects import ClusterEvent, Evict, QuotaOf
from mooring.agent.nri.types import Event, LinuxResources, RemoteError, RuntimeContainer
from mooring.agent.pods.eviction import EFFECT, TAINT
from mooring.agent.reactor.synchronize import rollback, synchronize
from mooring.agent.state import Phase
from mooring.agent.status import unready

PID = 77


@pytest.fixture
def told(node: Node, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Return what gives the reasons of all events that the agent wants the cluster to know."""
    every: list[ClusterEvent | Evict] = []
    monkeypatch.setattr("mooring.agent.agent.announce", lambda _outward, effect, report: every.append(effect))  # noqa: ARG005

    def reasons() -> list[str]:
        rest(node)
        return [one.reason for one in every if isinstance(one, ClusterEvent)]

    return reasons


def with_lost_update(node: Node, runtime: RuntimeSide, name: str = "shared", pid: int = PID) -> RuntimeContainer:
    """Make a shared container that missed the update for the sake of an exclusive one; its task is made."""
    runtime.state_change(Event.RUN_POD_SANDBOX, pod(name))
    first = runtime.create(pod(name), whole(name, 0)).adjust.linux.resources.cpu.cpus
    assert first == "0-7"
    start(node, runtime, "own", 2)
    made = replace(node.running(whole(name, 0), first), pid=pid)
    runtime.state_change(Event.POST_CREATE_CONTAINER, pod(name), made)
    return made


def test_a_lost_update_is_a_repair_before_the_program_runs(node: Node, told: Callable[[], list[str]]) -> None:
    agent, runtime = node.connected()
    made = with_lost_update(node, runtime)
    assert counted(agent, "repairs_total", kind="cpuset") == 0
    runtime.state_change(Event.START_CONTAINER, pod("shared"), made)
    assert node.cpus(made) == "0,3-7"
    assert counted(agent, "repairs_total", kind="cpuset") == 1
    assert told() == ["CPUSetRepaired"]
    assert agent.snapshot.overlaps() == ()


def test_who_missed_making_room_has_left_before_the_program_of_the_newcomer_runs(node: Node) -> None:
    agent, runtime = node.connected()
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
    agent, runtime = node.connected()
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
    agent, runtime = node.connected()
    start(node, runtime, "own", 2)
    runtime.state_change(Event.RUN_POD_SANDBOX, pod("stray"))
    made = node.running(whole("stray", 0), "0-7")
    runtime.state_change(Event.START_CONTAINER, pod("stray"), made)
    assert (node.cpus(made), agent.metrics.counts().repairs) == ("0,3-7", 0)


def test_a_container_of_which_nothing_was_heard_before_it_ran_is_placed_and_others_leave_its_cpus(node: Node) -> None:
    agent, runtime = node.connected()
    shared = start(node, runtime, "shared", 0)
    made = node.running(whole("stray", 2), "0-7", 200_000)
    runtime.state_change(Event.POST_START_CONTAINER, pod("stray"), made)
    assert (node.cpus(made), node.cpus(shared)) == ("1-2", "0,3-7")
    assert [one["containers"][0]["id"] for one in node.status["pods"]] == [shared.id, made.id]
    assert agent.metrics.counts().repairs == 0


def test_a_container_of_which_nothing_was_heard_before_it_ran_stays_in_the_pool_without_room(node: Node) -> None:
    _, runtime = node.connected()
    start(node, runtime, "own", 6)
    made = node.running(whole("stray", 2), "0-7", 200_000)
    runtime.state_change(Event.POST_START_CONTAINER, pod("stray"), made)
    assert node.cpus(made) == "0,3"
    assert [one["running"][0]["id"] for one in node.status["held"]] == [made.id]


@contextmanager
def read_only() -> Iterator[None]:
    """Let the kernel take nothing that is written into a cpuset."""

    def no(path: str, _text: str) -> None:
        raise GroupError(CGroupTrouble.NOT_PERMITTED, path, "Read-only file system")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("mooring.agent.cgroups.cpuset.write", no)
        yield


def test_a_record_that_is_right_over_a_cgroup_that_is_not_is_a_repair_at_synchronize(node: Node) -> None:
    agent, runtime = node.connected()
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


def test_a_forbidden_write_keeps_the_program_from_running(node: Node, told: Callable[[], list[str]]) -> None:
    agent, runtime = node.connected()
    made = with_lost_update(node, runtime)
    with read_only():
        text = refused(runtime, made)
        again = replace(made, id="c-again")
        runtime.create(pod("shared"), replace(whole("shared", 0), id="c-again"))
        assert refused(runtime, again) == text
    assert text.startswith("CPUSetNotEnforced: shared has CPUs 0-7 instead of 0,3-7: ")
    assert text.endswith("not permitted (Read-only file system)")
    assert told() == ["CPUSetNotEnforced"]
    assert counted(agent, "rejections_total", reason="CPUSetNotEnforced") == 1
    assert counted(agent, "reports_total", kind="start-refused") == 1
    [reason] = unready(agent.snapshot)
    assert reason == f"container starts are refused (1), the newest because {text.partition(': ')[2]}"
    runtime.create(pod("shared"), replace(whole("shared", 0), id="c-third"))
    runtime.state_change(Event.START_CONTAINER, pod("shared"), replace(made, id="c-third"))
    assert unready(agent.snapshot) == ()


def test_a_refused_container_leaves_nothing_behind(node: Node) -> None:
    agent, runtime = node.connected()
    made = with_lost_update(node, runtime)
    shadow(node, made, "0-7")
    text = "CPUSetNotEnforced: shared has CPUs 0-7 instead of 0,3-7, though it was written"
    assert refused(runtime, made) == text
    assert (node.cpus(made), bool(unready(agent.snapshot))) == ("0,3-7", True)
    assert (agent.holder.state.containers[made.id].phase, agent.snapshot.overlaps()) == (Phase.REFUSED, ())
    runtime.stop(pod("shared"), made)
    # A container can end before its start is reported.
    runtime.state_change(Event.POST_START_CONTAINER, pod("shared"), made)
    assert (agent.holder.state.containers[made.id].phase, agent.snapshot.overlaps()) == (Phase.ENDED, ())
    runtime.state_change(Event.REMOVE_CONTAINER, pod("shared"), made)
    runtime.state_change(Event.STOP_POD_SANDBOX, pod("shared"))
    state = agent.holder.state
    assert (set(state.containers), set(state.kubelet.node.active)) == ({"c-own"}, {"uid-own"})
    assert unready(agent.snapshot) == ()


def test_one_that_runs_although_refused_is_reported_until_corrected(node: Node, told: Callable[[], list[str]]) -> None:
    agent, runtime = node.connected()
    made = with_lost_update(node, runtime)
    with read_only():
        refused(runtime, made)
        # CRI-O logs the refusal and starts the container.
        runtime.state_change(Event.POST_START_CONTAINER, pod("shared"), made)
        [(one, owner, overlap)] = agent.snapshot.overlaps()
        assert (one, owner, str(overlap)) == ("c-shared", "c-own", "1-2")
        assert "CPUSetNotEnforced" in told()[1:]
        assert counted(agent, "reports_total", kind="started-despite-refusal") == 1
        reasons = unready(agent.snapshot)
        assert reasons[0].startswith("containers run although their start was refused (1), the newest: shared has ")
        assert reasons[1:] == ("1 container may run on exclusive CPUs of others",)
    agent.verify_all()
    assert (node.cpus(made), agent.snapshot.overlaps(), unready(agent.snapshot)) == ("0,3-7", (), ())
    assert counted(agent, "repairs_total", kind="cpuset") == 1
    runtime.stop(pod("shared"), made)
    assert agent.holder.state.containers[made.id].phase is Phase.ENDED


def test_a_refused_pod_that_runs_all_the_same_stays_in_the_pool(node: Node, told: Callable[[], list[str]]) -> None:
    agent, runtime = node.connected()
    start(node, runtime, "own", 2)
    # Created while the agent did not answer: its start is the first that the agent knows of it.
    made = node.running(whole("wide", 7), "0-7", 700_000)
    runtime.state_change(Event.RUN_POD_SANDBOX, pod("wide"))
    assert refused(runtime, made, "wide").startswith("UnexpectedAdmissionError: ")
    runtime.state_change(Event.POST_START_CONTAINER, pod("wide"), made)
    assert (node.cpus(made), agent.snapshot.overlaps()) == ("0,3-7", ())
    assert told() == ["UnexpectedAdmissionError", "UnexpectedAdmissionError"]
    assert counted(agent, "reports_total", kind="started-despite-refusal") == 1


def shadow(node: Node, made: RuntimeContainer, cpus: str) -> None:
    """Let the kernel show these CPUs whatever is written."""
    node.tree.put("cpuset", made.cgroups_path, "cpuset.cpus.effective", cpus)


def test_less_than_was_decided_is_reported_and_lets_all_run(node: Node, told: Callable[[], list[str]]) -> None:
    agent, runtime = node.connected()
    made = with_lost_update(node, runtime)
    shadow(node, made, "0,3-6")
    runtime.state_change(Event.START_CONTAINER, pod("shared"), made)
    assert (counted(agent, "reports_total", kind="deviation-lasts"), unready(agent.snapshot)) == (1, ())
    assert told() == ["CPUSetDiffers"]


def lost(node: Node, made: RuntimeContainer, *, lives: bool) -> RuntimeContainer:
    """Take the group of a container away, with its process or not."""
    node.tree.remove(made.cgroups_path)
    if lives:
        node.tree.process(PID, "0::/elsewhere\n")
    return made


def test_a_container_that_has_ended_is_not_refused_and_not_told(node: Node, told: Callable[[], list[str]]) -> None:
    agent, runtime = node.connected()
    made = lost(node, with_lost_update(node, runtime), lives=False)
    runtime.state_change(Event.START_CONTAINER, pod("shared"), made)
    agent.verify_all()
    assert (told(), agent.metrics.counts().rejections) == ([], 0)
    runtime.stop(pod("shared"), made)
    assert unready(agent.snapshot) == ()
    runtime.state_change(Event.REMOVE_CONTAINER, pod("shared"), made)
    assert set(agent.holder.state.containers) == {"c-own"}


def test_a_process_that_lives_in_no_group_that_can_be_found_is_not_let_run(node: Node) -> None:
    agent, runtime = node.connected()
    made = lost(node, with_lost_update(node, runtime), lives=True)
    remedy = "the agent must see the control groups and processes of the host"
    assert refused(runtime, made) == (
        "CPUSetNotEnforced: shared has no control group /pods/shared/c-shared that can be found (process 77); " + remedy
    )
    # Neither groups nor processes of the host are to be seen, so that nobody can tell that it has ended.
    node.tree.remove("/pods")
    assert remedy in refused(runtime, made)
    assert any("the agent must see the control groups" in one for one in unready(agent.snapshot))


def test_a_container_without_a_process_and_without_a_group_of_its_name_is_refused(node: Node) -> None:
    _, runtime = node.connected()
    made = lost(node, with_lost_update(node, runtime, pid=0), lives=False)
    assert "the runtime does not name its process" in refused(runtime, made)


@pytest.mark.parametrize("how", ["unreadable", "not found"])
def test_who_cannot_be_seen_is_told_once_and_is_not_ready(node: Node, told: Callable[[], list[str]], how: str) -> None:
    agent, runtime = node.connected()
    own = start(node, runtime, "own", 2)
    kept = node.cpus(own)
    if how == "not found":
        lost(node, own, lives=True)
    else:
        blocked: Path = node.tree.folder("cpuset", own.cgroups_path) / "cpuset.cpus.effective"
        blocked.unlink()
        blocked.mkdir()
    for _ in range(3):
        agent.verify_all()
    assert told() == ["CPUSetDiffers"]
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
        assert told() == ["CPUSetDiffers", "CPUSetDiffers"]


def test_what_stays_wrong_is_no_repair_however_often_it_is_tried(node: Node, told: Callable[[], list[str]]) -> None:
    agent, runtime = node.connected()
    own = start(node, runtime, "own", 2)
    shadow(node, own, "0-7")
    for _ in range(3):
        agent.verify_all()
    node.tree.put("cpuset", own.cgroups_path, "cpuset.cpus", "0-7")
    for _ in range(3):
        agent.verify_all()
    assert agent.metrics.counts().repairs == 0
    assert set(told()) == {"CPUSetDiffers"}
    assert len(told()) == counted(agent, "reports_total", kind="deviation-lasts") <= 3
    assert agent.snapshot.overlaps() == ()


def test_wishes_for_evictions_are_none_without_an_api_server(node: Node) -> None:
    agent, runtime = node.connected("onRejection: evict")
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


# Leaving for good: everything is as the kubelet would have it, and an agent that comes again finds its state.


BACK = "2 containers may use every CPU and memory node again, and 2 groups have their CFS quota restored."


def quota(node: Node, path: str) -> str:
    if node.tree.version == 1:
        return node.tree.text("cpu", path, "cpu.cfs_quota_us")
    return node.tree.text("cpu", path, "cpu.max")


def with_quota(node: Node, path: str) -> None:
    """Give a group the quota that a kubelet gives a pod of two CPUs, as at its creation or a resize."""
    name, text = ("cpu.max", "200000 100000") if node.tree.version == 2 else ("cpu.cfs_quota_us", "200000")
    node.tree.put("cpu", path, name, text)


def test_a_quota_written_after_a_resize_is_lifted_at_the_next_look(
    any_node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mooring.agent.agent.VERIFYING", 1e9)
    # However long the test takes from the lifting to the look.
    monkeypatch.setattr("mooring.agent.agent.LIFTING", 1e9)
    node = any_node
    agent, runtime = node.connected()
    start(node, runtime, "own", 2)
    with_quota(node, "/pods/own")
    agent.reconcile()
    until(lambda: quota(node, "/pods/own").split()[0] in {"max", "-1"}, "the pod's quota is lifted")


def pinned(node: Node, more: str = "") -> tuple[RuntimeContainer, RuntimeContainer]:
    """Run an agent with a pinned and a shared container, lift the kubelet's quotas, and end the agent."""
    agent, runtime = node.connected(more)
    other, own = start(node, runtime, "other", 0), start(node, runtime, "own", 2)
    for path in ("/pods/own", own.cgroups_path):
        with_quota(node, path)
    agent.verify_all()
    assert {quota(node, "/pods/own").split()[0], quota(node, own.cgroups_path).split()[0]} <= {"max", "-1"}
    assert (node.cpus(own), node.cpus(other)) == ("1-2", "0,3-7")
    node.agents.pop().close()
    other = replace(other, resources=replace(other.resources, cpus="0,3-7"))
    return own, other


def test_the_kubelet_has_cpus_and_quotas_again_and_an_agent_takes_them(
    any_node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = any_node
    own, other = pinned(node)
    left, told = leave(node, monkeypatch, own, other)
    assert left == [BACK]
    assert (node.cpus(own), node.cpus(other)) == ("0-7", "0-7")
    assert quota(node, "/pods/own").split()[0] == quota(node, own.cgroups_path).split()[0] == "200000"
    assert {name: cpu.cpus for name, cpu in told.items()} == {own.id: "0-7", other.id: "0-7"}
    assert (told[own.id].quota.value, told[own.id].period.value) == (200_000, 100_000)
    assert not told[other.id].HasField("quota")
    wide = [replace(one, resources=replace(one.resources, cpus="0-7")) for one in (own, other)]
    node.agent()
    runtime = node.listening.next()
    back = {one.container_id: one.linux.resources.cpu.cpus for one in runtime.synchronize(*listing(*wide)).update}
    assert back == {own.id: "1-2", other.id: "0,3-7"}


def test_who_runs_unlisted_has_every_cpu_again_too(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    own, other = pinned(node)
    left, _ = leave(node, monkeypatch, other)
    assert (left, node.cpus(own), node.cpus(other)) == ([BACK], "0-7", "0-7")


def test_the_taint_of_a_closed_node_goes_too(
    node: Node, cluster: FaultInjector, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, other = pinned(node, f"failClosed: true\nkubeconfig: {cluster.kubeconfig(node.folder / 'kubeconfig')}")
    until(lambda: cluster.taints == [{"key": TAINT, "effect": EFFECT}], "who ends leaves the node closed")
    left, _ = leave(node, monkeypatch, own, other)
    assert (cluster.taints, left) == ([], [BACK])


def test_what_the_kernel_does_not_take_is_named(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    own, other = pinned(node)
    (node.tree.folder("cpu", "/pods/own") / "cpu.max").unlink()
    left, _ = leave(node, monkeypatch, own, other)
    assert left == [
        "2 containers may use every CPU and memory node again, and 1 group has its CFS quota restored.",
        "Not restored: /pods/own: its quota of 200000 is not written: no-controller",
    ]


def test_memory_nodes_come_back_where_they_were_narrowed_and_nowhere_else() -> None:
    pods = {one.uid: one for one in (guaranteed("a", "2"), shared("s"))}
    containers = [running("a", cpus="1-2", mems="0"), running("s", cpus="0,3-7"), running("x")]
    state = synchronize(small_state(), [sandbox("a"), sandbox("s"), sandbox("x")], containers, pods).state
    known = state.containers["x-main-0"]
    untouched = replace(known, record=replace(known.record, cpus=cpus("")))
    quotas, _, updates = rollback(state.with_container(untouched), {})
    assert [(one.container_id, one.resources) for one in updates] == [
        ("a-main-0", LinuxResources(cpus="0-7", mems="0-1", quota=200_000, period=100_000)),
        ("s-main-0", LinuxResources(cpus="0-7")),
    ]
    assert [(place.of, quota) for place, quota in quotas] == [
        (QuotaOf.POD, 200_000),
        (QuotaOf.CONTAINER, 200_000),
    ]
    # A resize that the pod source knows counts.
    quotas, _, _ = rollback(state, {"a": guaranteed("a", "3")})
    assert {quota for _, quota in quotas} == {300_000}


@pytest.mark.parametrize(
    ("missing", "says"),
    [
        ("", "another agent uses this folder"),
        ("nri.sock", "the runtime is not reached"),
        ("agent.yaml", "agent.yaml: cannot be read"),
    ],
    ids=["beside-an-agent", "no-runtime", "no-configuration"],
)
def test_who_cannot_leave_says_why_and_changes_nothing(
    node: Node, missing: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, _ = pinned(node)
    if missing:
        (node.folder / missing).unlink()
    else:
        node.agent()
    monkeypatch.setattr("mooring.agent.store.LOCK_PATIENCE", 0.0)
    said = mooring("agent", "--config", node.folder / "agent.yaml", "--machine", MACHINE, "--leave", code=2)
    assert says in said.complaint
    assert node.cpus(own) == "1-2"
