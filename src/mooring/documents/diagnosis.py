"""``mooring doctor -o json``: what is wrong with the state files; ``--lint``: what else may run on exclusive CPUs."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from mooring.documents.parts import (
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
)


class EntryPart(DocumentPart):
    """An entry of a state file; the names are empty when no given pod has its uid."""

    uid: str
    namespace: str
    name: str
    container: Annotated[str, Meta(description="Empty for a pod as a whole.")]


class ProblemPart(DocumentPart):
    """Something that is wrong."""

    code: Code
    severity: Annotated[str, one_of("error", "warning", "note")]
    message: str
    cpus: CPUList
    numa_nodes: Numbers
    containers: list[EntryPart]


class StateFilePart(DocumentPart):
    """One state file."""

    file: str
    exists: bool
    format: str
    sound: bool
    containers: Annotated[Count, Meta(description="How many containers have an entry that can be read.")]
    kubelet_message: Annotated[str, Meta(description="The kubelet's message about the file; empty when it takes it.")]
    problems: list[ProblemPart]


class DroppedEntryPart(EntryPart):
    """An entry that the repair leaves out."""

    held: str
    why: str


class RepairPart(DocumentPart):
    """What becomes of one state file."""

    file: str
    action: Annotated[str, one_of("replace", "delete")]
    text: Annotated[str, Meta(description="The new text; empty for a file that is deleted.")]
    kept: Annotated[int, Meta(description="How many containers keep what they have.")]
    dropped: list[DroppedEntryPart]
    changes: Annotated[list[str], Meta(description="A unified diff of what the file says, line by line.")]
    written: bool
    backup: Annotated[str, Meta(description="The copy of the old file; empty when nothing was written.")]


class RepairedEntryPart(EntryPart):
    """What a container has after the repair."""

    cpus: str
    refused: Annotated[str, Meta(description="Why the kubelet refuses its pod; empty when it does not.")]


class DiagnosisDocument(DocumentPart, kw_only=True):
    """What mooring doctor -o json prints: what is wrong with the state files, and the repair."""

    api_version: APIVersion = API_VERSION
    kind: Literal["Diagnosis"] = "Diagnosis"
    kubelet: KubeletRelease
    release: Annotated[str, Meta(description="The release for which the files are repaired.")]
    machine: str
    sound: bool
    starts: bool
    start_error: str
    start_error_stage: str
    remedy: Annotated[str, Meta(description="What to do if the configuration is wrong.")]
    files: list[StateFilePart]
    problems: Annotated[
        list[ProblemPart], Meta(description="About both files or none; those of one file are in its object.")
    ]
    repairs: list[RepairPart]
    afterwards: Annotated[
        list[RepairedEntryPart], Meta(description="Running containers when the kubelet starts on the (repaired) files.")
    ]
    findings: Annotated[list[FindingPart], Meta(description="About the input.")]


class ExclusiveHolderPart(DocumentPart):
    """A container, or a pod as a whole, that has exclusive CPUs."""

    name: str
    uid: str
    cpus: CPUList


class IsolationDocument(DocumentPart, kw_only=True):
    """What mooring doctor --lint -o json prints: what else may run on exclusive CPUs."""

    api_version: APIVersion = API_VERSION
    kind: Literal["Isolation"] = "Isolation"
    machine: str
    exclusive: CPUList = field(name="exclusiveCPUs")
    shared_pool: CPUList
    reserved: CPUList = field(name="reservedCPUs")
    holders: list[ExclusiveHolderPart]
    findings: list[FindingPart]
