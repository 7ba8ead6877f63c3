"""What several documents share: kinds of text, findings, placements, hints, devices.

Names of members are those of the structs in camel case; a member that is :data:`msgspec.UNSET` is left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType

from mooring.engine.core.machine import Finding

API_VERSION: Final = "mooring/v1alpha1"
"""The version of every document."""

_LIST: Final = "^([0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*)?$"


def one_of(*words: str) -> Meta:
    """Return what says that a text is one of some words."""
    return Meta(extra_json_schema={"enum": list(words)})


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
KubeletRelease: TypeAlias = Annotated[str, Meta(description="The kubelet release whose decisions these are.")]
QoSName: TypeAlias = Annotated[str, one_of("Guaranteed", "Burstable", "BestEffort")]


class DocumentPart(Struct, rename="camel", forbid_unknown_fields=True):
    """A JSON object that has no members but those of its schema."""


class FindingPart(DocumentPart):
    """Something worth knowing besides the answer."""

    severity: Annotated[str, one_of("warning", "info")]
    subject: Annotated[str, Meta(description="What it is about: CPUs, a node, a file, a field.")]
    message: Annotated[str, Meta(description="One sentence.")]
    code: Code


class PlacementPart(DocumentPart):
    """Where a container or pod is."""

    cpus: Annotated[CPUList, Meta(description="Exclusive CPUs; empty for the shared pool.")]
    mems: Annotated[str, Meta(description="NUMA nodes of the memory, with commas; empty for any.")]


class HintPart(DocumentPart):
    """One topology hint."""

    numa: Annotated[Numbers | None, Meta(description="NUMA nodes; null where there is no mask.")]
    preferred: bool
    score: Annotated[
        int | UnsetType,
        Meta(description="Which share of what the nodes have is given away, in percent; of kubelets from 1.38 on."),
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

    nodes: Annotated[NodeList, Meta(description="The nodes whose subsets are hints.")]
    smallest: Annotated[int, Meta(description="How many nodes the smallest hints have.")]
    preferred_size: Annotated[int, Meta(description="How many nodes a preferred hint has.")]
    listed: Annotated[list[Numbers], Meta(description="Hints besides these, each as its nodes.")]


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
ResourceHintLists: TypeAlias = Annotated[dict[str, HintList], Meta(description="Resource name to its hints.")]


class HeldDevicesPart(DocumentPart):
    """The devices of one resource that a container holds."""

    ids: list[str]
    numa: Annotated[list[DeviceNodes], Meta(description="The NUMA nodes of each device, sorted as texts.")]


HeldDeviceTable: TypeAlias = Annotated[
    dict[str, dict[str, HeldDevicesPart]],
    Meta(description="Container name to resource name to the devices that it holds."),
]


class PodPart(DocumentPart):
    """The name of a pod."""

    uid: str
    namespace: str
    name: str


def finding_parts(findings: Iterable[Finding]) -> list[FindingPart]:
    """Return findings as documents have them."""
    return [FindingPart(one.severity, one.subject, one.message, one.code) for one in findings]
