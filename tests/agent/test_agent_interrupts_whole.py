"""A whole agent with the extension irq-affinity, on a made-up /proc/irq."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET
from tests.agent.made_up_interrupts import MadeUpInterrupts, made_up_interrupts
from tests.agent.nri.runtime_side import TIMEOUT, RuntimeSide
from tests.agent.whole_agent import CONFIGURATION, MACHINE, NODE, Node, pod, start, until, whole
from tests.cli.command import mooring
from tests.documents.validation import complaints

from mooring.agent.agent import Agent
from mooring.agent.interrupts.reconcile import held_devices
from mooring.agent.nri.types import Event, RuntimeContainer
from mooring.agent.startup import AgentCommand, Startup
from mooring.agent.uninstall import Uninstalled, uninstall
from mooring.engine.core.pod import Pod, QoS
from mooring.engine.devicemanager.state import Device
from mooring.engine.extensions.interrupts import ANNOTATION
from mooring.inputs.machines.loader import load_machine
from mooring.service.agent_configuration import load_agent_configuration
from mooring.service.logs import Log
from mooring.service.podresources import ListedClaimDevice, ListedContainer, ListedPod

ON = "irqAffinity: on"
EXTENSION = "\n---\nkind: MooringConfiguration\nextensions: [irq-affinity]\n"


@pytest.fixture
def lines(node: Node) -> MadeUpInterrupts:
    return made_up_interrupts(node.folder / "machine")


def beginning(node: Node) -> Startup:
    load = partial(load_agent_configuration, str(node.folder / "agent.yaml"))
    root = str(node.folder / "machine")
    return Startup(load(), load, load_machine(MACHINE), node.tree.cgroups, NODE, root)


def agent_with(node: Node, more: str, extension: str = EXTENSION) -> Agent:
    """Start an agent that looks after the made-up interrupts."""
    text = CONFIGURATION.format(folder=node.folder, kubelet="", more=f'{more}\npodResourcesSocket: ""')
    (node.folder / "agent.yaml").write_text(text + extension, encoding="utf-8")
    made = Agent(beginning(node), Log("test"))
    node.agents.append(made)
    made.start()
    return made


def ended(node: Node) -> None:
    """End the newest agent, after everything that it has begun."""
    node.agents.pop().close()


def looked(agent: Agent) -> Any:
    """Let the agent look, and return what it shows then."""
    before = agent.snapshot.interrupts
    agent.reconcile()
    until(lambda: agent.snapshot.interrupts is not before, "interrupts were looked at")
    return agent.snapshot.interrupts


def test_interrupts_follow_the_pinning_and_come_back_when_the_cpus_are_free(
    node: Node, lines: MadeUpInterrupts
) -> None:
    agent = agent_with(node, ON)
    runtime = node.listening.next()
    runtime.synchronize()
    own = start(node, runtime, "own", 2)
    assert node.cpus(own) == "1-2"
    looked(agent)
    assert (lines.cpus(24), lines.cpus(25), lines.cpus(26), lines.beginning) == ("0,3-7", "0", "4-5", "000000f9")
    assert "mooring_agent_interrupts_moved_total 3.0" in agent.metrics.text()
    status = node.status["interrupts"]
    assert [(row["number"], row["original"], row["why"]) for row in status["moved"]] == [
        (-1, "0-7", "kept-away"),
        (24, "0-7", "kept-away"),
        (25, "2", "kept-away"),
    ]
    runtime.stop(pod("own"), own)
    runtime.state_change(Event.STOP_POD_SANDBOX, pod("own"))
    runtime.state_change(Event.REMOVE_POD_SANDBOX, pod("own"))
    looked(agent)
    assert (lines.cpus(24), lines.cpus(25), lines.beginning) == ("0-7", "2", "000000ff")
    assert "mooring_agent_interrupts_restored_total 3.0" in agent.metrics.text()
    assert node.status["interrupts"]["moved"] == []


def test_a_dry_run_says_what_it_would_write_and_writes_nothing(node: Node, lines: MadeUpInterrupts) -> None:
    agent = agent_with(node, "")
    runtime = node.listening.next()
    runtime.synchronize()
    start(node, runtime, "own", 2)
    looked(agent)
    assert (lines.cpus(24), lines.cpus(25), lines.beginning) == ("0-7", "2", "ff")
    assert not (node.folder / "state" / "interrupts.json").exists()
    status = node.status["interrupts"]
    assert status["mode"] == "dry-run"
    assert [(row["number"], row["wanted"]) for row in status["pending"]] == [(-1, "0,3-7"), (24, "0,3-7"), (25, "0")]
    assert "mooring_agent_interrupts_pending 3.0" in agent.metrics.text()
    plain = mooring("status", "--socket", node.folder / "status.sock").out
    assert "3, dry run: 2 would move" in plain
    wide = mooring("status", "--socket", node.folder / "status.sock", "-o", "wide").out
    assert "would become 0,3-7" in wide


def test_the_document_is_as_its_schema_says(node: Node, lines: MadeUpInterrupts) -> None:
    _, own = moved(node)
    lines.move(24, "1")
    lines.put("proc/90/comm", "irqbalance")
    agent = node.agents[-1]
    agent.interrupts.check(agent.options)  # type: ignore[union-attr]
    document = node.status
    assert document["interrupts"]["moved"]
    assert document["interrupts"]["leftAlone"]
    assert complaints("AgentStatus", document) == []
    assert node.cpus(own) == "1-2"


def test_without_the_extension_nobody_looks(node: Node, lines: MadeUpInterrupts) -> None:
    agent = agent_with(node, ON, extension="")
    runtime = node.listening.next()
    runtime.synchronize()
    start(node, runtime, "own", 2)
    agent.reconcile()
    assert "interrupts" not in node.status
    ended(node)
    assert lines.cpus(24) == "0-7"
    assert agent.snapshot.interrupts is UNSET


def moved(node: Node) -> tuple[RuntimeSide, RuntimeContainer]:
    """Run an agent that has moved interrupts away from a container."""
    agent = agent_with(node, ON)
    runtime = node.listening.next()
    runtime.synchronize()
    own = start(node, runtime, "own", 2)
    looked(agent)
    return runtime, own


def test_an_agent_after_a_kill_knows_what_was_there_before(node: Node, lines: MadeUpInterrupts) -> None:
    """Nothing is written at the end of an agent: its end and its death are the same to interrupts."""
    moved(node)
    ended(node)
    assert lines.cpus(25) == "0"
    agent = agent_with(node, "irqAffinity: dry-run")
    looked(agent)
    assert (lines.cpus(24), lines.cpus(25), lines.beginning) == ("0-7", "2", "000000ff")


def test_an_extension_that_was_switched_off_gives_back(node: Node, lines: MadeUpInterrupts) -> None:
    moved(node)
    ended(node)
    agent_with(node, ON, extension="").reconcile()
    until(lambda: lines.cpus(25) == "2" and lines.beginning == "000000ff", "interrupts are where they were")


def test_after_a_boot_the_memory_is_of_no_use(node: Node, lines: MadeUpInterrupts) -> None:
    moved(node)
    ended(node)
    lines.put("proc/sys/kernel/random/boot_id", "boot-2")
    agent_with(node, ON, extension="").reconcile()
    ended(node)
    assert lines.cpus(25) == "0"


def test_what_somebody_else_has_moved_stays_his(node: Node, lines: MadeUpInterrupts) -> None:
    _, own = moved(node)
    agent = node.agents[-1]
    lines.move(24, "1")
    agent.verify_all()
    agent.interrupts.check(agent.options)  # type: ignore[union-attr]
    assert lines.cpus(24) == "1"
    assert [row["number"] for row in node.status["interrupts"]["leftAlone"]] == [24]
    assert "mooring_agent_interrupts_left_alone 1.0" in agent.metrics.text()
    assert node.cpus(own) == "1-2"


@contextmanager
def leaving(node: Node, monkeypatch: pytest.MonkeyPatch, found: list[Uninstalled]) -> Iterator[RuntimeSide]:
    """Let an agent leave, and give the runtime's side of its one connection."""
    monkeypatch.setattr("mooring.agent.uninstall.read_startup", lambda _asked: beginning(node))
    thread = threading.Thread(target=lambda: found.append(uninstall(AgentCommand(""))))
    thread.start()
    runtime = node.listening.next("mooring-update")
    yield runtime
    thread.join(TIMEOUT)
    assert not thread.is_alive()
    runtime.close()


def test_who_leaves_gives_interrupts_back_and_names_those_that_are_somebody_elses(
    node: Node, lines: MadeUpInterrupts, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, own = moved(node)
    ended(node)
    lines.move(24, "1")
    found: list[Uninstalled] = []
    with leaving(node, monkeypatch, found) as runtime:
        runtime.synchronize([pod("own")], [own])
    assert (lines.cpus(24), lines.cpus(25), lines.beginning) == ("1", "2", "000000ff")
    assert found[0].problems == ("interrupt 24 (eth0-rx): another program has moved it; it is left alone",)


def annotated(node: Node, wish: str, monkeypatch: pytest.MonkeyPatch, devices: frozenset[str]) -> Agent:
    """Run an agent with a pod that wants something and holds devices."""

    def told(_socket: str, pods: dict[str, Pod], _address: object) -> dict[str, dict[str, frozenset[str]]]:
        return {uid: {"own": devices} for uid in pods}

    monkeypatch.setattr("mooring.agent.interrupts.reconcile.held_devices", told)
    agent = agent_with(node, ON)
    runtime = node.listening.next()
    runtime.synchronize()
    sandbox = replace(pod("own"), annotations={ANNOTATION: wish})
    runtime.state_change(Event.RUN_POD_SANDBOX, sandbox)
    runtime.create(sandbox, whole("own", 2))
    return agent


def test_a_pod_gets_the_interrupts_of_its_devices(
    node: Node, lines: MadeUpInterrupts, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = annotated(node, "own", monkeypatch, frozenset({"0000:03:00.1"}))
    lines.add(27, "else", "1-3")
    looked(agent)
    assert (lines.cpus(24), lines.cpus(25), lines.cpus(27)) == ("1-2", "1-2", "3")


def test_a_pod_that_does_not_mind_is_left_in_peace(
    node: Node, lines: MadeUpInterrupts, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = annotated(node, "ignore", monkeypatch, frozenset())
    looked(agent)
    assert (lines.cpus(24), lines.cpus(25), lines.beginning) == ("0-7", "2", "ff")


def test_a_word_that_is_no_wish_and_devices_that_nobody_knows_are_reported(
    node: Node, lines: MadeUpInterrupts, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = annotated(node, "sometimes", monkeypatch, frozenset())
    assert [finding.code for finding in looked(agent).findings] == ["MOOR-622"]
    assert lines.cpus(25) == "0"
    ended(node)


def test_irqbalance_is_told_with_the_setting_that_fits(node: Node, lines: MadeUpInterrupts) -> None:
    lines.put("proc/90/comm", "irqbalance")
    agent = agent_with(node, ON)
    runtime = node.listening.next()
    runtime.synchronize()
    start(node, runtime, "own", 2)
    (finding,) = looked(agent).findings
    assert finding.code == "MOOR-604"
    assert "IRQBALANCE_BANNED_CPULIST=1-2 " in finding.message


def test_devices_are_those_whose_ids_are_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    devices = (("nic", Device("0000:03:00.1")), ("gpu", Device("GPU-1")))
    listed = (
        ListedPod("default", "a", (ListedContainer("c", 0, devices),)),
        ListedPod("default", "z", (ListedContainer("c", 0, devices),)),
    )
    monkeypatch.setattr("mooring.agent.interrupts.reconcile.PodResourcesClient.listed", lambda _self: b"")
    monkeypatch.setattr("mooring.agent.interrupts.reconcile.pods_in", lambda _answer: listed)
    pods = {"uid-a": Pod("uid-a", "a", "default", (), QoS.GUARANTEED)}
    assert held_devices("/nowhere.sock", pods) == {"uid-a": {"c": frozenset({"0000:03:00.1"})}}


def test_devices_of_drivers_are_those_with_a_pci_address(monkeypatch: pytest.MonkeyPatch) -> None:
    nic = ListedClaimDevice("default", "nics", "dra.net", "node-1", "eth1")
    gpu = ListedClaimDevice("default", "gpus", "gpu.example.com", "node-1", "gpu0")
    listed = (ListedPod("default", "a", (ListedContainer("c", 0, (), (nic, gpu)),)),)
    monkeypatch.setattr("mooring.agent.interrupts.reconcile.PodResourcesClient.listed", lambda _self: b"")
    monkeypatch.setattr("mooring.agent.interrupts.reconcile.pods_in", lambda _answer: listed)
    known = {("dra.net", "node-1/eth1"): "0000:03:00.1"}
    pods = {"uid-a": Pod("uid-a", "a", "default", (), QoS.GUARANTEED)}
    found = held_devices("/nowhere.sock", pods, lambda driver, name: known.get((driver, name), ""))
    assert found == {"uid-a": {"c": frozenset({"0000:03:00.1"})}}


def test_a_kubelet_that_does_not_answer_is_reported(node: Node, lines: MadeUpInterrupts, tmp_path: Path) -> None:
    agent = agent_with(node, f"{ON}\nkubeletPodResourcesSocket: {tmp_path}/none.sock")
    runtime = node.listening.next()
    runtime.synchronize()
    sandbox = replace(pod("own"), annotations={ANNOTATION: "own"})
    runtime.state_change(Event.RUN_POD_SANDBOX, sandbox)
    runtime.create(sandbox, whole("own", 2))
    assert [finding.code for finding in looked(agent).findings] == ["MOOR-619"]
    assert lines.cpus(25) == "0"
