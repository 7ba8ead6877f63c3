"""The words of the pictures: titles, sizes, meanings, captions, and how long texts are cut.

Everything a person reads is written here, so that the terminal and the SVG say the same. Names come from users'
files and may hold anything: what a terminal or an XML reader could take for a command is replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from mooring.explanations.phrases import plural, size
from mooring.views.devices import UNHEALTHY, DeviceView
from mooring.views.view import BoxKind, BoxLabel, BoxView, CPUUse, CPUView, NodeView, NUMAView, OwnerView

MARKS = {
    CPUUse.CONTESTED: "!",
    CPUUse.BROKEN: "†",
    CPUUse.RESERVED: "#",
    CPUUse.SHARED: "~",
    CPUUse.FREE: "·",
    CPUUse.LEFT_OUT: "?",
    CPUUse.OFFLINE: "×",
}
"""One sign per use that has no owner's letter."""

_MEANINGS = {
    CPUUse.EXCLUSIVE: "exclusive to one container (or pod); the letter says which",
    CPUUse.CONTESTED: "allocated to two pods, which is an error",
    CPUUse.BROKEN: "offline; its owner does without it until it comes online",
    CPUUse.RESERVED: "reserved for the system and for pods without exclusive CPUs",
    CPUUse.SHARED: "all pods without exclusive CPUs run here",
    CPUUse.FREE: "available as an exclusive CPU; until then in the shared pool",
    CPUUse.LEFT_OUT: "online, but the kubelet lets no pod run here",
    CPUUse.OFFLINE: "offline or not present",
}

_RESERVED_STRICTLY = "reserved for the system; no pod runs here"

# Letters and figures that many fonts draw alike are not used as marks: 17l, 0O.
_LETTERS = "abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ"


def owner_marks(count: int, *, small: bool = False) -> tuple[str, ...]:
    """Return ``count`` different marks, all of the same length; with ``small`` without capital letters.

    >>> owner_marks(3), owner_marks(50)[:2]
    (('a', 'b', 'c'), ('aa', 'ab'))
    """
    letters = [letter for letter in _LETTERS if letter.islower() or not small]
    marks = letters
    while len(marks) < count:
        marks = [first + second for first in marks for second in letters]
    return tuple(marks[:count])


def meaning(use: CPUUse, *, strict: bool) -> str:
    """Return what ``use`` means; ``strict`` means that reserved CPUs are not in the shared pool."""
    return _RESERVED_STRICTLY if use is CPUUse.RESERVED and strict else _MEANINGS[use]


def core_kind_name(rank: int, ranks: Sequence[int]) -> str:
    """Return the name of a core kind by its speed rank among the ascending ``ranks`` of the machine.

    >>> core_kind_name(1, [0, 1]), core_kind_name(0, [0, 1])
    ('performance cores', 'efficiency cores')
    """
    if len(ranks) == 2:
        return "performance cores" if rank == ranks[-1] else "efficiency cores"
    place = {ranks[0]: ", slowest", ranks[-1]: ", fastest"}.get(rank, "")
    return f"core kind {rank}{place}"


def numbers(ids: Iterable[int]) -> str:
    """Return ids separated by commas, or a dash when there are none.

    >>> numbers((0, 2)), numbers(())
    ('0,2', '–')
    """
    return ",".join(str(id_) for id_ in ids) or "–"


def shorten(text: str, room: int) -> str:
    """Return ``text`` cut in the middle to ``room`` characters: pods of one owner differ at their ends.

    >>> shorten("trainer-7f9c8d-x2x4z", 12)
    'traine…x2x4z'
    """
    if len(text) <= room:
        return text
    if room < 2:
        return text[:room]
    tail = (room - 1) // 2
    return text[: room - 1 - tail] + "…" + text[len(text) - tail :]


Title: TypeAlias = tuple[str, str]
"""Name of a box, and figures, the most wanted first; both may be empty."""


def box_titles(box: BoxView, view: NodeView) -> tuple[Title, ...]:
    """Return forms of a box's title, longest first; a renderer takes the longest that fits."""
    full = " · ".join(_label_text(label) for label in box.labels)
    # Where there is little room, figures say more than the cache that fills the whole node.
    main = [label for label in box.labels if label.kind in {BoxKind.SOCKET, BoxKind.NUMA}] or box.labels
    short = " · ".join(_label_text(label) for label in main)
    # The figures of a NUMA node, the most wanted first; other boxes have none.
    facts = box.folded[:1]
    ids = {label.id for label in box.labels if label.kind is BoxKind.NUMA}
    node = next((node for node in view.numa if node.id in ids), None)
    if node is not None:
        # How many CPUs are free, or what else is to be said of them.
        cpus = plural(len(node.cpus), "CPU")
        if not node.cpus:
            cpus = "memory only" if node.memory_bytes else "empty"
        elif node.counts.get(CPUUse.FREE) or node.counts.get(CPUUse.EXCLUSIVE):
            cpus = f"{node.counts.get(CPUUse.FREE, 0)} of {len(node.cpus)} free"
        memory = f"{size(node.memory_bytes)} {node.memory_kind}".strip() if node.memory_bytes else "no memory"
        facts = (cpus, memory)
    with_facts = [(name, " · ".join(facts[:count])) for name in (full, short) for count in range(len(facts), 0, -1)]
    return (*with_facts, (full, ""), (short, ""))


def title_text(title: Title) -> str:
    """Return a title as one text."""
    return " · ".join(filter(None, title))


def wanted_title(box: BoxView, view: NodeView, *, roomy: bool) -> Title:
    """Return the title for which a renderer makes room: with one figure if ``roomy``, else the shortest."""
    forms = box_titles(box, view)
    return next((form for form in reversed(forms) if form[1]), forms[-1]) if roomy else forms[-1]


_BOX_NAMES = {
    BoxKind.NUMA: "NUMA",
    BoxKind.SOCKET: "Socket",
    BoxKind.DIE: "Die",
    BoxKind.OFFLINE: "Offline",
    BoxKind.DEVICES: "Devices of no known NUMA node",
}


def _label_text(label: BoxLabel) -> str:
    word = label.name or _BOX_NAMES.get(label.kind, label.kind.value)
    text = word if label.name or label.id is None else f"{word} {label.id}"
    # Kinds of cores are cut by every box around them; for them a part is nothing to be told.
    return f"{text} (part)" if label.part and label.kind is not BoxKind.CORE_KIND else text


def cpu_sentence(cpu: CPUView, view: NodeView) -> str:
    """Return everything about one CPU in one line, for tooltips."""
    parts = [f"CPU {cpu.cpu}"]
    if cpu.owner is None:
        parts.append(cpu.use.value)
    else:
        owners = [view.owners[owner].label for owner in cpu.owners]
        offline = dict.fromkeys((CPUUse.OFFLINE, CPUUse.BROKEN), "offline, but held by ")
        verb = {CPUUse.CONTESTED: "contested: ", **offline}.get(cpu.use, "")
        joint = " and " if cpu.use is CPUUse.CONTESTED else ", before that "
        parts.append(verb + joint.join(owners))
        parts += ["released when the delay is over"] if cpu.leaving else []
    for name, id_ in (("core of CPU", cpu.core), ("L3", cpu.l3), ("NUMA node", cpu.numa), ("socket", cpu.socket)):
        if id_ is not None:
            parts.append(f"{name} {id_}")
    return " · ".join(parts)


def cpu_mark(cpu: CPUView, view: NodeView) -> str:
    """Return the letters or the sign that stand for what ``cpu`` is used for."""
    if cpu.owner is not None and cpu.use not in (CPUUse.CONTESTED, CPUUse.BROKEN):
        mark = view.owners[cpu.owner].mark
        return mark.upper() if cpu.leaving else mark
    return MARKS[cpu.use]


def device_mark(device: DeviceView, owners: Sequence[OwnerView]) -> str:
    """Return the letters of a device's owner, or the sign of its state; empty where no device plugin offers it."""
    if not device.offered:
        return ""
    if device.owner:
        return next((owner.mark for owner in owners if owner.label == device.owner), "+")
    return MARKS[CPUUse.FREE] if device.healthy else UNHEALTHY


def free_bytes(node: NUMAView) -> int:
    """Return the bytes of a NUMA node that are neither reserved nor assigned; never below zero."""
    used = node.memory.reserved + node.memory.assigned if node.memory else 0
    return max(0, node.memory_bytes - used)


def memory_sentence(node: NUMAView) -> str:
    """Return how the memory of a NUMA node is used, in one line, for tooltips."""
    text = f"NUMA node {node.id} · {size(node.memory_bytes)}"
    if node.memory is None:
        return text
    parts = (f"{size(node.memory.reserved)} reserved", f"{size(node.memory.assigned)} assigned to containers")
    return " · ".join((text, *parts, f"{size(free_bytes(node))} free"))
