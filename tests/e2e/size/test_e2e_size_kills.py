"""Kills of the agent and of the runtime, in one run beside many containers: ``make e2e-size``.

``MOORING_E2E_KILLS`` (full: 200), ``MOORING_E2E_RESTARTS`` (full: 50) and ``MOORING_E2E_CONTAINERS`` (full: 500) are
the size; several runs with other seeds (``MOORING_E2E_SEED``) come to the same. What runs is read from the OCI
runtime's log, outside of agent and runtime.
"""

from __future__ import annotations

import logging
import os
import random
import signal
from functools import partial
from pathlib import Path

from tests.e2e.containerd.churn import Churn
from tests.e2e.containerd.watch import ASKING, Watch, large_machine, nothing_is_left
from tests.e2e.containerd.world import World
from tests.e2e.containerd.wrapper import Reader, end_forgotten
from tests.e2e.size.census import Census
from tests.e2e.size.conftest import Starting
from tests.patience import until

CLIENTS = 16
KILLS = int(os.environ.get("MOORING_E2E_KILLS", "4"))
RESTARTS = int(os.environ.get("MOORING_E2E_RESTARTS", "2"))
CONTAINERS = int(os.environ.get("MOORING_E2E_CONTAINERS", "40"))
CPUS = 640
SEED = int(os.environ.get("MOORING_E2E_SEED", "1"))
"""Of the order of disturbances, and of what the clients do between two."""
SHARING = int(os.environ.get("MOORING_E2E_SHARING") or min(CONTAINERS // 2, 100))
"""Containers without CPUs of their own. Each is updated whenever another container gets or releases a CPU, which is
most of what a run costs."""
SIZES = (0, 1, 1, 2) if CONTAINERS <= 200 else (0, 1)
"""CPUs that containers request."""
OFTEN = 10
"""Disturbances between two halts at which everything is compared."""
_log = logging.getLogger(__name__)


def disturbances() -> list[str]:
    """Return what happens, in a random order that the seed decides."""
    drawn = [*["agent killed"] * KILLS, *["runtime ended"] * (RESTARTS // 2), *["runtime killed"] * (-(-RESTARTS // 2))]
    random.Random(SEED).shuffle(drawn)  # noqa: S311 - the same order in every run with the seed
    return drawn


def disturb(watch: Watch, what: str) -> None:
    """Take the agent or the runtime down and bring it back."""
    watch.world.mark("away")
    if what == "agent killed":
        watch.agent.end(signal.SIGKILL)
        watch.agent.start()
        return
    with watch.churn.containerd_away():
        watch.node.restart(signal.SIGTERM if what == "runtime ended" else signal.SIGKILL)
        until(watch.agent.is_ready, "the agent is ready again", seconds=120, pause=ASKING)


def test_kills_of_agent_and_runtime_never_make_two_containers_share_an_exclusive_cpu(
    starting: Starting, folder_in_memory: Path
) -> None:
    folder, chance, agents, runtimes = folder_in_memory, random.Random(SEED + 1), Census(), Census()  # noqa: S311 - as above
    with large_machine(starting(folder), folder, CPUS) as (node, agent):
        churn = Churn(node, SIZES, CONTAINERS, SHARING)
        world = World(Reader(folder), churn.exclusive)
        watch = Watch(node, agent, churn, world)
        with churn.going_on(CLIENTS):
            churn.until(lambda: len(churn.live) >= CONTAINERS, "enough containers live", seconds=60 + 4 * CONTAINERS)
            watch.compare()
            for number, what in enumerate(disturbances(), start=1):
                churn.until(partial(watch.has_looked, churn.steps + chance.randrange(20)), "the clients go on")
                disturb(watch, what)
                watch.settle()
                one, other = agents.add(agent.pid), runtimes.add(node.pid)
                watch.tell(f"{number} {what}: agent {one['resident']:.1f} MiB, {one['descriptors']:.0f} descriptors")
                _log.info("%s: %.0f MiB, %.0f descriptors", node.name, other["resident"], other["descriptors"])
                if number % OFTEN == 0:
                    watch.compare()
            watch.compare()
        for pod in node.cri.pods():
            node.cri.remove_pod(pod)
        _log.info("%d containers and sandboxes were forgotten by %s", end_forgotten(folder), node.name)
        nothing_is_left(node, agent, was_restarted=RESTARTS > 0)
        assert agent.status()["counts"]["stateWriteFailures"] == 0
        watch.tell(f"{node.name}: {KILLS} kills of the agent, {RESTARTS} of the runtime")
        _log.info("agents: %s; %s: %s; %d overlaps", agents.ranges(), node.name, runtimes.ranges(), len(world.overlaps))
        # An agent that outlives a restart of the runtime has closed the connection of before.
        assert max(one["descriptors"] for one in agents.looks) < 20
