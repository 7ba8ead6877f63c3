"""Values in files of sysfs, understood as hwloc 2.14 understands them.

The kernel writes clean files, snapshots and containers do not always hold them: hwloc reads numbers as C does (what
stands behind the digits is ignored, no digits mean 0) and never complains. Where hwloc's answer is odd, it is kept,
because the recorded answers are hwloc's.

What must be known about a machine besides sysfs to see it as hwloc does.

hwloc knows the architecture of a snapshot only from the note that hwloc-gather-topology leaves in it
(``proc/hwloc-nofile-info``), and works around three processors that it recognises in ``proc/cpuinfo``, on x86 only.

Which CPUs and memory nodes the snapshot's own control group may use.

A snapshot is taken by some process, and the files of its cpuset are part of it: on a machine where a batch job took the
snapshot, hwloc shows what the job could use. Source: kernel Documentation/admin-guide/cgroup-v1/cpusets.rst and
cgroup-v2.rst; hwloc 2.14 for the order of search.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from mooring.engine.core.bits import CPUMask
from mooring.engine.core.cpuset import CPUSet, CPUSetSyntaxError
from mooring.inputs.machines.tree import Tree
from mooring.lazy import dataclass

HIGHEST_ID: Final = 65535
"""Highest CPU or node that a file may name; the kernel's own limit is 8192 CPUs (NR_CPUS) and 1024 nodes."""

_SPACE: Final = r"[ \t\n\v\f\r]*"
_CLEAN_MASK: Final = re.compile(r"[0-9a-f]{1,8}(?:,[0-9a-f]{8})*\n?")
_MASK_WORD: Final = re.compile(_SPACE + r"([+-]?)(?:0[xX](?=[0-9a-fA-F]))?([0-9a-fA-F]+)")
_C_NUMBER: Final = re.compile(_SPACE + r"([+-]?)(?:0[xX]([0-9a-fA-F]+)|(0[0-7]*)|([1-9][0-9]*))")
_DECIMAL: Final = re.compile(_SPACE + r"([+-]?[0-9]+)")
_UINT64: Final = (1 << 64) - 1
_MASK_CHARS: Final = (HIGHEST_ID + 1) // 32 * 9
"""A longer mask names CPUs beyond ``HIGHEST_ID``."""


@lru_cache(maxsize=1024)
def parse_mask(text: str) -> int | None:
    r"""Read a ``cpumap``: comma-separated 32-bit words in hexadecimal, the highest first.

    Reading stops at the first word that is no number. None when CPUs beyond ``HIGHEST_ID`` are named.

    >>> parse_mask("0000,00000001,0000000f\n") == 1 << 32 | 0b1111
    True
    >>> parse_mask("nothing")
    0
    """
    if len(text) > _MASK_CHARS:
        return None
    if _CLEAN_MASK.fullmatch(text):
        return int(text.replace(",", ""), 16)
    words: list[int] = []
    position = 0
    while match := _MASK_WORD.match(text, position):
        word = min(int(match[2], 16), _UINT64)
        words.append(-word & _UINT64 if match[1] == "-" else word)
        comma = text.find(",", match.end())
        if comma < 0:
            break
        position = comma + 1
    mask = 0
    words.reverse()
    # hwloc joins two words to 64 bits and lets oversized words overlap there, nowhere else.
    for index in range(0, len(words), 2):
        high = words[index + 1] << 32 if index + 1 < len(words) else 0
        mask |= ((words[index] | high) & _UINT64) << (32 * index)
    return mask


def mask_text(mask: int) -> str:
    """Return a mask as the kernel writes it: words of 32 bits in hexadecimal, the highest first.

    >>> mask_text(1 << 32 | 15)
    '00000001,0000000f'
    """
    words = [f"{mask >> shift & 0xFFFFFFFF:08x}" for shift in range(0, max(mask.bit_length(), 1), 32)]
    return ",".join(reversed(words))


@lru_cache(maxsize=256)
def parse_list(text: str) -> int | None:
    r"""Read a ``cpulist``: numbers and ranges in ascending order.

    An empty list names CPU 0, because hwloc finds no digits and reads 0; what is out of order is lost. None
    when an id is negative or beyond ``HIGHEST_ID``.

    >>> [bin(parse_list(text)) for text in ("0-2,4\n", "\n", "4,0-2")]
    ['0b10111', '0b1', '0b0']
    """
    mask = -1  # all CPUs: hwloc starts there and clears the gaps
    last = -1
    for part in text.split(","):
        first, end = c_number(part)
        if first > HIGHEST_ID:
            return None
        if first > last:
            mask &= ~((1 << first) - (1 << (last + 1)))
        last = c_number(part, end + 1)[0] if part[end : end + 1] == "-" else first
        if last > HIGHEST_ID:
            return None
    return mask & ((1 << (last + 1)) - 1)


def c_number(text: str, position: int = 0) -> tuple[int, int]:
    """Read the number at ``position`` as C's strtoull with base 0, and return it with where it ends.

    Without digits it is 0 and ends where it starts; a negative one is taken modulo 2**64, a too large one is 2**64 - 1.

    >>> [c_number(text) for text in ("12 k", "0x1f", "010", "-1", "k")]
    [(12, 2), (31, 4), (8, 3), (18446744073709551615, 2), (0, 0)]
    """
    match = _C_NUMBER.match(text, position)
    if match is None:
        return 0, position
    digits, base = (match[2], 16) if match[2] else (match[3], 8) if match[3] else (match[4], 10)
    value = min(int(digits, base), _UINT64) if len(digits) <= 24 else _UINT64
    return (-value & _UINT64 if match[1] == "-" else value), match.end()


def read_mask(tree: Tree, path: str) -> int | None:
    """Return the CPUs in a mask file; None when there is none that can be read."""
    text = tree.read(path)
    return None if text is None else parse_mask(text)


def read_list(tree: Tree, path: str) -> int | None:
    """Return the CPUs or nodes in a list file; None when there is none that can be read."""
    text = tree.read(path)
    return None if text is None else parse_list(text)


def cpus_of_mask(tree: Tree, path: str) -> CPUSet | None:
    """Return the CPUs of a mask file; None when there is none that can be read."""
    mask = read_mask(tree, path)
    return None if mask is None else CPUSet(CPUMask(mask))


def cpu_list(text: str | None) -> CPUSet | None:
    """Return the CPUs of a list; None for no text, or one that is no list."""
    if text is None:
        return None
    try:
        return CPUSet.parse(text.strip())
    except CPUSetSyntaxError:
        return None


def read_int(tree: Tree, path: str) -> int | None:
    """Return the number in a file as C's int: ten characters count, no digits mean 0; None for no or an empty file."""
    value = _decimal(tree.read(path))
    return None if value is None else (value + 2**31) % 2**32 - 2**31


def read_uint(tree: Tree, path: str) -> int | None:
    """Return the number in a file as C's unsigned int, as :func:`read_int` else."""
    value = _decimal(tree.read(path))
    return None if value is None else value % 2**32


def _decimal(text: str | None) -> int | None:
    if not text:
        return None
    match = _DECIMAL.match(text[:10])
    return int(match[1]) if match else 0


_DEFAULT_PAGE_BYTES: Final = 4096
"""hwloc's assumption about a snapshot that does not tell (topology-linux.c, hwloc_gather_system_info)."""
_BLOCK_CHARS: Final = 65536
"""More than cpuinfo ever says of one processor."""


@dataclass(frozen=True, slots=True)
class Quirks:
    """Facts that change how files are understood."""

    is_x86: bool = False
    is_arm: bool = False
    is_power: bool = False
    is_s390: bool = False
    is_knights_landing: bool = False
    """Xeon Phi x200 (Knights Landing, Knights Mill): CPU-less nodes are on-package memory of their neighbours."""
    has_compute_units: bool = False
    """AMD families 15h and 16h: the kernel lists two cores of one compute unit as siblings of one core."""
    has_one_kind: bool = False
    """Other AMD processors before Zen 5: never hybrid, and reading their clocks is slow, so hwloc does not."""
    has_fake_numa: bool = False
    """Booted with ``numa=fake``: nodes share their CPUs, and HMAT still describes the real ones."""
    page_bytes: int = _DEFAULT_PAGE_BYTES


def read_quirks(tree: Tree) -> Quirks:
    """Find out what hwloc would find out before it looks at any CPU."""
    machine, page_bytes = _system(tree)
    is_x86 = machine in {"x86_64", "k1om"} or (machine[:1] == "i" and machine[2:] == "86")
    vendor, family, model = _first_processor(tree) if is_x86 else ("", "", "")
    is_amd = vendor == "AuthenticAMD" and family.isascii() and family.isdigit()
    has_compute_units = is_amd and family in {"21", "22"}
    return Quirks(
        is_x86=is_x86,
        is_arm=machine == "aarch64" or machine.startswith("arm"),
        is_power=machine.startswith(("ppc", "power")),
        is_s390=machine.startswith("s390"),
        is_knights_landing=vendor == "GenuineIntel" and family == "6" and model in {"87", "133"},
        has_compute_units=has_compute_units,
        has_one_kind=is_amd and not has_compute_units and int(family[:9]) < 0x1A,
        has_fake_numa="numa=fake=" in (tree.read("proc/cmdline") or "")[:4096].partition("\n")[0],
        page_bytes=page_bytes,
    )


def _system(tree: Tree) -> tuple[str, int]:
    """Return the machine as uname gives it ("" when unknown) and the size of a page in bytes."""
    if tree.is_live:
        return os.uname().machine, os.sysconf("SC_PAGE_SIZE")
    machine, page_bytes = "", 0
    for line in (tree.read("proc/hwloc-nofile-info") or "").splitlines():
        key, colon, value = line.partition(": ")
        if colon and key == "Architecture":
            machine = value
        elif colon and key == "PageSize" and value.isascii() and value.isdigit() and len(value) < 20:
            page_bytes = int(value)
    return machine, page_bytes or _DEFAULT_PAGE_BYTES


def _first_processor(tree: Tree) -> tuple[str, str, str]:
    """Return vendor, family and model of the first processor in cpuinfo; "" for what is not told."""
    text = tree.read("proc/cpuinfo") or ""
    start = 0 if text.startswith("processor") else text.find("\nprocessor") + 1
    if not text.startswith("processor", start):
        return "", "", ""
    found = {"vendor_id": "", "cpu family": "", "model": ""}
    block = text[start : start + _BLOCK_CHARS].partition("\n\n")[0]
    for index, line in enumerate(block.split("\n")):
        key, colon, value = line[:127].partition(":")
        key = key.rstrip(" \t")
        if key == "processor" and index:
            break
        if colon and key in found:
            found[key] = value.lstrip(" \t")
    return found["vendor_id"], found["cpu family"], found["model"]


_LINE_CHARS: Final = 4096
_PATH_CHARS: Final = 255
"""hwloc reads no longer lines of the mount table and opens no longer paths."""
_ESCAPE: Final = re.compile(r"\\(040|011|012|134)")


def cpuset_files(tree: Tree) -> tuple[str, ...]:
    """Return the files that decide of what is allowed, besides mount table and group."""
    folders = [folder for folder, kind, _ in _mounts(tree) if kind == "cgroup2"]
    return (*(f"{folder}/cgroup.controllers".lstrip("/") for folder in folders), *allowed_files(tree))


def allowed_files(tree: Tree) -> tuple[str, ...]:
    """Return the files with the CPUs and with the memory nodes of the process's cpuset; none without one."""
    files = _file_pattern(tree)
    # The path of the process's group below the mount, as the kernel tells it in one of two files
    group: str | None = (tree.read("proc/self/cpuset") or "")[:127]
    if not group:
        lines = (line.split(":", 2) for line in (tree.read("proc/self/cgroup") or "").split("\n"))
        group = next((parts[2] for parts in lines if len(parts) == 3 and parts[1] in {"cpuset", ""}), None)
    if files is None or group is None:
        return ()
    folder, pattern = files
    place = folder + group.partition("\n")[0]
    return tuple(f"{place}/{pattern.format(what)}"[:_PATH_CHARS].lstrip("/") for what in ("cpus", "mems"))


def _file_pattern(tree: Tree) -> tuple[str, str] | None:
    """Return where cpusets are mounted and how their files are called; None when they are not.

    The first suitable line of the mount table decides: cgroup 2 with the cpuset controller (the effective sets include
    the limits of all parents), a cpuset file system, or cgroup 1 with the cpuset controller.
    """
    for folder, kind, options in _mounts(tree):
        if kind == "cgroup2":
            controllers = tree.read(f"{folder}/cgroup.controllers".lstrip("/")) or ""
            if "cpuset" in controllers.partition("\n")[0].split(" "):
                return folder, "cpuset.{}.effective"
        elif kind == "cpuset" or (kind == "cgroup" and {"cpuset", "noprefix"} <= options):
            return folder, "{}"
        elif kind == "cgroup" and "cpuset" in options:
            return folder, "cpuset.{}"
    return None


def _mounts(tree: Tree) -> Iterator[tuple[str, str, set[str]]]:
    """Yield folder, kind and options of what is mounted, without the octal escapes (space, tab, newline, backslash)."""
    for line in (tree.read("proc/mounts") or "").split("\n"):
        fields = [_ESCAPE.sub(lambda match: chr(int(match[1], 8)), field) for field in line[:_LINE_CHARS].split()]
        if len(fields) > 2 and not line.lstrip().startswith("#"):
            yield fields[1], fields[2], set(fields[3].split(",")) if len(fields) > 3 else set()
