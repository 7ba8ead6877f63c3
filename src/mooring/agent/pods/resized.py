"""Pods while a resize is on its way: as the kubelet has them, as they will be, and as an update of a container asks.

The kubelet turns a resize into calls with bare numbers: one call for each resource and container, each with the
container's full set; the numbers of the other resource are those from before. So what differs from the amounts that the
pod was granted is what is requested. Which amounts have these numbers is said by the API server's object where it
agrees with them, else derived (:mod:`mooring.agent.pods.derive`), which is exact for whole CPUs.

Source: kubelet v1.37.1, kuberuntime (doPodResizeAction); measured with the real kubelet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mooring.agent.nri.types import LinuxResources
from mooring.agent.pods.derive import amounts_of
from mooring.agent.pods.quotas import PERIOD, asked_of
from mooring.agent.pods.source import kept_annotations
from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Container, Pod, ResourceList
from mooring.engine.core.quantity import Quantity
from mooring.inputs.pods.defaults import PodGates
from mooring.inputs.pods.pod_fields import with_allocated
from mooring.inputs.pods.pods import DEFAULT_GATES, pod_from_object


def pod_of_object(obj: Mapping[str, Any], *, source: str, gates: PodGates = DEFAULT_GATES) -> Pod:
    """Return the pod that the kubelet decides about, with the annotations that the agent reads.

    Raises:
        InputError: the object is no pod that an API server would store.
    """
    try:
        pod = pod_from_object(with_allocated(obj), source=source, gates=gates)
    except InputError as error:
        raise error.at(source) from None
    return replace(pod, annotations=kept_annotations(pod.annotations))


def wanted_pod(obj: Mapping[str, Any], *, source: str, gates: PodGates = DEFAULT_GATES) -> Pod | None:
    """Return the pod with the resources that it is to have; None when these are allocated.

    Raises:
        InputError: the object is no pod that an API server would store.
    """
    return pod_from_object(obj, source=source, gates=gates) if with_allocated(obj) is not obj else None


def resized(pod: Pod, name: str, asked: LinuxResources, wanted: Pod | None = None) -> Pod | None:
    """Return the pod with one container's amounts as an update requests them; None when it changes none.

    Pod-level pods are left alone: what a call says of their containers may be the pod's own amounts.

    Args:
        pod: with the resources that it was granted.
        name: of the container.
        asked: the request; 0 and None are not set.
        wanted: the pod as the API server has it, with the resources that it is to have.

    >>> from mooring.engine.core.pod import QoS
    >>> from mooring.engine.core.quantity import Quantity
    >>> two = {"cpu": Quantity.parse("2")}
    >>> pod = Pod("u", "n", containers=(Container("a", requests=two, limits=two),), qos=QoS.GUARANTEED)
    >>> after = resized(pod, "a", LinuxResources(shares=4096, quota=400000, period=100000))
    >>> str(after.containers[0].requests["cpu"]), resized(pod, "a", LinuxResources(shares=2048)) is None
    ('4', True)
    """
    own = pod.container(name)
    if own is None or pod.is_pod_level:
        return None
    period = asked.period or PERIOD
    granted = asked_of(pod, own, period)
    theirs = wanted.container(name) if wanted is not None else None
    goal = asked_of(wanted, theirs, period) if wanted is not None and theirs is not None else None
    made = own
    if _differ_in_cpu(granted, asked):
        source = theirs if goal is not None and not _differ_in_cpu(goal, asked) else None
        made = _with("cpu", made, source or _derived(pod, name, asked))
    if asked.memory_limit and asked.memory_limit != granted.memory_limit:
        source = theirs if goal is not None and goal.memory_limit == asked.memory_limit else None
        made = _with("memory", made, source or _derived(pod, name, asked))
    if made == own:
        return None
    return replace(pod, containers=tuple(made if one.name == name else one for one in pod.containers))


def with_granted(pod: Pod, known: Pod) -> Pod:
    """Return a pod as a source tells it now, with the CPU and memory that its known containers were granted.

    A source can be behind a resize. Pod-level pods are left alone, and so are amounts that are the same.
    """
    if pod.is_pod_level or known.is_pod_level or pod.qos is not known.qos:
        return pod
    return replace(pod, containers=tuple(_granted(one, known.container(one.name)) for one in pod.containers))


def _granted(container: Container, known: Container | None) -> Container:
    if known is None:
        return container
    made = container
    for resource in ("cpu", "memory"):
        if _amounts(container, resource) != _amounts(known, resource):
            made = _with(resource, made, known)
    return made


def _amounts(container: Container, resource: str) -> tuple[Quantity | None, Quantity | None]:
    return container.requests.get(resource), container.limits.get(resource)


def _differ_in_cpu(granted: LinuxResources, asked: LinuxResources) -> bool:
    """Tell whether shares or quota are others; a quota that is not there says nothing, the kubelet may set none."""
    if not asked.shares:
        return False
    quota = asked.quota or 0
    return asked.shares != granted.shares or (quota > 0 and quota != granted.quota)


def _derived(pod: Pod, name: str, asked: LinuxResources) -> Container:
    requests, limits = amounts_of(asked, pod.qos)
    return Container(name, requests=requests, limits=limits)


def _with(resource: str, container: Container, source: Container) -> Container:
    """Return the container with one resource of another; an unknown memory request stays."""

    def taken(own: ResourceList, theirs: ResourceList, *, stays: bool) -> ResourceList:
        if resource in theirs:
            return {**own, resource: theirs[resource]}
        return own if stays else {key: amount for key, amount in own.items() if key != resource}

    return replace(
        container,
        requests=taken(container.requests, source.requests, stays=resource == "memory"),
        limits=taken(container.limits, source.limits, stays=False),
    )
