"""``lscpu -J`` without a table: counts, sizes of caches and the CPUs of each NUMA node.

Source: util-linux 2.38, lscpu(1). Since 2.37 some fields have children; all are read as one list.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from mooring.engine.core.cpuset import CPUSet, CPUSetSyntaxError
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import MachineOrigin
from mooring.engine.core.quantity import Quantity, QuantitySyntaxError
from mooring.inputs.machines.formats.counted import places_of
from mooring.inputs.machines.formats.description import (
    ASSUMED_DISTANCES,
    ASSUMED_MEMORY,
    MEMORY_OF_A_CPU,
    DescribedCache,
    DescribedCPU,
    DescribedNode,
    Description,
    row_of,
)
from mooring.inputs.machines.formats.lscpu_tables import CAPTURE

_NODE: Final = re.compile(r"NUMA node([0-9]{1,4}) CPU\(s\)", re.ASCII)
_CACHE: Final = re.compile(r"L([1-5])([di]?)(?: cache)?", re.ASCII)
_SIZE: Final = re.compile(r"([0-9.]+) ?([KMG]?)(?:i?B)?(?: \(([0-9]+) instances?\))?", re.ASCII)
_KINDS: Final = {"d": "Data", "i": "Instruction", "": "Unified"}


def read_summary(fields: Sequence[Any], source: str) -> Description:
    """Return the machine of the fields of ``lscpu -J``.

    Raises:
        InputError: counts are missing or do not fit together, as on machines with two kinds of cores.
    """
    reported = dict(_flat(fields))
    online = _cpus(reported, "On-line CPU(s) list", source)
    nodes = {int(match[1]): _cpus(reported, name, source) for name in reported if (match := _NODE.fullmatch(name))}
    threads, cores = _count(reported, "Thread(s) per core", source), _count(reported, "Core(s) per socket", source)
    sockets = _count(reported, "Socket(s)", source)
    lists = {node: [cpu for cpu in cpus if cpu in online] for node, cpus in nodes.items()} or {0: list(online)}
    filled = sum(bool(cpus) for cpus in lists.values()) or 1
    is_even = all(len(cpus) % threads == 0 for cpus in lists.values()) and (
        sockets % filled == 0 or filled % sockets == 0
    )
    if sockets * cores * threads != len(online) or sum(map(len, lists.values())) != len(online) or not is_even:
        problem = (
            f"{sockets} sockets of {cores} cores of {threads} threads are not {len(online)} online CPUs on {filled} "
            "NUMA nodes: it does not say which CPUs are one core"
        )
        raise InputError(problem, source=source, remedy=f"capture every CPU: {CAPTURE}")
    architecture = reported.get("Architecture", "")
    places = places_of(lists, sockets=sockets, threads=threads, architecture=architecture, is_numa=bool(nodes))
    caches = tuple(cache for name, text in reported.items() for cache in _caches(name, text, places))
    offline = _cpus(reported, "Off-line CPU(s) list", source) if "Off-line CPU(s) list" in reported else CPUSet()
    return Description(
        origin=_origin(threads, len(nodes)),
        cpus=places,
        nodes=tuple(
            DescribedNode(node, MEMORY_OF_A_CPU * len(lists[node]), distances=row_of({}, node, nodes))
            for node in sorted(nodes)
        ),
        offline=offline.mask,
        caches=caches,
        architecture=architecture,
        vendor=reported.get("Vendor ID", ""),
        memory=0 if nodes else MEMORY_OF_A_CPU * len(places),
    )


def _origin(threads: int, nodes: int) -> MachineOrigin:
    several = nodes > 1
    return MachineOrigin(
        "lscpu -J",
        (
            *(["which CPUs are one core"] if threads > 1 else []),
            "which cores share a cache",
            "memory",
            "NUMA nodes without CPUs",
            *(["distances"] if several else []),
            "huge pages",
            "PCI devices",
        ),
        (
            *(["threads numbered as Linux does"] if threads > 1 else []),
            ASSUMED_MEMORY,
            *([ASSUMED_DISTANCES] if several else []),
        ),
    )


def _flat(fields: Sequence[Any]) -> Iterator[tuple[str, str]]:
    pending = list(reversed(fields))
    while pending:
        field = pending.pop()
        if isinstance(field, dict):
            yield str(field.get("field", "")).removesuffix(":"), str(field.get("data") or "")
            children = field.get("children")
            pending.extend(reversed(children) if isinstance(children, list) else ())


def _cpus(reported: Mapping[str, str], name: str, source: str) -> CPUSet:
    try:
        return CPUSet.parse(reported[name])
    except KeyError:
        remedy = f"capture every CPU, in English: LC_ALL=C {CAPTURE}"
        raise InputError("is missing", source=source, field=name, remedy=remedy) from None
    except CPUSetSyntaxError as error:
        raise InputError(str(error), source=source, field=name, remedy=f"capture it again: {CAPTURE}") from None


def _count(reported: Mapping[str, str], name: str, source: str) -> int:
    text = reported.get(name, "")
    if text in ("-", ""):  # Arm and s390x machines that tell no sockets
        return 1
    if not (text.isascii() and text.isdigit()) or not 0 < len(text) < 6 or int(text) == 0:
        remedy = f"capture it again: {CAPTURE}"
        raise InputError(f"{text!r:.40} is not a count", source=source, field=name, remedy=remedy)
    return int(text)


def _caches(name: str, text: str, places: Mapping[int, DescribedCPU]) -> Iterator[DescribedCache]:
    """Yield the caches of a field, shared by equally many neighbouring cores each; none if that does not divide."""
    level, size = _CACHE.fullmatch(name), _SIZE.fullmatch(text)
    if not level or not size or size[3] is None:
        return
    instances = int(size[3][:6])
    cores = list(dict.fromkeys(place.core for _, place in _in_order(places)))
    if not instances or len(cores) % instances:
        return
    try:
        total = Quantity.parse(f"{size[1]}{size[2]}{'i' if size[2] else ''}").nano // 10**9
    except QuantitySyntaxError:
        total = 0
    share = len(cores) // instances
    block = {core: index // share for index, core in enumerate(cores)}
    masks = [0] * instances
    for cpu, place in places.items():
        masks[block[place.core]] |= 1 << cpu
    kind = _KINDS[level[2]]
    yield from (
        DescribedCache(int(level[1]), mask, kind, total // instances, index) for index, mask in enumerate(masks)
    )


def _in_order(places: Mapping[int, DescribedCPU]) -> list[tuple[int, DescribedCPU]]:
    return sorted(places.items(), key=lambda item: (item[1].package, item[1].node or 0, item[1].core))
