"""Nodes and pods whose containers are resized."""

from __future__ import annotations

from dataclasses import replace

from tests.node.nodes import GIB, machine

from mooring.engine.core.config import EXCLUSIVE_RESIZE, SCALE_DOWN_DELAY, KubeletConfig, MooringConfig, ReservedMemory
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.machineinfo import MachineInfo
from mooring.engine.core.pod import Container, ContainerKind, Pod, QoS
from mooring.engine.core.quantity import Quantity
from mooring.engine.node import Node
from mooring.engine.node.resizing import resize
from mooring.engine.node.resources import Resize, retry_order

CPUS_GATE = "InPlacePodVerticalScalingExclusiveCPUs"
MEMORY_GATE = "InPlacePodVerticalScalingExclusiveMemory"
DELAY_GATE = "InPlacePodVerticalScalingExclusiveCPUsScaleDownDelay"
EXTENDED = frozenset({EXCLUSIVE_RESIZE, SCALE_DOWN_DELAY})
SIXTEEN = machine(1, 16, threads=1)
"""16 CPUs without sibling threads."""
TEN_CORES = machine(1, 10)
"""Cores (0, 10) to (9, 19)."""


def amounts(cpu: str, gib: int) -> dict[str, Quantity]:
    return {"cpu": Quantity.parse(cpu), "memory": Quantity.parse(str(gib * GIB))}


def container(name: str, cpu: str, gib: int = 1, kind: ContainerKind = ContainerKind.APP) -> Container:
    return Container(name, kind, amounts(cpu, gib), amounts(cpu, gib))


def pod(*cpus: str | int, uid: str = "p", gib: int = 1, grace: int | None = None, qos: QoS = QoS.GUARANTEED) -> Pod:
    """Return a pod with one app for each number of CPUs: ``a``, ``b`` and so on."""
    made = tuple(container(name, str(cpu), gib) for name, cpu in zip("abcdef", cpus, strict=False))
    return Pod(uid, uid, containers=made, qos=qos, scale_down_grace=grace)


def config(*, memory: bool = False, policy: str = "none", scope: str = "container", **options: str) -> KubeletConfig:
    """Return a configuration with the static policies and all gates; an option's dashes are underscores here."""
    plain = KubeletConfig(
        cpu_manager_policy="static",
        cpu_manager_policy_options={name.replace("_", "-"): text for name, text in options.items()},
        topology_manager_policy=policy,
        topology_manager_scope=scope,
        reserved_system_cpus="0",
        feature_gates={"CPUManagerPolicyAlphaOptions": True, CPUS_GATE: True, MEMORY_GATE: True, DELAY_GATE: True},
    )
    if not memory:
        return plain
    return replace(
        plain,
        memory_manager_policy="Static",
        reserved_memory=(ReservedMemory(0, {"memory": str(GIB)}),),
        eviction_hard={"memory.available": str(GIB)},
    )


def started(info: MachineInfo, kubelet: KubeletConfig, extensions: frozenset[str] = EXTENDED) -> Node:
    """Return a fresh node; without extensions the gate that only they bring is not set."""
    gates = {name: on for name, on in kubelet.feature_gates.items() if extensions or name != DELAY_GATE}
    return Node.fresh(info, replace(kubelet, feature_gates=gates), MooringConfig(extensions))


def with_pods(node: Node, *pods: Pod) -> Node:
    for one in pods:
        node, decision = node.admit(one)
        assert decision.admitted, decision
    return node


def resized(node: Node, asked: Pod) -> tuple[Node, Resize]:
    """Resize, and expect that it is accepted."""
    node, answer = resize(node, asked)
    assert answer.accepted, answer
    return node, answer


def retry(node: Node) -> tuple[Node, tuple[Resize, ...]]:
    """Try the deferred resizes again, in the kubelet's order."""
    answers = []
    for one in retry_order(node.waiting.values(), node.active):
        node, answer = resize(node, one.pod)
        answers.append(answer)
    return node, tuple(answers)


def cpus(node: Node, uid: str = "p", name: str = "a") -> str:
    return str(CPUSet(node.cpu.assignments[uid][name]))


def pending(node: Node, uid: str = "p", name: str = "a") -> str:
    """Return what a container is going to have; ``-`` when nothing is pending."""
    pre = node.cpu.pre_assignments.get(uid, {}).get(name)
    return "-" if pre is None else str(CPUSet(pre.cpus))


def refused_with(node: Node, asked: Pod) -> tuple[str, str, str]:
    """Resize, expect a refusal that changes nothing, and return reason, the check's own reason, message."""
    after, answer = resize(node, asked)
    assert not answer.accepted
    assert answer.rejection is not None
    assert after == replace(node, waiting=after.waiting)
    assert answer.message == answer.rejection.message
    return answer.reason, answer.rejection.reason, answer.message
