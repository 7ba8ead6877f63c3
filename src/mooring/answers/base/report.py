"""A plan as a report: the node at every step with what changed, its configuration, and the distances of the machine.

A step shows the node when the kubelet has reclaimed what a rejected pod had been given, as it does when it is asked
next. While running pods are admitted again nothing is reclaimed, because the kubelet does not know yet which pods run.
The last step is the node that ``mooring show`` draws.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from mooring import KUBELET_VERSION
from mooring.answers.base.answering import Answer
from mooring.answers.base.picture import device_views, machine_view, owners_of, plan_view, pools_of
from mooring.answers.base.plan import AnyPlan, Plan, RefusedPlan
from mooring.answers.base.rows import (
    admitted_rows,
    asked_pods,
    device_holders,
    hugepage_lines,
    l3_caches,
    pod_name,
    verdict_of,
)
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import clean
from mooring.engine.core.machine import Machine
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.memorymanager.state import MemoryTable, NUMANodeState
from mooring.engine.node.settings import Settings
from mooring.views import report as reports
from mooring.views.build import CPUOwner, cpu_views, owner_views
from mooring.views.devices import DeviceView
from mooring.views.locations import locate_cpus
from mooring.views.view import CPUUse, CPUView, NodeView


def report_of(plan: AnyPlan) -> reports.ReportView:
    """Return the report about a plan; without steps when the kubelet would not start."""
    if isinstance(plan, RefusedPlan):
        node = replace(plan_view(plan), caption=machine_view(plan.machine).caption)
        refusal = f"{plan.refusal.message}. {plan.remedy}".strip()
        return replace(
            _bare(plan.machine, node),
            kubelet=plan.release.tag,
            pods=tuple(_unasked(plan)),
            refusal=refusal,
            refusal_code=plan.refusal.code,
            findings=plan.findings,
        )
    # The kubelet of every step, the start included
    first, *others = plan.kubelets()
    running = [answer.running for answer in plan.answers]
    shown = [one if was else one.settled() for one, was in zip(others, running, strict=True)]
    kubelets = [*[first, *shown][:-1], plan.kubelet]
    owners = _all_owners(plan, kubelets)
    states = list(_cpu_states(plan, kubelets, owners))
    everything = CPUSet.from_ids({cpu for state in states for cpu in state})
    for state in states:
        # What the machine does not have is shown only while something names it.
        state.update((cpu, CPUView(cpu, CPUUse.OFFLINE)) for cpu in everything if cpu not in state)
    nodes, caches = plan.kubelet.node.memory.nodes, l3_caches(plan)
    accounts = {node: one for node, one in nodes.items() if any(table.total for table in one.memory.values())}
    devices = device_views(plan, plan.kubelet)
    told_elsewhere = {clean(line) for line in hugepage_lines(plan)}
    last = {(owner.label, owner.uid): owner for owner in owners_of(asked_pods(plan), plan.kubelet)}
    node = plan_view(plan, [last.get((owner.label, owner.uid), owner) for owner in owners], everything)
    return reports.ReportView(
        kubelet=plan.release.tag,
        node=replace(node, caption=tuple(line for line in node.caption if line not in told_elsewhere)),
        steps=tuple(_steps(plan, kubelets, states, devices)),
        pods=(*(_pod(plan, step, answer, caches) for step, answer in enumerate(plan.answers, 1)), *_unasked(plan)),
        accounts=accounts if nodes else _totals(plan.machine),
        accounted=bool(nodes),
        devices=devices,
        distances=distances_of(plan.machine),
        findings=plan.findings,
        facts=tuple(settings_facts(plan.kubelet.settings)),
    )


def machine_report(machine: Machine) -> reports.ReportView:
    """Return the report about a machine without a kubelet."""
    return _bare(machine, machine_view(machine))


def _bare(machine: Machine, node: NodeView) -> reports.ReportView:
    state = {cpu.cpu: cpu for cpu in node.cpus()}
    return reports.ReportView(
        kubelet=KUBELET_VERSION,
        node=node,
        steps=(reports.ReportStep(None, reports.changes_between({}, state)),),
        accounts=_totals(machine),
        devices=node.devices,
        distances=distances_of(machine),
        findings=machine.findings,
    )


def _all_owners(plan: Plan, kubelets: Sequence[Kubelet]) -> list[CPUOwner]:
    """Return all owners that ever held CPUs, without their CPUs, in an order that serves every step."""
    found, asked = dict[str, dict[str, CPUOwner]](), asked_pods(plan)
    for kubelet in kubelets:
        for owner in owners_of(asked, kubelet):
            found.setdefault(owner.uid, {}).setdefault(owner.label, CPUOwner(owner.label, owner.uid, CPUSet()))
    pods = {answer.pod.uid: answer for answer in plan.answers}
    ordered: list[CPUOwner] = []
    for uid, held in found.items():
        answer = pods.get(uid)
        labels = []
        if answer is not None:
            name = pod_name(answer)
            labels = [name, *(f"{name}/{container.name}" for container in answer.pod.containers)]
        # What is hidden for a container has a label of its own.
        labels += sorted(held.keys() - set(labels))
        ordered += [held[label] for label in labels if label in held]
    return ordered


def _cpu_states(plan: Plan, kubelets: Sequence[Kubelet], owners: Sequence[CPUOwner]) -> Iterator[dict[int, CPUView]]:
    """Yield every CPU's use and owners at each step, by the rules of the picture."""
    places, asked = locate_cpus(plan.machine), asked_pods(plan)
    idle = owner_views(owners, places)
    for kubelet in kubelets:
        held = {(owner.label, owner.uid): owner.cpus for owner in owners_of(asked, kubelet)}
        now = [held.get((owner.label, owner.uid)) for owner in owners]
        views = [view if cpus is None else replace(view, cpus=cpus) for view, cpus in zip(idle, now, strict=True)]
        yield cpu_views(places, views, pools_of(kubelet))


def _steps(
    plan: Plan, kubelets: Sequence[Kubelet], states: Sequence[dict[int, CPUView]], devices: Sequence[DeviceView]
) -> Iterator[reports.ReportStep]:
    cpus: Mapping[int, CPUView] = {}
    held: Mapping[int, str] = dict.fromkeys(range(len(devices)), "")
    asked = asked_pods(plan)
    for number, (kubelet, state) in enumerate(zip(kubelets, states, strict=True)):
        holders = device_holders(asked, kubelet)
        held_now = {index: holders.get((device.resource, device.id), "") for index, device in enumerate(devices)}
        yield reports.ReportStep(
            pod=number - 1 if number else None,
            cpus=reports.changes_between(cpus, state),
            memory=kubelet.node.memory.nodes,
            devices=tuple((index, now) for index, now in held_now.items() if held[index] != now),
        )
        cpus, held = state, held_now


def _totals(machine: Machine) -> dict[int, NUMANodeState]:
    """Return how much memory there is where no manager accounts for it."""
    sizes = {node: size for node, size in locate_cpus(machine).memory.items() if size}
    return {node: NUMANodeState(0, {"memory": MemoryTable(size, 0, 0, 0, 0)}, ()) for node, size in sizes.items()}


def _pod(plan: Plan, step: int, answer: Answer, caches: Sequence[int]) -> reports.ReportPod:
    admitted = "runs already" if answer.running else "admitted"
    rows = admitted_rows(plan, answer, caches, why="") if answer.admitted else ()
    return reports.ReportPod(
        name=pod_name(answer),
        uid=answer.pod.uid,
        verdict=admitted if answer.admitted else verdict_of(answer),
        admitted=answer.admitted,
        step=step,
        reason=answer.decision.reason,
        message=answer.decision.message,
        why=answer.why,
        remedy=answer.remedy,
        code=answer.code,
        containers=tuple(rows),
    )


def _unasked(plan: AnyPlan) -> Iterator[reports.ReportPod]:
    for pod in plan.unasked:
        yield reports.ReportPod(f"{pod.namespace}/{pod.name}", pod.uid, "not asked", admitted=False)


def settings_facts(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield names and values of the kubelet's settings, as written in its configuration."""
    config = settings.config
    yield "kubelet", settings.release.tag
    yield "CPU manager policy", config.cpu_manager_policy
    yield "CPU manager options", _pairs(config.cpu_manager_policy_options)
    yield "topology manager policy", config.topology_manager_policy
    yield "topology manager scope", config.topology_manager_scope
    yield "topology manager options", _pairs(config.topology_manager_policy_options)
    yield "memory manager policy", config.memory_manager_policy
    policy = settings.cpu
    reserved = CPUSet(policy.reserved) if policy is not None else settings.reservation.cpus
    yield "reserved CPUs", str(reserved) or "none"
    yield (
        "reserved memory",
        "; ".join(f"NUMA node {entry.numa_node}: {_pairs(entry.limits)}" for entry in config.reserved_memory) or "none",
    )
    yield "maximum of pods", str(settings.max_pods)
    yield "feature gates set", _pairs({name: str(value).lower() for name, value in config.feature_gates.items()})
    yield "defects fixed", ", ".join(sorted(settings.fixed_defects)) or "none: all of the kubelet's are reproduced"
    if settings.extensions:
        yield "extensions", ", ".join(sorted(settings.extensions))
    if settings.plugins is not None:
        yield "plugins", ", ".join(one.name for one in settings.plugins.choice.plugins)


def _pairs(values: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={values[name]}" for name in sorted(values)) or "none"


def distances_of(machine: Machine) -> Mapping[int, tuple[int, ...]]:
    """Return the distances between the NUMA nodes: the hardware's, else those that the kubelet knows."""
    hardware = machine.hardware
    if hardware is not None and hardware.distances:
        return dict(zip(hardware.distance_nodes, hardware.distances, strict=True))
    # A node's row is by ascending node id, with no entry for absent ids (cAdvisor 0.60.5).
    told = sorted(machine.info.topology, key=lambda node: node.node_id)
    rows = {node.node_id: node.distances for node in told if node.distances is not None}
    return rows if all(node.distances is not None and len(node.distances) == len(told) for node in told) else {}
