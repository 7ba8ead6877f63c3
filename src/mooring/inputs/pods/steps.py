"""Reading steps that change a pod's resources or the machine's CPUs (:mod:`mooring.engine.kubelet.events`).

Amounts that a resize does not name stay, as with ``kubectl patch --subresource resize``. CPUs go offline and come
online with the extension cpu-hotplug.

Source: API server v1.37.1, ValidatePodResize; KEP-1287; spec: releases.md section 7.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mooring.engine.core.config import CPU_HOTPLUG, MooringConfig
from mooring.engine.core.cpuset import CPUSet, CPUSetSyntaxError
from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Container, Pod, PodResources, ResourceList
from mooring.engine.kubelet.events import Amounts, Offline, Online, Resizing
from mooring.inputs.decoding.fields import as_mapping, mapping_at, name_at, within
from mooring.inputs.decoding.quantities import resource_list
from mooring.inputs.pods.defaults import POD_LEVEL_RESIZE, PodGates, qos_of
from mooring.inputs.pods.pod_fields import check_containers_fit, check_pod_resources, check_resources
from mooring.inputs.pods.pods import MIRROR
from mooring.lazy import replace

RESIZABLE = frozenset({"cpu", "memory"})
"""Resources that can be resized in place."""


def resizing(content: Mapping[str, Any]) -> Resizing:
    """Read ``{"uid", "containers": {name: {"requests", "limits"}}, "resources"?}``.

    Raises:
        InputError: it is not valid.
    """
    containers = {
        name: _amounts(given, f"containers.{name}") for name, given in mapping_at(content, "containers").items()
    }
    resources = _amounts(content["resources"], "resources") if content.get("resources") is not None else None
    return Resizing(name_at(content, "uid"), containers, resources)


def _amounts(given: Any, place: str) -> Amounts:
    with within(place):
        fields = as_mapping(given)
        return Amounts(_resizable(fields, "requests"), _resizable(fields, "limits"))


def _resizable(fields: Mapping[str, Any], part: str) -> ResourceList:
    named = resource_list(fields, part)
    for name in sorted(named.keys() - RESIZABLE):
        raise InputError("cannot be resized", field=f"{part}.{name}", remedy="only cpu and memory can")
    return named


def resized_pod(pod: Pod, asked: Resizing, gates: PodGates) -> Pod:
    """Return a pod with the resources that are requested.

    Args:
        pod: as it is.
        asked: the change.
        gates: those of the pod's API server.

    Raises:
        InputError: something the API server refuses.
    """
    known = [one.name for one in pod.containers]
    for name in asked.containers:
        if name not in known:
            raise InputError("no such container", field=f"containers.{name}", remedy=f"they are {', '.join(known)}")
    containers = tuple(
        _resized(one, asked.containers[one.name]) if one.name in asked.containers else one for one in pod.containers
    )
    resources = pod.resources
    if asked.resources is not None:
        old, new = resources or PodResources(), asked.resources
        resources = PodResources({**old.requests, **new.requests}, {**old.limits, **new.limits})
    # The API server knows a static pod by its mirror.
    if MIRROR in pod.annotations:
        raise InputError("static pods cannot be resized", remedy="change the pod's manifest")
    if resources is not None and (resources.requests or resources.limits) and not gates.resizes_pod_level_pods:
        problem = f"pods with pod-level resources cannot be resized without {POD_LEVEL_RESIZE} (v1.35 and later)"
        raise InputError(problem, field="spec.resources", remedy="recreate the pod")
    if resources is not None:
        with within("spec.resources" if asked.resources is None else "resources"):
            check_pod_resources(resources)
            check_containers_fit(resources, containers)
    if qos_of(containers, resources, gates) is not pod.qos:
        problem = f"the pod would not be {pod.qos.value} any more: a resize cannot change the QoS class"
        raise InputError(problem, field="containers", remedy="change requests and limits together")
    return replace(pod, containers=containers, resources=resources)


def _resized(container: Container, asked: Amounts) -> Container:
    requests, limits = {**container.requests, **asked.requests}, {**container.limits, **asked.limits}
    with within(f"containers.{container.name}"):
        check_resources(requests, limits)
    return replace(container, requests=requests, limits=limits)


def hotplug_step(step: Mapping[str, Any], mooring: MooringConfig) -> Offline | Online | None:
    """Read ``{"offline": "3,7"}`` or ``{"online": "3,7"}``; None for another step.

    Raises:
        InputError: it is not valid, or the scenario does not name the extension.

    >>> hotplug_step({"offline": "2-3"}, MooringConfig(frozenset({"cpu-hotplug"})))
    Offline(cpus=CPUSet('2-3'))
    """
    for name, made in (("offline", Offline), ("online", Online)):
        if name in step:
            cpus = cpu_list(name_at(step, name), name)
            if CPU_HOTPLUG not in mooring.extensions:
                remedy = f"write mooring: {{extensions: [{CPU_HOTPLUG}]}}"
                raise InputError(f"needs the extension {CPU_HOTPLUG}", field=name, remedy=remedy)
            return made(cpus)
    return None


def cpu_list(text: str, field: str) -> CPUSet:
    """Return a list of CPUs, at least one.

    Raises:
        InputError: it is no list.
    """
    try:
        cpus = CPUSet.parse(text)
    except CPUSetSyntaxError:
        # Its message is the kubelet's, which is that of a Go library.
        raise InputError(f"{text!r:.60} is not a list of CPUs", field=field, remedy="write for example 2-3,7") from None
    if not cpus:
        raise InputError("names no CPU", field=field, remedy="write for example 2-3,7")
    return cpus
