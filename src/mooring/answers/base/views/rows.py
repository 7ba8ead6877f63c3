"""A plan as rows of a table: which container has which CPUs and memory, and which pod was refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from mooring.answers.base.answering import Answer
from mooring.answers.base.holdings import mixed_containers
from mooring.answers.base.plan import Plan
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import Placement
from mooring.engine.core.topology import Topology
from mooring.engine.extensions.owners import hidden_of
from mooring.engine.node.isolation import Isolation, cpu_isolation
from mooring.explain.phrases import nodes_of
from mooring.views.locations import locate_cpus
from mooring.views.view import PlacementRow


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
