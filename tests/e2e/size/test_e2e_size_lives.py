"""Thousands of lives of containers beside one agent: it does not grow, and nothing drifts: ``make e2e-size``.

``MOORING_E2E_LIVES`` is the number of lives (full: 10,000).
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from tests.e2e.containerd.agent_process import AgentProcess
from tests.e2e.containerd.churn import Churn
from tests.e2e.containerd.watch import Watch, large_machine, nothing_is_left
from tests.e2e.containerd.world import World
from tests.e2e.containerd.wrapper import Reader
from tests.e2e.size.census import Census
from tests.e2e.size.conftest import Starting

LIVES = int(os.environ.get("MOORING_E2E_LIVES", "200"))
CLIENTS = 4
CONTAINERS = 40
LARGEST = 80
"""MiB that an agent may have."""
TOLERATED = 6
"""MiB by which it may grow between a third of its lives and the end."""
LOOKS = 12
_log = logging.getLogger(__name__)


def milliseconds_of_replies(agent: AgentProcess) -> list[float]:
    return sorted(line["milliseconds"] for line in agent.log if line["event"] == "answered")


def test_memory_is_flat_and_nothing_drifts_over_many_lives(starting: Starting, folder_in_memory: Path) -> None:
    folder, census = folder_in_memory, Census()
    with large_machine(starting(folder), folder) as (node, agent):
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
        replies = milliseconds_of_replies(agent)
        middle, late = replies[len(replies) // 2], replies[len(replies) * 99 // 100]
        _log.info("%d replies: median %.2f ms, p99 %.2f ms, max %.2f ms", len(replies), middle, late, replies[-1])
        _log.info("%s: agent %s; %d overlaps", node.name, census.ranges(), len(watch.world.overlaps))
        sizes = [one["resident"] for one in census.looks]
        assert max(sizes) < LARGEST
        assert max(sizes[LOOKS // 3 :]) - sizes[LOOKS // 3] < TOLERATED
        descriptors = [one["descriptors"] for one in census.looks]
        assert max(descriptors) - min(descriptors) <= 3
