"""What people should know about CPUs that are offline (extension cpu-hotplug)."""

from __future__ import annotations

from collections.abc import Iterator

from mooring.engine.core.bits import list_text
from mooring.engine.core.machine import Finding
from mooring.engine.extensions.offline import BrokenSet, DisplacedSet, broken_sets, displaced_sets, effective_pool
from mooring.engine.extensions.owners import OwnerKind, state_owner
from mooring.engine.node.node import Node


def hotplug_findings(node: Node) -> list[Finding]:
    """Return what is wrong or unusual on a node because CPUs are offline; nothing when all are online."""
    return [*_broken(node), *_displaced(node), *_pool(node)] if node.cpu.offline or node.cpu.displaced else []


def _broken(node: Node) -> Iterator[Finding]:
    for one in broken_sets(node.cpu):
        if state_owner(one.pod).kind is OwnerKind.HIDDEN:
            continue
        message = f"has CPUs {list_text(one.cpus)}, of which {_offline(one.lost)}: it runs on the others meanwhile"
        if one.lost == one.cpus:
            message = f"{_offline(one.cpus)}, which is all that it has: it runs in the shared pool meanwhile"
        yield Finding("warning", _name(node, one), message, "MOOR-521")


def _offline(lost: int) -> str:
    return f"{_cpus(lost)} {'is' if lost.bit_count() == 1 else 'are'} offline"


def _cpus(mask: int) -> str:
    return f"CPU{'s' if mask.bit_count() > 1 else ''} {list_text(mask)}"


def _displaced(node: Node) -> Iterator[Finding]:
    for one in displaced_sets(node.cpu):
        lost, stand_ins = one.original & ~one.cpus, one.cpus & ~one.original
        few = lost.bit_count() == 1
        back = "it is" if few else "all are"
        message = f"lost {_cpus(lost)}: replaced by {_cpus(stand_ins)} until {back} back online"
        yield Finding("info", _name(node, one), message, "MOOR-522")


def _pool(node: Node) -> Iterator[Finding]:
    policy = node.settings.cpu
    reserved = node.settings.reservation.cpus.mask if policy is None else policy.reserved
    gone = reserved & node.cpu.offline
    if gone:
        left = list_text(reserved & ~gone)
        has = f"the system has {left} left" if left else "the system has no CPU of its own left"
        yield Finding("warning", _cpus(gone), f"reserved CPUs are offline: {has}", "MOOR-523")
    if policy is not None and not effective_pool(node.cpu):
        message = "no CPU of the shared pool is online: containers without CPUs of their own have none to run on"
        yield Finding("warning", "shared pool", message, "MOOR-524")


def _name(node: Node, one: BrokenSet | DisplacedSet) -> str:
    """Return how findings name the owner of a set."""
    pod = node.active.get(one.pod)
    return state_owner(one.pod, one.container).label(f"{pod.namespace}/{pod.name}" if pod is not None else "")
