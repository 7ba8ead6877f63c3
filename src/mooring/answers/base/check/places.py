"""Where in the manifests a case is decided: the pod, and the field that asks for what the node type cannot give."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from mooring.answers.base.answering import Answer
from mooring.answers.base.check.check import Case
from mooring.engine.core.machine import Finding
from mooring.engine.core.pod import Pod
from mooring.engine.cpumanager.facts import WholeCoresChecked
from mooring.engine.devicemanager.facts import DevicesTaken
from mooring.engine.memorymanager.facts import MemoryAssigned
from mooring.explain.story import Taking
from mooring.inputs.decoding.documents import positions_of
from mooring.inputs.decoding.files import STANDARD_INPUT
from mooring.inputs.pods.pod_files import PodOrigin

_TEMPLATE = re.compile(r"(?:^|\.)spec\b")
"""Begins the path from a workload to its template."""


@dataclass(frozen=True, slots=True)
class ManifestPlace:
    """A place in a file, and the field there."""

    file: str
    line: int
    column: int
    field: str = ""
    """From the top of the document."""

    def __str__(self) -> str:
        """File, line and column, as compilers write them."""
        return f"{self.file}:{self.line}:{self.column}"

    @property
    def uri(self) -> str:
        """The file as a URI, relative to the working directory if it is below; empty for standard input.

        >>> ManifestPlace("pods/my pod.yaml", 1, 1).uri
        'pods/my%20pod.yaml'
        """
        if self.file == STANDARD_INPUT:
            return ""
        path = Path(self.file)
        if path.is_absolute():
            here = Path.cwd()
            if not path.is_relative_to(here):
                return path.as_uri()
            path = path.relative_to(here)
        return quote(path.as_posix())


def place_of(case: Case, origin: PodOrigin) -> ManifestPlace:
    """Return where a case is decided: the field of a rejected pod if it is known, else the pod."""
    document, answer = origin.document, case.answer if case.allowed else None
    workload = _TEMPLATE.split(origin.field)[0]
    fields = [*_fields(answer, origin), f"{workload}.metadata.name".lstrip(".")]
    for field, position in positions_of(document, fields).items():
        if position is not None:
            return ManifestPlace(document.file, *position, field)
    return ManifestPlace(document.file, document.line, 1)


def _fields(answer: Answer | None, origin: PodOrigin) -> Iterator[str]:
    """Yield the field that decided, if there is one."""
    if answer is None or answer.admitted:
        return
    container, resource = decided_by(answer)
    container = container or _largest(answer.pod, resource)
    base = f"{origin.field}.spec" if origin.field else "spec"
    spec = origin.content.get("spec")
    for kind in ("containers", "initContainers"):
        for index, one in enumerate(spec.get(kind, ()) if isinstance(spec, dict) else ()):
            if one.get("name") == container:
                yield f"{base}.{kind}[{index}]{_resource_field(one, resource)}"


def _resource_field(container: Mapping[str, Any], resource: str) -> str:
    resources = container.get("resources") or {}
    for part in ("limits", "requests"):
        if resource in (resources.get(part) or {}):
            return f".resources.{part}.{resource}"
    return ""


def decided_by(answer: Answer) -> tuple[str, str]:
    """Return container and resource for which a pod is rejected; empty where no fact of the decision names them."""
    circumstances = answer.circumstances
    chapter = circumstances.refused_in
    rejection = answer.decision.rejection
    if rejection is not None and rejection.shortage is not None:
        return "", rejection.shortage.resource
    if chapter is None:
        return "", ""
    if chapter.refusal(WholeCoresChecked) or chapter.refusal(Taking):
        return chapter.container, "cpu"
    if (taken := chapter.refusal(DevicesTaken)) is not None:
        return chapter.container, taken.resource
    if chapter.refusal(MemoryAssigned) is not None:
        return chapter.container, "memory"
    stuck = next((one.resource for one in chapter.opinions if not one.suffices), "")
    return chapter.container, stuck


def _largest(pod: Pod, resource: str) -> str:
    """Return the container that requests most of a resource; empty if none requests it."""
    asking = [one for one in pod.containers if resource in one.requests]
    return max(asking, key=lambda one: one.requests[resource]).name if asking else ""


_PLACE = re.compile(r"(?P<file>.+?):(?P<line>\d+)(?::(?P<column>\d+))?: ")


def place_in(finding: Finding, files: Collection[str]) -> ManifestPlace | None:
    """Return the place with which the message of a finding begins; None if it names none of the files."""
    found = _PLACE.match(finding.message)
    if found is None or found["file"] not in files:
        return None
    return ManifestPlace(found["file"], int(found["line"]), int(found["column"] or 1))
