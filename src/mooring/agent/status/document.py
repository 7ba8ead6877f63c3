"""What ``mooring status -o json`` prints: the agent at one moment, as a document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce
from operator import or_

from msgspec import UNSET

from mooring import KUBELET_VERSION, __version__
from mooring.agent.reactor.desired import DesiredSettings, nodes_of
from mooring.agent.reactor.devices import devices_of, elsewhere, follows_devices, places_of
from mooring.agent.reactor.hotplug import is_watched
from mooring.agent.state import LIVE, AgentState, KnownContainer, by_name
from mooring.agent.status.api import unready
from mooring.agent.status.snapshot import Snapshot, moment
from mooring.documents import status
from mooring.documents.of_kubelet import numa_parts
from mooring.engine.core.bits import NO_CPUS, CPUMask, list_text
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.moment import SECOND, Moment
from mooring.engine.core.pod import Pod
from mooring.engine.extensions.offline import backwards, effective_pool, exchanged
from mooring.engine.extensions.owners import claims_of
from mooring.engine.kubelet.kubelet import Kubelet, free_cpus, reserved_cpus
from mooring.engine.node.feasibility import releases_of
from mooring.engine.node.isolation import cpu_isolation
from mooring.engine.node.node import numa_of_blocks
from mooring.engine.node.settings import policies
from mooring.explanations.alignment import are_near


def status_document(
    snapshot: Snapshot, counts: status.AgentCountsPart, now: Moment | None = None
) -> status.StatusDocument:
    """Return the document.

    Args:
        snapshot: of the agent.
        counts: since its start.
        now: the present moment, from which the time that releases still take is counted.
    """
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
                mems=_nodes(numa_of_blocks(node.memory.pods.get(uid, ()))),
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
                    status.ClaimSharePart(share.request, share.device, str(CPUSet(share.cpus)))
                    for share in claim.shares
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
                given_up=host.choice.watch.has_given_up(plugin.name),
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
    """Yield the containers of a pod in its order; one that the runtime does not have has no id.

    Args:
        snapshot: of the agent.
        pod: of the engine.
        live: containers of the pod that the runtime has, by name.
        overlapping: exclusive CPUs of others on which containers may run, by id.
        wanted: what containers should have.
        now: the present moment.
    """
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
            mems=_nodes(numa_of_blocks(node.memory.assignments.get(uid, {}).get(name, ()))),
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
    release = releases_of(cpu, uid).get(name)
    if release is not None:
        leaving = CPUSet(held) - release.cpus
        part.pending = status.ScaleDownPart(str(release.cpus), str(leaving), round(release.left(now) / SECOND, 3))
    waiting = kubelet.node.waiting.get(uid)
    if waiting is not None and any(
        one.name == name and one.requests != old.requests
        for one, old in zip(waiting.pod.containers, kubelet.node.active[uid].containers, strict=False)
    ):
        part.resize = status.RefusedResizePart(waiting.reason, waiting.rejection.message)


def _nodes(ids: tuple[int, ...]) -> str:
    return ",".join(map(str, ids))
