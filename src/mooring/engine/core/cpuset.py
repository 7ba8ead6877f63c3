"""CPU sets: the immutable value in which everything about CPUs is said.

Source: k8s.io/utils/cpuset as used by kubelet v1.37.1 (text form and parse errors);
spec: topology.md section 6.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mooring.engine.core.bits import NO_CPUS, CPUMask, list_text, mask_of, members
from mooring.engine.core.errors import MooringError
from mooring.engine.core.gotext import GoSyntaxError, atoi, quote
from mooring.lazy import dataclass

HIGHEST_CPU = 1 << 20
"""Largest CPU id that a text may name. The kubelet has no such limit and runs out of memory instead."""


class CPUSetSyntaxError(MooringError):
    """A text that is not a CPU list; the message is the kubelet's."""


class CPUTooLargeError(CPUSetSyntaxError):
    """A CPU list with an id beyond :data:`HIGHEST_CPU`, which no machine has; the kubelet reads it."""


@dataclass(frozen=True, slots=True)
class CPUSet:
    """An immutable set of CPU ids (the operating system's numbers).

    >>> str(CPUSet.parse("0-3,8") | CPUSet.of(4))
    '0-4,8'
    >>> len(CPUSet.parse("0-3,8") - CPUSet.parse("2-3"))
    3
    """

    mask: CPUMask = NO_CPUS
    """Bit *i* is set when CPU *i* is a member."""

    def __post_init__(self) -> None:
        if not isinstance(self.mask, int):
            raise TypeError(f"CPUSet takes a mask; write CPUSet.parse({self.mask!r}) or CPUSet.of(0, 1)")

    @staticmethod
    def of(*cpus: int) -> CPUSet:
        """Return the set of the given CPU ids."""
        return CPUSet(CPUMask(mask_of(cpus)))

    @staticmethod
    def from_ids(cpus: Iterable[int]) -> CPUSet:
        """Return the set of the given CPU ids."""
        return CPUSet(CPUMask(mask_of(cpus)))

    @staticmethod
    def parse(text: str) -> CPUSet:
        """Read the Linux cpulist form as the kubelet does: no spaces, reversed ranges refused, duplicates merged.

        Raises:
            CPUSetSyntaxError: with the kubelet's text.
        """
        mask, beyond = NO_CPUS, ""
        if not text:
            return CPUSet()
        for part in text.split(","):
            first_text, dash, last_text = part.partition("-")
            try:
                first = atoi(first_text)
                last = atoi(last_text) if dash else first
            except GoSyntaxError as error:
                raise CPUSetSyntaxError(str(error)) from None
            if first > last:
                raise CPUSetSyntaxError(f"invalid range {quote(part)} ({first} > {last})")
            if last > HIGHEST_CPU:
                beyond = beyond or part
                continue
            mask |= ((1 << (last - first + 1)) - 1) << first
        if beyond:
            raise CPUTooLargeError(f"CPU ids must be between 0 and {HIGHEST_CPU}: {quote(beyond)}")
        return CPUSet(mask)

    def __str__(self) -> str:
        return list_text(self.mask)

    def __repr__(self) -> str:
        return f"CPUSet({list_text(self.mask)!r})"

    def __iter__(self) -> Iterator[int]:
        return members(self.mask)

    def __len__(self) -> int:
        return self.mask.bit_count()

    def __bool__(self) -> bool:
        return self.mask != 0

    def __contains__(self, cpu: int) -> bool:
        return cpu >= 0 and (self.mask >> cpu) & 1 == 1

    def __or__(self, other: CPUSet) -> CPUSet:
        return CPUSet(self.mask | other.mask)

    def __and__(self, other: CPUSet) -> CPUSet:
        return CPUSet(self.mask & other.mask)

    def __sub__(self, other: CPUSet) -> CPUSet:
        return CPUSet(self.mask & ~other.mask)

    def __le__(self, other: CPUSet) -> bool:
        return self.mask & ~other.mask == 0
