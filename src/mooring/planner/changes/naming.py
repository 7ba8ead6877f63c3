"""How changes name pods: references to the pods of a question, and how they are written in options."""

from __future__ import annotations

from collections import Counter

from mooring.core.errors import InputError
from mooring.core.pod import Pod
from mooring.planner.changes.change import PodRef
from mooring.planner.pod_names import Named, find_pod
from mooring.planner.question import Question


def asked_about(question: Question) -> tuple[Pod, ...]:
    """Return all pods of a question, running ones first."""
    return (*question.active, *question.pods)


def refs(question: Question) -> dict[str, PodRef]:
    """Return how the pods of a question are named, by uid."""
    names = {pod.uid: Named(pod).full for pod in asked_about(question)}
    count = Counter(names.values())
    return {uid: PodRef(uid, name if count[name] == 1 else uid) for uid, name in names.items()}


def listed(question: Question, ref: PodRef) -> Pod:
    """Return a pod that is yet to be admitted.

    Raises:
        InputError: it runs already, or is not asked.
    """
    for pod in question.pods:
        if pod.uid == ref.uid:
            return pod
    raise InputError(f"{ref} is not asked: it runs already, or was removed", remedy="name a pod of -f")


def pair_text(pod: PodRef, before: PodRef | None) -> str:
    """Return a pod, and the one that is asked next, as an option's value."""
    return f"{pod}={before}" if before is not None else f"{pod}"


def named_pair(question: Question, text: str) -> tuple[str, PodRef | None]:
    """Read ``POD`` or ``POD=NEXT``: a name that may mean several pods, and the pod that is asked next.

    Raises:
        InputError: it cannot be understood.
    """
    name, equals, other = text.partition("=")
    if not name or (equals and not other):
        raise InputError(f"{text!r:.80} is incomplete", remedy="write POD or POD=OTHER")
    return name, refs(question)[find_pod(asked_about(question), other).uid] if other else None
