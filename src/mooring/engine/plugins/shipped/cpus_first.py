"""CPUs first: with best-effort, the CPU manager's preferred NUMA nodes win over a merge that is not preferred.

When CPUs fit on one NUMA node and a device or memory only on another, best-effort takes a wider or foreign set and
counts it as not preferred; CPUs may then lie far from their own memory although they could have been together. The
overview article of the resource managers wants the CPUs' choice to win there. The host offers this only when the
merge is not preferred, and holds the answer to the CPU manager's own nodes; nothing is refused because of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from mooring.engine.plugins.shipped import check_fields
from mooring.engine.plugins.values import AffinityRequest, hookimpl


class CPUsFirst:
    """Chooses the NUMA nodes of the CPUs."""

    def __init__(self, settings: Mapping[str, object]) -> None:
        check_fields(settings, ())

    @hookimpl
    def choose_affinity(self, request: AffinityRequest) -> frozenset[int] | None:
        """Choose what the CPU manager alone would have, when that is preferred."""
        return request.of_cpus.nodes if request.of_cpus.preferred else None
