"""What the agent shows of itself: one frozen value, made between two events and read from any thread at any time.

Metrics, health, status and the PodResources API all read the same snapshot, so that they never contradict one another,
and none of them waits for the agent or holds it up.

The one thing that must never be are containers that may run on exclusive CPUs of others. Held against one another are
what the engine gave exclusively and what the kernel lets each container use. Where a cgroup was not read yet, the
runtime's record counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import reduce
from operator import or_

from msgspec import UNSET, UnsetType

from mooring import KUBELET_VERSION, __version__
from mooring.agent.reactor.desired import DesiredSettings, nodes_of
from mooring.agent.reactor.devices import devices_of, elsewhere, follows_devices, places_of
from mooring.agent.reactor.hotplug import is_watched
from mooring.agent.reactor.lifecycle import CPUSET_NOT_ENFORCED
from mooring.agent.state import HAS_CGROUP, LIVE, AgentState, KnownContainer, Phase, Setting, by_name, claimed_cpus
from mooring.documents import status
from mooring.documents.of_kubelet import numa_parts
from mooring.engine.core.bits import NO_CPUS, CPUMask, list_text
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.machine import Machine
from mooring.engine.core.moment import SECOND, Moment
from mooring.engine.core.pod import Container, ContainerKind, Pod
from mooring.engine.extensions.offline import backwards, effective_pool, exchanged
from mooring.engine.extensions.owners import claims_of
from mooring.engine.kubelet.kubelet import Kubelet, free_cpus, reserved_cpus
from mooring.engine.node.metrics import Metrics
from mooring.engine.node.node import numa_of_blocks
from mooring.engine.node.providers import Isolation, cpu_isolation
from mooring.engine.node.resources import delay_left
from mooring.engine.node.settings import policies
from mooring.explanations.alignment import are_near


def overlaps(state: AgentState, effective: Mapping[str, CPUSet]) -> tuple[tuple[str, str, CPUSet], ...]:
    """Return every overlap among containers with processes, in the order in which they were seen.

    Each is the id of a container, the id of that on whose exclusive CPUs it may run too, and these CPUs.

    The CPUs of a container that is being made are its own already, and a container that still runs on them does no
    harm: the runtime moves them before it continues with the container, and what it misses is corrected before the
    program runs.

    Args:
        state: what was decided and told.
        effective: CPUs that the kernel lets a container use, by container id, where that is known.
    """
    live = [one for one in state.containers.values() if one.phase in HAS_CGROUP]
    may_use = {one.id: effective.get(one.id, one.record.cpus).mask for one in live}
    claimed = claimed_cpus(state)
    exclusive = {one.id: exclusive_cpus(state, one, claimed).mask for one in live}
    taken = reduce(or_, exclusive.values(), 0)
    found: list[tuple[str, str, CPUSet]] = []
    for other in live:
        # Nearly all containers stay within their own CPUs: only the others are compared in pairs.
        if not may_use[other.id] & taken & ~exclusive[other.id]:
            continue
        for owner in live:
            both = claimed.get((other.uid, other.name), 0) & claimed.get((owner.uid, owner.name), 0)
            shared = may_use[other.id] & exclusive[owner.id] & ~both
            if not shared or other.id == owner.id:
                continue
            kinds = {known.kind for one in (owner, other) if (known := _described(state, one)) is not None}
            # An init container leaves its CPUs to those after it in its pod.
            if owner.uid != other.uid or ContainerKind.INIT not in kinds:
                found.append((other.id, owner.id, CPUSet(shared)))
    return tuple(found)


def _described(state: AgentState, container: KnownContainer) -> Container | None:
    pod = state.kubelet.node.active.get(container.uid)
    return None if pod is None else pod.container(container.name)


def exclusive_cpus(state: AgentState, container: KnownContainer, claimed: Mapping[tuple[str, str], int]) -> CPUSet:
    """Return the CPUs that a container shares only with users of the same claims; empty when it has none.

    Args:
        state: what was decided.
        container: one of it.
        claimed: what all containers have of claims; to find that out, all containers are read.
    """
    of_claims = CPUSet(CPUMask(claimed.get((container.uid, container.name), 0)))
    node = state.kubelet.node
    pod, known = node.active.get(container.uid), _described(state, container)
    if pod is None or known is None:
        return of_claims
    if cpu_isolation(node.settings, node.providers, pod, known) is not Isolation.CONTAINER:
        return of_claims
    return of_claims | CPUSet(node.cpu.assignments[pod.uid][known.name])


def moment(seconds: float) -> str:
    """Return a time as RFC 3339 writes it in UTC; an empty text for none.

    >>> moment(0.0), moment(1_770_000_000.25)
    ('', '2026-02-02T02:40:00Z')
    """
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if seconds else ""


NO_RUNTIME = status.RuntimePart("", "", connected=False, synchronized=False, since="")
"""Before the first connection."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The agent at one moment; what needs no engine is in the form of the status document."""

    machine: Machine
    state: AgentState
    """What it knows and decided."""
    runtime: status.RuntimePart = field(default_factory=lambda: NO_RUNTIME)
    is_silent: bool = False
    """Whether the runtime has let the agent wait longer than a container should take to stop."""
    configuration: status.ConfigurationPart = field(default_factory=lambda: status.ConfigurationPart([], 1, "", ""))
    metrics: Metrics | None = None
    """The kubelet's numbers."""
    effective: Mapping[str, Setting] = field(default_factory=dict)
    """What the kernel lets containers use, by id, for those whose cgroup was read."""
    interrupts: status.InterruptsPart | UnsetType = UNSET
    troubled_plugins: Mapping[str, tuple[int, status.PluginFailurePart]] = field(default_factory=dict)
    """How often answers of a plugin were left out since the agent started, and why last, by name (extension plugins).
    """
    unwritable: str = ""
    """Why the state folder cannot be written; empty when it can."""
    is_blind: bool = False
    """Whether the agent sees no control group of anything that runs."""
    conflict: str = ""
    """Which other agent of this node is in the way, in words; empty when there is none."""
    node: str = ""
    """Name of the node in the cluster."""
    started: float = 0.0
    """When the agent started, in seconds since 1970."""
    taken: float = 0.0
    """When this snapshot was made, in seconds since 1970."""

    def overlaps(self) -> tuple[tuple[str, str, CPUSet], ...]:
        """Return which containers may run on exclusive CPUs of others: none, unless something went wrong."""
        return overlaps(self.state, {container: found.cpus for container, found in self.effective.items()})


class Published:
    """Keeps the newest snapshot for readers of other threads."""

    def __init__(self, first: Snapshot) -> None:
        self._newest = first

    def publish(self, snapshot: Snapshot) -> None:
        """Replace the snapshot."""
        # One reference is stored, which no reader can see half of.
        self._newest = snapshot

    def snapshot(self) -> Snapshot:
        """Return the newest snapshot; called from any thread, waits for nothing."""
        return self._newest


SILENCE = 60.0
"""Seconds that the runtime may let a connection wait before the agent says so. A runtime lets it wait as long as a
container takes to stop, for which a pod has 30 seconds unless it requests more; one that has locked up, for ever."""
REMEDY = "unless a container takes that long to stop, restart the runtime; its containers keep running"


def unready(snapshot: Snapshot) -> tuple[str, ...]:
    """Return everything that keeps the agent from being of use; nothing when it is ready."""
    found = []
    if snapshot.is_silent:
        found.append(f"the runtime has not answered for {SILENCE:.0f} seconds: {REMEDY}")
    elif not snapshot.runtime.connected:
        found.append("the runtime is not connected")
    elif not snapshot.runtime.synchronized:
        found.append("the runtime has not synchronized yet")
    if snapshot.conflict:
        found.append(snapshot.conflict)
    if snapshot.unwritable:
        found.append(f"the state cannot be written: {snapshot.unwritable}")
    if snapshot.is_blind:
        found.append("no control group of any pod is visible: run the agent in the host's control group namespace")
    found += _unenforced(snapshot.state)
    if count := len({container for container, _, _ in snapshot.overlaps()}):
        found.append(f"{count} container{'' if count == 1 else 's'} may run on exclusive CPUs of others")
    return tuple(found)


def _unenforced(state: AgentState) -> Iterator[str]:
    """Yield why the kernel is not known to do what was decided: otherwise overlaps could not be excluded."""
    pods = {one.uid for one in state.sandboxes.values()}
    running = {(one.uid, one.name): one.id for one in state.containers.values() if one.phase is Phase.RUNNING}
    refused = {
        key: why.message for key, why in state.unstarted.items() if why.reason == CPUSET_NOT_ENFORCED and key[0] in pods
    }
    waiting = [message for key, message in refused.items() if key not in running]
    if waiting:
        yield f"container starts are refused ({len(waiting)}), the newest because {waiting[-1]}"
    started = [key for key in refused if key in running]
    if started:
        told = state.deviating.get(running[started[-1]])
        why = refused[started[-1]] if told is None else f"{started[-1][1]} {told[0]}"
        yield f"containers run although their start was refused ({len(started)}), the newest: {why}"
    lost = [
        f"{state.containers[one].name} {text}"
        for one, (text, is_known) in state.deviating.items()
        if not is_known and one in state.containers and state.containers[one].phase in HAS_CGROUP
    ]
    if lost:
        yield f"the CPUs of containers cannot be read ({len(lost)}), the newest: {lost[-1]}"


def status_document(
    snapshot: Snapshot, counts: status.AgentCountsPart, now: Moment | None = None
) -> status.StatusDocument:
    """Return what ``mooring status -o json`` prints, with the time that releases still take from the present moment."""
    reasons, state = list(unready(snapshot)), snapshot.state
    kubelet, node, cpu = state.kubelet, state.kubelet.node, state.kubelet.node.cpu
    overlapping: dict[str, CPUSet] = {}
    for container, _, cpus in snapshot.overlaps():
        overlapping[container] = overlapping.get(container, CPUSet()) | cpus
    live: dict[str, list[KnownContainer]] = {}
    for one in state.containers.values():
        if one.phase in LIVE:
            live.setdefault(one.uid, []).append(one)
    wanted, host, now = DesiredSettings.now(state), kubelet.settings.plugins, now or Moment()
    return status.StatusDocument(
        mooring=__version__,
        kubelet=KUBELET_VERSION,
        node=snapshot.node,
        machine=snapshot.machine.name,
        time=moment(snapshot.taken),
        started=moment(snapshot.started),
        ready=not reasons,
        reasons=reasons,
        runtime=snapshot.runtime,
        configuration=snapshot.configuration,
        policies=policies(kubelet.settings),
        cpus=status.AgentCPUsPart(
            exclusive=str(CPUSet(reduce(or_, cpu.pods.values(), cpu.held))),
            shared=str(CPUSet(effective_pool(cpu))),
            reserved=str(reserved_cpus(kubelet)),
            free=str(free_cpus(kubelet)),
            overlap=str(reduce(or_, overlapping.values(), CPUSet())),
            offline=str(CPUSet(cpu.offline)) if is_watched(state) else UNSET,
        ),
        numa_nodes=numa_parts(kubelet),
        pods=[
            status.AgentPodPart(
                namespace=pod.namespace,
                name=pod.name,
                uid=uid,
                cpus=str(CPUSet(cpu.pods.get(uid, NO_CPUS))),
                mems=",".join(map(str, numa_of_blocks(node.memory.pods.get(uid, ())))),
                containers=[*_containers(snapshot, pod, by_name(live.get(uid, ())), overlapping, wanted, now)],
            )
            for uid, pod in node.active.items()
        ],
        held=[
            status.HeldPodPart(
                namespace=held.pod.namespace,
                name=held.pod.name,
                uid=uid,
                reason=held.rejection.reason,
                message=held.rejection.message,
                running=[
                    status.UnplacedContainerPart(
                        one.name, one.id, one.phase.value, status.RecordedCPUsPart(str(one.record.cpus))
                    )
                    for one in live.get(uid, ())
                    # The others have their place: it is the pod's resize that waits, or what is not placed yet of it.
                    if uid not in node.active or node.active[uid].container(one.name) is None
                ],
            )
            for uid, held in state.held.items()
        ],
        claims=[
            status.AgentClaimPart(
                namespace=claim.namespace,
                name=claim.name,
                uid=claim.uid,
                cpus=str(CPUSet(claim.cpus)),
                shares=[
                    status.ClaimSharePart(request, device, str(CPUSet(cpus)))
                    for (device, request), cpus in claim.shares.items()
                ],
                pods=sorted(state.claim_users.get(claim.uid, ())),
            )
            for claim in claims_of(cpu).values()
        ]
        or UNSET,
        plugins=UNSET
        if host is None
        else [
            status.AgentPluginPart(
                name=plugin.name,
                placement=plugin.placement.value,
                given_up=host.choice.has_given_up(plugin.name),
                failures=failures,
                last_failure=last,
            )
            for plugin in host.choice.plugins
            for failures, last in (snapshot.troubled_plugins.get(plugin.name, (0, UNSET)),)
        ],
        interrupts=snapshot.interrupts,
        counts=counts,
    )


def _containers(
    snapshot: Snapshot,
    pod: Pod,
    live: Mapping[str, KnownContainer],
    overlapping: Mapping[str, CPUSet],
    wanted: DesiredSettings,
    now: Moment,
) -> Iterator[status.AgentContainerPart]:
    """Yield the containers of a pod in its order; one that the runtime does not have (``live``) has no id."""
    state, uid = snapshot.state, pod.uid
    node = state.kubelet.node
    devices = devices_of_pod(state, pod) if follows_devices(state) else {}
    for container in pod.containers:
        name = container.name
        held = node.cpu.assignments.get(uid, {}).get(name, NO_CPUS)
        part = status.AgentContainerPart(
            name=name,
            sharing=cpu_isolation(node.settings, node.providers, pod, container).value,
            cpus=str(CPUSet(held)),
            mems=",".join(map(str, numa_of_blocks(node.memory.assignments.get(uid, {}).get(name, ())))),
            mixed=str(wanted.pool) if wanted.is_mixed(uid, name) else UNSET,
        )
        if (uid, name) in wanted.claimed:
            part.claimed = str(CPUSet(CPUMask(wanted.claimed[uid, name])))
        if name in devices:
            part.devices, part.alignment = devices[name]
        if known := live.get(name):
            part.id, part.phase = known.id, known.phase.value
            part.told = status.CPUsAndNodesPart(str(known.record.cpus), nodes_of(known.record.mems))
            if found := snapshot.effective.get(known.id):
                part.effective = status.CPUsAndNodesPart(str(found.cpus), list_text(found.mems))
            part.overlap = str(overlapping.get(known.id, CPUSet()))
        # What it lost because CPUs are offline: those that are not replaced, and its own set
        if lost := held & node.cpu.offline:
            part.lost = str(CPUSet(lost))
        original = exchanged(held, backwards(node.cpu.displaced.get(uid, {})))
        if original != held:
            part.original = str(CPUSet(original))
        _add_resizing(part, state.kubelet, uid, held, now)
        yield part


def devices_of_pod(state: AgentState, pod: Pod) -> dict[str, tuple[list[status.AgentDevicePart], str]]:
    """Return what containers of a pod hold and how they lie to it, by name, without those with nothing to be said."""
    far = {name for name, _ in elsewhere(state, pod)}
    found = {}
    for name, place in places_of(state, pod).items():
        held = devices_of(state.kubelet, pod.uid, name)
        if pod.uid in state.without_devices:
            fit = "unknown"
        elif not held:
            continue
        elif name in far:
            fit = "elsewhere"
        else:
            fit = "aligned" if are_near(held) and (place.cpus or place.mems) else "free"
        parts = [
            status.AgentDevicePart(resource, one.id, list(one.numa or ()), one.healthy)
            for resource, devices in held.items()
            for one in devices
        ]
        found[name] = parts, fit
    return found


def _add_resizing(part: status.AgentContainerPart, kubelet: Kubelet, uid: str, held: CPUMask, now: Moment) -> None:
    """Add what a container got at first, where that is not what it has, and what it releases."""
    cpu, name, policy = kubelet.node.cpu, part.name, kubelet.settings.cpu
    baseline = cpu.baselines.get(uid, {}).get(name, held)
    if held and policy is not None and policy.resizes and baseline != held:
        part.baseline = str(CPUSet(CPUMask(baseline)))
    release = cpu.pre_assignments.get(uid, {}).get(name)
    if release is not None:
        kept = CPUSet(release.cpus)
        seconds = round(delay_left(release, now) / SECOND, 3)
        part.pending = status.ScaleDownPart(str(kept), str(CPUSet(held) - kept), seconds)
    waiting = kubelet.node.waiting.get(uid)
    if waiting is not None and any(
        one.name == name and one.requests != old.requests
        for one, old in zip(waiting.pod.containers, kubelet.node.active[uid].containers, strict=False)
    ):
        part.resize = status.RefusedResizePart(waiting.reason, waiting.rejection.message)
