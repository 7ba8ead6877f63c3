"""Plugins of a few functions, and what they are asked about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.cpumanager.machines import mask
from tests.node.nodes import GIB, config, settings_of

from mooring.engine.core.config import ChosenPlugin, MooringConfig, PluginChoice, PluginPlacement, Watch
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.machineinfo import Core, MachineInfo, NUMANode
from mooring.engine.core.pod import Pod
from mooring.engine.cpumanager.options import TakeRules
from mooring.engine.cpumanager.policy import CPUsWanted
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.plugins.host import PluginHost

Point = Callable[..., object]

POD = Pod("uid", "pod", annotations={"team": "blue"}, priority=7)


def plugin(
    name: str,
    *,
    placement: PluginPlacement = PluginPlacement.CPU_MANAGER,
    weight: int = 1,
    is_shipped: bool = False,
    **points: Point,
) -> ChosenPlugin:
    """Return a plugin with a function for each of some points; each takes the point's arguments by name."""
    return ChosenPlugin(name, {}, points, placement, weight, is_shipped)


def answering(answer: object) -> Point:
    """Return a function that always gives this answer."""
    return lambda **_asked: answer


def raising(error: BaseException) -> Point:
    """Return a function that raises."""

    def fail(**_asked: object) -> object:
        raise error

    return fail


def choice(*plugins: ChosenPlugin, watch: Watch | None = None, budget: int = 50_000_000) -> PluginChoice:
    """Return plugins in the order in which they are asked."""
    return PluginChoice(plugins, budget, watch)


SIX_CORES = MachineInfo(
    num_cores=12,
    num_sockets=2,
    memory_capacity=GIB,
    topology=tuple(
        NUMANode(node, GIB, cores=tuple(Core(core, (core, core + 6), node) for core in range(node, 6, 2)))
        for node in (0, 1)
    ),
)
"""Six cores (0, 6) to (5, 11); even CPUs are NUMA node 0."""


def host_on(*plugins: ChosenPlugin, rules: TakeRules | None = None, watch: Watch | None = None) -> PluginHost:
    """Return a host on six cores, of which none is reserved."""
    host = settings_of(config(), SIX_CORES, MooringConfig(plugins=choice(*plugins, watch=watch))).plugins
    assert host is not None
    return replace(host, machine=replace(host.machine, reserved=CPUSet(), rules=rules or TakeRules()))


def wanted(need: int, pool: str, near: str = "", *, pod: Pod = POD, container: str = "app") -> CPUsWanted:
    """Return a wish for CPUs of a pool."""
    return CPUsWanted(need, mask(pool), mask(near), pod, container)


def free(pool: str) -> CPUState:
    """Return a state in which nobody has anything."""
    return CPUState("static", mask(pool), {})


def cpus(text: str) -> CPUSet:
    """Return a CPU set from a Linux list."""
    return CPUSet.parse(text)
