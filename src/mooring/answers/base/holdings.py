"""Node state in words: devices and huge pages, mixed containers, resized containers.

The lines stand under the picture and under the tables of a plan.
"""

from __future__ import annotations

from collections.abc import Iterator

from mooring.answers.base.plan import Plan
from mooring.engine.core.bits import list_text
from mooring.engine.core.moment import SECOND, Moment
from mooring.engine.core.pod import Pod
from mooring.engine.cpumanager.state import PreAssignment
from mooring.engine.devicemanager.state import Device
from mooring.engine.kubelet.kubelet import Kubelet, shared_cpus
from mooring.engine.node.mixed import is_mixed
from mooring.explain.phrases import size

HUGEPAGES = "hugepages-"


def pool_lines(plan: Plan) -> list[str]:
    """Return the line about a shared pool without any CPU; none where it has one."""
    emptied = plan.emptied_pool
    return [f"[{emptied.code}] {emptied.subject} {emptied.message}."] if emptied is not None else []


def holding_lines(plan: Plan) -> list[str]:
    """Return one line for each device resource and each size of huge pages; empty when the node has neither."""
    if plan.kubelet is None:
        return []
    return [*_hugepage_lines(plan.kubelet), *_device_lines(plan, plan.kubelet)]


def hugepage_lines(plan: Plan) -> list[str]:
    """Return one line for each size of huge pages; empty when the node has none."""
    return list(_hugepage_lines(plan.kubelet)) if plan.kubelet is not None else []


def _hugepage_lines(kubelet: Kubelet) -> Iterator[str]:
    nodes = sorted(kubelet.node.memory.nodes.items())
    for resource in sorted({name for _, state in nodes for name in state.memory if name.startswith(HUGEPAGES)}):
        parts = [
            f"{size(table.free)} of {size(table.allocatable)} on NUMA {node}"
            for node, state in nodes
            if (table := state.memory.get(resource)) is not None and table.allocatable
        ]
        if parts:
            yield f"{resource} free: {', '.join(parts)}."


def _device_lines(plan: Plan, kubelet: Kubelet) -> Iterator[str]:
    devices = kubelet.node.providers.devices
    holders = device_holders(plan, kubelet)
    for resource, offered in sorted(devices.devices.items()):
        parts = [_device(device, holders.get((resource, device.id), "")) for device in offered]
        yield f"{resource}: {'; '.join(parts) or 'no device'}."


def _device(device: Device, holder: str) -> str:
    near = f" (NUMA {', '.join(map(str, device.numa))})" if device.numa else ""
    state = f"held by {holder}" if holder else "free" if device.healthy else "unhealthy"
    return f"{device.id}{near} {state}"


def device_holders(plan: Plan, kubelet: Kubelet) -> dict[tuple[str, str], str]:
    """Return the name of the container that has each device, by resource and id."""
    pods = {answer.pod.uid: answer.pod for answer in plan.answers}
    names = {uid: f"{pod.namespace}/{pod.name}" for uid, pod in pods.items()}
    return {
        device: f"{names.get(uid, uid)}/{container}"
        for (uid, container), devices in devices_by_holder(plan, kubelet).items()
        for device in devices
    }


def devices_by_holder(plan: Plan, kubelet: Kubelet) -> dict[tuple[str, str], frozenset[tuple[str, str]]]:
    """Return the devices, by resource and id, that each container has, by the pod's uid and the container's name.

    A device that an init container left to a later container is the later one's.
    """
    pods = {answer.pod.uid: answer.pod for answer in plan.answers}
    holders: dict[tuple[str, str], tuple[str, str]] = {}
    for uid, containers in kubelet.node.providers.devices.held.items():
        pod = pods.get(uid)
        order = [container.name for container in pod.containers] if pod is not None else sorted(containers)
        for container in order:
            for resource, ids in containers.get(container, {}).items():
                holders.update({(resource, device): (uid, container) for device in ids})
    found: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for device, holder in holders.items():
        found.setdefault(holder, set()).add(device)
    return {holder: frozenset(devices) for holder, devices in found.items()}


def mixed_containers(kubelet: Kubelet, pod: Pod) -> tuple[str, ...]:
    """Return the containers of a pod that may use their own CPUs and the shared pool, in the pod's order.

    Claims are left out: requests that no plan knows decide about their use.
    """
    held = kubelet.node.cpu.assignments.get(pod.uid, {})
    return tuple(one.name for one in pod.containers if is_mixed(kubelet.settings, pod, one, held.get(one.name, 0)))


def mixed_lines(plan: Plan) -> list[str]:
    """Return one line for each mixed container; without the extension mixed-cpus there is none."""
    if plan.kubelet is None:
        return []
    pool = shared_cpus(plan.kubelet)
    where = f"in the shared pool too ({pool})" if pool else "there alone while the shared pool is empty"
    return [
        f"{answer.pod.namespace}/{answer.pod.name}/{name} is mixed: it has CPUs "
        f"{answer.decision.containers[name].cpus} for itself and runs {where}."
        for answer in plan.answers
        if answer.admitted
        for name in mixed_containers(plan.kubelet, answer.pod)
    ]


def resize_lines(plan: Plan, now: Moment | None = None) -> list[str]:
    """Return one line for each container with other CPUs than at first, or about to have others.

    Without the extension exclusive-resize there is none: nothing else moves a container's CPUs.

    Args:
        plan: what was decided.
        now: of the machine's present boot, where that is known.
    """
    kubelet = plan.kubelet
    if kubelet is None or kubelet.settings.cpu is None or not kubelet.settings.cpu.resizes:
        return []
    return list(_lines(plan, kubelet, now))


def _lines(plan: Plan, kubelet: Kubelet, now: Moment | None) -> Iterator[str]:
    pods = {answer.pod.uid: answer.pod for answer in plan.answers}
    state = kubelet.node.cpu
    for uid, held in state.assignments.items():
        pod = pods.get(uid)
        name = f"{pod.namespace}/{pod.name}" if pod is not None else uid
        for container, cpus in held.items():
            baseline = state.baselines.get(uid, {}).get(container, cpus)
            pre = state.pre_assignments.get(uid, {}).get(container)
            if baseline == cpus and pre is None:
                continue
            first = f" (baseline {list_text(baseline)})" if baseline != cpus else ""
            pending = f"; {_leaving(cpus, pre, (now, kubelet.node.moment))}" if pre is not None else ""
            yield f"{name}/{container} has CPUs {list_text(cpus)}{first}{pending}."


def _leaving(cpus: int, pre: PreAssignment, clocks: tuple[Moment | None, ...]) -> str:
    leaving = cpus & ~pre.cpus
    one = leaving.bit_count() == 1
    return f"{'CPU' if one else 'CPUs'} {list_text(leaving)} {'is' if one else 'are'} released {_when(pre, clocks)}"


def _when(pre: PreAssignment, clocks: tuple[Moment | None, ...]) -> str:
    """Say when a delay is over: from now where a clock of the same boot is known."""
    now = next((clock for clock in clocks if clock is not None and clock.boot == pre.apply_at.boot), None)
    if now is None:
        return f"{_seconds(pre.apply_at.since_boot)} after the machine started (boot {pre.apply_at.boot:.8})"
    if pre.apply_at.has_come(now):
        return "at the next reconciliation"
    return f"in {_seconds(pre.apply_at.since_boot - now.since_boot)} or a little later"


def _seconds(nanoseconds: int) -> str:
    return f"{nanoseconds / SECOND:.1f}".removesuffix(".0") + " s"
