"""Values in files of sysfs, understood as hwloc 2.14 understands them.

The kernel writes clean files, snapshots and containers do not always hold them: hwloc reads numbers as C does (what
stands behind the digits is ignored, no digits mean 0) and never complains. Where hwloc's answer is odd, it is kept,
because the recorded answers are hwloc's.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from mooring.inputs.machines.tree import Tree

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
