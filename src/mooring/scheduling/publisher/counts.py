"""What a publisher has done."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counts:
    """Changed by the publisher's thread alone; others may read each number at any time."""

    writes: int = 0
    """Complete ones."""
    failures: int = 0
    """Writes that were not."""
    changes: int = 0
    blind: int = 0
    """Looks at which nothing could be seen."""
    wakes: int = 0
    written_at: float | None = None
    """When the last write was complete, on the publisher's clock; None before the first."""
    bursts: int = 0
    """Bursts of changes that were written."""
    burst_cpu: float = 0.0
    """CPU seconds that these took together, from seeing to writing."""
