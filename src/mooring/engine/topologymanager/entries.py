"""From what providers answer to the entries of a merge.

Source: kubelet v1.37.1, topologymanager policy.go (filterProvidersHints); spec: topology-manager.md section 2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from mooring.engine.topologymanager.hints import DONT_CARE, NOT_POSSIBLE, Hints
from mooring.engine.topologymanager.wide import Family

AnyHints: TypeAlias = Hints | Family
"""Hints as a list, or described where there are too many to list."""

ResourceHints: TypeAlias = Mapping[str, AnyHints | None]
"""Resource -> hints of one provider; a None value is the kubelet's null list."""


def merge_entries(providers: Sequence[ResourceHints | None]) -> list[AnyHints]:
    """Flatten the hints of all providers into the entries of the merge, one for each resource.

    A provider without resources and a resource with a null list count as one "don't care"; an empty list counts as one
    hint that can never be preferred. Resources are taken in sorted order where the kubelet iterates over a map; the
    result of the merge does not depend on it.
    """
    entries: list[AnyHints] = []
    for provider in providers:
        if not provider:
            entries.append(DONT_CARE)
            continue
        for resource in sorted(provider) if len(provider) > 1 else provider:
            hints = provider[resource]
            if hints is None:
                entries.append(DONT_CARE)
            else:
                entries.append(hints or NOT_POSSIBLE)
    return entries
