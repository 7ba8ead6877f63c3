"""``mooring doctor -o json``: what is wrong with the state files, and the repair; and everything that can be wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from msgspec import field

from mooring.answers.base.answering import RESTART
from mooring.answers.base.plan_findings import HELD_TWICE, RESERVED_HELD
from mooring.documents import plan as parts
from mooring.engine.checkpoint.device_file import DEVICE_FILE
from mooring.engine.core.bits import CPUMask
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.pod import Pod
from mooring.engine.node.settings import CPU_FILE, MEMORY_FILE
from mooring.explanations.codes import POOL_EMPTY
from mooring.explanations.phrases import cpus_text

MISSING = "missing"
"""Stands for the format of a file that a repair makes."""


@dataclass(frozen=True, slots=True, order=True)
class EntryHolder:
    """An entry of a state file."""

    uid: str
    """Of the pod; empty for entries by container id."""
    container: str
    """Empty for what a pod holds as a whole."""


class EntryPart(parts.DocumentPart):
    """An entry of a state file; the names are empty when no given pod has its uid."""

    uid: str
    namespace: str
    name: str
    container: Annotated[str, parts.told("Empty for a pod as a whole.")]

    @property
    def holder(self) -> EntryHolder:
        """The entry without the names of its pod."""
        return EntryHolder(self.uid, self.container)


class ProblemPart(parts.DocumentPart, dict=True):
    """Something that is wrong."""

    file = (
        ""  # The state file that it is about; empty for more than one. No member of the document, as files have theirs.
    )
    code: parts.Code
    severity: Annotated[str, parts.one_of("error", "warning", "note")]
    message: str
    cpus: parts.CPUList
    numa_nodes: parts.Numbers
    containers: list[EntryPart]


class StateFilePart(parts.DocumentPart, dict=True):
    """One state file."""

    version = ""
    """Of its format, empty of a damaged one. No member: in the document it is a part of ``format``."""
    file: str
    exists: bool
    format: str
    sound: bool
    containers: Annotated[parts.Count, parts.told("How many containers have an entry that can be read.")]
    kubelet_message: Annotated[str, parts.told("The kubelet's message about the file; empty when it takes it.")]
    problems: list[ProblemPart]


class DroppedEntryPart(EntryPart):
    """An entry that the repair leaves out."""

    held: str
    why: str


class RepairPart(parts.DocumentPart):
    """What becomes of one state file."""

    file: str
    action: Annotated[str, parts.one_of("replace", "delete")]
    text: Annotated[str, parts.told("The new text; empty for a file that is deleted.")]
    kept: Annotated[int, parts.told("How many containers keep what they have.")]
    dropped: list[DroppedEntryPart]
    changes: Annotated[list[str], parts.told("A unified diff of what the file says, line by line.")]
    written: bool
    backup: Annotated[str, parts.told("The copy of the old file; empty when nothing was written.")]


class RepairedEntryPart(EntryPart):
    """What a container has after the repair."""

    cpus: str
    refused: Annotated[str, parts.told("Why the kubelet refuses its pod; empty when it does not.")]


class DiagnosisDocument(parts.DocumentPart, kw_only=True):
    """What mooring doctor -o json prints: what is wrong with the state files, and the repair."""

    api_version: parts.APIVersion = parts.API_VERSION
    kind: Literal["Diagnosis"] = "Diagnosis"
    kubelet: parts.KubeletRelease
    release: Annotated[str, parts.told("The release for which the files are repaired.")]
    machine: str
    sound: bool
    starts: bool
    start_error: str
    start_error_stage: str
    remedy: Annotated[str, parts.told("What to do if the configuration is wrong.")]
    files: list[StateFilePart]
    problems: Annotated[list[ProblemPart], parts.told("About both files or none; those of one file are in its object.")]
    repairs: list[RepairPart]
    afterwards: Annotated[
        list[RepairedEntryPart], parts.told("Running containers when the kubelet starts on the (repaired) files.")
    ]
    findings: Annotated[list[parts.FindingPart], parts.told("About the input.")]

    @property
    def all_problems(self) -> list[ProblemPart]:
        """Everything that is wrong, file by file."""
        return [*(problem for file in self.files for problem in file.problems), *self.problems]


class ExclusiveHolderPart(parts.DocumentPart):
    """A container, or a pod as a whole, that has exclusive CPUs."""

    name: str
    uid: str
    cpus: parts.CPUList


class IsolationDocument(parts.DocumentPart, kw_only=True):
    """What mooring doctor --lint -o json prints: what else may run on exclusive CPUs."""

    api_version: parts.APIVersion = parts.API_VERSION
    kind: Literal["Isolation"] = "Isolation"
    machine: str
    exclusive: parts.CPUList = field(name="exclusiveCPUs")
    shared_pool: parts.CPUList
    reserved: parts.CPUList = field(name="reservedCPUs")
    holders: list[ExclusiveHolderPart]
    findings: list[parts.FindingPart]


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


OLD_FORMAT = "MOOR-304"
POD_ENTRIES_IGNORED = "MOOR-320"
STALE = "MOOR-341"
NO_ENTRY = "MOOR-342"
FILE_MISSING = "MOOR-345"
LOST_ENTRIES = "MOOR-346"

TEXTS: Final[Mapping[str, str]] = {
    # The text of a file; {left} is what can still be read.
    "MOOR-301": "{what} {left}",
    "MOOR-301 data": "The text in data is not JSON: {fault}. {left}",
    "MOOR-302": "The file is JSON but not a state file: {why}.",
    "MOOR-302 no data": "The file has a dataChecksum and no data. {left}",
    "MOOR-302 member": "A member of the file has the wrong type: {why}. {left}",
    "MOOR-303": "The checksum does not match the file's content. {left}",
    OLD_FORMAT: "The file has format V1, whose entries go by container id. Kubelets up to 1.36 turn it into a newer "
    "format; 1.37 no longer reads it.",
    "MOOR-305": "Policy {configured} is configured, and the file {written}.",
    "MOOR-306": "The shared pool is not a {what}: {text}.",
    "MOOR-306 entries": "{containers} without a readable {what}: {shown}.",
    "MOOR-307": "The file has members that kubelet v1.37.1 does not know and loses with its next write: {names}. A "
    "newer kubelet may have written it.",
    "MOOR-301 pods": "Kubelet {kubelet} does not start on it ({problem}): drain the node and delete the file.",
    "MOOR-307 pods": "Kubelet {kubelet} does not know format {version} and reads the amounts in it alone, not the "
    "names and specs of pods.",
    # The CPU manager's state.
    "MOOR-310": "The shared pool is empty while {pods} {have} entries; the kubelet takes an empty pool only from a "
    "file without entries.",
    "MOOR-310 baselines": "The shared pool is empty while there are baselines and no entries.",
    "MOOR-311": "The shared pool and containers both have {cpus}{and_then}",
    HELD_TWICE: "More than one {owner} holds {cpus}. The kubelet does not check this and starts; none of them has "
    "these CPUs to itself.",
    RESERVED_HELD: "Containers hold {cpus}, which the configuration reserves.",
    "MOOR-314": "The shared pool has the reserved {cpus}, which strict-cpu-reservation keeps out of it; the file was "
    "written without that option.",
    "MOOR-315": "The shared pool lacks the reserved {cpus}; a kubelet with strict-cpu-reservation writes it that way.",
    "MOOR-316": "This machine has no online {cpus}; the file gives them to {whose}.",
    "MOOR-317": "Neither the shared pool nor a container has {cpus}: more came online, or a write was cut short.",
    "MOOR-318": "The shared pool has only the reserved {cpus}: every container without exclusive CPUs runs there, "
    "beside the system.",
    "MOOR-319": "This machine has {cpus} offline; the file gives {them} to {whose}. The kubelet refuses it at its "
    "next start, unless {they} online by then.",
    POOL_EMPTY: "Exclusive CPUs have emptied the shared pool: {pods}. Give the running pods with --active to see "
    "which of them takes the last CPU.",
    # Entries of whole pods, baselines and claims.
    POD_ENTRIES_IGNORED: "The file has entries of {pods}, and PodLevelResourceManagers is off: the kubelet ignores "
    "them, and its next write loses them.",
    "MOOR-320 hidden": "The file has entries of {pods} where kubelet {kubelet} does not look: it goes "
    "by the entries of their containers, and its next write loses these.",
    "MOOR-321": "{pods} with an entry of the whole pod but none of a container. Kubelet v1.37.1 never releases that "
    "(defect pod-restart).",
    "MOOR-322": "The file has baselines, and InPlacePodVerticalScalingExclusiveCPUs is off: the kubelet ignores them, "
    "and its next write loses them. They decide nothing.",
    "MOOR-323": "{claim} {faults}; claims never get such CPUs.",
    # The memory manager's state.
    "MOOR-330": "{text}",
    "MOOR-331": "{text}",
    "MOOR-332": "{text}",
    "MOOR-333": "{text}",
    "MOOR-334": "The file has entries of containers but no machine state.",
    "MOOR-335": "The entries of the containers do not add up to the machine state of the same file: another number of "
    "assignments, another group of nodes, or other sums of free and reserved memory.{whole}",
    "MOOR-336": "Containers hold memory that this machine does not have: {places}.",
    "MOOR-337": "The kubelet crashes on this file: {why}.",
    "MOOR-338": "The kubelet starts on this file only by chance: it adds up the entries in random order, and {nodes} "
    "may end in another group than before. It starts after some attempts.",
    "MOOR-339": "The entries hold more memory than the machine has: {places}. The kubelet starts and counts only what "
    "the machine has.",
    # The files against one another, and against the pods that run.
    "MOOR-340": f"{{pods}} with CPUs in {CPU_FILE} and no memory in {MEMORY_FILE}: the files are from different "
    f"moments, or one was deleted. The kubelet starts and assigns their memory again, perhaps on other NUMA nodes.",
    STALE: "{containers} with an entry but not among the running pods. The kubelet drops such entries once it knows "
    "its pods.",
    NO_ENTRY: "{containers} entitled to exclusive CPUs but without an entry. At its start the kubelet allocates CPUs "
    "to {them} if enough are free.",
    "MOOR-343": "{containers} with another number of CPUs in the file than it requests. The kubelet keeps the entry; "
    "a topology manager policy that rejects may reject the pod.{doubt}",
    "MOOR-344": "The kubelet refuses {pods} when it admits them again after the start: {reasons}.",
    f"{POOL_EMPTY} after": "When the running pods are admitted again, {text}.",
    RESTART: "{text}.",
    FILE_MISSING: "The file is missing, and other files have {count} ({named}). The kubelet starts with an empty file "
    "and assigns other CPUs than those that these containers run on, if they have exclusive CPUs. Restore the file "
    "from a copy of the same moment, or drain the node before the kubelet starts.",
    "MOOR-345 running": "The file is missing, and {count} of it run: they would lose what they have.",
    LOST_ENTRIES: "The damage lost the entries of {count}, which other files name ({named}), if they had {what}. A "
    "repair cannot restore them: after the start they get what is free.",
    "MOOR-347": f"The kubelet cannot read {DEVICE_FILE}: {{why}}. It starts and does not know which devices running "
    f"containers hold: it can allocate them a second time.",
    "MOOR-348": f"{{containers}} without an entry in {DEVICE_FILE} for a device that it requests. The kubelet can "
    f"allocate its devices a second time.",
    "MOOR-349": f"{{device}} is in the entries of {{named}} in {DEVICE_FILE}. Both use it, unless one of them has "
    f"ended; delete the pod that got it last.",
    "MOOR-352": "{named} has its {what} on NUMA node {nodes} and its {resource} near {near}, which the topology "
    "manager's policy does not admit: the files are of different moments, or another policy admitted the pod. Delete "
    "the pod, so that it is admitted again.",
    # Other reasons.
    "MOOR-350": "The kubelet does not start whatever the state files hold: the configuration does not fit this "
    "machine, or itself ({code}). No repair of the files helps.",
    "MOOR-351": "The kubelet refuses this file: {words}",
}
"""Code, with a word behind it where it has several texts -> text; ``{cpus}`` are those of a mask."""
_WARNINGS = frozenset(
    f"MOOR-{number}" for number in (307, 318, 320, 321, 323, 338, 339, 340, 342, 343, 344, 347, 348, 349, 352)
)
_NOTES = frozenset({"MOOR-322", STALE})
"""Codes of these severities; all others are errors."""


def problem(
    name: str, file: str, holders: Iterable[EntryHolder] = (), mask: int = 0, numa: Iterable[int] = (), **words: object
) -> ProblemPart:
    """Return something that is wrong; its entries get the names of their pods later.

    Args:
        name: its code, as in :data:`TEXTS`.
        file: name of the state file; empty when it is about more than one.
        holders: entries that it concerns.
        mask: CPUs that it is about.
        numa: NUMA nodes that it is about.
        words: what the text leaves open.
    """
    entries = [EntryPart(one.uid, "", "", one.container) for one in holders]
    message = TEXTS[name].format(**{"cpus": cpus_text(mask) if mask else "", **words})
    code = name.partition(" ")[0]
    severity = "warning" if code in _WARNINGS else "note" if code in _NOTES else "error"
    part = ProblemPart(code, severity, message, str(CPUSet(CPUMask(mask))), list(numa), entries)
    part.file = file
    return part
