"""CPUs that go offline and come back while the node lives (extension cpu-hotplug).

A kubelet reads the machine once. CPUs that go offline later are still given to containers, whose threads the kernel
moves elsewhere, and at its next start the kubelet refuses its own state file (kubernetes/kubernetes#67500). Here an
offline CPU is not assigned; a set that has one is broken and stays its owner's, other CPUs replace it where the
configuration lets them, and the set is what it was as soon as the CPUs are back. All this is this project's own
decision: no document of the kubelet speaks of it.

The functions stand beside :class:`~mooring.engine.node.node.Node`, as values in and values out.

What people should know about CPUs that are offline (extension cpu-hotplug).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mooring.engine.core.bits import NO_CPUS, CPUMask, list_text
from mooring.engine.core.config import CPU_HOTPLUG
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import Observer
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding
from mooring.engine.cpumanager.policy import StaticPolicy
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.extensions.facts import CPUsBroken, CPUsCameOnline, CPUsReplaced, CPUsRestored, CPUsWentOffline
from mooring.engine.extensions.offline import (
    broken_sets,
    displaced_sets,
    effective_pool,
    exchanged,
    held_of,
    nodes_of,
    owners_of,
    replaced,
    restored,
    sets_of,
)
from mooring.engine.extensions.owners import OwnerKind, state_owner
from mooring.engine.node.node import Node
from mooring.lazy import dataclass, replace


@dataclass(frozen=True, slots=True)
class CPUsChanged:
    """What one change of the machine's CPUs led to."""

    offline: int
    """Mask of all CPUs that are offline now."""
    broken: tuple[CPUsBroken | CPUsReplaced, ...] = ()
    """Sets that the change broke, or that got other CPUs by it."""
    restored: tuple[CPUsRestored, ...] = ()


def went_offline(node: Node, cpus: int, observer: Observer | None = None) -> tuple[Node, CPUsChanged]:
    """Take CPUs out of use. Those that are offline already, or that the machine does not have, change nothing.

    Args:
        node: before.
        cpus: mask.
        observer: receives what was found.

    Returns:
        The node, and what became of the sets with such CPUs.

    Raises:
        InputError: the extension is not on.
    """
    check_is_on(node)
    state = node.cpu
    new = cpus & known_cpus(node) & ~state.offline
    offline = state.offline | new
    if observer is not None and new:
        observer(CPUsWentOffline(new, offline))
    return _changed(node, offline, observer)


def came_online(node: Node, cpus: int, observer: Observer | None = None) -> tuple[Node, CPUsChanged]:
    """Put CPUs back into use. Those that are online already change nothing.

    Sets whose lost CPUs are all back are restored first; then others that are still broken may get the CPUs that stood
    in.

    Args:
        node: before.
        cpus: mask.
        observer: receives what was found.

    Raises:
        InputError: the extension is not on.
    """
    check_is_on(node)
    back = cpus & node.cpu.offline
    offline = node.cpu.offline & ~back
    if observer is not None and back:
        observer(CPUsCameOnline(back, offline))
    return _changed(node, offline, observer)


def replanned(node: Node, observer: Observer | None = None) -> tuple[Node, CPUsChanged]:
    """Look for replacement CPUs again, when others released some; the same node when there is nothing to do.

    Raises:
        InputError: the extension is not on.
    """
    check_is_on(node)
    return _changed(node, node.cpu.offline, observer) if broken_sets(node.cpu) else (node, _nothing(node))


def remembered(node: Node, offline: int, displaced: Mapping[str, Mapping[int, int]]) -> Node:
    """Return a node that was started on its state file with what that file does not tell.

    Nothing is decided. Pairs that the state does not bear out are left out: the stand-in must be the pod's, the lost
    CPU in the shared pool.

    Args:
        node: started with the extension, on a description of the machine with all of its CPUs.
        offline: mask of the CPUs that are offline.
        displaced: as :attr:`~mooring.engine.cpumanager.state.CPUState.displaced` was.

    Raises:
        InputError: the extension is not on.
    """
    check_is_on(node)
    state, kept = node.cpu, dict[str, dict[int, int]]()
    for pod, pairs in displaced.items():
        held = held_of(state, pod)
        left = {lost: one for lost, one in pairs.items() if state.default >> lost & 1 and held >> one & 1}
        if left:
            kept[pod] = left
    return node.with_cpu(replace(state, offline=known_cpus(node) & offline, displaced=kept))


def known_cpus(node: Node) -> CPUMask:
    """Return the mask of all CPUs of the machine, offline or not."""
    topology = node.settings.topology
    return topology.all_cpus if topology is not None else NO_CPUS


def check_known(node: Node, cpus: CPUSet, field: str) -> None:
    """Check that the machine has some CPUs.

    Raises:
        InputError: it does not.
    """
    known = known_cpus(node)
    if cpus.mask & ~known:
        unknown = list_text(cpus.mask & ~known)
        raise InputError(f"the machine has no CPU {unknown}", field=field, remedy=f"it has {list_text(known)}")


def check_is_on(node: Node) -> None:
    """Check that the node has the extension.

    Raises:
        InputError: it has not.
    """
    if not node.settings.replace_offline:
        raise InputError(
            f"CPUs go offline and online only with the extension {CPU_HOTPLUG}",
            field="extensions",
            remedy=f"add {CPU_HOTPLUG} to the extensions of a MooringConfiguration",
        )


def _nothing(node: Node) -> CPUsChanged:
    return CPUsChanged(node.cpu.offline)


def _changed(node: Node, offline: int, observer: Observer | None) -> tuple[Node, CPUsChanged]:
    before = node.cpu
    state = before if offline == before.offline else replace(before, offline=CPUMask(offline))
    node = node if state is before else node.with_cpu(state)
    policy = node.settings.cpu
    if policy is None:
        return node, _nothing(node)
    # Give back what owners lost
    for owner in sorted(node.cpu.displaced):
        state, pairs = restored(node.cpu, owner)
        if pairs:
            node = _moved(node, state, owner, pairs)
    back = tuple(_restored(before, node.cpu))
    node, lost = _replaced(node, policy, before)
    if observer is not None:
        for fact in (*back, *lost):
            observer(fact)
    return node, CPUsChanged(offline, tuple(lost), back)


def _restored(before: CPUState, after: CPUState) -> Iterator[CPUsRestored]:
    """Yield the sets that are whole again."""
    for owner in owners_of(after):
        had = sets_of(before, owner)
        for container, cpus in sets_of(after, owner).items():
            was = had[container]
            if not cpus & after.offline and (was != cpus or was & before.offline):
                yield CPUsRestored(owner, container, was, cpus, after.held, after)


def _replaced(node: Node, policy: StaticPolicy, before: CPUState) -> tuple[Node, list[CPUsBroken | CPUsReplaced]]:
    """Replace the CPUs that owners lost."""
    found: list[CPUsBroken | CPUsReplaced] = []
    rule = node.settings.replace_offline
    if node.settings.plugins is not None:
        policy = replace(policy, chooser=node.settings.plugins.among(node.active))
    for owner in dict.fromkeys(one.pod for one in broken_sets(node.cpu)):
        had = sets_of(node.cpu, owner)
        nodes = {name: nodes_of(policy, node.cpu, owner, name) for name in had}
        state, pairs, refused = replaced(policy, node.cpu, owner, rule, node.active.get(owner))
        if pairs:
            node = _moved(node, state, owner, pairs)
        for container, cpus in sets_of(node.cpu, owner).items():
            was = had[container]
            lost = was & node.cpu.offline
            if cpus != was:
                found.append(CPUsReplaced(owner, container, was, cpus, nodes[container], node.cpu.held, node.cpu))
            elif lost and (lost & ~before.offline or was != sets_of(before, owner)[container]):
                # Newly broken, or with some of its CPUs back and others not. What is inside a partition is refused with
                # it.
                found.append(CPUsBroken(owner, container, was, lost, refused.get(container, refused.get("", ""))))
    return node, found


def _moved(node: Node, state: CPUState, owner: str, pairs: Mapping[int, int]) -> Node:
    """Return the node with another state, also in what the CPU manager remembers of the pod admitted last."""
    providers = replace(node.providers, cpu=state)
    left = providers.reusable_cpus
    if left.pod == owner:
        providers = replace(providers, reusable_cpus=replace(left, cpus=exchanged(left.cpus, pairs)))
    return replace(node, providers=providers)


def hotplug_findings(node: Node) -> list[Finding]:
    """Return what is wrong or unusual on a node because CPUs are offline; nothing when all are online."""
    if not node.cpu.offline and not node.cpu.displaced:
        return []
    findings: list[Finding] = []
    for one in broken_sets(node.cpu):
        if state_owner(one.pod).kind is OwnerKind.HIDDEN:
            continue
        message = f"has CPUs {list_text(one.cpus)}, of which {_offline(one.lost)}: it runs on the others meanwhile"
        if one.lost == one.cpus:
            message = f"{_offline(one.cpus)}, which is all that it has: it runs in the shared pool meanwhile"
        findings.append(Finding("warning", _name(node, one.pod, one.container), message, "MOOR-521"))
    for (owner, container), original in displaced_sets(node.cpu).items():
        cpus = sets_of(node.cpu, owner)[container]
        lost = original & ~cpus
        back = "it is" if lost.bit_count() == 1 else "all are"
        message = f"lost {_cpus(lost)}: replaced by {_cpus(cpus & ~original)} until {back} back online"
        findings.append(Finding("info", _name(node, owner, container), message, "MOOR-522"))
    policy = node.settings.cpu
    reserved = node.settings.reservation.cpus.mask if policy is None else policy.reserved
    gone = reserved & node.cpu.offline
    if gone:
        left = list_text(reserved & ~gone)
        has = f"the system has {left} left" if left else "the system has no CPU of its own left"
        findings.append(Finding("warning", _cpus(gone), f"reserved CPUs are offline: {has}", "MOOR-523"))
    if policy is not None and not effective_pool(node.cpu):
        message = "no CPU of the shared pool is online: containers without CPUs of their own have none to run on"
        findings.append(Finding("warning", "shared pool", message, "MOOR-524"))
    return findings


def _offline(lost: int) -> str:
    return f"{_cpus(lost)} {'is' if lost.bit_count() == 1 else 'are'} offline"


def _cpus(mask: int) -> str:
    return f"CPU{'s' if mask.bit_count() > 1 else ''} {list_text(mask)}"


def _name(node: Node, owner: str, container: str) -> str:
    """Return how findings name the owner of a set."""
    pod = node.active.get(owner)
    return state_owner(owner, container).label(f"{pod.namespace}/{pod.name}" if pod is not None else "")
