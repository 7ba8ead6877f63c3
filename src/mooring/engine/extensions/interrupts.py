"""Where interrupts belong while pods have CPUs of their own (extension irq-affinity).

No kubelet has this: "exclusive" keeps other pods away and no device (containers/nri-plugins#669, cri-o/cri-o#4022). A
pod says by an annotation what it wants; :func:`place` is the whole rule. The linter of ``mooring doctor`` and the agent
ask it with the same facts, so that they never disagree.

Source of what the kernel does: Documentation/core-api/irq/irq-affinity.rst; kernel/irq/proc.c.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.machine import Finding

ANNOTATION = "mooring/irq-affinity"
"""Annotation of a pod; its value is one of :class:`Wish`."""


class Wish(Enum):
    """What a pod wants of interrupts; the value is the word in its annotation."""

    AVOID = "avoid"
    """None on its CPUs. Pods that say nothing want this."""
    OWN = "own"
    """Those of the devices that it holds on its CPUs, and no others."""
    IGNORE = "ignore"
    """It does not mind: they stay where they are."""


class Why(Enum):
    """What decided where an interrupt belongs; the value is the name in documents."""

    ORIGINAL = "original"
    """Nobody wants it away from where it was before the agent came."""
    KEPT_AWAY = "kept-away"
    """It may not use CPUs of pods that avoid interrupts."""
    OWN = "own"
    """A pod holds its device and wants it."""
    MANAGED = "managed"
    """The kernel places it itself and refuses every write."""
    NO_ROOM = "no-room"
    """Every online CPU has an owner."""


@dataclass(frozen=True, slots=True)
class Interrupt:
    """One interrupt line, as the kernel shows it."""

    number: int
    name: str
    """The devices that use it; empty when unknown."""
    allowed: CPUSet
    """``smp_affinity_list``."""
    effective: CPUSet | None
    """Where it is really delivered, on kernels that tell."""
    device: str = ""
    """PCI address of its device, such as ``0000:03:00.1``; empty when it is not known."""
    managed: bool = False
    """Whether it is known that the kernel places it itself and refuses writes (``managed_irq``)."""


@dataclass(frozen=True, slots=True)
class Owner:
    """A pod or a claim with CPUs of its own."""

    label: str
    """For people."""
    cpus: CPUSet
    wish: Wish = Wish.AVOID
    devices: frozenset[str] = frozenset()
    """PCI addresses of what it holds, as far as they are known."""


@dataclass(frozen=True, slots=True)
class InterruptCPUs:
    """The CPUs that there are."""

    online: CPUSet
    reserved: CPUSet
    """Kept for the system: the first choice for interrupts that would have no CPU left."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an interrupt belongs."""

    cpus: CPUSet | None
    """Never empty; None where it is left as it is."""
    why: Why


def wish_of(annotations: Mapping[str, str]) -> Wish | None:
    """Return what a pod wants; None for a word that is no wish, which counts as :attr:`Wish.AVOID`.

    >>> wish_of({}), wish_of({ANNOTATION: "own"}), wish_of({ANNOTATION: "sometimes"})
    (<Wish.AVOID: 'avoid'>, <Wish.OWN: 'own'>, None)
    """
    word = annotations.get(ANNOTATION, Wish.AVOID.value).strip().lower()
    return next((wish for wish in Wish if wish.value == word), None)


def place(
    original: CPUSet, owners: Iterable[Owner], room: InterruptCPUs, *, device: str = "", managed: bool = False
) -> Place:
    """Return where an interrupt belongs.

    What it may use at first counts, less the CPUs of pods that avoid interrupts. Where nothing is left of that, it goes
    to the reserved CPUs, or to all without an owner. An interrupt is never left without a CPU that is online: where
    everything is owned, it stays.

    Args:
        original: what it may use before it is moved.
        owners: all owners of CPUs.
        room: the CPUs of the machine.
        device: PCI address of its device, where that is known.
        managed: whether the kernel refuses to move it.

    >>> room = InterruptCPUs(CPUSet.parse("0-7"), CPUSet.parse("0"))
    >>> place(CPUSet.parse("0-7"), [Owner("web", CPUSet.parse("2-3"))], room).cpus
    CPUSet('0-1,4-7')
    >>> place(CPUSet.parse("2"), [Owner("web", CPUSet.parse("2-3"))], room).cpus
    CPUSet('0')
    """
    if managed:
        return Place(None, Why.MANAGED)
    owners = tuple(owners)
    own = union(one.cpus for one in owners if device and one.wish is Wish.OWN and device in one.devices) & room.online
    if own:
        return Place(own, Why.OWN)
    closed = closed_to_others(owners)
    if not original & closed:
        return Place(original, Why.ORIGINAL)
    unowned = room.online - union(one.cpus for one in owners)
    left = original - closed
    if left & unowned:
        return Place(left, Why.KEPT_AWAY)
    # A CPU of a pod that does not mind is no place to gather what others do not want.
    rest = unowned & room.reserved or unowned
    return Place(rest, Why.KEPT_AWAY) if rest else Place(None, Why.NO_ROOM)


def closed_to_others(owners: Iterable[Owner]) -> CPUSet:
    """Return the CPUs whose owners want no interrupts of devices that they do not hold."""
    return union(one.cpus for one in owners if one.wish is not Wish.IGNORE)


def union(sets: Iterable[CPUSet]) -> CPUSet:
    """Return everything that is in one of the sets."""
    found = CPUSet()
    for cpus in sets:
        found |= cpus
    return found


def balance_finding(spared: CPUSet, exclusive: CPUSet) -> Finding | None:
    """Return what irqbalance, which runs, may do to exclusive CPUs, with the setting that prevents it.

    Args:
        spared: CPUs that it leaves alone.
        exclusive: CPUs that interrupts should avoid.
    """
    hit = exclusive - spared
    if not hit:
        return None
    message = (
        f"irqbalance is running and may move interrupts to CPU{'' if len(hit) == 1 else 's'} {hit}; "
        f"IRQBALANCE_BANNED_CPULIST={spared | exclusive} keeps it away from them."
    )
    return Finding("warning", str(hit), message, "MOOR-604")
