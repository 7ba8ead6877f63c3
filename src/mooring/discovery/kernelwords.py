"""CPU lists of the kernel's command line: isolcpus, nohz_full, rcu_nocbs.

Source: kernel Documentation/admin-guide/kernel-parameters.rst (cpu lists, isolcpus, nohz_full, rcu_nocbs).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from mooring.core.cpuset import HIGHEST_CPU, CPUSet

_FLAGS: Final = frozenset({"nohz", "domain", "managed_irq"})
_PART: Final = re.compile(r"(?P<first>\d{1,7}|N)(?:-(?P<last>\d{1,7}|N)(?::(?P<used>\d{1,7})/(?P<group>\d{1,7}))?)?")


@dataclass(frozen=True, slots=True)
class KernelWords:
    """What the command line says about CPUs that the kernel keeps quiet."""

    isolated: CPUSet = field(default_factory=CPUSet)
    """``isolcpus``: left out of the load balancing, unless its flags say less."""
    flags: tuple[str, ...] = ()
    """Flags of ``isolcpus``; without any, ``domain`` is meant."""
    tickless: CPUSet = field(default_factory=CPUSet)
    """``nohz_full``: no scheduler tick while one thread runs."""
    callbacks_elsewhere: CPUSet = field(default_factory=CPUSet)
    """``rcu_nocbs``, and the CPUs of ``nohz_full``, which imply it."""
    misunderstood: tuple[str, ...] = ()
    """Words whose list cannot be understood."""


def kernel_words(line: str, online: CPUSet) -> KernelWords:
    """Read a command line; of a word that is repeated the last one counts, as in the kernel.

    >>> words = kernel_words("quiet isolcpus=domain,managed_irq,2-3 nohz_full=2-N rcu_nocbs=1", CPUSet.parse("0-3"))
    >>> str(words.isolated), words.flags, str(words.tickless), str(words.callbacks_elsewhere)
    ('2-3', ('domain', 'managed_irq'), '2-3', '1-3')
    """
    given = _values(line)
    misunderstood: list[str] = []

    def cpus(name: str, text: str) -> CPUSet:
        found = parse_kernel_list(text, online) if text else CPUSet()
        if found is None:
            misunderstood.append(f"{name}={given[name]}")
        return found or CPUSet()

    flags, isolated = _split_flags(given.get("isolcpus", ""))
    tickless = cpus("nohz_full", given.get("nohz_full", ""))
    return KernelWords(
        cpus("isolcpus", isolated),
        flags,
        tickless,
        cpus("rcu_nocbs", given.get("rcu_nocbs", "")) | tickless,
        tuple(misunderstood),
    )


def parse_kernel_list(text: str, online: CPUSet) -> CPUSet | None:
    """Return the CPUs of a list of the command line; None when it cannot be understood.

    ``N`` is the highest CPU, ``all`` is every CPU, ``0-7:2/4`` the first two of every four.

    >>> machine = CPUSet.parse("0-15")
    >>> [str(parse_kernel_list(text, machine)) for text in ("1,4-6", "12-N", "0-15:1/4", "all", "x")]
    ['1,4-6', '12-15', '0,4,8,12', '0-15', 'None']
    """
    highest = max(online, default=0)
    if text == "all":
        return CPUSet.from_ids(range(highest + 1))
    found: set[int] = set()
    for part in text.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            return None
        first, last = (highest if end == "N" else int(end) for end in (match["first"], match["last"] or match["first"]))
        used, group = int(match["used"] or 1), int(match["group"] or 1)
        if last < first or last > HIGHEST_CPU or not 0 < used <= group:
            return None
        found.update(cpu for cpu in range(first, last + 1) if (cpu - first) % group < used)
    return CPUSet.from_ids(found)


def _values(line: str) -> dict[str, str]:
    """Return the words with a value; what stands behind ``--`` is for the first program, not for the kernel."""
    words = line.split()
    if "--" in words:
        words = words[: words.index("--")]
    return {name: value.strip('"') for name, sign, value in (word.partition("=") for word in words) if sign}


def _split_flags(text: str) -> tuple[tuple[str, ...], str]:
    """Return the flags of ``isolcpus`` and the list behind them."""
    parts = text.split(",")
    count = next((position for position, part in enumerate(parts) if part not in _FLAGS), len(parts))
    return tuple(parts[:count]), ",".join(parts[count:])
