"""The agent's own numbers as one value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Counts:
    """What happened since the agent started."""

    replies: int = 0
    reply_seconds: float = 0.0
    """Of all replies together."""
    rejections: int = 0
    evictions: int = 0
    repairs: int = 0
    reconnects: int = 0
    state_write_failures: int = 0
