"""What the node reports to an observer, beside the facts of its managers."""

from __future__ import annotations

from dataclasses import dataclass

from mooring.topologymanager.entries import ResourceHints


@dataclass(frozen=True, slots=True)
class HintsGiven:
    """The hints that all providers gave."""

    pod: str
    container: str
    """Empty in pod scope."""
    hints: ResourceHints


@dataclass(frozen=True, slots=True)
class PodRejected:
    """The admission failed."""

    pod: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class StaleStateRemoved:
    """Assignments of pods that are not active any more were dropped before the managers answered."""

    pods: tuple[str, ...]
