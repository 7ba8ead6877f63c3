"""How the CPUs of a pod-level pod are divided among its containers.

Source: kubelet v1.37.1, cpumanager policy_static.go (AllocatePod), KEP-5526; spec: pod-level.md section 4.
"""

from __future__ import annotations

from collections.abc import Mapping

from mooring.core.decision import Endless
from mooring.core.observer import Observer
from mooring.core.pod import Container, ContainerKind, Pod
from mooring.cpumanager.facts import CPUPinningRequested, PodShareCut, TakeBegun
from mooring.cpumanager.policy import StaticPolicy
from mooring.cpumanager.requests import exclusive_cpus
from mooring.cpumanager.rules import TakeError
from mooring.cpumanager.take import take


def divided(
    policy: StaticPolicy,
    pod: Pod,
    bubble: int,
    observer: Observer | None = None,
    kept: Mapping[str, int] | None = None,
) -> dict[str, int] | TakeError | Endless:
    """Return the CPUs of each container, in the order of the specification.

    Args:
        policy: the policy.
        pod: a pod that takes the path of KEP-5526.
        bubble: the CPUs of the pod.
        observer: receives what was found.
        kept: exclusive CPUs of containers that keep them, as far as they are of the right number and still free.
    """
    kept = kept or {}
    sets: dict[str, int] = {}
    of_sidecars = of_apps = 0
    for container in pod.containers:
        count = exclusive_cpus(pod, container, policy.gates)
        pool = bubble & ~of_sidecars & ~of_apps
        if count:
            if observer is not None:
                observer(CPUPinningRequested(pod.uid, container.name))
            own = kept.get(container.name, 0) & pool
            taken: int | TakeError | Endless = own
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


def _report_share(observer: Observer | None, pod: Pod, container: Container, cpus: int, *, exclusive: bool) -> None:
    if observer is not None:
        observer(PodShareCut(pod.uid, container.name, cpus, exclusive))
