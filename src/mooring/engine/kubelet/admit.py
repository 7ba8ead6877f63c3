"""The one way to ask a kubelet about a pod: its managers, the node resources check, and the start of containers.

Callers differ in two things only, and say so with an argument (:class:`AdmitMode`): whether what a refused pod had been
given stays, and whether the node resources check is made. A kubelet that would crash and an admission that would never
end are values.

Source: kubelet v1.37.1, pkg/kubelet/allocation/allocation_manager.go (canAdmitPod: the managers' handlers, then the
predicate handler); spec: metrics.md section 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum

from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import Observer, Placement, Rejection
from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.core.pod import Pod
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.node import Decision
from mooring.engine.node.facts import PodNotSupported
from mooring.engine.node.resources import NO_DEVICES, check_amounts, pod_requests
from mooring.engine.node.settings import Settings
from mooring.lazy import dataclass, replace

POD_LEVEL_NOT_SUPPORTED = "PodLevelResourcesNotSupported"
"""The kubelet's reason for a pod with resources of its own while the gate PodLevelResources is off."""


class AdmitMode(Enum):
    """How a kubelet is asked about a pod."""

    ADMISSION = "admission"
    """As the kubelet asks itself. What a refused pod had been given stays until the managers are asked again."""
    TRIAL = "trial"
    """The same, but a refused pod leaves no trace: whether another pod fits can be asked again and again."""
    MANAGERS = "managers"
    """The managers alone, as the recordings and the node agent ask; what a refused pod had been given stays."""


@dataclass(frozen=True, slots=True)
class AdmitResult:
    """The answer about one pod."""

    pod: Pod
    decision: Decision
    decided: Kubelet
    """The kubelet when the managers had decided: before the node resources check, and before containers started."""
    out_of: Rejection | None = None
    """Set when the managers admitted the pod and the node resources check refused it."""
    crash: str = ""
    """Why the kubelet would crash; empty when it does not."""

    @property
    def admitted(self) -> bool:
        """Tell whether the pod was admitted."""
        return self.decision.admitted

    @property
    def never_returns(self) -> bool:
        """Tell whether the kubelet crashes or never returns, so that no other pod can be asked about."""
        return bool(self.crash) or self.decision.endless is not None


def admit(
    kubelet: Kubelet,
    pod: Pod,
    mode: AdmitMode = AdmitMode.ADMISSION,
    *,
    running: bool = False,
    observer: Observer | None = None,
) -> tuple[Kubelet, AdmitResult]:
    """Ask a kubelet about a pod; the containers of an admitted one start.

    Args:
        kubelet: before.
        pod: may be active already, where it was adopted from the state files.
        mode: what of a refused pod stays, and what is checked.
        running: whether the pod ran when the kubelet started, so that it is admitted again and its containers run.
        observer: receives what the engine found.
    """
    unsupported = None if mode is AdmitMode.MANAGERS else why_unsupported(pod, kubelet.settings)
    if unsupported is not None:
        refused_at_once = replace(_nothing_decided(kubelet, pod), rejection=unsupported)
        if observer is not None:
            observer(PodNotSupported(pod.uid, unsupported.reason, unsupported.message))
        is_kept = mode is AdmitMode.TRIAL or pod.uid not in kubelet.node.active
        after = kubelet if is_kept else replace(kubelet, node=kubelet.node.withdraw(pod.uid))
        return after, AdmitResult(pod, refused_at_once, after)
    result = decide(kubelet, pod, running=running, observer=observer)
    after = result.decided
    if result.never_returns:
        return after, result
    if not result.admitted:
        return (kubelet if mode is AdmitMode.TRIAL else _without_requests(after, kubelet, pod)), result
    if mode is AdmitMode.MANAGERS:
        return (after if running else after.start_containers(pod.uid, observer)), result
    used, wanted = without(kubelet.used, kubelet.node.active.get(pod.uid)), pod_requests(pod)
    devices = after.node.providers.devices.capacity(wanted)
    refused = out_of(wanted, used, len(after.node.active) - 1, after.settings, devices)
    if refused is not None:
        result = AdmitResult(pod, replace(result.decision, admitted=False, rejection=refused), after, refused)
        if mode is AdmitMode.TRIAL:
            return kubelet, result
        return replace(after, node=after.node.withdraw(pod.uid, refused, observer)).counting(used), result
    if not running:
        after = after.start_containers(pod.uid, observer)
    return after.counting(added(used, wanted)), result


def decide(kubelet: Kubelet, pod: Pod, *, running: bool = False, observer: Observer | None = None) -> AdmitResult:
    """Ask the managers of a kubelet about a pod, without starting its containers.

    Args:
        kubelet: before.
        pod: the pod.
        running: whether the pod ran when the kubelet started.
        observer: receives what the engine found.
    """
    try:
        if running:
            after, readmission = kubelet.readmit([pod], observer)
            return AdmitResult(pod, readmission.decisions[0], after)
        after, decision = kubelet.decide(pod, observer)
    except KubeletCrashError as error:
        return AdmitResult(pod, _nothing_decided(kubelet, pod), kubelet, crash=str(error))
    return AdmitResult(pod, decision, after)


def readmit(
    kubelet: Kubelet, pods: Iterable[Pod], mode: AdmitMode = AdmitMode.ADMISSION, observer: Observer | None = None
) -> tuple[Kubelet, tuple[AdmitResult, ...]]:
    """Ask a kubelet that has just started about the pods that run already, one after another.

    Pods after one from which the kubelet does not return are not asked about.
    """
    results: list[AdmitResult] = []
    for pod in pods:
        kubelet, result = admit(kubelet, pod, mode, running=True, observer=observer)
        results.append(result)
        if result.never_returns:
            break
    return kubelet, tuple(results)


def why_unsupported(pod: Pod, settings: Settings) -> Rejection | None:
    """Return why the kubelet rejects a pod without a question to its managers; None when it does not.

    Up to v1.33 it asks them about every pod (rule pod-level-pods-admitted-without-gate; spec: releases.md section 10).
    """
    is_supported = settings.gates["PodLevelResources"] or settings.release.rules.pod_level_pods_admitted_without_gate
    if is_supported or not pod.is_pod_level:
        return None
    return Rejection(POD_LEVEL_NOT_SUPPORTED, "PodLevelResources feature gate is disabled")


def out_of(
    wanted: Mapping[str, int],
    used: Mapping[str, int],
    running: int,
    settings: Settings,
    devices: Mapping[str, int] = NO_DEVICES,
) -> Rejection | None:
    """Make the node resources check; None when the pod fits.

    Args:
        wanted: what the pod requests.
        used: what the pods that are admitted already request together.
        running: how many pods these are.
        settings: of the node.
        devices: how many devices it has of the resources that the pod requests.
    """
    return check_amounts(wanted, used, running, settings.reservation, settings.max_pods, devices)


def added(used: Mapping[str, int], wanted: Mapping[str, int]) -> dict[str, int]:
    """Return what is used with one more pod.

    >>> added({"cpu": 2000, "memory": 7}, {"cpu": 500})
    {'cpu': 2500, 'memory': 7}
    """
    return {name: used.get(name, 0) + wanted.get(name, 0) for name in {**used, **wanted}}


def without(used: Mapping[str, int], pod: Pod | None) -> Mapping[str, int]:
    """Return what is used without one of the pods."""
    if pod is None:
        return used
    wanted = pod_requests(pod)
    return {name: amount - wanted.get(name, 0) for name, amount in used.items()}


def _without_requests(after: Kubelet, before: Kubelet, pod: Pod) -> Kubelet:
    """Return a kubelet that refused a pod with the sums of before, where they were known."""
    if before.requests is None or before.requests.active is not before.node.active:
        return after
    # A pod that had been adopted from the state files is active no more.
    gone = before.node.active.get(pod.uid) if pod.uid not in after.node.active else None
    return after.counting(without(before.requests.amounts, gone))


def _nothing_decided(kubelet: Kubelet, pod: Pod) -> Decision:
    return Decision(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        admitted=False,
        rejection=None,
        endless=None,
        containers={},
        pod=Placement(),
        affinity={},
        shared_pool=CPUSet(kubelet.node.cpu.default),
    )
