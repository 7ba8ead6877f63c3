"""``mooring doctor --lint -o json``: what was found about the isolation of a machine, as a versioned document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mooring.core.machine import Finding
from mooring.planner.isolation.holders import Assignments

API_VERSION = "mooring/v1alpha1"
KIND = "Isolation"


def isolation_document(machine: str, assignments: Assignments, findings: Sequence[Finding]) -> dict[str, Any]:
    """Return the document; it holds nothing but dicts, lists and texts."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "machine": machine,
        "exclusiveCPUs": str(assignments.exclusive),
        "sharedPool": str(assignments.shared),
        "reservedCPUs": str(assignments.reserved),
        "holders": [
            {"name": holder.label, "uid": holder.uid, "cpus": str(holder.cpus)} for holder in assignments.holders
        ],
        "findings": [finding.fields() for finding in findings],
    }
