"""Memory and huge pages as cAdvisor sees them, of the machine and of a node.

Source: cAdvisor library 0.60.5, machine (GetMachineMemoryCapacity, GetMachineMemoryByType) and utils/sysinfo
(GetHugePagesInfo, getNodeMemInfo, getDistances); spec: topology.md sections 3.1 and 3.4.
"""

from __future__ import annotations

import re
from typing import Final

from mooring.engine.core.gotext import GoSyntaxError, atoi, quote
from mooring.engine.core.machineinfo import HugePages, MemoryModules
from mooring.inputs.machines.cadvisor.probe import (
    UINT64_MAX,
    ProbeError,
    parse_uint,
    read_or_fail,
    read_problem,
    scan_uint,
    trim,
)
from mooring.inputs.machines.tree import Tree

_MEMORY: Final = re.compile(r"MemTotal:[\t\n\f\r ]*([0-9]+) kB")
_SWAP: Final = re.compile(r"SwapTotal:[\t\n\f\r ]*([0-9]+) kB")
_CONTROLLERS: Final = "sys/devices/system/edac/mc"
_CONTROLLER: Final = re.compile("mc[0-9]")
_MODULE: Final = re.compile("dimm[0-9]")


def memory_capacity(tree: Tree) -> int:
    """Return MemTotal of ``/proc/meminfo`` in bytes.

    Raises:
        ProbeError: the file is missing or does not say.
    """
    return _kib_field(read_or_fail(tree, "proc/meminfo"), _MEMORY)


def swap_capacity(tree: Tree) -> int:
    """Return SwapTotal of ``/proc/meminfo`` in bytes.

    Raises:
        ProbeError: the file is missing or does not say.
    """
    return _kib_field(read_or_fail(tree, "proc/meminfo"), _SWAP)


def node_memory(tree: Tree, folder: str) -> int:
    """Return MemTotal of a node's ``meminfo`` in bytes; 0 when the file cannot be read, which is no error.

    Raises:
        ProbeError: the file has no MemTotal.
    """
    text = tree.read(f"{folder}/meminfo")
    return 0 if text is None else _kib_field(trim(text), _MEMORY)


def node_distances(tree: Tree, folder: str) -> tuple[int, ...] | None:
    """Return a node's row of the distance table; None when the file cannot be read, which is no error.

    The row has one entry for each *online* node in ascending id, so neither id nor list position is an index into it.

    Raises:
        ProbeError: something between two single spaces is no number.
    """
    text = tree.read(f"{folder}/distance")
    if text is None:
        return None
    row: list[int] = []
    for token in trim(text).split(" "):
        try:
            row.append(parse_uint(token))
        except GoSyntaxError:
            raise ProbeError(f"cannot convert {token} to int") from None
    return tuple(row)


def huge_pages(tree: Tree, folder: str) -> tuple[HugePages, ...]:
    """Return the pools in a ``hugepages`` folder, in text order of their names; none when there is no such folder.

    Raises:
        ProbeError: a name or a number of pages cannot be read.
    """
    return tuple(_huge_page_pool(tree, folder, name) for name in tree.names(folder))


def _huge_page_pool(tree: Tree, folder: str, name: str) -> HugePages:
    _, dash, rest = name.partition("-")
    if not dash:  # cAdvisor indexes the second part unchecked
        raise ProbeError("panic: runtime error: index out of range [1] with length 1")
    try:
        page_size = parse_uint(rest.split("-")[0].split("kB")[0])
    except GoSyntaxError as error:
        raise ProbeError(str(error)) from None
    path = f"{folder}/{name}/nr_hugepages"
    count = trim(read_or_fail(tree, path))
    pages = scan_uint(count)
    if pages is None:
        raise ProbeError(f"could not parse file nr_hugepage for {name}, contents {quote(count)}")
    return HugePages(page_size, pages)


def memory_by_type(tree: Tree) -> tuple[MemoryModules, ...]:
    """Return what the memory controllers tell about their modules, by type; nothing without a controller driver.

    Raises:
        ProbeError: a module lacks its type or size.
    """
    totals: dict[str, list[int]] = {}
    for controller in filter(_CONTROLLER.search, tree.names(_CONTROLLERS)):
        folder = f"{_CONTROLLERS}/{controller}"
        if not tree.is_dir(folder):
            raise ProbeError(read_problem(tree, f"{folder}/"))
        for module in filter(_MODULE.search, tree.names(folder)):
            kind = trim(read_or_fail(tree, f"{folder}/{module}/dimm_mem_type"))
            size = trim(read_or_fail(tree, f"{folder}/{module}/size"))
            try:
                mebibytes = atoi(size)
            except GoSyntaxError as error:
                raise ProbeError(str(error)) from None
            total = totals.setdefault(kind, [0, 0])
            total[0] = total[0] + mebibytes * 2**20 & UINT64_MAX
            total[1] += 1
    return tuple(MemoryModules(kind, capacity, count) for kind, (capacity, count) in sorted(totals.items()))


def _kib_field(text: str, field: re.Pattern[str]) -> int:
    match = field.search(text)
    if match is None:
        raise ProbeError(f"failed to match regexp in output: {quote(text)}")
    try:
        return parse_uint(match[1]) * 1024 & UINT64_MAX
    except GoSyntaxError as error:
        raise ProbeError(str(error)) from None
