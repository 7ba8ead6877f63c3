"""Defects that Mooring had, put back one at a time."""

from __future__ import annotations


def put_back(name: str) -> None:
    """Bring a defect back into this process."""
    raise KeyError(name)
