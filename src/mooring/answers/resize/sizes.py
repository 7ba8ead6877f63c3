"""Sizes: what a person requests, how far a container can grow in place, and what makes a refused resize possible.

The engine is asked about every size and every alternative that is named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Annotated, TypeAlias

from msgspec import field

from mooring.answers.base.plan import Plan, Question, make_plan
from mooring.answers.base.start import GENERAL
from mooring.documents.plan import DocumentPart, told
from mooring.engine.core.config import EXCLUSIVE_RESIZE
from mooring.engine.core.errors import InputError, KubeletCrashError
from mooring.engine.core.pod import Container, ContainerKind, Pod, QoS
from mooring.engine.core.quantity import Quantity
from mooring.engine.cpumanager.options import EXCLUSIVE_RESIZE_GATE
from mooring.engine.kubelet.events import Amounts, Resizing
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.node.policies import MEMORY_RESIZE_GATE
from mooring.engine.node.resizing import resize
from mooring.explanations import reason as code
from mooring.explanations.phrases import plural
from mooring.explanations.reason import Reason
from mooring.inputs.decoding.quantities import resource_list
from mooring.inputs.pods.defaults import PodGates
from mooring.inputs.pods.pods import resized_pod

CPU = "cpu"
MEMORY = "memory"
MIB = 2**20
_MOST_NAMED = 3


class LargestAmountsPart(DocumentPart):
    """The largest amounts that a container can have now; null for what was not asked about."""

    cpus: int | None = None
    memory_bytes: int | None = None
    milli_cpus: Annotated[
        int | None, told("Thousandths of a CPU in place of cpus: of a container with a fraction in a Guaranteed pod.")
    ] = field(default=None, name="milliCPUs")


Wanted: TypeAlias = tuple[str, str, Quantity]
"""A resource, a container, empty for the one that is meant anyway, and an amount."""


def wanted(resource: str, texts: Iterable[str]) -> list[Wanted]:
    """Read the values of an option.

    Raises:
        InputError: a value is no amount.

    >>> [(container, str(amount)) for _, container, amount in wanted("cpu", ["4", "app=2"])]
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
        found.append((resource, container.strip(), quantity))
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
    for resource, named, amount in asked:
        if container and named not in ("", container):
            problem = f"names container {named:.60}, but POD names {container}"
            raise InputError(problem, field=f"--{resource}", remedy=f"write POD without /{container}")
        name = named or container or _only_container(pod, resource)
        mine = amounts.setdefault(name, {})
        if resource in mine:
            raise InputError(f"is given twice for container {name}", field=f"--{resource}", remedy="give it once")
        mine[resource] = amount
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


def asking(
    kubelet: Kubelet, pod: Pod, container: str, amounts: Amounts, gates: PodGates
) -> Callable[[str, Quantity], bool]:
    """Return what asks the engine whether one container can have an amount when all else of node and pod stays."""

    def fits(resource: str, amount: Quantity) -> bool:
        part = {resource: amount}
        limits = part if resource in amounts.limits else {}
        try:
            grown = resized_pod(pod, Resizing(pod.uid, {container: Amounts(part, limits)}), gates)
        except InputError:  # above a limit that stays
            return False
        return not resize(kubelet.node, grown)[1].reason

    return fits


def largest_of(kubelet: Kubelet, pod: Pod, container: str, amounts: Amounts, gates: PodGates) -> LargestAmountsPart:
    """Ask the engine how far one container can grow when everything else of the node and the pod stays."""
    now = next(one for one in pod.containers if one.name == container).requests
    fits = asking(kubelet, pod, container, amounts, gates)

    def has_milli(milli: int) -> bool:
        return fits(CPU, Quantity.of_milli(milli))

    reservation = kubelet.settings.reservation
    cpus = memory = milli = None
    has, most = now.get(CPU, Quantity.of_milli(0)).milli, reservation.allocatable(CPU)
    if CPU in amounts.requests and has % 1000 and pod.qos is QoS.GUARANTEED:
        # The largest number of thousandths that fits, where policy static takes no whole number of CPUs
        # Only fractions are counted: halving would take a whole number that does not fit for the end.
        found = _fraction(
            _largest_halved(lambda number: has_milli(_fraction(number)), has - has // 1000, most - most // 1000)
        )
        milli = found + 1 if found < most and has_milli(found + 1) else found
    elif CPU in amounts.requests:
        # Downwards one by one: nothing is assumed about which ones fit.
        cpus = next((one for one in range(most // 1000, has // 1000, -1) if has_milli(1000 * one)), has // 1000)
    if MEMORY in amounts.requests:
        least = now[MEMORY].units // MIB if MEMORY in now else 0
        most = reservation.allocatable(MEMORY) // MIB
        memory = MIB * _largest_halved(lambda mib: fits(MEMORY, Quantity.of_bytes(mib * MIB)), least, most)
    return LargestAmountsPart(cpus, memory, milli)


def _fraction(number: int) -> int:
    """Return a number of thousandths, counted without whole numbers.

    >>> [_fraction(number) for number in (1, 999, 1000, 1998, 1999)]
    [1, 999, 1001, 1999, 2001]
    """
    return number + (number - 1) // 999


def _largest_halved(fits: Callable[[int], bool], least: int, most: int) -> int:
    """Return a number that fits and whose successor does not; there are too many to try each."""
    if most <= least or fits(most):
        return max(most, least)
    low, high = least, most
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low


def resize_advice(
    reason: Reason, question: Question, kubelet: Kubelet, changed: Pod, sizes: Callable[[], Iterator[str]]
) -> str:
    """Return what to do, each alternative run before; else the general advice, marked as such.

    Args:
        reason: why the resize is refused.
        question: with which the node was filled.
        kubelet: before the resize.
        changed: the pod with the resources that it is to have.
        sizes: yields other sizes that are accepted, as instructions.
    """
    tried = [*sizes(), *_without_a_pod(kubelet, changed)]
    if reason.code == code.RESIZE_BY_POLICY:
        tried += _with_the_extension(question, changed)
    if tried:
        text = ", or ".join(tried)
        return f"{text[0].upper()}{text[1:]}: the resize is then accepted (run here)."
    return f"{GENERAL}{reason.remedy}" if reason.remedy else ""


def _accepts(kubelet: Kubelet, changed: Pod) -> bool:
    return not kubelet.resize(changed)[1].reason


def _without_a_pod(kubelet: Kubelet, changed: Pod) -> Iterator[str]:
    """Yield the removal of a pod that is enough alone, the pods with the fewest exclusive CPUs first."""
    node = kubelet.node
    found: list[tuple[int, str]] = []
    for uid, pod in node.active.items():
        try:
            enough = uid != changed.uid and _accepts(kubelet.without({uid}), changed)
        except KubeletCrashError:  # on releasing what another pod shared
            continue
        if enough:
            held = sum(cpus.bit_count() for cpus in node.cpu.assignments.get(uid, {}).values())
            found.append((held, f"{pod.namespace}/{pod.name}"))
    names = [name for _, name in sorted(found)]
    if names:
        more = f" (or one of {plural(len(names) - _MOST_NAMED, 'other')})" if len(names) > _MOST_NAMED else ""
        yield f"remove {' or '.join(names[:_MOST_NAMED])}{more}"


def _with_the_extension(question: Question, changed: Pod) -> Iterator[str]:
    """Yield the fewest gates with which the extension exclusive-resize accepts it."""
    mooring = replace(question.mooring, extensions=question.mooring.extensions | {EXCLUSIVE_RESIZE})
    for gates in ((EXCLUSIVE_RESIZE_GATE,), (MEMORY_RESIZE_GATE,), (EXCLUSIVE_RESIZE_GATE, MEMORY_RESIZE_GATE)):
        config = replace(question.config, feature_gates={**question.config.feature_gates, **dict.fromkeys(gates, True)})
        plan = make_plan(replace(question, config=config, mooring=mooring))
        runs = isinstance(plan, Plan) and changed.uid in plan.kubelet.node.active
        if isinstance(plan, Plan) and runs and _accepts(plan.kubelet, changed):
            yield f"let mooring agent pin, with {' and '.join(gates)} and the extension {EXCLUSIVE_RESIZE}"
            return
