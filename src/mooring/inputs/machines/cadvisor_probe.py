"""Reading single files the way cAdvisor does, with the error text that Go gives when it cannot; online CPUs.

Numbers are read as strconv, strings and fmt of Go read them. cAdvisor is strict in some places (a number must fill the
whole text) and lax in others (``%d`` takes the digits in front and leaves the rest). Which files count as broken
follows from that, so both are reproduced to the letter.

Source: cAdvisor library 0.60.5, utils/sysfs (the version in kubelet v1.37.1), IsCPUOnline among it; spec: topology.md
section 3.2.

Memory and huge pages as cAdvisor sees them, of the machine and of a node.

Source: cAdvisor library 0.60.5, machine (GetMachineMemoryCapacity, GetMachineMemoryByType) and utils/sysinfo
(GetHugePagesInfo, getNodeMemInfo, getDistances); spec: topology.md sections 3.1 and 3.4.
"""

from __future__ import annotations

import re
from typing import Final

from mooring.engine.core.errors import MooringError
from mooring.engine.core.gotext import INT64_MAX, INT64_MIN, GoSyntaxError, atoi, quote
from mooring.engine.core.machineinfo import HugePages, MemoryModules
from mooring.inputs.machines.tree import CPUS, Tree

UINT64_MAX: Final = 2**64 - 1

_SPACE: Final = "\t\n\v\f\r \x85\xa0"
"""What Go's unicode.IsSpace accepts below U+0100; Python's strip() would also take the ASCII separators."""
_SCANNED_SIGNED: Final = re.compile("[\t\v\f \x85\xa0]*([+-]?)([0-9]+)")
_SCANNED_UNSIGNED: Final = re.compile("[\t\v\f \x85\xa0]*()([0-9]+)")
_DIGITS: Final = {10: re.compile("[0-9]+"), 16: re.compile("[0-9a-fA-F]+")}


def trim(text: str) -> str:
    r"""Return ``text`` as strings.TrimSpace leaves it.

    >>> trim(" 12\n")
    '12'
    """
    return text.strip(_SPACE)


def parse_uint(text: str, *, base: int = 10, bits: int = 64) -> int:
    """Return the number that makes up the whole text, without a sign (strconv.ParseUint).

    Raises:
        GoSyntaxError: with strconv's text.

    >>> parse_uint("ff", base=16)
    255
    """
    if not _DIGITS[base].fullmatch(text):
        raise GoSyntaxError(f"strconv.ParseUint: parsing {quote(text)}: invalid syntax")
    # Python limits the length of what it converts, so the length is checked first. 64 bits have 20 decimal digits at
    # most.
    significant = text.lstrip("0") or "0"
    if len(significant) > 20 or (value := int(significant, base)) >> bits:
        raise GoSyntaxError(f"strconv.ParseUint: parsing {quote(text)}: value out of range")
    return value


def scan_int(text: str) -> int | None:
    r"""Return what ``fmt.Sscanf(text, "%d", &int64)`` reads, None when it fails; what follows the digits is ignored.

    >>> scan_int("-3\n"), scan_int("4K"), scan_int("x")
    (-3, 4, None)
    """
    value = _scan(_SCANNED_SIGNED, text)
    return value if value is not None and INT64_MIN <= value <= INT64_MAX else None


def scan_uint(text: str, *, suffix: str = "") -> int | None:
    r"""Return what ``fmt.Sscanf(text, "%d" + suffix, &uint64)`` reads, None when it fails.

    >>> scan_uint("512K\n", suffix="K"), scan_uint("512\n", suffix="K"), scan_uint("-1")
    (512, None, None)
    """
    value = _scan(_SCANNED_UNSIGNED, text, suffix)
    return value if value is not None and value <= UINT64_MAX else None


def _scan(pattern: re.Pattern[str], text: str, suffix: str = "") -> int | None:
    match = pattern.match(text)
    if match is None or not text.startswith(suffix, match.end()):
        return None
    digits = match[2].lstrip("0") or "0"
    if len(digits) > 20:
        return None
    return -int(digits) if match[1] == "-" else int(digits)


_CPU_ENTRY: Final = re.compile("cpu.*[0-9]", re.DOTALL)


class ProbeError(MooringError):
    """cAdvisor gives up on a part of the machine; the message is cAdvisor's."""


FAILURES: Final = (ProbeError, GoSyntaxError)
"""How a probe ends; numbers fail with strconv's text, which cAdvisor passes on."""


def read_or_fail(tree: Tree, path: str) -> str:
    """Return the text of a file that cAdvisor cannot do without.

    Raises:
        ProbeError: with the text of Go's os.ReadFile.
    """
    text = tree.read(path)
    if text is None:
        raise ProbeError(read_problem(tree, path))
    return text


def read_problem(tree: Tree, path: str) -> str:
    """Return what Go's os.ReadFile says about a file that cannot be read.

    The reason for a missing text is not in a tree, so it is derived from what stands in the place of the text.
    """
    parts = path.split("/")
    for depth in range(1, len(parts)):
        parent = "/".join(parts[:depth])
        if tree.exists(parent) and not tree.is_dir(parent):
            return f"open /{path}: not a directory"
    if tree.is_dir(path):
        return f"read /{path}: is a directory"
    return f"open /{path}: {'permission denied' if tree.exists(path) else 'no such file or directory'}"


def attribute(tree: Tree, path: str) -> str | None:
    """Return the trimmed text of a CPU attribute; None when there is no such file, which cAdvisor tolerates.

    Raises:
        ProbeError: the file is there but cannot be read.
    """
    text = tree.read(path)
    if text is not None:
        return trim(text)
    problem = read_problem(tree, path)
    if problem.endswith("no such file or directory"):
        return None
    raise ProbeError(problem)


def number_attribute(tree: Tree, path: str) -> int | None:
    """Return the signed decimal number in a CPU attribute (-1 is common); None when there is no such file.

    Raises:
        ProbeError, GoSyntaxError: the file cannot be read or holds no number.
    """
    text = attribute(tree, path)
    return None if text is None else atoi(text)


def cpu_entries(tree: Tree, folder: str) -> tuple[str, ...]:
    """Return the names in ``folder`` that match Go's glob ``cpu*[0-9]``, in text order (cpu0, cpu1, cpu10, cpu2)."""
    return tuple(name for name in tree.names(folder) if name.startswith("cpu") and _CPU_ENTRY.fullmatch(name))


def online_cpus(tree: Tree) -> int:
    """Return the mask of the CPUs in ``/sys/devices/system/cpu/online``, for :func:`is_online`.

    cAdvisor walks the list again for every CPU and stops at the first part that names it, so a CPU in front of a
    malformed part is online and all others are not. An empty or unreadable list makes every CPU offline; only a missing
    file means that the kernel cannot take CPUs offline: then it is -1, every CPU.
    """
    path = f"{CPUS}/online"
    text = tree.read(path)
    if text is None:
        return 0 if tree.exists(path) else -1
    mask = 0
    for part in trim(text).split(","):
        try:
            ends = [parse_uint(end, bits=16) for end in part.split("-", 2)]
        except GoSyntaxError:
            break
        if len(ends) == 3 or ends[0] > ends[-1]:
            break
        mask |= ((1 << (ends[-1] - ends[0] + 1)) - 1) << ends[0]
    return mask


def is_online(online: int, cpu: int) -> bool:
    """Tell whether cAdvisor takes a CPU for online; it keeps the id in 16 bits here."""
    return online >> (cpu & 0xFFFF) & 1 == 1


_MEMORY: Final = re.compile(r"MemTotal:[\t\n\f\r ]*([0-9]+) kB")
SWAP: Final = re.compile(r"SwapTotal:[\t\n\f\r ]*([0-9]+) kB")
_CONTROLLERS: Final = "sys/devices/system/edac/mc"
_CONTROLLER: Final = re.compile("mc[0-9]")
_MODULE: Final = re.compile("dimm[0-9]")


def memory_capacity(tree: Tree, field: re.Pattern[str] = _MEMORY) -> int:
    """Return MemTotal, or another field such as :data:`SWAP`, of ``/proc/meminfo`` in bytes.

    Raises:
        ProbeError, GoSyntaxError: the file is missing or does not say.
    """
    return _kib_field(read_or_fail(tree, "proc/meminfo"), field)


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
        ProbeError, GoSyntaxError: a name or a number of pages cannot be read.
    """
    pools = []
    for name in tree.names(folder):
        _, dash, rest = name.partition("-")
        if not dash:  # cAdvisor indexes the second part unchecked
            raise ProbeError("panic: runtime error: index out of range [1] with length 1")
        page_size = parse_uint(rest.split("-")[0].split("kB")[0])
        count = trim(read_or_fail(tree, f"{folder}/{name}/nr_hugepages"))
        pages = scan_uint(count)
        if pages is None:
            raise ProbeError(f"could not parse file nr_hugepage for {name}, contents {quote(count)}")
        pools.append(HugePages(page_size, pages))
    return tuple(pools)


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
            mebibytes = atoi(size)
            total = totals.setdefault(kind, [0, 0])
            total[0] = total[0] + mebibytes * 2**20 & UINT64_MAX
            total[1] += 1
    return tuple(MemoryModules(kind, capacity, count) for kind, (capacity, count) in sorted(totals.items()))


def _kib_field(text: str, field: re.Pattern[str]) -> int:
    match = field.search(text)
    if match is None:
        raise ProbeError(f"failed to match regexp in output: {quote(text)}")
    return parse_uint(match[1]) * 1024 & UINT64_MAX
