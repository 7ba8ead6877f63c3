"""When the CFS quota is lifted, and how the kubelet turns CPU amounts into shares and quotas, and back.

Lifted is the quota of containers with exclusive CPUs, and of the pod and its sandboxes around them
(:func:`~mooring.engine.node.providers.container_runs_without_quota`; spec: pod-level.md section 5), unless the kubelet
has ``cpuCFSQuota: false``. The groups are written by :mod:`mooring.agent.cgroups.protocol`.

Source of the amounts: kubelet v1.37.1, cm/helpers_linux.go (MilliCPUToShares, MilliCPUToQuota, ResourceConfigForPod),
kuberuntime, component-helpers resource (PodLimits); measured with the real kubelet. Shares are rounded down, but a
thousandth of a CPU is more than one share, so different amounts have different shares: between the two bounds nothing
is lost.
"""

from __future__ import annotations

from mooring.agent.effects import LiftQuota, QuotaOf
from mooring.agent.nri.types import LinuxResources
from mooring.agent.state import AgentState, KnownContainer, Setting
from mooring.engine.core.pod import Container, Pod, QoS, ResourceList
from mooring.engine.core.quantity import Quantity
from mooring.engine.node.providers import pod_runs_without_quota
from mooring.inputs.pods.defaults import total_limits

NO_QUOTA = -1


PERIOD = 100_000
"""Microseconds of a CFS period unless the kubelet is configured otherwise."""
LEAST_SHARES = 2
"""Shares of a container without a CPU request; amounts up to 2m have them too."""
MOST_SHARES = 262_144
"""Shares of 256 CPUs and more."""
LEAST_QUOTA = 1000
"""Microseconds that a container with a limit gets at least."""


def shares_of(milli: int) -> int:
    """Return the shares of a CPU request in thousandths.

    >>> shares_of(1200), shares_of(100), shares_of(0)
    (1228, 102, 2)
    """
    return min(max(milli * 1024 // 1000, LEAST_SHARES), MOST_SHARES)


def quota_of(milli: int, period: int = PERIOD) -> int:
    """Return the quota in microseconds per period of a CPU limit in thousandths; 0 means none.

    >>> quota_of(1200), quota_of(1200, 10_000), quota_of(0)
    (120000, 12000, 0)
    """
    return max(milli * period // 1000, LEAST_QUOTA) if milli > 0 else 0


def milli_of_shares(shares: int) -> int | None:
    """Return the CPU request with these shares; 0 where they say nothing, None where they are at the upper bound.

    Shares that no request has, because another program set them, count as the next smaller amount.

    >>> milli_of_shares(1228), milli_of_shares(2), milli_of_shares(262144)
    (1200, 0, None)
    """
    if shares >= MOST_SHARES:
        return None
    if shares <= LEAST_SHARES:
        return 0
    milli = -(-shares * 1000 // 1024)
    return milli if shares_of(milli) == shares else milli - 1


def milli_of_quota(quota: int, period: int = PERIOD) -> tuple[int, int]:
    """Return the least and the greatest CPU limit with this quota.

    At the usual period the two are one, except below 10m, where every limit has the least quota. At short periods
    several limits have the same quota.

    >>> milli_of_quota(120000), milli_of_quota(1000), milli_of_quota(12005, 10_000)
    ((1200, 1200), (1, 10), (1201, 1200))
    """
    least = 1 if quota <= LEAST_QUOTA else -(-quota * 1000 // period)
    return least, ((quota + 1) * 1000 - 1) // period


def asked_of(pod: Pod, container: Container, period: int = PERIOD) -> LinuxResources:
    """Return what the kubelet asks of the runtime for a container at its creation; 0 means not set.

    A limit that the container does not have is the pod's, and a CPU request that it does not have is the limit.
    """
    cpu, memory = _limit(pod, container, "cpu"), _limit(pod, container, "memory")
    limit = cpu.milli if cpu is not None else 0
    request = container.requests.get("cpu")
    return LinuxResources(
        shares=shares_of(limit if request is None else request.milli),
        quota=quota_of(limit, period),
        period=period,
        memory_limit=memory.units if memory is not None else 0,
    )


def _limit(pod: Pod, container: Container, name: str) -> Quantity | None:
    own = container.limits.get(name)
    if own is not None and not own.is_zero:
        return own
    return pod.resources.limits.get(name) if pod.resources is not None else None


def quota_of_pod(pod: Pod, period: int = PERIOD) -> int:
    """Return the quota in microseconds per period; 0 means none.

    >>> from mooring.engine.core.pod import Container
    >>> from mooring.engine.core.quantity import Quantity
    >>> two = {"cpu": Quantity.parse("2")}
    >>> both = Container("a", limits=two), Container("b", limits=two)
    >>> quota_of_pod(Pod("u", "n", containers=both, qos=QoS.BURSTABLE))
    400000
    """
    own = _cpu(pod.resources.limits) if pod.resources is not None else 0
    if pod.qos is QoS.BEST_EFFORT:
        return 0
    if pod.qos is QoS.BURSTABLE and not own and not all(_cpu(one.limits) for one in pod.containers):
        return 0
    limit = own or _cpu(total_limits(pod.containers))
    return quota_of(limit + _cpu(pod.overhead), period) if limit else 0


def _cpu(amounts: ResourceList) -> int:
    found = amounts.get("cpu")
    return found.milli if found is not None else 0


def lift_of_pod(state: AgentState, uid: str) -> tuple[LiftQuota, ...]:
    """Return what lifts the quota of a pod's group and of its sandboxes, where it is to be lifted."""
    node = state.kubelet.node
    pod = node.active.get(uid)
    if pod is None or not node.settings.config.cpu_cfs_quota:
        return ()
    if not pod_runs_without_quota(node.settings, node.providers, pod):
        return ()
    lifts: list[LiftQuota] = []
    for sandbox in state.sandboxes.values():
        if sandbox.uid == uid:
            lifts += [
                LiftQuota(QuotaOf.POD, uid, "", sandbox.pid, sandbox.cgroup_parent),
                LiftQuota(QuotaOf.SANDBOX, uid, "", sandbox.pid, sandbox.cgroups_path),
            ]
    return tuple(lifts)


def lift_of_container(container: KnownContainer, wanted: Setting) -> tuple[LiftQuota, ...]:
    """Return what lifts a container's own quota through its cgroup, where it is to be lifted."""
    if wanted.quota is None:
        return ()
    return (LiftQuota(QuotaOf.CONTAINER, container.uid, container.id, container.pid, container.cgroup),)
