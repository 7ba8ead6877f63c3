"""The words of the pictures: titles, sizes, meanings, captions, and how long texts are cut.

Everything a person reads is written here, so that the terminal and the SVG say the same. Names come from users' files and may
hold anything: what a terminal or an XML reader could take for a command is replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mooring.render.view import BoxKind, BoxLabel, BoxView, CPUUse, CPUView, NodeView, NUMAView

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")

MARKS = {
    CPUUse.CONTESTED: "!",
    CPUUse.RESERVED: "#",
    CPUUse.SHARED: "~",
    CPUUse.FREE: "·",
    CPUUse.LEFT_OUT: "?",
    CPUUse.OFFLINE: "×",
}
"""One sign per use that has no owner's letter."""

_MEANINGS = {
    CPUUse.EXCLUSIVE: "one container has the CPU to itself; the letter says which",
    CPUUse.CONTESTED: "given to two pods at once, by mistake",
    CPUUse.RESERVED: "kept for the system and for pods without CPUs of their own",
    CPUUse.SHARED: "all pods without CPUs of their own run here",
    CPUUse.FREE: "can still be given to one container alone; until then shared by the other pods",
    CPUUse.LEFT_OUT: "online, but the kubelet lets no pod run here",
    CPUUse.OFFLINE: "switched off or not there",
}

_RESERVED_STRICTLY = "kept for the system; no pod runs here"

# Letters and figures that many fonts draw alike are not used as marks: 17l, 0O.
_LETTERS = "abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ"


def owner_marks(count: int) -> tuple[str, ...]:
    """Return ``count`` different marks, all of the same length.

    >>> owner_marks(3), owner_marks(50)[:2]
    (('a', 'b', 'c'), ('aa', 'ab'))
    """
    marks = list(_LETTERS)
    while len(marks) < count:
        marks = [first + second for first in marks for second in _LETTERS]
    return tuple(marks[:count])


def meaning(use: CPUUse, *, strict: bool) -> str:
    """Return what ``use`` means; ``strict`` tells that reserved CPUs are not in the shared pool."""
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


def size(count: int) -> str:
    """Return a number of bytes in the largest binary unit, with at most one decimal.

    >>> size(137438953472), size(1610612736), size(0)
    ('128 GiB', '1.5 GiB', '0 B')
    """
    unit = 0
    while unit + 1 < len(_UNITS) and count >= 1024 << (10 * unit):
        unit += 1
    tenths = (count * 10 + (1 << (10 * unit)) // 2) >> (10 * unit)
    whole, tenth = divmod(tenths, 10)
    return f"{whole}.{tenth} {_UNITS[unit]}" if tenth else f"{whole} {_UNITS[unit]}"


def plural(count: int, noun: str) -> str:
    """Return ``count`` with its noun.

    >>> plural(1, "CPU"), plural(2, "socket")
    ('1 CPU', '2 sockets')
    """
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def numbers(ids: Iterable[int]) -> str:
    """Return ids separated by commas, or a dash when there are none.

    >>> numbers((0, 2)), numbers(())
    ('0,2', '–')
    """
    return ",".join(str(id_) for id_ in ids) or "–"


def clean(text: str) -> str:
    r"""Return ``text`` on one line and without anything that is not printed: control characters, escapes, lone surrogates.

    >>> clean("a\x1b[31m\nb")
    'a�[31m b'
    """
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in " ".join(text.split()))


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


def owner_texts(label: str) -> tuple[str, ...]:
    """Return forms of an owner's label, longest first: all of it, without the namespace, the pod alone.

    >>> owner_texts("ml/train-0/worker")
    ('ml/train-0/worker', 'train-0/worker', 'train-0')
    """
    parts = label.split("/")
    forms = ["/".join(parts), "/".join(parts[1:]), parts[1] if len(parts) > 2 else ""]
    return tuple(dict.fromkeys(form for form in forms if form))


def box_titles(box: BoxView, view: NodeView) -> tuple[str, ...]:
    """Return forms of a box's title, longest first; a renderer takes the longest that fits."""
    if not box.labels:
        return ("",)
    long = " · ".join(_label_text(label, _LONG) for label in box.labels)
    middle = " · ".join(_label_text(label, _MIDDLE) for label in box.labels)
    short = " ".join(_label_text(label, _SHORT) for label in box.labels)
    facts = _box_facts(box, view)
    forms = [" · ".join((long, *facts[:count])) for count in range(len(facts), 0, -1)]
    forms += [" · ".join((middle, *facts[:1])), middle, short]
    return tuple(dict.fromkeys(forms))


_LONG = {BoxKind.SOCKET: "Socket", BoxKind.NUMA: "NUMA node", BoxKind.L3: "L3"}
_MIDDLE = {BoxKind.SOCKET: "Socket", BoxKind.NUMA: "NUMA", BoxKind.L3: "L3"}
_SHORT = {BoxKind.SOCKET: "S", BoxKind.NUMA: "N", BoxKind.L3: "L3"}


def _label_text(label: BoxLabel, words: dict[BoxKind, str]) -> str:
    if label.kind is BoxKind.OFFLINE:
        return "Offline"
    if label.kind is BoxKind.CORE_KIND:
        text = label.name if words is not _SHORT else label.name.split()[0]
    elif label.id is None:
        text = words[label.kind]
    else:
        text = f"{words[label.kind]}{'' if words is _SHORT else ' '}{label.id}"
    return f"{text} (part)" if label.part else text


def _box_facts(box: BoxView, view: NodeView) -> tuple[str, ...]:
    """Return the figures of a NUMA node, the most wanted first; other boxes have none."""
    ids = {label.id for label in box.labels if label.kind is BoxKind.NUMA}
    nodes = [node for node in view.numa if node.id in ids]
    if not nodes:
        return ()
    node = nodes[0]
    return (cpu_fact(node), size(node.memory_bytes) if node.memory_bytes else "no memory")


def cpu_fact(node: NUMAView) -> str:
    """Return how many CPUs of a NUMA node are free, or what else is to be said of its CPUs."""
    if not node.cpus:
        return "memory only"
    if node.counts.get(CPUUse.FREE) or node.counts.get(CPUUse.EXCLUSIVE):
        return f"{node.counts.get(CPUUse.FREE, 0)} of {len(node.cpus)} free"
    return plural(len(node.cpus), "CPU")


def cpu_sentence(cpu: CPUView, view: NodeView) -> str:
    """Return everything about one CPU in one line, for tooltips."""
    parts = [f"CPU {cpu.cpu}"]
    if cpu.owner is None:
        parts.append(cpu.use.value)
    else:
        owners = [view.owners[owner].label for owner in (cpu.owner, *cpu.other_owners)]
        verb = {CPUUse.CONTESTED: "contested: ", CPUUse.OFFLINE: "offline, but held by "}.get(cpu.use, "")
        joint = " and " if cpu.use is CPUUse.CONTESTED else ", before that "
        parts.append(verb + joint.join(owners))
    for name, id_ in (("core of CPU", cpu.core), ("L3", cpu.l3), ("NUMA node", cpu.numa), ("socket", cpu.socket)):
        if id_ is not None:
            parts.append(f"{name} {id_}")
    return " · ".join(parts)
