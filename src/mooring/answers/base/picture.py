"""A plan as a picture of its node, with the devices."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from mooring.answers.base import rows
from mooring.answers.base.plan import AnyPlan, Plan, RefusedPlan, decided_by
from mooring.engine.core.bits import CPUMask
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.machine import Machine
from mooring.engine.core.moment import Moment
from mooring.engine.core.pod import Pod
from mooring.engine.devicemanager.state import Device
from mooring.engine.extensions.owners import state_owner
from mooring.engine.kubelet.kubelet import Kubelet, free_cpus, reserved_cpus
from mooring.engine.node.hotplug import hotplug_findings
from mooring.engine.node.node import numa_of_blocks
from mooring.engine.node.settings import policies
from mooring.inputs.configuration.devices import offered_devices
from mooring.lazy import lazily
from mooring.views.build import CPUOwner, Pools, build_view
from mooring.views.devices import DeviceView
from mooring.views.view import NO_CPUS, CPUUse, MemoryUse, NodeView, RejectedPod

with lazily():
    import mooring.engine.extensions.owners as pci


def plan_view(
    plan: AnyPlan,
    owners: Sequence[CPUOwner] | None = None,
    also: CPUSet = NO_CPUS,
    now: Moment | None = None,
    hypothetical: Container[str] = (),
) -> NodeView:
    """Return the picture of the node after the plan; of the bare machine when the kubelet would not start.

    Args:
        plan: what was decided.
        owners: to include, also without CPUs; by default the holders of CPUs.
        also: further CPUs that are to be in it.
        hypothetical: uids of pods that the picture marks as not on the node.
        now: of the machine's present boot, where that is known; it tells how long releases still take.
    """
    if isinstance(plan, RefusedPlan):
        caption = [plan.sentence, *([plan.remedy] if plan.remedy else [])]
        return build_view(
            plan.machine,
            subtitle=f"{decided_by(plan.release.tag) or 'the kubelet'} would not start",
            caption=caption,
            # No pod runs on any of the CPUs.
            pools={CPUUse.SHARED: NO_CPUS, CPUUse.LEFT_OUT: also},
            devices=machine_devices(plan.machine),
        )
    kubelet = plan.kubelet
    rejected = [
        RejectedPod(rows.pod_name(answer), answer.decision.reason or rows.verdict_of(answer), answer.why)
        for answer in plan.answers
        if not answer.admitted
    ]
    # The memory manager's account of ordinary memory; empty under its policy `None`
    nodes = kubelet.node.memory.nodes
    pages = {
        node: {
            kind: (table.free, table.allocatable)
            for kind, table in sorted(state.memory.items())
            if kind.startswith(rows.HUGEPAGES) and table.allocatable
        }
        for node, state in nodes.items()
    }
    view = build_view(
        plan.machine,
        owners=[
            replace(owner, hypothetical=owner.uid in hypothetical)
            for owner in (owners_of(rows.asked_pods(plan), kubelet) if owners is None else owners)
        ],
        pools={**pools_of(kubelet), CPUUse.LEFT_OUT: also},
        memory={
            node: MemoryUse(max(0, table.total - table.allocatable), table.reserved, pages[node])
            for node, state in nodes.items()
            if (table := state.memory.get("memory")) is not None
        },
        rejected=rejected,
        subtitle=policies(kubelet.settings),
        caption=[
            *rows.pool_lines(plan.findings),
            *rows.hugepage_lines(plan),
            *rows.resize_lines(plan, now),
            *rows.mixed_lines(plan),
            *(f"{one.subject} {one.message}." for one in hotplug_findings(kubelet.node)),
        ],
        devices=device_views(plan, kubelet),
    )
    return replace(view, headline=rows.plan_counts(plan))


def machine_view(machine: Machine) -> NodeView:
    """Return the picture of a machine without a kubelet."""
    return build_view(machine, devices=machine_devices(machine))


def pools_of(kubelet: Kubelet) -> Pools:
    """Return what the CPUs without an exclusive owner are for, and which CPUs are offline."""
    cpu = kubelet.node.cpu
    known = {CPUUse.RESERVED: reserved_cpus(kubelet), CPUUse.OFFLINE: CPUSet(cpu.offline)}
    if kubelet.settings.cpu is None:
        return known
    return {**known, CPUUse.SHARED: CPUSet(cpu.default), CPUUse.FREE: free_cpus(kubelet)}


def owners_of(asked: Mapping[str, Pod], kubelet: Kubelet) -> Iterator[CPUOwner]:
    """Yield the holders of CPUs and devices: of a pod first what it holds as a whole, then its containers in order."""
    state, memory, devices = kubelet.node.cpu, kubelet.node.memory, rows.devices_by_holder(asked, kubelet)
    for uid in dict.fromkeys([*state.pods, *state.assignments, *kubelet.node.providers.devices.held]):
        root = state_owner(uid).root
        pod = asked.get(root) or kubelet.node.active.get(root)
        held = state.assignments.get(uid, {})
        name = f"{pod.namespace}/{pod.name}" if pod is not None else root
        if uid in state.pods:
            blocks = memory.pods.get(uid, ())
            yield CPUOwner(name, uid, CPUSet(state.pods[uid]), numa_of_blocks(blocks))
        holding = {*held, *(container for holder, container in devices if holder == uid)}
        order = [container.name for container in pod.containers] if pod is not None else sorted(holding)
        for container in order:
            if container in holding:
                blocks = memory.assignments.get(uid, {}).get(container, ())
                pre = state.pre_assignments.get(uid, {}).get(container)
                cpus = held.get(container, CPUMask(0))
                leaving = CPUSet(cpus & ~pre.cpus) if pre is not None else NO_CPUS
                label = state_owner(uid, container).label(name)
                own = devices.get((uid, container), frozenset())
                yield CPUOwner(label, root, CPUSet(cpus), numa_of_blocks(blocks), leaving, own)


def device_views(plan: Plan, kubelet: Kubelet) -> tuple[DeviceView, ...]:
    """Return the devices of the device plugins with the containers that have them; without any, those of the PCI bus.

    Args:
        plan: that names the pods.
        kubelet: at the time to show.
    """
    offered = _offered(
        kubelet.node.providers.devices.devices, plan.machine, rows.device_holders(rows.asked_pods(plan), kubelet)
    )
    return offered or machine_devices(plan.machine)


def _offered(
    offered: Mapping[str, Sequence[Device]], machine: Machine, holders: Mapping[tuple[str, str], str]
) -> tuple[DeviceView, ...]:
    roots = {device.address: device.root for device in machine.pci}
    return tuple(
        DeviceView(
            resource,
            device.id,
            device.numa or (),
            device.healthy,
            address=(address := pci.pci_address(device.id)),
            root=roots.get(address, ""),
            owner=holders.get((resource, device.id), ""),
        )
        for resource, devices in sorted(offered.items())
        for device in devices
    )


def devices_before(plan: AnyPlan, uid: str) -> tuple[DeviceView, ...]:
    """Return the devices as they were when the kubelet was asked about a pod."""
    if isinstance(plan, RefusedPlan):
        return ()
    place = next((place for place, answer in enumerate(plan.answers) if answer.pod.uid == uid), None)
    return device_views(plan, next(islice(plan.kubelets(), place, None))) if place is not None else ()


def machine_devices(machine: Machine) -> tuple[DeviceView, ...]:
    """Return the devices that come with the machine; without any, network, storage and compute on its PCI bus."""
    if own := _offered(offered_devices({}, machine), machine, {}):
        return own
    found = [
        DeviceView(
            device.kind,
            device.address,
            () if device.numa is None else (device.numa,),
            address=device.address,
            root=device.root,
            offered=False,
        )
        for device in machine.pci
        if device.kind
    ]
    return tuple(sorted(found, key=lambda view: (view.resource, view.root, view.id)))
