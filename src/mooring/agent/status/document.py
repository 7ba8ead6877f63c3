"""What ``mooring status -o json`` prints: the agent at one moment, as a versioned document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import reduce
from operator import or_
from typing import Any

from msgspec import to_builtins

from mooring import KUBELET_VERSION, __version__
from mooring.agent.interrupts.view import interrupt_fields
from mooring.agent.reactor.claimed import claimed_cpus
from mooring.agent.reactor.desired import DesiredSettings, nodes_of
from mooring.agent.reactor.hotplug import is_watched
from mooring.agent.reactor.values import LIVE, AgentState, KnownContainer
from mooring.agent.status.health import unready
from mooring.agent.status.snapshot import AgentCounts, EffectiveSet, Snapshot, plugin_fields
from mooring.core.cpuset import CPUSet
from mooring.core.moment import SECOND, Moment
from mooring.core.pod import Pod
from mooring.cpumanager.state import CPUState
from mooring.extensions.claimed import HeldClaim, claims_of
from mooring.extensions.offline import backwards, effective_pool, exchanged
from mooring.kubelet.kubelet import Kubelet
from mooring.node.isolation import cpu_isolation
from mooring.node.node import numa_of_blocks
from mooring.node.resize import releases_of
from mooring.planner.picture import policies
from mooring.planner.plan import free_cpus, reserved_cpus
from mooring.planner.plan_document import numa_parts

API_VERSION = "mooring/v1alpha1"
KIND = "AgentStatus"


def status_document(snapshot: Snapshot, counts: AgentCounts, now: Moment | None = None) -> dict[str, Any]:
    """Return the document; it holds nothing but dicts, lists, texts, numbers, flags and None.

    Args:
        snapshot: of the agent.
        counts: since its start.
        now: the present moment, from which the time that releases still take is counted.
    """
    reasons = list(unready(snapshot))
    configuration, runtime = snapshot.configuration, snapshot.runtime
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "mooring": __version__,
        "kubelet": KUBELET_VERSION,
        "node": snapshot.node,
        "machine": snapshot.machine.name,
        "time": moment(snapshot.taken),
        "started": moment(snapshot.started),
        "ready": not reasons,
        "reasons": reasons,
        "runtime": {
            "name": runtime.name,
            "version": runtime.version,
            "connected": runtime.connected,
            "synchronized": runtime.synchronized,
            "since": moment(runtime.since),
        },
        "configuration": {
            "files": list(configuration.files),
            "generation": configuration.generation,
            "since": moment(configuration.since),
            "refusal": configuration.refusal,
        },
        **_of_engine(snapshot, now or Moment()),
        **plugin_fields(snapshot.state, snapshot.troubled_plugins),
        **interrupt_fields(snapshot.interrupts),
        "counts": {
            "replies": counts.replies,
            "meanReplyMilliseconds": round(1000 * counts.reply_seconds / counts.replies, 3) if counts.replies else 0.0,
            "rejections": counts.rejections,
            "evictions": counts.evictions,
            "repairs": counts.repairs,
            "reconnects": counts.reconnects,
            "stateWriteFailures": counts.state_write_failures,
        },
    }


def moment(seconds: float) -> str:
    """Return a time as RFC 3339 writes it in UTC; an empty text for none.

    >>> moment(0.0), moment(1_770_000_000.25)
    ('', '2026-02-02T02:40:00Z')
    """
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if seconds else ""


def _of_engine(snapshot: Snapshot, now: Moment) -> dict[str, Any]:
    """Return what the engine decided; everything is empty while it does not run."""
    state = snapshot.state
    if state is None:
        nobody = {"exclusive": "", "shared": "", "reserved": "", "free": "", "overlap": ""}
        return {"policies": "", "cpus": nobody, "numaNodes": [], "pods": [], "held": []}
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
    return {
        "policies": policies(kubelet.settings),
        "cpus": {
            "exclusive": str(_held(kubelet.node.cpu)),
            "shared": str(CPUSet(effective_pool(kubelet.node.cpu))),
            "reserved": str(reserved_cpus(kubelet)),
            "free": str(free_cpus(kubelet)),
            "overlap": str(touched),
            **({"offline": str(CPUSet(kubelet.node.cpu.offline))} if is_watched(state) else {}),
        },
        "numaNodes": to_builtins(numa_parts(kubelet)),
        "pods": [
            _pod(state, pod, live.get(pod.uid, []), snapshot.effective, overlapping, now)
            for pod in kubelet.node.active.values()
        ],
        "held": [
            {
                "namespace": held.pod.namespace,
                "name": held.pod.name,
                "uid": uid,
                "reason": held.rejection.reason,
                "message": held.rejection.message,
                "running": _unplaced(live.get(uid, []), kubelet.node.active.get(uid)),
            }
            for uid, held in state.held.items()
        ],
        **_claims(state),
    }


def _unplaced(live: list[KnownContainer], pod: Pod | None) -> list[dict[str, Any]]:
    """Return the containers that run in the shared pool because the engine has no place for them."""
    placed = () if pod is None else tuple(one.name for one in pod.containers)
    return [
        {"name": one.name, "id": one.id, "phase": one.phase.value, "told": {"cpus": str(one.told.cpus)}}
        for one in live
        if one.name not in placed
    ]


def _claims(state: AgentState) -> dict[str, Any]:
    """Return the claims of dynamic resource allocation; nothing where there are none, as on most nodes."""
    found = claims_of(state.kubelet.node.cpu).values()
    return {"claims": [_claim(state, claim) for claim in found]} if found else {}


def _claim(state: AgentState, claim: HeldClaim) -> dict[str, Any]:
    """Return a claim, with what each of its requests has."""
    return {
        "namespace": claim.namespace,
        "name": claim.name,
        "uid": claim.uid,
        "cpus": str(CPUSet(claim.cpus)),
        "shares": [
            {"request": share.request, "device": share.device, "cpus": str(CPUSet(share.cpus))}
            for share in claim.shares
        ],
        "pods": sorted(state.claim_users.get(claim.uid, ())),
    }


def _pod(
    state: AgentState,
    pod: Pod,
    live: list[KnownContainer],
    effective: Mapping[str, EffectiveSet],
    overlapping: Mapping[str, CPUSet],
    now: Moment,
) -> dict[str, Any]:
    node = state.kubelet.node
    return {
        "namespace": pod.namespace,
        "name": pod.name,
        "uid": pod.uid,
        "cpus": str(CPUSet(node.cpu.pods.get(pod.uid, 0))),
        "mems": _nodes(numa_of_blocks(node.memory.pods.get(pod.uid, ()))),
        "containers": [
            {**fields, **_resizing(state.kubelet, pod.uid, fields["name"], now)}
            for fields in _containers(state, pod, live, effective, overlapping)
        ],
    }


def _containers(
    state: AgentState,
    pod: Pod,
    live: list[KnownContainer],
    effective: Mapping[str, EffectiveSet],
    overlapping: Mapping[str, CPUSet],
) -> Iterator[dict[str, Any]]:
    """Yield the containers of a pod in its order; one that the runtime does not have has no id."""
    node = state.kubelet.node
    by_name = {one.name: one for one in live}
    claimed, wanted = claimed_cpus(state), DesiredSettings.now(state)
    for container in pod.containers:
        blocks = node.memory.assignments.get(pod.uid, {}).get(container.name, ())
        fields: dict[str, Any] = {
            "name": container.name,
            "sharing": cpu_isolation(node.settings, node.providers, pod, container).value,
            "cpus": str(CPUSet(node.cpu.assignments.get(pod.uid, {}).get(container.name, 0))),
            "mems": _nodes(numa_of_blocks(blocks)),
        }
        if (pod.uid, container.name) in claimed:
            fields["claimed"] = str(CPUSet(claimed[pod.uid, container.name]))
        fields |= _hotplug(node.cpu, pod.uid, container.name)
        if wanted.is_mixed(pod.uid, container.name):
            fields["mixed"] = str(CPUSet(wanted.pool))
        known = by_name.get(container.name)
        if known is not None:
            fields |= {"id": known.id, "phase": known.phase.value}
            fields["told"] = {"cpus": str(known.told.cpus), "mems": nodes_of(known.told.mems)}
            found = effective.get(known.id)
            if found is not None:
                fields["effective"] = {"cpus": str(found.cpus), "mems": found.mems}
            fields["overlap"] = str(overlapping.get(known.id, CPUSet()))
        yield fields


def _hotplug(cpu: CPUState, uid: str, name: str) -> dict[str, Any]:
    """Return what a container lost because CPUs are offline: those that nothing stands in for, and its own set."""
    held = cpu.assignments.get(uid, {}).get(name, 0)
    lost = held & cpu.offline
    fields: dict[str, Any] = {"lost": str(CPUSet(lost))} if lost else {}
    original = exchanged(held, backwards(cpu.displaced.get(uid, {})))
    if original != held:
        fields["original"] = str(CPUSet(original))
    return fields


def _resizing(kubelet: Kubelet, uid: str, name: str, now: Moment) -> dict[str, Any]:
    """Return what a container got at first, where that is not what it has, and what it gives back."""
    cpu = kubelet.node.cpu
    held = cpu.assignments.get(uid, {}).get(name, 0)
    fields: dict[str, Any] = {}
    policy = kubelet.settings.cpu
    baseline = cpu.baselines.get(uid, {}).get(name, held)
    if held and policy is not None and policy.resizes and baseline != held:
        fields["baseline"] = str(CPUSet(baseline))
    release = releases_of(cpu, uid).get(name)
    if release is not None:
        leaving = CPUSet(held) - release.cpus
        seconds = round(release.left(now) / SECOND, 3)
        fields["pending"] = {"cpus": str(release.cpus), "releases": str(leaving), "secondsLeft": seconds}
    waiting = kubelet.node.waiting.get(uid)
    if waiting is not None and any(
        one.name == name and one.requests != old.requests
        for one, old in zip(waiting.pod.containers, kubelet.node.active[uid].containers, strict=False)
    ):
        fields["resize"] = {"reason": waiting.reason, "message": waiting.rejection.message}
    return fields


def _held(state: CPUState) -> CPUSet:
    """Return the CPUs of all containers and of all pods as a whole."""
    return CPUSet(reduce(or_, state.pods.values(), state.held))


def _nodes(ids: tuple[int, ...]) -> str:
    return ",".join(map(str, ids))
