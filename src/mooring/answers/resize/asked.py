"""What a person requests: ``--cpu 4``, or ``--cpu app=4`` where a pod has several containers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Container, ContainerKind, Pod
from mooring.engine.core.quantity import Quantity
from mooring.engine.kubelet.events import Amounts, Resizing
from mooring.inputs.decoding.quantities import resource_list

CPU = "cpu"
MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class Wanted:
    """An amount of one resource."""

    resource: str
    container: str
    """Empty for the container that is meant anyway."""
    amount: Quantity


def wanted(resource: str, texts: Iterable[str]) -> list[Wanted]:
    """Read the values of an option.

    Raises:
        InputError: a value is no amount.

    >>> [(one.container, str(one.amount)) for one in wanted("cpu", ["4", "app=2"])]
    [('', '4'), ('app', '2')]
    """
    found = []
    for text in texts:
        container, _, amount = text.rpartition("=")
        try:
            quantity = resource_list({"amount": {resource: amount.strip()}}, "amount")[resource]
        except InputError as error:
            raise InputError(error.problem, field=f"--{resource}", remedy=error.remedy) from None
        if quantity.nano <= 0:
            raise InputError(f"must be more than 0, but is {amount:.40}", field=f"--{resource}")
        found.append(Wanted(resource, container.strip(), quantity))
    return found


def resizing_of(pod: Pod, container: str, asked: Iterable[Wanted]) -> Resizing:
    """Return the resize of a pod that is requested.

    Where a container's limit is its request, as in a Guaranteed pod, the limit follows.

    Args:
        pod: as it is.
        container: the one that was named with the pod; empty for none.
        asked: the amounts.

    Raises:
        InputError: it is not clear which container is meant, one that is named with the pod is not meant, or an amount
            is given twice.
    """
    amounts: dict[str, dict[str, Quantity]] = {}
    for one in asked:
        if container and one.container not in ("", container):
            problem = f"names container {one.container:.60}, but POD names {container}"
            raise InputError(problem, field=f"--{one.resource}", remedy=f"write POD without /{container}")
        name = one.container or container or _only_container(pod, one.resource)
        mine = amounts.setdefault(name, {})
        if one.resource in mine:
            raise InputError(f"is given twice for container {name}", field=f"--{one.resource}", remedy="give it once")
        mine[one.resource] = one.amount
    known = {one.name: one for one in pod.containers}
    for name in amounts:
        if name not in known:
            raise InputError(f"has no container {name!r:.60}", source=pod.name, remedy=f"they are {', '.join(known)}")
    return Resizing(pod.uid, {name: _amounts(known[name], mine) for name, mine in amounts.items()})


def _only_container(pod: Pod, resource: str) -> str:
    # Regular init containers have ended when a running pod is resized.
    names = [one.name for one in pod.containers if one.kind is not ContainerKind.INIT]
    if len(names) == 1:
        return names[0]
    likely = next((one.name for one in pod.containers if one.kind is ContainerKind.APP), names[0])
    raise InputError(
        f"the pod has {len(names)} containers", field=f"--{resource}", remedy=f"write --{resource} {likely}=AMOUNT"
    )


def _amounts(container: Container, asked: Mapping[str, Quantity]) -> Amounts:
    limits = {
        name: amount
        for name, amount in asked.items()
        if name in container.limits and container.limits[name] == container.requests.get(name)
    }
    return Amounts(dict(asked), limits)
