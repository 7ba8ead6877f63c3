"""Pods that lose their node: where the scheduler and the nodes' kubelets let their replacements run, or why not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from mooring.fleet.live.pod_object import LivePod
from mooring.fleet.nodes import Nodes
from mooring.fleet.relocation.room import SharedObstacle, causes
from mooring.fleet.scheduler.scheduler import Scheduler


class Outcome(Enum):
    """What becomes of a pod; the value is its name in documents."""

    MOVES = "moves"
    """Another node admits its replacement."""
    WAITS = "waits"
    """No node takes its replacement."""
    REFUSED = "refused"
    """The kubelet of the node that the scheduler chooses refuses it."""
    LOST = "lost"
    """No controller makes it anew."""
    HELD = "held"
    """A PodDisruptionBudget keeps it from being evicted."""
    STAYS = "stays"
    """It belongs to its node: a static pod, or one of a DaemonSet."""


FAILURES = (Outcome.WAITS, Outcome.REFUSED, Outcome.LOST, Outcome.HELD)
"""What a drain or an upgrade should not come to."""


@dataclass(frozen=True, slots=True)
class Relocated:
    """What becomes of one pod."""

    pod: LivePod
    outcome: Outcome
    source: str
    """The node that it leaves."""
    target: str = ""
    """The node that takes or refuses its replacement; empty where there is none."""
    code: str = ""
    """Of the cause of a refusal."""
    causes: tuple[SharedObstacle, ...] = ()
    """Why no node takes it, of a pod that waits."""
    elsewhere: tuple[str, ...] = ()
    """Nodes that would admit it, of a pod that is refused where the scheduler puts it."""


def relocated(nodes: Nodes, scheduler: Scheduler, pods: Iterable[tuple[LivePod, str]]) -> list[Relocated]:
    """Find a place for the replacement of each pod, in the scheduler's order: by priority, then by age.

    Args:
        nodes: of the cluster, without these pods; changed.
        scheduler: of the cluster.
        pods: each with the node that it leaves.
    """
    ordered = sorted(pods, key=lambda entry: (-entry[0].pod.priority, entry[0].order))
    return [_relocated(nodes, scheduler, pod, source) for pod, source in ordered]


def _relocated(nodes: Nodes, scheduler: Scheduler, pod: LivePod, source: str) -> Relocated:
    if not pod.owner:
        return Relocated(pod, Outcome.LOST, source)
    asked, members = pod.asked, nodes.table.members
    choice = scheduler.choose(asked)
    tries = len(members) if choice.refusing else 0
    # A cycle looks at some of the nodes only; the next one goes on where it ended.
    while choice.node is None and tries:
        choice, tries = scheduler.choose(asked), tries - 1
    if choice.node is None:
        return Relocated(pod, Outcome.WAITS, source, causes=causes(nodes, asked))
    prediction = nodes.begin(choice.node, pod.name, asked, 0.0)
    target = members[choice.node].name
    if prediction.admitted:
        return Relocated(pod, Outcome.MOVES, source, target)
    taking = (place for place in range(len(members)) if nodes.takes(place, asked, exactly=True))
    elsewhere = tuple(members[place].name for place in taking)
    return Relocated(pod, Outcome.REFUSED, source, target, prediction.code, elsewhere=elsewhere)
