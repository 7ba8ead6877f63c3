"""How far a container can grow in place: the engine is asked about every size that is tried."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mooring.answers.resize.asked import CPU, MEMORY
from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Pod, QoS
from mooring.engine.core.quantity import Quantity
from mooring.engine.kubelet.events import Amounts, Resizing
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.node.resize.resizing import resize
from mooring.inputs.pods.defaults import PodGates
from mooring.inputs.pods.steps import resized_pod

MIB = 2**20


@dataclass(frozen=True, slots=True)
class Largest:
    """The largest amounts that a container can have now; what was not looked for is None."""

    cpus: int | None = None
    memory: int | None = None
    """Bytes, to the MiB."""
    milli_cpus: int | None = None
    """In place of ``cpus`` for a container of a Guaranteed pod that has a fraction: no whole number may follow it."""


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


def largest_of(kubelet: Kubelet, pod: Pod, container: str, amounts: Amounts, gates: PodGates) -> Largest:
    """Ask the engine how far one container can grow when everything else of the node and the pod stays."""
    now = next(one for one in pod.containers if one.name == container).requests
    fits = asking(kubelet, pod, container, amounts, gates)

    def has_milli(milli: int) -> bool:
        return fits(CPU, Quantity.of_milli(milli))

    def has_cpus(count: int) -> bool:
        return has_milli(1000 * count)

    def has_memory(mib: int) -> bool:
        return fits(MEMORY, Quantity.of_bytes(mib * MIB))

    reservation = kubelet.settings.reservation
    cpus = memory = milli = None
    has, most = now.get(CPU, Quantity.of_milli(0)).milli, reservation.allocatable(CPU)
    if CPU in amounts.requests and has % 1000 and pod.qos is QoS.GUARANTEED:
        milli = _largest_fraction(has_milli, has, most)
    elif CPU in amounts.requests:
        cpus = _largest_counted(has_cpus, has // 1000, most // 1000)
    if MEMORY in amounts.requests:
        least = now[MEMORY].units // MIB if MEMORY in now else 0
        memory = _largest_halved(has_memory, least, reservation.allocatable(MEMORY) // MIB) * MIB
    return Largest(cpus, memory, milli)


def _largest_counted(fits: Callable[[int], bool], least: int, most: int) -> int:
    """Return the largest number that fits, downwards one by one: nothing is assumed about which ones do."""
    return next((count for count in range(most, least, -1) if fits(count)), least)


def _largest_fraction(fits: Callable[[int], bool], least: int, most: int) -> int:
    """Return the largest number of thousandths that fits, where policy static takes no whole number of CPUs."""
    # Only fractions are counted: halving would take a whole number that does not fit for the end.
    found = _fraction(
        _largest_halved(lambda number: fits(_fraction(number)), least - least // 1000, most - most // 1000)
    )
    return found + 1 if found < most and fits(found + 1) else found


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
