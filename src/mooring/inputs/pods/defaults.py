"""What the API server fills in, and the QoS class of a pod, under the feature gates that decide both.

Source: API server v1.37.1, SetDefaults_Pod and, since PodLevelResourcesFixDefaulting,
DefaultPodLevelResources; spec: configuration.md section 6. The fix moved the pod-level part behind the
admission webhooks, where the kubelet does not apply it to static pods, and taught it to fill limits.
Huge pages of pods in v1.32 and v1.33: spec: releases.md section 8.
QoS class: kubelet v1.37.1, pkg/apis/core/v1/helper/qos; spec: configuration.md section 6.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import attrgetter

from mooring.engine.core.config import DEVICE_ALIGNMENT, MIXED_CPUS, SCALE_DOWN_DELAY, KubeletConfig, MooringConfig
from mooring.engine.core.pod import Container, ContainerKind, PodResources, QoS, ResourceList, is_supported
from mooring.engine.core.quantity import Quantity
from mooring.engine.core.release import EXTENSION_GATES, NEWEST, SWITCHES, Release
from mooring.engine.releases.gates import known_gates
from mooring.inputs.decoding.quantities import HUGE_PAGES
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
        older, known = release.rules, known_gates(release.name)

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
    decides = resources is not None and gates.pod_level_resources
    if resources is not None and decides and gates.qos_fix:
        # Without the fix an empty ``resources: {}`` decides as well, and makes the pod BestEffort.
        decides = any(is_supported(name) for part in (resources.requests, resources.limits) for name in part)
    if resources is not None and decides:
        return _class_of(resources.requests, resources.limits)
    found: QoS | None = None
    for container in containers:
        own = _class_of(container.requests, container.limits)
        if own is QoS.BURSTABLE or (found is not None and own is not found):
            return QoS.BURSTABLE
        found = own
    return found or QoS.BEST_EFFORT


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
