"""A check as JUnit XML: a suite for each node type, a case for each pod.

Elements and attributes are those of Jenkins' schema ``junit-10.xsd`` (jenkinsci/xunit-plugin), and ``file`` of a
case, to which GitLab links. Only failures of the check are failures: a pod that another node type admits is skipped on
those that reject it.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from mooring.answers.base.check.check import Case, Check, NodeType
from mooring.answers.base.check.places import place_of
from mooring.answers.base.check.remarks import rejection_words

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
