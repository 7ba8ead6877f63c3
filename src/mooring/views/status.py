"""The picture of a node from what its agent says: a status document, and the machine as the agent sees it.

Nothing is decided here and no engine runs: the program that draws may be older or newer than the agent.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import UNSET

from mooring.documents.status import AgentPodPart, StatusDocument
from mooring.engine.core.cpuset import CPUSet, CPUSetSyntaxError
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Machine
from mooring.views.build import CPUOwner, Pools, build_view
from mooring.views.devices import DeviceView
from mooring.views.view import NO_CPUS, MemoryUse, NodeView, RejectedPod


def status_view(machine: Machine, document: StatusDocument) -> NodeView:
    """Return the picture of a node as its agent sees it.

    Raises:
        InputError: the document lacks what a picture needs.
    """
    try:
        cpus, pods = document.cpus, document.pods
        # Under CPU manager policy none every container may run everywhere.
        shared = _set(cpus.shared) if cpus.shared or cpus.exclusive or cpus.free else None
        claimed = [
            CPUOwner(f"claim {claim.namespace}/{claim.name} ({share.request})", claim.uid, _set(share.cpus))
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
            pools=Pools(_set(cpus.reserved), shared, _set(cpus.free)),
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
        yield CPUOwner(name, uid, _set(pod.cpus), _nodes(pod.mems))
    for container in pod.containers:
        devices = frozenset((one.resource, one.id) for one in container.devices or ())
        if container.cpus or devices:
            leaving = _set(container.pending.releases) if container.pending is not UNSET else NO_CPUS
            label = f"{name}/{container.name}"
            yield CPUOwner(label, uid, _set(container.cpus), _nodes(container.mems), leaving, devices)


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


def _set(text: str) -> CPUSet:
    return CPUSet.parse(text)


def _nodes(text: str) -> tuple[int, ...]:
    return tuple(int(node) for node in text.split(",") if node)
