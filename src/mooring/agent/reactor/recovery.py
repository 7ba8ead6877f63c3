"""Starting again: from what the agent's folder held to a state, whatever the files are worth.

Entries and resizes that no journal has: what a running container has is recovered without moving it.

When the state lost an entry, because a file was damaged or could not be written, the runtime and the kernel still have
the placement. Where the engine could have made that placement, it is entered into the state, which the engine then
starts on with all of its checks.

While the folder cannot be written, a resize is decided in memory alone. After a restart the ledger has such a container
as it was before, and the runtime's record has its new sizes and its CPUs. These are entered into the ledger before
anything else gets them. The engine, asked about the resize afterwards, then finds nothing to move, and a release that
was pending gets its delay. A resize that the agent missed is none of these: the runtime carried out the sizes alone,
and the CPUs on record are those of the ledger.

Of a pod that no journal has the record knows the sizes better than a pod source, which can be behind: the kubelet
grants them before it calls the runtime, and reports them later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_

from mooring.agent.effects import AgentReport, Effect, ReportKind
from mooring.agent.nri.types import LinuxResources, RuntimeContainer
from mooring.agent.pods.resolve import resized
from mooring.agent.pods.source import shares_of
from mooring.agent.reactor.desired import DesiredSettings
from mooring.agent.reactor.placing import opted_out, resizes, started
from mooring.agent.reactor.response import EventOutcome
from mooring.agent.state import LIVE, AgentState, KnownContainer, LastSeen, Options, by_name
from mooring.engine.core.bits import NO_CPUS, CPUMask, list_text
from mooring.engine.core.config import MIXED_CPUS, KubeletConfig, MooringConfig
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import Fault, Observer, StartRefusal
from mooring.engine.core.errors import InputError, KubeletCrashError
from mooring.engine.core.machineinfo import MachineInfo
from mooring.engine.core.pod import Pod
from mooring.engine.cpumanager.policy import StaticPolicy, available_cpus, exclusive_cpus
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.extensions.choosing import taken_around
from mooring.engine.extensions.cpu_resize import CPUResize, assigned, change_of
from mooring.engine.extensions.offline import effective_pool
from mooring.engine.kubelet.admit import decide
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts, cpu_text
from mooring.engine.kubelet.start import NotStarted, start_kubelet
from mooring.engine.memorymanager.state import MemoryState
from mooring.engine.node.hotplug import remembered


@dataclass(frozen=True, slots=True)
class Stored:
    """What the agent's folder held."""

    texts: StateTexts = field(default_factory=StateTexts)
    """The engine's state, in the kubelet's formats."""
    pods: Mapping[str, Pod] = field(default_factory=dict)
    """Pods that were decided about, by uid, in that order."""
    reports: tuple[AgentReport, ...] = ()
    """What could not be read, and what did not fit together."""
    claim_users: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Uids of the pods of each claim."""
    offline: int = 0
    """Mask of the CPUs that were offline, with the extension cpu-hotplug."""
    displaced: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """CPUs that stood in for lost ones, as :attr:`~mooring.engine.cpumanager.state.CPUState.displaced` was."""
    last_seen: LastSeen = field(default_factory=LastSeen)
    """What ran then; an older agent wrote no sandboxes."""
    sequence: int = 0
    """Number of the record among those in the journal's file, which are two; 0 in a file that has this one alone."""


def resume(
    info: MachineInfo,
    config: KubeletConfig,
    mooring: MooringConfig,
    stored: Stored | None = None,
    options: Options | None = None,
    observer: Observer | None = None,
    source: str = "",
) -> EventOutcome:
    """Return the state of an agent that starts.

    Pods are not active before the runtime has said which of them are there; until then they are remembered. Texts that
    the engine refuses are left out one after another, with a report each; the runtime's record then says what runs
    where.

    Raises:
        InputError: the configuration itself is refused, with or without state.
    """
    stored = stored or Stored()
    reports = list(stored.reports)
    smaller = (stored.texts, StateTexts(cpu=stored.texts.cpu), StateTexts(memory=stored.texts.memory), StateTexts())
    for texts in dict.fromkeys(smaller):
        try:
            start = start_kubelet(info, config, mooring, texts, observer)
        except KubeletCrashError as error:
            problem = str(error)
        else:
            if isinstance(start, Kubelet):
                kubelet = with_offline(start, stored.offline, stored.displaced)
                state = AgentState(
                    kubelet,
                    options or Options(),
                    remembered=stored.pods,
                    last_seen=stored.last_seen,
                    claim_users=stored.claim_users,
                )
                return EventOutcome(state, effects=tuple(reports))
            problem = start.refusal.message
        if texts == StateTexts():
            problem = f"the engine does not start: {problem}"
            raise InputError(problem, source=source, remedy="check the agent's configuration")
        files = (("cpu_manager_state", texts.cpu), ("memory_manager_state", texts.memory))
        names = " and ".join(name for name, text in files if text is not None)
        reports.append(AgentReport(ReportKind.STATE_REFUSED, f"{names}: {problem}"))
    raise AssertionError("the last try has no texts")


def reconfigured(state: AgentState, config: KubeletConfig, mooring: MooringConfig) -> EventOutcome | StartRefusal:
    """Return the state under another configuration, with all pods where they are; a refusal leaves the old one.

    Pods that wait continue to wait. Only the agent asks again for one that runs, so it must not be forgotten.
    """
    kubelet = state.kubelet
    try:
        start = start_kubelet(kubelet.info, config, mooring, kubelet.files)
    except KubeletCrashError as error:
        return StartRefusal.of("start", Fault(str(error)))
    if isinstance(start, NotStarted):
        return start.refusal
    cpu = kubelet.node.cpu
    fresh = with_offline(start, cpu.offline, cpu.displaced)
    node = replace(
        fresh.node,
        active=kubelet.node.active,
        started=kubelet.node.started,
        stored_hints=kubelet.node.stored_hints,
        providers=replace(fresh.node.providers, devices=kubelet.node.providers.devices),
    )
    # What they were judged by is gone, so that every waiting pod is asked for again.
    held = {
        uid: replace(one, cpu=CPUState("", NO_CPUS, {}), memory=MemoryState("", {}, {}))
        for uid, one in state.held.items()
    }
    return EventOutcome(replace(state, kubelet=replace(fresh, node=node), held=held))


def with_offline(kubelet: Kubelet, offline: int, displaced: Mapping[str, Mapping[int, int]]) -> Kubelet:
    """Return a kubelet that was just started, with what its files do not tell of CPUs that are offline.

    Without the extension cpu-hotplug nothing is known of them.
    """
    if not kubelet.settings.replace_offline or not (offline or displaced):
        return kubelet
    return replace(kubelet, node=remembered(kubelet.node, offline, displaced))


def taken_over(state: AgentState, waiting: Sequence[Pod], observer: Observer | None) -> EventOutcome:
    """Enter CPUs that pods without entries run on already, where they may keep them.

    Args:
        state: with the containers of all pods; those with entries are active.
        waiting: pods that are not active, in the order in which they came.
        observer: receives the engine's facts, for metrics.
    """
    entries: dict[str, Mapping[str, CPUMask]] = {}
    taken = 0
    for pod in waiting:
        if pod.uid in state.kubelet.node.cpu.assignments or opted_out(state, pod):
            continue
        found = recoverable(state, pod, taken)
        if found:
            entries[pod.uid] = found
            taken = reduce(or_, found.values(), taken)
    named = {pod.uid: pod for pod in waiting}
    kubelet = with_entries(state.kubelet, entries, named) if entries else None
    if kubelet is None:
        return EventOutcome(state)
    # The engine drops entries of pods that are not active, and they are asked about one after another.
    adopted = replace(kubelet, node=kubelet.node.adopt([named[uid] for uid in entries]))
    effects: list[Effect] = []
    for uid, found in entries.items():
        result = decide(adopted, named[uid], observer=observer)
        if result.admitted:
            adopted = result.decided
        for name in live_names(state, named[uid]):
            adopted = started(adopted, uid, name, observer)
        text = f"{named[uid].namespace}/{named[uid].name} keeps CPUs {cpus_of(found.values())}, which it runs on"
        effects.append(AgentReport(ReportKind.TAKEN_OVER, text, uid))
    return EventOutcome(replace(state, kubelet=adopted), effects=tuple(effects))


def live_names(state: AgentState, pod: Pod) -> list[str]:
    """Return the names of a pod's containers that have not ended, in the pod's order."""
    live = {one.name for one in state.containers_of(pod.uid)}
    return [one.name for one in pod.containers if one.name in live]


def recoverable(state: AgentState, pod: Pod, taken: int) -> Mapping[str, CPUMask]:
    """Return the CPUs that a pod's containers have on record and may keep, as masks by container.

    All or nothing: every running container with CPUs of its own must have as many as it requests, none reserved, none
    of another container. Two with the same ones are in the shared pool, which can have as many as are requested. It may
    have more where it can be resized: their release was pending.

    Args:
        state: with the pod's containers.
        pod: without entries.
        taken: CPUs that others keep, as a mask.
    """
    settings = state.kubelet.settings
    if settings.cpu is None or settings.pod_level.leaves_out(pod) or settings.pod_level.manages(pod):
        return {}
    free = state.kubelet.node.cpu.default & settings.allocatable_cpus.mask & ~taken
    live = by_name(state.containers_of(pod.uid))
    found: dict[str, CPUMask] = {}
    for container in pod.containers:
        count = exclusive_cpus(pod, container, settings.pod_level)
        if not count or container.name not in live:
            continue
        known = live[container.name]
        mask = _cpus_of(known)
        if mask.bit_count() < count or mask & ~free or any(_cpus_of(one) == mask for one in _others(state, known)):
            return {}
        if mask.bit_count() > count and not _was_releasing(state, known, free):
            return {}
        free &= ~mask
        found[container.name] = mask
    # Where containers are resized the engine gives no container the last CPU that is online.
    pool = effective_pool(state.kubelet.node.cpu) & ~taken
    return found if not settings.cpu.resizes or pool & (free | ~settings.allocatable_cpus.mask) else {}


def _was_releasing(state: AgentState, known: KnownContainer, free: int) -> bool:
    """Tell whether a container with more CPUs than it requests can have been about to release some.

    It can have been in the shared pool instead, where it meets others, or has all that there is.
    """
    policy, mask = state.kubelet.settings.cpu, _cpus_of(known)
    if policy is None or not policy.resizes or MIXED_CPUS in state.kubelet.mooring.extensions or not free & ~mask:
        return False
    return not any(_cpus_of(one) & mask for one in _others(state, known))


def _others(state: AgentState, known: KnownContainer) -> Iterator[KnownContainer]:
    return (
        one for one in state.containers.values() if one.phase in LIVE and (one.uid, one.name) != (known.uid, known.name)
    )


def with_entries(
    kubelet: Kubelet, entries: Mapping[str, Mapping[str, CPUMask]], pods: Mapping[str, Pod]
) -> Kubelet | None:
    """Return a kubelet that has started on its own state with further entries; None when it does not start on it.

    Args:
        kubelet: its active pods stay active.
        entries: masks by pod uid and container; of pods without entries.
        pods: these pods, by uid.
    """
    node, before = kubelet.node, kubelet.node.cpu
    given = reduce(or_, (mask for containers in entries.values() for mask in containers.values()), 0)
    first = {uid: _first_cpus(kubelet, pods[uid], held) for uid, held in entries.items()}
    cpu = replace(
        before,
        default=before.default & ~given,
        assignments={**before.assignments, **entries},
        baselines={**before.baselines, **{uid: found for uid, found in first.items() if found}},
    )
    text = cpu_text(kubelet.settings, cpu)
    start = start_kubelet(kubelet.info, kubelet.settings.config, kubelet.mooring, replace(kubelet.files, cpu=text))
    if isinstance(start, NotStarted):
        return None
    started = with_offline(start, before.offline, before.displaced)
    providers = replace(node.providers, cpu=started.node.cpu)
    return replace(started, node=replace(node, providers=providers))


def _first_cpus(kubelet: Kubelet, pod: Pod, held: Mapping[str, CPUMask]) -> Mapping[str, CPUMask]:
    """Return what containers keep of the CPUs that they have, where they are to give some back.

    What they got at first is not known; what they request they may keep.
    """
    policy, found = kubelet.settings.cpu, dict[str, CPUMask]()
    if policy is None or not policy.resizes:
        return found
    for container in pod.containers:
        mask, count = held.get(container.name, NO_CPUS), exclusive_cpus(pod, container, kubelet.settings.pod_level)
        kept = taken_around(policy, mask, NO_CPUS, count, None) if mask.bit_count() > count else mask
        if mask and isinstance(kept, int):
            found[container.name] = CPUMask(kept)
    return found


def cpus_of(masks: Iterable[int]) -> str:
    """Return several masks as one CPU list."""
    return str(CPUSet(reduce(or_, masks, NO_CPUS)))


def _cpus_of(container: KnownContainer) -> CPUMask:
    return container.record.cpus.mask


def with_resizes_on_record(state: AgentState, containers: Sequence[RuntimeContainer]) -> EventOutcome:
    """Return the state with the CPUs that resized containers have on record, where the engine could have chosen them.

    Args:
        state: in which the pods that have entries are active.
        containers: as the runtime lists them.
    """
    policy = state.kubelet.settings.cpu
    if policy is None or not policy.resizes:
        return EventOutcome(state)
    cpu, active = state.kubelet.node.cpu, dict(state.kubelet.node.active)
    reports = []
    # What some released, others may have got.
    found = sorted(_recorded(state, policy, containers), key=lambda one: bool(one[3] & ~one[2].current))
    for pod, known, change, cpus in found:
        if cpus & ~change.current & ~available_cpus(policy, cpu):
            continue
        cpu, count = assigned(cpu, pod.uid, known.name, cpus), cpus.bit_count()
        if change.need < count:
            # It may keep more than it asks for; a growth that was granted before is gone.
            kept = resized(active[pod.uid], known.name, LinuxResources(shares=shares_of(1000 * count)))
            active[pod.uid] = kept or active[pod.uid]
        text = f"{known.name} was resized and keeps CPUs {list_text(cpus)}, which it runs on"
        reports.append(AgentReport(ReportKind.TAKEN_OVER, f"{pod.namespace}/{pod.name}: {text}", pod.uid, known.id))
    if not reports:
        return EventOutcome(state)
    kubelet = state.kubelet.with_cpu_state(cpu)
    kubelet = replace(kubelet, node=replace(kubelet.node, active=active))
    return EventOutcome(replace(state, kubelet=kubelet), effects=tuple(reports))


def with_sizes_on_record(state: AgentState, pod: Pod, containers: Sequence[RuntimeContainer]) -> Pod:
    """Return a pod without entries with the sizes that its containers have on record.

    Args:
        state: with the pod's containers.
        pod: as a pod source knows it.
        containers: as the runtime lists them.
    """
    if not resizes(state.kubelet) or pod.uid in state.kubelet.node.cpu.assignments:
        return pod
    listed = {one.id: one.resources for one in containers}
    for name, known in by_name(state.containers_of(pod.uid)).items():
        if known.id in listed:
            pod = resized(pod, name, listed[known.id]) or pod
    return pod


def _recorded(
    state: AgentState, policy: StaticPolicy, containers: Sequence[RuntimeContainer]
) -> Iterator[tuple[Pod, KnownContainer, CPUResize, CPUMask]]:
    """Yield resized containers whose record has their first CPUs and at least as many as they request now.

    Each comes with its pod, what it asks of the CPUs that it has, and other ones, those on record.

    Where the journal has the sizes, its delay was over later: the record has lost CPUs and got none.
    """
    listed = {one.id: one.resources for one in containers}
    settings = DesiredSettings.now(state)
    for uid, pod in state.kubelet.node.active.items():
        for name, known in by_name(state.containers_of(uid)).items():
            if known.id not in listed or settings.is_mixed(uid, name):
                # The record of a mixed container does not show which CPUs are its own.
                continue
            wanted = resized(pod, name, listed[known.id])
            own = (wanted or pod).container(name)
            change = None if own is None else change_of(policy, state.kubelet.node.cpu, wanted or pod, own)
            if change is None:
                continue
            # No record has an offline CPU.
            cpus = known.record.cpus.mask & ~settings.claimed.get((uid, name), 0)
            cpus = CPUMask(cpus | (change.current & state.kubelet.node.cpu.offline))
            if not change.baseline or change.baseline & ~cpus:
                continue
            if wanted is None and not (change.is_shrink and not cpus & ~change.current):
                continue
            if cpus != change.current and cpus.bit_count() >= change.need:
                yield pod, known, change, cpus
