"""Thousands of lives of containers on a real containerd: the agent does not grow, and nothing drifts.

``MOORING_E2E_LIVES`` is the number of lives (full: 5000); only at the full size, for which a quiet machine is expected,
the time of the replies is held to its promise.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

from tests.e2e.containerd.agent_process import AgentProcess
from tests.e2e.containerd.churn import Churn
from tests.e2e.containerd.watch import Watch, large_machine, nothing_is_left
from tests.e2e.containerd.world import World
from tests.e2e.containerd.wrapper import Reader, write_player

LIVES = int(os.environ.get("MOORING_E2E_LIVES", "300"))
FULL = 5000
CLIENTS = 4
CONTAINERS = 40
LARGEST = 120 * 2**20
TOLERATED = 6 * 2**20
"""Bytes by which an agent may grow between a third of its lives and the end."""
SLOWEST = 20.0
"""Milliseconds that 99 of 100 replies take at most."""
LOOKS = 12
_log = logging.getLogger(__name__)


def resident(agent: AgentProcess) -> int:
    """Return the bytes of memory that a process has."""
    return int(Path(f"/proc/{agent.pid}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def milliseconds_of_replies(agent: AgentProcess) -> list[float]:
    return sorted(line["milliseconds"] for line in agent.log if line["event"] == "answered")


def test_memory_is_flat_and_nothing_drifts_over_many_lives_on_containerd(parts: Any, folder_in_memory: Path) -> None:
    folder = folder_in_memory
    with large_machine(parts, folder, write_player(folder, parts.busybox)) as (node, agent):
        churn = Churn(node, (0, 1, 2, 3, 8), CONTAINERS, CONTAINERS // 3)
        watch = Watch(node, agent, churn, World(Reader(folder), churn.exclusive))
        sizes: list[int] = []
        with churn.going_on(CLIENTS):
            for number in range(LOOKS):
                goal = LIVES * (number + 1) // LOOKS

                def is_reached(goal: int = goal) -> bool:
                    watch.look()
                    return watch.world.lives >= goal

                churn.until(is_reached, f"{goal} lives", seconds=120 + LIVES)
                watch.compare()
                sizes.append(resident(agent))
                watch.tell(f"{sizes[-1] / 2**20:.1f} MiB")
        nothing_is_left(node, agent)
        replies = milliseconds_of_replies(agent)
        middle, late = replies[len(replies) // 2], replies[len(replies) * 99 // 100]
        _log.info("%d replies: median %.2f ms, p99 %.2f ms, max %.2f ms", len(replies), middle, late, replies[-1])
        assert max(sizes) < LARGEST
        assert max(sizes[LOOKS // 3 :]) - sizes[LOOKS // 3] < TOLERATED
        if LIVES >= FULL:
            assert late < SLOWEST
