"""A plan as rows of tables, and its node in words: devices, huge pages, mixed containers, resized containers.

The lines stand under the picture and under the tables of a plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import chain, groupby
from typing import Any

from mooring import DISTRIBUTION
from mooring.answers.base.answering import Answer
from mooring.answers.base.plan import Plan
from mooring.documents.plan import FindingPart
from mooring.engine.core.bits import list_text, mask_of
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding
from mooring.engine.core.moment import SECOND, Moment
from mooring.engine.core.pod import Pod
from mooring.engine.cpumanager.state import PreAssignment
from mooring.engine.devicemanager.state import Device
from mooring.engine.extensions.owners import hidden_of
from mooring.engine.kubelet.kubelet import Kubelet, free_cpus, reserved_cpus, shared_cpus
from mooring.engine.node.providers import Isolation, cpu_isolation, mixed_containers
from mooring.explanations.codes import POOL_EMPTY
from mooring.explanations.phrases import cpus_text, nodes_of, plural, size
from mooring.explanations.story import PodVerdict
from mooring.views.locations import locate_cpus
from mooring.views.view import PlacementRow

_MOST_NAMED = 5


def plan_rows(plan: Plan, *, wide: bool) -> list[PlacementRow]:
    """Return the rows of admitted pods, and one for each pod that was not admitted.

    Args:
        plan: what was decided.
        wide: whether every pod has its rows, and every row says everything; else admitted pods go without their
            sentence, and neighbours that are refused for the same reason are one row.
    """
    caches = l3_caches(plan)
    rows: list[PlacementRow] = []

    def likeness(item: tuple[int, Answer]) -> object:
        position, answer = item
        return position if wide or answer.admitted else (verdict_of(answer), _full_why(answer))

    for _, group in groupby(enumerate(plan.answers), likeness):
        first, *others = [answer for _, answer in group]
        name, verdict = pod_name(first), verdict_of(first)
        if first.admitted:
            rows += admitted_rows(plan, first, caches, why=f"{first.why} [{first.code}]" if wide else "")
            continue
        rows.append(PlacementRow(name, "", verdict, admitted=False, why=_full_why(first)))
        if others:
            again = pod_name(others[0])
            if len(others) > 1:
                again = f"{again} to {pod_name(others[-1])} ({len(others)} pods)"
            rows.append(PlacementRow(again, "", verdict, admitted=False, why=f"For the same reason as {name}."))
    return rows


def dataframe(plan: Plan) -> Any:
    """Return the rows of a plan as a DataFrame: one for each container of an admitted pod, and for each other pod.

    Raises:
        InputError: neither pandas nor polars is installed.
    """
    name = next((one for one in ("pandas", "polars") if find_spec(one)), "")
    if not name:
        raise InputError("neither pandas nor polars is installed", remedy=f"pip install '{DISTRIBUTION}[notebook]'")
    columns = ("pod", "container", "admitted", "verdict", "cpus", "cpu_nodes", "memory_nodes", "alignment", "why")
    rows = plan_rows(plan, wide=True)
    values = {column: [getattr(row, column) for row in rows] for column in columns}
    values |= {"cpus": [str(row.cpus) for row in rows], "cpu_count": [len(row.cpus) for row in rows]}
    return import_module(name).DataFrame(values)


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
    topology = plan.kubelet.settings.topology
    uid, memory = answer.pod.uid, plan.kubelet.node.memory
    held = plan.kubelet.node.providers.devices.held.get(uid, {})
    blocks = {"": memory.pods.get(uid, ()), **memory.assignments.get(uid, {})}
    name = f"{pod_name(answer)} (runs already)" if answer.running else pod_name(answer)
    whole = answer.decision.pod
    has = [("", "exclusive" if whole.cpus else "shared", whole)] if whole.cpus or whole.mems else []
    settings, pod = plan.kubelet.settings, answer.pod
    providers = answer.decided if uid in plan.left else plan.kubelet.node.providers
    mixed = mixed_containers(settings, providers, pod)
    # With what a container shares its CPUs
    sharing = {Isolation.HOST: "shared", Isolation.POD: "pod pool", Isolation.CONTAINER: "exclusive"}
    for one, (container, placement) in zip(pod.containers, answer.decision.containers.items(), strict=False):
        level = sharing[cpu_isolation(settings, providers, pod, one)]
        has.append((container, "mixed" if one.name in mixed else level, placement))
    for position, (container, verdict, placement) in enumerate(has):
        cpus, devices = placement.cpus, held.get(container, {})
        sizes: Counter[str] = Counter()
        for block in blocks.get(container, ()):
            if block.type.startswith(HUGEPAGES):
                sizes[block.type.removeprefix(HUGEPAGES)] += block.size
        pages = (f"{size(amount)}{f' of {kind}' if len(sizes) > 1 else ''}" for kind, amount in sorted(sizes.items()))
        ids = ",".join(sorted(chain(*devices.values())))
        counts = (f"{len(found)} {resource.rpartition('/')[2]}" for resource, found in sorted(devices.items()) if found)
        words: list[str] = []
        if topology is not None and cpus:
            is_whole = topology.core_siblings(cpus.mask) == cpus.mask
            hides = hidden_of(plan.kubelet.node.cpu, uid, container)
            words = ["one thread of a core" if hides else "whole cores" if is_whole else "part of a core"]
            if len(caches) > 1 and any(not cpus.mask & ~mask for mask in caches):
                words.append("one L3")
        yield PlacementRow(
            pod=name,
            container=container,
            verdict=verdict,
            admitted=True,
            cpus=cpus,
            cpu_nodes=tuple(nodes_of(topology, cpus.mask)) if topology is not None and cpus else (),
            memory_nodes=placement.mems,
            hugepages=", ".join(pages),
            devices=ids if len(ids) <= _MOST_IDS else ", ".join(counts),
            alignment=", ".join(words),
            why=why if position == 0 else "",
        )


_MOST_IDS = 24
"""Characters of the ids of devices that are named one by one."""


def verdict_of(answer: Answer) -> str:
    """Say in a word or two what became of a pod that was not admitted."""
    again = answer.running and answer.verdict is PodVerdict.REJECTED
    return "refused though it ran already" if again else answer.verdict


def _full_why(answer: Answer) -> str:
    decision = answer.decision
    why = f"{decision.reason}: {answer.why} The kubelet says: “{decision.message}”." if decision.reason else answer.why
    return f"{why} [{answer.code}]"


def pod_name(answer: Answer) -> str:
    """Return ``namespace/pod``."""
    return f"{answer.pod.namespace}/{answer.pod.name}"


HUGEPAGES = "hugepages-"


def plan_counts(plan: Plan) -> str:
    """Return how many pods were admitted, refused and not asked."""
    answered = [answer for answer in plan.answers if not answer.never_returns]
    ran = [answer for answer in answered if answer.running]
    new = [answer for answer in answered if not answer.running]
    sentences = []
    if new:
        rejected = sum(not answer.admitted for answer in new)
        sentences.append(f"{plural(len(new) - rejected, 'pod')} admitted, {rejected} rejected.")
    if ran:
        refused = sum(not answer.admitted for answer in ran)
        sentences.append(f"Of {plural(len(ran), 'pod')} that ran already, {refused or 'none'} would be refused.")
    crashes = [answer.pod for answer in plan.answers if answer.crash]
    ended = bool(plan.answers) and (bool(plan.unasked) or plan.answers[-1].decision.endless is not None)
    if crashes and not ended:
        names = ", ".join(f"{pod.namespace}/{pod.name}" for pod in crashes[:_MOST_NAMED])
        more = f" and {len(crashes) - _MOST_NAMED} more" if len(crashes) > _MOST_NAMED else ""
        sentences.append(f"The kubelet would crash on {names}{more}; the plan goes on without.")
    if ended:
        last = plan.answers[-1].pod
        unasked = f"; {plural(len(plan.unasked), 'pod')} after it not asked" if plan.unasked else ""
        sentences.append(f"The kubelet would not return from {last.namespace}/{last.name}{unasked}.")
    return " ".join(sentences)


def pool_lines(findings: Iterable[Finding | FindingPart]) -> list[str]:
    """Return the line about a shared pool without any CPU; none where it has one."""
    return [f"[{one.code}] {one.subject} {one.message}." for one in findings if one.code == POOL_EMPTY][:1]


def free_line(kubelet: Kubelet) -> str:
    """Return the line about the shared pool, and what is still free."""
    if kubelet.settings.cpu is None:
        return "CPU manager policy none: every container may run on all CPUs, and none gets CPUs of its own."
    pool = shared_cpus(kubelet)
    return (
        f"Shared pool: {plural(len(pool), 'CPU')} ({pool or 'empty'}); reserved: {reserved_cpus(kubelet) or 'none'}; "
        f"still free for exclusive use: {len(free_cpus(kubelet))}."
    )


def hugepage_lines(plan: Plan) -> Iterator[str]:
    """Yield one line for each size of huge pages; none when the node has none."""
    nodes = sorted(plan.kubelet.node.memory.nodes.items())
    for resource in sorted({name for _, state in nodes for name in state.memory if name.startswith(HUGEPAGES)}):
        equal: dict[str, list[int]] = {}
        for node, state in nodes:
            if (table := state.memory.get(resource)) is not None and table.allocatable:
                equal.setdefault(f"{size(table.free)} of {size(table.allocatable)}", []).append(node)
        if equal:
            told = (f"{amounts} on NUMA {list_text(mask_of(found))}" for amounts, found in equal.items())
            yield f"{resource} free: {', '.join(told)}."


def device_lines(plan: Plan) -> Iterator[str]:
    """Yield a line for each resource of devices, with who holds which; devices in a row that are alike are one."""
    devices = plan.kubelet.node.providers.devices
    holders = device_holders(asked_pods(plan), plan.kubelet)

    def told(resource: str, one: Device) -> str:
        near = f" (NUMA {', '.join(map(str, one.numa))})" if one.numa else ""
        holder = holders.get((resource, one.id), "")
        return f"{near} {f'held by {holder}' if holder else 'free' if one.healthy else 'unhealthy'}"

    for resource, offered in sorted(devices.devices.items()):
        parts = []
        for words, alike in groupby(offered, partial(told, resource)):
            ids = [one.id for one in alike]
            parts.append(f"{f'{ids[0]} to {ids[-1]}' if len(ids) > 2 else ', '.join(ids)}{words}")
        yield f"{resource}: {'; '.join(parts) or 'no device'}."


def asked_pods(plan: Plan) -> dict[str, Pod]:
    """Return the pods that a plan was asked about, by uid."""
    return {answer.pod.uid: answer.pod for answer in plan.answers}


def device_holders(asked: Mapping[str, Pod], kubelet: Kubelet) -> dict[tuple[str, str], str]:
    """Return the name of the container that has each device, by resource and id."""

    def name(uid: str) -> str:
        pod = asked.get(uid) or kubelet.node.active.get(uid)
        return f"{pod.namespace}/{pod.name}" if pod is not None else uid

    return {
        device: f"{name(uid)}/{container}"
        for (uid, container), devices in devices_by_holder(asked, kubelet).items()
        for device in devices
    }


def devices_by_holder(asked: Mapping[str, Pod], kubelet: Kubelet) -> dict[tuple[str, str], frozenset[tuple[str, str]]]:
    """Return the devices, by resource and id, that each container has, by the pod's uid and the container's name.

    A device that an init container left to a later container is the later one's.
    """
    holders: dict[tuple[str, str], tuple[str, str]] = {}
    for uid, containers in kubelet.node.providers.devices.held.items():
        pod = asked.get(uid) or kubelet.node.active.get(uid)
        order = [container.name for container in pod.containers] if pod is not None else sorted(containers)
        for container in order:
            for resource, ids in containers.get(container, {}).items():
                holders.update({(resource, device): (uid, container) for device in ids})
    found: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for device, holder in holders.items():
        found.setdefault(holder, set()).add(device)
    return {holder: frozenset(devices) for holder, devices in found.items()}


def mixed_lines(plan: Plan) -> list[str]:
    """Return one line for each mixed container; without the extension mixed-cpus there is none."""
    pool = shared_cpus(plan.kubelet)
    where = f"in the shared pool too ({pool})" if pool else "there alone while the shared pool is empty"
    return [
        f"{answer.pod.namespace}/{answer.pod.name}/{name} is mixed: it has CPUs "
        f"{answer.decision.containers[name].cpus} for itself and runs {where}."
        for answer in plan.answers
        if answer.admitted
        for name in mixed_containers(plan.kubelet.settings, plan.kubelet.node.providers, answer.pod)
    ]


def resize_lines(plan: Plan, now: Moment | None = None) -> list[str]:
    """Return one line for each container with other CPUs than at first, or about to have others.

    Without the extension exclusive-resize there is none: nothing else moves a container's CPUs.

    Args:
        plan: what was decided.
        now: of the machine's present boot, where that is known.
    """
    kubelet, state, lines = plan.kubelet, plan.kubelet.node.cpu, list[str]()
    if kubelet.settings.cpu is None or not kubelet.settings.cpu.resizes:
        return lines
    names = {answer.pod.uid: pod_name(answer) for answer in plan.answers}
    for uid, held in state.assignments.items():
        for container, cpus in held.items():
            baseline = state.baselines.get(uid, {}).get(container, cpus)
            pre = state.pre_assignments.get(uid, {}).get(container)
            if baseline == cpus and pre is None:
                continue
            text = f"{names.get(uid, uid)}/{container} has CPUs {list_text(cpus)}"
            text += f" (baseline {list_text(baseline)})" if baseline != cpus else ""
            if pre is not None:
                leaving = cpus & ~pre.cpus
                are = "is" if leaving.bit_count() == 1 else "are"
                text += f"; {cpus_text(leaving)} {are} released {_when(pre, (now, kubelet.node.moment))}"
            lines.append(f"{text}.")
    return lines


def _when(pre: PreAssignment, clocks: tuple[Moment | None, ...]) -> str:
    """Say when a delay is over: from now where a clock of the same boot is known."""

    def seconds(nanoseconds: int) -> str:
        return f"{nanoseconds / SECOND:.1f}".removesuffix(".0") + " s"

    now = next((clock for clock in clocks if clock is not None and clock.boot == pre.apply_at.boot), None)
    if now is None:
        return f"{seconds(pre.apply_at.since_boot)} after the machine started (boot {pre.apply_at.boot:.8})"
    if pre.apply_at.has_come(now):
        return "at the next reconciliation"
    return f"in {seconds(pre.apply_at.since_boot - now.since_boot)} or a little later"
