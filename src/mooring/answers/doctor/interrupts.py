"""Interrupts against exclusive CPUs: which containers they disturb, irqbalance, and what irq-affinity would do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from mooring.answers.base.plan import Plan
from mooring.engine.core.config import IRQ_AFFINITY
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.machine import Finding
from mooring.engine.core.topology import Topology
from mooring.engine.extensions.interrupts import (
    NEW,
    NEW_NAME,
    Interrupt,
    InterruptCPUs,
    Memory,
    Owner,
    Step,
    Why,
    closed_to_others,
    owners_of,
    steer,
    union,
)
from mooring.engine.extensions.owners import pci_addresses, state_owner
from mooring.engine.kubelet.kubelet import reserved_cpus
from mooring.explanations.phrases import cpus_text, joined, plural
from mooring.inputs.machines.isolation import IsolationFacts


def interrupt_findings(facts: IsolationFacts, assignments: Assignments) -> Iterator[Finding]:
    """Report interrupts that may be handled on exclusive CPUs, and where the extension would move them."""
    if facts.interrupts is None:
        return
    owners = assignments.owners
    beginning = [Interrupt(NEW, NEW_NAME, facts.new_interrupts, None)] if facts.new_interrupts else []
    room = InterruptCPUs(assignments.shared | assignments.exclusive | assignments.reserved, assignments.reserved)
    steps = steer([*facts.interrupts, *beginning], Memory(), owners, room).steps
    hit = [(one.interrupt, cpus) for one in steps if one.interrupt.number != NEW and (cpus := _unwanted(one, owners))]
    if hit:
        touched = union(cpus for _, cpus in hit)
        listed = named([_interrupt_text(one) for one, _ in hit])
        message = (
            f"{plural(len(hit), 'interrupt')} may be handled on {cpus_text(touched)}, held by "
            f"{named(assignments.labels(touched))}: {listed}."
        )
        yield Finding("warning", str(touched), message, "MOOR-602")
    fresh = (facts.new_interrupts or CPUSet()) & closed_to_others(owners)
    if fresh:
        message = f"Interrupts that are set up later begin on {cpus_text(fresh)} as well (default_smp_affinity)."
        yield Finding("info", str(fresh), message, "MOOR-603")
    if hit or fresh:
        yield from _remedy(steps, {one.number for one, _ in hit if one.managed})


def _unwanted(step: Step, owners: tuple[Owner, ...]) -> CPUSet:
    """Return where an interrupt is handled now and is not wanted."""
    one, place = step.interrupt, step.place
    delivered = one.effective or one.allowed
    if place is not None and place.why is Why.OWN and place.cpus is not None:
        return (delivered & closed_to_others(owners)) - place.cpus
    return delivered & closed_to_others(owners)


def _remedy(steps: tuple[Step, ...], managed: set[int]) -> Iterator[Finding]:
    """Say what the extension would write, and what it could not."""
    writes = [step for step in steps if step.write is not None]
    if writes:
        listed = named([f"{_interrupt_text(one.interrupt)} to {cpus_text(one.write or CPUSet())}" for one in writes])
        message = f"The agent's extension irq-affinity would move {listed}."
        yield Finding("info", "proc/irq", message, "MOOR-617")
    if managed:
        listed = named([_interrupt_text(one.interrupt) for one in steps if one.interrupt.number in managed])
        message = f"The kernel places {listed} itself; {'it' if len(managed) == 1 else 'they'} cannot be moved."
        yield Finding("info", "proc/irq", message, "MOOR-623")
    stays = [step for step in steps if step.place is not None and step.place.why is Why.NO_ROOM]
    if stays:
        listed = named([_interrupt_text(one.interrupt) for one in stays])
        message = f"Every CPU is exclusive, so nothing can be done about {listed}."
        yield Finding("info", "proc/irq", message, "MOOR-618")


def _interrupt_text(one: Interrupt) -> str:
    """Return an interrupt for people: number and devices.

    >>> _interrupt_text(Interrupt(24, "eth0", CPUSet(), None)), _interrupt_text(Interrupt(9, "", CPUSet(), None))
    ('24 (eth0)', '9')
    """
    if one.number == NEW:
        return one.name
    return f"{one.number} ({one.name})" if one.name else str(one.number)


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
        return union(holder.cpus for holder in self.holders)

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
