"""The pages and parts of a cluster as HTML.

Which nodes would take a pod, and why the others would not: grouped by cause, nodes in one state asked once.

The nodes of a cluster as tiles: free exclusive CPUs, how they are spread over NUMA nodes, and refusals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Pod
from mooring.engine.kubelet.kubelet import Kubelet, free_cpus
from mooring.engine.kubelet.shapes import Load, Memo, PodShape, is_plain, load_of, shape_of
from mooring.explanations.codes import page
from mooring.explanations.why import ADMITTED, Prediction, check, predicted
from mooring.inputs.pods.defaults import PodGates
from mooring.inputs.pods.scheduling_fields import NO_FIELDS, SchedulingFields, scheduling_fields_of
from mooring.monitoring.serve.access import EVERYTHING, Viewer
from mooring.monitoring.serve.cluster_known import UNPUBLISHED, UNUSABLE, ClusterPod, KnownCluster, NodeNow
from mooring.monitoring.serve.node_plan import pods_in_text
from mooring.published.possible_kubelets import UNJUDGED, NodeFaults
from mooring.published.shadow_document import AgreementCounts, agreement_by_release
from mooring.views.html.document import page_text, part_text

UNKNOWN = "nothing is known of the node"
KEPT_OFF = "labels, affinity or taints keep the pod off"
_MOST_ANSWERS: Final = 20_000


@dataclass(frozen=True, slots=True)
class NodesOfCause:
    """Nodes that would not take a pod for one cause."""

    cause: str
    code: str
    """Of the cause; empty for one of the scheduler."""
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fitting:
    """Where a pod fits."""

    pod: str
    """``namespace/name``."""
    fits: tuple[str, ...]
    causes: tuple[NodesOfCause, ...]
    """Those of most nodes first."""


@dataclass(slots=True)
class FittingSearch:
    """Asks nodes about pods; answers of equal nodes are shared."""

    faults: NodeFaults = field(default_factory=NodeFaults)
    _known: Memo[tuple[bytes, Load, bytes], Prediction] = field(default_factory=lambda: Memo(_MOST_ANSWERS))

    def fitting(self, pod: Pod, nodes: Sequence[NodeNow], fields: SchedulingFields = NO_FIELDS) -> Fitting:
        """Return where a pod fits.

        Args:
            pod: that is asked about.
            nodes: of the cluster.
            fields: what keeps it off nodes.
        """
        shape = shape_of(pod)
        fits: list[str] = []
        causes: dict[tuple[str, str], list[str]] = {}
        for one in nodes:
            cause = self._cause(pod, shape, one, fields)
            if cause is None:
                fits.append(one.node.name)
            else:
                causes.setdefault(cause, []).append(one.node.name)
        ordered = sorted(causes.items(), key=lambda entry: (-len(entry[1]), entry[0]))
        found = tuple(NodesOfCause(text, code, tuple(names)) for (text, code), names in ordered)
        return Fitting(f"{pod.namespace}/{pod.name}", tuple(fits), found)

    def _cause(self, pod: Pod, shape: PodShape, node: NodeNow, fields: SchedulingFields) -> tuple[str, str] | None:
        if not fields.allows(node.node.labels, node.node.name) or not fields.tolerates(node.node.all_taints):
            return KEPT_OFF, ""
        if isinstance(node.kubelet, str) or node.kind is None:
            return UNKNOWN, ""
        answer = self.faults.guarded(
            node.node.name, partial(self._asked, pod, shape, node, node.kubelet), lambda _error: None
        )
        if answer is None:
            return UNJUDGED, ""
        return None if answer.admitted else (page(answer.code).title, answer.code)

    def _asked(self, pod: Pod, shape: PodShape, node: NodeNow, kubelet: Kubelet) -> Prediction:
        load = load_of(kubelet)

        def ask() -> Prediction:
            managers = ADMITTED if is_plain(pod) else predicted(kubelet, shape.pod)[1]
            return managers if not managers.admitted else check(shape, load, kubelet.settings)

        return self._known.of((node.key, load, shape.key), ask)


def fittings_in_text(manifest: bytes, cluster: KnownCluster) -> list[Fitting]:
    """Return where the pods of a manifest fit in a cluster, each with what its specification says about nodes.

    Raises:
        InputError: it cannot be understood, or has no pod or too many.
    """
    search, nodes = FittingSearch(cluster.faults), cluster.all()
    asked = [
        (pod, scheduling_fields_of(origin.content, origin.field)) for pod, origin in pods_in_text(manifest, PodGates())
    ]
    return [search.fitting(pod, nodes, fields) for pod, fields in asked]


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


MOST_WAITING: Final = 200
"""Waiting pods that are listed."""
MOST_NAMED: Final = 30
"""Nodes that are named of those that share an answer."""
FEW: Final = 150
"""Nodes up to which each tile has its name."""


@dataclass(slots=True)
class TileSheet:
    """The tiles of a cluster; that of a node that has not changed is drawn once. Used by one thread at a time."""

    links: bool = True
    """Whether a tile opens the page of its node."""
    _known: dict[str, tuple[NodeNow, NodeTile, dict[bool, str]]] = field(default_factory=dict)

    def body(self, cluster: KnownCluster, labels: str, viewer: Viewer) -> str:
        """Return the part of the page that changes.

        Raises:
            InputError: the labels are no selector.
        """
        everything = cluster.all()
        if len(self._known) > len(everything):
            names = {node.node.name for node in everything}
            self._known = {name: one for name, one in self._known.items() if name in names}
        nodes = with_labels(everything, labels)
        tiles = [self._tile(node, cluster.faults)[0] for node in nodes]
        many = len(nodes) > FEW
        drawn = "".join(self._drawn(node, cluster.faults, many=many) for node in nodes)
        waiting = [one for one in cluster.waiting() if viewer.may_list(one.pod.namespace)]
        return self._body(sums(nodes, tiles), drawn, waiting, labels, many=many)

    def _tile(self, node: NodeNow, faults: NodeFaults) -> tuple[NodeTile, dict[bool, str]]:
        found = self._known.get(node.node.name)
        if found is None or found[0] is not node:
            made = faults.guarded(
                node.node.name, lambda: tile(node), lambda _error: tile(replace(node, kubelet=UNJUDGED))
            )
            found = self._known[node.node.name] = node, made, {}
        return found[1:]

    def _drawn(self, node: NodeNow, faults: NodeFaults, *, many: bool) -> str:
        one, drawn = self._tile(node, faults)
        if many not in drawn:
            drawn[many] = part_text("cluster-tile.html", one=one, many=many, links=self.links)
        return drawn[many]

    def _body(self, found: ClusterSums, tiles: str, waiting: Sequence[ClusterPod], labels: str, *, many: bool) -> str:
        return part_text(
            "cluster-body.html",
            found=found,
            tiles=tiles,
            many=many,
            labels=labels,
            waiting=waiting[:MOST_WAITING],
            more=max(0, len(waiting) - MOST_WAITING),
            links=self.links,
        )


def cluster_page(content: str, name: str, assets: tuple[str, str]) -> str:
    """Return the page of a cluster.

    Args:
        content: its body.
        name: of the cluster.
        assets: addresses of styles and script.
    """
    styles, script = assets
    return part_text("serve-cluster.html", title=name, styles=styles, script=script, content=content)


def fittings_html(found: Sequence[Fitting]) -> str:
    """Return where pods fit."""
    return part_text("fitting.html", found=found, most=MOST_NAMED)


def exported_cluster(cluster: KnownCluster, name: str) -> str:
    """Return a cluster as one file."""
    content = TileSheet(links=False).body(cluster, "", EVERYTHING)
    return page_text("serve-export.html", title=name, content=content, patterns="")
