"""What a container's CPUs and memory are shared with, and what that means for its CFS quota.

Source: kubelet v1.37.1, cm/cpumanager, cm/memorymanager and kuberuntime; KEP-5526; spec: pod-level.md section 5.

Mixed containers: CPUs of their own and the shared pool besides, so that one program can use both.

The assignment stays what the CPU manager gave: the pool has no owner, and a mixed container is one more that may run in
it. So nothing else of the engine knows of mixed containers, neither its decisions nor its state files.

The extension ``mixed-cpus`` is this project's; no kubelet has it. A program that polls on CPUs of its own has other
threads too, which wait for files and clients, and those must not run where it polls.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from enum import Enum
from typing import Final

from mooring.engine.core.config import MIXED_CPUS
from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Container, Pod, guaranteed_equivalent
from mooring.engine.cpumanager.policy import whole_cpus
from mooring.engine.node.providers import Providers
from mooring.engine.node.settings import Settings


class Isolation(Enum):
    """Whom a container shares its CPUs or its memory with."""

    HOST = "host"
    """With all pods on the node."""
    POD = "pod"
    """With the other containers of its pod."""
    CONTAINER = "container"
    """With no pod."""


def cpu_isolation(settings: Settings, providers: Providers, pod: Pod, container: Container) -> Isolation:
    """Return the isolation of a container's CPUs."""
    return isolation_with(settings, pod, container, providers.cpu.assignments.get(pod.uid, {}).get(container.name, 0))


def isolation_with(settings: Settings, pod: Pod, container: Container, held: int) -> Isolation:
    """Return the isolation of a container that is assigned these CPUs, given as a mask."""
    if not held:
        return Isolation.HOST
    exclusive = guaranteed_equivalent(container) and whole_cpus(container.limits) > 0
    return Isolation.POD if settings.pod_level.manages(pod) and not exclusive else Isolation.CONTAINER


def memory_isolation(settings: Settings, providers: Providers, pod: Pod, container: Container) -> Isolation:
    """Return the isolation of a container's memory."""
    if not providers.memory.assignments.get(pod.uid, {}).get(container.name):
        return Isolation.HOST
    if settings.pod_level.manages(pod) and not guaranteed_equivalent(container):
        return Isolation.POD
    return Isolation.CONTAINER


def container_runs_without_quota(settings: Settings, providers: Providers, pod: Pod, container: Container) -> bool:
    """Tell whether the CFS quota is lifted: the container has CPUs of its own, and a quota would only throttle it."""
    if settings.pod_level.managers:
        return cpu_isolation(settings, providers, pod, container) is Isolation.CONTAINER
    return bool(providers.cpu.assignments.get(pod.uid, {}).get(container.name))


def pod_runs_without_quota(settings: Settings, providers: Providers, pod: Pod) -> bool:
    """Tell whether the quota of the pod's cgroup and sandbox is lifted.

    With KEP-5526 a pod-level pod keeps it as soon as one of its containers shares.
    """
    if settings.pod_level.manages(pod):
        return bool(pod.containers) and all(
            cpu_isolation(settings, providers, pod, container) is Isolation.CONTAINER for container in pod.containers
        )
    held = providers.cpu.assignments.get(pod.uid, {})
    return any(held.get(container.name) for container in pod.containers)


ANNOTATION: Final = "mooring/mixed-cpus"
"""On a pod with the value ``true``: all containers with CPUs of their own; with ``.NAME`` appended that one alone."""
_WORDS: Final = {"true": True, "false": False}


def asks_to_mix(annotations: Mapping[str, str], name: str) -> bool:
    """Tell whether a container requests the pool besides its own CPUs; its own annotation wins over the pod's.

    A value that is no answer requests nothing: the caller of a running node cannot refuse it.

    >>> asks_to_mix({ANNOTATION: "true", f"{ANNOTATION}.poll": "false"}, "poll")
    False
    """
    own = annotations.get(f"{ANNOTATION}.{name}")
    return _WORDS.get((annotations.get(ANNOTATION, "") if own is None else own).strip().lower(), False)


def check_mixing(annotations: Mapping[str, str], names: Iterable[str]) -> None:
    """Refuse annotations that make no sense.

    Args:
        annotations: of a pod.
        names: of its containers.

    Raises:
        InputError: a value is neither ``true`` nor ``false``, or there is no such container.

    >>> check_mixing({f"{ANNOTATION}.pol": "true"}, ["poll"])
    Traceback (most recent call last):
        ...
    mooring.engine.core.errors.InputError: metadata.annotations.mooring/mixed-cpus.pol: there is no such container; \
did you mean poll?
    """
    for annotation, text in annotations.items():
        if annotation != ANNOTATION and not annotation.startswith(f"{ANNOTATION}."):
            continue
        field = f"metadata.annotations.{annotation}"
        if text.strip().lower() not in _WORDS:
            raise InputError(f"{text!r:.40} is neither true nor false", field=field, remedy='write "true" or "false"')
        name, known = annotation.removeprefix(ANNOTATION).removeprefix("."), [*names]
        if annotation != ANNOTATION and name not in known:
            near = get_close_matches(name, known, n=1)
            remedy = f"did you mean {near[0]}?" if near else f"the pod has {', '.join(known)}"
            raise InputError("there is no such container", field=field, remedy=remedy)


def is_mixed(settings: Settings, pod: Pod, container: Container, held: int, claimed: int = 0) -> bool:
    """Tell whether a container may run in the shared pool besides its own CPUs.

    A container that shares CPUs of its pod's own is not one of them: those are all that the pod requested.

    Args:
        settings: with or without the extension.
        pod: of the container.
        container: that asks or does not.
        held: CPUs that it is assigned, as a mask.
        claimed: CPUs that it has of claims, as a mask.
    """
    if MIXED_CPUS not in settings.extensions or not asks_to_mix(pod.annotations, container.name):
        return False
    isolation = isolation_with(settings, pod, container, held)
    return isolation is Isolation.CONTAINER or (isolation is Isolation.HOST and bool(claimed))


def mixed_containers(settings: Settings, providers: Providers, pod: Pod) -> tuple[str, ...]:
    """Return the containers of a pod that may use their own CPUs and the shared pool, in the pod's order.

    Claims are left out: requests that no plan knows decide about their use.
    """
    held = providers.cpu.assignments.get(pod.uid, {})
    return tuple(one.name for one in pod.containers if is_mixed(settings, pod, one, held.get(one.name, 0)))
