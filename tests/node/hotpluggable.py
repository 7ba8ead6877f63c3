"""Nodes whose CPUs go offline and come back."""

from __future__ import annotations

from dataclasses import replace

from tests.node.nodes import config, machine
from tests.node.resizable import container, pod, with_pods

from mooring.documents.facts import fact_members
from mooring.engine.core.bits import CPUMask, list_text, mask_of
from mooring.engine.core.config import (
    CPU_HOTPLUG,
    EXCLUSIVE_RESIZE,
    FIXABLE_DEFECTS,
    SAME_NODES,
    KubeletConfig,
    MooringConfig,
)
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.machineinfo import MachineInfo
from mooring.engine.core.pod import ContainerKind, Pod
from mooring.engine.node import Node
from mooring.engine.node.hotplug import CPUsChanged, came_online, went_offline

TWO_NODES = machine(2, 8, threads=1)
"""CPUs 0-7 and 8-15, of which 0 is reserved."""


def hotpluggable(
    kubelet: KubeletConfig | None = None, info: MachineInfo = TWO_NODES, rule: str = SAME_NODES, *extensions: str
) -> Node:
    """Return a fresh node with the extension, and with all defects fixed."""
    kubelet = kubelet or config()
    return Node.fresh(info, kubelet, MooringConfig(frozenset({CPU_HOTPLUG, *extensions}), FIXABLE_DEFECTS, rule))


def cpus(text: str) -> CPUMask:
    return CPUSet.parse(text).mask


def offline(node: Node, text: str) -> tuple[Node, CPUsChanged]:
    return went_offline(node, cpus(text))


def online(node: Node, text: str) -> tuple[Node, CPUsChanged]:
    return came_online(node, cpus(text))


def told(change: CPUsChanged) -> list[tuple[str, str, str]]:
    """Return container, set before and after of each set that changed; of a broken one what it lost, and why."""
    facts = [fact_members(one) for one in (*change.restored, *change.broken)]
    names = [("before", "after") if "after" in one else ("lost", "why") for one in facts]
    return [(one["container"], one[first], one[last]) for one, (first, last) in zip(facts, names, strict=True)]


def set_of(node: Node, uid: str, name: str = "a") -> str:
    """Return a container's CPUs; those of the pod's partition under the empty name."""
    return list_text(node.cpu.assignments[uid][name] if name else node.cpu.pods[uid])


def reusing(uid: str = "p") -> Pod:
    """Return a pod with an init container of two CPUs and an app of three, which takes over the two."""
    made = (container("init", "2", kind=ContainerKind.INIT), container("a", "3"))
    return replace(pod(uid=uid), containers=made)


__all__ = [
    "EXCLUSIVE_RESIZE",
    "TWO_NODES",
    "config",
    "cpus",
    "hotpluggable",
    "machine",
    "mask_of",
    "offline",
    "online",
    "pod",
    "reusing",
    "set_of",
    "told",
    "with_pods",
]
