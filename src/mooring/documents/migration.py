"""``mooring migrate -o json``: the way of a node from its kubelet's managers to the agent."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from mooring.documents.parts import (
    API_VERSION,
    APIVersion,
    CPUList,
    DocumentPart,
    FindingPart,
    KubeletRelease,
    PlacementPart,
    one_of,
)


class MigrationCheckPart(DocumentPart):
    """Something that must hold before the first step."""

    name: Annotated[str, one_of("state files", "kubelet", "agent", "pods", "rollback")]
    passed: bool
    message: str


class MigrationStepPart(DocumentPart):
    """One step."""

    title: str
    files: Annotated[dict[str, str], Meta(description="Path -> text to write before the commands.")]
    commands: Annotated[list[str], Meta(description="To be typed on the node or where kubectl is, in order.")]
    outcome: Annotated[list[str], Meta(description="What happens, as computed for this node.")]


class MigratedContainerPart(DocumentPart, kw_only=True):
    """A running container before and after the agent's start."""

    uid: str
    namespace: str
    name: str
    container: str
    outcome: Annotated[str, one_of("kept", "moved", "shared", "waits")]
    before: Annotated[PlacementPart, Meta(description="What it has of its own by the kubelet.")]
    after: Annotated[PlacementPart, Meta(description="What it has of its own by the agent.")]
    runs_on: Annotated[CPUList, Meta(description="The CPUs of its cgroup afterwards.")]
    reason: Annotated[str, Meta(description="Why its pod waits; else empty.")]


class MigrationDocument(DocumentPart, kw_only=True):
    """What mooring migrate -o json prints: checks, steps with their outcomes, and the way back."""

    api_version: APIVersion = API_VERSION
    kind: Literal["Migration"] = "Migration"
    node: Annotated[str, Meta(description="The node's name; empty where it is not known.")]
    machine: str
    kubelet: KubeletRelease
    way: Annotated[str, one_of("in place", "drain")]
    passed: Annotated[bool, Meta(description="Whether every check has passed.")]
    checks: list[MigrationCheckPart]
    containers: Annotated[
        list[MigratedContainerPart], Meta(description="Running ones in order; empty if the agent does not start.")
    ]
    shared_pool: Annotated[CPUList, Meta(description="After the agent's start; empty if it does not start.")]
    steps: list[MigrationStepPart]
    rollback: list[MigrationStepPart]
    findings: list[FindingPart]
