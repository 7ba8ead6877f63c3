"""Finding the pods and containers that somebody names.

A name is ``[NAMESPACE/]POD[/CONTAINER]`` or a uid; ``*`` in it stands for any text, so that ``web-*`` names all
replicas.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatchcase

from mooring.core.errors import InputError
from mooring.core.pod import Pod
from mooring.manifest.fields import nearest
from mooring.planner.changes.change import PodRef
from mooring.planner.question import Question

NAMED = 5
"""How many candidates a message names."""


def pods_of(question: Question) -> tuple[Pod, ...]:
    """Return all pods of a question, running ones first."""
    return (*question.active, *question.pods)


def ref(question: Question, pod: Pod) -> PodRef:
    """Return how a pod of a question is named."""
    return refs(question)[pod.uid]


def refs(question: Question) -> dict[str, PodRef]:
    """Return how the pods of a question are named, by uid."""
    pods = pods_of(question)
    count = Counter(_name(pod) for pod in pods)
    return {pod.uid: PodRef(pod.uid, _name(pod) if count[_name(pod)] == 1 else pod.uid) for pod in pods}


def find_pod(question: Question, text: str) -> Pod:
    """Return the one pod that a name means.

    Raises:
        InputError: it means none, or several.
    """
    found = find_pods(question, text)
    if len(found) > 1:
        raise InputError(
            f"{text!r:.80} means {len(found)} pods: {_enumerated(question, found)}", remedy="name one of them"
        )
    return found[0]


def find_pods(question: Question, text: str) -> list[Pod]:
    """Return the pods that a name means, at least one.

    Raises:
        InputError: there is none, or a name without ``*`` means pods of several namespaces.
    """
    pods = pods_of(question)
    found = [pod for pod in pods if _means(text, pod)]
    if not found:
        raise InputError(f"there is no pod {text!r:.80}", remedy=_close(question, text))
    if len(found) > 1 and "*" not in text:
        raise InputError(
            f"{text!r:.80} means {len(found)} pods: {_enumerated(question, found)}", remedy="name one of them"
        )
    return found


def find_containers(question: Question, text: str) -> list[tuple[Pod, str]]:
    """Return the containers that a name means; the empty text stands for the pod-level resources of a pod.

    A pod without pod-level resources and with one container needs no container's name.

    Raises:
        InputError: there is none, or the container has to be named.
    """
    whole = [pod for pod in pods_of(question) if _means(text, pod)]
    if whole:
        return [(pod, _only_container(pod)) for pod in find_pods(question, text)]
    owner, slash, container = text.rpartition("/")
    if not slash:
        find_pods(question, text)
    found = [
        (pod, one.name)
        for pod in find_pods(question, owner)
        for one in pod.containers
        if fnmatchcase(one.name, container)
    ]
    if not found:
        pod = find_pods(question, owner)[0]
        raise InputError(f"{_name(pod)} has no container {container!r:.80}", remedy=f"it has {names_of(pod)}")
    return found


def _only_container(pod: Pod) -> str:
    if pod.is_pod_level:
        return ""
    if len(pod.containers) == 1:
        return pod.containers[0].name
    raise InputError(f"{_name(pod)} has several containers", remedy=f"name one of {names_of(pod)}")


def _means(text: str, pod: Pod) -> bool:
    return any(name == text or fnmatchcase(name, text) for name in (_name(pod), pod.name, pod.uid))


def _name(pod: Pod) -> str:
    return f"{pod.namespace}/{pod.name}"


def _enumerated(question: Question, pods: Sequence[Pod]) -> str:
    known = refs(question)
    names = [str(known[pod.uid]) for pod in pods]
    return ", ".join(names[:NAMED]) + (", ..." if len(names) > NAMED else "")


def _close(question: Question, text: str) -> str:
    names = [str(known) for known in refs(question).values()]
    close = nearest(text, frozenset(names)) or nearest(text, frozenset(pod.name for pod in pods_of(question)))
    return f"did you mean {close}?" if close else f"there are {_enumerated(question, pods_of(question)) or 'none'}"


def listed(question: Question, ref: PodRef) -> Pod:
    """Return a pod that is yet to be admitted.

    Raises:
        InputError: it runs already, or is not asked.
    """
    for pod in question.pods:
        if pod.uid == ref.uid:
            return pod
    raise InputError(f"{ref} is not asked: it runs already, or was removed", remedy="name a pod of -f")


def names_of(pod: Pod) -> str:
    """Return the names of a pod's containers, in order."""
    return ", ".join(container.name for container in pod.containers)


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
    return name, refs(question)[find_pod(question, other).uid] if other else None
