"""What ``mooring status -o json`` prints: the agent at one moment, as a document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from operator import or_

from msgspec import UNSET, UnsetType

from mooring import KUBELET_VERSION, __version__
from mooring.agent.cgroups.cpuset import Cpuset
from mooring.agent.reactor.desired import DesiredSettings, nodes_of
from mooring.agent.reactor.devices import follows_devices
from mooring.agent.reactor.hotplug import is_watched
from mooring.agent.state import LIVE, AgentState, KnownContainer, by_name, claimed_cpus
from mooring.agent.status.api import unready
from mooring.agent.status.snapshot import ContainerDevices, InterruptView, PluginFailures, Snapshot, devices_of_pod
from mooring.documents.of_kubelet import numa_parts
from mooring.documents.plan import finding_parts
from mooring.documents.status import (
    AgentClaimPart,
    AgentContainerPart,
    AgentCountsPart,
    AgentCPUsPart,
    AgentDevicePart,
    AgentPluginPart,
    AgentPodPart,
    ClaimSharePart,
    ConfigurationPart,
    CPUsAndNodesPart,
    ForeignInterruptPart,
    HeldPodPart,
    InterruptsPart,
    MovedInterruptPart,
    PendingInterruptPart,
    PluginFailurePart,
    RecordedCPUsPart,
    RefusedResizePart,
    RuntimePart,
    ScaleDownPart,
    StatusDocument,
    UnplacedContainerPart,
)
from mooring.engine.core.bits import NO_CPUS, CPUMask, list_text
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.moment import SECOND, Moment
from mooring.engine.core.pod import Pod
from mooring.engine.extensions.interrupts import Step, Why
from mooring.engine.extensions.offline import backwards, effective_pool, exchanged
from mooring.engine.extensions.owners import HeldClaim, claims_of
from mooring.engine.kubelet.kubelet import Kubelet, free_cpus, reserved_cpus
from mooring.engine.node.isolation import cpu_isolation
from mooring.engine.node.node import numa_of_blocks
from mooring.engine.node.resize.feasibility import releases_of
from mooring.engine.node.settings import policies


def status_document(snapshot: Snapshot, counts: AgentCountsPart, now: Moment | None = None) -> StatusDocument:
    """Return the document.

    Args:
        snapshot: of the agent.
        counts: since its start.
        now: the present moment, from which the time that releases still take is counted.
    """
    reasons = list(unready(snapshot))
    configuration, runtime, state = snapshot.configuration, snapshot.runtime, snapshot.state
    document = StatusDocument(
        mooring=__version__,
        kubelet=KUBELET_VERSION,
        node=snapshot.node,
        machine=snapshot.machine.name,
        time=moment(snapshot.taken),
        started=moment(snapshot.started),
        ready=not reasons,
        reasons=reasons,
        runtime=RuntimePart(
            runtime.name, runtime.version, runtime.connected, runtime.synchronized, moment(runtime.since)
        ),
        configuration=ConfigurationPart(
            files=list(configuration.files),
            generation=configuration.generation,
            since=moment(configuration.since),
            refusal=configuration.refusal,
        ),
        policies="",
        cpus=AgentCPUsPart(exclusive="", shared="", reserved="", free="", overlap=""),
        numa_nodes=[],
        pods=[],
        held=[],
        interrupts=UNSET if snapshot.interrupts is None else _interrupts(snapshot.interrupts),
        counts=counts,
    )
    if state is not None:
        _add_engine(document, snapshot, state, now or Moment())
        document.plugins = _plugins(state, snapshot.troubled_plugins)
    return document


def moment(seconds: float) -> str:
    """Return a time as RFC 3339 writes it in UTC; an empty text for none.

    >>> moment(0.0), moment(1_770_000_000.25)
    ('', '2026-02-02T02:40:00Z')
    """
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if seconds else ""


@dataclass(frozen=True, slots=True)
class _Moment:
    """What the containers of all pods are described from."""

    state: AgentState
    live: Mapping[str, list[KnownContainer]]
    """Uid -> containers that the runtime has."""
    effective: Mapping[str, Cpuset]
    overlapping: Mapping[str, CPUSet]
    """Container id -> exclusive CPUs of others on which it may run."""
    claimed: Mapping[tuple[str, str], int]
    """CPUs of claims, as masks by pod uid and container."""
    wanted: DesiredSettings
    now: Moment


def _add_engine(document: StatusDocument, snapshot: Snapshot, state: AgentState, now: Moment) -> None:
    """Add what the engine decided; everything is empty while it does not run."""
    kubelet = state.kubelet
    overlapping: dict[str, CPUSet] = {}
    for one in snapshot.overlaps():
        overlapping[one.container_id] = overlapping.get(one.container_id, CPUSet()) | one.cpus
    touched = CPUSet()
    for cpus in overlapping.values():
        touched |= cpus
    live: dict[str, list[KnownContainer]] = {}
    for container in state.containers.values():
        if container.phase in LIVE:
            live.setdefault(container.uid, []).append(container)
    wanted = DesiredSettings.now(state)
    seen = _Moment(state, live, snapshot.effective, overlapping, claimed_cpus(state), wanted, now)
    document.policies = policies(kubelet.settings)
    document.cpus = AgentCPUsPart(
        exclusive=str(CPUSet(reduce(or_, kubelet.node.cpu.pods.values(), kubelet.node.cpu.held))),
        shared=str(CPUSet(effective_pool(kubelet.node.cpu))),
        reserved=str(reserved_cpus(kubelet)),
        free=str(free_cpus(kubelet)),
        overlap=str(touched),
        offline=str(CPUSet(kubelet.node.cpu.offline)) if is_watched(state) else UNSET,
    )
    document.numa_nodes = numa_parts(kubelet)
    document.pods = [_pod(seen, pod) for pod in kubelet.node.active.values()]
    document.held = [
        HeldPodPart(
            namespace=held.pod.namespace,
            name=held.pod.name,
            uid=uid,
            reason=held.rejection.reason,
            message=held.rejection.message,
            running=_unplaced(live.get(uid, []), kubelet.node.active.get(uid)),
        )
        for uid, held in state.held.items()
    ]
    document.claims = [_claim(state, claim) for claim in claims_of(kubelet.node.cpu).values()] or UNSET


def _unplaced(live: list[KnownContainer], pod: Pod | None) -> list[UnplacedContainerPart]:
    """Return the containers that run in the shared pool because the engine has no place for them."""
    placed = () if pod is None else tuple(one.name for one in pod.containers)
    return [
        UnplacedContainerPart(one.name, one.id, one.phase.value, RecordedCPUsPart(str(one.record.cpus)))
        for one in live
        if one.name not in placed
    ]


def _claim(state: AgentState, claim: HeldClaim) -> AgentClaimPart:
    """Return a claim of dynamic resource allocation, with what each of its requests has."""
    return AgentClaimPart(
        namespace=claim.namespace,
        name=claim.name,
        uid=claim.uid,
        cpus=str(CPUSet(claim.cpus)),
        shares=[ClaimSharePart(share.request, share.device, str(CPUSet(share.cpus))) for share in claim.shares],
        pods=sorted(state.claim_users.get(claim.uid, ())),
    )


def _pod(seen: _Moment, pod: Pod) -> AgentPodPart:
    node = seen.state.kubelet.node
    return AgentPodPart(
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        cpus=str(CPUSet(node.cpu.pods.get(pod.uid, NO_CPUS))),
        mems=_nodes(numa_of_blocks(node.memory.pods.get(pod.uid, ()))),
        containers=list(_containers(seen, pod)),
    )


def _containers(seen: _Moment, pod: Pod) -> Iterator[AgentContainerPart]:
    """Yield the containers of a pod in its order; one that the runtime does not have has no id."""
    state, node = seen.state, seen.state.kubelet.node
    live = by_name(seen.live.get(pod.uid, []))
    claimed, wanted = seen.claimed, seen.wanted
    devices = devices_of_pod(state, pod) if follows_devices(state) else {}
    for container in pod.containers:
        blocks = node.memory.assignments.get(pod.uid, {}).get(container.name, ())
        part = AgentContainerPart(
            name=container.name,
            sharing=cpu_isolation(node.settings, node.providers, pod, container).value,
            cpus=str(CPUSet(node.cpu.assignments.get(pod.uid, {}).get(container.name, NO_CPUS))),
            mems=_nodes(numa_of_blocks(blocks)),
            mixed=str(wanted.pool) if wanted.is_mixed(pod.uid, container.name) else UNSET,
        )
        if (pod.uid, container.name) in claimed:
            part.claimed = str(CPUSet(CPUMask(claimed[pod.uid, container.name])))
        if container.name in devices:
            _add_devices(part, devices[container.name])
        known = live.get(container.name)
        if known is not None:
            # Add what the runtime and the kernel have of a container
            part.id, part.phase = known.id, known.phase.value
            part.told = CPUsAndNodesPart(str(known.record.cpus), nodes_of(known.record.mems))
            found = seen.effective.get(known.id)
            if found is not None:
                part.effective = CPUsAndNodesPart(str(found.cpus), list_text(found.mems))
            part.overlap = str(seen.overlapping.get(known.id, CPUSet()))
        # Add what a container lost because CPUs are offline: those that are not replaced, and its own set
        held = node.cpu.assignments.get(pod.uid, {}).get(part.name, 0)
        lost = held & node.cpu.offline
        if lost:
            part.lost = str(CPUSet(lost))
        original = exchanged(CPUMask(held), backwards(node.cpu.displaced.get(pod.uid, {})))
        if original != held:
            part.original = str(CPUSet(original))
        _add_resizing(part, state.kubelet, pod.uid, seen.now)
        yield part


def _add_devices(part: AgentContainerPart, found: ContainerDevices) -> None:
    """Add what a container holds of devices."""
    part.devices = [
        AgentDevicePart(resource, one.id, list(one.numa or ()), one.healthy)
        for resource, devices in found.held.items()
        for one in devices
    ]
    part.alignment = found.fit.value


def _add_resizing(part: AgentContainerPart, kubelet: Kubelet, uid: str, now: Moment) -> None:
    """Add what a container got at first, where that is not what it has, and what it releases."""
    cpu, name = kubelet.node.cpu, part.name
    held = cpu.assignments.get(uid, {}).get(name, 0)
    policy = kubelet.settings.cpu
    baseline = cpu.baselines.get(uid, {}).get(name, held)
    if held and policy is not None and policy.resizes and baseline != held:
        part.baseline = str(CPUSet(CPUMask(baseline)))
    release = releases_of(cpu, uid).get(name)
    if release is not None:
        leaving = CPUSet(CPUMask(held)) - release.cpus
        part.pending = ScaleDownPart(str(release.cpus), str(leaving), round(release.left(now) / SECOND, 3))
    waiting = kubelet.node.waiting.get(uid)
    if waiting is not None and any(
        one.name == name and one.requests != old.requests
        for one, old in zip(waiting.pod.containers, kubelet.node.active[uid].containers, strict=False)
    ):
        part.resize = RefusedResizePart(waiting.reason, waiting.rejection.message)


def _plugins(state: AgentState, troubled: Mapping[str, PluginFailures]) -> list[AgentPluginPart] | UnsetType:
    """Return the plugins that take part; none without the extension."""
    host = state.kubelet.settings.plugins
    if host is None:
        return UNSET
    parts = []
    for plugin in host.choice.plugins:
        failures = troubled.get(plugin.name)
        parts.append(
            AgentPluginPart(
                name=plugin.name,
                placement=plugin.placement.value,
                given_up=host.choice.watch.has_given_up(plugin.name),
                failures=0 if failures is None else failures.failures,
                last_failure=UNSET if failures is None else PluginFailurePart(failures.point, failures.why),
            )
        )
    return parts


def _interrupts(view: InterruptView) -> InterruptsPart:
    return InterruptsPart(
        mode=view.mode,
        total=view.total,
        managed=view.count(Why.MANAGED),
        no_room=view.count(Why.NO_ROOM),
        moved=[MovedInterruptPart(*_interrupt(one), original=str(one.original), why=_why(one)) for one in view.moved],
        pending=[PendingInterruptPart(*_interrupt(one), wanted=str(one.write), why=_why(one)) for one in view.pending],
        left_alone=[ForeignInterruptPart(*_interrupt(one)) for one in view.alone],
        findings=finding_parts(view.findings),
    )


def _interrupt(step: Step) -> tuple[int, str, str]:
    """Return number and name of an interrupt, and the CPUs that it may use."""
    return step.interrupt.number, step.interrupt.name, str(step.interrupt.allowed)


def _why(step: Step) -> str:
    if step.place is None:
        raise AssertionError("an interrupt that the agent moves has a place")
    return step.place.why.value


def _nodes(ids: tuple[int, ...]) -> str:
    return ",".join(map(str, ids))
