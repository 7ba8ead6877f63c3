"""Where a pod would be placed, and probes: pods that request one resource, to find the largest amount still admitted.

A Guaranteed pod requests CPU and memory. A probe for one of them requests as little as it can of the other: a
thousandth of a CPU, which gives no exclusive one, and one byte, which is tied to a NUMA node all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache

from mooring.engine.core.bits import NO_CPUS, CPUMask, NUMAMask, mask_of, members
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.pod import Container, Pod, QoS
from mooring.engine.core.quantity import Quantity
from mooring.engine.core.topology import Topology
from mooring.engine.cpumanager.policy import CPUsChosen, available_cpus
from mooring.engine.cpumanager.static import choose, near, wanted_cpus
from mooring.engine.devicemanager.state import Device
from mooring.engine.kubelet.admit import AdmitMode, admit
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.node import Decision
from mooring.engine.topologymanager.merge import NONE
from mooring.explanations.chapters import devices_of
from mooring.explanations.phrases import nodes_of
from mooring.lazy import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class PodPlace:
    """What an admitted pod has to itself, over all of its containers."""

    cpus: CPUSet = field(default_factory=CPUSet)
    """Exclusive CPUs, a pod's own partition included."""
    cpu_nodes: tuple[int, ...] = ()
    memory_nodes: tuple[int, ...] = ()
    devices: Mapping[str, tuple[Device, ...]] = field(default_factory=dict)
    """Resource -> its devices, ascending by id."""

    @property
    def nodes(self) -> tuple[int, ...]:
        """The NUMA nodes that it touches. A device counts only when none of its nodes is among them already.

        >>> gpu = Device("gpu", (1, 2))
        >>> PodPlace(cpu_nodes=(2,), devices={"gpu": (gpu,)}).nodes, PodPlace(devices={"gpu": (gpu,)}).nodes
        ((2,), (1,))
        """
        touched = mask_of(node for node in (*self.cpu_nodes, *self.memory_nodes) if node >= 0)
        for devices in self.devices.values():
            for device in devices:
                if not device.mask & touched:
                    touched |= device.mask & -device.mask
        return tuple(members(touched))

    def lies_on(self, node: int) -> bool:
        """Tell whether all of it lies on one NUMA node; a device without known nodes lies nowhere."""
        near = all(node in (device.numa or ()) for devices in self.devices.values() for device in devices)
        return near and set(self.cpu_nodes) | set(self.memory_nodes) <= {node}


def place_of(decision: Decision, topology: Topology | None) -> PodPlace:
    """Return where an admitted pod lies.

    Args:
        decision: that admits it.
        topology: of the kubelet; None when no pod gets exclusive CPUs.
    """
    cpus = decision.pod.cpus
    memory = set(decision.pod.mems)
    for placement in decision.containers.values():
        cpus |= placement.cpus
        memory.update(placement.mems)
    return PodPlace(
        cpus,
        tuple(nodes_of(topology, cpus.mask)) if topology is not None else (),
        tuple(sorted(memory)),
        {name: tuple(one for _, one in sorted(found.items())) for name, found in sorted(devices_of(decision).items())},
    )


def placed(kubelet: Kubelet, pod: Pod) -> PodPlace | None:
    """Return where a pod would be put; None when it would not be admitted, for whatever reason."""
    _, result = admit(kubelet, pod, AdmitMode.TRIAL)
    return place_of(result.decision, kubelet.settings.topology) if result.admitted else None


CPU = "cpu"
MEMORY = "memory"

GUIDE = "mooring.probe/numa"
"""A resource with one device near one NUMA node: the merging of hints leads a pod that requests it there."""

Probe = Callable[[int], PodPlace | None]
"""Where a pod with so much of the resource would be put; None when it would not be admitted."""


def probe_pod(resource: str, amount: int, *, guided: bool) -> Pod:
    """Return a Guaranteed pod that requests ``amount`` CPUs, bytes or devices of one resource.

    >>> probe = probe_pod("cpu", 4, guided=False)
    >>> {name: str(amount) for name, amount in probe.containers[0].requests.items()}
    {'cpu': '4', 'memory': '1'}
    """
    asked = {CPU: Quantity.of_milli(1), MEMORY: Quantity.of_bytes(1), resource: Quantity.of_bytes(amount)}
    if resource == CPU:
        asked[CPU] = Quantity.of_milli(1000 * amount)
    if guided:
        asked[GUIDE] = Quantity.of_bytes(1)
    return Pod("mooring.probe", "probe", "", (Container("probe", requests=asked, limits=asked),), QoS.GUARANTEED)


def probe_anywhere(kubelet: Kubelet, resource: str) -> Probe:
    """Return the probe that goes wherever the kubelet puts it."""

    @cache
    def probe(amount: int) -> PodPlace | None:
        return placed(kubelet, probe_pod(resource, amount, guided=False))

    return probe


def probe_on(kubelet: Kubelet, resource: str, node: int, anywhere: Probe) -> Probe:
    """Return the probe that is put on one NUMA node alone, or nowhere.

    The topology manager is led to the node by a device there. Under its policy ``none`` there are no hints, and a
    pod cannot be led: then the probe counts where the kubelet puts it on the node by itself.

    Args:
        kubelet: of the node.
        resource: what is requested.
        node: id of the NUMA node.
        anywhere: the probe of the same resource that is not led.
    """
    if not can_guide(kubelet):
        return lambda amount: _if_on(anywhere(amount), node)
    devices = {**kubelet.node.providers.devices.devices, GUIDE: (Device("guide", (node,)),)}
    led = replace(kubelet, node=kubelet.node.with_devices(devices))
    return lambda amount: _if_on(placed(led, probe_pod(resource, amount, guided=True)), node)


def led_elsewhere(kubelet: Kubelet) -> Callable[[int, int], bool]:
    """Return what tells of a NUMA node and a number of CPUs that a probe led there gets CPUs of other nodes too.

    With align-by-socket a pod that is led to a NUMA node gets CPUs of its socket, mostly of another node, whatever the
    amount. The CPU manager alone says so: it is asked for the node itself, because the device near the node prefers
    nothing else, the node has the CPUs, and memory that has to lie on other nodes is not on the node either. NUMA nodes
    of one socket share the answer. Nothing is excluded where plugins or extensions choose CPUs.
    """
    node, known = kubelet.settled().node, dict[tuple[CPUMask, int], CPUMask | None]()
    policy, settings = node.settings.cpu, node.settings
    if policy is None or not policy.rules.align_by_socket or not can_guide(kubelet):
        return lambda _node, _amount: False
    if policy.chooser is not None or settings.plugins is not None or settings.device_alignments is not None:
        return lambda _node, _amount: False
    pool = available_cpus(policy, node.cpu)

    def is_elsewhere(numa: int, amount: int) -> bool:
        affinity = NUMAMask(1 << numa)
        close = near(policy, pool, affinity)
        if (close, amount) not in known:
            probe = probe_pod(CPU, amount, guided=True)
            wanted = wanted_cpus(policy, node.cpu, NO_CPUS, probe, probe.containers[0].name, amount, affinity)
            chosen = choose(policy, node.cpu, wanted, None)
            known[close, amount] = chosen.cpus if isinstance(chosen, CPUsChosen) else None
        cpus = known[close, amount]
        return cpus is not None and bool(cpus & ~policy.topology.numa[numa])

    return is_elsewhere


def can_guide(kubelet: Kubelet) -> bool:
    """Tell whether a pod can be led to a NUMA node."""
    return kubelet.settings.topology_policy != NONE


def _if_on(place: PodPlace | None, node: int) -> PodPlace | None:
    return place if place is not None and place.lies_on(node) else None


def largest_counted(probe: Probe, most: int, step: int, in_vain: Callable[[int], bool] = lambda _: False) -> int:
    """Return the largest multiple of ``step`` up to ``most`` that is admitted; 0 when none is.

    Downwards one by one: nothing is assumed about which amounts are admitted, and mostly the first one is.

    Args:
        probe: tries an amount.
        most: to begin with.
        step: between amounts.
        in_vain: tells of amounts that need not be tried, for less than a try costs.
    """
    amounts = range(most - most % step, 0, -step)
    return next((amount for amount in amounts if not in_vain(amount) and probe(amount) is not None), 0)


def largest_measured(probe: Probe, most: int, step: int, *, guided: bool) -> int:
    """Return the largest multiple of ``step`` up to ``most`` bytes that is admitted on one NUMA node; 0 when none is.

    Amounts of bytes are too many to be tried one by one. On a NUMA node to which a pod is led every smaller amount is
    admitted too, so that the interval can be halved. A pod that is not led leaves a node for an earlier one as soon as
    that suffices: then the largest amount is ``most`` or nothing.
    """
    high = most // step

    def fits(count: int) -> bool:
        return probe(count * step) is not None

    if guided:
        return step * largest_halved(fits, 0, high)
    return step * high if high > 0 and fits(high) else 0


def largest_halved(fits: Callable[[int], bool], least: int, most: int) -> int:
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


def largest_of(probe: Probe, amounts: Iterable[int], step: int) -> int:
    """Return the largest of some amounts, rounded down to ``step``, that is admitted; 0 when none is."""
    rounded = {amount - amount % step for amount in amounts}
    return next((amount for amount in sorted(rounded, reverse=True) if amount > 0 and probe(amount) is not None), 0)
