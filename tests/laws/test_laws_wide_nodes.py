"""On nine and ten NUMA nodes the whole node decides the same whether hints are described or listed."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

import mooring.engine.cpumanager.hints as cpu_hints
import mooring.engine.devicemanager.hints as device_hints
import mooring.engine.memorymanager.hints as memory_hints
from mooring.engine.core.config import FIXABLE_DEFECTS, KubeletConfig, MooringConfig, ReservedMemory
from mooring.engine.core.decision import StartRefusal
from mooring.engine.core.machineinfo import Core, HugePages, MachineInfo, NUMANode
from mooring.engine.core.pod import Container, ContainerKind, Pod, QoS
from mooring.engine.core.quantity import Quantity
from mooring.engine.devicemanager.state import Device
from mooring.engine.node import Node
from mooring.engine.node.settings import Settings, build_settings

MIB = 2**20
APP, INIT, SIDECAR = ContainerKind.APP, ContainerKind.INIT, ContainerKind.SIDECAR
GPU, NIC = "vendor.example/gpu", "vendor.example/nic"
ROOMS = (cpu_hints, memory_hints, device_hints)
POLICIES = ("best-effort", "best-effort", "restricted", "single-numa-node")
EVERY_MACHINE = 16


def machine(random: Random) -> MachineInfo:
    """Return nine or ten NUMA nodes, some without CPUs, unevenly equipped and far apart."""
    count = random.choice([9, 10])
    nodes, cpu = [], 0
    for number in range(count):
        cores = [] if number and random.random() < 0.2 else [cpu, cpu + 1, cpu + 2]
        cpu += len(cores)
        nodes.append(
            NUMANode(
                number,
                MIB * random.choice([256, 256, 320]),
                (HugePages(2048, random.choice([0, 16, 32])),),
                tuple(Core(core, (core,), number // 5) for core in cores),
                tuple(10 if number == other else random.choice([12, 20, 21]) for other in range(count)),
            )
        )
    sockets = {core.socket_id for node in nodes for core in node.cores}
    return MachineInfo(cpu, len(sockets), sum(node.memory for node in nodes), tuple(nodes))


def devices(random: Random, count: int) -> dict[str, tuple[Device, ...]]:
    """Return devices on most nodes, some of them on two."""
    return {
        resource: tuple(
            Device(f"{resource[-3:]}-{number}", tuple(sorted({number % count, random.choice([number % count, 0])})))
            for number in range(random.randint(4, count + 2))
        )
        for resource in (GPU, NIC)
    }


def config(random: Random) -> KubeletConfig:
    options = {"max-allowable-numa-nodes": "16"}
    if random.random() < 0.4:
        options["prefer-closest-numa-nodes"] = "true"
    policy = random.choice(POLICIES)
    aligned = policy != "single-numa-node" and random.random() < 0.3
    return KubeletConfig(
        cpu_manager_policy="static",
        cpu_manager_policy_options={"align-by-socket": "true"} if aligned else {},
        memory_manager_policy="Static",
        reserved_memory=(ReservedMemory(0, {"memory": "64Mi"}),),
        eviction_hard={"memory.available": "64Mi"},
        topology_manager_policy=policy,
        topology_manager_scope=random.choice(["container", "pod"]),
        topology_manager_policy_options=options,
        reserved_system_cpus="0",
        feature_gates={"CPUManagerPolicyAlphaOptions": True},
    )


def pod(random: Random, uid: str) -> Pod:
    """Return a pod that asks for CPUs, memory, now and then for huge pages and devices, of one node or of several."""
    made = []
    for number, kind in enumerate(random.choice([[APP], [INIT, APP], [SIDECAR, APP]])):
        asked = {"cpu": random.choice([1, 2, 3, 5, 9]), "memory": 32 * MIB * random.choice([1, 2, 5, 9, 20])}
        if random.random() < 0.4:
            asked["hugepages-2Mi"] = 2 * MIB * random.choice([1, 16, 40])
        if random.random() < 0.4:
            asked[random.choice([GPU, NIC])] = random.choice([1, 2, 3])
        amounts = {name: Quantity.parse(str(amount)) for name, amount in asked.items()}
        made.append(Container(f"c{number}", kind, amounts, amounts))
    return Pod(uid, uid, containers=tuple(made), qos=QoS.GUARANTEED)


def story(seed: int) -> list[object]:
    """Admit pods, remove one now and then, restart in the end; return everything that was decided and given."""
    random = Random(seed)  # noqa: S311 - for examples
    info = machine(random)
    fixed = FIXABLE_DEFECTS if random.random() < 0.5 else frozenset[str]()
    settings = build_settings(config(random), MooringConfig(fixed_defects=fixed), info)
    assert isinstance(settings, Settings), settings
    node = Node.start(settings)
    assert isinstance(node, Node), node
    node = node.with_devices(devices(random, len(info.topology)))
    told: list[object] = []
    for number in range(8):
        node, decision = node.admit(pod(random, f"pod-{number}"))
        told.append((decision.admitted, decision.rejection, decision.affinity, decision.containers, decision.devices))
        if random.random() < 0.2:
            node, _ = node.remove(f"pod-{random.randint(0, number)}")
        told.append((node.cpu, node.memory, node.providers.devices.held))
    again = node.restart()
    # A group that a removed pod left behind keeps v1.37.1 from starting.
    told.append(again if isinstance(again, StartRefusal) else [(one.uid, one.affinity) for one in again[1].decisions])
    return told


@pytest.mark.parametrize("start", [0, *(pytest.param(start, marks=pytest.mark.long) for start in (20, 40, 60))])
def test_described_and_listed_hints_lead_to_the_same_decisions(start: int, monkeypatch: pytest.MonkeyPatch) -> None:
    admitted: Counter[bool] = Counter()
    for seed in range(start, start + 20):
        described = story(seed)
        with monkeypatch.context() as patch:
            for room in ROOMS:
                patch.setattr(room, "MOST_LISTED", EVERY_MACHINE)
            listed = story(seed)
        assert (seed, described) == (seed, listed)
        admitted.update(told[0] for told in described[:-1:2] if isinstance(told, tuple))
    assert min(admitted[True], admitted[False]) > 10
