"""What the agent knows: the engine's state, sandboxes, containers with what they have of claims, and pods held back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from mooring.agent.nri.types import CLAIM_VARIABLE, LinuxResources, PodSandbox
from mooring.engine.core.bits import NO_NODES, NUMAMask
from mooring.engine.core.config import AssignedScope
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import Rejection
from mooring.engine.core.pod import Pod
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.devicemanager.state import Device
from mooring.engine.extensions.owners import HeldClaim, claims_of
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.memorymanager.state import MemoryState

_EMPTY = CPUSet()


class Phase(Enum):
    """How far a container is, as events say."""

    CREATING = "creating"
    """CreateContainer was answered. The runtime does not know the container yet and drops updates of it silently."""
    CREATED = "created"
    """The runtime has it on record; updates change the record, with which it starts."""
    STARTING = "starting"
    """Its task is made and its program is about to run. Updates may change the record and miss the cgroup."""
    RUNNING = "running"
    REFUSED = "refused"
    """Its start was refused. containerd ends it; CRI-O starts it nevertheless, and PostStartContainer says so."""
    ENDED = "ended"


LIVE = frozenset({Phase.CREATING, Phase.CREATED, Phase.STARTING, Phase.RUNNING})
UPDATABLE = frozenset({Phase.CREATED, Phase.STARTING, Phase.RUNNING})
"""Phases in which the runtime takes an update."""
HAS_CGROUP = frozenset({Phase.STARTING, Phase.RUNNING})
"""Phases in which there is a cgroup to write to."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What a container has, or should have. The agent does not decide about empty sets and None."""

    cpus: CPUSet = _EMPTY
    mems: NUMAMask = NO_NODES
    quota: int | None = None
    """-1 where the CFS quota is lifted."""

    def over(self, other: Setting) -> Setting:
        """Return this setting, with what the agent does not decide about as in another one."""
        return Setting(
            self.cpus or other.cpus, self.mems or other.mems, other.quota if self.quota is None else self.quota
        )


@dataclass(frozen=True, slots=True)
class Assigned:
    """What the files of a container say that it has for itself, or is about to have."""

    cpus: CPUSet = _EMPTY
    mems: NUMAMask = NO_NODES
    shared: CPUSet | None = None
    """The shared pool, for a mixed container, which may run there too; None for all others."""


@dataclass(frozen=True, slots=True)
class KnownContainer:
    """One container of the runtime."""

    id: str
    sandbox_id: str
    uid: str
    """Of its pod."""
    name: str
    phase: Phase
    record: Setting
    """What the runtime has on record, as far as that is known."""
    asked: LinuxResources
    """The resources of the CRI request, for pods that must be derived from their containers."""
    pid: int = 0
    cgroup: str = ""
    written: Setting | None = None
    """What its cgroup was given past the runtime, which may have something else on record; None when both are as told.
    """
    shown: Assigned | None = None
    """What its files say; None when it has none, or that is unknown."""
    claims: tuple[str, ...] = ()
    """Variables of its environment that stand for what it has of claims."""
    missed: Setting | None = None
    """What an update would have said while it was being made, when the runtime drops updates of it."""
    unlisted: bool = False
    """Whether the runtime did not list it at the last Synchronize. If it runs nevertheless, no update reaches its
    cgroup; if it was being made, a restart of the runtime may have ended that."""


_ORDER = {phase: number for number, phase in enumerate(Phase)}


def by_name(containers: Iterable[KnownContainer]) -> dict[str, KnownContainer]:
    """Return containers of one pod by their names; of two with one name the one that has come further, then the later.

    containerd keeps a container whose start its own restart has interrupted, and stopping does not end it; the kubelet
    makes another in its place. Both are listed, in any order (2.1.9 and 2.4.2, read and seen under kills).
    """
    return {one.name: one for one in sorted(containers, key=lambda one: _ORDER[one.phase])}


@dataclass(frozen=True, slots=True)
class LastSeen:
    """What ran when the journal was written."""

    sandboxes: Mapping[str, PodSandbox] = field(default_factory=dict)
    """By id, without labels and annotations."""
    containers: Mapping[str, KnownContainer] = field(default_factory=dict)
    """By id; whether they still run is unknown."""


@dataclass(frozen=True, slots=True)
class DevicesFound:
    """What was learned of a pod's devices for one event (extension device-alignment)."""

    held: Mapping[str, Mapping[str, tuple[Device, ...]]] = field(default_factory=dict)
    """Container -> resource of a device plugin, or driver -> devices."""
    unknown: str = ""
    """Why some of them are not known, in words; empty when all are."""
    missing: tuple[str, ...] = ()
    """Resources and drivers of those, as far as they are known; an empty text stands for any."""


@dataclass(frozen=True, slots=True)
class HeldPod:
    """A pod that the engine did not admit, with the state that it was judged against."""

    pod: Pod
    rejection: Rejection
    cpu: CPUState
    memory: MemoryState
    devices: DevicesFound | None = None
    """With the extension device-alignment: what was known of its devices."""


@dataclass(frozen=True, slots=True)
class Options:
    """The operator's choices."""

    evict: bool = False
    """Whether a rejected pod is evicted (``onRejection: evict``), else it is held back."""
    opt_out_annotation: str = ""
    """Pods with this annotation and the value ``true`` share the pool whatever they request; empty: there is none."""
    place_while_unwritable: bool = True
    """Whether pods get CPUs and memory of their own while the agent's folder cannot be written."""
    telling: AssignedScope = AssignedScope.ANNOTATED
    """Which containers get files with their CPUs, with the extension assigned-cpuset."""
    assigned_dir: str = "/run/mooring/assigned"
    """Folder of the node in which every such container has one of its own."""
    assigned_mount_path: str = "/run/mooring-assigned"
    """Where it finds that."""


@dataclass(frozen=True, slots=True)
class AgentState:
    """Everything that decisions of the agent depend on."""

    kubelet: Kubelet
    """The engine. Its active pods are those that were decided about."""
    options: Options = Options()
    sandboxes: Mapping[str, PodSandbox] = field(default_factory=dict)
    """By id, in the order in which they were seen."""
    containers: Mapping[str, KnownContainer] = field(default_factory=dict)
    """By id, in the order in which they were seen."""
    held: Mapping[str, HeldPod] = field(default_factory=dict)
    """Pods that wait, by uid."""
    remembered: Mapping[str, Pod] = field(default_factory=dict)
    """Pods of the journal, until the first Synchronize says which of them are there."""
    last_seen: LastSeen = field(default_factory=LastSeen)
    """Of the journal, until the first Synchronize too."""
    claim_users: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Uids of the pods for which each claim of the ledger is reserved, by its uid."""
    without_devices: Mapping[str, DevicesFound] = field(default_factory=dict)
    """What was known of the devices of pods that were decided about before all was known, by uid."""
    missed: frozenset[str] = frozenset()
    """Pods that were resized while the agent was away, and wait for the room: no kubelet asks for that again."""
    unverified: frozenset[str] = frozenset()
    """Containers with an update in the last reply, whose effect is not verified yet."""
    unstarted: Mapping[tuple[str, str], Rejection] = field(default_factory=dict)
    """Why containers of placed pods were refused last, by pod uid and name, until they start: told once."""
    deviating: Mapping[str, tuple[str, bool]] = field(default_factory=dict)
    """Containers whose cgroups are not as decided and could not be corrected, by id: what was reported, once, and
    whether the kernel shows what they may use."""

    def with_container(self, container: KnownContainer) -> AgentState:
        """Return the state with a container added or changed."""
        return replace(self, containers={**self.containers, container.id: container})

    def containers_of(self, uid: str) -> list[KnownContainer]:
        """Return the containers of a pod that have not ended."""
        return [one for one in self.containers.values() if one.uid == uid and one.phase in LIVE]


def variables(claim: HeldClaim) -> list[str]:
    """Return the variables of a claim's shares, in their order.

    >>> variables(HeldClaim("5d-b1", "shop", "cpus", {("numa0", "fast"): 6}))
    ['MOORING_CLAIM_5D_B1_0']
    """
    name = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in claim.uid.upper())
    return [f"{CLAIM_VARIABLE}{name}_{number}" for number in range(len(claim.shares))]


def claims_by_variable(state: AgentState) -> dict[str, tuple[HeldClaim, int]]:
    """Return claim and CPUs of every variable."""
    return {
        variable: (claim, cpus)
        for claim in claims_of(state.kubelet.node.cpu).values()
        for variable, cpus in zip(variables(claim), claim.shares.values(), strict=True)
    }


def claimed_cpus(state: AgentState) -> Mapping[tuple[str, str], int]:
    """Return the CPUs that live containers have of claims, as masks by pod uid and container."""
    known = claims_by_variable(state)
    found: dict[tuple[str, str], int] = {}
    if not known:
        return found
    for one in state.containers.values():
        if one.phase not in LIVE:
            continue
        for variable in one.claims:
            claim, cpus = known.get(variable, (None, 0))
            if claim is not None and one.uid in state.claim_users.get(claim.uid, ()):
                found[one.uid, one.name] = found.get((one.uid, one.name), 0) | cpus
    return found
