"""A check as SARIF, a result for each remark and a rule for each code; and as JUnit XML, a case for each pod.

Elements and attributes of JUnit are those of Jenkins' schema ``junit-10.xsd`` (jenkinsci/xunit-plugin), and ``file`` of
a case, to which GitLab links. Only failures of the check are failures: a pod that another node type admits is skipped
on those that reject it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from xml.etree import ElementTree as ET

from mooring import __version__
from mooring.answers.base.check.check import Case, Check, NodeType
from mooring.answers.base.check.remarks import Remark, place_of, rejection_words, remarks_of
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


_FORBIDDEN = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 cannot hold, escaped or not (section 2.2)."""


def junit_text(check: Check) -> str:
    """Return the XML of a check."""
    top = ET.Element("testsuites", name="mooring")
    for node_type in check.node_types:
        top.append(_suite(check, node_type))
    for count in ("tests", "failures", "errors"):
        top.set(count, str(sum(int(suite.get(count, "0")) for suite in top)))
    ET.indent(top)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(top, "unicode")


def _suite(check: Check, node_type: NodeType) -> ET.Element:
    cases = [_case(check, case) for case in check.cases if case.node_type is node_type]
    suite = ET.Element("testsuite", name=_xml(node_type.name), tests=str(len(cases)))
    for count, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(count, str(sum(case.find(tag) is not None for case in cases)))
    suite.set("time", "0")
    suite.extend(cases)
    return suite


def _case(check: Check, case: Case) -> ET.Element:
    origin = check.origins[case.pod.uid]
    found = ET.Element(
        "testcase",
        classname=_xml(case.node_type.name),
        name=_xml(f"{case.pod.namespace}/{case.pod.name}"),
        time="0",
        file=_xml(origin.document.file),
    )
    if case.admitted:
        return found
    words = _xml(rejection_words(check, case))
    if not check.is_failure(case):
        ET.SubElement(found, "skipped", message=words)
        return found
    place = place_of(case, origin)
    tag = "error" if case.allowed and case.node_type.plan.refusal is not None else "failure"
    outcome = ET.SubElement(found, tag, type=case.code, message=words)
    outcome.text = _xml(f"{place}: {place.field}: {words} [{case.code}]")
    return found


def _xml(text: str) -> str:
    return _FORBIDDEN.sub("\ufffd", text)
