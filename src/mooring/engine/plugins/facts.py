"""What plugins did, for an observer. CPU sets are masks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from mooring.engine.core.bits import CPUMask, NUMAMask
from mooring.lazy import dataclass


@dataclass(frozen=True, slots=True)
class PluginFiltered:
    """A plugin withheld CPUs."""

    pod: str
    container: str
    plugin: str
    cpus: CPUMask
    because: str


@dataclass(frozen=True, slots=True)
class PluginMadeRoom:
    """A plugin gave withheld CPUs back, because too few were left."""

    pod: str
    container: str
    plugin: str
    cpus: CPUMask
    because: str


@dataclass(frozen=True, slots=True)
class PluginScored:
    """A plugin gave scores to single CPUs."""

    pod: str
    container: str
    plugin: str
    levels: Mapping[float, CPUMask]
    """Score, times the plugin's weight -> mask of the CPUs with it; highest first."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One set that was proposed."""

    plugin: str
    """Who proposed it; empty for the host."""
    cpus: int
    hidden: int = 0
    scores: Mapping[str, float] | None = None
    """Plugin -> score of the set, times the plugin's weight; None when no plugin scored."""

    @property
    def score(self) -> float:
        """Sum of the scores."""
        return sum(self.scores.values()) if self.scores else 0.0


@dataclass(frozen=True, slots=True)
class PluginsChose:
    """Sets were proposed, and one of them was chosen."""

    pod: str
    container: str
    candidates: tuple[Candidate, ...]
    chosen: Candidate
    as_hint: bool = False
    """Whether only its NUMA nodes count, as a hint."""


@dataclass(frozen=True, slots=True)
class PluginChoseAffinity:
    """A plugin put other NUMA nodes in the place of the merged ones, or its hints decided between equally good ones."""

    pod: str
    container: str
    plugin: str
    merged: NUMAMask | None
    """Mask of the NUMA nodes without it."""
    nodes: NUMAMask | None


@dataclass(frozen=True, slots=True)
class PluginFailed:
    """A plugin's answer was left out."""

    pod: str
    container: str
    plugin: str
    point: str
    """The extension point; empty when time was over before any plugin was asked, and ``plugin`` has all names."""
    why: str
    """One sentence, without the plugin's name."""


PluginStep: TypeAlias = (
    PluginFiltered | PluginMadeRoom | PluginScored | PluginsChose | PluginChoseAffinity | PluginFailed
)
"""What a plugin did."""


def failures(facts: Iterable[object]) -> tuple[PluginFailed, ...]:
    """Return which plugins failed, among other facts."""
    return tuple(fact for fact in facts if isinstance(fact, PluginFailed))
