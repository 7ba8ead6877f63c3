"""Small machines, pods and policies for tests of the memory manager. Sizes are plain numbers of bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mooring.engine.core.bits import NUMAMask, mask_of
from mooring.engine.core.decision import AllocationError, Observer
from mooring.engine.core.pod import Container, ContainerKind, Pod, PodLevelGates, PodResources, QoS
from mooring.engine.core.quantity import Quantity
from mooring.engine.memorymanager.policy import MemoryPolicy
from mooring.engine.memorymanager.state import Block, MemoryState, MemoryTable, NUMANodeState, ReusableMemory
from mooring.engine.memorymanager.static import allocate
from mooring.engine.topologymanager.hints import Hint

APP, INIT, SIDECAR = ContainerKind.APP, ContainerKind.INIT, ContainerKind.SIDECAR
BOTH = PodLevelGates(resources=True, managers=True)
HUGE = "hugepages-2Mi"
LARGE = "hugepages-1Gi"
ANYWHERE = Hint(None, preferred=False)


def table(allocatable: int) -> MemoryTable:
    return MemoryTable(allocatable, 0, allocatable, 0, allocatable)


def empty_nodes(*memory: int, **pools: Sequence[int]) -> dict[int, NUMANodeState]:
    """Return nodes 0, 1, ... with these bytes of memory; pools by the last part of their name, such as ``M2``."""
    names = {"M2": HUGE, "G1": LARGE}
    return {
        node: NUMANodeState(
            0,
            {
                "memory": table(amount),
                **{names[pool]: table(sizes[node]) for pool, sizes in pools.items() if sizes[node] is not None},
            },
            (node,),
        )
        for node, amount in enumerate(memory)
    }


def static(nodes: Mapping[int, NUMANodeState], *fixed: str, gates: PodLevelGates | None = None) -> MemoryPolicy:
    return MemoryPolicy(nodes, gates or PodLevelGates(), frozenset(fixed))


def fresh(policy: MemoryPolicy) -> MemoryState:
    return MemoryState("Static", policy.default_nodes, {})


def amounts(memory: int | str | None, **others: int) -> dict[str, Quantity]:
    names = {"M2": HUGE, "G1": LARGE, "cpu": "cpu"}
    found = {} if memory is None else {"memory": Quantity.parse(str(memory))}
    return {**found, **{names[name]: Quantity.parse(str(amount)) for name, amount in others.items()}}


def container(
    name: str, memory: int | str | None, kind: ContainerKind = APP, *, cpu: int = 1, **others: int
) -> Container:
    asked = amounts(memory, cpu=cpu, **others)
    return Container(name, kind, asked, asked)


def pod(*containers: Container, uid: str = "pod", qos: QoS = QoS.GUARANTEED) -> Pod:
    return Pod(uid, uid, containers=containers, qos=qos)


def pod_level(*containers: Container, memory: int, cpu: int = 8, uid: str = "pod", **others: int) -> Pod:
    asked = amounts(memory, cpu=cpu, **others)
    return replace(pod(*containers, uid=uid), resources=PodResources(asked, asked))


def served(
    policy: MemoryPolicy,
    whole: Pod,
    *hints: Hint,
    state: MemoryState | None = None,
    reusable: ReusableMemory | None = None,
    observer: Observer | None = None,
) -> tuple[MemoryState, ReusableMemory]:
    """Serve containers of a pod one after another, the last hint for all that remain."""
    state, reusable = state or fresh(policy), reusable or ReusableMemory()
    for position, one in enumerate(whole.containers):
        answer = allocate(policy, state, reusable, whole, one, hints[min(position, len(hints) - 1)], observer)
        assert not isinstance(answer, AllocationError), answer
        state, reusable = answer
    return state, reusable


def served_one(
    policy: MemoryPolicy, state: MemoryState, whole: Pod, name: str, hint: Hint, reusable: ReusableMemory | None = None
) -> MemoryState:
    """Serve one container of a pod."""
    one = whole.container(name)
    assert one is not None
    answer = allocate(policy, state, reusable or ReusableMemory(), whole, one, hint)
    assert not isinstance(answer, AllocationError), answer
    return answer[0]


def on(*nodes: int, preferred: bool = True) -> Hint:
    return Hint(NUMAMask(mask_of(nodes)), preferred)


def block(numa: Sequence[int], size: int, resource: str = "memory") -> Block:
    return Block(tuple(numa), resource, size)


def reserved(state: MemoryState, resource: str = "memory") -> list[int]:
    return [node.memory[resource].reserved for node in state.nodes.values()]


def groups(state: MemoryState) -> list[tuple[int, ...]]:
    return [node.cells for node in state.nodes.values()]


def counts(state: MemoryState) -> list[int]:
    return [node.assignments for node in state.nodes.values()]
