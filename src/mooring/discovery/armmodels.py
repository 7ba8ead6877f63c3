"""Models of ARM cores, read from the identification register that the kernel shows per CPU.

Source: Arm Architecture Reference Manual, MIDR_EL1; kernel Documentation/arch/arm64/cpu-feature-registers.rst.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final

from mooring.discovery.cores import CPUS
from mooring.discovery.tree import Tree

_ARCHITECTURES: Final = {1: "4", 2: "4T", 3: "5", 4: "5T", 5: "5TE", 6: "5TEJ", 7: "6", 15: "8"}
_NUMBER: Final = re.compile(r"[ \t]*(0[xX][0-9a-fA-F]{1,19}|[0-9]{1,20})")

_FIELDS: Final[tuple[tuple[str, int, int, Callable[[int], str]], ...]] = (
    ("CPUImplementer", 24, 0xFF, "0x{:02x}".format),
    ("CPUArchitecture", 16, 0xF, lambda value: _ARCHITECTURES.get(value, "unknown")),
    ("CPUVariant", 20, 0xF, "0x{:x}".format),
    ("CPUPart", 4, 0xFFF, "0x{:03x}".format),
    ("CPURevision", 0, 0xF, "{}".format),
)
"""Name, lowest bit, mask and printed form of each field."""


def read_model(tree: Tree, cpu: int) -> int:
    """Return the CPU's identification register; 0 when it is not shown."""
    match = _NUMBER.match((tree.read(f"{CPUS}/cpu{cpu}/regs/identification/midr_el1") or "")[:21])
    if match is None:
        return 0
    return int(match[1], 16) if match[1][:2] in {"0x", "0X"} else int(match[1])


def describe(model: int, models: Iterable[int]) -> dict[str, str]:
    """Return the fields of ``model`` in which ``models`` differ from one another.

    >>> describe(0x410FD871, [0x410FD871, 0x410FD851])
    {'CPUPart': '0xd87'}
    """
    return {
        name: form(model >> low & mask)
        for name, low, mask, form in _FIELDS
        if len({other >> low & mask for other in models}) > 1
    }
