"""Another amount in a pod: requests, limits, and the QoS class that follows from them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

from mooring.answers.base.changes.change import ChangeStage, PodRef, asked_about, refs, two_parts
from mooring.answers.base.plan import Question
from mooring.answers.base.pods import find_containers, names_of
from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Container, Pod, PodResources, ResourceList
from mooring.engine.core.quantity import Quantity
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
        return f"let {owner} request {self.amount} {_resource_words(self.resource, self.amount)}{was}"

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
    quantity = _quantity(resource, amount)
    known = refs(question)
    return [
        Amount(known[named.pod.uid], named.container, resource, quantity, both)
        for named in find_containers(asked_about(question), name)
    ]


def _quantity(resource: str, amount: str) -> Quantity:
    try:
        return resource_list({"amount": {resource: amount}}, "amount")[resource]
    except InputError as error:
        raise InputError(error.problem, field=resource, remedy=error.remedy) from None


def _resource_words(resource: str, amount: Quantity) -> str:
    if resource == "cpu":
        return "CPU" if amount.milli == 1000 else "CPUs"
    return f"of {resource}" if resource == "memory" or resource.startswith("hugepages-") else resource


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
        if all(one.name != container for one in containers):
            raise InputError(f"has no container {container!r}", remedy=f"it has {names_of(pod)}")
        containers = tuple(
            _container_with(one, resource, amount, both=both) if one.name == container else one for one in containers
        )
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


def _container_with(container: Container, resource: str, amount: Quantity, *, both: bool) -> Container:
    requests, limits = _with(container.requests, container.limits, resource, amount, both=both)
    check_resources(requests, limits)
    # A pod with other requests is another pod: no kubelet has allocated anything to it.
    return replace(container, requests=requests, limits=limits, allocated=None)


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
