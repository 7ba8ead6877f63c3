"""CPUs that are of no use to anybody: what is left when the node is filled up, and what ended init containers hold.

The node is filled with more pods of the shapes in the trace, those that ask for most CPUs first, each shape until the
kubelet refuses one. What can still be given away then, no pod of these shapes can use. The filling is done by the
engine like any admission, with the node resources check but for ``maxPods``, which says nothing about CPUs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace

from mooring.core.pod import ContainerKind, Pod
from mooring.cpumanager.policy import available_cpus
from mooring.kubelet.admit import AdmitMode, added, admit
from mooring.kubelet.kubelet import Kubelet
from mooring.node import Node
from mooring.node.resources import check_amounts, pod_requests

NO_LIMIT = sys.maxsize


@dataclass(frozen=True, slots=True)
class Stranded:
    """CPUs that are stranded, by the reason."""

    init: int = 0
    """Held by running pods for init containers that have ended (kubernetes/kubernetes#112228)."""
    siblings: int = 0
    """Left over on cores of which another thread is somebody's own."""
    fragments: int = 0
    """Left over elsewhere: too few together, or something else than CPUs is exhausted."""

    @property
    def total(self) -> int:
        """All of them."""
        return self.init + self.siblings + self.fragments


def stranded_cpus(kubelet: Kubelet, shapes: Iterable[Pod]) -> Stranded:
    """Count the stranded CPUs of a node; none when its CPU manager gives nothing away.

    Args:
        kubelet: at the end of the trace.
        shapes: one pod of each shape, in the order in which the node is filled with them.
    """
    node, policy = kubelet.node, kubelet.settings.cpu
    if policy is None:
        return Stranded()
    full = filled(kubelet, shapes).node.cpu
    left = available_cpus(policy, full)
    taken = policy.topology.all_cpus & ~full.default & ~policy.reserved
    beside = left & policy.topology.core_siblings(taken)
    return Stranded(
        sum(_of_ended(node, pod).bit_count() for pod in node.active.values()),
        beside.bit_count(),
        (left & ~beside).bit_count(),
    )


def filled(kubelet: Kubelet, shapes: Iterable[Pod]) -> Kubelet:
    """Return the kubelet when no more pod of these shapes gets CPUs of its own there."""
    used, reservation = kubelet.used, kubelet.settings.reservation
    for number, shape in enumerate(shapes):
        wanted = pod_requests(shape)
        copies = 0
        while check_amounts(wanted, used, 0, reservation, NO_LIMIT) is None:
            copies += 1
            after, result = admit(kubelet, replace(shape, uid=f"filling-{number}-{copies}"), AdmitMode.MANAGERS)
            if not result.admitted or after.node.cpu.default == kubelet.node.cpu.default:
                break
            kubelet, used = after, added(used, wanted)
    return kubelet


def _of_ended(node: Node, pod: Pod) -> int:
    """Return the CPUs that a pod holds for init containers alone; a pod with a partition of its own shares them."""
    if pod.uid in node.cpu.pods:
        return 0
    ended = others = 0
    held = node.cpu.assignments.get(pod.uid, {})
    for container in pod.containers:
        if container.kind is ContainerKind.INIT:
            ended |= held.get(container.name, 0)
        else:
            others |= held.get(container.name, 0)
    return ended & ~others
