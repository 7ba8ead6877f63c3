"""One machine from several sources: a file and amounts beside it, or files that complete each other.

A source is a line of text, and several lines are one machine. Amounts follow a file's name, or are a line of their own:

| key | meaning |
|---|---|
| ``memory`` | memory of the nodes with CPUs, spread evenly, as in compact text |
| ``hugepages-2Mi`` | pages of that size, spread evenly over the nodes with CPUs |
| ``nvidia.com/gpu`` | devices of that resource of a device plugin, spread evenly over the nodes with CPUs |
| ``node1.memory``, ``node1.hugepages-1Gi`` | the same of one NUMA node; wins over what is spread |
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import HardwarePages, Machine, PublishedNode
from mooring.engine.core.machineinfo import HugePages, NUMANode
from mooring.engine.core.quantity import Quantity, QuantitySyntaxError
from mooring.inputs.decoding.quantities import HUGE_PAGES
from mooring.inputs.machines.formats.description import MAX_BYTES, MAX_DEVICES, OF_DISTANCES, OF_MEMORY, OF_PART
from mooring.lazy import replace

PAGE: Final = 4096
_OF_NODE: Final = re.compile(r"node([0-9]{1,5})\.(.+)", re.ASCII)
_DEVICES: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*/[\w.-]+", re.ASCII)
"""The name of a resource of a device plugin."""
_AMOUNT: Final = re.compile(rf"(?:node[0-9]+\.)?(?:memory|hugepages-[^=\s]*|{_DEVICES.pattern})=\S*", re.ASCII)
_LAST: Final = re.compile(r"\s+(\S+=\S*)\s*\Z")
OF_PAGES: Final = "huge pages"
OF_DEVICES: Final = "devices"
_PCI: Final = "PCI devices"
_NUMBERS: Final = "numbers of CPUs"
_PLACES: Final = frozenset({_NUMBERS, "cores", "sockets", "caches", "which CPUs are one core"})
"""What a format may leave open of the CPUs."""


def parts_of(text: str, is_source: Callable[[str], bool]) -> tuple[list[str], list[str]]:
    r"""Split a text into names of machines, or lines of compact text, and amounts, ``key=value``.

    Compact text with what belongs to one NUMA node is split too.

    Args:
        text: a source a line, each with amounts behind it, or amounts alone.
        is_source: tells whether something is the name of a machine.

    >>> parts_of("xeon-6338n-1s memory=64Gi", lambda text: text == "xeon-6338n-1s")
    (['xeon-6338n-1s'], ['memory=64Gi'])
    >>> parts_of("cores=8 memory=64Gi\nnode0.memory=2Gi", lambda _: False)
    (['cores=8 memory=64Gi'], ['node0.memory=2Gi'])
    """
    sources: list[str] = []
    shapes: list[str] = []
    for line in filter(None, map(str.strip, text.split("\n"))):
        source, behind = line, list[str]()
        while not is_source(source) and (last := _LAST.search(source)):
            source, behind = source[: last.start()], [last[1], *behind]
        if is_source(source) or "=" not in source:
            sources.append(source)
        else:
            behind = [source, *behind]
        shapes += behind
    beside = [word for word in shapes if _OF_NODE.match(word) or _DEVICES.fullmatch(word.partition("=")[0])]
    if not sources:
        return [" ".join(word for word in shapes if word not in beside)], beside
    return sources, shapes


def with_amounts(machine: Machine, amounts: Sequence[str]) -> Machine:
    """Return a machine with amounts that are given beside it.

    Raises:
        InputError: a key is unknown or there twice, a node is not there, or an amount does not fit.
    """
    memory, pools = _amounts_of(machine)
    published = machine.published or PublishedNode()
    devices = {resource: dict(counts) for resource, counts in published.devices.items()}
    filled = [node.node_id for node in machine.info.topology if node.cores]
    covered: dict[str, set[int]] = {OF_MEMORY: set(), OF_PAGES: set(), OF_DEVICES: set()}
    for node, key, value in _keys(amounts, memory):
        among = [int(node)] if node else filled
        shown = f"node{node}.{key}" if node else key
        is_memory = key == OF_MEMORY
        part = part_of(key)
        covered[part].update(among)
        amount = size_of(shown, value) if is_memory else count_of({key: value}, key, 0)
        share, rest = divmod(amount, len(among) * (PAGE if is_memory else 1))
        if rest:
            problem = f"{value} cannot be divided evenly by {len(among)} NUMA nodes"
            raise refusal(shown, problem, f"give each node its own: node{among[0]}.{key}=...")
        for one in among:
            if is_memory:
                memory[one] = share * PAGE
            elif part == OF_DEVICES:
                if share > MAX_DEVICES:
                    raise refusal(shown, f"NUMA node {one} would have {share} devices", f"give at most {MAX_DEVICES}")
                devices.setdefault(key, {})[one] = share
            else:
                pools[one][size_of(shown, key.removeprefix(HUGE_PAGES)) // 1024] = share
    for node_id, listed in pools.items():
        bound = sum(size * 1024 * count for size, count in listed.items())
        if bound > memory[node_id]:
            problem = f"{memory[node_id]} bytes of NUMA node {node_id} cannot hold {bound} bytes of huge pages"
            raise refusal(OF_MEMORY, problem, "give more memory or fewer pages")
    told = [part for part, nodes in covered.items() if nodes.issuperset(filled)]
    changed = _with_nodes(machine, memory, pools)
    if devices:
        changed = replace(changed, published=replace(published, devices=devices))
    return _told(machine, changed, told, " ".join((machine.name, *amounts)))


def _keys(amounts: Iterable[str], nodes: Collection[int]) -> list[tuple[str, str, str]]:
    """Return node, key and value of amounts, those of a single node last; the node of what is spread is empty."""
    found: dict[str, tuple[str, str, str]] = {}
    for word in amounts:
        key, _, value = word.partition("=")
        if key in found:
            raise refusal(key, "is given twice", "keep one")
        if not _AMOUNT.fullmatch(word):
            remedy = "beside a machine write memory=64Gi, hugepages-1Gi=8, nvidia.com/gpu=8, node0.memory=..."
            raise refusal(key, "is no amount", remedy)
        named = _OF_NODE.fullmatch(key)
        if named and int(named[1]) not in nodes:
            known = ", ".join(map(str, sorted(nodes)))
            raise refusal(key, f"the machine has no NUMA node {named[1]}", f"its nodes are {known}")
        found[key] = (named[1], named[2], value) if named else ("", key, value)
    return sorted(found.values())


def part_of(amount: str) -> str:
    """Return what of a machine an amount, or its key, is about; empty for what is no amount.

    >>> part_of("node1.hugepages-1Gi=4"), part_of("nvidia.com/gpu=8"), part_of("cpuless-memory=4Gi")
    ('huge pages', 'devices', 'memory')
    """
    key = amount.partition("=")[0]
    named = _OF_NODE.fullmatch(key)
    key = named[2] if named else key
    if key in (OF_MEMORY, f"cpuless-{OF_MEMORY}"):
        return OF_MEMORY
    if key.startswith(HUGE_PAGES):
        return OF_PAGES
    return OF_DEVICES if _DEVICES.fullmatch(key) else ""


def completed(machines: Sequence[Machine]) -> Machine:
    """Return the machine that several files describe together: each tells what the first does not.

    Raises:
        InputError: they are not one machine, or one of them adds nothing.
    """
    first, *others = sorted(machines, key=lambda one: len(_PLACES.intersection(one.origin.unknown)))
    for other in others:
        problem = _difference(first, other)
        adds = [
            part
            for part in (OF_MEMORY, OF_DISTANCES, OF_PAGES, _PCI)
            if part in first.origin.unknown and part not in other.origin.unknown
        ]
        if not problem and not adds and other.published is None:
            problem = f"both are whole, and {other.name} adds nothing to {first.name}"
        if problem:
            remedy = "give one of them; two are one machine where they complete each other, such as lscpu and numactl"
            raise InputError(f"two machines are given: {problem}", field="--machine", remedy=remedy)
        # A machine with what another description of it tells
        there = {node.node_id: node for node in other.info.topology}
        memory, pools = _amounts_of(first)
        told, told_pools = _amounts_of(other)
        if OF_MEMORY in adds:
            memory |= {node: told[node] for node in memory.keys() & told.keys()}
        if OF_PAGES in adds:
            pools |= {node: told_pools[node] for node in pools.keys() & told_pools.keys()}
        changed = _with_nodes(first, memory, pools)
        if OF_DISTANCES in adds and memory.keys() == there.keys():
            info, hardware = changed.info, changed.hardware
            rows = tuple(replace(node, distances=there[node.node_id].distances) for node in info.topology)
            if hardware is not None and other.hardware is not None:
                table, ids = other.hardware.distances, other.hardware.distance_nodes
                hardware = replace(hardware, distances=table, distance_nodes=ids)
            changed = replace(changed, info=replace(info, topology=rows), hardware=hardware)
        if _PCI in adds:
            changed = replace(changed, pci=other.pci)
        changed = replace(changed, published=first.published or other.published)
        name = first.name if other.name == first.name else f"{first.name} + {other.name}"
        first = _told(first, changed, adds, name)
    return first


def _difference(one: Machine, other: Machine) -> str:
    """Say in what two descriptions differ that cannot be one machine; empty where they can."""
    numbered = not any(_NUMBERS in machine.origin.unknown for machine in (one, other))
    here, there = (
        {node.node_id: {cpu for core in node.cores for cpu in core.thread_ids} for node in machine.info.topology}
        for machine in (one, other)
    )
    for node in sorted(here.keys() | there.keys()):
        first, second = here.get(node, set()), there.get(node, set())
        if len(first) != len(second):
            return f"NUMA node {node} has {len(first)} CPUs in one and {len(second)} in the other"
        if numbered and first != second:
            lists = (str(CPUSet.from_ids(cpus)) for cpus in (first, second))
            return f"NUMA node {node} has CPUs {' in one and '.join(lists)} in the other"
    return ""


def _amounts_of(machine: Machine) -> tuple[dict[int, int], dict[int, dict[int, int]]]:
    """Return the memory and the pools of huge pages of each NUMA node."""
    nodes = machine.info.topology
    pools = {node.node_id: {pool.page_size: pool.num_pages for pool in node.hugepages} for node in nodes}
    return {node.node_id: node.memory for node in nodes}, pools


def _with_nodes(machine: Machine, memory: Mapping[int, int], pools: Mapping[int, Mapping[int, int]]) -> Machine:
    """Return a machine whose NUMA nodes have that much memory and those pools of huge pages."""
    sizes = sorted({size for listed in pools.values() for size in listed}, key=lambda size: f"hugepages-{size}kB")

    def node_of(node: NUMANode) -> NUMANode:
        counts = pools[node.node_id]
        return replace(
            node, memory=memory[node.node_id], hugepages=tuple(HugePages(size, counts.get(size, 0)) for size in sizes)
        )

    topology = tuple(map(node_of, machine.info.topology))
    total = tuple(HugePages(size, sum(counts.get(size, 0) for counts in pools.values())) for size in sizes)
    info = replace(machine.info, topology=topology, memory_capacity=sum(memory.values()), hugepages=total)
    hardware = machine.hardware
    if hardware is not None:
        nodes = tuple(
            replace(
                node,
                memory_bytes=memory.get(node.id, node.memory_bytes),
                hugepages=tuple(HardwarePages(size * 1024, pools[node.id].get(size, 0)) for size in sorted(sizes))
                if node.id in pools
                else node.hugepages,
            )
            for node in hardware.nodes
        )
        hardware = replace(hardware, nodes=nodes)
    return replace(machine, info=info, hardware=hardware)


def _told(before: Machine, after: Machine, parts: Iterable[str], name: str) -> Machine:
    """Return a machine under a new name whose origin says that some parts are known now."""
    known = set(parts)
    origin = before.origin
    unknown = tuple(part for part in origin.unknown if part not in known)
    assumed = tuple(text for text in origin.assumed if OF_PART.get(text, part_of(text)) not in known)
    return replace(after, name=name, origin=replace(origin, unknown=unknown, assumed=assumed))


def count_of(values: Mapping[str, str], key: str, default: int) -> int:
    """Return the count under a key.

    Raises:
        InputError: it is none.
    """
    text = values.get(key)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        raise refusal(key, f"{text[:40]!r} is not a count", "write a plain number such as 8")
    # A kernel lists the sizes of huge pages that it supports, also with no page of that size.
    if int(text) == 0 and not key.startswith(HUGE_PAGES):
        raise refusal(key, "must not be 0", "leave the key out for its default")
    return int(text)


def size_of(key: str, text: str) -> int:
    """Return the bytes that a text stands for.

    Raises:
        InputError: it is no size.
    """
    try:
        size, rest = divmod(Quantity.parse(text).nano, 10**9)
    except QuantitySyntaxError:
        size, rest = 0, 0
    if size <= 0 or rest or size % 1024:
        raise refusal(key, f"{text[:40]!r} is not a size in whole KiB", "write it as 64Gi or 512Mi")
    if size > MAX_BYTES:
        raise refusal(key, f"{text[:40]!r} is more than 1Ei", "write a smaller size")
    return size


def refusal(key: str, problem: str, remedy: str) -> InputError:
    """Return the error about a key of a machine."""
    return InputError(problem, source="machine", field=key[:40], remedy=remedy)
