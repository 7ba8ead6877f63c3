"""A disk that is full or read-only, files that are damaged, a machine that is another one: the agent comes back."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.agent.process import PATIENCE, SmallDisk, World, agent_in, begun, kubelets, small_disk, why_no_small_disk
from tests.agent.whole_agent import Node, pod, start, until

FEW_CPUS = "sockets=1 numa=1 cores=4 threads=1 memory=16Gi"
GARBAGE = b"\0\xff{not a state"


@pytest.mark.long
@pytest.mark.skipif(bool(why_no_small_disk()), reason=f"no file system of its own: {why_no_small_disk()}")
@pytest.mark.parametrize(
    ("fault", "word", "is_lost"),
    # A journal that is written in place needs no room.
    [("fill", "No space left", False), ("protect", "Read-only", True)],
    ids=["full", "ro"],
)
def test_a_disk_that_takes_nothing_stops_nobody_not_even_a_start(
    tmp_path: Path, fault: str, word: str, is_lost: bool
) -> None:
    with (
        small_disk(tmp_path / "disk") as disk,
        agent_in(tmp_path, state=tmp_path / "disk" / "state", before=disk.inside) as (agent, listening),
    ):
        world, runtime = begun(agent, listening)
        assert world.create(runtime, "first", 2) == "1-2"
        mend = broken(disk, fault)
        assert world.create(runtime, "second", 2) == "3-4"
        until(lambda: agent.status["reasons"], "the agent says so", seconds=PATIENCE)
        (reason,) = agent.status["reasons"]
        assert reason.startswith("the state cannot be written: ")
        assert word in reason
        until(lambda: [line for line in agent.log if word in line["event"]], "the log says so", seconds=PATIENCE)
        agent.end(signal.SIGKILL)
        agent.start()
        assert world.synchronize(listening.next()) == [], "the runtime knows what the disk does not"
        until(lambda: agent.status["cpus"]["exclusive"] == "1-4", "both are known again", seconds=PATIENCE)
        if is_lost:
            agent.until_found("taken-over")
        else:
            assert "taken-over" not in agent.findings
        mend()
        agent.until_ready()
        assert agent.end() == 0
        assert b"uid-second" in (disk.seen / "state" / "journal.json").read_bytes()


def broken(disk: SmallDisk, fault: str) -> Callable[[], None]:
    mend: Callable[[], None] = getattr(disk, fault)()
    return mend


@pytest.mark.long
def test_an_agent_whose_files_are_all_garbage_comes_back_to_the_same_placement(tmp_path: Path) -> None:
    with agent_in(tmp_path) as (agent, listening):
        world, runtime = begun(agent, listening)
        world.create(runtime, "own", 2)
        until((tmp_path / "state" / "cpu_manager_state").exists, "the state files follow", seconds=PATIENCE)
        agent.end(signal.SIGKILL)
        for file in (tmp_path / "state").iterdir():
            file.write_bytes(GARBAGE)
        agent.start()
        assert world.synchronize(listening.next()) == []
        agent.until_ready()
        assert agent.status["cpus"]["exclusive"] == "1-2"
        agent.until_found("taken-over")
        assert agent.findings[:2] == ["state-damaged", "state-refused"]
        assert (tmp_path / "state" / "journal.json.bak").read_bytes() == GARBAGE
        runtime.close()


@pytest.mark.long
def test_after_a_boot_with_fewer_cpus_the_state_is_laid_aside_and_said_to_be(tmp_path: Path) -> None:
    with agent_in(tmp_path) as (agent, listening):
        world, runtime = begun(agent, listening)
        world.create(runtime, "own", 2)
        world.create(runtime, "wide", 4)
        agent.end(signal.SIGKILL)
        agent.machine = FEW_CPUS
        agent.start()
        # Containers do not live through a boot; their sandboxes are listed until the kubelet removes them.
        again = World(pods=[kubelets("own")])
        assert again.synchronize(listening.next()) == []
        agent.until_ready()
        agent.until_found("state-refused")
        agent.until_found("pod-gone")
        gone = [line for line in agent.log if line.get("finding") == "pod-gone"]
        assert [line["pod"] for line in gone] == ["uid-wide"]
        assert agent.status["cpus"]["shared"] in ("0-3", "0,3")
        assert agent.end() == 0


@pytest.mark.parametrize("name", ["journal.json", "cpu_manager_state", "memory_manager_state"])
@pytest.mark.parametrize("damage", ["garbage", "empty", "folder", "missing"])
def test_no_file_of_the_folder_keeps_the_agent_from_running(node: Node, name: str, damage: str) -> None:
    node.agent()
    runtime = node.listening.next()
    runtime.synchronize()
    own = start(node, runtime, "own", 2)
    node.agents.pop().close()
    file = node.folder / "state" / name
    file.unlink(missing_ok=True)
    if damage == "folder":
        file.mkdir()
    elif damage != "missing":
        file.write_bytes(GARBAGE if damage == "garbage" else b"")
    agent = node.agent()
    runtime = node.listening.next()
    assert list(runtime.synchronize([pod("own")], [own]).update) == []
    until(lambda: agent.snapshot.runtime.synchronized, "everything is told")
    assert node.cpus(own) == "1-2"
    assert node.status["cpus"]["exclusive"] == "1-2"
    agent.holder.write_files()
    if damage == "folder":
        assert not node.status["ready"], "a file of this name cannot be written"
        file.rmdir()
        agent.holder.write_again()
    assert node.status["ready"]
