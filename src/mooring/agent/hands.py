"""What the effects of an event are done with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mooring.agent.afterwards import Afterwards
from mooring.agent.assigned import AssignedFiles
from mooring.agent.cgroups.protocol import CGroups
from mooring.agent.metrics import AgentMetrics
from mooring.agent.reactor.effects import EventFor, Evict
from mooring.agent.store import Store


@dataclass(frozen=True, slots=True)
class Hands:
    """The state folder, control groups, and whoever is told."""

    store: Store
    cgroups: CGroups
    metrics: AgentMetrics
    afterwards: Afterwards
    log: Any
    verify: Callable[[tuple[str, ...]], object]
    """Verifies containers; called in the thread of ``afterwards``, and before a program is let run."""
    announce: Callable[[EventFor | Evict], object]
    """Tells the cluster; called in the thread of ``afterwards``."""
    files: AssignedFiles
    """Tell containers which CPUs they have."""
