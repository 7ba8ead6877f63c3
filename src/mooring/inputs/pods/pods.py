"""v1 Pod to a value, as the kubelet sees it: with the API server's defaults, and with its QoS class.

This is the hot path of replaying thousands of pods: one pass over the object, and nothing is built for
messages unless a message is needed. Fields that the managers do not read are not checked.

Steps that change a pod's resources or the machine's CPUs (:mod:`mooring.engine.kubelet.events`): amounts that a resize
does not name stay, as with ``kubectl patch --subresource resize``. CPUs go offline and come online with the extension
cpu-hotplug.

Source: API server v1.37.1, ValidatePodResize; KEP-1287; spec: releases.md section 7.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from mooring.engine.core.bits import CPUMask
from mooring.engine.core.config import CPU_HOTPLUG, MooringConfig
from mooring.engine.core.cpuset import CPUSet, CPUSetSyntaxError
from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import NO_RESOURCES, Container, ContainerKind, Pod, PodResources, QoS, ResourceList
from mooring.engine.extensions.device_alignment import check_annotation as check_alignment
from mooring.engine.kubelet.events import Amounts, Offline, Online, Resizing
from mooring.engine.node.providers import check_mixing
from mooring.inputs.decoding.fields import as_mapping, mapping_at, name_at, text_at, texts_at, within, wrong_kind
from mooring.inputs.decoding.quantities import resource_list, saturated
from mooring.inputs.pods import pod_fields
from mooring.inputs.pods.claims import claims_of_pod, with_claims
from mooring.inputs.pods.defaults import POD_LEVEL_RESIZE, PodGates, qos_of, with_pod_defaults
from mooring.lazy import replace

DEFAULT_GATES = PodGates()
"""Gates as v1.37.1 has them by default."""
MIRROR = "kubernetes.io/config.mirror"
"""Annotation of the API's copy of a static pod. The kubelet's own uid of the pod is its value, not
``metadata.uid``."""
_QOS = {qos.value: qos for qos in QoS}
_INIT_KINDS = {
    "": ContainerKind.INIT,
    "Always": ContainerKind.SIDECAR,
    "OnFailure": ContainerKind.INIT,
    "Never": ContainerKind.INIT,
}
"""Restart policy of an init container -> its kind; the API server knows no other."""


def pod_from_object(obj: Mapping[str, Any], *, source: str, gates: PodGates = DEFAULT_GATES) -> Pod:
    """Return the pod that a v1 Pod describes.

    A pod without uid, such as one in a file, gets ``NAMESPACE_NAME``; one without name gets its
    ``generateName`` and ``0``. A pod that carries ``status.qosClass`` has been through the API server: its
    pod-level resources are taken as they are.

    Args:
        obj: the object, with ``metadata`` and ``spec``.
        source: where it comes from, for messages.
        gates: the feature gates under which it was created.

    Raises:
        InputError: something the API server would refuse, or that is of the wrong type.

    >>> limits = {"cpu": 2, "memory": "1Gi"}
    >>> spec = {"containers": [{"name": "app", "resources": {"limits": limits}}]}
    >>> pod = pod_from_object({"metadata": {"name": "web"}, "spec": spec}, source="example")
    >>> pod.uid, pod.qos.value, str(pod.containers[0].requests["memory"])
    ('default_web', 'Guaranteed', '1Gi')
    """
    with within(source=source):
        metadata = mapping_at(obj, "metadata")
        spec = obj.get("spec")
        if not isinstance(spec, dict):
            raise wrong_kind(spec, "a mapping", "spec")
        containers = _containers(spec, "initContainers", is_init=True)
        apps = _containers(spec, "containers", is_init=False)
        if not apps:
            raise InputError("must not be empty", field="spec.containers", remedy="a pod has at least one container")
        containers += apps
        if len(containers) > 1:
            pod_fields.check_names([container.name for container in containers])
        if gates.reads_statuses:
            containers = pod_fields.with_statuses(obj, containers)
        containers = with_claims(obj, spec, containers)
        claims, unmade = claims_of_pod(obj, spec)
        status_qos = _status_qos(obj)
        resources = None
        if spec.get("resources") is not None and gates.knows_pod_resources:
            stored = status_qos is not None
            with within("spec.resources"):
                given = as_mapping(spec["resources"])
                resources = PodResources(resource_list(given, "requests"), resource_list(given, "limits"))
                if not stored:
                    resources = with_pod_defaults(resources, containers, gates)
                pod_fields.check_pod_resources(resources)
        if not gates.amounts_wrap:
            containers = [
                replace(one, requests=saturated(one.requests), limits=saturated(one.limits)) for one in containers
            ]
            if resources is not None:
                amounts = saturated(resources.requests), saturated(resources.limits)
                resources = PodResources(*amounts, resources.given)
        name, namespace, uid, annotations = identity_of(metadata)
        if gates.knows_mixing:
            check_mixing(annotations, [container.name for container in containers])
        if gates.knows_device_alignment:
            check_alignment(annotations)
        return Pod(
            uid=uid,
            name=name,
            namespace=namespace,
            containers=tuple(containers),
            qos=status_qos or qos_of(containers, resources, gates),
            resources=resources,
            overhead=_overhead(spec) if spec.get("overhead") else NO_RESOURCES,
            annotations=annotations,
            scale_down_grace=pod_fields.scale_down_grace(spec, annotations, gates, stored=status_qos is not None),
            priority=pod_fields.priority_of(spec),
            claims=claims,
            unmade_claims=unmade,
        )


def identity_of(metadata: Mapping[str, Any]) -> tuple[str, str, str, Mapping[str, str]]:
    """Return name, namespace, uid and annotations of a pod.

    Raises:
        InputError: one of them is of the wrong type, or there is no name.
    """
    with within("metadata"):
        generated = text_at(metadata, "generateName")
        name = text_at(metadata, "name") or (f"{generated}0" if generated else name_at(metadata, "name"))
        namespace = text_at(metadata, "namespace") or "default"
        uid = text_at(metadata, "uid") or f"{namespace}_{name}"
        annotations = texts_at(metadata, "annotations") if metadata.get("annotations") else {}
    return name, namespace, annotations.get(MIRROR, uid), annotations


def _status_qos(obj: Mapping[str, Any]) -> QoS | None:
    status = obj.get("status")
    if not isinstance(status, dict):
        return None
    with within("status"):
        text = text_at(status, "qosClass")
    if text and text not in _QOS:
        raise InputError(f"{text!r:.60} is not a QoS class", field="status.qosClass", remedy="remove it")
    return _QOS.get(text)


def _containers(spec: Mapping[str, Any], field: str, *, is_init: bool) -> list[Container]:
    items = spec.get(field)
    if items is None:
        return []
    if not isinstance(items, list):
        raise wrong_kind(items, "a list", f"spec.{field}")
    containers = []
    for index, item in enumerate(items):
        with within(f"spec.{field}[{index}]"):
            fields = as_mapping(item)
            name = name_at(fields, "name")
            lists = tuple(_core_lists(fields)) if _NAMING.intersection(fields) else ()
            requests, limits = dict(NO_RESOURCES), dict(NO_RESOURCES)
            if fields.get("resources") is not None:
                with within("resources"):
                    resources = as_mapping(fields["resources"])
                    requests, limits = resource_list(resources, "requests"), resource_list(resources, "limits")
                    for resource, limit in limits.items():
                        requests.setdefault(resource, limit)
                    pod_fields.check_resources(requests, limits)
            policy = text_at(fields, "restartPolicy") if is_init else ""
            if is_init and policy not in _INIT_KINDS:
                problem, remedy = (
                    f"{policy!r:.60} is not a restart policy",
                    "write Always for a sidecar, or OnFailure or Never",
                )
                raise InputError(problem, field="restartPolicy", remedy=remedy)
            kind = _INIT_KINDS[policy] if is_init else ContainerKind.APP
            containers.append(Container(name, kind, requests, limits, core_lists=lists))
    return containers


def _overhead(spec: Mapping[str, Any]) -> ResourceList:
    with within("spec"):
        overhead = resource_list(spec, "overhead")
    for name, amount in overhead.items():
        if amount.nano < 0:
            raise InputError(f"must not be negative, but is {amount}", field=f"spec.overhead.{name}")
    return overhead


_NAMING: Final = frozenset({"command", "args", "env"})
_LIST: Final = r"[ =]*['\"]?(?P<cpus>[\d(][\d(),@-]*)(?=['\"\s;]|$)"
_CORE_LISTS: Final = tuple(
    rf"(?:^|\s)(?:{form}){_LIST}"
    for form in (
        # A single number behind -l is a port or a level as often as a core.
        r"-l(?=[ =]*['\"]?[\d(][\d()@]*[,-])",
        r"--(?:lcores?|cpuset(?:-cpus)?|cpu-list|physcpubind|core-list)",
        r"taskset(?:\s+-\w+)*?\s+-\w*c",
        r"numactl\s(?:\S+\s+)*?-C",
        r"corelist-workers",
    )
)
"""How programs name CPUs: DPDK (EAL ``-l``, ``--lcores``), Seastar, taskset, numactl, VPP."""
_MASK: Final = r"(?:^|\s)(?:taskset|-c|--core-?mask)[ =]+0x(?P<mask>[0-9a-fA-F]{1,64})(?=\s|$)"
_AFFINITY: Final = {"GOMP_CPU_AFFINITY": r"^(?P<cpus>[\d, -]+)$", "KMP_AFFINITY": r"proclist=\[?(?P<cpus>[\d,-]+)"}
"""Variables of OpenMP's runtimes, and where they name CPUs."""
_MOST_TEXT: Final = 1 << 14


def _core_lists(fields: Mapping[str, Any]) -> Iterator[tuple[str, CPUSet]]:
    """Yield the CPUs that a container's command, arguments and environment name, with the words that name them."""
    # Lists that are none are left to the API server.
    command, arguments, given = (
        value if isinstance(value := fields.get(part), list) else [] for part in ("command", "args", "env")
    )
    pairs = [one for one in given if isinstance(one, Mapping)]
    env = {str(one.get("name")): str(one["value"]) for one in pairs if one.get("value") is not None}
    words = [word for word in (*command, *arguments) if isinstance(word, str)]
    if not (words or env):
        return
    # The kubelet replaces $(NAME), a shell $NAME and ${NAME}.
    text = re.sub(r"\$[({]?(\w+)[)}]?", lambda one: env.get(one[1], one[0]), " ".join(words)[:_MOST_TEXT])
    found = [(one[0].strip(), one["cpus"]) for form in _CORE_LISTS for one in re.finditer(form, text)]
    for name, form in _AFFINITY.items():
        value = re.search(form, env[name][:_MOST_TEXT]) if name in env else None
        found += [(f"{name}={env[name]}", ",".join(value["cpus"].split()))] if value else []
    for written, listed in found:
        # Of DPDK's LCORES@CPUS the part behind the sign names CPUs.
        behind = re.findall(r"@\(?([\d,-]+?)(?=\)|,\(|,\d+(?:-\d+)?@|$)", listed) if "@" in listed else [listed]
        try:
            yield written, CPUSet.parse(",".join(behind).replace("(", "").replace(")", "").strip(","))
        except CPUSetSyntaxError:
            continue
    for mask in re.finditer(_MASK, text):
        yield mask[0].strip(), CPUSet(CPUMask(int(mask["mask"], 16)))


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
    containers = list(pod.containers)
    for at, one in enumerate(containers):
        if amounts := asked.containers.get(one.name):
            requests, limits = {**one.requests, **amounts.requests}, {**one.limits, **amounts.limits}
            with within(f"containers.{one.name}"):
                pod_fields.check_resources(requests, limits)
            containers[at] = replace(one, requests=requests, limits=limits)
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
            pod_fields.check_pod_resources(resources)
            pod_fields.check_containers_fit(resources, containers)
    if qos_of(containers, resources, gates) is not pod.qos:
        problem = f"the pod would not be {pod.qos.value} any more: a resize cannot change the QoS class"
        raise InputError(problem, field="containers", remedy="change requests and limits together")
    return replace(pod, containers=tuple(containers), resources=resources)


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
