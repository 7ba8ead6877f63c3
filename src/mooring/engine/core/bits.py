"""Bit masks as sets of small numbers: bit *i* set means that *i* is a member.

One Python integer serves a set of any width, so a machine of 4096 CPUs needs no other path than one of 4.

Source: kubelet v1.37.1, topologymanager/bitmask/bitmask.go; spec: topology-manager.md section 6.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    # Plain integers at run time, so that the algorithms cost what they cost with integers; two types for mypy.

    class CPUMask(int):
        """Bit *i* stands for CPU *i* of the operating system."""

        def __and__(self, other: int, /) -> CPUMask: ...
        def __rand__(self, other: int, /) -> CPUMask: ...
        def __or__(self, other: int, /) -> CPUMask: ...
        def __ror__(self, other: int, /) -> CPUMask: ...
        def __xor__(self, other: int, /) -> CPUMask: ...
        def __invert__(self) -> CPUMask: ...

    class NUMAMask(int):
        """Bit *i* stands for NUMA node *i*."""

        def __and__(self, other: int, /) -> NUMAMask: ...
        def __rand__(self, other: int, /) -> NUMAMask: ...
        def __or__(self, other: int, /) -> NUMAMask: ...
        def __ror__(self, other: int, /) -> NUMAMask: ...
        def __xor__(self, other: int, /) -> NUMAMask: ...
        def __invert__(self) -> NUMAMask: ...

else:
    CPUMask = NUMAMask = int

NO_CPUS: Final = CPUMask(0)
"""The empty set of CPUs."""
NO_NODES: Final = NUMAMask(0)
"""The empty set of NUMA nodes."""
_MANY: Final = 1024
"""Bits beyond which a mask is not taken apart, and members beyond which it is not put together, one by one: each step
copies the whole mask."""
_PART: Final = (1 << _MANY) - 1


def members(mask: int) -> Iterator[int]:
    """Yield the members of ``mask`` in ascending order.

    >>> list(members(0b10110))
    [1, 2, 4]
    """
    if mask > _PART:
        for first in range(0, mask.bit_length(), _MANY):
            for member in members((mask >> first) & _PART):
                yield first + member
        return
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def mask_of(numbers: Iterable[int]) -> int:
    """Return the mask whose members are ``numbers``.

    >>> mask_of([1, 2, 4])
    22
    """
    numbers = [*numbers]
    if len(numbers) >= _MANY and min(numbers) >= 0:
        octets = bytearray(max(numbers) // 8 + 1)
        for number in numbers:
            octets[number >> 3] |= 1 << (number & 7)
        return int.from_bytes(octets, "little")
    mask = 0
    for number in numbers:
        mask |= 1 << number
    return mask


def lowest(mask: CPUMask, count: int) -> CPUMask:
    """Return the ``count`` smallest members of ``mask`` as a mask.

    >>> list(members(lowest(0b110110, 3)))
    [1, 2, 4]
    """
    taken = NO_CPUS
    for _ in range(count):
        low = mask & -mask
        taken |= low
        mask ^= low
    return taken


def list_text(mask: int) -> str:
    """Return the Linux cpulist form: ascending, runs as ``a-b``, also for two neighbours.

    >>> list_text(0b110111)
    '0-2,4-5'
    """
    parts: list[str] = []
    while mask:
        first = (mask & -mask).bit_length() - 1
        run = ((mask >> first) + 1) & ~(mask >> first)  # the first zero above the run, as one bit
        length = run.bit_length() - 1
        parts.append(str(first) if length == 1 else f"{first}-{first + length - 1}")
        mask &= ~(((1 << length) - 1) << first)
    return ",".join(parts)
