"""``mooring doctor -o json``: what is wrong with the state files, and the repair; what the checks say, as values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, Literal, TypeAlias

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
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.pod import Pod
from mooring.engine.node.start import CPU_FILE, MEMORY_FILE

Severity: TypeAlias = Literal["error", "warning", "note"]
"""``error``: the kubelet does not start, or promises what is not so. ``warning``: it starts with a problem.
``note``: nothing needs to be done."""


@dataclass(frozen=True, slots=True, order=True)
class EntryHolder:
    """An entry of a state file."""

    uid: str
    """Of the pod; empty for entries by container id."""
    container: str
    """Empty for what a pod holds as a whole."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong."""

    code: str
    """``MOOR-3xx``; its page tells what it means."""
    severity: Severity
    file: str
    """Name of the state file; empty when it is about more than one."""
    message: str
    """One or two sentences."""
    holders: tuple[EntryHolder, ...] = ()
    """Entries that it concerns."""
    cpus: CPUSet = CPUSet()  # noqa: RUF009 - frozen
    """CPUs that it is about."""
    nodes: tuple[int, ...] = ()
    """NUMA nodes that it is about."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """An entry that a repair gives up."""

    holder: EntryHolder
    held: str
    """What it held, in words."""
    why: str
    """A clause that says why it cannot stay."""


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


class ProblemPart(DocumentPart):
    """Something that is wrong."""

    file: ClassVar[str] = ""
    """The state file that it is about; empty for more than one."""
    code: Code
    severity: Annotated[str, one_of("error", "warning", "note")]
    message: str
    cpus: CPUList
    numa_nodes: Numbers
    containers: list[EntryPart]


class CPUProblemPart(ProblemPart):
    """Something that is wrong with the CPU manager's file."""

    file = CPU_FILE


class MemoryProblemPart(ProblemPart):
    """Something that is wrong with the memory manager's file."""

    file = MEMORY_FILE


class StateFilePart(DocumentPart):
    """One state file."""

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


_PARTS: Final = {CPU_FILE: CPUProblemPart, MEMORY_FILE: MemoryProblemPart}


def problem_parts(problems: Iterable[Problem], pods: Mapping[str, Pod]) -> list[ProblemPart]:
    """Return problems with the names of their pods."""
    return [
        _PARTS.get(problem.file, ProblemPart)(
            problem.code,
            problem.severity,
            problem.message,
            str(problem.cpus),
            list(problem.nodes),
            [EntryPart(*names(holder, pods)) for holder in problem.holders],
        )
        for problem in problems
    ]


def names(holder: EntryHolder, pods: Mapping[str, Pod]) -> tuple[str, str, str, str]:
    """Return the uid of an entry, namespace and name of its pod, and its container."""
    pod = pods.get(holder.uid)
    return holder.uid, pod.namespace if pod is not None else "", pod.name if pod is not None else "", holder.container
