"""A plan as a picture and as rows of a table."""

from __future__ import annotations

from collections.abc import Iterator

from mooring.core.cpuset import CPUSet
from mooring.core.machine import Machine
from mooring.core.topology import Topology
from mooring.planner.plan import Answer, Plan, free_cpus, reserved_cpus
from mooring.planner.simulation import Kubelet
from mooring.render.build import Owner, Pools, build_view
from mooring.render.view import NodeView, PlacementRow, RejectedPod


def plan_view(plan: Plan) -> NodeView:
    """Return the picture of the node after the plan; of the bare machine when the kubelet would not start."""
    if plan.kubelet is None:
        return build_view(plan.machine, subtitle="the kubelet would not start")
    kubelet = plan.kubelet
    rejected = [
        RejectedPod(_pod_name(answer), answer.decision.reason or "endless", answer.why)
        for answer in plan.answers
        if not answer.admitted
    ]
    return build_view(
        plan.machine,
        owners=list(_owners(plan, kubelet)),
        pools=_pools(kubelet),
        rejected=rejected,
        subtitle=policies(kubelet),
    )


def machine_view(machine: Machine) -> NodeView:
    """Return the picture of a machine without a kubelet."""
    return build_view(machine)


def _pools(kubelet: Kubelet) -> Pools:
    if kubelet.settings.cpu is None:
        return Pools(reserved=reserved_cpus(kubelet))
    return Pools(reserved_cpus(kubelet), CPUSet(kubelet.node.cpu.default), free_cpus(kubelet))


def policies(kubelet: Kubelet) -> str:
    """Return the policies and the options that are on, in one line."""
    config = kubelet.settings.config
    parts = [f"CPU manager {config.cpu_manager_policy}"]
    parts += sorted(
        name for name, value in config.cpu_manager_policy_options.items() if value.lower() in ("true", "1", "t")
    )
    scope = f", scope {config.topology_manager_scope}" if config.topology_manager_policy != "none" else ""
    parts.append(f"topology manager {config.topology_manager_policy}{scope}")
    return " · ".join(parts)


def _owners(plan: Plan, kubelet: Kubelet) -> Iterator[Owner]:
    pods = {answer.pod.uid: answer.pod for answer in plan.answers}
    for uid, held in kubelet.node.cpu.assignments.items():
        pod = pods.get(uid)
        name = f"{pod.namespace}/{pod.name}" if pod is not None else uid
        order = [container.name for container in pod.containers] if pod is not None else sorted(held)
        for container in (name for name in order if name in held):
            yield Owner(f"{name}/{container}", uid, CPUSet(held[container]))


def plan_rows(plan: Plan, *, why_admitted: bool) -> list[PlacementRow]:
    """Return one row for each container of an admitted pod, and one for each pod that was not admitted.

    Args:
        plan: what was decided.
        why_admitted: whether admitted pods have their sentence too.
    """
    rows: list[PlacementRow] = []
    topology = plan.kubelet.settings.topology if plan.kubelet else None
    for answer in plan.answers:
        rows.extend(_rows(answer, topology, why=answer.why if why_admitted else ""))
    return rows


def _rows(answer: Answer, topology: Topology | None, *, why: str) -> Iterator[PlacementRow]:
    decision, name = answer.decision, _pod_name(answer)
    if not answer.admitted:
        yield PlacementRow(
            name, "", "rejected" if decision.reason else "endless", admitted=False, why=_full_why(answer)
        )
        return
    for position, (container, placement) in enumerate(decision.containers.items()):
        cpus = placement.cpus
        yield PlacementRow(
            pod=name,
            container=container,
            verdict="exclusive" if cpus else "shared",
            admitted=True,
            cpus=cpus,
            cpu_nodes=_nodes(topology, cpus),
            memory_nodes=placement.mems,
            alignment=_alignment(topology, cpus) if cpus and topology is not None else "",
            why=why if position == 0 else "",
        )


def _full_why(answer: Answer) -> str:
    decision = answer.decision
    return f"{decision.reason}: {answer.why} The kubelet says: “{decision.message}”." if decision.reason else answer.why


def _pod_name(answer: Answer) -> str:
    return f"{answer.pod.namespace}/{answer.pod.name}"


def _nodes(topology: Topology | None, cpus: CPUSet) -> tuple[int, ...]:
    if topology is None:
        return ()
    return tuple(node for node, mask in topology.numa.items() if mask & cpus.mask)


def _alignment(topology: Topology, cpus: CPUSet) -> str:
    """Say in a few words what the CPUs keep to themselves."""
    cores = topology.core_siblings(cpus.mask)
    uncores = [mask for mask in topology.uncores.values() if mask & cpus.mask]
    words = ["whole cores" if cores == cpus.mask else "part of a core"]
    if len(uncores) == 1 and len(topology.uncores) > 1:
        words.append("one L3")
    return ", ".join(words)
