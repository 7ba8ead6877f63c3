"""What a node may have become since it published its state.

Pods were bound to a node that its state does not name, and pods of the state are leaving. It is not known here how far
the node has come: whether a pod that leaves is gone yet, or was gone before another one was admitted. Where a pod lies
depends on that. So every sequence of events that the node can have had is followed, and a pod is promised a place only
where each of them admits it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from mooring.engine.core.pod import Pod
from mooring.engine.kubelet.admit import AdmitMode, added, admit, out_of
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.kubelet.shapes import view_key
from mooring.engine.node.resources import pod_requests
from mooring.published.restored import holds

MOST_COURSES = 48
"""Courses that are followed at once; with more of them nothing is promised."""


@dataclass(frozen=True, slots=True)
class Pending:
    """A pod that is bound to the node, and that no state of it has named."""

    pod: Pod
    leaving: bool = False
    """Whether it is deleted or has finished: then it is there still, or gone again, or was never admitted."""


@dataclass(frozen=True, slots=True)
class _Course:
    """One way that things can have gone."""

    kubelet: Kubelet
    """With the sums of all that may be there still."""
    leaving: frozenset[str]
    """Of the pods that are on the node, those that can go at any moment."""


def courses(
    digest: str, base: Kubelet, leaving: Collection[str], pending: Sequence[Pending], most: int = MOST_COURSES
) -> tuple[Kubelet, ...] | None:
    """Return every node that the state can have become, without those that are equal; None when there are too many.

    The first one is that in which no pod has left. All count everything in their sums that may still be there.

    Args:
        digest: of the node's facts.
        base: the node on its state.
        leaving: uids of pods of the state that are gone or on their way.
        pending: pods bound since, in the order in which the node gets to see them.
        most: courses followed at once.
    """
    tied = frozenset(uid for uid in leaving if uid in base.node.active and holds(base.node, uid) is not None)
    found = _with_departures(digest, [_Course(base, tied)], most)
    if len(found) > most:
        return None
    for entry in pending:
        after = _distinct(digest, [step for course in found for step in _admitted(course, entry)])
        found = _with_departures(digest, after, most)
        if len(found) > most:
            return None
    return tuple(course.kubelet for course in found)


def _admitted(course: _Course, entry: Pending) -> list[_Course]:
    """Return what the node can be when it has come to a pod that was bound to it."""
    kubelet, pod = course.kubelet, entry.pod
    if pod.uid in kubelet.node.active:
        return [course]
    after, result = admit(kubelet, pod, AdmitMode.MANAGERS)
    if result.crash:
        return [course]
    if not result.admitted:
        return [_Course(kubelet.settled(), course.leaving)]
    wanted, used = pod_requests(pod), kubelet.used
    devices = after.node.providers.devices.capacity(wanted)
    refused = out_of(wanted, used, len(kubelet.node.active), kubelet.settings, devices)
    after = after.counting(added(used, wanted))
    if holds(after.node, pod.uid) is None:
        # It changes sums only, and these count it as long as it may be there.
        return [_Course(after, course.leaving)]
    there = _Course(after, course.leaving | {pod.uid} if entry.leaving else course.leaving)
    # The sums count those too that may have left, so that a refusal by them is not certain.
    return [there, course] if entry.leaving or refused is not None else [there]


def _with_departures(digest: str, begun: list[_Course], most: int) -> list[_Course]:
    """Return the courses, and those in which any of the leaving pods are gone."""
    found = list(begun)
    known = {_identity(digest, course) for course in found}
    position = 0
    while position < len(found) and len(found) <= most:
        course = found[position]
        position += 1
        for uid in sorted(course.leaving):
            less = _Course(_departed(course.kubelet, uid), course.leaving - {uid})
            identity = _identity(digest, less)
            if identity not in known:
                known.add(identity)
                found.append(less)
    return found


def _departed(kubelet: Kubelet, uid: str) -> Kubelet:
    """Return the kubelet without a pod, whose requests are still counted: a pod more in the sums is never wrong."""
    return kubelet.without([uid]).counting(kubelet.used)


def _distinct(digest: str, found: list[_Course]) -> list[_Course]:
    kept: dict[object, _Course] = {}
    for course in found:
        kept.setdefault(_identity(digest, course), course)
    return list(kept.values())


def _identity(digest: str, course: _Course) -> object:
    node = course.kubelet.node
    return view_key(digest, node), tuple((uid, repr(holds(node, uid))) for uid in sorted(course.leaving))
