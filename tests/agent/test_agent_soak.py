"""Many lives: nothing grows. `make soak` runs 100,000 of them, the tests a few hundred."""

from __future__ import annotations

import functools
import gc
import os
import random
import tracemalloc

import pytest
from tests.agent.laws_agent import differences, overlaps
from tests.agent.simulated_agent import Disk, SimulatedAgent, World
from tests.agent.simulated_runtime import Runtime
from tests.agent.small_node import CONFIG, INFO, guaranteed, shared

from mooring.agent.nri.types import LinuxResources
from mooring.engine.core.pod import ContainerKind

LIVES = int(os.environ.get("MOORING_SOAK", "300"))
TOLERATED = 512 * 1024
"""Bytes by which memory may differ between two moments with the same number of pods."""


@pytest.mark.long
def test_memory_is_flat_and_nothing_drifts_over_many_lives() -> None:
    draw = random.Random(1)  # noqa: S311 - the same lives every time
    runtime, world, disk = Runtime(), World(INFO, CONFIG), Disk()
    agent = SimulatedAgent(world, runtime, disk)
    runtime.connect(agent)
    first = 0
    tracemalloc.start()
    try:
        for life in range(LIVES):
            _live(runtime, world, draw, f"pod{life}")
            if life % 50 == 49:
                agent.next_reply()
                assert [*overlaps(runtime, agent.state, 0xFF)] == []
                assert [*differences(runtime, agent)] == []
            if life == LIVES // 3:
                first = _used()
            if life % 1000 == 999:
                agent = SimulatedAgent(world, runtime, disk)
                runtime.connect(agent)
        while runtime.sandboxes:
            _end_oldest(runtime, world)
        last = _used()
    finally:
        tracemalloc.stop()
    state = agent.state
    assert not state.containers
    assert not state.sandboxes
    assert not state.held
    assert not state.kubelet.node.active
    assert not state.kubelet.node.stored_hints
    assert str(state.kubelet.node.shared_pool) == "0-7"
    assert last - first < TOLERATED


def _live(runtime: Runtime, world: World, draw: random.Random, uid: str) -> None:
    if len(runtime.sandboxes) >= 6:
        _end_oldest(runtime, world)
    kind = draw.randrange(4)
    pod = (
        shared(uid)
        if kind == 0
        else guaranteed(uid, "1", "1", kinds=(ContainerKind.INIT, ContainerKind.APP))
        if kind == 1
        else guaranteed(uid, str(draw.choice([1, 2, 3, 8])))
    )
    world.pods[uid] = pod
    sandbox = runtime.run_sandbox(uid, pod.name, {})
    for one in pod.containers:
        made = runtime.create(sandbox, one.name, LinuxResources(quota=100_000))
        if made is None:
            return
        runtime.store(made)
        runtime.make_task(made)
        runtime.started(made)
        if one.kind is ContainerKind.INIT:
            runtime.exit(made)


def _end_oldest(runtime: Runtime, world: World) -> None:
    sandbox = next(iter(runtime.sandboxes))
    mine = [made for made in runtime.processes.values() if made.sandbox == sandbox]
    for made in mine:
        if made.runs:
            runtime.exit(made.id)
    runtime.stop_sandbox(sandbox)
    for made in mine:
        runtime.remove(made.id)
    del world.pods[runtime.sandboxes[sandbox].uid]
    runtime.remove_sandbox(sandbox)
    runtime.refusals.clear()


def _used() -> int:
    # Bounded caches of the engine fill at first; they are no leak.
    cached = type(functools.lru_cache(_used))
    for thing in gc.get_objects():
        if isinstance(thing, cached):
            thing.cache_clear()
    gc.collect()
    return tracemalloc.get_traced_memory()[0]
