"""From a machine and its owners to the picture's values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from msgspec import UNSET

from mooring.engine.core.bits import CPUMask
from mooring.engine.core.cpuset import CPUSet, CPUSetSyntaxError
from mooring.engine.core.errors import InputError, clean
from mooring.engine.core.machine import Machine
from mooring.explanations.phrases import plural, size
from mooring.lazy import dataclass, replace
from mooring.views.devices import UNHEALTHY, DeviceView, short_names, unique_names
from mooring.views.locations import CPULocations, boxes_of, boxes_with_devices, locate_cpus, offline_box
from mooring.views.view import NO_CPUS, CPUUse, CPUView, MemoryUse, NodeView, NUMAView, OwnerView, RejectedPod
from mooring.views.wording import meaning, owner_marks

if TYPE_CHECKING:
    from mooring.documents.status import AgentPodPart, StatusDocument


@dataclass(frozen=True, slots=True)
class CPUOwner:
    """A holder of exclusive CPUs, as the node's state has it.

    List the owners of one pod in the pod's order, a set of the pod as a whole first: where they hold the same CPU,
    as app containers take over what init containers had, the later one is drawn.
    """

    label: str
    """``namespace/pod/container``, or ``namespace/pod`` for a set of the pod as a whole."""
    uid: str
    """The pod's uid: owners with one uid have one colour. When empty, the label counts instead."""
    cpus: CPUSet
    memory_nodes: tuple[int, ...] = ()
    """NUMA nodes of its memory; empty means unrestricted."""
    leaving: CPUSet = NO_CPUS
    """CPUs that it releases when a scale-down delay is over."""
    devices: frozenset[tuple[str, str]] = frozenset()
    """Devices that it has, by resource and id."""
    hypothetical: bool = False
    """Whether it is not on the node: the picture shows where it would be."""


Pools: TypeAlias = Mapping[CPUUse, CPUSet]
"""What the CPUs without an exclusive owner are for; sets may overlap, and what is left out may be absent.

* ``RESERVED``: kept for the system.
* ``SHARED``: the shared pool (the default CPU set); without it every CPU is shared, as under policy ``none``.
* ``FREE``: what a container could still get exclusively: the shared pool less the reserved CPUs, under ``static``.
* ``OFFLINE``: CPUs of the machine that are offline for now, and are drawn at their places.
* ``LEFT_OUT``: further CPUs that are to be in the picture.
"""


def build_view(
    machine: Machine,
    *,
    owners: Sequence[CPUOwner] = (),
    pools: Pools | None = None,
    memory: Mapping[int, MemoryUse] | None = None,
    rejected: Sequence[RejectedPod] = (),
    subtitle: str = "",
    caption: Sequence[str] = (),
    devices: Sequence[DeviceView] = (),
) -> NodeView:
    """Return the picture of ``machine`` with its owners.

    Args:
        machine: the hardware's description is drawn where it is known, else the kubelet's.
        owners: holders of exclusive CPUs.
        pools: reserved, shared and free CPUs; by default every CPU is shared.
        memory: use of memory per NUMA node id, where the memory manager accounts for it.
        rejected: pods that were not admitted.
        subtitle: one line of circumstances, such as the policies.
        caption: further sentences for under the picture.
        devices: of the node; their owners are those of ``owners`` that have them.

    CPUs that owners or pools name and the machine does not have are drawn as offline: a state file may speak of
    them.
    """
    pools = pools or {}
    places = locate_cpus(machine)
    views = tuple(owner_views(owners, places))
    leaving = NO_CPUS
    for owner in owners:
        leaving |= owner.leaving
    cpus = {
        cpu: replace(view, leaving=True) if cpu in leaving else view
        for cpu, view in cpu_views(places, views, pools).items()
    }
    online = {cpu: view for cpu, view in cpus.items() if cpu in places.by_cpu}
    boxes = boxes_of(places, online)
    gone = [view for cpu, view in sorted(cpus.items()) if cpu not in places.by_cpu]
    members: dict[int, list[CPUView]] = {node: [] for node in places.memory}
    for cpu in online.values():
        if cpu.numa is not None:
            members.setdefault(cpu.numa, []).append(cpu)
    holders = {device: view.label for owner, view in zip(owners, views, strict=True) for device in owner.devices}
    held = tuple(
        replace(
            one,
            resource=clean(one.resource),
            id=clean(one.id),
            address=clean(one.address),
            owner=holders.get((one.resource, one.id), clean(one.owner)),
        )
        for one in devices
    )
    strict = CPUUse.SHARED in pools and not pools[CPUUse.SHARED] & pools.get(CPUUse.RESERVED, NO_CPUS)
    used = {use: CPUSet.from_ids(cpu for cpu, view in cpus.items() if view.use is use) for use in CPUUse}
    boxes = boxes_with_devices((*boxes, offline_box(gone)) if gone else boxes, held)
    # What is unknown of the machine is left out.
    seen = places.by_cpu.values()
    figures = (
        (len({place.socket for place in seen if place.socket is not None}), "socket"),
        (len(places.memory), "NUMA node"),
    )
    title = [plural(count, noun) for count, noun in figures if count]
    title += [plural(len({place.core for place in seen}), "core"), plural(len(places.by_cpu), "CPU")]
    bytes_ = sum(places.memory.values()) or machine.info.memory_capacity
    title += [size(bytes_)] if bytes_ else []
    return NodeView(
        name=clean(machine.name),
        title=" · ".join(title),
        subtitle=clean(subtitle),
        boxes=boxes,
        numa=tuple(
            NUMAView(
                id=node,
                memory_bytes=places.memory.get(node, 0),
                cpus=CPUSet.from_ids(cpu.cpu for cpu in here),
                counts=Counter(cpu.use for cpu in here),
                memory=(memory or {}).get(node),
                memory_kind=clean(places.memory_kinds.get(node, "")),
            )
            for node, here in sorted(members.items())
        ),
        owners=views,
        rejected=tuple(RejectedPod(clean(pod.name), clean(pod.reason), clean(pod.why)) for pod in rejected),
        legend={use: (ids, meaning(use, strict=strict)) for use, ids in used.items() if ids},
        caption=(*_how_to_read(places, cpus, held), *(clean(line) for line in caption)),
        devices=held,
    )


def owner_views(owners: Sequence[CPUOwner], places: CPULocations) -> list[OwnerView]:
    """Return the owners with their marks and colours, which depend on their order and number alone."""
    colours: dict[str, int] = {}
    # Where CPUs go back, their marks are written in capital letters.
    marks = owner_marks(len(owners), small=any(owner.leaving for owner in owners))
    names = unique_names([clean(owner.label) for owner in owners], [clean(owner.uid) for owner in owners])
    found = []
    for owner, name, mark, forms in zip(owners, names, marks, short_names(names, marks), strict=True):
        colour = colours.setdefault(owner.uid or owner.label, len(colours))
        nodes = {places.by_cpu[cpu].numa for cpu in owner.cpus if cpu in places.by_cpu}
        found.append(
            OwnerView(
                label=name,
                forms=forms,
                uid=owner.uid or owner.label,
                mark=mark,
                colour=colour,
                cpus=owner.cpus,
                cpu_nodes=tuple(sorted(node for node in nodes if node is not None)),
                memory_nodes=tuple(sorted(owner.memory_nodes)),
                hypothetical=owner.hypothetical,
            )
        )
    return found


def cpu_views(places: CPULocations, owners: Sequence[OwnerView], pools: Pools) -> dict[int, CPUView]:
    """Return every CPU that the machine has or that owners or pools name, ascending."""
    holders: dict[int, list[int]] = {}
    for index, owner in enumerate(owners):
        for cpu in owner.cpus:
            holders.setdefault(cpu, []).insert(0, index)
    named = (cpu for use, cpus in pools.items() if use is not CPUUse.OFFLINE for cpu in cpus)
    everything = {*places.by_cpu, *CPUSet(CPUMask(places.offline)), *named, *holders}
    found: dict[int, CPUView] = {}
    for cpu in sorted(everything):
        place, held_by = places.by_cpu.get(cpu), holders.get(cpu, [])
        pods = {owners[holder].uid for holder in held_by}
        is_offline = cpu in pools.get(CPUUse.OFFLINE, NO_CPUS)
        if place is None or (is_offline and not held_by):
            use = CPUUse.OFFLINE
        elif is_offline and len(pods) == 1:
            use = CPUUse.BROKEN
        elif held_by:
            use = CPUUse.EXCLUSIVE if len(pods) == 1 else CPUUse.CONTESTED
        else:
            known = [one for one in (CPUUse.RESERVED, CPUUse.FREE, CPUUse.SHARED) if cpu in pools.get(one, NO_CPUS)]
            known.append(CPUUse.LEFT_OUT if CPUUse.SHARED in pools else CPUUse.SHARED)
            use = known[0]
        found[cpu] = CPUView(
            cpu=cpu,
            use=use,
            owner=held_by[0] if held_by else None,
            other_owners=tuple(held_by[1:]),
            core=None if place is None else place.core,
            socket=None if place is None or place.socket is None else places.socket_ids.get(place.socket),
            numa=None if place is None else place.numa,
            l3=None if place is None or place.l3 is None else places.l3_ids.get(place.l3),
        )
    return found


def _how_to_read(places: CPULocations, cpus: Mapping[int, CPUView], devices: Sequence[DeviceView]) -> Iterator[str]:
    """Yield the sentences that explain the cells."""
    cores = Counter(place.core for place in places.by_cpu.values())
    if max(cores.values(), default=1) > 1:
        yield "Each cell is one CPU (a hardware thread); the threads of one core stand on top of each other."
    else:
        yield "Each cell is one CPU; every core has a single thread."
    if any(view.other_owners and view.use is not CPUUse.CONTESTED for view in cpus.values()):
        yield "Where containers of one pod got the same CPU one after the other, the last of them is drawn."
    if any(view.leaving for view in cpus.values()):
        yield "CPUs with capital letters are released when a scale-down delay is over."
    if any(device.offered for device in devices):
        yield f"Devices are below the CPUs near them: a letter is the owner, · free, {UNHEALTHY} unhealthy."


def status_view(machine: Machine, document: StatusDocument) -> NodeView:
    """Return the picture of a node as its agent sees it: a status document, and the machine as the agent sees it.

    Nothing is decided here and no engine runs: the program that draws may be older or newer than the agent.

    Raises:
        InputError: the document lacks what a picture needs.
    """
    try:
        cpus, pods = document.cpus, document.pods
        pools = {CPUUse.RESERVED: CPUSet.parse(cpus.reserved), CPUUse.FREE: CPUSet.parse(cpus.free)}
        # Under CPU manager policy none every container may run everywhere.
        if cpus.shared or cpus.exclusive or cpus.free:
            pools[CPUUse.SHARED] = CPUSet.parse(cpus.shared)
        claimed = [
            CPUOwner(f"claim {claim.namespace}/{claim.name} ({share.request})", claim.uid, CPUSet.parse(share.cpus))
            for claim in document.claims or ()
            for share in claim.shares
        ]
        # What is not allocatable is kept for the system.
        memory = {
            node.node: MemoryUse(max(node.memory_bytes - account.allocatable, 0), account.assigned)
            for node in document.numa_nodes
            if node.memory and (account := node.memory.get("memory"))
        }
        held = [
            RejectedPod(f"{pod.namespace}/{pod.name}", pod.reason, f"The agent holds it back: {pod.message}")
            for pod in document.held
        ]
        return build_view(
            machine,
            owners=[*(owner for pod in pods for owner in _owners(pod)), *claimed],
            pools=pools,
            memory=memory,
            rejected=held,
            subtitle=document.policies or "the engine does not run",
            caption=list(_caption(document)),
            devices=[*_devices(document)],
        )
    except (ValueError, CPUSetSyntaxError) as error:
        problem = f"the status lacks what a picture needs ({type(error).__name__}: {error})"
        raise InputError(problem, source="the agent", remedy="use the same version of mooring as the agent") from None


def _owners(pod: AgentPodPart) -> Iterator[CPUOwner]:
    """Yield the owners of CPUs in a pod: first the pod as a whole, then its containers in their order."""
    name, uid = f"{pod.namespace}/{pod.name}", pod.uid
    if pod.cpus:
        yield CPUOwner(name, uid, CPUSet.parse(pod.cpus), _nodes(pod.mems))
    for container in pod.containers:
        devices = frozenset((one.resource, one.id) for one in container.devices or ())
        if container.cpus or devices:
            leaving = CPUSet.parse(container.pending.releases) if container.pending is not UNSET else NO_CPUS
            label = f"{name}/{container.name}"
            yield CPUOwner(label, uid, CPUSet.parse(container.cpus), _nodes(container.mems), leaving, devices)


def _devices(document: StatusDocument) -> Iterator[DeviceView]:
    """Yield the devices that containers hold; one that several share belongs to the first."""
    known: dict[tuple[str, str], DeviceView] = {}
    for pod in document.pods:
        for container in pod.containers:
            owner = f"{pod.namespace}/{pod.name}/{container.name}"
            for one in container.devices or ():
                view = DeviceView(one.resource, one.id, tuple(one.numa_nodes), healthy=one.healthy, owner=owner)
                known.setdefault((view.resource, view.id), view)
    yield from sorted(known.values(), key=lambda view: (view.resource, view.id))


def _caption(document: StatusDocument) -> Iterator[str]:
    """Yield what is wrong and what is under way, for under the picture."""
    for reason in document.reasons:
        yield f"Not ready: {reason}."
    for pod in document.pods:
        for container in pod.containers:
            baseline, pending = container.baseline, container.pending
            if baseline is UNSET and pending is UNSET:
                continue
            text = f"{pod.namespace}/{pod.name}/{container.name} has CPUs {container.cpus}"
            text += f" (baseline {baseline})" if baseline is not UNSET else ""
            if pending is not UNSET:
                when = f"in {pending.seconds_left:.1f} s or a little later" if pending.seconds_left else "now"
                text += f"; {pending.releases} of them are released {when}"
            yield f"{text}."


def _nodes(text: str) -> tuple[int, ...]:
    return tuple(int(node) for node in text.split(",") if node)
