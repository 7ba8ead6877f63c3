"""Containers that hold CPUs on a node, as the linter of isolation needs them, and how its problems read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mooring.answers.base.plan import Plan
from mooring.engine.core.config import IRQ_AFFINITY
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.topology import Topology
from mooring.engine.extensions.interrupt_owners import owners_of, pci_addresses
from mooring.engine.extensions.interrupts import Owner
from mooring.engine.extensions.owners import state_owner
from mooring.engine.kubelet.kubelet import reserved_cpus
from mooring.explain.phrases import joined

NAMED = 4
"""How many things a sentence names before it counts the rest."""


def named(things: Sequence[str]) -> str:
    """Return some names, and how many more there are.

    >>> named(["a", "b"]), named(["a", "b", "c", "d", "e", "f"])
    ('a and b', 'a, b, c, d and 2 more')
    """
    if len(things) <= NAMED:
        return joined(list(things))
    return joined([*things[:NAMED], f"{len(things) - NAMED} more"])


@dataclass(frozen=True, slots=True)
class ExclusiveHolder:
    """One container with CPUs of its own, or one pod with a partition."""

    label: str
    """``namespace/pod/container``; the uid for a pod without description."""
    uid: str
    cpus: CPUSet


@dataclass(frozen=True, slots=True)
class Assignments:
    """The holders of the kubelet's CPUs."""

    holders: tuple[ExclusiveHolder, ...] = ()
    shared: CPUSet = field(default_factory=CPUSet)
    reserved: CPUSet = field(default_factory=CPUSet)
    pods: Mapping[str, str] | None = None
    """Uid -> ``namespace/name`` of the pods that were described."""
    topology: Topology | None = None
    wishes: tuple[Owner, ...] | None = None
    """What the holders want of interrupts, with the extension irq-affinity."""

    @property
    def exclusive(self) -> CPUSet:
        """All CPUs with a holder."""
        held = CPUSet()
        for holder in self.holders:
            held |= holder.cpus
        return held

    @property
    def owners(self) -> tuple[Owner, ...]:
        """The holders as the rule of interrupts sees them; without the extension all of them avoid interrupts."""
        if self.wishes is not None:
            return self.wishes
        return tuple(Owner(holder.label, holder.cpus) for holder in self.holders)

    def labels(self, cpus: CPUSet) -> list[str]:
        """Return the holders of some of these CPUs."""
        return [holder.label for holder in self.holders if holder.cpus & cpus]


def assignments_of(plan: Plan) -> Assignments:
    """Return the assignments after a plan; none when the kubelet would not start."""
    kubelet = plan.kubelet
    if kubelet is None:
        return Assignments()
    state = kubelet.node.cpu
    pods = {answer.pod.uid: f"{answer.pod.namespace}/{answer.pod.name}" for answer in plan.answers}
    holders = [ExclusiveHolder(pods.get(uid, uid), uid, CPUSet(mask)) for uid, mask in state.pods.items()]
    holders += [
        ExclusiveHolder((owner := state_owner(uid, name)).label(pods.get(owner.uid, "")), owner.root, CPUSet(mask))
        for uid, containers in state.assignments.items()
        if uid not in state.pods
        for name, mask in containers.items()
    ]
    wishes = None
    if IRQ_AFFINITY in kubelet.mooring.extensions:
        devices = pci_addresses(kubelet.node.providers.devices)
        wishes = owners_of(state, {answer.pod.uid: answer.pod for answer in plan.answers}, devices)
    return Assignments(
        tuple(holders), CPUSet(state.default), reserved_cpus(kubelet), pods, kubelet.settings.topology, wishes
    )
