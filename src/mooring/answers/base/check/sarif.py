"""A check as SARIF: a result for each remark, a rule for each code, with its page."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from mooring import __version__
from mooring.answers.base.check.check import Check
from mooring.answers.base.check.remarks import Remark, remarks_of
from mooring.documents.sarif import (
    SarifArtifact,
    SarifConfiguration,
    SarifDocument,
    SarifDriver,
    SarifInvocation,
    SarifLocation,
    SarifLogicalLocation,
    SarifPhysicalLocation,
    SarifRegion,
    SarifResult,
    SarifRule,
    SarifRun,
    SarifText,
    SarifTool,
)
from mooring.engine.core.errors import clean
from mooring.explain.codes.pages import page
from mooring.explain.reason import NOT_SERVED


def sarif_document(check: Check) -> SarifDocument:
    """Return the document of a check."""
    remarks = remarks_of(check)
    codes = sorted({remark.code for remark in remarks})
    driver = SarifDriver(name="mooring", version=__version__, rules=[_rule(code) for code in codes])
    run = SarifRun(
        tool=SarifTool(driver=driver),
        invocations=[SarifInvocation(execution_successful=True)],
        column_kind="unicodeCodePoints",
        results=[_result(remark, codes) for remark in remarks],
    )
    return SarifDocument(runs=[run])


def _result(remark: Remark, codes: Sequence[str]) -> SarifResult:
    place = remark.place
    subject = SarifLogicalLocation(fully_qualified_name=clean(remark.subject), kind="resource")
    location = SarifLocation(logical_locations=[subject])
    if place is not None and place.uri:
        location.physical_location = SarifPhysicalLocation(
            artifact_location=SarifArtifact(uri=place.uri),
            region=SarifRegion(start_line=place.line, start_column=place.column),
        )
    return SarifResult(
        rule_id=remark.code,
        rule_index=codes.index(remark.code),
        level=remark.gravity,
        message=SarifText(text=remark.text),
        locations=[location],
        partial_fingerprints={"mooring/v1": _fingerprint(remark)},
        properties={"nodeTypes": list(remark.node_types)},
    )


def _fingerprint(remark: Remark) -> str:
    """Return what stays the same while lines are added above, and while sentences change."""
    place = (remark.place.uri, remark.place.field) if remark.place is not None else ()
    parts = (remark.code, remark.subject, *place, *remark.node_types)
    return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()[:32]


def _rule(code: str) -> SarifRule:
    """Return the rule of a code; the codes of rejections end with :data:`NOT_SERVED`."""
    found = page(code)
    meaning = found.text.partition("## What it means")[2].partition("\n## ")[0]
    return SarifRule(
        id=code,
        short_description=SarifText(text=found.title),
        full_description=SarifText(text=" ".join(meaning.split())),
        help=SarifText(text=found.text, markdown=found.text),
        default_configuration=SarifConfiguration(level="error" if code <= NOT_SERVED else "warning"),
    )
