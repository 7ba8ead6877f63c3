"""What is wrong with a state file, as values."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, TypeAlias

from mooring.core.bits import CPUMask
from mooring.core.cpuset import CPUSet
from mooring.core.machineinfo import HIGHEST_NODE
from mooring.explain.phrases import nodes as node_words

Severity: TypeAlias = Literal["error", "warning", "note"]
"""``error``: the kubelet does not start, or promises what is not so. ``warning``: it starts, and somebody should know.
``note``: nothing needs to be done."""


@dataclass(frozen=True, slots=True, order=True)
class EntryHolder:
    """An entry of a state file."""

    uid: str
    """Of the pod; empty for entries by container id."""
    container: str
    """Empty for what a pod holds as a whole."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong."""

    code: str
    """``MOOR-3xx``; its page tells what it means."""
    severity: Severity
    file: str
    """Name of the state file; empty when it is about more than one."""
    message: str
    """One or two sentences."""
    holders: tuple[EntryHolder, ...] = ()
    """Entries that it concerns."""
    cpus: CPUSet = CPUSet()  # noqa: RUF009 - frozen
    """CPUs that it is about."""
    nodes: tuple[int, ...] = ()
    """NUMA nodes that it is about."""


def cpus_text(cpus: int) -> str:
    """Return CPUs, given as a mask, with their noun.

    >>> cpus_text(0b10), cpus_text(0b111)
    ('CPU 1', 'CPUs 0-2')
    """
    return f"CPU{'s' if cpus.bit_count() > 1 else ''} {CPUSet(CPUMask(cpus))}"


def numa_text(ids: Collection[int]) -> str:
    """Return NUMA nodes by their ids; a file can name some that no machine has.

    >>> numa_text((0, 1)), numa_text((2**60,)), numa_text(())
    ('NUMA nodes 0-1', 'NUMA node 1152921504606846976', 'no NUMA node')
    """
    if not ids:
        return "no NUMA node"
    if all(0 <= node <= HIGHEST_NODE for node in ids):
        return node_words(ids)
    return f"NUMA node{'s' if len(set(ids)) > 1 else ''} {','.join(map(str, sorted(set(ids))))}"
