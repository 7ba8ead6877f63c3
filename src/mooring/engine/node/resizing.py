"""Asking the managers about a pod that is resized: hints, merge and new sets in the scope's order.

In v1.37.1 the CPU and memory manager have no opinion about a resize and change nothing; devices are asked as ever.
With the extension exclusive-resize they answer by the rules of KEP-5554. Up to v1.36 they answer as for a new pod
(rule resize-asks-like-admission; spec: releases.md section 5). Nothing is kept of a resize that fails: it
works on values of its own. What can never be resized is refused before (:mod:`mooring.engine.node.resources`).

Source: kubelet v1.37.1, topologymanager scope_*.go with operation resize; KEP-1287, KEP-5554; spec: resize.md
sections 1 and 4.

A node whose pods are resized.

Functions beside :class:`~mooring.engine.node.node.Node`, as values in and values out: a resize, and the reconciliation
that ends scale-down delays. When those that wait are tried again, :mod:`mooring.engine.kubelet.events` says.

Source: kubelet v1.37.1, pkg/kubelet/allocation; KEP-1287, KEP-5554, KEP-6122; spec: resize.md sections 1 to 5.
"""

from __future__ import annotations

from collections.abc import Collection

from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import AllocationError, Endless, Observer, Rejection
from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.core.pod import Container, Pod, with_entry
from mooring.engine.cpumanager.static import near
from mooring.engine.extensions import cpu_resize, memory_resize
from mooring.engine.extensions.facts import CPUsMoved, ScaleDownDropped, ScaleDownStarted
from mooring.engine.extensions.scale_down import reconciled as releases_applied
from mooring.engine.extensions.scale_down import taken_over
from mooring.engine.node import resources
from mooring.engine.node.admission import (
    AFFINITY_MESSAGE,
    TOPOLOGY_AFFINITY_ERROR,
    UNEXPECTED_ADMISSION_ERROR,
    Admission,
    diverted,
    joined,
)
from mooring.engine.node.decision import NO_AFFINITY, Decision, HintsAsked
from mooring.engine.node.facts import ResizeAccepted, ResizeRefused
from mooring.engine.node.node import Node, made_decision, placements_of
from mooring.engine.node.providers import hints_of_devices, hints_of_resize, policy_of
from mooring.engine.node.resources import check_fit
from mooring.engine.node.settings import Settings
from mooring.engine.topologymanager.hints import Hint
from mooring.engine.topologymanager.merge import NONE, RESTRICTED, SINGLE_NUMA_NODE, is_admitted, merge
from mooring.engine.topologymanager.wide import merge_entries
from mooring.lazy import replace

_AFFINITY_ERROR = Rejection(TOPOLOGY_AFFINITY_ERROR, AFFINITY_MESSAGE)
_DEEDS = (CPUsMoved, ScaleDownDropped, ScaleDownStarted)
"""Facts about what was done; all others are about what was found. A refusal that comes later undoes them."""


def _decided(node: Node, before: Pod, pod: Pod, observer: Observer | None) -> tuple[Admission, Rejection | None]:
    """Ask the managers about other resources for a pod.

    Returns:
        The admission with what the managers would have then, and what they refused.

    Raises:
        KubeletCrashError: the kubelet would not return.
    """
    admission = Admission(
        settings=node.settings,
        pod=pod,
        active={**node.active, pod.uid: pod},
        providers=node.providers,
        stored={},
        sources_ready=True,
        observer=observer,
        now=node.moment,
    )
    settings = node.settings
    if settings.release.rules.resize_asks_like_admission and not _is_extended(settings):
        # The facts of an admission would be wrong for a resize, so none are reported.
        admission.observer = None
        verdict = admission.run()
        if isinstance(verdict, Endless):
            raise KubeletCrashError(f"the kubelet would not return (defect {verdict.defect})")
        return admission, verdict
    by_pod = settings.pod_scope and settings.topology_policy != NONE
    if by_pod:
        hint = _merged(admission, policy_of(settings, node.providers, pod, ""), None)
        if hint is None:
            return admission, _AFFINITY_ERROR
        admission.stored = {container.name: hint for container in pod.containers}
    for container in pod.containers:
        policy = policy_of(settings, admission.providers, pod, container.name)
        if policy != NONE and not by_pod:
            hint = _merged(admission, policy, container)
            if hint is None:
                return admission, _AFFINITY_ERROR
            admission.stored[container.name] = hint
        refused = _resize_cpus(admission, before, container) or _resize_memory(admission, container)
        if refused is not None:
            return admission, refused
    return admission, None


def _merged(admission: Admission, policy: str, container: Container | None) -> Hint | None:
    """Merge the hints for one container, or for the whole pod; None when the policy does not admit."""
    settings, given, pod, observer = admission.settings, admission.providers, admission.pod, admission.observer
    cpu, memory = settings.cpu, settings.memory
    devices = hints_of_devices(settings, given, pod, container, observer)
    cpus = blocks = None
    if cpu is not None and cpu.resizes:
        cpus = hints_of_resize(cpu, given.cpu, pod, container, observer)
    if memory is not None and memory.resizes and container is None:
        blocks = memory_resize.pod_hints(memory, given.memory, pod, observer)
    elif memory is not None and memory.resizes and container is not None:
        blocks = memory_resize.container_hints(memory, given.memory, pod, container, observer)
    hints = devices, cpus, blocks
    name = "" if container is None else container.name
    admission.scored[name] = HintsAsked(settings, given, hints, policy)
    if container is None:
        admission.pod_hints = joined(hints)
    else:
        admission.hints[name] = joined(hints)
    merged = merge(policy, merge_entries(hints), settings.numa, observer)
    return merged if is_admitted(policy, merged) else None


def _resize_cpus(admission: Admission, before: Pod, container: Container) -> Rejection | None:
    policy, pod, providers = admission.settings.cpu, admission.pod, admission.providers
    if policy is None or not policy.resizes:
        return None
    old = next(one for one in before.containers if one.name == container.name)
    if old.requests.get("cpu") == container.requests.get("cpu"):
        # A delay that runs for it continues: only a request for this container begins it again.
        return None
    hint, state = admission.stored.get(container.name, NO_AFFINITY), providers.cpu
    found = cpu_resize.resized_set(policy, state, pod, container, hint.mask, admission.observer)
    if isinstance(found, AllocationError):
        return Rejection(found.reason or UNEXPECTED_ADMISSION_ERROR, found.message)
    if found is None:
        return None
    if hint.mask is not None and admission.settings.topology_policy in (RESTRICTED, SINGLE_NUMA_NODE):
        # In pod scope one hint speaks for all containers: what one of them gives up counts as room for the next,
        # also when it goes back later only. Where the new CPUs lie elsewhere, the resize succeeds in two steps.
        new = found & ~state.assignments[pod.uid][container.name]
        if new & ~near(policy, new, hint.mask):
            return _AFFINITY_ERROR
    state = taken_over(policy, state, pod, container.name, found, admission.now, admission.observer)
    admission.providers = replace(providers, cpu=state)
    return None


def _resize_memory(admission: Admission, container: Container) -> Rejection | None:
    policy, providers = admission.settings.memory, admission.providers
    if policy is None or not policy.resizes:
        return None
    hint = admission.stored.get(container.name, NO_AFFINITY)
    found = memory_resize.grown(policy, providers.memory, admission.pod, container, hint, admission.observer)
    if isinstance(found, AllocationError):
        return Rejection(found.reason or UNEXPECTED_ADMISSION_ERROR, found.message)
    admission.providers = replace(providers, memory=found)
    return None


def resize(node: Node, pod: Pod, observer: Observer | None = None) -> tuple[Node, resources.Resize]:
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
    # Whether two specifications of a pod have the same resources
    if before.resources == pod.resources and all(
        (old.requests, old.limits) == (new.requests, new.limits)
        for old, new in zip(before.containers, pod.containers, strict=True)
    ):
        return idle, resize_state(idle, pod.uid)
    infeasible = resources.check_feasible(node.settings, node.cpu, before, pod)
    if infeasible is not None:
        return _refused(idle, pod, infeasible, resources.INFEASIBLE, waiting, observer)
    done: list[object] = []
    admission, refused = _decided(node, before, pod, diverted(observer, _DEEDS, done))
    if refused is not None:
        reason = resources.INFEASIBLE if _is_extended(node.settings) else resources.DEFERRED
        return _refused(idle, pod, refused, reason, waiting, observer)
    others = [one for uid, one in node.active.items() if uid != pod.uid]
    short = check_fit(pod, others, node.settings.reservation, node.settings.max_pods)
    if short is not None:
        return _refused(idle, pod, short, resources.DEFERRED, waiting, observer)
    stored = with_entry(node.stored_hints, pod.uid, admission.stored) if admission.stored else node.stored_hints
    active = {uid: pod if uid == pod.uid else one for uid, one in node.active.items()}
    after = replace(idle, providers=admission.providers, active=active, stored_hints=stored)
    if observer is not None:
        for fact in done:
            observer(fact)
        observer(ResizeAccepted(pod.uid, before, pod))
    events = ("ResizeStarted",) if after.cpu.pre_assignments.get(pod.uid) else ("ResizeStarted", "ResizeCompleted")
    return after, replace(resize_state(after, pod.uid, accepted=True), events=events)


def ask_managers(node: Node, pod: Pod) -> tuple[Node, Decision, Rejection | None]:
    """Decide about other resources by the check of what is feasible and by the managers alone, as for a recording.

    What the node has free, and which resizes wait, is not looked at; nothing waits afterwards.

    Returns:
        The node, the decision, and what the check refused, before any manager was asked.
    """
    before = node.active[pod.uid]
    infeasible = resources.check_feasible(node.settings, node.cpu, before, pod)
    if infeasible is not None:
        verdict = Rejection(resources.INFEASIBLE, infeasible.message)
        return node, made_decision(node.providers, pod, None, node.stored_hints, verdict), infeasible
    node = node.settled()
    admission, refused = _decided(node, before, pod, None)
    stored = {**node.stored_hints, pod.uid: {**node.stored_hints.get(pod.uid, {}), **admission.stored}}
    after = replace(node, stored_hints=stored)
    if refused is None:
        after = replace(after, providers=admission.providers, active={**node.active, pod.uid: pod})
    return after, made_decision(after.providers, pod, admission, stored, refused), None


def _is_extended(settings: Settings) -> bool:
    """With the extension a refusal of the managers is final: room that others release later is not waited for."""
    cpu, memory = settings.cpu, settings.memory
    return (cpu is not None and cpu.resizes) or (memory is not None and memory.resizes)


def _refused(
    node: Node,
    pod: Pod,
    rejection: Rejection,
    reason: str,
    before: resources.Waiting | None,
    observer: Observer | None,
) -> tuple[Node, resources.Resize]:
    is_new = before is None or before.reason != reason
    since = node.moment if before is None or is_new else before.since
    after = replace(node, waiting={**node.waiting, pod.uid: resources.Waiting(pod, rejection, reason, since)})
    if observer is not None:
        observer(ResizeRefused(pod.uid, reason, rejection.reason, rejection.message))
    events = (f"Resize{reason}",) if is_new or (before is not None and before.pod != pod) else ()
    return after, replace(resize_state(after, pod.uid), events=events)


def reconcile(node: Node, observer: Observer | None = None, spared: Collection[tuple[str, str]] = ()) -> Node:
    """Give back what containers keep no longer; the same value when nothing is due.

    Args:
        node: the node, at the present moment.
        observer: receives what was released.
        spared: pod uid and container of those whose CPUs cannot be taken back yet.
    """
    cpu = releases_applied(node.cpu, node.moment, observer, spared)
    return node if cpu is node.cpu else node.with_cpu(cpu)


def resize_state(node: Node, uid: str, *, accepted: bool = False) -> resources.Resize:
    """Return the state of the resize of an active pod, without asking a manager; it may have just been accepted."""
    cpu, waiting = node.cpu, node.waiting.get(uid)
    containers, _ = placements_of(node.providers, node.active[uid])
    releases = dict(sorted(cpu.pre_assignments.get(uid, {}).items()))
    condition = resources.PENDING if waiting is not None else resources.IN_PROGRESS if releases else ""
    return resources.Resize(
        uid=uid,
        accepted=accepted,
        condition=condition,
        reason=waiting.reason if waiting is not None else "",
        message=waiting.rejection.message if waiting is not None else "",
        rejection=waiting.rejection if waiting is not None else None,
        containers=containers,
        releases=releases,
        baseline={name: CPUSet(mask) for name, mask in cpu.baselines.get(uid, {}).items()},
        shared_pool=CPUSet(cpu.default),
    )
