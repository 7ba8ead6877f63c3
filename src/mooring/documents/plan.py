"""``mooring plan -o json``: what becomes of each pod; and what several documents share: findings, placements, hints.

Names of members are those of the structs in camel case; a member that is :data:`msgspec.UNSET` is left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType, field
from msgspec.json import Decoder

from mooring.engine.core.machine import Finding

API_VERSION: Final = "mooring/v1alpha1"
"""The version of every document."""

_LIST: Final = "^([0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*)?$"


def one_of(*words: str) -> Meta:
    """Return what says that a text is one of some words."""
    return Meta(extra_json_schema={"enum": list(words)})


def told(description: str, **more: object) -> Meta:
    """Return what its schema says of a member."""
    return Meta(description=description, extra_json_schema=more or None)


_Value = TypeVar("_Value")
Maybe: TypeAlias = _Value | UnsetType
"""What is left out of the document where there is none."""
APIVersion: TypeAlias = Literal["mooring/v1alpha1"]
Count: TypeAlias = Annotated[int, Meta(ge=0)]
Numbers: TypeAlias = list[Count]
DeviceNodes: TypeAlias = list[Annotated[int, Meta(ge=-1)]]
"""NUMA nodes of a device; -1 where its plugin reports that."""
CPUList: TypeAlias = Annotated[
    str, Meta(pattern=_LIST, description="CPUs as Linux lists them: ascending, runs as a-b, commas; empty for none.")
]
NodeList: TypeAlias = Annotated[
    str, Meta(pattern=_LIST, description="NUMA nodes in the form of a CPU list; empty for none.")
]
Code: TypeAlias = Annotated[
    str,
    Meta(
        pattern="^(MOOR-[0-9]{3})?$",
        description="A stable code; mooring explain CODE prints its page. Empty where there is none.",
    ),
]
KubeletRelease: TypeAlias = Annotated[str, told("The kubelet release whose decisions these are.")]
QoSName: TypeAlias = Annotated[str, one_of("Guaranteed", "Burstable", "BestEffort")]


class DocumentPart(Struct, rename="camel", forbid_unknown_fields=True):
    """A JSON object that has no members but those of its schema."""


def learn(*structs: type) -> None:
    """Let msgspec learn the members of structs while the module that has them is imported, which one thread does.

    Two threads that decode a struct for the first time at once end the process with a segmentation fault (msgspec
    0.22.0, measured): the second uses what the first has half learned.
    """
    for one in structs:
        Decoder(one)


class FindingPart(DocumentPart):
    """Something worth knowing besides the answer."""

    severity: Annotated[str, one_of("warning", "info")]
    subject: Annotated[str, told("What it is about: CPUs, a node, a file, a field.")]
    message: Annotated[str, told("One sentence.")]
    code: Code


class PlacementPart(DocumentPart):
    """Where a container or pod is."""

    cpus: Annotated[CPUList, told("Exclusive CPUs; empty for the shared pool.")]
    mems: Annotated[str, told("NUMA nodes of the memory, with commas; empty for any.")]


class HintPart(DocumentPart):
    """One topology hint."""

    numa: Annotated[Numbers | None, told("NUMA nodes; null where there is no mask.")]
    preferred: bool
    score: Annotated[
        int | UnsetType, told("Which share of what the nodes have is given away, in percent; of kubelets from 1.38 on.")
    ] = UNSET


class HintDigest(DocumentPart):
    """A list of hints that is too long to print."""

    count: Count
    preferred_count: Count
    sha256: Annotated[
        str,
        Meta(
            pattern="^[0-9a-f]{64}$",
            description="Of the hints in order, each as NODES:true; or NODES:false;, with scores as NODES:true:SCORE;",
        ),
    ]


class HintFamily(DocumentPart):
    """Hints that no list can hold: those of very many NUMA nodes."""

    nodes: Annotated[NodeList, told("The nodes whose subsets are hints.")]
    smallest: Annotated[int, told("How many nodes the smallest hints have.")]
    preferred_size: Annotated[int, told("How many nodes a preferred hint has.")]
    listed: Annotated[list[Numbers], told("Hints besides these, each as its nodes.")]


if TYPE_CHECKING:
    HintList: TypeAlias = list[HintPart] | HintDigest | HintFamily | None
else:
    # msgspec accepts no union of structs without tags, neither for decoding nor for a schema.
    HintList = Annotated[
        Any,
        Meta(
            description="The hints of one resource: null for no opinion, all of them, or what is worth saying of very "
            "many.",
            extra_json_schema={
                "anyOf": [
                    {"type": "null"},
                    {"type": "array", "items": {"$ref": "#/$defs/HintPart"}},
                    {"$ref": "#/$defs/HintDigest"},
                    {"$ref": "#/$defs/HintFamily"},
                ]
            },
        ),
    ]
ResourceHintLists: TypeAlias = Annotated[dict[str, HintList], told("Resource name to its hints.")]


class HeldDevicesPart(DocumentPart):
    """The devices of one resource that a container holds."""

    ids: list[str]
    numa: Annotated[list[DeviceNodes], told("The NUMA nodes of each device, sorted as texts.")]


HeldDeviceTable: TypeAlias = Annotated[
    dict[str, dict[str, HeldDevicesPart]], told("Container name to resource name to the devices that it holds.")
]


class PodPart(DocumentPart):
    """The name of a pod."""

    uid: str
    namespace: str
    name: str


def finding_parts(findings: Iterable[Finding]) -> list[FindingPart]:
    """Return findings as documents have them."""
    return [FindingPart(one.severity, one.subject, one.message, one.code) for one in findings]


class PlannedPodPart(DocumentPart, kw_only=True):
    """A pod and the kubelet's decision about it, with the names of the recordings."""

    uid: str
    namespace: str
    name: str
    why: Annotated[str, told("One sentence for people.")]
    code: Code
    remedy: Annotated[str, told("What to do; empty where nothing is known.")]
    assumed: Maybe[
        Annotated[
            list[
                Annotated[
                    str, one_of("memory", "huge pages", "devices", "reservation", "cores", "sockets", "NUMA nodes")
                ]
            ],
            told("Only where the verdict rests on what no source tells: what that is."),
        ]
    ] = UNSET
    running: Maybe[Annotated[bool, told("Only for pods that run already.", const=True)]] = UNSET
    left: Maybe[
        Annotated[bool, told("Only for pods that ran already and are left out of the node afterwards.", const=True)]
    ] = UNSET
    endless: Maybe[Annotated[str, told("Only when the kubelet would never return: the name of the defect.")]] = UNSET
    crash: Maybe[Annotated[str, told("Only when the kubelet would crash: why.")]] = UNSET
    admitted: bool
    reason: Annotated[str, told("The kubelet's; empty for admitted pods.")]
    message: Annotated[str, told("The kubelet's; empty for admitted pods.")]
    containers: Annotated[
        dict[str, PlacementPart],
        told(
            "Container -> its CPUs and memory; of a rejected pod those at the refusal, which the kubelet releases "
            "later."
        ),
    ]
    pod: Annotated[PlacementPart, told("The partition of the pod as a whole.")]
    affinity: Annotated[dict[str, HintPart], told("The hint that the topology manager has stored for a container.")]
    shared_pool: CPUList
    hints: Maybe[Annotated[dict[str, ResourceHintLists], told("Container to its hints.")]] = UNSET
    pod_hints: Maybe[ResourceHintLists] = UNSET
    hidden: Maybe[
        Annotated[
            dict[str, CPUList],
            told(
                "Only with the extension plugins: container -> threads of its cores that no container gets as long "
                "as it runs."
            ),
        ]
    ] = UNSET
    devices: Maybe[HeldDeviceTable] = UNSET
    cpu_manager_state: Annotated[str, told("Text of the state file after this pod.")]
    memory_manager_state: Annotated[str, told("Text of the state file after this pod.")]
    memory_manager_state_admitted: Maybe[
        Annotated[str, told("Text of the file before the containers started, where their start changed it.")]
    ] = UNSET
    mixed: Maybe[
        Annotated[
            list[str],
            told("Only with the extension mixed-cpus: containers that run in the shared pool besides their own CPUs."),
        ]
    ] = UNSET


class BrokenSetPart(DocumentPart):
    """A set of exclusive CPUs some of which are offline."""

    cpus: CPUList
    lost: Annotated[CPUList, told("Those that are offline and not replaced.")]


class DisplacedSetPart(DocumentPart):
    """A set of exclusive CPUs in which other CPUs replace some that are offline."""

    cpus: CPUList
    original: Annotated[CPUList, told("The set to which it returns.")]


class MemoryAccountPart(DocumentPart):
    """The memory manager's account of one resource on a NUMA node, in bytes."""

    allocatable: int
    assigned: int
    free: int


class NUMANodePart(DocumentPart, kw_only=True):
    """A NUMA node, and what is free on it."""

    node: Count
    cpus: Annotated[CPUList, told("CPUs in the kubelet's view.")]
    free: Annotated[CPUList, told("CPUs that can still become exclusive.")]
    free_count: Count
    reserved: CPUList
    exclusive: CPUList
    memory_bytes: Annotated[Count, told("Memory in the kubelet's view.")]
    group: Maybe[Annotated[Numbers, told("Nodes whose memory is assigned together; absent under policy None.")]] = UNSET
    memory: Maybe[
        Annotated[dict[str, MemoryAccountPart], told("Resource name to account; absent as the group is.")]
    ] = UNSET


class PlanDocument(DocumentPart, kw_only=True):
    """What mooring plan -o json prints: what becomes of each pod."""

    api_version: APIVersion = API_VERSION
    kind: Literal["Plan"] = "Plan"
    kubelet: KubeletRelease
    machine: str
    start_error: Maybe[Annotated[str, told("Only when the kubelet would not start, as are the next three.")]] = UNSET
    start_error_stage: Maybe[Annotated[str, told("The stage of the start that failed.")]] = UNSET
    start_error_code: Maybe[Annotated[Code, told("The code of the cause.")]] = UNSET
    remedy: Maybe[Annotated[str, told("Changes that were run, or general advice that says so.")]] = UNSET
    pods: Annotated[list[PlannedPodPart], told("Running pods first, then those of -f in order.")]
    shared_pool: Annotated[CPUList, told("The shared pool afterwards.")]
    reserved: Maybe[Annotated[CPUList, told("Absent when the kubelet would not start, as is numaNodes.")]] = field(
        name="reservedCPUs", default=UNSET
    )
    numa_nodes: Maybe[list[NUMANodePart]] = UNSET
    offline: Maybe[Annotated[CPUList, told("Only with CPUs that are offline, as are the next three.")]] = UNSET
    usable_pool: Maybe[Annotated[CPUList, told("Where containers of the shared pool run.")]] = UNSET
    broken: Maybe[
        Annotated[
            dict[str, dict[str, BrokenSetPart]],
            told(
                "Pod uid -> container (empty for a pod's partition) -> its CPUs, and those of them that are offline"
                " and not replaced."
            ),
        ]
    ] = UNSET
    displaced: Maybe[
        Annotated[
            dict[str, dict[str, DisplacedSetPart]],
            told("Pod uid -> container -> its CPUs, replacement CPUs among them, and the set that it gets back."),
        ]
    ] = UNSET
    unasked: Maybe[
        Annotated[list[PodPart], told("Only when the kubelet would not return from an admission: the pods after it.")]
    ] = UNSET
    findings: list[FindingPart]
