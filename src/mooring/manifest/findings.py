"""Telling what is odd but understood, to whoever wants to know."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from mooring.core.machine import Finding

Report: TypeAlias = Callable[[Finding], object]
"""Receives findings one by one, such as ``list.append``."""


def ignore(_finding: Finding) -> None:
    """Take a finding and do nothing with it."""
