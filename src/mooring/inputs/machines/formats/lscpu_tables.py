"""Tables of ``lscpu``, one row a CPU: ``-J -e``, ``-J -p``, ``-p`` and ``-e``, with any columns.

Source: util-linux 2.38, lscpu(1) and sys-utils/lscpu.c. Numbers of cores, sockets, books and drawers are lscpu's own,
counted over the machine, unless ``-y`` is given. Until 2.40 its JSON has a bare ``-`` for what an offline CPU lacks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from mooring.engine.core.bits import mask_of
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import MachineOrigin
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

CAPTURE: Final = "lscpu -J -e > FILE"
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
    return f"capture it again: {CAPTURE}"


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _described(table: Sequence[tuple[str, Row]], source: str, form: str) -> Description:
    columns = table[0][1].keys() if table else set()
    missing = [name for name in _NEEDED if name not in columns]
    if missing:
        problem = f"has no column {', '.join(name.upper() for name in missing)}"
        raise InputError(problem, source=source, remedy=f"capture it with all of them: {CAPTURE}")
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
    caches = tuple(_caches([(cpu, row) for (_, row) in table if (cpu := int(row["cpu"])) in places]))
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


def _caches(rows: Sequence[tuple[int, Row]]) -> Iterator[DescribedCache]:
    sharers: dict[tuple[str, str], list[int]] = defaultdict(list)
    for cpu, row in rows:
        for column, values in row.items():
            for name, value in zip(column.split(":"), values.split(":"), strict=False):
                if name[:1] == "l" and name[1:2].isdecimal() and value.isdecimal():
                    sharers[name, value].append(cpu)
    for (name, number), cpus in sharers.items():
        yield DescribedCache(int(name[1]), mask_of(cpus), _KINDS.get(name[2:], "Unified"), 0, int(number))
