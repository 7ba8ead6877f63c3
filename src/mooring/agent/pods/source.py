"""What a pod source is, the choice among several, and the last resort: a pod made of what the runtime tells.

What is exact in that and what is not (measured with the real kubelet):

* CPU requests, CPU limits and memory limits come back exactly (:mod:`mooring.agent.quota`), so a Guaranteed
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
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from mooring.agent.nri.types import ContainerState, LinuxResources, PodSandbox, RuntimeContainer
from mooring.agent.quota import MOST_SHARES, PERIOD, milli_of_quota, milli_of_shares
from mooring.engine.core.pod import NO_RESOURCES, Container, Pod, PodResources, QoS, ResourceList
from mooring.engine.core.quantity import Quantity

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


class PodSource(Protocol):
    """Knows pods as the kubelet decides about them."""

    def pod(self, sandbox: PodSandbox) -> Pod | None:
        """Return the pod of a sandbox, with the sandbox's uid, or None when the source does not know it.

        Runs inside the runtime's request, so it takes a small bounded time and raises nothing.
        """

    def known(self, sandboxes: Iterable[PodSandbox]) -> Mapping[str, Pod]:
        """Return the pods of these sandboxes that the source knows, by uid; waits for none.

        For Synchronize, which tells of pods that are older than the question, and of very many.
        """


class ResizedSource(PodSource, Protocol):
    """Knows besides what becomes of pods that are resized."""

    def wanted(self, sandbox: PodSandbox) -> Pod | None:
        """Return the pod of a sandbox with the resources that it is to have, or None; waits for nothing."""


@dataclass(frozen=True, slots=True)
class PodSources:
    """Asks the folder for static pods, and the API server for all others.

    A static pod that the folder does not give (its manifest came from a URL, or was changed since) is asked of the API
    server too, which knows its mirror.
    """

    static: PodSource | None = None
    api: ResizedSource | None = None

    def pod(self, sandbox: PodSandbox) -> Pod | None:
        """Return the pod of a sandbox, or None."""
        if self.static is not None and is_static(sandbox):
            found = self.static.pod(sandbox)
            if found is not None:
                return found
        return None if self.api is None else self.api.pod(sandbox)

    def known(self, sandboxes: Iterable[PodSandbox]) -> Mapping[str, Pod]:
        """Return the pods of these sandboxes that are known, by uid."""
        asked = tuple(sandboxes)
        found = {} if self.static is None else self.static.known([one for one in asked if is_static(one)])
        others = [one for one in asked if one.uid not in found]
        return found if self.api is None else {**found, **self.api.known(others)}

    def wanted(self, sandbox: PodSandbox) -> Pod | None:
        """Return the pod with the resources that it is to have, or None; a static pod is never resized."""
        return None if self.api is None or is_static(sandbox) else self.api.wanted(sandbox)


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
