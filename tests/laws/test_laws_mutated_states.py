"""State files that somebody changed and signed again: each starts or is refused, and what starts can be worked with.

The checksums are right, so nothing but the managers' own checks stands between such a file and the node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from tests.laws.strategies_whole_node import Hardware, configurations, hardware, pods

from mooring.engine.checkpoint.cpu_file import cpu_state_text, load_cpu_state
from mooring.engine.checkpoint.memory_file import load_memory_state, memory_state_text
from mooring.engine.core.bits import CPUMask
from mooring.engine.core.config import FIXABLE_DEFECTS, KubeletConfig, MooringConfig
from mooring.engine.core.decision import StartRefusal
from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.core.pod import Pod
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.memorymanager.state import Block, MemoryState, MemoryTable, NUMANodeState
from mooring.engine.node import Node
from mooring.engine.node.settings import RestoredStates, Settings, build_settings

Value = TypeVar("Value")
UIDS = ("pod-0", "pod-1", "pod-2", "gone")
NAMES = ("app0", "app1", "init0", "sidecar0", "x")
TYPES = ("memory", "hugepages-2Mi", "hugepages-32Mi", "hugepages-1Gi")
SIZES = st.sampled_from([0, 1, 2**21, 2**25, 2**26, 2**27, 2**64 - 1])
NUMA = st.lists(st.integers(-1, 4) | st.sampled_from([63, 64, 2**31]), max_size=3).map(tuple)
BLOCKS = st.lists(st.builds(Block, NUMA, st.sampled_from(TYPES), SIZES), max_size=2).map(tuple)
MASKS = (st.integers(0, 2**26 - 1) | st.integers(0, 255)).map(CPUMask)


@st.composite
def changed_map(
    draw: st.DrawFn, found: Mapping[str, Value], keys: tuple[str, ...], values: st.SearchStrategy[Value]
) -> dict[str, Value]:
    """Drop an entry, move one to another name, or put a random one in."""
    changed = dict(found)
    key = draw(st.sampled_from([*changed, *keys]))
    value = changed.pop(key, None)
    action = draw(st.integers(0, 2))
    if action == 1 and value is not None:
        changed[draw(st.sampled_from(keys))] = value
    elif action == 2:
        changed[key] = draw(values)
    return changed


@st.composite
def changed_blocks(draw: st.DrawFn, blocks: tuple[Block, ...]) -> tuple[Block, ...]:
    """Change one field of one block, repeat or drop it."""
    if not blocks:
        return draw(BLOCKS)
    index = draw(st.integers(0, len(blocks) - 1))
    one = blocks[index]
    new = draw(
        st.one_of(
            NUMA.map(lambda numa: (replace(one, numa=numa),)),
            st.just((replace(one, numa=one.numa[::-1]),)),
            st.just((replace(one, numa=one.numa + one.numa[:1]),)),
            st.sampled_from(TYPES).map(lambda name: (replace(one, type=name),)),
            SIZES.map(lambda size: (replace(one, size=size),)),
            st.just((one, one)),
            st.just(()),
        )
    )
    return (*blocks[:index], *new, *blocks[index + 1 :])


@st.composite
def changed_node(draw: st.DrawFn, node: NUMANodeState) -> NUMANodeState:
    """Change the account of one NUMA node."""
    name = draw(st.sampled_from(sorted(node.memory)))
    field = draw(st.sampled_from(["total", "system_reserved", "allocatable", "reserved", "free"]))
    table = replace(node.memory[name], **{field: draw(SIZES)})
    return draw(
        st.one_of(
            st.integers(-1, 5).map(lambda count: replace(node, assignments=count)),
            NUMA.map(lambda cells: replace(node, cells=cells)),
            st.just(replace(node, memory={**node.memory, name: table})),
            st.just(replace(node, memory={other: node.memory[other] for other in node.memory if other != name})),
            st.just(replace(node, memory={**node.memory, "hugepages-1Gi": MemoryTable(0, 0, 0, 0, 0)})),
        )
    )


@st.composite
def changed_memory(draw: st.DrawFn, state: MemoryState) -> MemoryState:
    """Change one thing of a memory state."""
    part = draw(st.sampled_from(["nodes", "node", "assignments", "blocks", "blocks", "pods", "pods", "pod blocks"]))
    if part == "nodes" and state.nodes:
        keep = draw(st.sets(st.sampled_from(sorted(state.nodes))))
        return replace(state, nodes={number: state.nodes[number] for number in keep})
    if part == "node" and state.nodes:
        number = draw(st.sampled_from(sorted(state.nodes)))
        return replace(state, nodes={**state.nodes, number: draw(changed_node(state.nodes[number]))})
    if part == "pods":
        return replace(state, pods=draw(changed_map(state.pods, UIDS, BLOCKS)))
    if part == "pod blocks" and state.pods:
        uid = draw(st.sampled_from(sorted(state.pods)))
        return replace(state, pods={**state.pods, uid: draw(changed_blocks(state.pods[uid]))})
    uid = draw(st.sampled_from([*sorted(state.assignments), *UIDS]))
    held = dict(state.assignments.get(uid, {}))
    if part == "blocks" and held:
        name = draw(st.sampled_from(sorted(held)))
        held[name] = draw(changed_blocks(held[name]))
    else:
        held = draw(changed_map(held, NAMES, BLOCKS))
    return replace(state, assignments={**state.assignments, uid: held})


def recounted(state: MemoryState) -> MemoryState:
    """Return the state with accounts that follow from its blocks as the kubelet counts them, where its nodes allow.

    So that a state with strange blocks has a chance to start.
    """
    nodes = {
        number: replace(
            node,
            assignments=0,
            cells=(number,),
            memory={name: replace(table, reserved=0, free=table.allocatable) for name, table in node.memory.items()},
        )
        for number, node in state.nodes.items()
    }
    for uid in sorted(state.assignments):
        containers = state.assignments[uid]
        lists = [state.pods[uid]] if uid in state.pods else [containers[name] for name in sorted(containers)]
        for block in [block for held in lists for block in held]:
            size = block.size
            for number in block.numa:
                if number not in nodes or block.type not in nodes[number].memory:
                    return state
                node = nodes[number]
                table = node.memory[block.type]
                taken = min(table.free, size)
                size -= taken
                table = replace(table, free=table.free - taken, reserved=table.reserved + taken)
                nodes[number] = NUMANodeState(node.assignments + 1, {**node.memory, block.type: table}, block.numa)
    return replace(state, nodes=nodes)


@st.composite
def changed_cpus(draw: st.DrawFn, state: CPUState) -> CPUState:
    """Change one thing of a CPU state."""
    part = draw(st.sampled_from(["default", "assignments", "pods"]))
    if part == "default":
        return replace(state, default=state.default ^ draw(MASKS))
    if part == "pods":
        return replace(state, pods=draw(changed_map(state.pods, UIDS, MASKS)))
    uid = draw(st.sampled_from([*sorted(state.assignments), *UIDS]))
    held = draw(changed_map(state.assignments.get(uid, {}), NAMES, MASKS))
    return replace(state, assignments={**state.assignments, uid: held})


def signed_again(settings_: Settings, cpu: CPUState, memory: MemoryState) -> RestoredStates:
    """Write both states and read them back, as the kubelet would find them."""
    memory = replace(memory, refused=frozenset())
    gate = settings_.pod_level.managers
    texts = cpu_state_text(cpu, pod_level=gate, baselines=False), memory_state_text(memory, pod_level=gate)
    loaded = (
        load_cpu_state(texts[0], policy="static", pod_level=gate, baselines=False),
        load_memory_state(texts[1], policy="Static", pod_level=gate),
    )
    read_cpu = replace(cpu, baselines={}) if gate else replace(cpu, pods={}, baselines={})
    assert loaded == (read_cpu, memory if gate else replace(memory, pods={}))
    return RestoredStates(read_cpu, memory if gate else replace(memory, pods={}))


@settings(max_examples=70, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(hardware(), configurations(), st.booleans(), st.tuples(*map(pods, UIDS[:3])), st.data())
def test_a_mutated_state_is_refused_or_works(
    hard: Hardware, config: KubeletConfig, fixed: bool, asked: tuple[Pod, ...], data: st.DataObject
) -> None:
    defects = FIXABLE_DEFECTS if fixed else frozenset[str]()
    understood = build_settings(config, MooringConfig(fixed_defects=defects), hard.info)
    assert isinstance(understood, Settings)
    node = Node.start(understood)
    assert isinstance(node, Node)
    for pod in asked[: data.draw(st.integers(1, 3))]:
        node, _ = node.admit(pod)
    memory, cpu = node.memory, node.cpu
    for _ in range(data.draw(st.integers(1, 3))):
        memory = data.draw(changed_memory(memory))
    if data.draw(st.booleans()):
        memory = recounted(memory)
    if data.draw(st.integers(0, 3)) == 0:
        cpu = data.draw(changed_cpus(cpu))
    try:
        found = Node.start(understood, signed_again(understood, cpu, memory))
    except KubeletCrashError:
        event("the kubelet crashes when it starts")
        return
    if isinstance(found, StartRefusal):
        event(f"refused: {found.message[:40]}")
        return
    event("starts")
    try:
        running = data.draw(st.integers(0, 2))
        found, _ = found.readmit(asked[:running])
        for pod in asked[running:]:
            found, _ = found.admit(pod)
        signed_again(understood, found.cpu, found.memory)
        for pod in asked:
            found, _ = found.remove(pod.uid)
        found.settled()
    except KubeletCrashError as error:
        event(f"crashes later: {str(error)[:60]}")
