"""A plan as a picture and as rows of a table."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from mooring.core.bits import CPUMask
from mooring.core.cpuset import CPUSet
from mooring.core.decision import Placement
from mooring.core.machine import Machine
from mooring.core.moment import Moment
from mooring.core.release import NEWEST
from mooring.core.topology import Topology
from mooring.explain.phrases import nodes_of
from mooring.extensions.hidden import hidden_of
from mooring.extensions.owners import state_owner
from mooring.kubelet.kubelet import Kubelet
from mooring.node.hotplug_findings import hotplug_findings
from mooring.node.isolation import Isolation, cpu_isolation
from mooring.node.node import numa_of_blocks
from mooring.node.settings import Settings
from mooring.planner.answering import Answer
from mooring.planner.devices import device_views, pci_views
from mooring.planner.holdings import (
    devices_by_holder,
    hugepage_lines,
    mixed_containers,
    mixed_lines,
    pool_lines,
    resize_lines,
)
from mooring.planner.plan import Plan, free_cpus, reserved_cpus
from mooring.render.build import CPUOwner, Pools, build_view
from mooring.render.locations import locate_cpus
from mooring.render.view import NO_CPUS, MemoryUse, NodeView, PlacementRow, RejectedPod

_TRUE = ("1", "t", "T", "TRUE", "true", "True")
"""What Go's ParseBool takes for true."""


def plan_view(
    plan: Plan,
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
    if plan.kubelet is None:
        message = plan.refusal.message if plan.refusal else ""
        caption = [f"{plan.kubelet_name} would not start: {message}", *([plan.remedy] if plan.remedy else [])]
        return build_view(
            plan.machine,
            subtitle=f"{plan.decided_by or 'the kubelet'} would not start",
            caption=caption,
            # No pod runs on any of the CPUs.
            pools=Pools(shared=NO_CPUS, others=also),
            devices=pci_views(plan.machine),
        )
    kubelet = plan.kubelet
    rejected = [
        RejectedPod(pod_name(answer), answer.decision.reason or verdict_of(answer), answer.why)
        for answer in plan.answers
        if not answer.admitted
    ]
    return build_view(
        plan.machine,
        owners=[
            replace(owner, hypothetical=owner.uid in hypothetical)
            for owner in (owners_of(plan, kubelet) if owners is None else owners)
        ],
        pools=replace(pools_of(kubelet), others=also),
        memory=_memory(kubelet),
        rejected=rejected,
        subtitle=policies(kubelet.settings),
        caption=[
            *pool_lines(plan),
            *hugepage_lines(plan),
            *resize_lines(plan, now),
            *mixed_lines(plan),
            *(f"{one.subject} {one.message}." for one in hotplug_findings(kubelet.node)),
        ],
        devices=device_views(plan, kubelet),
    )


def machine_view(machine: Machine) -> NodeView:
    """Return the picture of a machine without a kubelet."""
    return build_view(machine, devices=pci_views(machine))


def policies(settings: Settings) -> str:
    """Return in one line the kubelet's release unless it is the newest, the policies and the options that are on."""
    config = settings.config
    parts = [] if settings.release == NEWEST else [f"kubelet {settings.release}"]
    parts += [f"CPU manager {config.cpu_manager_policy}"]
    parts += sorted(name for name, value in config.cpu_manager_policy_options.items() if value in _TRUE)
    scope = f", scope {config.topology_manager_scope}" if config.topology_manager_policy != "none" else ""
    parts.append(f"topology manager {config.topology_manager_policy}{scope}")
    if config.memory_manager_policy != "None":
        parts.append(f"memory manager {config.memory_manager_policy}")
    return " · ".join(parts)


def pools_of(kubelet: Kubelet) -> Pools:
    """Return what the CPUs without an exclusive owner are for, and which CPUs are offline."""
    offline = CPUSet(kubelet.node.cpu.offline)
    if kubelet.settings.cpu is None:
        return Pools(reserved=reserved_cpus(kubelet), offline=offline)
    return Pools(reserved_cpus(kubelet), CPUSet(kubelet.node.cpu.default), free_cpus(kubelet), offline)


def _memory(kubelet: Kubelet) -> dict[int, MemoryUse]:
    """Return the memory manager's account of ordinary memory; empty under its policy ``None``."""
    tables = {node: state.memory.get("memory") for node, state in kubelet.node.memory.nodes.items()}
    return {
        node: MemoryUse(max(0, table.total - table.allocatable), table.reserved)
        for node, table in tables.items()
        if table is not None
    }


def owners_of(plan: Plan, kubelet: Kubelet) -> Iterator[CPUOwner]:
    """Yield the holders of CPUs and devices: of a pod first what it holds as a whole, then its containers in order."""
    pods = {answer.pod.uid: answer.pod for answer in plan.answers}
    state, memory, devices = kubelet.node.cpu, kubelet.node.memory, devices_by_holder(plan, kubelet)
    for uid in dict.fromkeys([*state.pods, *state.assignments, *kubelet.node.providers.devices.held]):
        root = state_owner(uid).root
        pod = pods.get(root)
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


def plan_rows(plan: Plan, *, wide: bool) -> list[PlacementRow]:
    """Return the rows of admitted pods, and one for each pod that was not admitted.

    Args:
        plan: what was decided.
        wide: whether every pod has its rows, and every row says everything; else admitted pods go without their
            sentence, and neighbours that are refused for the same reason are one row.
    """
    caches = l3_caches(plan)
    rows: list[PlacementRow] = []
    for _, group in groupby(enumerate(plan.answers), key=lambda item: _likeness(*item, wide=wide)):
        answers = [answer for _, answer in group]
        if answers[0].admitted:
            why = f"{answers[0].why} [{answers[0].code}]" if wide else ""
            rows.extend(admitted_rows(plan, answers[0], caches, why=why))
        else:
            rows.extend(_refused_rows(answers))
    return rows


def _likeness(position: int, answer: Answer, *, wide: bool) -> object:
    """Return what neighbours share that are one row: pods refused for the same reason, such as replicas."""
    return position if wide or answer.admitted else (verdict_of(answer), _full_why(answer))


def _refused_rows(answers: list[Answer]) -> Iterator[PlacementRow]:
    first, *others = answers
    yield PlacementRow(pod_name(first), "", verdict_of(first), admitted=False, why=_full_why(first))
    if others:
        name = pod_name(others[0])
        if len(others) > 1:
            name = f"{name} to {pod_name(others[-1])} ({len(others)} pods)"
        why = f"For the same reason as {pod_name(first)}."
        yield PlacementRow(name, "", verdict_of(first), admitted=False, why=why)


def l3_caches(plan: Plan) -> tuple[int, ...]:
    """Return the CPUs of each L3 cache as a mask, as the picture of the machine has them; none where none is known."""
    return tuple(locate_cpus(plan.machine).masks(lambda place: place.l3).values())


def admitted_rows(plan: Plan, answer: Answer, caches: Sequence[int], *, why: str) -> Iterator[PlacementRow]:
    """Yield one row for what an admitted pod holds as a whole (KEP-5526), and one for each of its containers.

    Args:
        plan: the plan.
        answer: about the pod.
        caches: CPUs of the L3 caches, as masks.
        why: said in the first row.
    """
    topology = plan.kubelet.settings.topology if plan.kubelet else None
    name = f"{pod_name(answer)} (runs already)" if answer.running else pod_name(answer)
    for position, (container, verdict, placement) in enumerate(_held(plan, answer)):
        cpus = placement.cpus
        known = topology is not None and bool(cpus)
        yield PlacementRow(
            pod=name,
            container=container,
            verdict=verdict,
            admitted=True,
            cpus=cpus,
            cpu_nodes=tuple(nodes_of(topology, cpus.mask)) if topology is not None and known else (),
            memory_nodes=placement.mems,
            alignment=_alignment(topology, caches, cpus, _hidden(plan, answer, container))
            if topology and known
            else "",
            why=why if position == 0 else "",
        )


def _held(plan: Plan, answer: Answer) -> Iterator[tuple[str, str, Placement]]:
    """Yield names, verdicts and placements: of the pod as a whole, whose name is empty, and of its containers."""
    whole = answer.decision.pod
    if whole.cpus or whole.mems:
        yield "", "exclusive" if whole.cpus else "shared", whole
    for position, (container, placement) in enumerate(answer.decision.containers.items()):
        yield container, _holding(plan, answer, position), placement


def _holding(plan: Plan, answer: Answer, position: int) -> str:
    """Say in a word or two with what a container shares its CPUs."""
    if plan.kubelet is None:
        return ""
    kubelet = answer.after if answer.pod.uid in plan.left else plan.kubelet
    node = kubelet.node
    if answer.pod.containers[position].name in mixed_containers(kubelet, answer.pod):
        return "mixed"
    level = cpu_isolation(node.settings, node.providers, answer.pod, answer.pod.containers[position])
    return {Isolation.HOST: "shared", Isolation.POD: "pod pool", Isolation.CONTAINER: "exclusive"}[level]


def verdict_of(answer: Answer) -> str:
    """Say in a word or two what became of a pod that was not admitted."""
    if answer.crash:
        return "crash"
    if answer.decision.endless is not None:
        return "endless"
    return "refused though it ran already" if answer.running else "rejected"


def _full_why(answer: Answer) -> str:
    decision = answer.decision
    why = f"{decision.reason}: {answer.why} The kubelet says: “{decision.message}”." if decision.reason else answer.why
    return f"{why} [{answer.code}]"


def pod_name(answer: Answer) -> str:
    """Return ``namespace/pod``."""
    return f"{answer.pod.namespace}/{answer.pod.name}"


def _hidden(plan: Plan, answer: Answer, container: str) -> int:
    return hidden_of(plan.kubelet.node.cpu, answer.pod.uid, container) if plan.kubelet is not None else 0


def _alignment(topology: Topology, caches: Sequence[int], cpus: CPUSet, hidden: int) -> str:
    """Say in a few words what the CPUs keep to themselves."""
    cores = topology.core_siblings(cpus.mask)
    words = ["one thread of a core" if hidden else "whole cores" if cores == cpus.mask else "part of a core"]
    if len(caches) > 1 and any(not cpus.mask & ~mask for mask in caches):
        words.append("one L3")
    return ", ".join(words)
