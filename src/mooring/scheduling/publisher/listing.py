"""The objects of an observation as one list, for people and for ``kubectl apply``."""

from __future__ import annotations

from typing import Any

from mooring.scheduling.facts_document import facts_document
from mooring.scheduling.publisher.observation import Observation, publication_of


def listing_of(seen: Observation) -> dict[str, Any]:
    """Return a v1 List of what a publisher would write, without times, so that it is the same each time."""
    made = publication_of(seen, sequence=0, moment=None)
    items = [facts_document(seen.facts), made.state, made.topology]
    return {"apiVersion": "v1", "kind": "List", "items": [item for item in items if item is not None]}
