"""The interrupts of ``mooring status``, for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

INTERRUPT_COLUMNS = ("interrupt", "device", "CPUs", "", "")
_DEFAULT = -1
"""The number that stands for where new interrupts begin."""


def interrupts_sentence(interrupts: Mapping[str, Any]) -> str:
    """Return the interrupts of a status document in one line.

    >>> row = {"number": 24, "name": "eth0", "cpus": "0-7", "wanted": "0-1,4-7", "why": "kept-away"}
    >>> told = {"mode": "dry-run", "total": 9, "managed": 2, "noRoom": 0, "moved": [], "pending": [row]}
    >>> interrupts_sentence({**told, "leftAlone": []})
    '9, dry run: 1 would move; 2 placed by the kernel'
    """
    dry = interrupts["mode"] == "dry-run"
    moved, pending, alone = (_numbered(interrupts[name]) for name in ("moved", "pending", "leftAlone"))
    parts = [f"{pending} would move" if dry else f"{moved} moved"]
    if pending and not dry:
        parts.append(f"{pending} could not be moved")
    if interrupts["managed"]:
        parts.append(f"{interrupts['managed']} placed by the kernel")
    if interrupts["noRoom"]:
        parts.append(f"{interrupts['noRoom']} without another CPU")
    if alone:
        parts.append(f"{alone} moved by another program and left alone")
    return f"{interrupts['total']}, {'dry run: ' if dry else ''}{'; '.join(parts)}"


def interrupt_rows(interrupts: Mapping[str, Any] | None) -> list[tuple[str, ...]]:
    """Return a row for each interrupt that is not, or would not be, where it was."""
    return [*_rows(interrupts)] if interrupts is not None else []


def _rows(interrupts: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    would = "would become" if interrupts["mode"] == "dry-run" else "could not become"
    for row in interrupts["pending"]:
        yield (*_named(row), f"{would} {row['wanted']}", row["why"])
    for row in interrupts["moved"]:
        yield (*_named(row), f"was {row['original']}", row["why"])
    for row in interrupts["leftAlone"]:
        yield (*_named(row), "left alone", "moved by another program")


def _named(row: Mapping[str, Any]) -> tuple[str, str, str]:
    return "new ones" if row["number"] == _DEFAULT else str(row["number"]), row["name"], row["cpus"]


def _numbered(rows: list[Mapping[str, Any]]) -> int:
    """Return how many interrupts there are among rows; where new ones begin is none."""
    return sum(row["number"] != _DEFAULT for row in rows)
