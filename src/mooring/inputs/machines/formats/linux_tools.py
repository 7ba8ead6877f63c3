"""``lscpu -J`` without a table: counts, sizes of caches and the CPUs of each NUMA node.

Source: util-linux 2.38, lscpu(1). Since 2.37 some fields have children; all are read as one list.

Tables of ``lscpu``, one row a CPU: ``-J -e``, ``-J -p``, ``-p`` and ``-e``, with any columns.

Source: util-linux 2.38, lscpu(1) and sys-utils/lscpu.c. Numbers of cores, sockets, books and drawers are lscpu's own,
counted over the machine, unless ``-y`` is given. Until 2.40 its JSON has a bare ``-`` for what an offline CPU lacks.

Text of ``numactl --hardware``: NUMA nodes with their CPUs, memory and distances.

Source: numactl 2.0.18, numactl(8).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from mooring.engine.core.bits import mask_of
from mooring.engine.core.cpuset import CPUSet, CPUSetSyntaxError
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import MachineOrigin
from mooring.engine.core.quantity import Quantity, QuantitySyntaxError
from mooring.inputs.machines.formats.description import (
    ASSUMED_CORES,
    ASSUMED_DISTANCES,
    ASSUMED_MEMORY,
    ASSUMED_SOCKETS,
    MEMORY_OF_A_CPU,
    DescribedCache,
    DescribedCPU,
    DescribedNode,
    Description,
    places_of,
    row_of,
    threads_of,
)

LSCPU_CAPTURE: Final = "lscpu -J -e > FILE"
PARSABLE: Final = "# The following is the parsable format"
_NEEDED: Final = ("cpu", "core", "socket")
_KINDS: Final = {"d": "Data", "i": "Instruction", "": "Unified"}
_FALSE: Final = ("N", "no", "False", "false")

Row = Mapping[str, str]
"""Column in lower case -> text; empty for nothing."""


def read_json_table(rows: Sequence[Any], source: str) -> Description:
    """Return the machine of the rows of ``lscpu -J -e``.

    Raises:
        InputError: a row is no object, or the table has not the columns that are needed.
    """
    table = []
    for index, row in enumerate(rows):
        if not isinstance(row, dict):
            raise InputError("must be a mapping", source=source, field=f"cpus[{index}]", remedy=_remedy())
        table.append((f"cpus[{index}]", {key.lower(): _text(value) for key, value in row.items()}))
    return _described(table, source, "lscpu -J -e")


def read_parsable(text: str, source: str) -> Description:
    """Return the machine of ``lscpu -p``; the last line of comment names the columns.

    Raises:
        InputError: no line names them, a row has other columns, or needed ones are missing.
    """
    columns: list[str] = []
    table = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("#"):
            columns = [name.strip().lower() for name in line[1:].split(",")]
        elif line.strip():
            values = line.split(",")
            if len(values) > len(columns):
                problem = f"has {len(values)} columns, not the {len(columns)} of the header"
                raise InputError(problem, source=f"{source}:{number}", remedy=_remedy())
            table.append((f"line {number}", _aligned(columns, values)))
    if table and "node" not in columns:
        raise InputError("has no column NODE", source=source, remedy=_remedy())
    return _described(table, source, "lscpu -p")


def _aligned(columns: Sequence[str], values: Sequence[str]) -> Row:
    """Return a row that may lack columns of caches, which lscpu leaves out where a CPU has no such cache."""
    caches = [index for index, name in enumerate(columns) if name[:1] == "l" and name[1:2].isdecimal()]
    behind = len(columns) - 1 - caches[-1] if caches else 0
    end = len(values) - behind
    return dict(zip(columns, values[:end], strict=False)) | dict(
        zip(columns[len(columns) - behind :], values[end:], strict=False)
    )


def read_extended(text: str, source: str) -> Description:
    """Return the machine of ``lscpu -e``: columns under their names.

    Raises:
        InputError: a row has other columns, or needed ones are missing.
    """
    header, *lines = text.splitlines()
    columns = header.lower().split()
    table = []
    for number, line in enumerate(lines, start=2):
        values = line.split()
        if values and len(values) != len(columns):
            problem = f"has {len(values)} columns, not the {len(columns)} of the header"
            raise InputError(problem, source=f"{source}:{number}", remedy=_remedy())
        if values:
            table.append((f"line {number}", dict(zip(columns, values, strict=True))))
    return _described(table, source, "lscpu -e")


def _remedy() -> str:
    return f"capture it again: {LSCPU_CAPTURE}"


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _described(table: Sequence[tuple[str, Row]], source: str, form: str) -> Description:
    columns = table[0][1].keys() if table else set()
    missing = [name for name in _NEEDED if name not in columns]
    if missing:
        problem = f"has no column {', '.join(name.upper() for name in missing)}"
        raise InputError(problem, source=source, remedy=f"capture it with all of them: {LSCPU_CAPTURE}")
    places: dict[int, DescribedCPU] = {}
    offline: list[int] = []
    cores: dict[object, int] = {}
    for where, row in table:
        cpu = _number(row, "cpu", source, where)
        if cpu is None or cpu in places or cpu in offline:
            raise InputError("is missing or there twice", source=source, field=f"{where}.cpu", remedy=_remedy())
        core = _number(row, "core", source, where)
        if row.get("online") in _FALSE or core is None:
            offline.append(cpu)
            continue
        book, drawer, package, node, cluster = (
            _number(row, column, source, where) for column in ("book", "drawer", "socket", "node", "cluster")
        )
        package = -1 if package is None else package
        # Some Arm machines repeat numbers of cores; the threads of a core share its first cache.
        key = cores.setdefault((drawer, book, package, node, core, _first_cache(row)), cpu)
        places[cpu] = DescribedCPU(key, core, package, package, node, None, cluster, book, drawer)
    caches = tuple(_table_caches([(cpu, row) for (_, row) in table if (cpu := int(row["cpu"])) in places]))
    ids = sorted({place.node for place in places.values() if place.node is not None})
    memory = {node: MEMORY_OF_A_CPU * sum(place.node == node for place in places.values()) for node in ids}
    return Description(
        origin=MachineOrigin(
            form,
            (
                "sizes of caches" if caches else "caches",
                "memory",
                "NUMA nodes without CPUs",
                *(["distances"] if len(ids) > 1 else []),
                "huge pages",
                "PCI devices",
            ),
            (ASSUMED_MEMORY, *([ASSUMED_DISTANCES] if len(ids) > 1 else [])),
        ),
        cpus=places,
        nodes=tuple(DescribedNode(node, memory[node], distances=row_of({}, node, ids)) for node in ids),
        offline=mask_of(offline),
        caches=caches,
        architecture="s390x" if any(place.book is not None for place in places.values()) else "",
        memory=0 if ids else MEMORY_OF_A_CPU * len(places),
    )


def _first_cache(row: Row) -> str:
    joined = next((value for column, value in row.items() if column.startswith("l1d")), "")
    return joined.partition(":")[0]


def _number(row: Row, column: str, source: str, where: str) -> int | None:
    text = row.get(column, "").strip()
    if text in ("", "-"):
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        problem = f"{text!r:.40} is not a whole number"
        raise InputError(problem, source=source, field=f"{where}.{column}", remedy=_remedy())
    return int(text)


def _table_caches(rows: Sequence[tuple[int, Row]]) -> Iterator[DescribedCache]:
    sharers: dict[tuple[str, str], list[int]] = defaultdict(list)
    for cpu, row in rows:
        for column, values in row.items():
            for name, value in zip(column.split(":"), values.split(":"), strict=False):
                if name[:1] == "l" and name[1:2].isdecimal() and value.isdecimal():
                    sharers[name, value].append(cpu)
    for (name, number), cpus in sharers.items():
        yield DescribedCache(int(name[1]), mask_of(cpus), _KINDS.get(name[2:], "Unified"), 0, int(number))


_NODE: Final = re.compile(r"NUMA node([0-9]{1,4}) CPU\(s\)", re.ASCII)
_CACHE: Final = re.compile(r"L([1-5])([di]?)(?: cache)?", re.ASCII)
_SIZE: Final = re.compile(r"([0-9.]+) ?([KMG]?)(?:i?B)?(?: \(([0-9]+) instances?\))?", re.ASCII)


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
        raise InputError(problem, source=source, remedy=f"capture every CPU: {LSCPU_CAPTURE}")
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
        remedy = f"capture every CPU, in English: LC_ALL=C {LSCPU_CAPTURE}"
        raise InputError("is missing", source=source, field=name, remedy=remedy) from None
    except CPUSetSyntaxError as error:
        raise InputError(str(error), source=source, field=name, remedy=f"capture it again: {LSCPU_CAPTURE}") from None


def _count(reported: Mapping[str, str], name: str, source: str) -> int:
    text = reported.get(name, "")
    if text in ("-", ""):  # Arm and s390x machines that tell no sockets
        return 1
    if not (text.isascii() and text.isdigit()) or not 0 < len(text) < 6 or int(text) == 0:
        remedy = f"capture it again: {LSCPU_CAPTURE}"
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


NUMACTL_CAPTURE: Final = "numactl -H > FILE"
_CPUS: Final = re.compile(r"node ([0-9]{1,5}) cpus:((?: [0-9]{1,6})*) *", re.ASCII)
_MEMORY_SIZE: Final = re.compile(r"node ([0-9]{1,5}) size: ([0-9]{1,12}) MB *", re.ASCII)
_ROW: Final = re.compile(r" *([0-9]{1,5}): +([0-9 ]+)", re.ASCII)


def read_numactl(text: str, source: str) -> Description:
    """Return the machine of the text.

    Raises:
        InputError: a line cannot be understood, or a node lacks one.
    """
    cpus: dict[int, list[int]] = {}
    sizes: dict[int, int] = {}
    rows: dict[int, list[int]] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if match := _CPUS.fullmatch(line):
            if int(match[1]) in cpus:
                raise _problem(f"node {match[1]} is there twice", f"{source}:{number}")
            cpus[int(match[1])] = sorted(int(cpu) for cpu in match[2].split())
        elif match := _MEMORY_SIZE.fullmatch(line):
            sizes[int(match[1])] = int(match[2]) * 2**20
        elif match := _ROW.fullmatch(line):
            rows[int(match[1])] = [int(value[:9]) for value in match[2].split()]
        elif re.match(r"node [0-9]+ cpus:", line):
            raise _problem("the CPUs are not a list of numbers", f"{source}:{number}")
    everyone = [cpu for listed in cpus.values() for cpu in listed]
    if not everyone or cpus.keys() != sizes.keys() or len(set(everyone)) != len(everyone):
        raise _problem("must have CPUs and a size for every NUMA node, and no CPU on two of them", source)
    nodes = sorted(cpus)
    is_complete = all(len(rows.get(node, ())) == len(nodes) for node in nodes)
    threads = threads_of(cpus)
    return Description(
        origin=MachineOrigin(
            "numactl -H",
            (
                "cores",
                "sockets",
                "caches",
                *([] if is_complete else ["distances"]),
                "offline CPUs",
                "huge pages",
                "PCI devices",
            ),
            (
                ASSUMED_CORES if threads == 1 else f"{threads} threads a core, as the runs of CPU numbers suggest",
                ASSUMED_SOCKETS,
                *([] if is_complete else [ASSUMED_DISTANCES]),
            ),
        ),
        cpus=places_of(cpus, sockets=sum(bool(listed) for listed in cpus.values()), threads=threads),
        nodes=tuple(
            DescribedNode(
                node,
                sizes[node],
                distances=row_of(dict(zip(nodes, rows.get(node, ()), strict=is_complete)), node, nodes),
            )
            for node in nodes
        ),
    )


def _problem(problem: str, source: str) -> InputError:
    return InputError(problem, source=source, remedy=f"capture it again: {NUMACTL_CAPTURE}")
