"""``mooring status -o json``: the agent at one moment."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

from msgspec import UNSET, Meta

from mooring.documents.plan import (
    API_VERSION,
    APIVersion,
    Count,
    CPUList,
    DeviceNodes,
    DocumentPart,
    FindingPart,
    Maybe,
    NodeList,
    NUMANodePart,
    one_of,
    told,
)

KIND: Final = "AgentStatus"

Time: TypeAlias = Annotated[
    str,
    Meta(
        pattern="^([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z)?$",
        description="A time as RFC 3339 writes it in UTC; empty for none.",
    ),
]
InterruptNumber: TypeAlias = Annotated[
    int, Meta(ge=-1, description="-1 stands for default_smp_affinity: where interrupts begin that are set up later.")
]
InterruptReason: TypeAlias = Annotated[str, one_of("original", "kept-away", "own", "managed", "no-room")]
InterruptName: TypeAlias = Annotated[str, told("The devices that use it.")]
InterruptCPUs: TypeAlias = Annotated[CPUList, told("What it may use now.")]


class RuntimePart(DocumentPart):
    """The container runtime."""

    name: Annotated[str, told("Empty before the first connection.")]
    version: str
    connected: bool
    synchronized: Annotated[
        bool, told("Whether the runtime has listed all running containers since the connection was made.")
    ]
    since: Annotated[Time, told("When the connection was made or lost.")]


class ConfigurationPart(DocumentPart):
    """The configuration in force."""

    files: list[str]
    generation: Annotated[int, Meta(ge=1, description="How many configurations have been in force since the start.")]
    since: Time
    refusal: Annotated[str, told("Why the files as they are now are not in force; empty when they are.")]


class AgentCPUsPart(DocumentPart, kw_only=True):
    """The CPUs of the node by use."""

    exclusive: Annotated[CPUList, told("CPUs of containers, and of pods as a whole.")]
    shared: Annotated[CPUList, told("The shared pool.")]
    reserved: CPUList
    free: Annotated[CPUList, told("CPUs of the shared pool that a container can still get for itself.")]
    overlap: Annotated[CPUList, told("Exclusive CPUs on which other containers may run too.")]
    offline: Maybe[Annotated[CPUList, told("Only with the extension cpu-hotplug: CPUs that are offline.")]] = UNSET


class PluginFailurePart(DocumentPart):
    """A plugin's newest failure."""

    point: Annotated[str, told("The extension point.")]
    why: str


class AgentPluginPart(DocumentPart, kw_only=True):
    """A plugin that takes part in the choice of CPUs."""

    name: str
    placement: Annotated[str, one_of("cpu-manager", "hint-provider")]
    given_up: Annotated[bool, told("Whether it ran out of time and is not asked again under this configuration.")]
    failures: Annotated[Count, told("Answers that were left out since the agent started.")]
    last_failure: Maybe[PluginFailurePart] = UNSET


class MovedInterruptPart(DocumentPart):
    """An interrupt that the agent has moved."""

    number: InterruptNumber
    name: InterruptName
    cpus: InterruptCPUs
    original: CPUList
    why: InterruptReason


class PendingInterruptPart(DocumentPart):
    """An interrupt that the agent would move."""

    number: InterruptNumber
    name: InterruptName
    cpus: InterruptCPUs
    wanted: CPUList
    why: InterruptReason


class ForeignInterruptPart(DocumentPart):
    """An interrupt that something else has moved."""

    number: InterruptNumber
    name: InterruptName
    cpus: InterruptCPUs


class InterruptsPart(DocumentPart):
    """Interrupts at the newest check; absent without the extension irq-affinity."""

    mode: Annotated[str, one_of("dry-run", "on")]
    total: Count
    managed: Annotated[Count, told("Those that the kernel places itself.")]
    no_room: Annotated[Count, told("Those that stay because no CPU is in the shared pool.")]
    moved: Annotated[list[MovedInterruptPart], told("Those that are not where they were before the agent started.")]
    pending: Annotated[
        list[PendingInterruptPart], told("Those that would be written in a dry run, or could not be written.")
    ]
    left_alone: Annotated[list[ForeignInterruptPart], told("Those that something else has moved since.")]
    findings: list[FindingPart]


class CPUsAndNodesPart(DocumentPart):
    """The CPUs and NUMA nodes on which a container may run."""

    cpus: CPUList
    mems: NodeList


class ScaleDownPart(DocumentPart):
    """A scale-down whose delay runs; absent when there is none."""

    cpus: Annotated[CPUList, told("CPUs that it is going to have.")]
    releases: Annotated[CPUList, told("CPUs that will be released.")]
    seconds_left: Annotated[float, Meta(ge=0, description="Time until the delay is over.")]


class RefusedResizePart(DocumentPart):
    """The newest resize of its pod, which was refused; absent when none was."""

    reason: Annotated[str, one_of("Infeasible", "Deferred")]
    message: str


class AgentDevicePart(DocumentPart):
    """A device of a container."""

    resource: Annotated[str, told("Of a device plugin, or a driver of dynamic resource allocation.")]
    id: Annotated[str, told("The plugin's, or POOL/DEVICE.")]
    numa_nodes: Annotated[DeviceNodes, told("NUMA nodes that it is near; empty when none is known.")]
    healthy: bool


class AgentContainerPart(DocumentPart, kw_only=True):
    """A container that the engine placed."""

    name: str
    sharing: Annotated[
        str,
        one_of("host", "pod", "container"),
        told("What it shares its CPUs with: all containers of the node, those of its pod, or none."),
    ]
    cpus: Annotated[CPUList, told("CPUs that it holds; empty for the shared pool.")]
    mems: Annotated[NodeList, told("NUMA nodes of its memory; empty for any.")]
    claimed: Maybe[Annotated[CPUList, told("CPUs that it has of claims; absent without any.")]] = UNSET
    lost: Maybe[
        Annotated[CPUList, told("Only with the extension cpu-hotplug: CPUs of it that are offline and not replaced.")]
    ] = UNSET
    original: Maybe[
        Annotated[CPUList, told("Only while other CPUs replace some that are offline: the set to which it returns.")]
    ] = UNSET
    mixed: Maybe[
        Annotated[
            CPUList, told("Only of a mixed container: the shared pool, in which it may run besides its own CPUs.")
        ]
    ] = UNSET
    devices: Maybe[Annotated[list[AgentDevicePart], told("With the extension device-alignment: what it holds.")]] = (
        UNSET
    )
    alignment: Maybe[
        Annotated[
            str,
            one_of("aligned", "elsewhere", "unknown", "free"),
            told(
                "How its CPUs and memory lie to its devices: on a NUMA node that all are near; on no such node; not"
                " all devices are known; it has none of its own, or nothing ties them."
            ),
        ]
    ] = UNSET
    id: Maybe[Annotated[str, told("In the runtime; absent when the runtime has no such container.")]] = UNSET
    phase: Maybe[Annotated[str, one_of("creating", "created", "starting", "running", "ended")]] = UNSET
    told: Maybe[Annotated[CPUsAndNodesPart, told("What the runtime has on record.")]] = UNSET
    effective: Maybe[Annotated[CPUsAndNodesPart, told("What the kernel says; absent when it was not read.")]] = UNSET
    overlap: Maybe[Annotated[CPUList, told("Exclusive CPUs of others on which it may run.")]] = UNSET
    baseline: Maybe[
        Annotated[CPUList, told("The baseline, which it never loses; absent when it has exactly these CPUs.")]
    ] = UNSET
    pending: Maybe[ScaleDownPart] = UNSET
    resize: Maybe[RefusedResizePart] = UNSET


class AgentPodPart(DocumentPart):
    """A pod that the engine decided about."""

    namespace: str
    name: str
    uid: str
    cpus: Annotated[CPUList, told("Of the pod as a whole, where it has such.")]
    mems: Annotated[NodeList, told("Of the pod as a whole, where it has such.")]
    containers: list[AgentContainerPart]


class RecordedCPUsPart(DocumentPart):
    """What the runtime has on record."""

    cpus: str


class UnplacedContainerPart(DocumentPart):
    """A container that runs in the shared pool because the engine has no place for it."""

    name: str
    id: Annotated[str, told("The runtime's.")]
    phase: str
    told: RecordedCPUsPart


class HeldPodPart(DocumentPart):
    """A pod that was rejected and waits."""

    namespace: str
    name: str
    uid: str
    reason: Annotated[str, told("The kubelet's, or a reason of the agent.")]
    message: Annotated[str, told("The kubelet's, or a reason of the agent.")]
    running: Annotated[
        list[UnplacedContainerPart],
        told(
            "Its containers that run all the same, because the agent was down when they started: they share the "
            "pool until there is room."
        ),
    ]


class ClaimSharePart(DocumentPart):
    """What one request of a claim has."""

    request: str
    device: str
    cpus: CPUList


class AgentClaimPart(DocumentPart):
    """A claim of dynamic resource allocation that has CPUs."""

    namespace: str
    name: str
    uid: str
    cpus: CPUList
    shares: list[ClaimSharePart]
    pods: Annotated[list[str], told("Uids of the pods for which it is reserved.")]


class AgentCountsPart(DocumentPart):
    """Since the agent started."""

    replies: Count
    mean_reply_milliseconds: Annotated[float, Meta(ge=0)]
    rejections: Count
    evictions: Count
    repairs: Count
    reconnects: Count
    state_write_failures: Count


class StatusDocument(DocumentPart, kw_only=True):
    """What mooring status -o json prints, and what the agent's status socket answers under /status."""

    api_version: APIVersion = API_VERSION
    kind: Literal["AgentStatus"] = "AgentStatus"
    mooring: Annotated[str, told("Version of the agent.")]
    kubelet: Annotated[str, told("Release of the kubelet whose decisions these are.")]
    node: Annotated[str, told("Name of the node in the cluster; empty when it is not known.")]
    machine: Annotated[str, told("Name of the machine's description.")]
    time: Annotated[Time, told("When the snapshot was made.")]
    started: Annotated[Time, told("When the agent started.")]
    ready: bool
    reasons: Annotated[list[str], told("Why the agent is not ready, one sentence each; empty when it is.")]
    runtime: RuntimePart
    configuration: ConfigurationPart
    policies: Annotated[
        str, told("Policies and options that are on, in one line; empty while the engine does not run.")
    ]
    cpus: AgentCPUsPart
    numa_nodes: list[NUMANodePart]
    pods: Annotated[list[AgentPodPart], told("Pods that the engine decided about and that are there.")]
    held: Annotated[list[HeldPodPart], told("Pods that were rejected and wait.")]
    claims: Maybe[
        Annotated[
            list[AgentClaimPart], told("Claims of dynamic resource allocation that have CPUs; absent without any.")
        ]
    ] = UNSET
    plugins: Maybe[
        Annotated[
            list[AgentPluginPart],
            told(
                "Plugins that take part in the choice of CPUs, in the order in which they are asked; absent without"
                " the extension plugins."
            ),
        ]
    ] = UNSET
    interrupts: Maybe[InterruptsPart] = UNSET
    counts: AgentCountsPart
