"""Nodes whose pods are resized: configurations with the extensions, pods, and the requests that change them."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st
from tests.laws.stories import configurations

from mooring.engine.core.config import (
    EXCLUSIVE_RESIZE,
    FIXABLE_DEFECTS,
    SCALE_DOWN_DELAY,
    MooringConfig,
    ReservedMemory,
)
from mooring.engine.core.config import KubeletConfig as Config
from mooring.engine.core.machineinfo import Cache, Core, MachineInfo, NUMANode
from mooring.engine.core.pod import Container, ContainerKind, Pod, PodResources, QoS
from mooring.engine.core.quantity import Quantity

UNIT = 2**26
"""Memory is asked for in steps of this size; a node has 16 of them."""
EXTENDED = MooringConfig(frozenset({EXCLUSIVE_RESIZE, SCALE_DOWN_DELAY}), FIXABLE_DEFECTS)
GATES = {
    "CPUManagerPolicyAlphaOptions": True,
    "InPlacePodVerticalScalingExclusiveCPUs": True,
    "InPlacePodVerticalScalingExclusiveCPUsScaleDownDelay": True,
    "InPlacePodVerticalScalingExclusiveMemory": True,
}
DELAYS = ("0s", "500ms", "1s", "5s")
CPUS = ("2", "2", "3", "4", "4", "4", "5", "6", "8")
KINDS = ("cpu",) * 12 + ("both",) * 2 + ("memory", "less memory", "odd")


@st.composite
def roomy_machines(draw: st.DrawFn) -> MachineInfo:
    """Draw one to four nodes of two to six cores; an uncore cache has two of them, a socket one node or two."""
    nodes, cores, threads = draw(st.integers(1, 4)), draw(st.integers(2, 6)), draw(st.integers(1, 2))
    per_socket, total = draw(st.integers(1, 2)), nodes * cores
    made = [
        Core(
            core,
            tuple(core + thread * total for thread in range(threads)),
            core // cores // per_socket,
            uncore_caches=(Cache(100 + core // 2, 2**20, "Unified", 3),),
        )
        for core in range(total)
    ]
    return MachineInfo(
        num_cores=total * threads,
        num_sockets=len({core.socket_id for core in made}),
        memory_capacity=2**34,
        topology=tuple(
            NUMANode(
                node,
                2**30,
                cores=tuple(made[node * cores : (node + 1) * cores]),
                distances=tuple(10 if node == other else 11 + abs(node - other) for other in range(nodes)),
            )
            for node in range(nodes)
        ),
    )


@st.composite
def resizing_configurations(draw: st.DrawFn, info: MachineInfo) -> Config:
    """Draw a configuration with every gate of the extensions; the node's own delay may be none."""
    config = draw(configurations(info))
    options = {**config.cpu_manager_policy_options, "scale-delay-time": draw(st.sampled_from([*DELAYS, "5s", "5s"]))}
    config = replace(config, cpu_manager_policy_options=options, feature_gates=GATES)
    if draw(st.booleans()):
        return config
    return replace(
        config,
        memory_manager_policy="Static",
        reserved_memory=(ReservedMemory(0, {"memory": str(UNIT)}),),
        eviction_hard={"memory.available": str(UNIT)},
    )


def amounts(cpu: str, units: int) -> dict[str, Quantity]:
    return {"cpu": Quantity.parse(cpu), "memory": Quantity.parse(str(units * UNIT))}


def sized(container: Container, cpu: str, units: int) -> Container:
    return replace(container, requests=amounts(cpu, units), limits=amounts(cpu, units))


@st.composite
def resizable_pods(draw: st.DrawFn, uid: str) -> Pod:
    """Draw a Guaranteed pod, now and then a Burstable one or one with resources of its own."""
    extra = [None, None, None, None, ContainerKind.INIT, ContainerKind.SIDECAR]
    kinds = [kind for kind in (draw(st.sampled_from(extra)), draw(st.sampled_from(extra))) if kind is not None]
    kinds += [ContainerKind.APP] * draw(st.integers(1, 2))
    made = tuple(
        sized(
            Container(f"{kind.value}{number}", kind),
            draw(st.sampled_from(["1", "2", "2", "2", "2", "2", "2", "2", "3", "500m"])),
            draw(st.sampled_from([1, 1, 1, 2])),
        )
        for number, kind in enumerate(kinds)
    )
    kind = draw(st.integers(0, 11))
    whole = amounts("12", 20)
    return Pod(
        uid,
        uid,
        containers=made,
        qos=QoS.BURSTABLE if kind == 0 else QoS.GUARANTEED,
        resources=PodResources(whole, whole) if kind == 1 else None,
        scale_down_grace=draw(st.sampled_from([None, None, None, 0, 1, 3])),
        priority=draw(st.integers(0, 2)),
    )


@st.composite
def requests_for(draw: st.DrawFn, pod: Pod) -> Pod:
    """Draw another size for some containers of a pod; now and then CPUs move from one to another."""
    if draw(st.integers(0, 3)) == 0 and len(pod.containers) > 1:
        giver, taker = draw(st.permutations(pod.containers))[:2]
        count = draw(st.integers(1, 2))
        moved = {giver.name: -count, taker.name: count}
        return replace(pod, containers=tuple(_with_more(one, moved.get(one.name, 0)) for one in pod.containers))
    made = []
    one = draw(st.sampled_from(pod.containers)).name
    for container in pod.containers:
        kind = draw(st.sampled_from(KINDS)) if container.name == one or draw(st.integers(0, 4)) == 0 else "none"
        cpu, memory = str(container.requests["cpu"]), container.requests["memory"].units // UNIT
        if kind == "odd":
            cpu = draw(st.sampled_from(["500m", "1500m", "16"]))
        elif kind in {"cpu", "both"}:
            cpu = draw(st.sampled_from(CPUS if container.requests["cpu"].milli % 1000 == 0 else ("500m", "700m")))
        if kind in {"memory", "both"}:
            memory += draw(st.integers(0, 3))
        elif kind == "less memory":
            memory = max(memory - 1, 1)
        made.append(sized(container, cpu, memory))
    return replace(pod, containers=tuple(made))


def _with_more(container: Container, cpus: int) -> Container:
    milli = max(container.requests["cpu"].milli + 1000 * cpus, 500)
    return sized(container, f"{milli}m", container.requests["memory"].units // UNIT)
