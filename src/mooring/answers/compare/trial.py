"""A trial: variants run through the trace, and the CPUs that are stranded on the node at its end.

It decides exactly as a plan does, but explains nothing, because hundreds of variants are run; those that decide alike
share a trial (:class:`SharedKubelet`).

CPUs are stranded when no container can use them: those left when the node is filled up, and those that ended init
containers hold. The node is filled with more pods of the shapes in the trace, the largest CPU requests first, each
shape until the kubelet refuses one. No pod of these shapes can use what is left then. The engine fills the node as in
any admission, with the node resources check except for ``maxPods``, which says nothing about CPUs.

Variants that differ in settings of the topology manager only get the same hints from the same state. As long as their
policies merge these hints alike, the rest of an admission is the same, so that it is run once. Where they merge them
differently, the variants part, and each part goes on by itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from mooring.answers.base.trace import Trace
from mooring.answers.compare.variant import Variant
from mooring.documents.plan import Count, DocumentPart
from mooring.engine.core.decision import StartRefusal
from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.core.pod import ContainerKind, Pod
from mooring.engine.cpumanager.policy import available_cpus
from mooring.engine.devicemanager.hints import pod_device_requests
from mooring.engine.kubelet.admit import AdmitMode, added
from mooring.engine.kubelet.events import Admit, Event, EventResult, Happened, Living, Readmit, Restart, run
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.kubelet.start import NotStarted, opened
from mooring.engine.memorymanager.state import Block
from mooring.engine.node import Decision, Node
from mooring.engine.node.providers import Isolation, Providers, cpu_isolation
from mooring.engine.node.resources import check_amounts, pod_requests
from mooring.engine.node.settings import Settings
from mooring.engine.topologymanager.hints import Hint
from mooring.engine.topologymanager.merge import BEST_EFFORT, NONE, SINGLE_NUMA_NODE, merge
from mooring.engine.topologymanager.wide import ResourceHints, merge_entries
from mooring.explanations.story import PodVerdict

Followers: TypeAlias = Mapping[int, Settings]
"""Variants that share a kubelet: position -> settings; they differ in what the topology manager does only."""


@dataclass(frozen=True, slots=True)
class SharedKubelet:
    """The kubelet of all these variants: they have decided alike so far."""

    kubelet: Kubelet
    """With the settings of one of them."""
    followers: Followers

    @property
    def own(self) -> Kubelet:
        """The kubelet with the settings of the first of these variants."""
        first = next(iter(self.followers.values()))
        kubelet = self.kubelet
        if kubelet.settings is first:
            return kubelet
        return replace(kubelet, node=replace(kubelet.node, settings=first))

    def parted(self, one: Happened) -> tuple[SharedKubelet, Followers]:
        """Return the variants with the outcome of an event that has happened to the first, and those with another."""
        follows = _following(one.before, one.event, one.result)
        alike = {position: settings for position, settings in self.followers.items() if follows(settings)}
        apart = {position: settings for position, settings in self.followers.items() if position not in alike}
        return SharedKubelet(one.after, alike), apart

    def after(self, event: Event, mode: AdmitMode = AdmitMode.ADMISSION) -> Iterator[tuple[SharedKubelet, EventResult]]:
        """Let one thing happen to the node; yield every outcome with the variants that have it.

        Args:
            event: what happens.
            mode: how the kubelet is asked about pods.
        """
        left = self
        while left.followers:
            (one,) = run(left.own, (event,), mode)
            after, apart = left.parted(one)
            left = replace(left, followers=apart)
            yield after, one.result


def _following(before: Kubelet, event: Living, result: EventResult) -> Callable[[Settings], bool]:
    """Return the test whether a variant's kubelet would have come to the same result.

    The hints of an admission that crashed are not known, so that each variant has to be asked itself.
    """
    first = before.settings
    crashed = result.crashed or bool(result.crash)
    # With the extension device-alignment devices are merged before, by themselves, and not always by the node's policy.
    devices = before.node.providers.devices
    by_devices = first.device_alignments is not None and any(
        one.pod.uid in devices.held or one.pod.uid in devices.claimed or pod_device_requests(one.pod, devices)
        for one in result.admissions
    )
    scopes_agree = isinstance(event, Admit) and is_alike_in_both_scopes(event.pod, before.node.providers)
    # All hints that were merged, in their order
    asked: list[ResourceHints] = []
    for decision in (one.decision for one in result.admissions):
        asked += (decision.hints or {}).values()
        asked += [] if decision.pod_hints is None else [decision.pod_hints]
    merges: dict[tuple[bool, int], list[Hint]] = {}

    def merged(settings: Settings) -> list[Hint | None]:
        # restricted merges as best-effort does, and rejects what is not preferred.
        key = settings.topology_policy == SINGLE_NUMA_NODE, id(settings.numa.distances)
        if key not in merges:
            policy = SINGLE_NUMA_NODE if settings.topology_policy == SINGLE_NUMA_NODE else BEST_EFFORT
            merges[key] = [merge(policy, merge_entries((hints,)), settings.numa) for hints in asked]
        is_needed = settings.topology_policy != BEST_EFFORT
        return [None if is_needed and not hint.preferred else hint for hint in merges[key]]

    def follows(settings: Settings) -> bool:
        if is_merged_alike(first, settings):
            return True
        if not result.admissions:
            return not crashed
        if crashed or by_devices or NONE in (first.topology_policy, settings.topology_policy):
            return False
        if settings.pod_scope is not first.pod_scope and not scopes_agree:
            return False
        try:
            return merged(settings) == merged(first)
        except KubeletCrashError:
            return False

    return follows


def is_merged_alike(one: Settings, other: Settings) -> bool:
    """Tell whether every kubelet with one of the settings merges as with the other one.

    Under the policy ``none`` no hint is requested: neither scope nor options are read (kubelet v1.37.1,
    topologymanager/scope_none.go).
    """
    if one.topology_policy != other.topology_policy:
        return False
    return one.topology_policy == NONE or (one.pod_scope is other.pod_scope and one.numa == other.numa)


def is_alike_in_both_scopes(pod: Pod, providers: Providers) -> bool:
    """Tell whether a new pod gets the same hints in the scopes ``container`` and ``pod``, and the same for them.

    It has one container, which is no init container, no resources of its own, and nothing yet that could be restored
    (spec: topology-manager.md section 4).
    """
    uid, cpu, memory = pod.uid, providers.cpu, providers.memory
    return (
        len(pod.containers) == 1
        and pod.containers[0].kind is ContainerKind.APP
        and pod.resources is None
        and not any(uid in held for held in (cpu.assignments, cpu.pods, memory.assignments, memory.pods))
        and uid not in {**providers.devices.held, **providers.devices.claimed}
        and uid not in (providers.reusable_cpus.pod, providers.reusable_memory.pod, providers.reusable_devices.pod)
    )


@dataclass(frozen=True, slots=True)
class TrialAdmission:
    """The answer for one pod."""

    pod: Pod
    decision: Decision
    running: bool = False
    """Whether it ran already when the kubelet started, and was admitted again."""
    exclusive: tuple[str, ...] = ()
    """Containers that have CPUs to themselves as long as the pod runs: apps and sidecars."""
    memory: Mapping[str, tuple[Block, ...]] = field(default_factory=dict)
    """Container -> memory that it was given, of an admitted pod."""
    crashes: bool = False
    """Whether the kubelet crashes on it; the trial goes on without it."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What became of some variants, which all decided alike."""

    variants: tuple[int, ...]
    """Their positions."""
    admissions: tuple[TrialAdmission, ...]
    end: SharedKubelet | StartRefusal | PodVerdict
    """The kubelet in the end, after it has released what refused pods had been given; why it would not start, at first
    or again; or why it would not return from the admission after the last one: a crash, or endless."""


def run_trials(trace: Trace, variants: Mapping[int, Variant]) -> Iterator[Trial]:
    """Run variants through the trace, to its end or to where the kubelet does not continue.

    Args:
        trace: what happens to each.
        variants: position -> variant; they differ in settings of the topology manager only, see
            :attr:`~mooring.answers.compare.variant.Variant.shared_by`.
    """
    started: dict[int, Kubelet] = {}
    for position, one in variants.items():
        start, _ = opened(
            one.machine,
            one.config,
            one.mooring,
            trace.files,
            replace(trace.devices, devices=one.devices),
            active=trace.active,
            pods=trace.pods,
        )
        if isinstance(start, NotStarted):
            yield Trial((position,), (), start.refusal)
        else:
            started[position] = start
    if started:
        first = next(iter(started.values()))
        shared = SharedKubelet(first, {position: kubelet.settings for position, kubelet in started.items()})
        yield from _run(shared, (*(Readmit(pod) for pod in trace.active), *trace.steps_on(first)))


def _run(shared: SharedKubelet, events: Sequence[Event]) -> Iterator[Trial]:
    """Run the variants as one; those that part are run on from there by themselves."""
    waiting: list[tuple[SharedKubelet, int, tuple[TrialAdmission, ...]]] = [(shared, 0, ())]
    while waiting:
        shared, number, so_far = waiting.pop()
        end: StartRefusal | PodVerdict | None = None
        for one in run(shared.own, events[number:]):
            shared, apart = shared.parted(one)
            if apart:
                waiting.append((SharedKubelet(one.before, apart), number, so_far))
            admissions, ended = _admissions(one.result, one.event)
            so_far, number, end = (*so_far, *admissions), number + 1, ended or one.result.refusal
            if end is not None:
                break
        settled = replace(shared, kubelet=shared.own.settled()) if end is None else end
        yield Trial(tuple(shared.followers), so_far, settled)


def _admissions(result: EventResult, event: Living) -> tuple[list[TrialAdmission], PodVerdict | None]:
    """Return the answers about the pods of an event, and how the trial ends with it, if it does."""
    found: list[TrialAdmission] = []
    for one in result.admissions:
        if one.decision.endless is not None:
            return found, PodVerdict.ENDLESS
        if one.crash and isinstance(event, Restart):
            return found, PodVerdict.CRASH
        pod, decision, running = one.pod, one.decision, not isinstance(event, Admit)
        if not decision.admitted:
            found.append(TrialAdmission(pod, decision, running, crashes=bool(one.crash)))
            continue
        settings, providers = one.decided.settings, one.decided.node.providers
        exclusive = tuple(
            container.name
            for container in pod.containers
            if container.kind is not ContainerKind.INIT
            and cpu_isolation(settings, providers, pod, container) is Isolation.CONTAINER
        )
        blocks = providers.memory.assignments.get(pod.uid, {})
        found.append(TrialAdmission(pod, decision, running, exclusive, blocks))
    return found, PodVerdict.CRASH if result.crash else None


NO_LIMIT = sys.maxsize


class StrandedCPUsPart(DocumentPart):
    """CPUs that no container can use for itself, by cause."""

    total: Count
    init: Count
    """Held by running pods for init containers that have ended (kubernetes/kubernetes#112228)."""
    siblings: Count
    """Left over on cores of which another thread is exclusive."""
    fragments: Count
    """Left over elsewhere: too few together, or something else than CPUs is exhausted."""


def stranded_cpus(shared: SharedKubelet, shapes: Sequence[Pod]) -> dict[int, StrandedCPUsPart]:
    """Count the stranded CPUs of a node; none when its CPU manager gives nothing away.

    Args:
        shared: at the end of the trace.
        shapes: one pod of each shape, in the order in which the node is filled with them.

    Returns:
        Position of each variant -> its stranded CPUs.
    """
    node, policy = shared.kubelet.node, shared.kubelet.settings.cpu
    if policy is None:
        return dict.fromkeys(shared.followers, StrandedCPUsPart(0, 0, 0, 0))
    found: dict[int, StrandedCPUsPart] = {}
    for one in filled(shared, shapes):
        full = one.kubelet.node.cpu
        left = available_cpus(policy, full)
        taken = policy.topology.all_cpus & ~full.default & ~policy.reserved
        beside = left & policy.topology.core_siblings(taken)
        init = sum(_of_ended(node, pod).bit_count() for pod in node.active.values())
        stranded = StrandedCPUsPart(init + left.bit_count(), init, beside.bit_count(), (left & ~beside).bit_count())
        found |= dict.fromkeys(one.followers, stranded)
    return found


def filled(shared: SharedKubelet, shapes: Sequence[Pod]) -> Iterator[SharedKubelet]:
    """Yield the kubelets when no more pod of these shapes gets CPUs of its own there."""
    reservation = shared.kubelet.settings.reservation
    waiting = [(shared, 0, 0, shared.kubelet.used)]
    while waiting:
        shared, number, copies, used = waiting.pop()
        if number == len(shapes):
            yield shared
            continue
        wanted = pod_requests(shapes[number])
        if check_amounts(wanted, used, 0, reservation, NO_LIMIT) is not None:
            waiting.append((shared, number + 1, 0, used))
            continue
        event = Admit(replace(shapes[number], uid=f"filling-{number}-{copies}"))
        default = shared.kubelet.node.cpu.default
        for after, result in shared.after(event, AdmitMode.MANAGERS):
            admitted = all(one.admitted for one in result.admissions) and not result.crash
            if admitted and after.kubelet.node.cpu.default != default:
                waiting.append((after, number, copies + 1, added(used, wanted)))
            else:
                waiting.append((replace(after, kubelet=shared.kubelet), number + 1, 0, used))


def _of_ended(node: Node, pod: Pod) -> int:
    """Return the CPUs that a pod holds for init containers alone; a pod with a partition of its own shares them."""
    if pod.uid in node.cpu.pods:
        return 0
    ended = others = 0
    held = node.cpu.assignments.get(pod.uid, {})
    for container in pod.containers:
        if container.kind is ContainerKind.INIT:
            ended |= held.get(container.name, 0)
        else:
            others |= held.get(container.name, 0)
    return ended & ~others
