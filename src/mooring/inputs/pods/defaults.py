"""What the API server fills in, and the QoS class of a pod, under the feature gates that decide both.

Source: API server v1.37.1, SetDefaults_Pod and, since PodLevelResourcesFixDefaulting,
DefaultPodLevelResources; spec: configuration.md section 6. The fix moved the pod-level part behind the
admission webhooks, where the kubelet does not apply it to static pods, and taught it to fill limits.
Huge pages of pods in v1.32 and v1.33: spec: releases.md section 8.
QoS class: kubelet v1.37.1, pkg/apis/core/v1/helper/qos; spec: configuration.md section 6.

LimitRange: what the API server's LimitRanger adds to the containers of a new pod, and the pods that it refuses.
Source: API server v1.37.1, plugin/pkg/admission/limitranger/admission.go (PodMutateLimitFunc, PodValidateLimitFunc)
and SetDefaults_LimitRangeItem. Limits have become requests before (SetDefaults_Pod). The API server takes several
LimitRanges of a namespace, and the resources of one, in random order; here they are taken as the files have them, and
resources by name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, TypeAlias

from mooring.engine.core.config import DEVICE_ALIGNMENT, MIXED_CPUS, SCALE_DOWN_DELAY, KubeletConfig, MooringConfig
from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Container, ContainerKind, Pod, PodResources, QoS, ResourceList, is_supported
from mooring.engine.core.quantity import Quantity
from mooring.engine.core.release import EXTENSION_GATES, NEWEST, SWITCHES, Release
from mooring.engine.releases.gates import known_gates
from mooring.inputs.decoding.documents import located
from mooring.inputs.decoding.fields import Document, as_mapping, list_at, mapping_at, text_at, within
from mooring.inputs.decoding.quantities import HUGE_PAGES, resource_list
from mooring.inputs.pods.claims import objects_of
from mooring.lazy import dataclass


def with_pod_defaults(given: PodResources, containers: Sequence[Container], gates: PodGates) -> PodResources:
    """Return pod-level resources with the API server's defaults; the containers must have theirs already."""
    if gates.defaulting_fix and not gates.api_server:
        return given
    requests, limits = dict(given.requests), dict(given.limits)
    if gates.pod_level_resources and (requests or limits):
        # Rule huge-page-requests-of-containers, v1.32 (spec: releases.md section 8).
        if not gates.huge_page_requests_of_containers:
            named = {} if gates.huge_page_limits_beside_requests else requests
            for name, amount in total(containers, _limits).items():
                if name.startswith(HUGE_PAGES) and name not in named:
                    limits.setdefault(name, amount)
        if gates.defaulting_fix or limits:
            of_containers = total(containers, _requests)
            pages = [
                name for name in of_containers if gates.huge_page_requests_of_containers and name.startswith(HUGE_PAGES)
            ]
            for name in ("cpu", "memory", *pages):
                if name in of_containers:
                    requests.setdefault(name, of_containers[name])
            # Huge pages cannot be promised twice: their request is always the limit.
            for name, amount in limits.items():
                if is_supported(name):
                    requests.setdefault(name, amount)
        if gates.defaulting_fix:
            _fill_limits(requests, limits, containers)
    return PodResources(requests, limits, given)


def total_requests(containers: Sequence[Container]) -> dict[str, Quantity]:
    """Return what the containers request together at the moment when they request most."""
    return total(containers, _requests)


def total_limits(containers: Sequence[Container]) -> dict[str, Quantity]:
    """Return the limits of the containers together, counted like requests."""
    return total(containers, _limits)


def total(containers: Sequence[Container], of: Callable[[Container], ResourceList]) -> dict[str, Quantity]:
    """Return max(apps + sidecars, each regular init container + the sidecars before it), as KEP-753 counts."""
    running: dict[str, Quantity] = {}
    sidecars: dict[str, Quantity] = {}
    peak: dict[str, Quantity] = {}
    for container in containers:
        own = of(container)
        if container.kind is not ContainerKind.INIT:
            _add(running, own)
        if container.kind is ContainerKind.SIDECAR:
            _add(sidecars, own)
            _raise(peak, sidecars)
        elif container.kind is ContainerKind.INIT:
            together = dict(own)
            _add(together, sidecars)
            _raise(peak, together)
    _raise(running, peak)
    return running


_requests: Callable[[Container], ResourceList] = attrgetter("requests")
_limits: Callable[[Container], ResourceList] = attrgetter("limits")


def _add(into: dict[str, Quantity], amounts: ResourceList) -> None:
    for name, amount in amounts.items():
        into[name] = into[name] + amount if name in into else amount


def _raise(into: dict[str, Quantity], amounts: Mapping[str, Quantity]) -> None:
    for name, amount in amounts.items():
        if name not in into or amount > into[name]:
            into[name] = amount


def _fill_limits(
    requests: Mapping[str, Quantity], limits: dict[str, Quantity], containers: Sequence[Container]
) -> None:
    of_containers = total(containers, _limits)
    for name, request in requests.items():
        everywhere = is_supported(name) and all(name in container.limits for container in containers)
        if everywhere and name not in limits and name in of_containers:
            limits[name] = max(of_containers[name], request)


DELAY_GATE = EXTENSION_GATES[SCALE_DOWN_DELAY][0]
POD_LEVEL_RESIZE = "InPlacePodLevelResourcesVerticalScaling"
QOS_FIX = "PodLevelResourcesFixKubeletQOSClass"


@dataclass(frozen=True, slots=True)
class PodGates:
    """Gates that change defaults and QoS class of a pod; the defaults are those of v1.37.1."""

    pod_level_resources: bool = True
    """PodLevelResources: ``spec.resources`` counts at all."""
    qos_fix: bool = True
    """PodLevelResourcesFixKubeletQOSClass: an empty ``spec.resources`` does not decide the QoS class."""
    defaulting_fix: bool = True
    """PodLevelResourcesFixDefaulting: the API server fills pod-level limits too, and fills requests without a
    limit."""
    api_server: bool = True
    """Whether pods come through the API server, which completes pod-level resources; the kubelet does not, when it
    reads a static pod itself (kubelet v1.37.1, recordings corner-amounts)."""
    knows_delay: bool = False
    """Extension scale-down-delay: there is a field ``spec.scaleDownGracePeriodSeconds`` (KEP-6122)."""
    delay: bool = False
    """InPlacePodVerticalScalingExclusiveCPUsScaleDownDelay: new pods may have that field."""
    knows_mixing: bool = False
    """Extension mixed-cpus: there are annotations for containers that use the shared pool besides their own CPUs."""
    knows_device_alignment: bool = False
    """Extension device-alignment: there is an annotation that says how CPUs and memory follow devices."""
    knows_pod_resources: bool = True
    """There is a field ``spec.resources``; up to v1.31 it is dropped (rule pod-resources-unknown)."""
    huge_page_requests_of_containers: bool = False
    """Pod-level requests of huge pages default to those of the containers, limits to nothing: v1.32 (rule of this
    name)."""
    huge_page_limits_beside_requests: bool = False
    """Pod-level limits of huge pages get their default even beside requests: v1.33 (rule of this name)."""
    amounts_wrap: bool = True
    """Amounts beyond 64 bits wrap round, up to v1.37 (rule huge-amounts-wrap)."""
    reads_statuses: bool = False
    """Statuses of containers may decide their size, up to v1.34 (rule status-resources-decide-size)."""
    resizes_pod_level_pods: bool = True
    """InPlacePodLevelResourcesVerticalScaling: pods with pod-level resources can be resized; unknown up to v1.34, where
    none can (spec: releases.md section 7, rule 9)."""

    @staticmethod
    def of_node(kubelet: KubeletConfig, mooring: MooringConfig) -> PodGates:
        """Return the gates of a node with these configurations."""
        return PodGates.of(kubelet.feature_gates, mooring.extensions, mooring.release)

    @staticmethod
    def of(feature_gates: Mapping[str, bool], extensions: Collection[str] = (), release: Release = NEWEST) -> PodGates:
        """Return the gates as ``featureGates`` of a configuration sets them, and the extensions of Mooring's own.

        Args:
            feature_gates: of the configuration.
            extensions: those that are on.
            release: of the kubelet; the API server's defaults are taken to be of the same release.

        >>> PodGates.of({"PodLevelResources": False}).pod_level_resources
        False
        """
        older, known = release.rules, known_gates(release.name).gates

        def value(name: str) -> bool:
            gate = known.get(name)
            if gate is None:
                return False
            return feature_gates.get(name, feature_gates.get(SWITCHES.get(gate.stage, ""), gate.default))

        return PodGates(
            pod_level_resources=value("PodLevelResources"),
            # Rule empty-pod-resources-decide-qos, up to v1.36, which has no such gate (spec: releases.md section 5).
            qos_fix=not older.empty_pod_resources_decide_qos and (QOS_FIX not in known or value(QOS_FIX)),
            defaulting_fix=value("PodLevelResourcesFixDefaulting"),
            knows_delay=SCALE_DOWN_DELAY in extensions,
            delay=SCALE_DOWN_DELAY in extensions
            and feature_gates.get(DELAY_GATE, feature_gates.get("AllAlpha", False)),
            knows_mixing=MIXED_CPUS in extensions,
            knows_device_alignment=DEVICE_ALIGNMENT in extensions,
            knows_pod_resources=not older.pod_resources_unknown,
            huge_page_requests_of_containers=older.huge_page_requests_of_containers,
            huge_page_limits_beside_requests=older.huge_page_limits_beside_requests,
            amounts_wrap=older.huge_amounts_wrap,
            reads_statuses=older.status_resources_decide_size and value("InPlacePodVerticalScaling"),
            resizes_pod_level_pods=value(POD_LEVEL_RESIZE),
        )


_ZERO = Quantity.of_bytes(0)


def qos_of(containers: Iterable[Container], resources: PodResources | None, gates: PodGates) -> QoS:
    """Return the class that the kubelet computes when the pod's status does not tell it.

    >>> qos_of([], None, PodGates())
    <QoS.BEST_EFFORT: 'BestEffort'>
    """
    if resources is not None and _decides(resources, gates):
        return _class_of(resources.requests, resources.limits)
    found: QoS | None = None
    for container in containers:
        own = _class_of(container.requests, container.limits)
        if own is QoS.BURSTABLE or (found is not None and own is not found):
            return QoS.BURSTABLE
        found = own
    return found or QoS.BEST_EFFORT


def _decides(resources: PodResources, gates: PodGates) -> bool:
    # Without the fix an empty ``resources: {}`` decides as well, and makes the pod BestEffort.
    if not gates.pod_level_resources or not gates.qos_fix:
        return gates.pod_level_resources
    return any(is_supported(name) for part in (resources.requests, resources.limits) for name in part)


def _class_of(requests: ResourceList, limits: ResourceList) -> QoS:
    if not requests and not limits:
        return QoS.BEST_EFFORT
    zeros = 0
    for name in ("cpu", "memory"):
        request = requests.get(name, _ZERO).nano
        if request != limits.get(name, _ZERO).nano:
            return QoS.BURSTABLE
        zeros += not request
    # One of the two set, the other not: neither class fits.
    return (QoS.GUARANTEED, QoS.BURSTABLE, QoS.BEST_EFFORT)[zeros]


LIMIT_RANGE: Final = "LimitRange"
_CONTAINER: Final = "Container"
_LISTS: Final = (("containers", "container"), ("initContainers", "init container"))
"""Field of a pod's spec -> what the LimitRanger calls the containers in it, in its order."""


LimitItem: TypeAlias = tuple[str, ResourceList, ResourceList, ResourceList]
"""One item of ``spec.limits``: ``Container`` or ``Pod`` (others do not concern pods), ``min``, ``max``,
``maxLimitRequestRatio``."""


@dataclass(frozen=True, slots=True)
class LimitRange:
    """One LimitRange."""

    name: str
    namespace: str
    source: str
    items: tuple[LimitItem, ...]
    requests: Mapping[str, str]
    """What a container gets that requests nothing of a resource."""
    limits: Mapping[str, str]


def limit_ranges(documents: Iterable[Document]) -> dict[str, list[LimitRange]]:
    """Return the LimitRanges of documents by namespace.

    Raises:
        InputError: one of them cannot be understood.
    """
    found: dict[str, list[LimitRange]] = {}
    for document in documents:
        with located(document):
            for place, content in objects_of(document.content, {LIMIT_RANGE}):
                with within(place):
                    one = _limit_range(content, document.source)
                found.setdefault(one.namespace, []).append(one)
    return found


def _limit_range(content: Mapping[str, Any], source: str) -> LimitRange:
    metadata = mapping_at(content, "metadata")
    items = []
    requests: dict[str, str] = {}
    limits: dict[str, str] = {}
    for index, given in enumerate(list_at(mapping_at(content, "spec"), "limits")):
        with within(f"spec.limits[{index}]"):
            item = as_mapping(given)
            kind, least, most = text_at(item, "type"), resource_list(item, "min"), resource_list(item, "max")
            items.append((kind, least, most, resource_list(item, "maxLimitRequestRatio")))
            if kind == _CONTAINER:
                default = {**most, **resource_list(item, "default")}
                asked = {**least, **default, **resource_list(item, "defaultRequest")}
                limits.update((name, str(amount)) for name, amount in default.items())
                requests.update((name, str(amount)) for name, amount in asked.items())
    namespace = text_at(metadata, "namespace") or "default"
    return LimitRange(text_at(metadata, "name"), namespace, source, tuple(items), requests, limits)


def with_defaults(spec: Mapping[str, Any], one: LimitRange) -> tuple[dict[str, Any], str]:
    """Return a pod's spec with the defaults of a LimitRange, and what the API server's annotation says of them."""
    completed, said = dict(spec), []
    for field, called in _LISTS:
        if not isinstance(spec.get(field), list):
            continue
        completed[field] = containers = list(spec[field])
        for index, container in enumerate(containers):
            resources = container.get("resources") or {} if isinstance(container, dict) else None
            if not isinstance(resources, dict):
                continue
            given = {part: resources.get(part) or {} for part in ("requests", "limits")}
            if not all(isinstance(amounts, dict) for amounts in given.values()):
                continue
            given["requests"] = {**given["limits"], **given["requests"]}
            for part, defaults in (("requests", one.requests), ("limits", one.limits)):
                added = sorted(defaults.keys() - given[part].keys())
                if added:
                    given[part] = {**defaults, **given[part]}
                    said.append(f"{', '.join(added)} {part[:-1]} for {called} {container.get('name')}")
            containers[index] = {**container, "resources": {**resources, **given}}
    return completed, "; ".join(said)


def check_limits(pod: Pod, ranges: Iterable[LimitRange]) -> None:
    """Check a new pod against the LimitRanges of its namespace.

    Raises:
        InputError: the API server would refuse it, with its words.
    """
    for one in ranges:
        wrong = list(dict.fromkeys(message for item in one.items for message in _violations(pod, item)))
        if wrong:
            words = wrong[0] if len(wrong) == 1 else f"[{', '.join(wrong)}]"
            remedy = f"change the pod, or the LimitRange {one.namespace}/{one.name} ({one.source})"
            raise InputError(f'the API server refuses it: pods "{pod.name}" is forbidden: {words}', remedy=remedy)


def _violations(pod: Pod, item: LimitItem) -> Iterator[str]:
    if item[0] == _CONTAINER:
        # Apps are checked before init containers.
        for container in sorted(pod.containers, key=lambda one: one.kind.value != "app"):
            yield from _outside(item, container.requests, container.limits)
    elif item[0] == "Pod":
        requests, limits = total_requests(pod.containers), total_limits(pod.containers)
        for total, whole in ((requests, "requests"), (limits, "limits")):
            given: ResourceList = getattr(pod.resources, whole) if pod.resources else {}
            total.update((name, amount) for name, amount in given.items() if is_supported(name))
        yield from _outside(item, requests, limits)


def _outside(item: LimitItem, requests: ResourceList, limits: ResourceList) -> Iterator[str]:
    kind, minimum, maximum, ratios = item
    for name, least in sorted(minimum.items()):
        begin = f"minimum {name} usage per {kind} is {least}"
        if name not in requests:
            yield f"{begin}. No request is specified"
        elif requests[name] < least:
            yield f"{begin}, but request is {requests[name]}"
        elif name in limits and limits[name] < least:
            yield f"{begin}, but limit is {limits[name]}"
    for name, most in sorted(maximum.items()):
        begin = f"maximum {name} usage per {kind} is {most}"
        if name not in limits:
            yield f"{begin}. No limit is specified"
        elif limits[name] > most:
            yield f"{begin}, but limit is {limits[name]}"
        elif name in requests and requests[name] > most:
            yield f"{begin}, but request is {requests[name]}"
    for name, most in sorted(ratios.items()):
        begin = f"{name} max limit to request ratio per {kind} is {most}"
        request, limit = requests.get(name, _ZERO), limits.get(name, _ZERO)
        if request.is_zero or limit.is_zero:
            what = "request" if request.is_zero else "limit"
            yield f"{begin}, but no {what} is specified or {what} is 0"
        elif limit.nano * 10**9 > most.nano * request.nano:
            yield f"{begin}, but provided ratio is {limit.nano / request.nano:f}"
