"""Which nodes would take a pod, and why the others would not: grouped by cause, nodes in one state asked once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from mooring.engine.core.pod import Pod
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.kubelet.shapes import Load, PodShape, is_plain, load_of, shape_of
from mooring.explain.codes.pages import page
from mooring.explain.prediction import ADMITTED, Prediction, check, predicted
from mooring.inputs.pods.defaults import PodGates
from mooring.inputs.pods.scheduling_fields import NO_FIELDS, SchedulingFields, scheduling_fields_of
from mooring.monitoring.serve.cluster.known import KnownCluster, NodeNow
from mooring.monitoring.serve.node_plan import pods_in_text
from mooring.published.situation import UNJUDGED, NodeFaults

UNKNOWN = "nothing is known of the node"
KEPT_OFF = "labels, affinity or taints keep the pod off"


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
    _known: dict[tuple[bytes, Load, bytes], Prediction] = field(default_factory=dict)

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
        key = node.key, load, shape.key
        if key not in self._known:
            managers = ADMITTED if is_plain(pod) else predicted(kubelet, shape.pod)[1]
            self._known[key] = managers if not managers.admitted else check(shape, load, kubelet.settings)
        return self._known[key]


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
