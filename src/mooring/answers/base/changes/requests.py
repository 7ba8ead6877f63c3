"""Another amount in a pod: requests, limits, and the QoS class that follows from them.

Devices as changes: one more on a NUMA node, or others than a container was given; the search for those that help.

With the extension device-alignment devices are chosen before CPUs and memory. Where these cannot follow, others of the
node's free devices might do, which a ResourceClaim can choose, or the kubelet by another order of pods.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from mooring.answers.base.changes.change import ChangeStage, PodRef, asked_about, refs, two_parts
from mooring.answers.base.changes.search import Proposal, Search
from mooring.answers.base.plan import Question, pods_in
from mooring.answers.base.pods import find_containers, names_of
from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Pod, PodResources, ResourceList
from mooring.engine.core.quantity import Quantity
from mooring.engine.devicemanager.state import Device, DeviceState
from mooring.engine.memorymanager.policy import is_memory
from mooring.explanations.phrases import nodes
from mooring.inputs.decoding.fields import within
from mooring.inputs.decoding.quantities import resource_list
from mooring.inputs.pods.defaults import PodGates, qos_of, with_pod_defaults
from mooring.inputs.pods.pod_fields import check_containers_fit, check_pod_resources, check_resources

_NATIVE = ("cpu", "memory", "ephemeral-storage")
_FORM = "POD[/CONTAINER]:RESOURCE=AMOUNT"
_BOTH = "limits."
"""Before a resource: request and limit both become the amount."""


@dataclass(frozen=True, slots=True)
class Amount:
    """A container, or a pod with pod-level resources, requests another amount of something.

    The request becomes the amount. A limit that was equal to the request stays equal to it, and another limit is raised
    where the request would exceed it. What was not requested at all gets both.
    """

    kind: ClassVar[str] = "amount"
    stage: ClassVar[ChangeStage] = ChangeStage.AMOUNT

    pod: PodRef
    container: str
    """Empty for the pod-level resources of the pod."""
    resource: str
    """``cpu``, ``memory``, ``hugepages-SIZE``, or what a device plugin offers."""
    amount: Quantity
    both: bool = False
    """Whether the limit becomes the amount, too, whatever it was."""
    assumed: bool = field(default=False, compare=False)
    """Whether nothing is known of what the container needs."""

    @property
    def target(self) -> str:
        """The amount."""
        return f"{self.resource} of {self._owner}"

    @property
    def option(self) -> tuple[str, str]:
        """``--ask POD[/CONTAINER]:RESOURCE=AMOUNT``."""
        return "--ask", f"{self._owner}:{_BOTH if self.both else ''}{self.resource}={self.amount}"

    @property
    def _owner(self) -> str:
        return f"{self.pod}{f'/{self.container}' if self.container else ''}"

    def phrase(self, question: Question) -> str:
        """Return it with the amount before."""
        before = requested(question, self)
        owner = f"container {self.container} of {self.pod}" if self.container else f"{self.pod} as a whole"
        if self.both:
            known = "" if not self.assumed else " (assumed)"
            return f"set {self.resource} request and limit of {owner} to {self.amount}{known}"
        was = f" instead of {before}" if before is not None else ""
        of_what = f"of {self.resource}" if is_memory(self.resource) else self.resource
        if self.resource == "cpu":
            of_what = "CPU" if self.amount.milli == 1000 else "CPUs"
        return f"let {owner} request {self.amount} {of_what}{was}"

    def applied_to(self, question: Question) -> Question:
        """Return the question with the pod changed."""
        gates = PodGates.of_node(question.config, question.mooring)

        def changed(pod: Pod) -> Pod:
            if pod.uid != self.pod.uid:
                return pod
            with within(source=f"{self.pod}"):
                return with_amount(pod, self.container, self.resource, self.amount, gates, both=self.both)

        pods, active = (tuple(changed(pod) for pod in some) for some in (question.pods, question.active))
        return replace(question, pods=pods, active=active)


def requested(question: Question, change: Amount) -> Quantity | None:
    """Return what was requested before a change; None when nothing was."""
    pod = next((pod for pod in asked_about(question) if pod.uid == change.pod.uid), Pod("", ""))
    if not change.container:
        return pod.resources.requests.get(change.resource) if pod.resources else None
    found = [one.requests.get(change.resource) for one in pod.containers if one.name == change.container]
    return found[0] if found else None


def read_ask(question: Question, text: str) -> list[Amount]:
    """Read the value of ``--ask``.

    Raises:
        InputError: it cannot be understood.
    """
    target, amount = two_parts(text, _FORM)
    name, colon, resource = target.partition(":")
    if not (colon and name and resource):
        raise InputError(f"{text!r:.80} is incomplete", remedy=f"write {_FORM}")
    both, resource = resource.startswith(_BOTH), resource.removeprefix(_BOTH)
    try:
        quantity = resource_list({"amount": {resource: amount}}, "amount")[resource]
    except InputError as error:
        raise InputError(error.problem, field=resource, remedy=error.remedy) from None
    known = refs(question)
    return [
        Amount(known[named.pod.uid], named.container, resource, quantity, both)
        for named in find_containers(asked_about(question), name)
    ]


def with_amount(
    pod: Pod, container: str, resource: str, amount: Quantity, gates: PodGates, *, both: bool = False
) -> Pod:
    """Return a pod one of whose containers requests another amount.

    Args:
        pod: the pod.
        container: name of a container; empty for the pod-level resources.
        resource: what is requested.
        amount: how much of it.
        gates: of the node; they decide about the QoS class.
        both: whether the limit becomes the amount, too.

    Raises:
        InputError: there is no such container, or the API server would refuse the pod.
    """
    containers, resources = pod.containers, pod.resources
    if container:
        before = next((one for one in containers if one.name == container), None)
        if before is None:
            raise InputError(f"has no container {container!r}", remedy=f"it has {names_of(pod)}")
        requests, limits = _with(before.requests, before.limits, resource, amount, both=both)
        check_resources(requests, limits)
        # A pod with other requests is another pod: no kubelet has allocated anything to it.
        after = replace(before, requests=requests, limits=limits, allocated=None)
        containers = tuple(after if one is before else one for one in containers)
    elif resources is None:
        raise InputError("has no pod-level resources", remedy=f"name a container: {names_of(pod)}")
    else:
        # Pod-level resources with another amount, which the manifest then gives
        requests, limits = _with(resources.requests, resources.limits, resource, amount, both=both)
        given = resources.given
        if given is not None:
            raised = {name: limit for name, limit in limits.items() if limit != resources.limits.get(name)}
            given = PodResources({**given.requests, resource: amount}, {**given.limits, **raised})
        resources = PodResources(requests, limits, given)
    if resources is not None and resources.given is not None:
        resources = with_pod_defaults(resources.given, containers, gates)
    if resources is not None and pod.is_pod_level:
        check_pod_resources(resources)
        check_containers_fit(resources, containers)
    qos = qos_of(containers, resources, gates)
    return replace(pod, containers=containers, resources=resources, qos=qos)


def _with(
    requests: ResourceList, limits: ResourceList, resource: str, amount: Quantity, *, both: bool
) -> tuple[dict[str, Quantity], dict[str, Quantity]]:
    request, limit = requests.get(resource), limits.get(resource)
    after, bound = dict(requests), dict(limits)
    after[resource] = amount
    needs_limit = request is None or resource not in _NATIVE
    if both or (needs_limit if limit is None else limit == request or limit < amount):
        bound[resource] = amount
    return after, bound


@dataclass(frozen=True, slots=True)
class MoreDevices:
    """There is one more device of a resource on a NUMA node."""

    kind: ClassVar[str] = "device"
    stage: ClassVar[ChangeStage] = ChangeStage.NODE
    target: ClassVar[str] = ""

    resource: str
    node: int

    @property
    def option(self) -> tuple[str, str]:
        """``--device RESOURCE=NODE``."""
        return "--device", f"{self.resource}={self.node}"

    def phrase(self, question: Question) -> str:  # noqa: ARG002 - reads the same on every question
        """Return it with the NUMA node."""
        return f"add one {self.resource} on NUMA node {self.node}"

    def applied_to(self, question: Question) -> Question:
        """Return the question with the device."""
        return replace(question, devices=_with_device(question, self))


def _with_device(question: Question, change: MoreDevices) -> dict[str, tuple[Device, ...]]:
    """Return the devices with one more.

    Raises:
        InputError: the resource or the NUMA node is unknown.
    """
    devices = question.devices.get(change.resource)
    if devices is None:
        known = ", ".join(sorted(question.devices)) or "none"
        raise InputError(
            f"no devices of {change.resource} are declared",
            remedy=f"declared are {known}; see documents of kind NodeDevices",
        )
    nodes = sorted(node.node_id for node in question.machine.info.topology)
    if change.node not in nodes:
        raise InputError(
            f"{question.machine.name} has no NUMA node {change.node}", remedy=f"it has {', '.join(map(str, nodes))}"
        )
    taken = {device.id for device in devices}
    number = next(number for number in range(len(devices) + 1) if _device_id(number) not in taken)
    return {**question.devices, change.resource: (*devices, Device(_device_id(number), (change.node,)))}


def _device_id(number: int) -> str:
    return f"one-more-{number}"


def read_device(_question: Question, text: str) -> list[MoreDevices]:
    """Read the value of ``--device``.

    Raises:
        InputError: it cannot be understood.
    """
    resource, node = two_parts(text, "RESOURCE=NODE")
    if not (node.isascii() and node.isdecimal()):
        raise InputError(f"{node!r:.40} is not a NUMA node", field=resource, remedy="write RESOURCE=NODE")
    return [MoreDevices(resource, int(node))]


def added(search: Search) -> Iterator[Proposal]:
    """Yield, for each resource, the NUMA node on which one more device disturbs the fewest pods."""
    if not search.has_room:
        return
    until = pods_in(search.queue[: search.place + 1])
    wanted = {name for pod in until for container in pod.containers for name in container.limits}
    for resource in sorted(wanted.intersection(search.question.devices)):
        # A pod that requests none of them is not affected.
        asking = (
            any(resource in container.limits for pod in pods_in([entry]) for container in pod.containers)
            for entry in search.queue
        )
        first = next(place for place, asks in enumerate(asking) if asks)
        tries = []
        for node in sorted(node.node_id for node in search.question.machine.info.topology):
            change, kubelet = MoreDevices(resource, node), search.course.before[first]
            kubelet = replace(kubelet, node=kubelet.node.with_devices(_with_device(search.question, change)))
            tries.append(((change,), search.tried((change,), kubelet, search.queue[first:])))
        yield from search.least(tries, devices_added=1)


_HOLD_FORM = "POD[/CONTAINER]:RESOURCE=ID[,ID...]"


@dataclass(frozen=True, slots=True)
class OtherDevices:
    """A container holds these devices of a resource before it is asked about, and no others of it."""

    kind: ClassVar[str] = "devices"
    stage: ClassVar[ChangeStage] = ChangeStage.NODE

    pod: PodRef
    container: str
    resource: str
    """Name of a device plugin's resource, or of a driver."""
    ids: tuple[str, ...]
    instead: tuple[str, ...] = field(default=(), compare=False)
    """What it is given without the change; empty where that is not known."""

    @property
    def target(self) -> str:
        """The devices."""
        return f"{self.resource} of {self.pod}/{self.container}"

    @property
    def option(self) -> tuple[str, str]:
        """``--hold POD/CONTAINER:RESOURCE=ID[,ID...]``."""
        return "--hold", f"{self.pod}/{self.container}:{self.resource}={','.join(self.ids)}"

    def phrase(self, question: Question) -> str:
        """Return it with the NUMA nodes of the devices."""
        known = {device.id: device for device in question.devices.get(self.resource, ())}
        near = {node for name in self.ids if name in known for node in known[name].numa or ()}
        where = f" on {nodes(near)}" if near else ""
        was = f" instead of {', '.join(self.instead)}" if self.instead else ""
        return f"let {self.pod}/{self.container} hold {', '.join(self.ids)} of {self.resource}{where}{was}"

    def applied_to(self, question: Question) -> Question:
        """Return the question in which the container holds them."""
        containers = question.claimed.get(self.pod.uid, {})
        held = {**containers.get(self.container, {}), self.resource: frozenset(self.ids)}
        return replace(question, claimed={**question.claimed, self.pod.uid: {**containers, self.container: held}})


def read_hold(question: Question, text: str) -> list[OtherDevices]:
    """Read the value of ``--hold``.

    Raises:
        InputError: it cannot be understood, or there are no such devices.
    """
    target, listed = two_parts(text, _HOLD_FORM)
    name, colon, resource = target.partition(":")
    ids = tuple(dict.fromkeys(part.strip() for part in listed.split(",") if part.strip()))
    if not (colon and name and resource and ids):
        raise InputError(f"{text!r:.80} is incomplete", remedy=f"write {_HOLD_FORM}")
    known = [device.id for device in question.devices.get(resource, ())]
    unknown = [one for one in ids if one not in known]
    if unknown:
        some = ", ".join(known[:8]) or "none"
        raise InputError(f"{unknown[0]!r:.60} is no device of {resource:.60}", remedy=f"known are {some}")
    of_question = refs(question)
    found = find_containers(asked_about(question), name)
    several = next((one.pod for one in found if not one.container), None)
    if several is not None:
        raise InputError(f"{several.namespace}/{several.name} has several containers", remedy=f"write {_HOLD_FORM}")
    return [OtherDevices(of_question[one.pod.uid], one.container, resource, ids) for one in found]


def exchanged(search: Search) -> Iterator[Proposal]:
    """Yield the other free devices that disturb the fewest pods; those of one container before those of all.

    One merge of devices, CPUs and memory looks at all free devices itself, so that there is nothing to search.
    """
    decision = search.course.decisions.get(search.pod.uid)
    if search.settings.device_alignments is None or decision is None or not search.has_room:
        return
    given = decision.devices
    groups = [[name] for name in given] + ([[*given]] if len(given) > 1 else [])
    state = search.kubelet.settled().node.providers.devices
    tries = []
    for containers in groups:
        for node in search.settings.numa_ids:
            if changes := _moved(search, state, {name: given[name] for name in containers}, node):
                question = search.question
                for change in changes:
                    question = change.applied_to(question)
                kubelet = search.kubelet.with_devices(
                    replace(search.kubelet.node.providers.devices, claimed=question.claimed)
                )
                tries.append((changes, search.tried(changes, kubelet, search.queue[search.place :])))
    yield from search.least(tries)


def _moved(
    search: Search, state: DeviceState, given: Mapping[str, Mapping[str, tuple[Device, ...]]], node: int
) -> tuple[OtherDevices, ...]:
    """Return changes after which the devices of some containers are near a NUMA node; empty where too few are free."""
    swaps: dict[str, dict[str, str]] = {}
    for resource in {name for resources in given.values() for name in resources}:
        held = {device.id: device for resources in given.values() for device in resources.get(resource, ())}
        away = sorted(name for name, device in held.items() if device.mask and not device.mask >> node & 1)
        # What claims of others have is not free.
        others = [containers for uid, containers in state.claimed.items() if uid != search.pod.uid]
        claimed = {name for one in others for resources in one.values() for name in resources.get(resource, ())}
        near = {device.id for device in state.devices.get(resource, ()) if device.mask >> node & 1}
        free = (near & state.available(resource)) - claimed - held.keys()
        if len(free) < len(away):
            return ()
        swaps[resource] = dict(zip(away, sorted(free), strict=False))
    ref = search.names[search.pod.uid]
    found = []
    for container, resources in given.items():
        for resource, devices in resources.items():
            before = tuple(device.id for device in devices)
            after = tuple(sorted(swaps[resource].get(name, name) for name in before))
            if after != before:
                found.append(OtherDevices(ref, container, resource, after, before))
    return tuple(found)
