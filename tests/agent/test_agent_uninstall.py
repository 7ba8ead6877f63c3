"""Leaving for good: everything is as the kubelet would have it, and an agent that comes again finds its state."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from tests.agent.cgroups.made_up_tree import made_up_machine
from tests.agent.nri.runtime_side import TIMEOUT, RuntimeSide
from tests.agent.pods.fault_injector import FaultInjector
from tests.agent.sets import cpus
from tests.agent.small_node import guaranteed, sandbox, shared, small_state
from tests.agent.small_node import running as listed
from tests.agent.whole_agent import MACHINE, NODE, Node, pod, start, until
from tests.cli.command import mooring

from mooring.agent.effects import QuotaOf
from mooring.agent.eviction import EFFECT, TAINT
from mooring.agent.nri.types import LinuxResources, PodSandbox, RuntimeContainer
from mooring.agent.reactor.synchronize import synchronize
from mooring.agent.startup import AgentCommand, Startup
from mooring.agent.uninstall import Uninstalled, rollback, uninstall
from mooring.engine.core.errors import InputError
from mooring.inputs.machines.loader import load_machine
from mooring.service.agent_configuration import load_agent_configuration


def quota(node: Node, path: str) -> str:
    if node.tree.version == 1:
        return node.tree.text("cpu", path, "cpu.cfs_quota_us")
    return node.tree.text("cpu", path, "cpu.max")


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def any_node(request: pytest.FixtureRequest, node: Node, tmp_path: Path) -> Node:
    """Return the node with control groups of either version."""
    if request.param == 1:
        node.tree = made_up_machine(tmp_path / "root1", 1)
    return node


@contextmanager
def leaving(node: Node, monkeypatch: pytest.MonkeyPatch, found: list[Uninstalled]) -> Iterator[RuntimeSide]:
    """Let an agent leave, and give the runtime's side of its one connection."""
    load = partial(load_agent_configuration, str(node.folder / "agent.yaml"))
    beginning = Startup(load(), load, load_machine(MACHINE), node.tree.cgroups, NODE)
    monkeypatch.setattr("mooring.agent.uninstall.read_startup", lambda _asked: beginning)
    thread = threading.Thread(target=lambda: found.append(uninstall(AgentCommand(""))))
    thread.start()
    runtime = node.listening.next("mooring-update")
    yield runtime
    thread.join(TIMEOUT)
    assert not thread.is_alive()
    runtime.close()


def with_quota(node: Node, path: str) -> None:
    """Give a group the quota that a kubelet gives a pod of two CPUs, as at its creation or a resize."""
    name, text = ("cpu.max", "200000 100000") if node.tree.version == 2 else ("cpu.cfs_quota_us", "200000")
    node.tree.put("cpu", path, name, text)


def test_a_quota_that_the_kubelet_writes_after_a_resize_is_lifted_at_the_next_look(
    any_node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mooring.agent.agent.VERIFYING", 1e9)
    # However long the test takes from the lifting to the look.
    monkeypatch.setattr("mooring.agent.agent.LIFTING", 1e9)
    node = any_node
    agent = node.agent()
    runtime = node.listening.next()
    runtime.synchronize()
    start(node, runtime, "own", 2)
    with_quota(node, "/pods/own")
    agent.reconcile()
    until(lambda: quota(node, "/pods/own").split()[0] in {"max", "-1"}, "the pod's quota is lifted")


def pinned(node: Node, more: str = "") -> tuple[RuntimeContainer, RuntimeContainer]:
    """Run an agent with a pinned and a shared container, lift the kubelet's quotas, and end the agent."""
    agent = node.agent(more)
    runtime = node.listening.next()
    runtime.synchronize()
    other, own = start(node, runtime, "other", 0), start(node, runtime, "own", 2)
    for path in ("/pods/own", own.cgroups_path):
        with_quota(node, path)
    agent.verify_all()
    assert {quota(node, "/pods/own").split()[0], quota(node, own.cgroups_path).split()[0]} <= {"max", "-1"}
    assert (node.cpus(own), node.cpus(other)) == ("1-2", "0,3-7")
    node.agents.pop().close()
    other = replace(other, resources=replace(other.resources, cpus="0,3-7"))
    return own, other


def test_cpus_and_quotas_are_the_kubelets_again_and_an_agent_that_returns_puts_everybody_back(
    any_node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = any_node
    own, other = pinned(node)
    found: list[Uninstalled] = []
    with leaving(node, monkeypatch, found) as runtime:
        told = {one.container_id: one.linux.resources.cpu for one in runtime.synchronize(*listing(own, other)).update}
    assert found == [Uninstalled(2, 2)]
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
    found: list[Uninstalled] = []
    with leaving(node, monkeypatch, found) as runtime:
        runtime.synchronize(*listing(other))
    assert [one.containers for one in found] == [2]
    assert (node.cpus(own), node.cpus(other)) == ("0-7", "0-7")


def listing(*containers: RuntimeContainer) -> tuple[list[PodSandbox], list[RuntimeContainer]]:
    return [pod(one.name) for one in containers], [*containers]


def test_the_taint_of_a_closed_node_goes_too(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    with FaultInjector(node=NODE) as cluster:
        more = f"failClosed: true\nkubeconfig: {cluster.kubeconfig(node.folder / 'kubeconfig')}"
        own, other = pinned(node, more)
        until(lambda: cluster.taints == [{"key": TAINT, "effect": EFFECT}], "who ends leaves the node closed")
        found: list[Uninstalled] = []
        with leaving(node, monkeypatch, found) as runtime:
            runtime.synchronize(*listing(own, other))
        assert cluster.taints == []
        assert found == [Uninstalled(2, 2)]


def test_what_the_kernel_does_not_take_is_named(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    own, other = pinned(node)
    (node.tree.folder("cpu", "/pods/own") / "cpu.max").unlink()
    found: list[Uninstalled] = []
    with leaving(node, monkeypatch, found) as runtime:
        runtime.synchronize(*listing(own, other))
    assert found == [Uninstalled(2, 1, ("/pods/own: its quota of 200000 is not written: no-controller",))]


def test_memory_nodes_come_back_where_they_were_narrowed_and_nowhere_else() -> None:
    pods = {one.uid: one for one in (guaranteed("a", "2"), shared("s"))}
    containers = [listed("a", cpus="1-2", mems="0"), listed("s", cpus="0,3-7"), listed("x")]
    state = synchronize(small_state(), [sandbox("a"), sandbox("s"), sandbox("x")], containers, pods).state
    known = state.containers["x-main-0"]
    untouched = replace(known, record=replace(known.record, cpus=cpus("")))
    quotas, _, updates = rollback(state.with_container(untouched), {})
    assert [(one.container_id, one.resources) for one in updates] == [
        ("a-main-0", LinuxResources(cpus="0-7", mems="0-1", quota=200_000, period=100_000)),
        ("s-main-0", LinuxResources(cpus="0-7")),
    ]
    assert [(place.of, quota.microseconds) for place, quota in quotas] == [
        (QuotaOf.POD, 200_000),
        (QuotaOf.CONTAINER, 200_000),
    ]


def test_a_resize_that_the_pod_source_knows_counts() -> None:
    pods = {"a": guaranteed("a", "2")}
    state = synchronize(small_state(), [sandbox("a")], [listed("a", cpus="1-2", mems="0")], pods).state
    quotas, _, _ = rollback(state, {"a": guaranteed("a", "3")})
    assert {quota.microseconds for _, quota in quotas} == {300_000}


@pytest.mark.parametrize("case", ["agent", "runtime"])
def test_beside_an_agent_or_without_the_runtime_nothing_is_touched(
    node: Node, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, _ = pinned(node)
    if case == "agent":
        node.agent()
    else:
        (node.folder / "nri.sock").unlink()
    monkeypatch.setattr("mooring.agent.store.LOCK_PATIENCE", 0.0)
    said = mooring("agent", "--config", node.folder / "agent.yaml", "--machine", MACHINE, "--leave")
    assert said.code == 2
    assert ("another agent uses this folder" if case == "agent" else "the runtime is not reached") in said.complaint
    assert node.cpus(own) == "1-2"


def test_the_command_says_what_it_did(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    for number, left in enumerate((Uninstalled(1, 2), Uninstalled(3, 1, ("a: b",)))):
        monkeypatch.setattr("mooring.agent.uninstall.uninstall", lambda _asked, left=left: left)
        answered = mooring("agent", "--config", node.folder / "agent.yaml", "--leave")
        assert answered.code == number
        said += answered.out.splitlines()
    assert said == [
        "1 container may use every CPU and memory node again, and 2 groups have their CFS quota restored.",
        "3 containers may use every CPU and memory node again, and 1 group has its CFS quota restored.",
        "Not restored: a: b",
    ]


def test_a_configuration_that_cannot_be_used_is_reported_before_anything_else(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        uninstall(AgentCommand(str(tmp_path / "none.yaml"), machine=MACHINE))
