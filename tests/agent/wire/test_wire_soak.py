"""Many lives of containers through real frames, with the agent as a process of its own: it does not grow or drift.

The tests take a hundred; ``MOORING_SOAK=100000`` takes as many (12 minutes or more), and ``-s`` prints the figures.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.agent.process import PATIENCE, AgentProcess
from tests.agent.simulated_runtime import Stage
from tests.agent.whole_agent import until
from tests.agent.wire.wired_runtime import NEW, Kubelet, WiredRuntime, of_process, resident, running

from mooring.engine.core.cpuset import CPUSet

LIVES = int(os.environ.get("MOORING_SOAK", "100"))
MOST_MEMORY = 120 * 2**20
"""Bytes that the agent may have resident at any moment."""
GROWTH = 6 * 2**20
"""Bytes by which its memory may have grown between the end of the first tenth and the end."""
PODS = 8
"""Pods at once."""
SAMPLES = min(200, LIVES // 5)
"""Looks at the agent."""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder on the disk, or below the one that the environment names: on a tmpfs the disk is not timed."""
    place = os.environ.get("MOORING_SOAK_FOLDER")
    if not place:
        yield tmp_path
        return
    made = Path(tempfile.mkdtemp(prefix="soak-", dir=place))
    yield made
    shutil.rmtree(made)


@pytest.mark.long
def test_memory_is_flat_and_nothing_drifts_over_many_lives_on_the_wire(folder: Path) -> None:
    draw = random.Random(1)  # noqa: S311 - the same lives every time
    # Nobody is given up for what the machine is slow at.
    wired = WiredRuntime(folder / "nri.sock", replace(NEW, timeout=PATIENCE, registration_timeout=PATIENCE))
    kubelet = Kubelet(wired)
    memory: list[int] = []
    began = time.monotonic()
    try:
        with running(folder) as agent:
            handles, pod = (of_process(agent, "task"), of_process(agent, "fd")), 0
            while kubelet.containers < LIVES:
                if len(wired.runtime.sandboxes) >= PODS:
                    kubelet.end(next(iter(wired.runtime.sandboxes)))
                pod += 1
                kubelet.run(f"pod{pod}", *draw.choice(((0,), (1,), (2,), (3,), (1, 1), (0, 0), (12,))))
                if kubelet.containers >= len(memory) * LIVES / SAMPLES:
                    memory.append(resident(agent))
                    assert wrong(kubelet, agent) == []
            kubelet.end_all()
            memory.append(resident(agent))
            status = agent.status
            assert (status["pods"], status["held"], status["cpus"]["shared"]) == ([], [], "0-15")
            # Whoever asked last for the status may still be served.
            until(
                lambda: (of_process(agent, "task"), of_process(agent, "fd")) <= handles,
                "threads and sockets are as at first",
            )
    finally:
        wired.close()
    took = time.monotonic() - began
    sys.stdout.write(_figures(kubelet, memory, took, status["counts"]))
    assert max(memory) < MOST_MEMORY
    assert memory[-1] - memory[len(memory) // 10] < GROWTH
    assert wired.heard == []
    assert wired.synchronized == 1


def wrong(kubelet: Kubelet, agent: AgentProcess) -> list[str]:
    """Return what contradicts: the agent's word and the runtime's record, sizes, and containers on others' CPUs."""
    live = {one.id: one for one in kubelet.wired.runtime.processes.values() if one.stage is not Stage.EXITED}
    status = agent.status
    said = {one["id"]: one["told"]["cpus"] for pod in status["pods"] for one in pod["containers"] if "id" in one}
    had = {one.id: one.record.cpus for one in live.values()}
    found = [
        f"{one}: {said.get(one)} {had.get(one)}" for one in said.keys() | had.keys() if said.get(one) != had.get(one)
    ]
    cpus = {one.id: CPUSet.parse(one.cgroup.cpus) for one in live.values() if one.runs}
    for one, count in kubelet.exclusive.items():
        if len(cpus[one]) != count:
            found.append(f"{one} has {cpus[one]} and asked for {count}")
        found += [f"{one} and {other} overlap" for other in cpus if other != one and cpus[one] & cpus[other]]
    return found


def _figures(kubelet: Kubelet, memory: list[int], took: float, counts: dict[str, object]) -> str:
    waits = sorted(kubelet.wired.waits)
    at = {share: 1000 * waits[int(share * (len(waits) - 1))] for share in (0.5, 0.9, 0.99, 0.999, 1.0)}
    words = ", ".join(f"{'max' if share == 1 else f'p{100 * share:g}'} {found:.2f} ms" for share, found in at.items())
    tenths = [memory[part * (len(memory) - 1) // 10] >> 10 for part in range(11)]
    return (
        f"\n{kubelet.containers} lives, {kubelet.refused} refused, {len(waits)} requests, "
        f"{kubelet.containers / took:.0f} lives/s\n"
        f"resident: {max(memory) >> 10} KiB at most; after each tenth {tenths} KiB\n"
        f"replies as the runtime waits for them: {words}\nas the agent counts them: {counts}\n"
    )
