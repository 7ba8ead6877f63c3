"""Interrupts against exclusive CPUs: which containers they disturb, irqbalance, and what irq-affinity would do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mooring.answers.base.isolation.holders import Assignments, named
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.machine import Finding
from mooring.engine.core.pod import Pod
from mooring.engine.extensions.interrupts import (
    ANNOTATION,
    NEW,
    NEW_NAME,
    Interrupt,
    InterruptCPUs,
    Memory,
    Owner,
    Step,
    Why,
    Wish,
    closed_to_others,
    steer,
    union,
    wish_of,
)
from mooring.explain.phrases import cpus_text, plural
from mooring.inputs.machines.isolation import IRQBalance, IsolationFacts, KernelWords


def balance_finding(balance: IRQBalance | None, words: KernelWords | None, exclusive: CPUSet) -> Finding | None:
    """Return what irqbalance may do to exclusive CPUs, with the setting that prevents it.

    Args:
        balance: the service; None where there is no trace of it.
        words: of the kernel's command line; untold, irqbalance leaves out the isolated and tickless CPUs.
        exclusive: CPUs that interrupts should avoid.
    """
    if balance is None or not balance.running:
        return None
    spared = balance.banned
    if spared is None:
        spared = words.isolated | words.tickless if words is not None else CPUSet()
    open_to_it = exclusive - spared
    if not open_to_it:
        return None
    message = (
        f"irqbalance is running and may move interrupts to {cpus_text(open_to_it)}; "
        f"IRQBALANCE_BANNED_CPULIST={spared | exclusive} keeps it away from them."
    )
    return Finding("warning", str(open_to_it), message, "MOOR-604")


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


def annotation_findings(pods: Iterable[Pod]) -> Iterator[Finding]:
    """Report pods whose annotation about interrupts is invalid."""
    for pod in pods:
        if wish_of(pod.annotations) is None:
            words = " or ".join(wish.value for wish in Wish)
            message = (
                f"{pod.namespace}/{pod.name} has {ANNOTATION}: {pod.annotations[ANNOTATION]!r:.40}, which is not "
                f"{words}; avoid applies."
            )
            yield Finding("warning", f"{pod.namespace}/{pod.name}", message, "MOOR-622")


def unknown_devices(owners: Iterable[Owner]) -> Iterator[Finding]:
    """Tell which pods want interrupts of devices of which none is known."""
    for owner in owners:
        if owner.wish is Wish.OWN and not owner.devices:
            message = f"{owner.label} wants the interrupts of its devices, and none of them is known by a PCI address."
            yield Finding("info", owner.label, message, "MOOR-619")


def _interrupt_text(one: Interrupt) -> str:
    """Return an interrupt for people: number and devices.

    >>> _interrupt_text(Interrupt(24, "eth0", CPUSet(), None)), _interrupt_text(Interrupt(9, "", CPUSet(), None))
    ('24 (eth0)', '9')
    """
    if one.number == NEW:
        return one.name
    return f"{one.number} ({one.name})" if one.name else str(one.number)
