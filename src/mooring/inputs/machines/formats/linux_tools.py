"""``lscpu -J`` without a table: counts, sizes of caches and the CPUs of each NUMA node.

Source: util-linux 2.38, lscpu(1). Since 2.37 some fields have children; all are read as one list.

Tables of ``lscpu``, one row a CPU: ``-J -e``, ``-J -p``, ``-p`` and ``-e``, with any columns.

Source: util-linux 2.38, lscpu(1) and sys-utils/lscpu.c. Numbers of cores, sockets, books and drawers are lscpu's own,
counted over the machine, unless ``-y`` is given. Until 2.40 its JSON has a bare ``-`` for what an offline CPU lacks.

Plain ``lscpu``, or a part of it, also in other languages, is the summary too.

Source of the words of other languages: util-linux 2.38, po.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from mooring.engine.core.bits import CPUMask, mask_of
from mooring.engine.core.cpuset import CPUSet, CPUSetSyntaxError
from mooring.engine.core.errors import InputError
from mooring.engine.core.quantity import Quantity, QuantitySyntaxError
from mooring.inputs.machines.formats import description
from mooring.inputs.machines.formats.cpulists import described_lists, places_of, threads_of
from mooring.inputs.machines.formats.description import (
    DescribedCache,
    DescribedCPU,
    Description,
    assumed_nodes,
    origin_of,
)
from mooring.lazy import replace

LSCPU_CAPTURE: Final = "lscpu -J -e > FILE"
_REMEDY: Final = f"capture it again: {LSCPU_CAPTURE}"
_DEFAULT_COLUMNS: Final = ["cpu", "core", "socket", "node", "", "l1d", "l1i", "l2", "l3"]
"""Of ``lscpu -p``."""
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
            raise InputError("must be a mapping", source=source, field=f"cpus[{index}]", remedy=_REMEDY)
        texts = {key.lower(): "" if value is None else str(value) for key, value in row.items()}
        table.append((f"cpus[{index}]", texts))
    return described_table(table, source, "lscpu -J -e")


def read_parsable(text: str, source: str) -> Description:
    """Return the machine of ``lscpu -p``; the last line of comment names the columns.

    Raises:
        InputError: no line names them, a row has other columns, or needed ones are missing.
    """
    columns = _DEFAULT_COLUMNS
    table = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("#"):
            columns = [name.strip().lower() for name in line[1:].split(",")]
        elif line.strip():
            values = line.split(",")
            if len(values) > len(columns):
                problem = f"has {len(values)} columns, not the {len(columns)} of the header"
                raise InputError(problem, source=f"{source}:{number}", remedy=_REMEDY)
            # Columns of caches are left out where a CPU has no such cache: those behind them count from the end.
            caches = [index for index, name in enumerate(columns) if name[:1] == "l" and name[1:2].isdecimal()]
            behind = len(columns) - 1 - caches[-1] if caches else 0
            end = len(values) - behind
            last = zip(columns[len(columns) - behind :], values[end:], strict=False)
            table.append((f"line {number}", {**dict(zip(columns, values[:end], strict=False)), **dict(last)}))
    return described_table(table, source, "lscpu -p")


def read_extended(text: str, source: str) -> Description:
    """Return the machine of ``lscpu -e``: columns under their names.

    Raises:
        InputError: a row has other columns, or needed ones are missing.
    """
    columns: list[str] = []
    table = []
    for number, line in enumerate(text.splitlines(), start=1):
        values = line.split()
        if values and not columns:
            columns = line.lower().split()
            continue
        if values and len(values) != len(columns):
            problem = f"has {len(values)} columns, not the {len(columns)} of the header"
            raise InputError(problem, source=f"{source}:{number}", remedy=_REMEDY)
        if values:
            table.append((f"line {number}", dict(zip(columns, values, strict=True))))
    return described_table(table, source, "lscpu -e")


def described_table(table: Sequence[tuple[str, Row]], source: str, form: str) -> Description:
    """Return the machine of a table with a row for each CPU; without a column of cores by the numbers of the CPUs.

    Raises:
        InputError: there are no CPUs, one is there twice, or something is no number.
    """
    columns = table[0][1].keys() if table else set()
    if "cpu" not in columns:
        raise InputError("has no column CPU", source=source, remedy=f"capture it with all of them: {LSCPU_CAPTURE}")
    # A kernel without NUMA nodes has no such column; with several sockets it was left out.
    by_socket = "node" not in columns and len({row.get("socket") for _, row in table}) > 1
    if "core" not in columns:
        lists: dict[int, list[int]] = defaultdict(list)
        for where, row in table:
            if row.get("online") not in _FALSE:
                node, cpu = (
                    _number(row, column, source, where) for column in ("socket" if by_socket else "node", "cpu")
                )
                lists[node or 0].append(-1 if cpu is None else cpu)
        if len(set(chain(*lists.values()))) != len(table):
            raise InputError("a CPU is missing or there twice", source=source, remedy=_REMEDY)
        parts = ("cores", "sockets", "caches", "memory", "distances", "huge pages", "PCI devices")
        return described_lists(form, {node: sorted(cpus) for node, cpus in lists.items()}, parts)
    places: dict[int, DescribedCPU] = {}
    offline: list[int] = []
    cores: dict[object, int] = {}
    for where, row in table:
        cpu = _number(row, "cpu", source, where)
        if cpu is None or cpu in places or cpu in offline:
            raise InputError("is missing or there twice", source=source, field=f"{where}.cpu", remedy=_REMEDY)
        core = _number(row, "core", source, where)
        if row.get("online") in _FALSE or core is None:
            offline.append(cpu)
            continue
        book, drawer, package, node, cluster = (
            _number(row, column, source, where) for column in ("book", "drawer", "socket", "node", "cluster")
        )
        node = package if by_socket else node
        package = (node if "socket" not in columns and node is not None else -1) if package is None else package
        # Some Arm machines repeat numbers of cores; the threads of a core share its first cache.
        first_cache = next((value for column, value in row.items() if column.startswith("l1d")), "").partition(":")[0]
        key = cores.setdefault((drawer, book, package, node, core, first_cache), cpu)
        places[cpu] = DescribedCPU(key, core, package, package, node, None, cluster, book, drawer)
    caches = tuple(_table_caches([(cpu, row) for (_, row) in table if (cpu := int(row["cpu"])) in places]))
    nodes = Counter(place.node for place in places.values() if place.node is not None)
    unknown = ["sizes of caches" if caches else "caches"]
    assumed = [by_socket and description.ASSUMED_NODES, "socket" not in columns and description.ASSUMED_SOCKETS]
    return replace(
        _described(form, places, nodes, unknown, assumed),
        offline=mask_of(offline),
        caches=caches,
        architecture="s390x" if any(place.book is not None for place in places.values()) else "",
    )


def _described(
    form: str,
    places: Mapping[int, DescribedCPU],
    nodes: Mapping[int, int],
    unknown: Sequence[str | bool],
    assumed: Sequence[str | bool],
) -> Description:
    """Return the machine of places; ``nodes`` are the NUMA nodes with the number of their CPUs."""
    several = len(nodes) > 1
    common = ("memory", "NUMA nodes without CPUs", several and "distances", "huge pages", "PCI devices")
    origin = origin_of(
        form,
        (*unknown, *common),
        (*assumed, description.ASSUMED_MEMORY, several and description.ASSUMED_DISTANCES),
    )
    memory = 0 if nodes else description.MEMORY_OF_A_CPU * len(places)
    return Description(origin, places, assumed_nodes(nodes), memory=memory)


def _number(row: Row, column: str, source: str, where: str) -> int | None:
    text = row.get(column, "").strip()
    if text in ("", "-"):
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        problem = f"{text!r:.40} is not a whole number"
        raise InputError(problem, source=source, field=f"{where}.{column}", remedy=_REMEDY)
    return int(text)


def _table_caches(rows: Sequence[tuple[int, Row]]) -> Iterator[DescribedCache]:
    sharers: dict[tuple[str, str], list[int]] = defaultdict(list)
    for cpu, row in rows:
        for column, values in row.items():
            for name, value in zip(column.split(":"), values.split(":"), strict=False):
                if name[:1] == "l" and name[1:2].isdecimal() and value.isdecimal():
                    sharers[name, value].append(cpu)
    for (name, number), cpus in sharers.items():
        yield DescribedCache(
            int(name[1]), mask_of(cpus), description.CACHE_KINDS.get(name[2:], "Unified"), 0, int(number)
        )


_THREADS, _CORES, _SOCKETS, _NODES = "Thread(s) per core", "Core(s) per socket", "Socket(s)", "NUMA node(s)"
_CLUSTERS: Final = "Cluster(s)"
_ONLINE, _OFFLINE, _ALL = "On-line CPU(s) list", "Off-line CPU(s) list", "CPU(s)"
_NODE: Final = re.compile(r"NUMA.*?(?<![0-9])([0-9]{1,4})\b|n(?:ode|odo) NUMA ([0-9]{1,4})", re.ASCII | re.IGNORECASE)
_WORDS: Final[tuple[tuple[re.Pattern[str], str], ...]] = tuple(
    (re.compile(pattern, re.IGNORECASE), name)
    for pattern, name in (
        (r"off-?line|hors ligne|离线|オフライン", _OFFLINE),
        (r"on-?line|en ligne|en l[ií]nea|在线|オンライン", _ONLINE),
        (r"numa", _NODES),
        (r"thread|hilo|线程|スレッド", _THREADS),
        (r"core\(s\) per cluster", _CORES),
        (r"(?=.*(?:core|kern|c(?:œ|oe)ur|n[uú]cleo|核|コア)).*(?:socket|sockel|support|座|ソケット)", _CORES),
        (r"socket|sockel|^座|ソケット", _SOCKETS),
        (r"^(?:cpu|cpu\(s\)|processeur\(s\))$", _ALL),
    )
)
"""Names in English, German, French, Spanish, Chinese and Japanese, looked for in this order -> the English one."""
_CACHE: Final = re.compile(r"L([1-5])([di]?)(?: cache)?", re.ASCII)
_SIZE: Final = re.compile(r"([0-9.]+) ?([KMG]?)(?:i?B)?(?: \(([0-9]+) instances?\))?", re.ASCII)


def read_lscpu(text: str, source: str) -> Description:
    """Return the machine of plain ``lscpu``, or of lines of it; errors as of :func:`read_summary`."""
    lines = (line.replace("：", ":").partition(":") for line in text.splitlines())
    return read_summary([{"field": name.strip(), "data": value.strip()} for name, _, value in lines], source, "lscpu")


def read_summary(fields: Sequence[Any], source: str, form: str = "lscpu -J") -> Description:
    """Return the machine of the fields of ``lscpu -J``; what is missing follows from the rest, or is assumed.

    Raises:
        InputError: CPUs are missing, or counts do not fit together, as on machines with two kinds of cores.
    """
    reported: dict[str, str] = {}
    nodes: dict[int, CPUSet] = {}
    for name, text in _flat(fields):
        known = next((english for pattern, english in _WORDS if pattern.search(name)), name)
        if known == _NODES and (match := _NODE.search(name)):
            nodes[int(match[1] or match[2])] = _cpus({name: text}, name, source)
        elif text not in ("", "-"):
            reported.setdefault(known, text)
    if _CLUSTERS in reported:  # of Arm machines without a table of processors: what the kernel has as packages
        reported[_SOCKETS] = reported[_CLUSTERS]
    given = CPUSet.from_ids(range(_count(reported, _ALL, source))) if _ALL in reported else CPUSet()
    online = CPUSet(CPUMask(sum(cpus.mask for cpus in nodes.values()))) or given
    if _ONLINE in reported or not online or (form == "lscpu -J" and not nodes):
        online = _cpus(reported, _ONLINE, source)
    lists = {node: [cpu for cpu in cpus if cpu in online] for node, cpus in nodes.items()} or {0: list(online)}
    threads = _count(reported, _THREADS, source) if _THREADS in reported else threads_of(lists)
    count = _count(reported, _NODES, source)
    spread = not nodes and count > 1 and len(online) % (count * threads) == 0
    if spread:
        cpus, cores = list(online), len(online) // threads
        lists = {node: [] for node in range(count)}
        for index, cpu in enumerate(cpus):
            lists[index % cores * count // cores].append(cpu)
    filled = sum(bool(cpus) for cpus in lists.values()) or 1
    sockets = _count(reported, _SOCKETS, source) if _SOCKETS in reported else filled
    cores = _count(reported, _CORES, source) if _CORES in reported else max(len(online) // (threads * sockets), 1)
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
    is_numa = bool(nodes) or spread
    places = places_of(lists, sockets=sockets, threads=threads, architecture=architecture, is_numa=is_numa)
    caches = tuple(cache for name, text in reported.items() for cache in _caches(name, text, places))
    offline = _cpus(reported, _OFFLINE, source) if _OFFLINE in reported else CPUSet()
    # The whole output of a machine without NUMA nodes has no line about them.
    tells_nodes = bool(nodes) or not {_NODES, "Architecture"}.isdisjoint(reported)
    counts = {node: len(cpus) for node, cpus in lists.items()} if is_numa else {}
    unknown = [threads > 1 and "which CPUs are one core", "which cores share a cache"]
    assumed = [
        spread and "CPUs of the NUMA nodes in the order of their cores",
        _THREADS not in reported and description.ASSUMED_THREADS[threads],
        _SOCKETS not in reported and description.ASSUMED_SOCKETS,
        not tells_nodes and description.ASSUMED_ONE_NODE,
        threads > 1 and "threads numbered as Linux does",
    ]
    return replace(
        _described(form, places, counts, unknown, assumed),
        offline=offline.mask,
        caches=caches,
        architecture=architecture,
        vendor=reported.get("Vendor ID", ""),
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
        raise InputError(str(error), source=source, field=name, remedy=_REMEDY) from None


def _count(reported: Mapping[str, str], name: str, source: str) -> int:
    text = reported.get(name, "")
    if text in ("-", ""):  # Arm and s390x machines that tell no sockets
        return 1
    if not (text.isascii() and text.isdigit()) or not 0 < len(text) < 6 or int(text) == 0:
        raise InputError(f"{text!r:.40} is not a count", source=source, field=name, remedy=_REMEDY)
    return int(text)


def _caches(name: str, text: str, places: Mapping[int, DescribedCPU]) -> Iterator[DescribedCache]:
    """Yield the caches of a field, shared by equally many neighbouring cores each; none if that does not divide."""
    level, size = _CACHE.fullmatch(name), _SIZE.fullmatch(text)
    instances = int(size[3][:6]) if level and size and size[3] else 0
    in_order = sorted(places.values(), key=lambda place: (place.package, place.node or 0, place.core))
    cores = list(dict.fromkeys(place.core for place in in_order))
    if not level or not size or not instances or len(cores) % instances:
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
    for index, mask in enumerate(masks):
        yield DescribedCache(int(level[1]), mask, description.CACHE_KINDS[level[2]], total // instances, index)
