"""What a pod source is, the choice among several, and the last resort: a pod made of what the runtime tells.

What is exact in that and what is not (measured with the real kubelet):

* CPU requests, CPU limits and memory limits come back exactly (:func:`milli_of_shares`), so a Guaranteed
  container gets as many exclusive CPUs and as much memory as its pod requests. What the API server refuses to the
  memory manager because of how it is written (``0.5Gi``) is accepted here.
* Containers are known one by one, as they are created. All count as ordinary ones, because nothing tells init
  containers and sidecars apart. An init container that ended is left out, so its CPUs come back to the node but are
  not kept for the containers after it; a container that ended and is created again is decided about again.
* A container without resources of its own in a pod with pod-level resources looks like a Guaranteed one of the pod's
  size. As long as it is the only one it is taken for that; when the containers together exceed the pod it is known for
  what it is.
* Memory requests below the limit, huge pages and devices are not told. None of them matters to the CPU manager, and the
  memory manager considers Guaranteed pods only, whose memory requests are their limits.
* The QoS class is read from the pod's cgroup. With the cgroupfs driver its parent is ``/kubepods/burstable/podUID``,
  with systemd it ends in ``kubepods-burstable-podUID.slice``; a ``cgroupRoot`` comes before either. Guaranteed pods are
  directly below ``kubepods``. Source: kubelet v1.37.1, cm/pod_container_manager_linux.go.

How the kubelet turns CPU amounts into shares and quotas, and back. Source: kubelet v1.37.1, cm/helpers_linux.go
(MilliCPUToShares, MilliCPUToQuota, ResourceConfigForPod), kuberuntime, component-helpers resource (PodLimits); measured
with the real kubelet. Shares are rounded down, but a thousandth of a CPU is more than one share, so different amounts
have different shares: between the two bounds nothing is lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mooring.agent.nri.types import ContainerState, LinuxResources, PodSandbox, RuntimeContainer
from mooring.engine.core.pod import NO_RESOURCES, Container, Pod, PodResources, QoS, ResourceList
from mooring.engine.core.quantity import Quantity
from mooring.inputs.pods.defaults import total_limits

CONFIG_SOURCE = "kubernetes.io/config.source"
"""Annotation in which the kubelet says where it has a pod from: ``api``, ``file`` or ``http``."""
CONFIG_HASH = "kubernetes.io/config.hash"
"""Annotation of static pods: the uid that the kubelet gave them."""
_KEPT = ("mooring/", CONFIG_SOURCE, CONFIG_HASH)
_RUNTIME = "io.kubernetes.cri."
_LABELS = ("io.kubernetes.pod.uid", "io.kubernetes.pod.name", "io.kubernetes.pod.namespace")
"""Of every container that a kubelet makes. Source: kubelet v1.37.1, kuberuntime (newContainerLabels)."""
_LONGEST_ANNOTATION = 128
_LONGEST_OWN = 1024
MOST_ANNOTATIONS = 32
"""Annotations that are kept of a pod, short ones of others included."""


def labelled_sandbox(container: RuntimeContainer) -> PodSandbox | None:
    """Return a container's sandbox as far as the container's own labels tell; None where they name no pod.

    >>> labels = {"io.kubernetes.pod.uid": "u", "io.kubernetes.pod.name": "web", "io.kubernetes.pod.namespace": "shop"}
    >>> found = labelled_sandbox(RuntimeContainer("c", "s", "app", labels=labels, cgroups_path="/kubepods/podu/c"))
    >>> found.id, found.uid, found.cgroup_parent
    ('s', 'u', '/kubepods/podu')
    """
    uid, name, namespace = (container.labels.get(one, "") for one in _LABELS)
    if not uid:
        return None
    # The systemd driver writes slice, prefix and id with colons between them.
    slice_, is_systemd, _ = container.cgroups_path.partition(":")
    parent = slice_ if is_systemd else container.cgroups_path.rpartition("/")[0]
    return PodSandbox(container.pod_sandbox_id, uid, name, namespace, cgroup_parent=parent)


def is_static(pod: PodSandbox | Pod) -> bool:
    """Tell whether the kubelet has the pod from a manifest of its own and not from the API server.

    >>> is_static(PodSandbox("1", "u", "etcd-n1", "kube-system", annotations={CONFIG_SOURCE: "file"}))
    True
    """
    return pod.annotations.get(CONFIG_SOURCE, "api") != "api"


def kept_annotations(annotations: Mapping[str, str]) -> dict[str, str]:
    """Return the annotations that may matter: the agent's own, the kubelet's, and short ones of others.

    An operator may name any annotation by which pods opt out, so short ones are kept, up to a bound. Long ones, such as
    whole manifests, and those that the runtime adds are not.

    >>> kept_annotations({"example.com/unpinned": "true", "io.kubernetes.cri.sandbox-id": "1", "manifest": "x" * 999})
    {'example.com/unpinned': 'true'}
    """
    kept = {name: text for name, text in annotations.items() if name.startswith(_KEPT) and len(text) <= _LONGEST_OWN}
    for name, text in annotations.items():
        if len(kept) < MOST_ANNOTATIONS and len(text) <= _LONGEST_ANNOTATION and not name.startswith(_RUNTIME):
            kept[name] = text
    return kept


def pod_of(sandbox: PodSandbox, containers: Sequence[RuntimeContainer]) -> Pod:
    """Derive a pod.

    Args:
        sandbox: the pod's sandbox.
        containers: the pod's containers as their client asked for them, in the order of their creation. Of two with one
            name the later counts; those that have ended are left out.

    >>> asked = LinuxResources(shares=2048, quota=200000, period=100000, memory_limit=2**30)
    >>> sandbox = PodSandbox("s1", "u1", "web", "shop", cgroup_parent="/kubepods/podu1")
    >>> pod = pod_of(sandbox, [RuntimeContainer("c1", "s1", "app", resources=asked)])
    >>> pod.qos.value, str(pod.containers[0].requests["cpu"]), str(pod.containers[0].limits["memory"])
    ('Guaranteed', '2', '1Gi')
    """
    live = [one for one in {one.name: one for one in containers}.values() if one.state is not ContainerState.STOPPED]
    # Outside of the kubelet's groups the class comes from the containers' sizes.
    qos = qos_of_cgroup(sandbox.cgroup_parent) or _qos_of([one.resources for one in live])
    members = _members(sandbox.pod_resources, live) if qos is QoS.GUARANTEED else set()
    made = []
    for one in live:
        requests, limits = (NO_RESOURCES, NO_RESOURCES) if one.id in members else amounts_of(one.resources, qos)
        made.append(Container(one.name, requests=requests, limits=limits))
    return Pod(
        uid=sandbox.uid,
        name=sandbox.name,
        namespace=sandbox.namespace or "default",
        containers=tuple(made),
        qos=qos,
        resources=PodResources(*amounts_of(sandbox.pod_resources, qos)) if members else None,
        overhead=_limits(_limit_milli(sandbox.overhead, None), sandbox.overhead),
        annotations=kept_annotations(sandbox.annotations),
    )


def amounts_of(resources: LinuxResources, qos: QoS) -> tuple[ResourceList, ResourceList]:
    """Return requests and limits of one container of a pod of this class."""
    request = milli_of_shares(resources.shares or 0)
    limit = _limit_milli(resources, request)
    if request is None:
        # At least 256 CPUs. A quota knows better; it is the request where both are equal, as they most likely are.
        request = max(limit, MOST_SHARES * 1000 // 1024)
    if not limit and request and qos is QoS.GUARANTEED:
        # The kubelet enforces no quotas (cpuCFSQuota: false), or the agent has lifted this one.
        limit = request
    limits = _limits(limit, resources)
    requests = {"cpu": Quantity.of_milli(request)} if request else {}
    if qos is QoS.GUARANTEED and "memory" in limits:
        requests["memory"] = limits["memory"]
    return requests, limits


def _limits(milli: int, resources: LinuxResources) -> dict[str, Quantity]:
    limits = {"cpu": Quantity.of_milli(milli)} if milli else {}
    if resources.memory_limit and resources.memory_limit > 0:
        limits["memory"] = Quantity.of_bytes(resources.memory_limit)
    return limits


def _limit_milli(resources: LinuxResources, request: int | None) -> int:
    """Return the CPU limit, 0 for none; of several with the same quota the one that is the request."""
    if resources.quota is None or resources.quota <= 0:
        return 0
    least, greatest = milli_of_quota(resources.quota, resources.period or PERIOD)
    if request is not None and least <= request <= greatest:
        return request
    return max(greatest, 1)


def _members(pod: LinuxResources, live: Sequence[RuntimeContainer]) -> set[str]:
    """Return the ids of containers without resources of their own in a pod that has its own.

    Without pod-level resources no containers that live together exceed the pod's sum, which counts the most that ever
    run at the same time.
    """
    quotas = sum(max(one.resources.quota or 0, 0) for one in live)
    memory = sum(one.resources.memory_limit or 0 for one in live)
    if not (quotas > (pod.quota or 0) > 0 or memory > (pod.memory_limit or 0) > 0):
        return set()
    found = set()
    for one in live:
        own = one.resources
        quota = own.quota if own.quota and own.quota > 0 else pod.quota
        if (own.shares, quota, own.memory_limit) == (pod.shares, pod.quota, pod.memory_limit):
            found.add(one.id)
    return found


def _qos_of(all_resources: Sequence[LinuxResources]) -> QoS:
    """Return the class that the sizes suggest, for pods outside the kubelet's cgroups.

    A quota of -1 is one that kubelet or agent lifted for exclusive CPUs, which only Guaranteed pods have; a Burstable
    container without a limit has the quota 0.
    """
    if not any((one.shares or 0) > 2 or (one.quota or 0) > 0 or one.memory_limit for one in all_resources):
        return QoS.BEST_EFFORT
    for one in all_resources:
        request = milli_of_shares(one.shares or 0)
        if not one.memory_limit or not one.quota or (one.quota > 0 and _limit_milli(one, request) != request):
            return QoS.BURSTABLE
    return QoS.GUARANTEED


_KUBEPODS = "kubepods"
_CLASSES = {"burstable": QoS.BURSTABLE, "besteffort": QoS.BEST_EFFORT}
_SLICE = ".slice"


def qos_of_cgroup(parent: str) -> QoS | None:
    """Return the class, or None when the path is none of the kubelet's (``cgroupsPerQOS: false``, other clients).

    >>> qos_of_cgroup("/kubepods/podb2").value, qos_of_cgroup("/kubepods/besteffort/podb2").value
    ('Guaranteed', 'BestEffort')
    >>> qos_of_cgroup("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podb2.slice").value
    'Burstable'
    """
    words = [part for part in parent.split("/") if part]
    if words and words[-1].endswith(_SLICE):
        # A slice names all slices above it; systemd writes a dash of a name as an underscore.
        words = words[-1].removesuffix(_SLICE).split("-")
    if _KUBEPODS not in words:
        return None
    below = words[len(words) - words[::-1].index(_KUBEPODS) :]
    if below and below[0] in _CLASSES:
        return _CLASSES[below[0]]
    return QoS.GUARANTEED if below and below[0].startswith("pod") else None


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
