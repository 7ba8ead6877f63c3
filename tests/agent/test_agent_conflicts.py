"""A made-up /proc in which kubelets come and go."""

from __future__ import annotations

import math
import os
import shutil
import signal
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.agent.nri.runtime_side import TIMEOUT
from tests.agent.whole_agent import Node, start, until
from tests.cli.command import mooring

from mooring.agent.agent import Agent
from mooring.agent.conflicts import REASON, KubeletFinder, NodeLock
from mooring.agent.pods.cluster import NoCluster
from mooring.agent.status import unready
from mooring.engine.core.errors import InputError
from mooring.inputs.machines.tree import FolderTree


@dataclass
class Processes:
    """What runs on a computer."""

    root: Path
    listings: int = 0
    """How often all processes were looked at."""

    def start(self, number: int, *arguments: str, name: str = "kubelet") -> None:
        folder = self.root / "proc" / str(number)
        folder.mkdir(parents=True)
        (folder / "comm").write_text(f"{name}\n", encoding="ascii")
        words = (f"/usr/bin/{name}", *arguments)
        (folder / "cmdline").write_text("".join(f"{word}\0" for word in words), encoding="ascii")

    def end(self, number: int) -> None:
        shutil.rmtree(self.root / "proc" / str(number))

    def beside(self) -> KubeletFinder:
        """Return what looks for a kubelet among them."""

        class Counted(FolderTree):
            def names(tree, path: str) -> tuple[str, ...]:  # noqa: N805 - the outer self is meant below
                self.listings += path == "proc"
                return super().names(path)

        (self.root / "proc").mkdir(parents=True, exist_ok=True)
        return KubeletFinder(lambda: Counted(str(self.root)))


# A kubelet that starts after the agent or with other flags is detected, and so is a second agent for one runtime.


KUBELET = "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\n"


@pytest.fixture
def processes(tmp_path: Path) -> Processes:
    return Processes(tmp_path / "computer")


def conflict(beside: KubeletFinder, named: str = "") -> str:
    """Return why the agent cannot run beside the kubelet that is there."""
    with pytest.raises(InputError) as refused:
        beside.check(named)
    return str(refused.value)


def test_a_static_kubelet_that_comes_later_is_seen_by_its_flags(processes: Processes) -> None:
    beside = processes.beside()
    assert beside.flags() is None
    assert not beside.check("")
    processes.start(40, "--cpu-manager-policy=static")
    assert conflict(beside).startswith("the kubelet's command line: cpuManagerPolicy: is static on this node")
    assert conflict(beside), "as long as it is there"
    processes.end(40)
    assert not beside.check("")


def test_reading_the_configuration_meanwhile_does_not_hide_it(processes: Processes) -> None:
    beside = processes.beside()
    processes.start(40, "--memory-manager-policy=Static")
    assert beside.flags() is not None
    assert conflict(beside).startswith("the kubelet's command line: memoryManagerPolicy: is Static")


@pytest.mark.parametrize("named", [True, False], ids=["another-file-is-named", "no-file-is-named"])
def test_it_is_seen_by_the_file_that_it_reads(named: bool, processes: Processes, tmp_path: Path) -> None:
    file, other = tmp_path / "kubelet.yaml", tmp_path / "other.yaml"
    file.write_text(KUBELET + "cpuManagerPolicy: static\n", encoding="utf-8")
    other.write_text(KUBELET, encoding="utf-8")
    beside = processes.beside()
    processes.start(40, "--config", str(file))
    assert conflict(beside, str(other) if named else "").startswith(f"{file}: cpuManagerPolicy: is static on this")


def test_a_file_that_changes_counts_when_the_kubelet_has_read_it(processes: Processes, tmp_path: Path) -> None:
    file = tmp_path / "kubelet.yaml"
    file.write_text(KUBELET, encoding="utf-8")
    beside = processes.beside()
    processes.start(40, "--config", str(file))
    assert not beside.check("")
    file.write_text(KUBELET + "cpuManagerPolicy: static\n", encoding="utf-8")
    assert not beside.check("")
    processes.end(40)
    processes.start(41, "--config", str(file))
    assert conflict(beside).startswith(f"{file}: cpuManagerPolicy")


def test_a_file_that_cannot_be_read_is_left_to_the_kubelet(processes: Processes, tmp_path: Path) -> None:
    beside = processes.beside()
    processes.start(40, "--config", str(tmp_path / "none.yaml"))
    assert not beside.check(str(tmp_path / "neither.yaml"))


def test_one_that_stays_is_not_looked_for_again_and_one_that_is_restarted_is(processes: Processes) -> None:
    beside = processes.beside()
    processes.start(40, "--v=2")
    assert not beside.check("")
    before = processes.listings
    for _ in range(5):
        assert not beside.check("")
    assert processes.listings == before
    processes.end(40)
    processes.start(41, "--v=2", "--cpu-manager-policy=static")
    assert conflict(beside)


def test_other_words_about_the_node_let_the_configuration_be_read_anew(processes: Processes, tmp_path: Path) -> None:
    file = tmp_path / "kubelet.yaml"
    file.write_text(KUBELET, encoding="utf-8")
    beside = processes.beside()
    assert beside.flags() is None
    processes.start(40, "--reserved-cpus=0-1")
    assert beside.check(str(file))
    beside.flags()
    processes.end(40)
    processes.start(41, "--reserved-cpus=0-1", "--v=4")
    assert not beside.check(str(file)), "it was told the same"
    processes.end(41)
    processes.start(42)
    assert not beside.check(""), "nothing is taken from a kubelet whose file nobody named"


def test_a_program_with_the_kubelet_in_it_is_reported(processes: Processes) -> None:
    beside = processes.beside()
    processes.start(40, name="k3s-server")
    assert (beside.check(""), beside.embedding) == (False, "k3s-server")


def look_every(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mooring.agent.conflicts.PERIOD", seconds)


def is_over_after_a_look(agent: Agent) -> bool:
    agent.reconcile()
    return agent.is_over


def test_the_agent_ends_and_moves_no_container(
    node: Node, processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    look_every(0, monkeypatch)
    told: list[str] = []
    monkeypatch.setattr(NoCluster, "event", lambda _, one: told.append(f"{one.about.name} {one.reason}: {one.note}"))
    node.beside = processes.beside()
    agent, runtime = node.connected()
    own = start(node, runtime, "own", 2)
    assert not is_over_after_a_look(agent)
    processes.start(40, "--cpu-manager-policy=static")
    assert is_over_after_a_look(agent)
    assert is_over_after_a_look(agent)
    assert isinstance(agent.failure, InputError), "the command ends with exit code 2"
    assert told == [f"edge-7 {REASON}: the agent ends: {agent.failure}"]
    node.agents.remove(agent)
    agent.close()
    assert node.cpus(own) == "1-2"


def test_between_two_looks_only_who_asks_looks(
    node: Node, processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    look_every(math.inf, monkeypatch)
    node.beside = processes.beside()
    agent = node.agent()
    node.listening.next()
    assert not is_over_after_a_look(agent)
    processes.start(40, "--cpu-manager-policy=static")
    assert not is_over_after_a_look(agent)
    agent.reload()
    assert is_over_after_a_look(agent)


def test_the_flags_of_a_kubelet_that_came_later_are_taken_up(
    node: Node, processes: Processes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    look_every(0, monkeypatch)
    file = tmp_path / "kubelet.yaml"
    file.write_text(KUBELET, encoding="utf-8")
    node.beside = processes.beside()
    agent = node.agent(f"kubeletConfig: {file}")
    node.listening.next()
    processes.start(40, "--max-pods=70")
    agent.reconcile()
    assert agent.snapshot.configuration.generation == 2
    assert agent.holder.state.kubelet.settings.config.max_pods == 70


def test_the_command_ends_with_the_reason(node: Node, processes: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    node.beside = processes.beside()
    made = node.beginning()
    processes.start(40, "--cpu-manager-policy=static")
    monkeypatch.setattr("mooring.agent.startup.read_startup", lambda _asked: made)
    # One that goes on is told to stop, so that the test fails and does not hang.
    impatience = threading.Timer(3 * TIMEOUT, os.kill, (os.getpid(), signal.SIGTERM))
    impatience.start()
    try:
        said = mooring("agent", "--config", "agent.yaml", code=2)
        assert "cpuManagerPolicy: is static on this node" in said.err
    finally:
        impatience.cancel()


@pytest.fixture
def second(node: Node, tmp_path: Path) -> Node:
    """The same runtime and cgroups, with a configuration and a state folder of its own."""
    folder = tmp_path / "second"
    folder.mkdir()
    (folder / "nri.sock").symlink_to(tmp_path / "nri.sock")
    return Node(folder, node.tree, node.listening)


def test_a_second_agent_with_another_state_folder_waits_and_neither_is_ready(node: Node, second: Node) -> None:
    first, runtime = node.connected()
    first.reconcile()
    until(lambda: unready(first.snapshot) == (), "the first agent is ready")
    other = second.agent()
    try:
        for agent, socket in ((first, node.folder / "nri.sock"), (other, second.folder / "nri.sock")):
            agent.reconcile()
            text = f"another agent of this node uses the runtime's socket {socket}: stop one of the two"
            assert text in unready(agent.snapshot)
        start(node, runtime, "own", 2)
        assert not other.snapshot.runtime.connected
        node.agents.remove(first)
        first.close()
        other_runtime = node.listening.next()
        other_runtime.synchronize()
        until(lambda: other.snapshot.runtime.synchronized, "the second agent has taken over")
        other.reconcile()
        assert unready(other.snapshot) == ()
    finally:
        other.close()


def test_agents_of_two_runtimes_in_one_folder_do_not_disturb_each_other(tmp_path: Path) -> None:
    locks = [NodeLock(str(tmp_path / name)) for name in ("a.sock", "b.sock")]
    assert [lock.must_wait() for lock in locks] == ["", ""]
    for lock in locks:
        lock.close()


def test_a_folder_that_the_runtime_makes_anew_is_locked_anew(tmp_path: Path) -> None:
    folder = tmp_path / "nri"
    first, second = (NodeLock(str(folder / "nri.sock")) for _ in range(2))
    assert (first.conflict(), second.conflict()) == ("", ""), "there is nothing to lock yet"
    for _ in range(2):
        folder.mkdir()
        assert first.must_wait() == ""
        assert second.must_wait() != ""
        assert first.conflict() != ""
        folder.rmdir()
    first.close()
    folder.mkdir()
    assert second.must_wait() == ""
    second.close()


def test_an_agent_that_is_gone_leaves_nothing_behind(tmp_path: Path) -> None:
    first, second = (NodeLock(str(tmp_path / "nri.sock")) for _ in range(2))
    assert second.must_wait() != ""
    first.close()
    assert second.must_wait() == ""
    second.close()
    assert list(tmp_path.iterdir()) == []
