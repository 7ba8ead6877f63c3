"""A node of 8 CPUs whose containers are resized: the clock stands still until it is moved."""

from __future__ import annotations

from dataclasses import replace

from tests.agent.small_node import CONFIG, GIB, INFO, container, sandbox

from mooring.agent.nri.types import LinuxResources, PodSandbox, RuntimeContainer
from mooring.agent.quota import quota_of, shares_of
from mooring.agent.reactor.recovery import Stored, resume
from mooring.agent.state import AgentState, Options
from mooring.engine.core.config import ASSIGNED_CPUSET, EXCLUSIVE_RESIZE, SCALE_DOWN_DELAY, KubeletConfig, MooringConfig
from mooring.engine.core.moment import SECOND, Moment

CPU_GATE = "InPlacePodVerticalScalingExclusiveCPUs"
GATES = {
    "CPUManagerPolicyAlphaOptions": True,
    CPU_GATE: True,
    "InPlacePodVerticalScalingExclusiveMemory": True,
    "InPlacePodVerticalScalingExclusiveCPUsScaleDownDelay": True,
}
RESIZING = replace(CONFIG, feature_gates=GATES)
"""CPUs go back at once unless the pod says otherwise."""
DELAYING = replace(RESIZING, cpu_manager_policy_options={"scale-delay-time": "5s"})
EXTENDED = MooringConfig(frozenset({EXCLUSIVE_RESIZE, SCALE_DOWN_DELAY, ASSIGNED_CPUSET}), frozenset({"pod-restart"}))
START = Moment(100 * SECOND, "boot-1")
LATE = START.plus(5 * SECOND)


def resizable(
    config: KubeletConfig = DELAYING,
    stored: Stored | None = None,
    options: Options | None = None,
    mooring: MooringConfig = EXTENDED,
) -> AgentState:
    return resume(INFO, config, mooring, stored, options).state


def sizes(cpus: float, memory: int = GIB // 4) -> LinuxResources:
    """Return a container's numbers as the kubelet sends them."""
    milli = int(cpus * 1000)
    return LinuxResources(shares=shares_of(milli), quota=quota_of(milli), period=100_000, memory_limit=memory)


def annotated(uid: str) -> PodSandbox:
    """Return the sandbox of a pod that asks to be told its CPUs."""
    return replace(sandbox(uid), annotations={"mooring/assigned": "true"})


def sized(uid: str, cpus: float, name: str = "main") -> RuntimeContainer:
    return container(uid, name, resources=sizes(cpus))
