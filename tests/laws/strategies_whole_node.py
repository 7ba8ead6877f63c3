"""Nodes with CPUs, memory, huge pages and devices, pods that ask for all of them, and what happens to both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from mooring.engine.core.config import KubeletConfig, ReservedMemory
from mooring.engine.core.machineinfo import Core, HugePages, MachineInfo, NUMANode
from mooring.engine.core.pod import Container, ContainerKind, Pod, PodResources, QoS, needed_at_once
from mooring.engine.core.quantity import Quantity
from mooring.engine.devicemanager.state import Device

MIB = 2**20
UNIT = 64 * MIB
"""Memory is asked for in steps of this size; pages of either size fit into it."""
HUGE, LARGE = "hugepages-2Mi", "hugepages-32Mi"
GPU, NIC = "vendor.example/gpu", "vendor.example/nic"
POLICIES = ("none", "best-effort", "restricted", "single-numa-node")
APP, INIT, SIDECAR = ContainerKind.APP, ContainerKind.INIT, ContainerKind.SIDECAR
ALPHA = {"CPUManagerPolicyAlphaOptions": True}


@dataclass(frozen=True, slots=True)
class Hardware:
    """A machine and its devices."""

    info: MachineInfo
    devices: Mapping[str, tuple[Device, ...]]


@st.composite
def hardware(draw: st.DrawFn, least: int = 1, most: int = 4) -> Hardware:
    """Draw up to four NUMA nodes, some without CPUs, each with memory and two sizes of huge pages."""
    nodes = draw(st.integers(least, most))
    threads = draw(st.integers(1, 2))
    cores = [draw(st.sampled_from([2, 3, 4])) for _ in range(nodes)]
    if nodes > 1 and draw(st.booleans()):
        cores[-1] = 0
    total, first = sum(cores), 0
    made = []
    for node, count in enumerate(cores):
        own = tuple(
            Core(core, tuple(core + thread * total for thread in range(threads)), node // 2)
            for core in range(first, first + count)
        )
        first += count
        made.append(
            NUMANode(
                node,
                UNIT * draw(st.integers(5, 9)),
                (HugePages(2048, draw(st.sampled_from([0, 32, 64]))), HugePages(32768, draw(st.integers(0, 3)))),
                own,
                tuple(10 if node == other else 12 + abs(node - other) for other in range(nodes)),
            )
        )
    info = MachineInfo(
        num_cores=total * threads,
        num_sockets=len({node // 2 for node, count in enumerate(cores) if count}),
        memory_capacity=sum(node.memory for node in made),
        topology=tuple(made),
    )
    places = st.none() | st.sets(st.integers(0, nodes - 1), min_size=1, max_size=2).map(lambda found: (*sorted(found),))
    devices = {
        resource: tuple(Device(f"{resource[-3:]}{number}", draw(places)) for number in range(draw(st.integers(1, 4))))
        for resource in (GPU, NIC)
    }
    return Hardware(info, devices)


@st.composite
def configurations(draw: st.DrawFn) -> KubeletConfig:
    """Draw a configuration with both static policies; the first CPU and one unit of memory are reserved."""
    options = draw(
        st.sampled_from(["", "", "full-pcpus-only", "distribute-cpus-across-numa", "strict-cpu-reservation"])
    )
    return KubeletConfig(
        cpu_manager_policy="static",
        cpu_manager_policy_options={options: "true"} if options else {},
        memory_manager_policy="Static",
        reserved_memory=(ReservedMemory(0, {"memory": str(UNIT)}),),
        eviction_hard={"memory.available": str(UNIT)},
        topology_manager_policy=draw(st.sampled_from(POLICIES)),
        topology_manager_scope=draw(st.sampled_from(["container", "pod", "pod"])),
        topology_manager_policy_options=draw(st.sampled_from([{}, {"prefer-closest-numa-nodes": "true"}])),
        reserved_system_cpus="0",
        feature_gates={**ALPHA, "PodLevelResourceManagers": draw(st.sampled_from([True, True, False]))},
    )


@st.composite
def other_configurations(draw: st.DrawFn, config: KubeletConfig) -> KubeletConfig:
    """Draw what an operator may change without touching the state files."""
    other = draw(configurations())
    return replace(other, cpu_manager_policy_options=config.cpu_manager_policy_options)


Amounts = dict[str, int]
"""Resource -> amount in bytes or pieces."""


def quantities(amounts: Mapping[str, int]) -> dict[str, Quantity]:
    return {name: Quantity.parse(str(amount)) for name, amount in amounts.items()}


@st.composite
def requests(draw: st.DrawFn) -> Amounts:
    asked = {"cpu": draw(st.sampled_from([1, 1, 2, 2, 3])), "memory": UNIT * draw(st.sampled_from([1, 1, 2, 3, 6]))}
    if draw(st.integers(0, 3)) == 0:
        asked[HUGE] = 2 * MIB * draw(st.integers(0, 40))
    if draw(st.integers(0, 3)) == 0:
        asked[LARGE] = 32 * MIB * draw(st.integers(1, 3))
    if draw(st.integers(0, 2)) == 0:
        asked[draw(st.sampled_from([GPU, NIC]))] = draw(st.integers(1, 2))
    return asked


@st.composite
def containers(draw: st.DrawFn) -> tuple[Container, ...]:
    kinds = draw(st.lists(st.sampled_from([INIT, SIDECAR]), max_size=2))
    kinds += [APP] * draw(st.integers(1, 2))
    found = []
    for number, kind in enumerate(kinds):
        amounts = quantities(draw(requests()))
        found.append(Container(f"{kind.value}{number}", kind, amounts, amounts))
    return tuple(found)


@st.composite
def pods(draw: st.DrawFn, uid: str) -> Pod:
    """Draw a Guaranteed pod, with or without resources of its own; now and then a Burstable one."""
    made = draw(containers())
    if draw(st.booleans()):
        return Pod(uid, uid, containers=made, qos=draw(st.sampled_from([QoS.GUARANTEED] * 5 + [QoS.BURSTABLE])))
    shares = [draw(st.booleans()) for _ in made]
    made = tuple(_sharing(one) if shared else one for one, shared in zip(made, shares, strict=True))
    need = peak_of(made)
    extra = draw(st.integers(0, 2)), draw(st.integers(0, 2))
    need["cpu"] = max(need.get("cpu", 0) + extra[0], 1)
    need["memory"] = max(need.get("memory", 0) + UNIT * extra[1], UNIT)
    own = quantities(need)
    return Pod(uid, uid, containers=made, qos=QoS.GUARANTEED, resources=PodResources(own, own))


def _sharing(container: Container) -> Container:
    """Return the container without requests of its own; devices can only be asked for by containers."""
    devices = {name: amount for name, amount in container.limits.items() if "/" in name}
    return replace(container, requests=devices, limits=devices)


def peak_of(made: tuple[Container, ...]) -> Amounts:
    """Return what the containers need at once: the API server refuses a pod that asks for less."""

    def asked(container: Container) -> Amounts:
        return {name: amount.units for name, amount in container.requests.items() if "/" not in name}

    return needed_at_once(Pod("", "", containers=made), asked, int)
