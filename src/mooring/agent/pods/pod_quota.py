"""The CFS quota that the kubelet gives to the cgroup of a pod.

Source: kubelet v1.37.1, cm/helpers_linux.go (ResourceConfigForPod) and component-helpers resource (PodLimits).
"""

from __future__ import annotations

from mooring.agent.pods.cfs import PERIOD, quota_of
from mooring.core.pod import Pod, QoS, ResourceList
from mooring.manifest.defaults import total_limits


def quota_of_pod(pod: Pod, period: int = PERIOD) -> int:
    """Return the quota in microseconds per period; 0 means none.

    >>> from mooring.core.pod import Container
    >>> from mooring.core.quantity import Quantity
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
