"""How the CPUs of a pod-level pod are divided among its containers, and whether those that share would have any.

Source: kubelet v1.37.1, cpumanager policy_static.go (validatePodScopeResources, AllocatePod), KEP-5526; spec:
pod-level.md sections 3 and 4.
"""

from __future__ import annotations

from collections.abc import Mapping

from mooring.engine.core.bits import CPUMask
from mooring.engine.core.decision import Endless
from mooring.engine.core.gotext import int64
from mooring.engine.core.observer import Observer
from mooring.engine.core.pod import Container, ContainerKind, Pod, PodLevelGates
from mooring.engine.cpumanager.facts import CPUPinningRequested, PodShareCut, TakeBegun
from mooring.engine.cpumanager.options import TakeError
from mooring.engine.cpumanager.policy import StaticPolicy
from mooring.engine.cpumanager.requests import exclusive_cpus
from mooring.engine.cpumanager.take import take

EMPTY_SHARED_POOL = "EmptyPodSharedPoolError"


def shared_pool_error(pod: Pod, budget: int, gates: PodLevelGates) -> str:
    """Return the kubelet's text when nothing is left for the sharing containers, or an empty text.

    Regular init containers never count towards what is taken for good.
    """
    taken = 0
    someone_shares = False
    for container in pod.containers:
        own = exclusive_cpus(pod, container, gates)
        if container.kind is ContainerKind.INIT:
            if own == 0 and taken >= budget:
                return "pod rejected, pod has shared init containers but no cpus available for them"
        elif own == 0:
            someone_shares = True
        else:
            taken = int64(taken + own)
    if someone_shares and taken >= budget:
        return (
            "pod rejected, sum of exclusive container cpu requests equals pod budget, "
            "leaving no cpus for shared containers"
        )
    return ""


def divided(
    policy: StaticPolicy,
    pod: Pod,
    bubble: CPUMask,
    observer: Observer | None = None,
    kept: Mapping[str, CPUMask] | None = None,
) -> dict[str, CPUMask] | TakeError | Endless:
    """Return the CPUs of each container, in the order of the specification.

    Args:
        policy: the policy.
        pod: a pod that takes the path of KEP-5526.
        bubble: the CPUs of the pod.
        observer: receives what was found.
        kept: exclusive CPUs of containers that keep them, as far as they are of the right number and still free.
    """
    kept = kept or {}
    sets: dict[str, CPUMask] = {}
    of_sidecars = of_apps = 0
    for container in pod.containers:
        count = exclusive_cpus(pod, container, policy.gates)
        pool = bubble & ~of_sidecars & ~of_apps
        if count:
            if observer is not None:
                observer(CPUPinningRequested(pod.uid, container.name))
            own = kept.get(container.name, 0) & pool
            taken: CPUMask | TakeError | Endless = own
            if own.bit_count() != count:
                if observer is not None:
                    observer(TakeBegun(pod.uid, container.name, count, pool, "partition"))
                taken = take(policy.topology, pool, count, policy.rules, observer)
            if not isinstance(taken, int):
                return taken
            sets[container.name] = taken
            if container.kind is ContainerKind.SIDECAR:
                of_sidecars |= taken
            elif container.kind is ContainerKind.APP:
                of_apps |= taken
        elif container.kind is ContainerKind.INIT:
            sets[container.name] = pool
        else:
            continue
        _report_share(observer, pod, container, sets[container.name], exclusive=count > 0)
    rest = bubble & ~of_sidecars & ~of_apps
    for container in pod.containers:
        if container.name not in sets:
            _report_share(observer, pod, container, rest, exclusive=False)
    return {container.name: sets.get(container.name, rest) for container in pod.containers}


def _report_share(observer: Observer | None, pod: Pod, container: Container, cpus: CPUMask, *, exclusive: bool) -> None:
    if observer is not None:
        observer(PodShareCut(pod.uid, container.name, cpus, exclusive))
