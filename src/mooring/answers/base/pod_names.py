"""Which pod, and which of its containers, a name means.

A name is ``[NAMESPACE/]POD[/CONTAINER]`` or a uid; ``*`` in it stands for any text, so that ``web-*`` names all
replicas. A name that fits a pod means the pod, even where a container could be meant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase

from mooring.answers.base.plan import Plan
from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Pod

_MOST_NAMED = 6
"""How many candidates a message names."""


@dataclass(frozen=True, slots=True)
class Named:
    """A pod, or one of its containers."""

    pod: Pod
    container: str = ""
    """Empty for the pod as a whole."""

    @property
    def full(self) -> str:
        """The name that means nothing else, unless two pods have the same."""
        return "/".join(part for part in (self.pod.namespace, self.pod.name, self.container) if part)


def pods_of(plan: Plan) -> tuple[Pod, ...]:
    """Return every pod of a plan, asked or not, in order."""
    return (*(answer.pod for answer in plan.answers), *plan.unasked)


def first_refused(plan: Plan) -> Pod | None:
    """Return the first pod that does not run; None when all do."""
    refused = (answer.pod for answer in plan.answers if not answer.admitted)
    return next(refused, None) or next(iter(plan.unasked), None)


def called(pods: Sequence[Pod], text: str) -> list[Pod]:
    """Return the pods that a name means; none, if it means containers or nothing."""
    return [
        pod
        for pod in pods
        if any(name == text or fnmatchcase(name, text) for name in (Named(pod).full, pod.name, pod.uid))
    ]


def called_or_owning(pods: Sequence[Pod], text: str) -> list[Pod]:
    """Return the pods that a name means, or that could have the container that it means."""
    owner, slash, _ = text.rpartition("/")
    return called(pods, text) or (called(pods, owner) if slash else [])


def find(pods: Sequence[Pod], text: str) -> Named:
    """Return the one pod or container that a name means.

    Raises:
        InputError: it means none, or several.
    """
    found = [Named(pod) for pod in called(pods, text)] or _containers(pods, text)
    if len(found) > 1:
        raise several(found, text)
    if not found:
        raise unknown(pods, text)
    return found[0]


def find_pods(pods: Sequence[Pod], text: str) -> list[Pod]:
    """Return the pods that a name means, at least one.

    Raises:
        InputError: there is none, or a name without ``*`` means several.
    """
    found = called(pods, text)
    if not found:
        raise unknown(pods, text)
    if len(found) > 1 and "*" not in text:
        raise several([Named(pod) for pod in found], text)
    return found


def find_pod(pods: Sequence[Pod], text: str) -> Pod:
    """Return the one pod that a name means.

    Raises:
        InputError: it means none, or several.
    """
    found = find_pods(pods, text)
    if len(found) > 1:
        raise several([Named(pod) for pod in found], text)
    return found[0]


def find_containers(pods: Sequence[Pod], text: str) -> list[Named]:
    """Return the containers that a name means, at least one; a pod as a whole stands for its pod-level resources.

    A pod without pod-level resources and with one container needs no container's name.

    Raises:
        InputError: there is none, or the container has to be named.
    """
    if called(pods, text):
        return [Named(pod, _only_container(pod)) for pod in find_pods(pods, text)]
    found = _containers(pods, text)
    if not found:
        raise unknown(pods, text)
    if "*" not in text and len({named.pod.uid for named in found}) > 1:
        raise several(found, text)
    return found


def several(found: Sequence[Named], text: str) -> InputError:
    """Return the error about a name that means more than one thing."""
    names = [named.full for named in found]
    if len(set(names)) < len(names):
        names = [f"{named.full} (uid {named.pod.uid})" for named in found]
    what = "containers" if found[0].container else "pods"
    return InputError(f"{text!r:.80} means {len(found)} {what}: {enumerated(names)}", remedy="name one of them")


def unknown(pods: Sequence[Pod], text: str) -> InputError:
    """Return the error about a name that means nothing, with the names that are nearest to it."""
    owner, slash, container = text.rpartition("/")
    of_this = called(pods, owner) if slash else []
    if of_this:
        return InputError(
            f"{Named(of_this[0]).full} has no container {container!r:.80}", remedy=f"it has {names_of(of_this[0])}"
        )
    known = list(dict.fromkeys(Named(pod).full for pod in pods))
    # A workload's name begins the names of its pods.
    near = [name for name in known if name.startswith(text) or name.partition("/")[2].startswith(text)]
    if not near:
        short = {name.rpartition("/")[2]: name for name in known}
        near = [*get_close_matches(text, known), *(short[name] for name in get_close_matches(text, short))]
    near = list(dict.fromkeys(near))
    remedy = f"did you mean {enumerated(near)}?" if near else f"there are {enumerated(known) or 'none'}"
    return InputError(f"there is no pod {text!r:.80}", remedy=remedy)


def names_of(pod: Pod) -> str:
    """Return the names of a pod's containers, in order."""
    return enumerated([container.name for container in pod.containers])


def _containers(pods: Sequence[Pod], text: str) -> list[Named]:
    owner, slash, container = text.rpartition("/")
    return [
        Named(pod, one.name)
        for pod in (called(pods, owner) if slash else ())
        for one in pod.containers
        if fnmatchcase(one.name, container)
    ]


def _only_container(pod: Pod) -> str:
    if pod.is_pod_level:
        return ""
    if len(pod.containers) == 1:
        return pod.containers[0].name
    raise InputError(f"{Named(pod).full} has several containers", remedy=f"name one of {names_of(pod)}")


def enumerated(names: Sequence[str]) -> str:
    """Return names; of many the first, and how many more there are."""
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
