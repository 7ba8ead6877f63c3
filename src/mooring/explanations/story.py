"""The parts of a story, and the lines in which it is written. CPU sets and sets of NUMA nodes are masks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from mooring.engine.core.decision import Shortage
from mooring.engine.core.pod import Pod
from mooring.engine.cpumanager.facts import (
    CPUHintsAsked,
    CPUPinningFailed,
    DistributionChosen,
    ExistingCPUsKept,
    PodShareCut,
    WholeCoresChecked,
)
from mooring.engine.devicemanager.facts import DeviceHintsAsked, DevicesTaken
from mooring.engine.extensions.owners import HeldClaim
from mooring.engine.memorymanager.facts import MemoryAssigned, MemoryHintsAsked, MemoryPinningFailed
from mooring.engine.topologymanager.facts import HintsMerged
from mooring.explanations.codes import Reason
from mooring.lazy import dataclass

if TYPE_CHECKING:
    from mooring.engine.plugins.facts import PluginStep


class PodVerdict(StrEnum):
    """What can become of a pod."""

    ADMITTED = "admitted"
    KEPT = "kept"
    """It is admitted again with the CPUs and memory that it has."""
    MOVED = "moved"
    """It is admitted again with other CPUs or memory."""
    REJECTED = "rejected"
    ENDLESS = "endless"
    """The kubelet never returns from its admission."""
    CRASH = "crash"
    """The kubelet crashes on its admission."""
    NOT_ASKED = "not asked"
    """The kubelet does not return from a pod before it."""
    NOT_STARTED = "not started"
    LEFT = "left"
    """It was admitted and has ended."""
    ABSENT = "absent"
    """It is no part of the plan."""


@dataclass(frozen=True, slots=True)
class ClaimsInvolved:
    """Claims of dynamic resource allocation that concern a pod."""

    own: tuple[HeldClaim, ...] = ()
    """The pod's, as far as they have CPUs of this node."""
    nowhere: tuple[str, ...] = ()
    """Names of those of the pod that have none here."""
    in_the_way: tuple[HeldClaim, ...] = ()
    """Without these a refused pod would be admitted, and without fewer of them it would not."""
    held: int = 0
    """CPUs of all claims of the node."""


Question: TypeAlias = CPUHintsAsked | MemoryHintsAsked | DeviceHintsAsked


@dataclass(frozen=True, slots=True)
class Opinion:
    """What one provider of resources said about NUMA nodes, and from what."""

    resource: str
    """``cpu``, ``memory`` for all types of memory together (their hints are the same), or the name of a device."""
    asked: Question | None
    """What the provider was asked, and from what state it answered; None where it reports nothing of that."""
    need: Mapping[str, int] = field(default_factory=dict)
    """Type -> amount; memory can have several types."""
    free: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    """NUMA node -> type -> what it could give. A device near several nodes counts on each."""
    bound: int = 0
    """Nodes that every hint must hold, because earlier containers of the pod have CPUs there."""
    groups: tuple[tuple[int, ...], ...] = ()
    """Groups of NUMA nodes that serve memory together."""
    held: bool = False
    """Whether it has what it requests already, or another amount of it."""
    nodes: int = 0
    """NUMA nodes that a hint names; 0 when any or none will do."""
    indifferent: bool = False
    """Whether any NUMA node will do."""
    preferred: tuple[int, ...] = ()
    """Preferred sets; of more than can be listed just one."""
    alone: int = 0
    """NUMA nodes that are preferred alone."""
    together: int = 0
    """NUMA nodes of all preferred sets."""
    count: int | None = 0
    """How many sets will do; None when there are too many to list."""
    narrowest: int = 0
    """Number of nodes of the narrowest set that will do; 0 when none will."""
    suffices: bool = False
    """Whether the policy would admit on these hints alone."""
    serving: int = 0
    """Where the memory manager found nothing: NUMA nodes that serve other containers."""

    @property
    def nothing_fits(self) -> bool:
        """Tell whether the memory manager found nothing, which the topology manager takes for no opinion."""
        return self.resource == "memory" and self.indifferent and not self.count and bool(self.need)


@dataclass(frozen=True, slots=True)
class Pick:
    """CPUs that one rule gave."""

    rule: str
    """A rule of :class:`mooring.engine.cpumanager.facts.CPUsPicked`, or ``share`` or ``rest`` of a distribution."""
    cpus: int
    node: int | None = None
    """NUMA node of a share."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the taking algorithm."""

    place: str
    """``hint``, ``anywhere`` or ``partition`` (see ``TakeBegun``)."""
    need: int
    candidates: int
    distribution: DistributionChosen | None
    picks: tuple[Pick, ...]


@dataclass(frozen=True, slots=True)
class Taking:
    """How a container, or a pod as a whole, got its CPUs, or why not."""

    container: str
    need: int
    reusable: int
    """CPUs that init containers left, usable besides the shared pool."""
    pool: int
    """CPUs that were available, those of ``reusable`` included."""
    affinity: int | None
    runs: tuple[Run, ...]
    taken: int
    error: str
    """The kubelet's text, or the name of the endless loop."""


Refusal: TypeAlias = CPUPinningFailed | MemoryPinningFailed
"""A refusal that no other step contains, such as that nothing would be left to share."""

Step: TypeAlias = (
    "WholeCoresChecked | Taking | ExistingCPUsKept | MemoryAssigned | DevicesTaken | PodShareCut | Refusal | PluginStep"
)
"""What was done for a container, in the order in which it was done."""


Refused = TypeVar("Refused", WholeCoresChecked, Taking, MemoryAssigned, MemoryPinningFailed, DevicesTaken)


@dataclass(frozen=True, slots=True)
class Chapter:
    """What happened for one container, or for the pod as a whole."""

    container: str
    """Empty for the pod as a whole."""
    need: int
    """Exclusive CPUs that it requests; 0 means that it runs in the shared pool."""
    because: str
    """Why it requests so many, a clause."""
    opinions: tuple[Opinion, ...]
    merge: HintsMerged | None
    """How the opinions became one; None where the topology manager was not asked, as in pod scope for each
    container."""
    by_distance: bool
    """Whether of equally narrow sets the closest wins (prefer-closest-numa-nodes)."""
    score: int | None
    """Of the hint that was made; None for kubelets without scores."""
    steps: tuple[Step, ...]

    @property
    def failed(self) -> bool:
        """Tell whether the pod was refused here."""
        return (self.merge is not None and not self.merge.admitted) or any(failed(step) for step in self.steps)

    def refusal(self, kind: type[Refused]) -> Refused | None:
        """Return the last step of a kind in which the pod was refused; None when there is none."""
        return next((step for step in reversed(self.steps) if isinstance(step, kind) and failed(step)), None)


def failed(step: Step) -> bool:
    """Tell whether the pod was refused in a step."""
    if isinstance(step, WholeCoresChecked):
        return not step.passed
    if isinstance(step, Taking | MemoryAssigned | DevicesTaken):
        return bool(step.error)
    return isinstance(step, CPUPinningFailed | MemoryPinningFailed)


@dataclass(frozen=True, slots=True)
class Story:
    """Everything about the decision on one pod."""

    pod: Pod
    container: str
    """The container that was asked about; empty for all of them."""
    verdict: PodVerdict
    running: bool
    """Whether the pod ran already and was admitted again."""
    why: Reason
    reason: str
    """The kubelet's reason; empty where there is none."""
    message: str
    """The kubelet's message; empty where there is none."""
    circumstances: str
    """Release, policies and options in one line; of a kubelet that does not start at most the release."""
    remarks: tuple[Reason, ...] = ()
    chapters: tuple[Chapter, ...] = ()
    unreached: tuple[str, ...] = ()
    """Containers that were not evaluated."""
    dropped: tuple[str, ...] = ()
    """Uids of pods whose leftovers were dropped first."""
    facts: tuple[object, ...] = ()
    """What the engine reported, in order."""
    shortage: Shortage | None = None
    """What the node resources check found too little of."""
    claims: ClaimsInvolved = ClaimsInvolved()

    @property
    def admitted(self) -> bool:
        """Tell whether the pod runs."""
        return self.verdict is PodVerdict.ADMITTED

    @property
    def name(self) -> str:
        """``namespace/pod``, with the container where one was asked about."""
        return "/".join(part for part in (self.pod.namespace, self.pod.name, self.container) if part)


PLAIN = ""
NO = "no"
YES = "yes"


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a story."""

    text: str
    children: tuple[Line, ...] = ()
    mark: str = PLAIN
    """:data:`NO` where the pod was refused, :data:`YES` for what was decided; else plain."""
    detail: bool = False
    """Whether it is shown only on demand."""


def walk(lines: tuple[Line, ...]) -> Iterator[Line]:
    """Yield every line, the ones below after the one above."""
    for line in lines:
        yield line
        yield from walk(line.children)
