"""``mooring agent`` beside a real containerd, real runc and real cgroups: ``make e2e``."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import sys
from pathlib import Path

import pytest
from tests.e2e.containerd.agent_process import AgentProcess, agent_on, pod_on, whole_cpus
from tests.e2e.containerd.cri import CRIError
from tests.e2e.containerd.runtime import Runtime, cgroup_file
from tests.patience import until

from mooring.engine.core.errors import InputError

pytestmark = pytest.mark.skipif(
    sorted(os.sched_getaffinity(0)) != [0, 1], reason="the expected CPUs are those of a machine with two"
)


def test_an_exclusive_container_gets_its_cpu_and_shared_ones_move_off_it_and_back(node: Runtime) -> None:
    with agent_on(node) as agent:
        shared_pod, own_pod = pod_on(node, "shared"), pod_on(node, "own")
        shared = node.cri.run(shared_pod, "a")
        assert node.cpus_of(shared_pod, shared) == "0-1"
        own = node.cri.run(own_pod, "b", resources=whole_cpus(1))
        assert (node.cpus_of(own_pod, own), node.cpus_of(shared_pod, shared)) == ("1", "0")
        assert agent.status()["cpus"]["exclusive"] == "1"
        until(lambda: agent.status()["ready"], "the agent is ready")
        node.cri.stop(own)
        node.cri.remove_pod(own_pod.id)
        until(lambda: node.cpus_of(shared_pod, shared) == "0-1", "the shared container has both CPUs again")


def test_a_pod_without_room_is_refused_with_the_kubelets_words(node: Runtime) -> None:
    with agent_on(node):
        pod = pod_on(node, "wide")
        with pytest.raises(CRIError) as raised:
            node.cri.create(pod, "a", resources=whole_cpus(2))
        assert "UnexpectedAdmissionError: Allocate failed due to not enough cpus available" in str(raised.value)


def test_an_agent_that_was_killed_comes_back_to_the_same_placement(node: Runtime) -> None:
    with agent_on(node) as agent:
        shared_pod, own_pod = pod_on(node, "shared"), pod_on(node, "own")
        own = node.cri.run(own_pod, "b", resources=whole_cpus(1))
        agent.end(signal.SIGKILL)
        # Nobody is asked about this one: it starts anywhere.
        stray = node.cri.run(shared_pod, "a")
        assert node.cpus_of(shared_pod, stray) == "0-1"
        agent.start()
        until(lambda: node.cpus_of(shared_pod, stray) == "0", "the stray container has moved")
        assert node.cpus_of(own_pod, own) == "1"
        assert agent.status()["cpus"]["exclusive"] == "1"
        until(
            lambda: {"found-running", "cpuset-differed"} & {one["finding"] for one in agent.events("finding")}, "told"
        )


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGKILL], ids=lambda sign: sign.name)
def test_after_a_restart_of_containerd_the_agent_goes_on(node: Runtime, sign: signal.Signals) -> None:
    with agent_on(node) as agent:
        shared_pod, own_pod = pod_on(node, "shared"), pod_on(node, "own")
        own = node.cri.run(own_pod, "b", resources=whole_cpus(1))
        node.restart(sign)
        until(lambda: agent.status()["counts"]["reconnects"] == 1 and agent.status()["ready"], "connected again")
        shared = node.cri.run(shared_pod, "a")
        assert (node.cpus_of(own_pod, own), node.cpus_of(shared_pod, shared)) == ("1", "0")
        node.cri.remove_pod(own_pod.id)
        until(lambda: node.cpus_of(shared_pod, shared) == "0-1", "the pod that is gone has given its CPU back")


def test_of_two_containers_with_one_name_the_one_that_runs_is_shown_by_every_agent(node: Runtime) -> None:
    with agent_on(node) as agent:
        pod = pod_on(node, "shared")
        # As after a restart of containerd in the middle of a start: stopping does not end what was never started. It is
        # made last, because containerd mostly lists two containers in the order of their creation.
        made = node.cri.create(pod, "a", attempt=1)
        node.cri.start(made)
        left = node.cri.create(pod, "a")
        node.cri.stop(left)
        for _ in range(3):
            agent.end(signal.SIGKILL)
            agent.start()
            [[shown]] = [one["containers"] for one in agent.status()["pods"]]
            assert (shown["id"], shown["phase"]) == (made, "running")
        assert node.cri.containers()[left] == "CREATED"


def test_a_cpuset_that_somebody_changed_is_put_right(node: Runtime) -> None:
    with agent_on(node) as agent:
        own_pod = pod_on(node, "own")
        own = node.cri.run(own_pod, "b", resources=whole_cpus(1))
        node.cri.update(own, cpuset_cpus="0-1")
        assert node.cpus_of(own_pod, own) == "1"
        path = cgroup_file(node.container_cgroup(own_pod, own), "cpuset", "cpuset.cpus")
        path.write_text("0-1\n", encoding="utf-8")
        until(lambda: node.cpus_of(own_pod, own) == "1", "the cpuset is repaired", seconds=30)
        assert agent.status()["counts"]["repairs"] >= 1


def test_a_second_agent_with_a_state_folder_of_its_own_blocks_nothing_and_neither_is_ready(node: Runtime) -> None:
    with agent_on(node) as first:
        second = AgentProcess(node, name="second")
        second.launch()
        try:
            for agent in (first, second):
                until(lambda agent=agent: _is_in_conflict(agent), "the agent has found the other")  # type: ignore[misc]
            own_pod = pod_on(node, "own")
            own = node.cri.run(own_pod, "b", resources=whole_cpus(1))
            assert node.cpus_of(own_pod, own) == "1"
            first.end(signal.SIGKILL)
            second.until_ready()
        finally:
            second.end()
        first.start()


def _is_in_conflict(agent: AgentProcess) -> bool:
    with contextlib.suppress(InputError):
        return any("another agent of this node uses" in one for one in agent.status()["reasons"])
    return False


def test_an_agent_that_containerd_starts_itself_places_containers_and_ends_with_it(node: Runtime) -> None:
    node.kill(signal.SIGTERM)
    made = AgentProcess(node)
    node.plugin_folder.mkdir(parents=True, exist_ok=True)
    program = node.plugin_folder / "30-mooring"
    program.write_text(
        f"#!/bin/sh\nexec {shlex.join(made.words())} 2>>{node.folder}/agent.log\n",
        encoding="utf-8",
    )
    program.chmod(0o755)
    node.start()
    until(made.is_ready, "the agent is ready")
    own_pod = pod_on(node, "own")
    own = node.cri.run(own_pod, "b", resources=whole_cpus(1))
    assert node.cpus_of(own_pod, own) == "1"
    node.kill(signal.SIGTERM)
    until(lambda: made.log[-1]["event"] == "agent stopped", "the agent has ended")
    assert not Path(made.socket).exists()
    program.unlink()
    node.start()


# The delay is what is tested: longer than containerd waits for both answers, five seconds for each.
_SLOW = """
import sys, time
from mooring.command.main import main
from mooring.agent import command as agent

given = agent._given

def slowly():
    session = given()
    time.sleep(12)
    return session

agent._given = slowly
sys.exit(main())
"""


def test_an_agent_that_starts_more_slowly_than_containerd_waits_is_kept_and_corrects_what_runs(node: Runtime) -> None:
    with agent_on(node):
        own_pod, shared_pod = pod_on(node, "own"), pod_on(node, "shared")
        own = node.cri.run(own_pod, "b", resources=whole_cpus(1))
    stray = node.cri.run(shared_pod, "a")
    assert node.cpus_of(shared_pod, stray) == "0-1"
    node.kill(signal.SIGTERM)
    made = AgentProcess(node, program=(sys.executable, "-c", _SLOW))
    node.plugin_folder.mkdir(parents=True, exist_ok=True)
    program = node.plugin_folder / "30-mooring"
    program.write_text(f"#!/bin/sh\nexec {shlex.join(made.words())} 2>>{node.folder}/agent.log\n", encoding="utf-8")
    program.chmod(0o755)
    # containerd waits five seconds for each answer.
    node.start()
    until(made.is_ready, "the agent is ready", seconds=60)
    assert {one["method"] for one in made.events("loss")} == {"Configure", "Synchronize"}
    until(lambda: node.cpus_of(shared_pod, stray) == "0", "the stray container has moved")
    assert node.cpus_of(own_pod, own) == "1"
    new = node.cri.run(shared_pod, "c")
    assert node.cpus_of(shared_pod, new) == "0"
    node.kill(signal.SIGTERM)
    until(lambda: made.log[-1]["event"] == "agent stopped", "the agent has ended")
    program.unlink()
    node.start()
