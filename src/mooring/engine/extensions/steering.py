"""From where interrupts are to where they belong, with a memory of where they were before.

The memory (:class:`Kept`) is what a journal holds: it is written before the interrupts are, so that after
a sudden end each interrupt's own affinity is known, and which affinities the agent wrote. An affinity that is
neither was set by another program, and stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from mooring.engine.core.cpuset import CPUSet
from mooring.engine.extensions.interrupts import Interrupt, InterruptCPUs, Owner, Place, place

NEW = -1
"""Stands as a number for ``default_smp_affinity``: where interrupts begin that are set up later."""
NEW_NAME = "default_smp_affinity"


@dataclass(frozen=True, slots=True)
class Kept:
    """What is remembered of an interrupt that was moved, or is about to be."""

    name: str
    """Numbers are given again when devices are added and removed; another name is another interrupt."""
    original: CPUSet
    """What it might use before."""
    ours: tuple[CPUSet, ...]
    """What it may be found with unless another program has changed it."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Everything that is remembered from one look to the next."""

    kept: Mapping[int, Kept] = field(default_factory=dict)
    """By number. Survives the agent."""
    alone: Mapping[int, str] = field(default_factory=dict)
    """Number and name of interrupts that another program has moved since. A restarted agent takes what it finds
    for their own affinity."""


@dataclass(frozen=True, slots=True)
class Step:
    """One interrupt at one look."""

    interrupt: Interrupt
    original: CPUSet
    place: Place | None
    """None where another program has moved it."""

    @property
    def write(self) -> CPUSet | None:
        """What is to be written; None when it is there already, or is to be left alone."""
        wanted = self.place.cpus if self.place is not None else None
        return None if wanted == self.interrupt.allowed else wanted


@dataclass(frozen=True, slots=True)
class Steering:
    """What one look comes to."""

    steps: tuple[Step, ...]
    memory: Memory
    """To be kept before the first write."""

    @property
    def writes(self) -> tuple[Step, ...]:
        """The steps that write something."""
        return tuple(step for step in self.steps if step.write is not None)


def steer(found: Iterable[Interrupt], memory: Memory, owners: Iterable[Owner], room: InterruptCPUs) -> Steering:
    """Return what is to be written so that every interrupt is where it belongs; without owners that is where it was.

    Args:
        found: all interrupts as they are now, and under :data:`NEW` where new ones begin.
        memory: of the last look.
        owners: all owners of CPUs.
        room: the CPUs of the machine.
    """
    # Where new ones begin comes first: what is remembered of the others depends on it.
    found, owners = tuple(sorted(found, key=lambda one: one.number)), tuple(owners)
    beginning = next((one.allowed for one in found if one.number == NEW), None)
    steps: list[Step] = []
    kept: dict[int, Kept] = {}
    alone: dict[int, str] = {}
    for one in found:
        original = _original(one, memory, beginning)
        if original is None:
            alone[one.number] = one.name
            steps.append(Step(one, one.allowed, None))
            continue
        wanted = place(original, owners, room, device=one.device, managed=one.managed)
        step = Step(one, original, wanted)
        steps.append(step)
        if step.write is not None:
            # Killed between journal and kernel, the agent finds either of the two.
            kept[one.number] = Kept(one.name, original, (one.allowed, step.write))
        elif one.allowed != original or _looks_new(kept, one.number, original):
            kept[one.number] = Kept(one.name, original, (one.allowed,))
    return Steering(tuple(steps), Memory(kept, alone))


def written(memory: Memory, shown: Mapping[int, CPUSet]) -> Memory:
    """Return the memory after writes, where interrupts show what they may use now: to be kept instead."""
    kept = dict(memory.kept)
    for number, cpus in shown.items():
        if number in kept:
            kept[number] = replace(kept[number], ours=(cpus,))
    if NEW in kept and kept[NEW].ours == (kept[NEW].original,):
        del kept[NEW]
    needed = {
        number: one
        for number, one in kept.items()
        if one.ours != (one.original,) or _looks_new(kept, number, one.original)
    }
    return replace(memory, kept=needed)


def _looks_new(kept: Mapping[int, Kept], number: int, cpus: CPUSet) -> bool:
    """Tell whether an interrupt at its own affinity would be taken for one that was set up since.

    Its affinity is by chance the one that new interrupts were given, and only the memory says that it was there before.
    """
    return number != NEW and NEW in kept and cpus in kept[NEW].ours


def _original(one: Interrupt, memory: Memory, beginning: CPUSet | None) -> CPUSet | None:
    """Return an interrupt's own affinity; None when another program has moved it."""
    known = memory.kept.get(one.number)
    if known is not None and known.name == one.name and one.allowed in known.ours:
        return known.original
    # A device that was set up again has its interrupts where new ones begin, often under their old numbers.
    if one.number != NEW and one.allowed == beginning:
        moved = memory.kept.get(NEW)
        return moved.original if moved is not None and one.allowed in moved.ours else one.allowed
    if known is not None and known.name == one.name and known.ours != (known.original,):
        return None
    return None if memory.alone.get(one.number) == one.name else one.allowed
