"""The receiver of facts.

A fact is a frozen value that says what one step of a decision found or chose; each room defines its own beside the
rule that emits it. Without an observer no fact is ever built, so explanations cost nothing when none is wanted.
"""

from __future__ import annotations

from typing import Protocol


class Observer(Protocol):
    """Anything that takes facts, such as ``list.append``."""

    def __call__(self, fact: object, /) -> None:
        """Receive one fact."""
