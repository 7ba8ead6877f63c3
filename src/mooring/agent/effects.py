"""What is to be done beside the answer to the runtime. The reactor names it, the shell does it.

An outcome lists its effects in the order in which they are to be done. Those of :data:`BEFORE_THE_REPLY` are done
before the runtime is answered, :class:`Persist` always first; the others may be done by another thread afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from mooring.agent.state import AgentState, Assigned
from mooring.engine.core.bits import NUMAMask
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.pod import Pod


class ReportKind(Enum):
    """Kinds of reports; the value is the name in logs and metrics."""

    REJECTED = "rejected"
    """A pod was rejected and waits: the engine does not admit it."""
    UNPLACED = "unplaced"
    """A running pod cannot be placed; it shares the pool until it can."""
    PLACED_LATE = "placed-late"
    """A pod that ran unpinned or had to wait is placed now."""
    CONTAINER_UNPLACED = "container-unplaced"
    """A container runs and no CPU is left for it: the shared pool is empty."""
    POD_GONE = "pod-gone"
    """A pod ended and the runtime did not report it; its CPUs and memory are released."""
    RUNS_UNLISTED = "runs-unlisted"
    """The runtime does not list a pod or container that has processes; it keeps its CPUs."""
    FOUND_RUNNING = "found-running"
    """A container was created while the agent was disconnected."""
    CPUSET_DIFFERED = "cpuset-differed"
    """At Synchronize the runtime's record had other CPUs or NUMA nodes than the state."""
    DEVIATION = "deviation"
    """A container's cpuset was not as decided; it was corrected."""
    DEVIATION_LASTS = "deviation-lasts"
    """A container's cpuset is not as decided or cannot be read, and could not be corrected."""
    START_REFUSED = "start-refused"
    """The start of a container was refused: no CPU is left for it, or its cgroup is not as decided."""
    STARTED_DESPITE_REFUSAL = "started-despite-refusal"
    """The runtime started a container although its start was refused; its cgroup is checked at once."""
    OPT_OUT_UNREAD = "opt-out-unread"
    """The value of a pod's opt-out annotation is neither ``true`` nor ``false``, and counts as ``false``."""
    QUOTA_DEVIATION = "quota-deviation"
    """A lifted CFS quota was set again; it was lifted again."""
    TAKEN_OVER = "taken-over"
    """The state had no entry of a running container; it keeps the CPUs that it runs on."""
    CLAIM_REFUSED = "claim-refused"
    """A claim of dynamic resource allocation gets no CPUs, or a container may not use one."""
    RESIZE_MISSED = "resize-missed"
    """A container was resized while the agent was disconnected, and the engine refuses that."""
    STATE_REFUSED = "state-refused"
    """The engine does not start on the stored state, for example because the machine has other CPUs now."""
    STATE_DAMAGED = "state-damaged"
    """A file of the state folder could not be read, or its content was damaged."""
    STATE_DIFFERED = "state-differed"
    """State files and journal differ; the journal counts."""
    STATE_UNWRITABLE = "state-unwritable"
    """The state folder cannot be written; the agent continues in memory and tries again."""
    CPUS_CHANGED = "cpus-changed"
    """CPUs went offline or came online, and how that changed a pod."""
    DEVICES_UNKNOWN = "devices-unknown"
    """The devices of a pod were not known in time: it is decided about without them, or it waits for them."""
    DEVICES_ELSEWHERE = "devices-elsewhere"
    """Devices that were known too late, or have changed, are not near the CPUs and memory of a running container."""
    DEVICES_CHANGED = "devices-changed"
    """A device of a running container is not healthy any more, is not reported any more, or is near other nodes."""


class QuotaOf(Enum):
    """Whose CFS quota is meant."""

    CONTAINER = "container"
    SANDBOX = "sandbox"
    POD = "pod"


class Occasion(Enum):
    """Why a cpuset is written, which says what a difference means."""

    DECISION = "decision"
    """What was decided just now, or since the runtime was last told, is carried out: a difference is what is expected.
    """
    CHECK = "check"
    """The runtime should have done it by now: a difference is an update that was lost, and to write it is a repair."""


@dataclass(frozen=True, slots=True)
class WriteCPUSet:
    """See to it that the container's cgroup has this cpuset: read, write when it differs, read back.

    An empty set leaves that file alone.
    """

    container_id: str
    pid: int
    """A process in the cgroup; 0 when none is known."""
    cgroup: str
    """The container's ``cgroups_path`` as the runtime gives it."""
    cpus: CPUSet
    mems: NUMAMask
    # To write the same twice is the same, for whatever reason.
    occasion: Occasion = field(default=Occasion.DECISION, compare=False)


@dataclass(frozen=True, slots=True)
class ReturnCPUs:
    """Give CPUs that came back to the groups above containers: version 1 took them, and gives none back."""

    cpus: CPUSet
    below: tuple[WriteCPUSet, ...]
    """The containers; they themselves are written after this."""


@dataclass(frozen=True, slots=True)
class LiftQuota:
    """See to it that a cgroup has no CFS quota."""

    of: QuotaOf
    uid: str
    """Of the pod."""
    container_id: str
    """Empty for sandbox and pod."""
    pid: int
    """A process in the cgroup, or for a pod in one below it; 0 when none is known."""
    cgroup: str
    """``cgroups_path`` of container or sandbox; ``cgroup_parent`` for the pod."""


@dataclass(frozen=True, slots=True)
class Persist:
    """Write the agent's folder. When that fails, :func:`mooring.agent.reactor.response.unwritten` says what now."""

    state: AgentState


@dataclass(frozen=True, slots=True)
class WriteAssigned:
    """Let a container's files say which CPUs and memory nodes it has, or is about to have."""

    container_id: str
    assigned: Assigned
    makes: bool
    """Whether its folder is made; a container that runs without one cannot see it anyway."""
    again: bool = False
    """Whether files that say so already are replaced, for programs that watch them."""


@dataclass(frozen=True, slots=True)
class DropAssigned:
    """Remove the files of a container that is gone."""

    container_id: str


@dataclass(frozen=True, slots=True)
class SweepAssigned:
    """Remove the files of all other containers than these, after a time in which the agent was not there."""

    told: frozenset[str]
    """Ids of containers whose files are written one by one."""
    silent: frozenset[str]
    """Ids of containers that live and are not told any more: their files become empty."""


@dataclass(frozen=True, slots=True)
class ResizeAnswered:
    """A resize was decided about: for log and metrics."""

    result: str
    """``accepted``, ``infeasible`` or ``deferred``."""
    message: str
    uid: str
    container_id: str = ""


@dataclass(frozen=True, slots=True)
class Verify:
    """Compare the kernel's cpusets of these containers with what is expected, and report differences as events."""

    container_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AgentReport:
    """Something for logs and metrics."""

    finding: ReportKind
    message: str
    uid: str = ""
    container_id: str = ""
    reason: str = ""
    """The kubelet's reason, where there is one."""
    code: str = ""
    """Of the page about it (``mooring explain CODE``), where there is one."""


@dataclass(frozen=True, slots=True)
class EventSubject:
    """The object that an event is about."""

    kind: str
    """``Pod`` or ``Node``."""
    name: str
    uid: str
    namespace: str = ""
    """Empty for a node."""


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    """Something worth an event."""

    about: EventSubject
    reason: str
    """One word in CamelCase, the kubelet's where there is one."""
    note: str
    warning: bool = True


@dataclass(frozen=True, slots=True)
class Evict:
    """Evict a pod through the API server, so that its controller tries another node."""

    pod: Pod
    message: str


Effect = (
    WriteCPUSet
    | ReturnCPUs
    | LiftQuota
    | Persist
    | WriteAssigned
    | DropAssigned
    | SweepAssigned
    | ResizeAnswered
    | Verify
    | AgentReport
    | ClusterEvent
    | Evict
)
BEFORE_THE_REPLY = (Persist, ReturnCPUs, WriteCPUSet, LiftQuota, WriteAssigned)
"""Types of effects that the answer to the runtime waits for."""


def about_pod(pod: Pod) -> EventSubject:
    """Return the reference to a pod.

    >>> about_pod(Pod("u", "web-0", "shop")).namespace
    'shop'
    """
    return EventSubject("Pod", pod.name, pod.uid, pod.namespace)


def about_node(node: str) -> EventSubject:
    """Return the reference to a node, whose uid in events is its name, as the kubelet has it."""
    return EventSubject("Node", node, node)


def warning_about(pod: Pod, reason: str, note: str) -> ClusterEvent:
    """Return an event of type Warning for a pod."""
    return ClusterEvent(about_pod(pod), reason, note)


def reported(
    pod: Pod, finding: ReportKind, reason: str, text: str, code: str = "", container_id: str = ""
) -> tuple[AgentReport, ClusterEvent]:
    """Return what is said of a pod twice: in the agent's log and as an event of the pod."""
    report = AgentReport(finding, f"{pod.namespace}/{pod.name}: {text}", pod.uid, container_id, reason, code)
    return report, warning_about(pod, reason, text)


def said(
    state: AgentState, report: AgentReport, reason: str, note: str | None = None
) -> tuple[AgentReport | ClusterEvent, ...]:
    """Return a report and, where its pod is placed, an event of the pod, whose note is the report's text by default."""
    pod = state.kubelet.node.active.get(report.uid)
    return (report,) if pod is None else (report, warning_about(pod, reason, report.message if note is None else note))
