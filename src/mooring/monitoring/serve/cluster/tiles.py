"""The nodes of a cluster as tiles: free exclusive CPUs, how they are spread over NUMA nodes, and refusals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mooring.engine.core.errors import InputError
from mooring.engine.kubelet.kubelet import free_cpus
from mooring.monitoring.serve.cluster.known import UNPUBLISHED, UNUSABLE, NodeNow
from mooring.published.shadow_document import AgreementCounts, agreement_by_release

SHADES = 4
"""Shades of tiles besides that of a node without free CPUs."""


@dataclass(frozen=True, slots=True)
class NodeTile:
    """One node."""

    name: str
    free: int | None
    """CPUs that a container can still get for itself; None where that is not known."""
    offered: int
    """CPUs that containers can have for themselves at all."""
    together: int
    """Free CPUs of the NUMA node that has most of them."""
    largest: int
    """CPUs of the NUMA node that offers most."""
    pods: int
    refused: int
    trouble: str = ""
    """Why nothing is known."""
    closed: bool = False
    differs: int = 0
    """Decisions of its kubelet in which a shadow saw a difference."""

    @property
    def split(self) -> int:
        """CPUs by which the largest pod on one NUMA node is smaller than the sums of the node promise."""
        return min(self.free or 0, self.largest) - self.together

    @property
    def shade(self) -> int:
        """The more CPUs are free, the stronger."""
        if not self.free or not self.offered:
            return 0
        return max(1, round(self.free / self.offered * SHADES))

    @property
    def words(self) -> str:
        """What the tile says, in words."""
        known = f"{self.free} of {self.offered} exclusive CPUs free"
        parts = [f"{self.name}: {self.trouble if self.free is None else known}"]
        parts += [f"at most {self.together} of them on one NUMA node"] if self.split else []
        parts += [f"{self.refused} pods refused"] if self.refused else []
        parts += [f"{self.differs} decisions of its kubelet differ from the engine"] if self.differs else []
        return ", ".join([*parts, "cordoned"] if self.closed else parts)


@dataclass(frozen=True, slots=True)
class ClusterSums:
    """Sums of some nodes."""

    nodes: int
    unknown: int
    free: int
    offered: int
    split: int
    """CPUs that pods on one NUMA node cannot use although the sums of their node promise them."""
    refused: Mapping[str, int]
    """Reason -> pods that are still listed."""
    agreement: Mapping[str, AgreementCounts]
    """Release of kubelets -> what their shadows counted."""


def tile(node: NodeNow) -> NodeTile:
    """Return the tile of a node."""
    kubelet, differs = node.kubelet, node.shadow.differs if node.shadow is not None else 0
    pods, refused = len(node.pods), len(node.refused)
    if isinstance(kubelet, str):
        # Every viewer gets the tiles, and an error of the engine about a state can name any pod.
        names_no_pod = kubelet == UNPUBLISHED or (node.state is not None and node.kind is None)
        trouble = kubelet if names_no_pod else UNUSABLE
        return NodeTile(node.node.name, None, 0, 0, 0, pods, refused, trouble, node.node.closed, differs)
    free = free_cpus(kubelet).mask
    offers = kubelet.settings.allocatable_cpus.mask if kubelet.settings.cpu is not None else 0
    topology = kubelet.settings.topology
    numa = topology.numa.values() if topology is not None else ()
    together = max(((free & mask).bit_count() for mask in numa), default=0)
    return NodeTile(
        node.node.name,
        free.bit_count(),
        offers.bit_count(),
        together,
        max(((offers & mask).bit_count() for mask in numa), default=0),
        pods,
        refused,
        closed=node.node.closed,
        differs=differs,
    )


def sums(nodes: Iterable[NodeNow], tiles: Iterable[NodeTile]) -> ClusterSums:
    """Return the sums of nodes and their tiles."""
    found = list(tiles)
    there = list(nodes)
    refused = Counter(pod.refusal for node in there for pod in node.refused)
    return ClusterSums(
        len(found),
        sum(one.free is None for one in found),
        sum(one.free or 0 for one in found),
        sum(one.offered for one in found),
        sum(one.split for one in found),
        dict(refused.most_common()),
        agreement_by_release(node.shadow for node in there if node.shadow is not None),
    )


def with_labels(nodes: Iterable[NodeNow], selector: str) -> list[NodeNow]:
    """Return the nodes whose labels a selector such as ``pool=gpu,zone`` asks for.

    Raises:
        InputError: it is none.
    """
    wanted = []
    for part in filter(None, (text.strip() for text in selector.split(","))):
        key, equals, value = part.partition("=")
        if not key.strip() or "!" in key:
            raise InputError("is not a selector", source=part, remedy="write KEY=VALUE or KEY, separated by commas")
        wanted.append((key.strip(), value.strip().removeprefix("=") if equals else None))
    return [
        node
        for node in nodes
        if all(key in node.node.labels and value in (None, node.node.labels[key]) for key, value in wanted)
    ]
