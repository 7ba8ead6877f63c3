"""Thousands of lives of containers beside one agent: it does not grow, and nothing drifts: ``make e2e-size``.

``MOORING_E2E_LIVES`` is the number of lives (full: 10,000).
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from tests.e2e.containerd.churn import Churn
from tests.e2e.containerd.watch import Watch, large_machine, nothing_is_left
from tests.e2e.containerd.world import World
from tests.e2e.containerd.wrapper import Reader
from tests.e2e.size.census import Census
from tests.e2e.size.conftest import Starting
from tests.e2e.size.tap import tapped

LIVES = int(os.environ.get("MOORING_E2E_LIVES", "200"))
CLIENTS = 16
CONTAINERS = 40
LARGEST = 80
"""MiB that an agent may have."""
TOLERATED = 6
"""MiB by which it may grow between a third of its lives and the end."""
LOOKS = 12
_log = logging.getLogger(__name__)


def test_memory_is_flat_and_nothing_drifts_over_many_lives(starting: Starting, folder_in_memory: Path) -> None:
    folder, census = folder_in_memory, Census()
    with (
        tapped(folder, folder / "nri.sock") as (socket, waits),
        large_machine(starting(folder), folder, nri_socket=socket, level="info") as (node, agent),
    ):
        churn = Churn(node, (0, 1, 2, 3, 8), CONTAINERS, CONTAINERS // 3)
        watch = Watch(node, agent, churn, World(Reader(folder), churn.exclusive))
        with churn.going_on(CLIENTS):
            for number in range(LOOKS):
                goal = LIVES * (number + 1) // LOOKS

                def is_reached(goal: int = goal) -> bool:
                    watch.look()
                    return watch.world.lives >= goal

                churn.until(is_reached, f"{goal} lives", seconds=120 + LIVES)
                watch.compare()
                one = census.add(agent.pid)
                watch.tell(
                    f"{one['resident']:.1f} MiB, {one['descriptors']:.0f} descriptors, {one['cpu']:.1f} s of CPU"
                )
        nothing_is_left(node, agent)
        replies = agent.status()["counts"]["replies"]
        _log.info("%.3f ms of CPU for each of %d replies", 1000 * census.add(agent.pid)["cpu"] / replies, replies)
        _log.info("%s: agent %s; %d overlaps", node.name, census.ranges(), len(watch.world.overlaps))
        sizes = [one["resident"] for one in census.looks]
        assert max(sizes) < LARGEST
        assert max(sizes[LOOKS // 3 :]) - sizes[LOOKS // 3] < TOLERATED
        descriptors = [one["descriptors"] for one in census.looks]
        assert max(descriptors) - min(descriptors) <= 3
    shares = ", ".join(f"p{100 * share:g} {waits[int(share * (len(waits) - 1))]:.2f}" for share in (0.5, 0.9, 0.99, 1))
    _log.info("the runtime waited for %d replies, in ms: %s", len(waits), shares)
