"""``mooring collect -o json`` and ``mooring-node.json``: what an archive holds, what it lacks, and why."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from mooring.documents.parts import API_VERSION, APIVersion, Count, DocumentPart, one_of


class ArchivePart(DocumentPart):
    """One part of a node, such as its state files."""

    name: Annotated[str, one_of("machine", "isolation", "configuration", "state files", "pods")]
    origin: Annotated[str, Meta(description="Where it came from; empty when it is missing.")] = ""
    files: Count = 0
    bytes: Count = 0
    missing: Annotated[str, Meta(description="Why it, or something of it, is not there.")] = ""


class UnreadFile(DocumentPart):
    """A file that is there on the node and could not be packed."""

    path: str
    problem: str


class NodeArchiveDocument(DocumentPart, kw_only=True):
    """What mooring collect -o json prints, and what mooring-node.json in an archive holds."""

    api_version: APIVersion = API_VERSION
    kind: Literal["NodeArchive"] = "NodeArchive"
    mooring: Annotated[str, Meta(description="Version of Mooring that collected.")] = ""
    node: Annotated[str, Meta(description="The node's name; empty when it is not known.")] = ""
    kubelet: Annotated[str, Meta(description="The version of the node's kubelet; empty when it is not known.")] = ""
    anonymous: Annotated[bool, Meta(description="Whether names of pods, namespaces and of the node are made up.")] = (
        False
    )
    parts: list[ArchivePart] = field(default_factory=list)
    unread: Annotated[
        list[UnreadFile], Meta(description="Files that are there on the node and could not be packed.")
    ] = field(default_factory=list)
