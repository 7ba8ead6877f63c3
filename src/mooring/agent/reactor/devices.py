"""Devices of pods, as an event brings them: who gave them was the kubelet beside the agent, or a driver.

The record is the engine's (:class:`~mooring.engine.devicemanager.state.DeviceState`): what a pod holds is written
there before the engine is asked about it (extension device-alignment).

What is not told in time is unknown. Such a pod is decided about without it, unless its devices require alignment; until
one of its programs runs it can be placed anew. Afterwards nothing of it moves: its memory is where it was touched, and
the replacement of offline CPUs moves no memory.

No API reports devices of init containers that end (kubelet v1.37.1, apis/podresources/server_v1.go), and CPUs that
these containers leave are used again. The kubelet's record on disk has a device plugin's devices of every container.
Where it cannot be read, an init container counts as holding as many devices of its pod as it requests: those that it
leaves are the first that the containers after it take (devicemanager manager.go, devicesToAllocate). A claim is one for
all of its containers. Resources that no device plugin serves are in neither.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import reduce
from operator import and_

from mooring.agent.effects import Effect, ReportKind, reported
from mooring.agent.state import HAS_CGROUP, AgentState, DevicesFound, claimed_cpus
from mooring.engine.core.bits import CPUMask
from mooring.engine.core.config import DEVICE_ALIGNMENT, DeviceAlignment
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import Placement, Rejection
from mooring.engine.core.pod import Container, ContainerKind, Pod, ResourceList
from mooring.engine.devicemanager.state import Device
from mooring.engine.extensions.device_alignment import CLASSES, alignment_of, tying
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.node.admission import TOPOLOGY_AFFINITY_ERROR
from mooring.engine.node.node import placements_of
from mooring.explanations.alignment import extent_of_nodes
from mooring.explanations.phrases import joined, nodes, nodes_of

DEVICES_UNKNOWN = "DevicesUnknown"
DEVICES_ELSEWHERE = "DevicesElsewhere"
DEVICES_CHANGED = "DevicesChanged"
FULL_CODE = "MOOR-136"
APART_CODE = "MOOR-137"
UNKNOWN_CODE = "MOOR-624"
ELSEWHERE_CODE = "MOOR-625"
CHANGED_CODE = "MOOR-626"
"""Codes of these reports; ``mooring explain CODE`` prints the page."""
Held = Mapping[str, Mapping[str, tuple[Device, ...]]]
"""Container -> resource -> devices."""


def is_extended(resource: str) -> bool:
    """Tell whether a resource can be one of a device plugin's: it has a domain, and not Kubernetes' own.

    >>> is_extended("nvidia.com/gpu"), is_extended("cpu"), is_extended("hugepages-2Mi")
    (True, False, False)
    """
    domain, slash, _ = resource.partition("/")
    return bool(slash) and not domain.endswith("kubernetes.io")


def device_limits(container: Container) -> dict[str, int]:
    """Return how many devices of each extended resource a container wants."""
    return {name: amount.units for name, amount in sorted(container.limits.items()) if is_extended(name)}


def without_devices(pod: Pod) -> Pod:
    """Return the pod without requests and limits of extended resources."""

    def plain(amounts: ResourceList) -> ResourceList:
        return {name: amount for name, amount in amounts.items() if not is_extended(name)}

    containers = tuple(replace(one, requests=plain(one.requests), limits=plain(one.limits)) for one in pod.containers)
    return pod if containers == pod.containers else replace(pod, containers=containers)


def untold_devices(pod: Pod, held: Held, claims: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the devices that a pod requests and the kubelet has not reported: the resource, and both in words.

    A claim's driver is unknown until the kubelet reports its devices, so the resource of a claim is empty.

    Args:
        pod: with its limits and claims.
        held: what the kubelet reports.
        claims: those whose devices it reports.
    """
    for one in pod.containers:
        if one.kind is ContainerKind.INIT:
            continue
        for name, count in device_limits(one).items():
            if len(held.get(one.name, {}).get(name, ())) < count:
                yield name, f"{count} {name} of {one.name}"
        for claim in dict.fromkeys(use.claim for use in one.claims):
            if claim not in claims:
                yield "", f"claim {claim} of {one.name}"


def with_init_containers(
    pod: Pod,
    held: Held,
    claimed: Mapping[str, AbstractSet[tuple[str, str]]],
    recorded: Callable[[], Mapping[tuple[str, str], tuple[Device, ...]]],
) -> Held:
    """Return what the containers of a pod hold, with those that end.

    Args:
        pod: with its limits and claims.
        held: of the others.
        claimed: claim -> its devices as driver and id.
        recorded: reads the kubelet's record of the pod, by container and resource; empty where it cannot be read.
    """
    ending = [one for one in pod.containers if one.kind is ContainerKind.INIT and (one.claims or device_limits(one))]
    if not ending:
        return held
    known: dict[str, dict[str, Device]] = {}
    for resources in held.values():
        for resource, devices in resources.items():
            known.setdefault(resource, {}).update({device.id: device for device in devices})
    record = recorded() if any(device_limits(one) for one in ending) else {}
    found = {**held}
    for one in ending:
        mine = {
            resource: record.get((one.name, resource)) or (*known.get(resource, {}).values(),)[:count]
            for resource, count in device_limits(one).items()
        }
        for use in one.claims:
            for driver, name in sorted(claimed.get(use.claim, ())):
                device = known.get(driver, {}).get(name)
                if device is not None and device not in mine.get(driver, ()):
                    mine[driver] = (*mine.get(driver, ()), device)
        if any(mine.values()):
            found[one.name] = {resource: devices for resource, devices in mine.items() if devices}
    return found


def follows_devices(state: AgentState) -> bool:
    """Tell whether CPUs and memory follow devices on this node."""
    return DEVICE_ALIGNMENT in state.kubelet.mooring.extensions


def with_devices(state: AgentState, uid: str, found: DevicesFound | None) -> AgentState:
    """Return the state with what is known of a pod's devices; what was known stays where nothing is told instead."""
    if found is None:
        return state
    devices = state.kubelet.node.providers.devices
    held = found.held
    if found.unknown:
        names = dict.fromkeys((*devices.held.get(uid, {}), *held))
        held = {name: {**devices_of(state.kubelet, uid, name), **held.get(name, {})} for name in names}
    after = devices.holding(uid, held)
    return state if after == devices else replace(state, kubelet=state.kubelet.with_devices(after))


def devices_of(kubelet: Kubelet, uid: str, container: str) -> dict[str, tuple[Device, ...]]:
    """Return what a container holds, by resource."""
    state = kubelet.node.providers.devices
    return {
        resource: tuple(device for device in state.devices.get(resource, ()) if device.id in ids)
        for resource, ids in state.held.get(uid, {}).get(container, {}).items()
    }


def why_wait(state: AgentState, pod: Pod, found: DevicesFound | None) -> Rejection | None:
    """Return why a container has to wait for what is unknown of its pod's devices; None when it need not.

    A pod that has its place keeps it.
    """
    if found is None or not found.unknown or pod.uid in state.kubelet.node.active:
        return None
    rules, annotations = state.kubelet.mooring.device_alignments, pod.annotations
    names = set(found.missing)
    if "" in names:
        names.update(pattern for patterns in CLASSES.values() for pattern in patterns)
        names.update(pattern for _, resources in rules.classes.values() for pattern in resources)
    if all(alignment_of(rules, annotations, name) is not DeviceAlignment.REQUIRE for name in names):
        return None
    text = f"its devices require alignment and are not all known: {found.unknown} ({UNKNOWN_CODE})"
    return Rejection(DEVICES_UNKNOWN, text)


def can_be_placed_anew(state: AgentState, uid: str, found: DevicesFound | None) -> bool:
    """Tell whether more is known of a pod's devices than when it was decided about, and nothing of it runs."""
    before = state.without_devices.get(uid)
    if found is None or before is None or (found.unknown and found.held == before.held):
        return False
    return not any(one.phase in HAS_CGROUP for one in state.containers_of(uid))


def decided_with(state: AgentState, pod: Pod, found: DevicesFound | None) -> tuple[AgentState, tuple[Effect, ...]]:
    """Return the state that knows whether a pod that has just got its place had to do without devices, and a report."""
    if found is None or not found.unknown:
        return without_question(state, pod.uid), ()
    after = replace(state, without_devices={**state.without_devices, pod.uid: found})
    if pod.uid in state.without_devices:
        return after, ()
    text = f"decided without all of its devices: {found.unknown} ({UNKNOWN_CODE})"
    return after, reported(pod, ReportKind.DEVICES_UNKNOWN, DEVICES_UNKNOWN, text, UNKNOWN_CODE)


def without_question(state: AgentState, uid: str) -> AgentState:
    """Return the state in which nothing is unknown of a pod's devices."""
    if uid not in state.without_devices:
        return state
    rest = {known: found for known, found in state.without_devices.items() if known != uid}
    return replace(state, without_devices=rest)


def with_words(state: AgentState, pod: Pod, rejection: Rejection, found: DevicesFound | None) -> Rejection:
    """Return a rejection that names the devices that tie the pod, and their NUMA nodes, after the kubelet's message."""
    if found is None or rejection.reason != TOPOLOGY_AFFINITY_ERROR:
        return rejection
    rules, nodes_ = state.kubelet.mooring.device_alignments, state.kubelet.settings.numa_ids
    record = state.kubelet.node.providers.devices.holding(pod.uid, found.held)
    tied = {
        name: {resource: devices for resource, (_, devices) in held.items()}
        for name in found.held
        if (held := tying(rules, record, nodes_, pod, name))
    }
    if not tied:
        return rejection
    near = [reduce(and_, (one.mask for each in held.values() for one in each)) for held in tied.values()]
    words = "; ".join(f"{name}: {_theirs(held)}" for name, held in tied.items())
    return Rejection(rejection.reason, f"{rejection.message} ({FULL_CODE if all(near) else APART_CODE}; {words})")


def elsewhere(state: AgentState, pod: Pod) -> Iterator[tuple[str, str]]:
    """Yield each container whose own CPUs and memory have no NUMA node in common with its devices, and that in words.

    Devices whose alignment is ``ignore`` do not count, nor containers that have nothing for themselves.
    """
    kubelet = state.kubelet
    node = kubelet.node
    places = places_of(state, pod)
    blocks = node.memory.assignments.get(pod.uid, {})
    for name, place in places.items():
        held = tying(kubelet.mooring.device_alignments, node.providers.devices, kubelet.settings.numa_ids, pod, name)
        if not held or not (place.cpus or place.mems):
            continue
        devices = {resource: found for resource, (_, found) in held.items()}
        if not extent_of_nodes(
            kubelet.settings, kubelet.node.providers, place, blocks.get(name, ()), devices
        ).is_aligned:
            topology = kubelet.settings.topology
            near = "" if topology is None else f" on {nodes(nodes_of(topology, place.cpus.mask))}"
            own = [f"CPUs {place.cpus}{near}"] if place.cpus else []
            own += [f"memory of {nodes(place.mems)}"] if place.mems else []
            yield name, f"{name} has {' and '.join(own)}, and " + _theirs(devices)


def places_of(state: AgentState, pod: Pod) -> dict[str, Placement]:
    """Return what each container of a pod has for itself, CPUs of claims included."""
    places, _ = placements_of(state.kubelet.node.providers, pod)
    claimed = claimed_cpus(state)
    return {
        name: replace(place, cpus=place.cpus | CPUSet(CPUMask(claimed.get((pod.uid, name), 0))))
        for name, place in places.items()
    }


def _theirs(held: Mapping[str, Sequence[Device]]) -> str:
    """Return in words which devices are near which NUMA nodes."""
    return joined(
        [f"{resource} {one.id} is near {nodes(one.numa or ())}" for resource, each in held.items() for one in each]
    )
