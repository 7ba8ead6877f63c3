"""The pages and parts of a cluster as HTML.

The nodes of a cluster as tiles: what is free of a resource, how it is spread over NUMA nodes, and refusals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from cachetools import LRUCache

from mooring.engine.core.errors import InputError
from mooring.engine.kubelet.admit import shape_of
from mooring.engine.kubelet.kubelet import Kubelet, free_cpus
from mooring.engine.node.resources import allocatable
from mooring.explanations.phrases import plural, requests_text, size
from mooring.inputs.pods.pod_relations import ZONE
from mooring.inputs.pods.scheduling_fields import SchedulingFields
from mooring.monitoring.serve import cluster_known
from mooring.monitoring.serve.access import EVERYTHING, Viewer
from mooring.published.possible_kubelets import UNJUDGED, NodeFaults
from mooring.published.shadow_document import agreement_by_release
from mooring.views.html import page_text, part_text

SHADES = 4
"""Shades of tiles besides that of a node without anything free."""
CPU: Final = "cpu"
MEMORY: Final = "memory"


@dataclass(frozen=True, slots=True)
class NodeTile:
    """One node."""

    name: str
    amounts: Mapping[str, tuple[int, int, int, int]]
    """By resource: what pods can still get, what they can have at all, and both of the best NUMA node. Empty where
    nothing is known."""
    refusals: tuple[str, ...]
    """Reasons of the pods that it refused and that are still listed."""
    trouble: str = ""
    """Why nothing is known."""
    closed: bool = False
    differs: int = 0
    """Decisions of its kubelet in which a shadow saw a difference."""

    def free(self, resource: str = CPU) -> int:
        """Return what pods can still get of a resource."""
        return self.amounts[resource][0] if resource in self.amounts else 0

    def split(self, resource: str = CPU) -> int:
        """Return by how much the largest pod on one NUMA node is smaller than the sums of the node promise."""
        free, _, together, largest = self.amounts.get(resource, (0, 0, 0, 0))
        return min(free, largest) - together

    def figures(self, resource: str) -> dict[str, int]:
        """Return what the node adds to the figures of the page, by name; refused pods by their reason."""
        found = {"": 1, **dict.fromkeys(self.refusals, 0)}
        for reason in self.refusals:
            found[reason] += 1
        return found | {
            "split": self.split(resource),
            "unknown": not self.amounts,
            "cordoned": self.closed,
            "differs": self.differs,
        }

    def shade(self, resource: str) -> int:
        """Return the shade: the more is free, the stronger."""
        free, offered, *_ = self.amounts.get(resource, (0, 0))
        return max(1, round(free / offered * SHADES)) if free and offered else 0

    def words(self, resource: str) -> str:
        """Return what the tile says, in words."""
        known = ""
        if resource in self.amounts:
            free, offered, together, _ = (amount_text(resource, amount) for amount in self.amounts[resource])
            known = f"{free} of {offered} {title_of(resource)} free"
            known += f", at most {together} of them on one NUMA node" if self.split(resource) else ""
        parts = [f"{self.name}: {self.trouble or known or f'offers no {resource}'}"]
        parts += [f"{plural(len(self.refusals), 'pod')} refused"] if self.refusals else []
        parts += [f"{self.differs} decisions of its kubelet differ from the engine"] if self.differs else []
        return ", ".join([*parts, "cordoned"] if self.closed else parts)


def title_of(resource: str) -> str:
    """Return the name of a resource on the page."""
    return "exclusive CPUs" if resource == CPU else resource


def amount_text(resource: str, amount: int) -> str:
    """Return an amount of a resource: bytes, or pieces.

    >>> amount_text("cpu", 50961), amount_text("hugepages-1Gi", 2**31)
    ('50,961', '2 GiB')
    """
    return size(amount) if resource == MEMORY or resource.startswith("hugepages-") else f"{amount:,}"


def tile(node: cluster_known.NodeNow) -> NodeTile:
    """Return the tile of a node."""
    kubelet, differs = node.kubelet, node.shadow.differs if node.shadow is not None else 0
    refusals, closed = tuple(pod.refusal for pod in node.refused), bool(node.node.closed)
    if isinstance(kubelet, Kubelet):
        return NodeTile(node.node.name, dict(_amounts(kubelet)), refusals, "", closed, differs)
    # Every viewer gets the tiles, and an error of the engine about a state can name any pod.
    names_no_pod = kubelet == cluster_known.UNPUBLISHED or (node.state is not None and node.kind is None)
    return NodeTile(node.node.name, {}, refusals, kubelet if names_no_pod else cluster_known.UNUSABLE, closed, differs)


def _amounts(kubelet: Kubelet) -> Iterator[tuple[str, tuple[int, int, int, int]]]:
    """Yield the amounts of a tile: what the managers have by NUMA node, and no more than the node resources check."""
    free, settings = free_cpus(kubelet).mask, kubelet.settings
    offers = settings.allocatable_cpus.mask if settings.cpu is not None else 0
    masks = settings.topology.numa.values() if settings.topology is not None else ()
    cpus = [((free & mask).bit_count(), (offers & mask).bit_count()) for mask in masks]
    yield CPU, (free.bit_count(), offers.bit_count(), *_best(cpus))
    accounts = kubelet.node.memory.nodes.values()
    for resource, offered in allocatable(settings.reservation).items():
        if offered and (resource == MEMORY or resource.startswith("hugepages-")):
            left = max(0, offered - kubelet.used.get(resource, 0))
            tables = [one.memory[resource] for one in accounts if resource in one.memory]
            left = min(left, sum(one.free for one in tables)) if tables else left
            parts = [(min(one.free, left), one.allocatable) for one in tables]
            yield resource, (left, offered, *_best(parts or [(left, offered)]))
    state = kubelet.node.providers.devices
    for resource, devices in state.devices.items():
        ids = state.available(resource)
        near: dict[int | None, list[int]] = {}
        for one in devices:
            for numa in one.numa or (None,):
                counts = near.setdefault(numa, [0, 0])
                counts[0] += one.id in ids
                counts[1] += one.healthy
        yield resource, (len(ids), sum(one.healthy for one in devices), *_best(near.values()))


def _best(parts: Iterable[Sequence[int]]) -> tuple[int, int]:
    """Return the most that one NUMA node has free, and the most that one offers."""
    free, offered = zip((0, 0), *parts, strict=True)
    return max(free), max(offered)


def with_labels(nodes: Iterable[cluster_known.NodeNow], selector: str) -> list[cluster_known.NodeNow]:
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


MOST_LISTED: Final = 200
"""Waiting or refused pods that are listed."""
MOST_SHAPES: Final = 32
"""Shapes of waiting pods for which a node is looked for."""
MOST_NAMED: Final = 30
"""Nodes that are named of those that share an answer."""
FEW: Final = 150
"""Nodes up to which each tile has its name."""
LABELS: Final[Mapping[str, tuple[str, ...]]] = {
    "pool": (
        "pool",
        "cloud.google.com/gke-nodepool",
        "eks.amazonaws.com/nodegroup",
        "kubernetes.azure.com/agentpool",
        "karpenter.sh/nodepool",
    ),
    "zone": (ZONE, "zone"),
}
"""By what nodes can be grouped, and the labels that say it: the first that a node has."""
ORDERS: Final[Mapping[str, Callable[[NodeTile, str], int]]] = {
    "most free": lambda one, resource: -one.free(resource),
    "least free": NodeTile.free,
    "refused": lambda one, _: -len(one.refusals),
}
"""How nodes can be sorted, besides by name."""
View = Mapping[str, str]
"""What is shown of a cluster: fields of the page's form."""


class TileSheet:
    """The tiles of a cluster; that of a node that has not changed is drawn once. Used by one thread at a time."""

    def __init__(self, *, links: bool = True) -> None:
        """Draw nothing yet; with links a tile opens the page of its node."""
        self._links = links
        self._known: dict[str, tuple[cluster_known.NodeNow, NodeTile, dict[tuple[str, bool], str]]] = {}
        self._search = cluster_known.FittingSearch()
        self._refusing: LRUCache[tuple[bytes, SchedulingFields], dict[str, cluster_known.NodeNow]]
        self._refusing = LRUCache(MOST_SHAPES)
        """By what decides about a waiting pod: nodes that would not take it, as they were asked."""

    def body(self, cluster: cluster_known.KnownCluster, view: View, viewer: Viewer) -> str:
        """Return the part of the page that changes.

        Raises:
            InputError: the labels are no selector.
        """
        everything, show = cluster.all(), view.get("show", "")
        tiles = {node.node.name: self._tile(node, cluster.faults)[0] for node in everything}
        self._known = {name: self._known[name] for name in tiles}
        asked = view.get("resource", "")
        resource = asked if any(asked in one.amounts for one in tiles.values()) else CPU
        searched = view.get("search", "").strip().lower()
        nodes = [one for one in with_labels(everything, view.get("labels", "")) if searched in one.node.name.lower()]
        found, figures, shown = [tiles[node.node.name] for node in nodes], Counter[str](), []
        for node, one in zip(nodes, found, strict=True):
            figures.update(own := one.figures(resource))
            if own.get(show) and (resource in (CPU, MEMORY) or resource in one.amounts):
                shown.append(node)
        if order := ORDERS.get(view.get("sort", "")):
            shown.sort(key=lambda node: order(tiles[node.node.name], resource))
        refused = [
            (pod, node.node.name)
            for node in nodes
            for pod in node.refused
            if viewer.may_list(pod.pod.namespace) and show in ("", pod.refusal)
        ]
        refused.sort(key=lambda entry: -entry[0].since)
        waiting = [one for one in cluster.waiting() if viewer.may_list(one.pod.namespace)]
        return part_text(
            "cluster-body.html",
            resource=resource,
            show=show,
            totals=_totals(found, resource),
            figures=figures,
            groups=list(self._groups(shown, resource, view.get("group", ""), cluster.faults)),
            many=len(shown) > FEW,
            agreement=agreement_by_release(node.shadow for node in nodes if node.shadow is not None),
            narrowed=any(view.get(name) for name in ("search", "labels", "show")),
            refused=refused[:MOST_LISTED],
            waiting=list(self._waiting(waiting[:MOST_LISTED], everything, cluster.faults)),
            more=(max(0, len(refused) - MOST_LISTED), max(0, len(waiting) - MOST_LISTED)),
            links=self._links,
            title_of=title_of,
            amount_text=amount_text,
        )

    def _groups(
        self, shown: Sequence[cluster_known.NodeNow], resource: str, group: str, faults: NodeFaults
    ) -> Iterator[tuple[str, int, str, str]]:
        """Yield name, nodes, sums and tiles of each group of nodes."""
        many, wanted = len(shown) > FEW, [(kind, LABELS[kind]) for kind in group.split(",") if kind in LABELS]
        groups: dict[str, list[cluster_known.NodeNow]] = {}
        for node in shown:
            found = [
                f"{kind} {next((node.node.labels[key] for key in keys if key in node.node.labels), 'unknown')}"
                for kind, keys in wanted
            ]
            groups.setdefault(", ".join(found), []).append(node)
        for name, members in sorted(groups.items()):
            texts = []
            for node in members:
                one, drawn = self._tile(node, faults)
                if (resource, many) not in drawn:
                    free, offered, *_ = (amount_text(resource, amount) for amount in one.amounts.get(resource, (0, 0)))
                    text = "?" if not one.amounts else free if many else f"{free}/{offered}"
                    drawn[resource, many] = part_text(
                        "cluster-tile.html", one=one, text=text, resource=resource, many=many, links=self._links
                    )
                texts.append(drawn[resource, many])
            sums = dict(_totals((self._known[node.node.name][1] for node in members), resource))
            yield name, len(members), sums.get(resource, ""), "".join(texts)

    def _waiting(
        self, waiting: Iterable[cluster_known.ClusterPod], nodes: Sequence[cluster_known.NodeNow], faults: NodeFaults
    ) -> Iterator[tuple[cluster_known.ClusterPod, str, str | None]]:
        """Yield pods that wait with their requests and a node that would take them; None where no node was asked.

        Nodes that would not take a pod of some shape are asked again when they have changed.
        """
        self._search.faults = faults
        answers: dict[tuple[bytes, SchedulingFields], str] = {}
        for one in waiting:
            shape = shape_of(one.pod)
            key = shape.key, one.fields
            if key not in answers and len(answers) < MOST_SHAPES:
                refusing = self._refusing.setdefault(key, {})
                answers[key] = ""
                for node in nodes:
                    name = node.node.name
                    if refusing.get(name) is not node:
                        if self._search.cause(one.pod, shape, node, one.fields) is None:
                            answers[key] = name
                            break
                        refusing[name] = node
            yield one, requests_text(shape.requests), answers.get(key)

    def _tile(self, node: cluster_known.NodeNow, faults: NodeFaults) -> tuple[NodeTile, dict[tuple[str, bool], str]]:
        found = self._known.get(node.node.name)
        if found is None or found[0] is not node:
            made = faults.guarded(
                node.node.name, lambda: tile(node), lambda _error: tile(replace(node, kubelet=UNJUDGED))
            )
            found = self._known[node.node.name] = node, made, {}
        return found[1:]


def _totals(tiles: Iterable[NodeTile], resource: str) -> list[tuple[str, str]]:
    """Return the resources that nodes offer with the sums of what is free, CPUs and memory first."""
    sums: dict[str, list[int]] = {resource: [0, 0]}
    for one in tiles:
        for name, (free, offered, *_) in one.amounts.items():
            total = sums.setdefault(name, [0, 0])
            total[0] += free
            total[1] += offered
    ordered = sorted(sums, key=lambda name: (name != CPU, name != MEMORY, name))
    return [(name, " of ".join(amount_text(name, amount) for amount in sums[name])) for name in ordered]


def cluster_page(content: str, name: str, assets: tuple[str, str]) -> str:
    """Return the page of a cluster.

    Args:
        content: its body.
        name: of the cluster.
        assets: addresses of styles and script.
    """
    styles, script = assets
    return part_text("serve-cluster.html", title=name, styles=styles, script=script, content=content, orders=ORDERS)


def fittings_html(found: Sequence[cluster_known.Fitting], asked: cluster_known.ClusterPod | None = None) -> str:
    """Return where pods fit; of one that a node refused, also when and why it did."""
    return part_text("fitting.html", found=found, most=MOST_NAMED, asked=asked)


def exported_cluster(cluster: cluster_known.KnownCluster, name: str) -> str:
    """Return a cluster as one file."""
    content = TileSheet(links=False).body(cluster, {}, EVERYTHING)
    return page_text("serve-export.html", title=name, content=content, patterns="")
