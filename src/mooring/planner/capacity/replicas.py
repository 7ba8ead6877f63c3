"""Counting: replicas of a pod are admitted one after another until the kubelet says no."""

from __future__ import annotations

from dataclasses import dataclass

from mooring.core.pod import Pod
from mooring.kubelet.admit import Asking, admit
from mooring.kubelet.kubelet import Kubelet
from mooring.node import Decision
from mooring.planner.capacity.place import Place, place_of
from mooring.planner.capacity.shape import replica

MOST = 1000
"""Replicas that are counted when neither a limit nor maxPods nor the number of CPUs says more or less."""


@dataclass(frozen=True, slots=True)
class Replica:
    """One more pod that fits."""

    pod: Pod
    decision: Decision
    place: Place
    aligned: bool
    """Whether it touches no more NUMA nodes than it would on an empty node."""


@dataclass(frozen=True, slots=True)
class Count:
    """How many fit, and the node at the points of interest."""

    replicas: tuple[Replica, ...]
    after: Kubelet
    """The node with all replicas."""
    refused: Pod | None
    """The replica that no longer fits; None when the limit came first."""
    before_spread: Kubelet | None
    """The node before the first replica that is not aligned; None when all are."""


def default_limit(kubelet: Kubelet) -> int:
    """Return how many replicas are counted at most unless told otherwise: one more than maxPods, but not without end.

    So the answer ends with a refusal. A node with more CPUs than :data:`MOST` can have a pod for each.
    """
    settings = kubelet.settings
    cpus = settings.topology.num_cpus if settings.topology is not None else 0
    return min(max(settings.config.max_pods, 0) + 1, max(MOST, cpus))


def count_replicas(kubelet: Kubelet, pod: Pod, limit: int, fewest_nodes: int) -> Count:
    """Admit replicas until one is refused or ``limit`` is reached.

    Args:
        kubelet: of the node now.
        pod: the shape.
        limit: how many at most.
        fewest_nodes: NUMA nodes that the pod touches on an empty node.
    """
    found: list[Replica] = []
    before_spread: Kubelet | None = None
    for number in range(1, limit + 1):
        one = replica(pod, number, kubelet.node.active)
        after, result = admit(kubelet, one, Asking.TRIAL)
        if not result.admitted:
            return Count(tuple(found), kubelet, one, before_spread)
        place = place_of(result.decision, kubelet.settings.topology)
        aligned = len(place.nodes) <= fewest_nodes
        if not aligned and before_spread is None:
            before_spread = kubelet
        found.append(Replica(one, result.decision, place, aligned))
        kubelet = after
    return Count(tuple(found), kubelet, None, before_spread)
