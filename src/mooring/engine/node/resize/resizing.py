"""A node whose pods are resized.

Functions beside :class:`~mooring.engine.node.node.Node`, as values in and values out: a resize, the retry of those
that wait, and the reconciliation that ends scale-down delays.

Source: kubelet v1.37.1, pkg/kubelet/allocation; KEP-1287, KEP-5554, KEP-6122; spec: resize.md sections 1 to 5.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from mooring.engine.core.bits import NO_CPUS
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import Placement, Rejection
from mooring.engine.core.observer import Observer
from mooring.engine.core.pod import Pod
from mooring.engine.extensions.facts import CPUsMoved, ScaleDownDropped, ScaleDownStarted
from mooring.engine.extensions.scale_down import reconciled as releases_applied
from mooring.engine.node.facts import ResizeAccepted, ResizeRefused
from mooring.engine.node.node import Node, numa_of_blocks
from mooring.engine.node.resize.admission import ResizeAdmission
from mooring.engine.node.resize.answer import (
    DEFERRED,
    IN_PROGRESS,
    INFEASIBLE,
    PENDING,
    Resize,
    Waiting,
    releases_of,
    retry_order,
)
from mooring.engine.node.resize.feasibility import check_feasible
from mooring.engine.node.resources import check_fit

_DEEDS = (CPUsMoved, ScaleDownDropped, ScaleDownStarted)
"""Facts about what was done; all others are about what was found."""


def resize(node: Node, pod: Pod, observer: Observer | None = None) -> tuple[Node, Resize]:
    """Decide about other resources for an active pod.

    A refused resize leaves everything as it was, except that it waits; a pod has one request at most, and a new one
    takes the place of the old.

    Args:
        node: the node, at the present moment.
        pod: the pod with the resources that it requests.
        observer: receives what was found.

    Raises:
        KeyError: the pod is not active.
    """
    before = node.active[pod.uid]
    waiting = node.waiting.get(pod.uid)
    idle = replace(node, waiting={uid: one for uid, one in node.waiting.items() if uid != pod.uid})
    if _same(before, pod):
        return idle, _answer(idle, pod.uid, accepted=False)
    infeasible = check_feasible(node.settings, node.cpu, before, pod)
    if infeasible is not None:
        rejection = Rejection(infeasible.detail, infeasible.message, infeasible.shortage)
        return _refused(idle, pod, rejection, INFEASIBLE, waiting, observer)
    done: list[object] = []
    told = _without_deeds(observer, done)
    admission = ResizeAdmission(node.settings, before, pod, node.providers, node.moment, told, active=node.active)
    refused = admission.run()
    if refused is not None:
        return _refused(idle, pod, refused, _reason_of_managers(node), waiting, observer)
    others = [one for uid, one in node.active.items() if uid != pod.uid]
    short = check_fit(pod, others, node.settings.reservation, node.settings.max_pods)
    if short is not None:
        return _refused(idle, pod, short, DEFERRED, waiting, observer)
    stored = {**node.stored_hints, pod.uid: admission.stored} if admission.stored else node.stored_hints
    active = {uid: pod if uid == pod.uid else one for uid, one in node.active.items()}
    after = replace(idle, providers=admission.providers, active=active, stored_hints=stored)
    if observer is not None:
        for fact in done:
            observer(fact)
        observer(ResizeAccepted(pod.uid, before, pod))
    events = ("ResizeStarted",) if after.cpu.pre_assignments.get(pod.uid) else ("ResizeStarted", "ResizeCompleted")
    return after, replace(_answer(after, pod.uid, accepted=True), events=events)


def _without_deeds(observer: Observer | None, done: list[object]) -> Observer | None:
    """Return an observer that keeps what was done in a list: a refusal that comes later undoes it."""
    if observer is None:
        return None

    def keeping(fact: object, /) -> None:
        if isinstance(fact, _DEEDS):
            done.append(fact)
        else:
            observer(fact)

    return keeping


def _same(before: Pod, after: Pod) -> bool:
    """Tell whether two specifications of a pod have the same resources."""
    return before.resources == after.resources and all(
        (old.requests, old.limits) == (new.requests, new.limits)
        for old, new in zip(before.containers, after.containers, strict=True)
    )


def _reason_of_managers(node: Node) -> str:
    """With the extension a refusal of the managers is final: room that others release later is not waited for."""
    cpu, memory = node.settings.cpu, node.settings.memory
    is_extended = (cpu is not None and cpu.resizes) or (memory is not None and memory.resizes)
    return INFEASIBLE if is_extended else DEFERRED


def _refused(
    node: Node, pod: Pod, rejection: Rejection, reason: str, before: Waiting | None, observer: Observer | None
) -> tuple[Node, Resize]:
    is_new = before is None or before.reason != reason
    since = node.moment if before is None or is_new else before.since
    after = replace(node, waiting={**node.waiting, pod.uid: Waiting(pod, rejection, reason, since)})
    if observer is not None:
        observer(ResizeRefused(pod.uid, reason, rejection.reason, rejection.message))
    events = (f"Resize{reason}",) if is_new or (before is not None and before.pod != pod) else ()
    return after, replace(_answer(after, pod.uid, accepted=False), events=events)


def retry(node: Node, observer: Observer | None = None) -> tuple[Node, tuple[Resize, ...]]:
    """Try the deferred resizes again, as the kubelet does when a pod came, went or changed, and every few minutes."""
    answers = []
    for one in retry_order(node.waiting.values(), node.active):
        node, answer = resize(node, one.pod, observer)
        answers.append(answer)
    return node, tuple(answers)


def reconcile(node: Node, observer: Observer | None = None, spared: Collection[tuple[str, str]] = ()) -> Node:
    """Give back what containers keep no longer; the same value when nothing is due.

    Args:
        node: the node, at the present moment.
        observer: receives what was released.
        spared: pod uid and container of those whose CPUs cannot be taken back yet.
    """
    cpu = releases_applied(node.cpu, node.moment, observer, spared)
    return node if cpu is node.cpu else replace(node, providers=replace(node.providers, cpu=cpu))


def resize_state(node: Node, uid: str) -> Resize:
    """Return the state of the resize of an active pod, without asking a manager."""
    return _answer(node, uid, accepted=False)


def _answer(node: Node, uid: str, *, accepted: bool) -> Resize:
    pod, cpu, waiting = node.active[uid], node.cpu, node.waiting.get(uid)
    sets, blocks = cpu.assignments.get(uid, {}), node.memory.assignments.get(uid, {})
    releases = releases_of(cpu, uid)
    condition = PENDING if waiting is not None else IN_PROGRESS if releases else ""
    return Resize(
        uid=uid,
        accepted=accepted,
        condition=condition,
        reason=waiting.reason if waiting is not None else "",
        message=waiting.rejection.message if waiting is not None else "",
        rejection=waiting.rejection if waiting is not None else None,
        containers={
            one.name: Placement(CPUSet(sets.get(one.name, NO_CPUS)), numa_of_blocks(blocks.get(one.name, ())))
            for one in pod.containers
        },
        releases=releases,
        baseline={name: CPUSet(mask) for name, mask in cpu.baselines.get(uid, {}).items()},
        shared_pool=CPUSet(cpu.default),
    )
