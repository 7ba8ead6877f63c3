"""The objects of a cluster, from wherever they come: kubectl's lists, an archive, or the API server.

One kind of list is enough: nodes and pods. What nodes publish, and ``/configz``, tells more where it is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mooring.engine.core.errors import InputError
from mooring.inputs.decoding.fields import Document
from mooring.inputs.pods.cluster_objects import KINDS as DYNAMIC
from mooring.inputs.pods.cluster_objects import objects_of
from mooring.published.objects import FACTS, STATE

NODE: Final = "Node"
POD: Final = "Pod"
BUDGET: Final = "PodDisruptionBudget"
TOPOLOGY: Final = "NodeResourceTopology"
KINDS: Final = (NODE, POD, BUDGET, FACTS, STATE, TOPOLOGY, *sorted(DYNAMIC))
_REMEDY: Final = "give what kubectl get nodes,pods -A -o json prints, or an archive of mooring collect --cluster"

Content = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ClusterObjects:
    """The objects of one cluster at one moment."""

    source: str
    """Where they are from, for messages."""
    found: Mapping[str, tuple[Content, ...]]
    """Kind -> objects, in the order in which they were listed."""
    configz: Mapping[str, Content] = field(default_factory=dict)
    """Name of a node -> what its kubelet says of its configuration."""
    captured: str = ""
    """When they were read; empty where that is not known."""
    unread: tuple[str, ...] = ()
    """What could not be read, in words."""

    def of(self, kind: str) -> tuple[Content, ...]:
        """Return the objects of one kind."""
        return self.found.get(kind, ())


def cluster_objects(documents: Iterable[Document], source: str) -> ClusterObjects:
    """Return the objects in documents; other kinds are passed over.

    Args:
        documents: lists or single objects.
        source: their name, for messages.

    Raises:
        InputError: there is no node among them.
    """
    found: dict[str, list[Content]] = {kind: [] for kind in KINDS}
    for document in documents:
        for _, content in objects_of(document.content, KINDS):
            found[content["kind"]].append(content)
    objects = ClusterObjects(source, {kind: tuple(items) for kind, items in found.items()})
    check_has_nodes(objects)
    return objects


def check_has_nodes(objects: ClusterObjects) -> None:
    """Refuse a cluster without nodes.

    Raises:
        InputError: there is none.
    """
    if not objects.of(NODE):
        raise InputError("has no Node object", source=objects.source, remedy=_REMEDY)


def name_of(content: Content) -> str:
    """Return the name of an object; empty where it has none."""
    metadata = content.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    return name if isinstance(name, str) else ""
