"""Two agents for one runtime: the second finds the first, neither is ready, and no creation is blocked."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.agent.whole_agent import Node, start, until

from mooring.agent.conflicts import NodeLock
from mooring.agent.status.health import unready


@pytest.fixture
def second(node: Node, tmp_path: Path) -> Node:
    """The same runtime and cgroups, with a configuration and a state folder of its own."""
    folder = tmp_path / "second"
    folder.mkdir()
    (folder / "nri.sock").symlink_to(tmp_path / "nri.sock")
    return Node(folder, node.tree, node.listening)


def test_a_second_agent_with_another_state_folder_waits_and_neither_is_ready(node: Node, second: Node) -> None:
    first = node.agent()
    runtime = node.listening.next()
    runtime.synchronize()
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
