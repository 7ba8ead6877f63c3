"""A machine in one line: ``sockets=2 numa=4 cores=16 threads=2 l3=8 memory=64Gi``.

| key | meaning | default |
|---|---|---|
| ``sockets`` | processor packages | 1 |
| ``numa`` | NUMA nodes with CPUs, in the whole machine | ``sockets`` |
| ``cores`` | cores in the whole machine | 4 for each NUMA node or L3, whichever are more |
| ``threads`` | threads of *each* core | 1 |
| ``l3`` | L3 caches in the whole machine | ``numa``, at least ``sockets`` |
| ``memory`` | memory of the nodes with CPUs | 4Gi for each |
| ``siblings`` | ``split``: CPUs i and i + cores; ``adjacent``: 2i and 2i + 1 | ``split`` |
| ``distances`` | local, same socket, other socket; with two figures: local, all others | ``10,12,32`` |
| ``hugepages-2Mi`` | pages of that size, spread over the nodes with CPUs; 0 lists the size without a page | none |
| ``efficiency-cores`` | further one-thread cores of a slower kind | none |
| ``cpuless`` | further NUMA nodes without CPUs (HBM, CXL) | none |
| ``cpuless-memory`` | their memory; 0 where the firmware keeps them for later | 4Gi for each |
| ``l2-size``, ``l3-size`` | size of one cache | ``1Mi``, ``32Mi`` |

Counts must divide evenly. Whether the kubelet treats an L3 as an uncore cache follows from ``l3`` and ``numa`` by
cAdvisor's rule: one L3 for each node is a node cache (the socket id replaces the uncore), several for each node
are uncore caches, and one that spans several nodes is an uncore cache whose id appears on all of them.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Final

from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding, Machine, MachineOrigin
from mooring.engine.core.machineinfo import HugePages
from mooring.engine.core.quantity import Quantity, QuantitySyntaxError
from mooring.inputs.machines.differences import differences
from mooring.inputs.machines.shape import Shape, views_of
from mooring.lazy import replace

MAX_CPUS: Final = 8192
"""CPUs that a described machine may have; Linux has no more (NR_CPUS)."""
MAX_NODES: Final = 1024
"""NUMA nodes that it may have; Linux has no more (NODES_SHIFT 10)."""
MAX_BYTES: Final = 2**60
"""Memory that it may have (1Ei); the managers count in 64 bits."""

OF_MEMORY: Final = "memory"
"""What a format may leave open, and the key for it."""
ASSUMED_NODE_MEMORY: Final = "4Gi of memory for each NUMA node"

_GIB: Final = 2**30
PAGE: Final = 4096
_MAX_TEXT: Final = 4096
MAX_DEVICES: Final = 4096
"""Devices of a resource that a NUMA node may have."""
HUGEPAGES: Final = "hugepages-"
"""Before the size of a page, in keys."""
_EXAMPLE: Final = "for example sockets=2 numa=4 cores=16 threads=2 l3=8 memory=64Gi"
_UNREAD: Final = "MOOR-411"
"""What no manager reads is worth a word only where a machine was measured."""
_KEYS: Final = (
    "sockets", "numa", "cores", "threads", "l3", "memory", "siblings", "distances", "hugepages-2Mi", "hugepages-1Gi",
    "efficiency-cores", "cpuless", "cpuless-memory", "l2-size", "l3-size",
)  # fmt: skip


def parse_compact(text: str) -> Machine:
    """Return the machine that a line of ``key=value`` pairs describes; its name is the line itself.

    Raises:
        InputError: a key is unknown or given twice, a value is malformed, or the counts do not fit together.

    >>> machine = parse_compact("sockets=2 cores=4 threads=2")
    >>> [core.thread_ids for node in machine.info.topology for core in node.cores]
    [(0, 4), (1, 5), (2, 6), (3, 7)]
    """
    info, hardware = views_of(parse_shape(text))
    machine = Machine(" ".join(text.split()), replace(info, facts=hardware.facts), hardware)
    # A typed machine without a word about memory says nothing about it.
    told = re.search(r"(?:^|\s)memory=", text) is not None
    origin = MachineOrigin("compact text", () if told else (OF_MEMORY,), () if told else (ASSUMED_NODE_MEMORY,))
    return replace(machine, origin=origin, findings=compact_findings(machine))


def compact_findings(machine: Machine) -> tuple[Finding, ...]:
    """Return how the views of a typed machine differ, apart from what no manager reads."""
    found = differences(machine.info, machine.hardware) if machine.hardware else ()
    return tuple(one for one in found if one.code != _UNREAD)


def parse_shape(text: str) -> Shape:
    """Return the shape that a line describes.

    Raises:
        InputError: as :func:`parse_compact`.
    """
    if len(text) > _MAX_TEXT:
        raise InputError(f"is longer than {_MAX_TEXT} characters", source="machine", remedy=_EXAMPLE)
    values: dict[str, str] = {}
    for part in text.split():
        key, equals, value = part.partition("=")
        if not (key and equals and value):
            raise refusal(part, "is not a pair", "write key=value without spaces around the =")
        if key in values:
            raise refusal(key, "is given twice", "keep one")
        if key not in _KEYS and not key.startswith(HUGEPAGES):
            close = difflib.get_close_matches(key, _KEYS, n=1)
            problem = "is not a key of a machine"
            raise refusal(key, problem, f"did you mean {close[0]}?" if close else f"keys are {', '.join(_KEYS)}")
        values[key] = value
    sockets = count_of(values, "sockets", 1)
    numa = count_of(values, "numa", sockets)
    l3_caches = count_of(values, "l3", max(numa, sockets))
    cpuless = count_of(values, "cpuless", 0)
    shape = Shape(
        sockets=sockets,
        numa_nodes=numa,
        cores=count_of(values, "cores", 4 * max(numa, l3_caches)),
        threads=count_of(values, "threads", 1),
        l3_caches=l3_caches,
        memory=_size(values, "memory", 4 * _GIB * numa),
        adjacent=_is_adjacent(values.get("siblings", "split")),
        efficiency_cores=count_of(values, "efficiency-cores", 0),
        cpuless_nodes=cpuless,
        cpuless_memory=_size(values, "cpuless-memory", 4 * _GIB * cpuless),
        hugepages=_hugepages(values),
        distances=_distances(values.get("distances", "10,12,32")),
        l2_size=_size(values, "l2-size", 2**20),
        l3_size=_size(values, "l3-size", 32 * 2**20),
    )
    _check(shape)
    return shape


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
    if int(text) == 0 and not key.startswith(HUGEPAGES):
        raise refusal(key, "must not be 0", "leave the key out for its default")
    return int(text)


def _size(values: Mapping[str, str], key: str, default: int) -> int:
    text = values.get(key)
    if text == "0" and key == "cpuless-memory":
        return 0
    return default if text is None else size_of(key, text)


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


def _is_adjacent(text: str) -> bool:
    if text not in ("split", "adjacent"):
        raise refusal("siblings", f"{text[:40]!r} is not a numbering", "write split or adjacent")
    return text == "adjacent"


def _distances(text: str) -> tuple[int, int, int]:
    parts = text.split(",")
    # ACPI has one byte for an entry, below 10 are reserved and 255 means unreachable.
    if len(parts) not in (2, 3) or not all(part.isascii() and part.isdigit() and len(part) < 4 for part in parts):
        raise refusal("distances", f"{text[:40]!r} is not a list of two or three numbers", "write 10,21 or 10,12,32")
    local, same_socket, remote = (int(part) for part in (*parts, parts[-1])[:3])
    if not 10 <= local <= same_socket <= remote <= 250:
        raise refusal("distances", f"{text!r} does not ascend from 10 to at most 250", "write 10,21 or 10,12,32")
    return local, same_socket, remote


def _hugepages(values: Mapping[str, str]) -> tuple[HugePages, ...]:
    pools: dict[int, HugePages] = {}
    for key in values:
        if not key.startswith(HUGEPAGES):
            continue
        size = size_of(key, key.removeprefix(HUGEPAGES))
        if size < 2 * PAGE or size & (size - 1):
            raise refusal(key, "is not a size of a huge page", "write hugepages-2Mi or hugepages-1Gi")
        if size in pools:
            raise refusal(key, "is given twice", "keep one")
        pools[size] = HugePages(size // 1024, count_of(values, key, 0))
    # cAdvisor lists pools in the text order of hugepages-<KiB>kB.
    return tuple(sorted(pools.values(), key=lambda pool: f"hugepages-{pool.page_size}kB"))


def _check(shape: Shape) -> None:
    """Refuse counts that make no regular machine.

    Raises:
        InputError: naming the key that does not fit.
    """
    cpus = shape.cores * shape.threads + shape.efficiency_cores
    if cpus > MAX_CPUS:
        raise refusal("cores", f"the machine would have {cpus} CPUs", f"Linux has at most {MAX_CPUS}")
    if shape.numa_nodes + shape.cpuless_nodes > MAX_NODES:
        nodes = shape.numa_nodes + shape.cpuless_nodes
        raise refusal("numa", f"the machine would have {nodes} NUMA nodes", f"Linux has at most {MAX_NODES}")
    for key, count in (("cores", shape.cores), ("efficiency-cores", shape.efficiency_cores)):
        for other, parts in (("sockets", shape.sockets), ("numa", shape.numa_nodes), ("l3", shape.l3_caches)):
            if count % parts:
                raise refusal(key, f"{count} cannot be divided evenly by {other}={parts}", f"use a multiple of {parts}")
    if shape.l3_caches % shape.sockets:
        problem = f"{shape.l3_caches} is not a multiple of sockets={shape.sockets}"
        raise refusal("l3", problem, "no L3 spans two sockets")
    for key, count in (("sockets", shape.sockets), ("l3", shape.l3_caches), ("cpuless", shape.cpuless_nodes)):
        if count % shape.numa_nodes and (not count or shape.numa_nodes % count):
            problem = f"{shape.numa_nodes} is neither a multiple nor a divisor of {key}={count}"
            raise refusal("numa", problem, "make one divide the other")
    _check_memory(shape)


def _check_memory(shape: Shape) -> None:
    for key, size, nodes in (
        ("memory", shape.memory, shape.numa_nodes),
        ("cpuless-memory", shape.cpuless_memory, shape.cpuless_nodes),
    ):
        if nodes and size % (nodes * PAGE):
            problem = f"{size} bytes do not make whole pages on {nodes} nodes"
            raise refusal(key, problem, "use a size that divides evenly")
        if size and not nodes:
            raise refusal(key, "is given, but there are no CPU-less nodes", "add cpuless=1")
    reserved = 0
    for pool in shape.hugepages:
        if pool.num_pages % shape.numa_nodes:
            problem = f"{pool.num_pages} pages cannot be divided evenly by numa={shape.numa_nodes}"
            raise refusal(f"hugepages of {pool.page_size}Ki", problem, f"use a multiple of {shape.numa_nodes}")
        reserved += pool.page_size * 1024 * pool.num_pages
    if reserved > shape.memory:
        problem = f"{shape.memory} bytes cannot hold {reserved} bytes of huge pages"
        raise refusal("memory", problem, "give more memory or fewer pages")


def refusal(key: str, problem: str, remedy: str) -> InputError:
    """Return the error about a key of a machine."""
    return InputError(problem, source="machine", field=key[:40], remedy=remedy)
