"""The pod that a decision is made about: of a source that knows it, else derived; also while a resize is on its way.

Source and runtime tell of the same kubelet's pod, so they differ only when something is wrong: the agent reads another
node's pods or an older manifest, another plugin changes containers, or a client beside the kubelet makes some; or when
a resize is on its way.

The kubelet turns a resize into calls with bare numbers: one call for each resource and container, each with the
container's full set; the numbers of the other resource are those from before. So what differs from the amounts that the
pod was granted is what is requested. Which amounts have these numbers is said by the API server's object where it
agrees with them, else derived (:mod:`mooring.agent.pods.source`), which is exact for whole CPUs.

Source for the sizes: kubelet v1.37.1, kuberuntime (generateLinuxContainerResources, doPodResizeAction), measured with
the real kubelet; spec: pod-level.md section 5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from mooring.agent.nri.types import LinuxResources, PodSandbox, RuntimeContainer
from mooring.agent.pods.source import PERIOD, amounts_of, asked_of, kept_annotations, pod_of, qos_of_cgroup
from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Container, Pod, ResourceList
from mooring.engine.core.quantity import Quantity
from mooring.engine.extensions.device_alignment import check_annotation as check_alignment
from mooring.engine.node.providers import ANNOTATION, check_mixing
from mooring.inputs.decoding.fields import within
from mooring.inputs.pods.defaults import PodGates
from mooring.inputs.pods.pod_fields import scale_down_grace, with_allocated
from mooring.inputs.pods.pods import DEFAULT_GATES, pod_from_object


class Resolved(NamedTuple):
    """A pod, and how far it is to be trusted."""

    pod: Pod
    is_derived: bool
    """Whether no source knew it."""
    problems: Sequence[str]
    """Where the source's pod and the runtime do not agree: the decision goes by the pod, as the kubelet's does. Or
    annotations of a derived pod that cannot be understood; they count for nothing, and a source's pod has none."""


def resolved(
    pod: Pod | None,
    sandbox: PodSandbox,
    container: RuntimeContainer | None,
    others: Sequence[RuntimeContainer] = (),
    gates: PodGates = DEFAULT_GATES,
) -> Resolved:
    """Return the pod of a sandbox.

    Args:
        pod: as a source has it; without one it is derived.
        sandbox: as the runtime tells it.
        container: the one that is being created, as its client requests it; None when it is about the pod alone.
        others: the pod's other containers as their client asked for them, in the order of their creation.
        gates: say whether a derived pod's own scale-down delay counts.

    >>> found = resolved(None, PodSandbox("s", "u", "web", "shop", cgroup_parent="/kubepods/podu"), None)
    >>> found.pod.uid, found.is_derived
    ('u', True)
    """
    if pod is not None:
        return Resolved(pod, is_derived=False, problems=differences(pod, sandbox, container))
    made = pod_of(sandbox, [*others, *([container] if container is not None else [])])
    # Containers that are still to come are not known, so that a name cannot be wrong.
    names = [name.removeprefix(f"{ANNOTATION}.") for name in made.annotations]
    problems = []
    for check in (
        partial(check_mixing, made.annotations if gates.knows_mixing else {}, names),
        partial(check_alignment, made.annotations if gates.knows_device_alignment else {}),
    ):
        try:
            check()
        except InputError as error:
            problems.append(str(error))
    with suppress(InputError):  # a delay that cannot be understood is none
        if (grace := scale_down_grace({}, made.annotations, gates, stored=True)) is not None:
            made = replace(made, scale_down_grace=grace)
    return Resolved(made, is_derived=True, problems=problems)


def differences(pod: Pod, sandbox: PodSandbox, container: RuntimeContainer | None = None) -> list[str]:
    """Return in words where a pod and its sandbox, and one of its containers, differ.

    A missing CFS quota is no difference: the kubelet may be told to set none, and the agent lifts them. Nor is a
    container that the pod does not name and that has no resources: it is an ephemeral one.

    Args:
        pod: as the pod source has it.
        sandbox: as the runtime has it.
        container: as its client asked for it; not what the agent made of it.
    """
    found = [
        _difference("pod", what, mine, theirs)
        for what, mine, theirs in (
            ("uid", pod.uid, sandbox.uid),
            ("namespace", pod.namespace, sandbox.namespace or "default"),
            ("name", pod.name, sandbox.name),
        )
        if mine != theirs
    ]
    qos = qos_of_cgroup(sandbox.cgroup_parent)
    if qos is not None and qos is not pod.qos:
        found.append(_difference("pod", "QoS class", pod.qos.value, qos.value))
    return found if container is None else found + _of_container(pod, container)


def _difference(subject: str, what: str, in_pod: str, in_runtime: str) -> str:
    """Return a sentence about what pod and runtime do not say the same of.

    >>> _difference("container a", "memory limit", "64Mi", "32Mi")
    'container a: the memory limit is 64Mi in the pod and 32Mi in the runtime'
    """
    return f"{subject}: the {what} is {in_pod} in the pod and {in_runtime} in the runtime"


def _of_container(pod: Pod, told: RuntimeContainer) -> list[str]:
    subject = f"container {told.name}"
    own = pod.container(told.name)
    if own is None:
        wanted = asked_of(pod, Container(told.name), told.resources.period or PERIOD)
        sizes = (told.resources.shares or 0, max(told.resources.quota or 0, 0), told.resources.memory_limit or 0)
        if sizes == (wanted.shares, wanted.quota, wanted.memory_limit):
            # An ephemeral one: those come later and cannot have resources of their own.
            return []
        names = ", ".join(one.name for one in pod.containers)
        return [_difference(subject, "name", f"one of {names}", told.name)]
    wanted = asked_of(pod, own, told.resources.period or PERIOD)
    pairs: list[tuple[str, int | None, int | None]] = [("CPU shares", wanted.shares, told.resources.shares or 0)]
    if (told.resources.quota or 0) > 0:
        pairs.append(("CFS quota", wanted.quota, told.resources.quota))
    pairs.append(("memory limit", wanted.memory_limit, told.resources.memory_limit or 0))
    return [_difference(subject, what, _text(mine), _text(theirs)) for what, mine, theirs in pairs if mine != theirs]


def _text(amount: int | None) -> str:
    return str(amount) if amount else "not set"


def pod_of_object(obj: Mapping[str, Any], *, source: str, gates: PodGates = DEFAULT_GATES) -> Pod:
    """Return the pod that the kubelet decides about, with the annotations that the agent reads.

    Raises:
        InputError: the object is no pod that an API server would store.
    """
    with within(source=source):
        pod = pod_from_object(with_allocated(obj), source=source, gates=gates)
    return replace(pod, annotations=kept_annotations(pod.annotations))


def wanted_pod(obj: Mapping[str, Any], *, source: str, gates: PodGates = DEFAULT_GATES) -> Pod | None:
    """Return the pod with the resources that it is to have; None when these are allocated.

    Raises:
        InputError: the object is no pod that an API server would store.
    """
    return pod_from_object(obj, source=source, gates=gates) if with_allocated(obj) is not obj else None


def resized(pod: Pod, name: str, asked: LinuxResources, wanted: Pod | None = None) -> Pod | None:
    """Return the pod with one container's amounts as an update requests them; None when it changes none.

    Pod-level pods are left alone: what a call says of their containers may be the pod's own amounts.

    Args:
        pod: with the resources that it was granted.
        name: of the container.
        asked: the request; 0 and None are not set.
        wanted: the pod as the API server has it, with the resources that it is to have.

    >>> from mooring.engine.core.pod import QoS
    >>> from mooring.engine.core.quantity import Quantity
    >>> two = {"cpu": Quantity.parse("2")}
    >>> pod = Pod("u", "n", containers=(Container("a", requests=two, limits=two),), qos=QoS.GUARANTEED)
    >>> after = resized(pod, "a", LinuxResources(shares=4096, quota=400000, period=100000))
    >>> str(after.containers[0].requests["cpu"]), resized(pod, "a", LinuxResources(shares=2048)) is None
    ('4', True)
    """
    own = pod.container(name)
    if own is None or pod.is_pod_level:
        return None
    period = asked.period or PERIOD
    granted = asked_of(pod, own, period)
    theirs = wanted.container(name) if wanted is not None else None
    goal = asked_of(wanted, theirs, period) if wanted is not None and theirs is not None else None
    made = own
    if _differ_in_cpu(granted, asked):
        source = theirs if goal is not None and not _differ_in_cpu(goal, asked) else None
        made = _with("cpu", made, source or _derived(pod, name, asked))
    if asked.memory_limit and asked.memory_limit != granted.memory_limit:
        source = theirs if goal is not None and goal.memory_limit == asked.memory_limit else None
        made = _with("memory", made, source or _derived(pod, name, asked))
    if made == own:
        return None
    return replace(pod, containers=tuple(made if one.name == name else one for one in pod.containers))


def with_granted(pod: Pod, known: Pod) -> Pod:
    """Return a pod as a source tells it now, with the CPU and memory that its known containers were granted.

    A source can be behind a resize. Pod-level pods are left alone, and so are amounts that are the same.
    """
    if pod.is_pod_level or known.is_pod_level or pod.qos is not known.qos:
        return pod
    made = []
    for one in pod.containers:
        container, granted = one, known.container(one.name)
        for resource in ("cpu", "memory"):
            if granted is not None and _amounts(container, resource) != _amounts(granted, resource):
                container = _with(resource, container, granted)
        made.append(container)
    return replace(pod, containers=tuple(made))


def _amounts(container: Container, resource: str) -> tuple[Quantity | None, Quantity | None]:
    return container.requests.get(resource), container.limits.get(resource)


def _differ_in_cpu(granted: LinuxResources, asked: LinuxResources) -> bool:
    """Tell whether shares or quota are others; a quota that is not there says nothing, the kubelet may set none."""
    if not asked.shares:
        return False
    quota = asked.quota or 0
    return asked.shares != granted.shares or (quota > 0 and quota != granted.quota)


def _derived(pod: Pod, name: str, asked: LinuxResources) -> Container:
    requests, limits = amounts_of(asked, pod.qos)
    return Container(name, requests=requests, limits=limits)


def _with(resource: str, container: Container, source: Container) -> Container:
    """Return the container with one resource of another; an unknown memory request stays."""

    def taken(own: ResourceList, theirs: ResourceList, *, stays: bool) -> ResourceList:
        if resource in theirs:
            return {**own, resource: theirs[resource]}
        return own if stays else {key: amount for key, amount in own.items() if key != resource}

    return replace(
        container,
        requests=taken(container.requests, source.requests, stays=resource == "memory"),
        limits=taken(container.limits, source.limits, stays=False),
    )
