"""Where interrupts belong while pods have CPUs of their own (extension irq-affinity).

No kubelet has this: "exclusive" keeps other pods away and no device (containers/nri-plugins#669, cri-o/cri-o#4022). A
pod says by an annotation what it wants; :func:`place` is the whole rule. The linter of ``mooring doctor`` and the agent
ask it with the same facts, so that they never disagree.

Source of what the kernel does: Documentation/core-api/irq/irq-affinity.rst; kernel/irq/proc.c.

Who has CPUs of his own on a node, with what he wants of interrupts.

From where interrupts are to where they belong, with a memory of where they were before.

The memory (:class:`Kept`) is what a journal holds: it is written before the interrupts are, so that after
a sudden end each interrupt's own affinity is known, and which affinities the agent wrote. An affinity that is
neither was set by another program, and stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from functools import reduce
from operator import or_

from mooring.engine.core.bits import NO_CPUS
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.machine import Finding
from mooring.engine.core.pod import Pod
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.extensions.owners import AddressesByPod, OwnerKind, claims_of, state_owner
from mooring.lazy import dataclass, field, replace

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


def wish_of(annotations: Mapping[str, str]) -> Wish | None:
    """Return what a pod wants; None for a word that is no wish, which counts as :attr:`Wish.AVOID`.

    >>> wish_of({}), wish_of({ANNOTATION: "own"}), wish_of({ANNOTATION: "sometimes"})
    (<Wish.AVOID: 'avoid'>, <Wish.OWN: 'own'>, None)
    """
    word = annotations.get(ANNOTATION, Wish.AVOID.value).strip().lower()
    return next((wish for wish in Wish if wish.value == word), None)


def place(
    original: CPUSet, owners: Iterable[Owner], room: InterruptCPUs, *, device: str = "", managed: bool = False
) -> tuple[CPUSet | None, Why]:
    """Return where an interrupt belongs, and why; None where it is left as it is, else the set is never empty.

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
    >>> place(CPUSet.parse("0-7"), [Owner("web", CPUSet.parse("2-3"))], room)[0]
    CPUSet('0-1,4-7')
    >>> place(CPUSet.parse("2"), [Owner("web", CPUSet.parse("2-3"))], room)[0]
    CPUSet('0')
    """
    if managed:
        return None, Why.MANAGED
    owners = tuple(owners)
    own = union(one.cpus for one in owners if device and one.wish is Wish.OWN and device in one.devices) & room.online
    if own:
        return own, Why.OWN
    closed = closed_to_others(owners)
    if not original & closed:
        return original, Why.ORIGINAL
    unowned = room.online - union(one.cpus for one in owners)
    left = original - closed
    if left & unowned:
        return left, Why.KEPT_AWAY
    # A CPU of a pod that does not mind is no place to gather what others do not want.
    rest = unowned & room.reserved or unowned
    return (rest, Why.KEPT_AWAY) if rest else (None, Why.NO_ROOM)


def closed_to_others(owners: Iterable[Owner]) -> CPUSet:
    """Return the CPUs whose owners want no interrupts of devices that they do not hold."""
    return union(one.cpus for one in owners if one.wish is not Wish.IGNORE)


def union(sets: Iterable[CPUSet]) -> CPUSet:
    """Return everything that is in one of the sets."""
    return reduce(or_, sets, CPUSet())


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


def owners_of(
    state: CPUState, pods: Mapping[str, Pod], devices: AddressesByPod, users: Mapping[str, frozenset[str]] | None = None
) -> tuple[Owner, ...]:
    """Return all owners of CPUs.

    A pod is one owner, unless it wants the interrupts of its devices: then each of its containers has those of its own
    devices. A claim wants what its pods want when they agree, else it avoids interrupts.

    Args:
        state: of the CPU manager.
        pods: that are there, by uid.
        devices: PCI addresses of what they hold.
        users: uids of the pods of each claim, by its uid.
    """
    found: list[Owner] = []
    held = {
        uid: containers for uid, containers in state.assignments.items() if state_owner(uid).kind is not OwnerKind.CLAIM
    }
    for uid in dict.fromkeys((*state.pods, *held)):
        # Threads that are hidden for a pod want what it wants: an interrupt there slows the same core.
        pod = state_owner(uid).uid
        mine, wish = devices.get(pod, {}), _wish(pod, pods)
        own = {name: mask for name, mask in held.get(uid, {}).items() if mask}
        if uid not in state.pods and wish is Wish.OWN and any(mine.values()) and len(own) > 1:
            # Each container has its devices. Those of containers without CPUs of their own belong to all; a container
            # without devices avoids interrupts.
            of_all = frozenset(address for name, theirs in mine.items() if name not in own for address in theirs)
            for name, mask in own.items():
                its = mine.get(name, frozenset()) | of_all
                found.append(Owner(f"{_label(pod, pods)}/{name}", CPUSet(mask), Wish.OWN if its else Wish.AVOID, its))
            continue
        cpus = reduce(or_, own.values(), state.pods.get(uid, NO_CPUS))
        if cpus:
            found.append(Owner(_label(pod, pods), CPUSet(cpus), wish, _together(mine)))
    for claim in claims_of(state).values():
        uids = (users or {}).get(claim.uid, frozenset())
        wishes = {_wish(uid, pods) for uid in uids}
        wish = wishes.pop() if len(wishes) == 1 else Wish.AVOID
        theirs = frozenset(address for uid in uids for address in _together(devices.get(uid, {})))
        found.append(Owner(f"claim {claim.namespace}/{claim.name}", CPUSet(claim.cpus), wish, theirs))
    return tuple(found)


def _together(devices: Mapping[str, frozenset[str]]) -> frozenset[str]:
    return frozenset(address for theirs in devices.values() for address in theirs)


def _wish(uid: str, pods: Mapping[str, Pod]) -> Wish:
    return (wish_of(pods[uid].annotations) or Wish.AVOID) if uid in pods else Wish.AVOID


def _label(uid: str, pods: Mapping[str, Pod]) -> str:
    return f"{pods[uid].namespace}/{pods[uid].name}" if uid in pods else uid


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
    place: CPUSet | None = None
    """Where it belongs; None where it is left as it is."""
    why: Why | None = None
    """None where another program has moved it."""

    @property
    def write(self) -> CPUSet | None:
        """What is to be written; None when it is there already, or is to be left alone."""
        return None if self.place == self.interrupt.allowed else self.place


def steer(
    found: Iterable[Interrupt], memory: Memory, owners: Iterable[Owner], room: InterruptCPUs
) -> tuple[tuple[Step, ...], Memory]:
    """Return what brings every interrupt to where it belongs; without owners that is where it was.

    The memory is to be kept before the first write.

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
            steps.append(Step(one, one.allowed))
            continue
        step = Step(one, original, *place(original, owners, room, device=one.device, managed=one.managed))
        steps.append(step)
        if step.write is not None:
            # Killed between journal and kernel, the agent finds either of the two.
            kept[one.number] = Kept(one.name, original, (one.allowed, step.write))
        elif one.allowed != original or _looks_new(kept, one.number, original):
            kept[one.number] = Kept(one.name, original, (one.allowed,))
    return tuple(steps), Memory(kept, alone)


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
