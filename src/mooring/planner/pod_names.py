"""Which pod, and which of its containers, a name means."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from mooring.core.errors import InputError
from mooring.core.pod import Pod
from mooring.planner.plan import Plan

NAMED = 6
"""How many candidates a message names."""


@dataclass(frozen=True, slots=True)
class Named:
    """One thing that can be explained."""

    pod: Pod
    container: str = ""

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


def find(pods: Sequence[Pod], name: str) -> Named:
    """Return what a name means: a pod, or a container of one, with or without the namespace; a pod also by its uid.

    A name that fits a pod as it stands means the pod, even where a container could be meant.

    Raises:
        InputError: nothing has this name, or several things have.
    """
    for forms in (_of_pods, _of_containers):
        found = [named for named, texts in forms(pods) if name in texts]
        if len(found) == 1:
            return found[0]
        if found:
            raise _several(found, name)
    raise _unknown(pods, name)


def _of_pods(pods: Sequence[Pod]) -> Iterator[tuple[Named, tuple[str, ...]]]:
    for pod in pods:
        yield Named(pod), (pod.name, f"{pod.namespace}/{pod.name}", pod.uid)


def _of_containers(pods: Sequence[Pod]) -> Iterator[tuple[Named, tuple[str, ...]]]:
    for pod in pods:
        for container in pod.containers:
            short = f"{pod.name}/{container.name}"
            yield Named(pod, container.name), (short, f"{pod.namespace}/{short}", f"{pod.uid}/{container.name}")


def _several(found: Sequence[Named], name: str) -> InputError:
    names = [named.full for named in found]
    if len(set(names)) < len(names):
        names = [f"{named.full} (uid {named.pod.uid})" for named in found]
    return InputError(
        f"{len(found)} things have this name", source=name, remedy=f"name one of {', '.join(_short(names))}"
    )


def _unknown(pods: Sequence[Pod], name: str) -> InputError:
    of_pod, slash, container = name.rpartition("/")
    of_this = [named.pod for named, texts in _of_pods(pods) if slash and of_pod in texts]
    if of_this:
        containers = ", ".join(_short([one.name for pod in of_this for one in pod.containers]))
        return InputError(f"has no container {container!r}", source=of_pod, remedy=f"containers are {containers}")
    known = [f"{pod.namespace}/{pod.name}" for pod in pods]
    # A workload's name begins the names of its pods.
    near = [text for text in known if text.startswith(name) or text.partition("/")[2].startswith(name)]
    if not near:
        short = {text.rpartition("/")[2]: text for text in known}
        near = [*get_close_matches(name, known), *(short[text] for text in get_close_matches(name, short))]
    remedy = ", ".join(_short(list(dict.fromkeys(near or known))))
    return InputError("no pod has this name", source=name, remedy=f"pods are {remedy}" if remedy else "")


def _short(names: list[str]) -> list[str]:
    more = len(names) - NAMED
    return [*names[:NAMED], f"{more} more"] if more > 0 else names
