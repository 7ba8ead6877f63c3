"""Many containers at once on a machine of 256 CPUs that the wrapped runc plays: what runs is what the agent says.

The agent is killed at random points, containerd is restarted by TERM and KILL, and every line of the wrapper's log is
looked at: no two containers may ever share an exclusive CPU. Clients remove containers before their sandbox, as a
kubelet does; who removes sandboxes with containers in them can lock containerd up (test_e2e_containerd_lockup.py).

The size of a run: ``MOORING_E2E_KILLS`` (full: 200), ``MOORING_E2E_CONTAINERS`` (full: 500), ``MOORING_E2E_RESTARTS``.
``MOORING_E2E_RUNTIME=played`` does without runc: on a busy machine 500 containers take a tenth of the time then.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.containerd.agent_process import agent_on
from tests.e2e.containerd.churn import Churn
from tests.e2e.containerd.kernel_world import KernelWorld
from tests.e2e.containerd.watch import Watch, large_machine, nothing_is_left
from tests.e2e.containerd.world import World
from tests.e2e.containerd.wrapper import Reader, write_player, write_wrapper
from tests.e2e.runtimes import running
from tests.patience import until

CLIENTS = 16
KILLS = int(os.environ.get("MOORING_E2E_KILLS", "6"))
CONTAINERS = int(os.environ.get("MOORING_E2E_CONTAINERS", "60"))
RESTARTS = int(os.environ.get("MOORING_E2E_RESTARTS", "2"))
RUNTIME = os.environ.get("MOORING_E2E_RUNTIME", "wrapped")
RUNTIMES: Mapping[str, Callable[[Path, Any], Path]] = {
    "wrapped": lambda folder, parts: write_wrapper(folder, parts.runc, cpus="0-1", mems="0", really_updates=False),
    "played": lambda folder, parts: write_player(folder, parts.busybox),
}
SIZES = (0, 1, 1, 2) if CONTAINERS <= 200 else (0, 1)
"""CPUs that containers ask for; the machine has 254 to give."""
OFTEN = 10
"""Kills between two halts at which everything is compared."""


def disturb(watch: Watch, what: str, times: int) -> None:
    """Take agent or containerd down at random points, and see to it that all is as it should be afterwards."""
    chance = random.Random(1)  # noqa: S311 - the same moments, as far as moments can be the same
    node, agent, churn = watch.node, watch.agent, watch.churn
    for number in range(times):
        churn.until(partial(watch.has_looked, churn.steps + chance.randrange(20)), "the clients go on")
        watch.world.mark("away")
        if what == "agent-killed":
            agent.end(signal.SIGKILL)
            agent.start()
        else:
            with churn.containerd_away():
                node.restart((signal.SIGTERM, signal.SIGKILL)[number % 2])
                until(agent.is_ready, "the agent is ready again", seconds=60)
        watch.settle()
        watch.tell(f"{what} {number + 1}")
        if number % OFTEN == OFTEN - 1:
            watch.compare()


@pytest.mark.parametrize("what", ["agent-killed", "containerd-restarted"])
def test_sixteen_clients_at_once_never_make_two_containers_share_an_exclusive_cpu(
    parts: Any, folder_in_memory: Path, what: str
) -> None:
    folder = folder_in_memory
    with large_machine(running(parts, folder, oci_runtime=RUNTIMES[RUNTIME](folder, parts)), folder) as (node, agent):
        churn = Churn(node, SIZES, CONTAINERS, CONTAINERS * 6 // 10)
        watch = Watch(node, agent, churn, World(Reader(folder), churn.exclusive))
        with churn.going_on(CLIENTS):
            churn.until(lambda: len(churn.live) >= CONTAINERS, "enough containers live", seconds=60 + 4 * CONTAINERS)
            watch.compare()
            disturb(watch, what, KILLS if what == "agent-killed" else RESTARTS)
            watch.compare()
        nothing_is_left(node, agent, was_restarted=what == "containerd-restarted")
        assert agent.status()["counts"]["stateWriteFailures"] == 0
        watch.tell("the end")


@pytest.mark.skipif(sorted(os.sched_getaffinity(0)) != [0, 1], reason="the expected CPUs are those of two")
def test_on_real_cgroups_the_only_exclusive_cpu_has_one_owner_at_a_time(parts: Any, folder_in_memory: Path) -> None:
    with running(parts, folder_in_memory) as node, agent_on(node, budget="4s") as agent:
        node.patience = 120
        churn = Churn(node, (0, 0, 1), limit=12, sharing=12)
        watch = Watch(node, agent, churn, KernelWorld(churn))
        with churn.going_on(6):
            churn.until(lambda: len(churn.live) >= 8 and churn.exclusive, "enough containers live")
            for what in ("agent-killed", "containerd-restarted"):
                disturb(watch, what, RESTARTS)
                watch.compare()
        nothing_is_left(node, agent, was_restarted=True)
        watch.tell("the end")
