"""How owners are called where there is little room: short forms of their names that are never mistaken for another's.

A name is ``namespace/pod/container`` or ``namespace/pod``. Namespace and pod are cut in the middle, the end of a pod's
name stays whole: the ordinal of a StatefulSet and the suffix of a ReplicaSet tell its pods apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

_WHOLE = (96, 72, 56, 44, 36, 28)
"""Lengths to which a whole name is cut, in characters."""

_WITHOUT_NAMESPACE = (40, 28, 22, 18, 15)
_POD = (24, 18, 14, 11, 9, 7, 6, 5, 4)

_LONGEST_ENDING = 11
"""Characters of the longest end of a pod's name that is kept: a dash and the hash of a pod template."""

_SHORTEST_MARKED = 20
"""Characters of a form that has to be recognised in a list: where it is another owner's too, the mark tells them
apart. Shorter forms stand beside cells with the mark, and are left out."""

_LISTED = 13
"""Characters that always fit into a list of owners: the longest form of at most as many has the mark, too, where it is
another owner's."""


def ending(name: str) -> str:
    """Return the end of a pod's name that tells it from its siblings; empty where there is none.

    >>> ending("database-0"), ending("web-7f9c8d5b6-x2x4z"), ending("web")
    ('-0', '-x2x4z', '')
    """
    _, dash, last = name.rpartition("-")
    return f"{dash}{last}" if dash and len(last) < _LONGEST_ENDING else ""


def cut(name: str, room: int) -> str:
    """Return ``name`` cut in its middle to ``room`` characters; empty where its ending leaves no room.

    >>> cut("database-0", 8), cut("database-0", 4), cut("database-10", 4), cut("observability", 7)
    ('datab…-0', 'd…-0', '', 'obs…ity')
    """
    if len(name) <= room:
        return name
    tail = max(len(ending(name)), (room - 1) // 2 - 1 if ending(name) else (room - 1) // 2)
    if room - 1 - tail < 1:
        return ""
    return f"{name[: room - 1 - tail]}…{name[len(name) - tail :]}"


def unique_names(labels: Sequence[str], uids: Sequence[str]) -> tuple[str, ...]:
    """Return the labels; those of several pods of one name, such as one that is ending and the next, with their uids.

    >>> unique_names(["a/b", "a/c", "a/b"], ["u1", "u2", "u3"])
    ('a/b (uid u1)', 'a/c', 'a/b (uid u3)')
    """
    uses = Counter(labels)
    found = [f"{label} (uid {uid})" if uses[label] > 1 else label for label, uid in zip(labels, uids, strict=True)]
    still = Counter(found)
    numbers: Counter[str] = Counter()
    for position, name in enumerate(found):
        if still[name] > 1:
            numbers[name] += 1
            found[position] = f"{name} #{numbers[name]}"
    return tuple(found)


def short_names(names: Sequence[str], marks: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Return for each name its forms, longest first and itself included; no form belongs to two names.

    Args:
        names: of the owners, all different.
        marks: of the owners, all different.

    >>> short_names(["ml/train-0/worker"], ["a"])
    (('ml/train-0/worker', 'train-0/worker', 'train-0', 'tra…-0', 'tr…-0', 't…-0'),)
    """
    wanted = [tuple(_forms(name)) for name in names]
    uses = Counter(form for forms in wanted for form in dict.fromkeys(forms))
    taken = set(uses)
    found = []
    for name, mark, forms in zip(names, marks, wanted, strict=True):
        kept = [name]
        listed = next((form for form in forms if len(form) <= _LISTED), name)
        for form in forms:
            marked = f"{form} [{mark}]"
            told_apart = len(form) >= _SHORTEST_MARKED or form == listed
            if uses[form] == 1:
                kept.append(form)
            elif told_apart and len(marked) < len(name) and marked not in taken:
                taken.add(marked)
                kept.append(marked)
        found.append(tuple(sorted(dict.fromkeys(kept), key=lambda form: -len(form))))
    return tuple(found)


def _forms(name: str) -> Iterator[str]:
    namespace, pod, container = _parts(name)
    yield name
    for room in _WHOLE:
        yield from _joined(namespace, pod, container, room)
    if namespace:
        yield "/".join(part for part in (pod, container) if part)
        for room in _WITHOUT_NAMESPACE:
            yield from _joined("", pod, container, room)
        yield pod
    for room in _POD:
        yield from filter(None, (cut(pod, room),))


def _parts(name: str) -> tuple[str, str, str]:
    """Return namespace, pod and container of a name; what has no slash counts as a pod."""
    namespace, slash, rest = name.partition("/")
    pod, _, container = rest.partition("/")
    return (namespace, pod, container) if slash and pod else ("", name, "")


def _joined(namespace: str, pod: str, container: str, room: int) -> Iterator[str]:
    """Yield the name in at most ``room`` characters: the longest parts are cut, all of them to the same length."""
    parts = [part for part in (namespace, pod, container) if part]
    share = room
    while share >= 3 and sum(min(len(part), share) for part in parts) + len(parts) - 1 > room:
        share -= 1
    pieces = [cut(part, share) for part in parts]
    if share >= 3 and all(pieces):
        yield "/".join(pieces)
