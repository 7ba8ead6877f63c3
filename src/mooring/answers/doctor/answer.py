"""``mooring doctor -o json``: what is wrong with the state files, and the repair."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from mooring.documents.plan import (
    API_VERSION,
    APIVersion,
    Code,
    Count,
    CPUList,
    DocumentPart,
    FindingPart,
    KubeletRelease,
    Numbers,
    one_of,
    told,
)
from mooring.engine.core.pod import Pod

MISSING = "missing"
"""Stands for the format of a file that a repair makes."""


@dataclass(frozen=True, slots=True, order=True)
class EntryHolder:
    """An entry of a state file."""

    uid: str
    """Of the pod; empty for entries by container id."""
    container: str
    """Empty for what a pod holds as a whole."""


class EntryPart(DocumentPart):
    """An entry of a state file; the names are empty when no given pod has its uid."""

    uid: str
    namespace: str
    name: str
    container: Annotated[str, told("Empty for a pod as a whole.")]

    @property
    def holder(self) -> EntryHolder:
        """The entry without the names of its pod."""
        return EntryHolder(self.uid, self.container)


class ProblemPart(DocumentPart, dict=True):
    """Something that is wrong."""

    file = (
        ""  # The state file that it is about; empty for more than one. No member of the document, as files have theirs.
    )
    code: Code
    severity: Annotated[str, one_of("error", "warning", "note")]
    message: str
    cpus: CPUList
    numa_nodes: Numbers
    containers: list[EntryPart]


class StateFilePart(DocumentPart, dict=True):
    """One state file."""

    version = ""
    """Of its format, empty of a damaged one. No member: in the document it is a part of ``format``."""
    file: str
    exists: bool
    format: str
    sound: bool
    containers: Annotated[Count, told("How many containers have an entry that can be read.")]
    kubelet_message: Annotated[str, told("The kubelet's message about the file; empty when it takes it.")]
    problems: list[ProblemPart]


class DroppedEntryPart(EntryPart):
    """An entry that the repair leaves out."""

    held: str
    why: str


class RepairPart(DocumentPart):
    """What becomes of one state file."""

    file: str
    action: Annotated[str, one_of("replace", "delete")]
    text: Annotated[str, told("The new text; empty for a file that is deleted.")]
    kept: Annotated[int, told("How many containers keep what they have.")]
    dropped: list[DroppedEntryPart]
    changes: Annotated[list[str], told("A unified diff of what the file says, line by line.")]
    written: bool
    backup: Annotated[str, told("The copy of the old file; empty when nothing was written.")]


class RepairedEntryPart(EntryPart):
    """What a container has after the repair."""

    cpus: str
    refused: Annotated[str, told("Why the kubelet refuses its pod; empty when it does not.")]


class DiagnosisDocument(DocumentPart, kw_only=True):
    """What mooring doctor -o json prints: what is wrong with the state files, and the repair."""

    api_version: APIVersion = API_VERSION
    kind: Literal["Diagnosis"] = "Diagnosis"
    kubelet: KubeletRelease
    release: Annotated[str, told("The release for which the files are repaired.")]
    machine: str
    sound: bool
    starts: bool
    start_error: str
    start_error_stage: str
    remedy: Annotated[str, told("What to do if the configuration is wrong.")]
    files: list[StateFilePart]
    problems: Annotated[list[ProblemPart], told("About both files or none; those of one file are in its object.")]
    repairs: list[RepairPart]
    afterwards: Annotated[
        list[RepairedEntryPart], told("Running containers when the kubelet starts on the (repaired) files.")
    ]
    findings: Annotated[list[FindingPart], told("About the input.")]

    @property
    def all_problems(self) -> list[ProblemPart]:
        """Everything that is wrong, file by file."""
        return [*(problem for file in self.files for problem in file.problems), *self.problems]


def state_file(
    file: str, form: tuple[str, str], problems: list[ProblemPart], words: str, held: int = 0
) -> StateFilePart:
    """Return one state file.

    Args:
        file: its name.
        form: what it is in words, and the version of its format.
        problems: what is wrong with it.
        words: the kubelet's message about it.
        held: how many containers have an entry.
    """
    exists, sound = form[0] not in ("", MISSING), not any(one.severity == "error" for one in problems)
    part = StateFilePart(file, exists, ", ".join(filter(None, form)), sound, held, words, problems)
    part.version = form[1]
    return part


def dropped(holder: EntryHolder, held: str, why: str) -> DroppedEntryPart:
    """Return an entry that a repair gives up: what it held in words, and a clause that says why it cannot stay."""
    return DroppedEntryPart(holder.uid, "", "", holder.container, held, why)


def name_entries(entries: Iterable[EntryPart], pods: Mapping[str, Pod]) -> None:
    """Write the names of their pods into entries."""
    for one in entries:
        if pod := pods.get(one.uid):
            one.namespace, one.name = pod.namespace, pod.name
