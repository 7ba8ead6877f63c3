"""``mooring doctor --lint -o json``: what was found about the isolation of a machine, as a document."""

from __future__ import annotations

from collections.abc import Sequence

from mooring.core.machine import Finding
from mooring.documents.diagnosis import ExclusiveHolderPart, IsolationDocument
from mooring.documents.parts import finding_parts
from mooring.planner.isolation.holders import Assignments


def isolation_document(machine: str, assignments: Assignments, findings: Sequence[Finding]) -> IsolationDocument:
    """Return the document."""
    return IsolationDocument(
        machine=machine,
        exclusive=str(assignments.exclusive),
        shared_pool=str(assignments.shared),
        reserved=str(assignments.reserved),
        holders=[ExclusiveHolderPart(holder.label, holder.uid, str(holder.cpus)) for holder in assignments.holders],
        findings=finding_parts(findings),
    )
