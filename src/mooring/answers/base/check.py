"""Pods against node types: a case for each pod of the manifests and node type, in remarks, as SARIF and as JUnit XML.

The place of a case is the pod in the manifests, and the field that asks for what the node type cannot give.

Elements and attributes of JUnit are those of Jenkins' schema ``junit-10.xsd`` (jenkinsci/xunit-plugin), and ``file`` of
a case, to which GitLab links. Only failures of the check are failures: a pod that another node type admits is skipped
on those that reject it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote
from xml.etree import ElementTree as ET

from mooring import __version__
from mooring.answers.base.answering import Answer
from mooring.answers.base.plan import AnyPlan, Plan, RefusedPlan, start_error
from mooring.answers.base.plan_findings import DEVICES_NOT_DECLARED
from mooring.engine.core.errors import clean
from mooring.engine.core.machine import Finding, SourcePlace
from mooring.engine.core.pod import Pod
from mooring.explanations.codes import NOT_SERVED, POOL_EMPTY, page
from mooring.explanations.phrases import joined
from mooring.inputs.decoding.documents import located, positions_of
from mooring.inputs.decoding.files import STANDARD_INPUT
from mooring.inputs.pods.pod_files import PodOrigin
from mooring.inputs.pods.scheduling_fields import SchedulingFields, Taint, scheduling_fields_of

KEPT_AWAY = "MOOR-724"


@dataclass(frozen=True, slots=True)
class NodeType:
    """One kind of node, and its plan."""

    name: str
    plan: AnyPlan
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()

    @property
    def devices(self) -> frozenset[str]:
        """Resources of which it has devices."""
        if isinstance(self.plan, RefusedPlan):
            return frozenset()
        return frozenset(self.plan.kubelet.node.providers.devices.devices)

    @property
    def is_yes(self) -> bool:
        """Tell whether its kubelet starts and admits every pod, those that run included."""
        plan = self.plan
        return isinstance(plan, Plan) and not plan.unasked and all(answer.admitted for answer in plan.answers)


@dataclass(frozen=True, slots=True)
class Case:
    """What a node type does with one pod."""

    pod: Pod
    node_type: NodeType
    answer: Answer | None
    """None if the pod was not asked about."""
    allowed: bool = True
    """Whether node selector, required node affinity, tolerations and devices let the scheduler bind the pod there."""

    @property
    def name(self) -> str:
        """``namespace/pod``."""
        return f"{self.pod.namespace}/{self.pod.name}"

    @property
    def admitted(self) -> bool:
        """Tell whether the pod can run on the node type."""
        return self.allowed and self.answer is not None and self.answer.admitted

    @property
    def code(self) -> str:
        """The code of the answer; of a pod that was not asked about that of the refusal, or of the last answer."""
        if not self.allowed:
            return KEPT_AWAY
        if self.answer is not None:
            return self.answer.code
        plan = self.node_type.plan
        return plan.refusal.code if isinstance(plan, RefusedPlan) else plan.answers[-1].code

    @property
    def why(self) -> str:
        """In words why the pod does not run there."""
        if not self.allowed:
            return "Its node selector, required node affinity, tolerations or devices do not allow this node type."
        if self.answer is not None:
            return self.answer.why
        error = start_error(self.node_type.plan)
        return f"The kubelet would not start: {error}" if error else "It comes after the last pod asked about."


@dataclass(frozen=True)
class Check:
    """The answer to "do these pods fit on these node types?"."""

    node_types: tuple[NodeType, ...]
    origins: Mapping[str, PodOrigin]
    """Uid of each pod of the manifests -> where it is described."""
    alone: bool = False
    """Whether each pod was asked about without the others; then labels and taints count."""
    settings: str = ""
    """The file that configures the node types; empty if there is none."""

    @cached_property
    def cases(self) -> tuple[Case, ...]:
        """Every pod of the manifests on every node type, one node type after another."""
        found = []
        for one in self.node_types:
            asked = [(answer.pod, answer) for answer in one.plan.answers]
            for pod, answer in (*asked, *((pod, None) for pod in one.plan.unasked)):
                if pod.uid not in self.origins:
                    continue
                allowed = True
                if self.alone:
                    fields = self._fields[id(self.origins[pod.uid])]
                    wanted = {name for container in pod.containers for name in container.limits}
                    lacking = wanted & self._devices - one.devices
                    allowed = not lacking and fields.allows(one.labels, one.name) and fields.tolerates(one.taints)
                found.append(Case(pod, one, answer, allowed))
        return tuple(found)

    @cached_property
    def _devices(self) -> frozenset[str]:
        """Resources of which at least one node type declares devices: the others are known to have none."""
        return frozenset().union(*(one.devices for one in self.node_types))

    @cached_property
    def _fields(self) -> Mapping[int, SchedulingFields]:
        """What the scheduler reads of the pods, once for all replicas."""
        found: dict[int, SchedulingFields] = {}
        for origin in {id(one): one for one in self.origins.values()}.values():
            with located(origin.document):
                found[id(origin)] = scheduling_fields_of(origin.content, origin.field)
        return found

    @cached_property
    def admitted_by(self) -> Mapping[str, tuple[str, ...]]:
        """Uid of each pod that a node type admits -> the names of these node types."""
        names: dict[str, tuple[str, ...]] = {}
        for case in self.cases:
            if case.admitted:
                names[case.pod.uid] = (*names.get(case.pod.uid, ()), case.node_type.name)
        return names

    @cached_property
    def is_yes(self) -> bool:
        """Tell whether one node type admits everything; of pods that are alone, whether one admits each."""
        if self.alone:
            return all(case.pod.uid in self.admitted_by for case in self.cases)
        return any(node_type.is_yes for node_type in self.node_types)

    def is_failure(self, case: Case) -> bool:
        """Tell whether a case is a reason for the answer no: a rejection that no other node type makes good.

        Of a node type where the pod may not run only if there is none where it may.
        """
        if case.admitted or not (case.allowed or case.pod.uid not in self._allowed_somewhere):
            return False
        return case.pod.uid not in self.admitted_by if self.alone else not self.is_yes

    @cached_property
    def _allowed_somewhere(self) -> frozenset[str]:
        return frozenset(case.pod.uid for case in self.cases if case.allowed)

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """Findings of the plans, each once."""
        found = (finding for one in self.node_types for finding in one.plan.findings)
        elsewhere = self._devices if self.alone else frozenset()
        return tuple(
            dict.fromkeys(one for one in found if not (one.code == DEVICES_NOT_DECLARED and one.subject in elsewhere))
        )


Remark: TypeAlias = tuple[Finding, tuple[str, ...]]
"""One thing that a check says, of severity ``error`` where it is a reason for the answer no, and its node types."""


def remarks_of(check: Check) -> Iterator[Remark]:
    """Yield what a check says, rejections first: each rejected pod and node type, refused start and warning.

    Replicas that are rejected alike share one. A node type on which a pod may not run is passed over, unless the pod
    fails everywhere.
    """
    settings = SourcePlace(check.settings, 1, 1) if check.settings else None
    alike: dict[tuple[int, str, str, str], list[Case]] = {}
    for case in check.cases:
        has_answer = not case.allowed or isinstance(case.node_type.plan, Plan)
        if not case.admitted and has_answer and (case.allowed or check.is_failure(case)):
            origin = check.origins[case.pod.uid]
            alike.setdefault((id(origin), case.node_type.name, case.code, case.why), []).append(case)
    for cases in alike.values():
        first = cases[0]
        severity = "error" if any(check.is_failure(case) for case in cases) else "warning"
        words, where = rejection_words(check, first, len(cases)), place_of(first, check.origins[first.pod.uid])
        yield Finding(severity, first.name, words, first.code, where), (first.node_type.name,)
    for one in check.node_types:
        if isinstance(one.plan, RefusedPlan):
            text = clean(f"The kubelet of node type {one.name} would not start: {one.plan.refusal.message}")
            severity = "warning" if check.is_yes else "error"
            yield Finding(severity, one.name, text, one.plan.refusal.code, settings), (one.name,)
    files = {origin.document.file for origin in check.origins.values()} | {check.settings}
    for finding in check.findings:
        if finding.code and finding.severity == "warning":
            known = finding.place if finding.place and finding.place.line and finding.place.file in files else None
            place = replace(known, column=known.column or 1) if known else settings
            text = finding.message if known else f"{finding.subject}: {finding.message}"
            severity = "error" if finding.code == POOL_EMPTY else "warning"
            node_types = tuple(one.name for one in check.node_types if finding in one.plan.findings)
            yield replace(finding, severity=severity, message=clean(text), place=place), node_types


def rejection_words(check: Check, case: Case, replicas: int = 1) -> str:
    """Return what is said of a rejected pod: the kubelet's reason, why, what to do, and which node types admit it.

    Args:
        check: the check.
        case: of the pod.
        replicas: how many pods are rejected alike, this one included.
    """
    who = f"{case.name} and {replicas - 1} more of its replicas are" if replicas > 1 else f"{case.name} is"
    verb = "rejected on" if case.allowed else "kept away from"
    answer = case.answer if case.allowed else None
    reason = f" ({answer.decision.reason})" if answer is not None and answer.decision.reason else ""
    sentences = [f"{who} {verb} node type {case.node_type.name}{reason}. {case.why}"]
    sentences += [answer.remedy] if answer is not None and answer.remedy else []
    if admitted := check.admitted_by.get(case.pod.uid):
        sentences.append(f"Node type {joined(admitted)} admits it.")
    return clean(" ".join(sentences))


def _uri(place: SourcePlace) -> str:
    """Return the file of a place as a URI, relative to the working directory if it is below; empty for standard input.

    >>> _uri(SourcePlace("pods/my pod.yaml"))
    'pods/my%20pod.yaml'
    """
    if place.file == STANDARD_INPUT:
        return ""
    path = Path(place.file)
    if path.is_absolute():
        here = Path.cwd()
        if not path.is_relative_to(here):
            return path.as_uri()
        path = path.relative_to(here)
    return quote(path.as_posix())


def place_of(case: Case, origin: PodOrigin) -> SourcePlace:
    """Return where a case is decided: the field of a rejected pod if it is known, else the pod."""
    document, answer = origin.document, case.answer if case.allowed else None
    # With its spec begins the path from a workload to its template.
    workload = re.split(r"(?:^|\.)spec\b", origin.field)[0]
    fields = [*_fields(answer, origin), f"{workload}.metadata.name".lstrip(".")]
    for path, position in positions_of(document, fields).items():
        if position is not None:
            return SourcePlace(document.file, *position, path)
    return SourcePlace(document.file, document.line, 1)


def _fields(answer: Answer | None, origin: PodOrigin) -> Iterator[str]:
    """Yield the field that decided, if there is one."""
    if answer is None or answer.admitted:
        return
    container, resource = answer.decided_for
    asking = [one for one in answer.pod.containers if resource in one.requests]
    container = container or max(asking, key=lambda one: one.requests[resource]).name if asking else container
    base = f"{origin.field}.spec" if origin.field else "spec"
    spec = origin.content.get("spec")
    for kind in ("containers", "initContainers"):
        for index, one in enumerate(spec.get(kind, ()) if isinstance(spec, dict) else ()):
            if one.get("name") == container:
                resources = one.get("resources") or {}
                parts = (part for part in ("limits", "requests") if resource in (resources.get(part) or {}))
                yield f"{base}.{kind}[{index}]{next((f'.resources.{part}.{resource}' for part in parts), '')}"


def sarif_document(check: Check) -> dict[str, Any]:
    """Return a check as SARIF 2.1.0, for code scanning: a sarifLog (section 3.13) with the parts that a check fills.

    Source: OASIS, Static Analysis Results Interchange Format Version 2.1.0. Members are named as there.
    """
    remarks = [*remarks_of(check)]
    codes = sorted({remark.code for remark, _ in remarks})
    rules = []
    for code in codes:
        found = page(code)
        meaning = found.text.partition("## What it means")[2].partition("\n## ")[0]
        # A reportingDescriptor (3.49); codes of rejections end with NOT_SERVED.
        rules.append(
            {
                "id": code,
                "shortDescription": {"text": found.title},
                "fullDescription": {"text": " ".join(meaning.split())},
                "help": {"text": found.text, "markdown": found.text},
                "defaultConfiguration": {"level": "error" if code <= NOT_SERVED else "warning"},
            }
        )
    driver = {"name": "mooring", "version": __version__, "rules": rules}
    run = {
        "tool": {"driver": driver},
        "invocations": [{"executionSuccessful": True}],
        "columnKind": "unicodeCodePoints",
        "results": [_result(remark, codes) for remark in remarks],
    }
    return {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}


def _result(remark: Remark, codes: Sequence[str]) -> dict[str, Any]:
    """Return a result (section 3.27); URIs are relative to the root of the repository, regions count from 1."""
    (found, node_types), location = remark, {}
    place = found.place
    if place is not None and _uri(place):
        region = {"startLine": place.line, "startColumn": place.column}
        location["physicalLocation"] = {"artifactLocation": {"uri": _uri(place)}, "region": region}
    # What stays the same while lines are added above, and while sentences change.
    parts = (found.code, found.subject, *((_uri(place), place.field) if place is not None else ()))
    digest = hashlib.sha256("\0".join((*parts, *node_types)).encode("utf-8", "replace")).hexdigest()
    subject = {"fullyQualifiedName": clean(found.subject), "kind": "resource"}
    return {
        "ruleId": found.code,
        "ruleIndex": codes.index(found.code),
        "level": found.severity,
        "message": {"text": found.message},
        "locations": [{**location, "logicalLocations": [subject]}],
        "partialFingerprints": {"mooring/v1": digest[:32]},
        "properties": {"nodeTypes": list(node_types)},
    }


def junit_text(check: Check) -> str:
    """Return the XML of a check."""
    top = ET.Element("testsuites", name="mooring")
    for node_type in check.node_types:
        cases = [_case(check, case) for case in check.cases if case.node_type is node_type]
        suite = ET.SubElement(top, "testsuite", name=_xml(node_type.name), tests=str(len(cases)))
        for count, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            suite.set(count, str(sum(case.find(tag) is not None for case in cases)))
        suite.set("time", "0")
        suite.extend(cases)
    for count in ("tests", "failures", "errors"):
        top.set(count, str(sum(int(suite.get(count, "0")) for suite in top)))
    ET.indent(top)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(top, "unicode")


def _case(check: Check, case: Case) -> ET.Element:
    origin = check.origins[case.pod.uid]
    found = ET.Element(
        "testcase",
        classname=_xml(case.node_type.name),
        name=_xml(case.name),
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
    tag = "error" if case.allowed and isinstance(case.node_type.plan, RefusedPlan) else "failure"
    outcome = ET.SubElement(found, tag, type=case.code, message=words)
    outcome.text = _xml(f"{place}: {place.field}: {words} [{case.code}]")
    return found


def _xml(text: str) -> str:
    """Return a text in which what XML 1.0 cannot hold, escaped or not (section 2.2), is replaced."""
    return re.sub("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", text)
