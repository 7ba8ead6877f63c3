"""Where a stretch begins: what the engine may have been, on the observed state or as a kubelet starts on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from mooring.engine.core.pod import Pod, QoS
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.monitoring.shadow.judging.orders import Changes, OrderSearch, with_started
from mooring.monitoring.shadow.judging.restarting import Restarting, absent, counted_by_status
from mooring.monitoring.shadow.judging.window import Window
from mooring.monitoring.shadow.observed import ObservedNode, ObservedPod
from mooring.published.objects import PodKey
from mooring.published.restored import kind_of, restored

_ANYTHING = PodKey("", "")
"""In a state of which it is not known which pods its files may name."""


def engine_on(seen: ObservedNode, known: Mapping[str, ObservedPod], *, dropped: bool = True) -> Kubelet | str:
    """Return the engine on a state that was observed; a text says why it would not start.

    Args:
        seen: the state.
        known: what is known of its pods.
        dropped: whether the managers have dropped what pods that are gone left behind; a kubelet that starts does so
            only when it has asked about the pods that are there.
    """
    kind = kind_of(seen.state.facts, seen.facts)
    if isinstance(kind, str):
        return kind
    admitted = _admitted(seen, known)
    pods = {uid: one.pod for uid, one in known.items() if uid in admitted}
    state = replace(seen.state, pods=tuple(key for key in seen.state.pods if key.uid not in known or key.uid in pods))
    if not dropped:
        devices = replace(state.devices, held={**seen.left, **state.devices.held})
        state = replace(state, pods=(*state.pods, _ANYTHING), devices=devices)
    found = restored(kind, state, pods)
    if isinstance(found, str):
        return found
    # A kubelet that starts admits its pods in the order of their creation.
    active = sorted(found.node.active.items(), key=lambda item: (_created(known, item[0]), item[0]))
    return replace(found, node=replace(found.node, active=dict(active))).counting(found.used)


def _admitted(seen: ObservedNode, known: Mapping[str, ObservedPod]) -> frozenset[str]:
    """Return the uids of listed pods that were admitted.

    One that is refused later can be listed while it is asked about. One that ran can be refused, too, when its kubelet
    starts again.
    """
    listed = known.keys() & (seen.listed - seen.waiting)
    return frozenset(uid for uid in listed if not known[uid].reason or seen.runs(uid))


def beginnings(
    base: Kubelet, before: ObservedNode, changes: Changes, window: Window, search: OrderSearch
) -> Iterator[tuple[Kubelet, Changes]]:
    """Yield what the node may have been at a stretch's begin, and what happened to it then, the likely first.

    Args:
        base: the engine on the state that was observed.
        before: the observation.
        changes: what happened, as far as it was observed.
        window: what is known of the pods.
        search: of the order that fits.
    """
    return (_observed if changes.restart is None else _started)(base, before, changes, window, search)


def _observed(
    base: Kubelet, before: ObservedNode, changes: Changes, window: Window, search: OrderSearch
) -> Iterator[tuple[Kubelet, Changes]]:
    """Yield the node, and where memory lies on several NUMA nodes the node as it was seen, with what pods left behind.

    What is released first decides on which node the memory of others counts then, and the kubelet releases in random
    order.

    Source: kubelet v1.37.1, cm/memorymanager/memory_manager.go (removeStaleState: a walk over a map) and
    policy_static.go (releaseMemory); spec: memory-manager.md section 5.
    """
    yield base, changes
    started = with_started(base)
    if started.files != base.files:
        yield started, changes
    whole = engine_on(before, window.pods, dropped=False)
    if isinstance(whole, str) or not (is_over_several(whole) or is_over_several(search.goal)):
        return
    whole = absent(whole, before.waiting)
    left = tuple(uid for uid in whole.node.active if uid not in base.node.active)
    refused = tuple(one.pod for uid, one in window.refused.items() if uid not in window.used)
    happened = replace(changes, leaving=(*changes.leaving, *left))
    if left:
        yield whole, happened
    if refused:
        yield whole, replace(happened, refused=refused)


def is_over_several(kubelet: Kubelet) -> bool:
    """Tell whether memory of a container lies on several NUMA nodes."""
    return any(len(node.cells) > 1 for node in kubelet.node.memory.nodes.values())


def _started(
    base: Kubelet, before: ObservedNode, changes: Changes, window: Window, search: OrderSearch
) -> Iterator[tuple[Kubelet, Changes]]:
    """Yield what the node may have been when its kubelet started, and what happened to it then.

    The managers learn that all pods were read when the first of them have been asked about, and release nothing until
    then (removeStaleState and UpdateAllocatedDevices return until sourcesReady.AllReady()).

    Source: kubelet v1.37.1, pkg/kubelet/kubelet.go (syncLoopIteration), cm/cpumanager/cpu_manager.go,
    cm/memorymanager/memory_manager.go and cm/devicemanager/manager.go; spec: cpu-manager.md section 11 and
    topology-manager.md section 7.1.
    """
    if changes.restart is None:
        raise AssertionError("only a kubelet that started is asked on what")
    created = {uid: one.created for uid, one in window.pods.items()}
    restarting = Restarting(
        changes.restart,
        before.facts.config,
        created,
        lambda answer, kubelet: search.unlike(answer, kubelet) is None,
        search.goal,
        counted_by_status(before.pods, window.pods, search.goal.settings.pod_level),
    )
    gone = [uid for uid in changes.leaving if uid not in window.pods or not window.pods[uid].reason]
    whole = engine_on(before, window.pods, dropped=False)
    nodes = [base]
    whole = whole if isinstance(whole, str) else absent(whole, before.waiting)
    if not isinstance(whole, str) and whole.node.active.keys() != base.node.active.keys():
        # What refused pods left behind is there still, and such a pod is not asked about again.
        left = [uid for uid in whole.node.active if uid not in base.node.active]
        nodes = [absent(whole, left), whole, base]
    for node in nodes:
        left = [uid for uid in node.node.active if uid not in base.node.active]
        happened = replace(changes, leaving=(*changes.leaving, *left))
        for begun in restarting.begun(node, gone):
            yield begun, happened
    if listed := _listed(changes, window):
        for node in nodes:
            for begun in restarting.begun(node, gone):
                yield begun, replace(changes, listed=listed)


def _listed(changes: Changes, window: Window) -> tuple[tuple[Pod, ...], ...]:
    """Return the new pods that a starting kubelet may find in its first list, by the second of their creation."""
    refused = [one.pod for uid, one in window.refused.items() if uid not in window.used]
    # A pod of the shared pool has no entry in the state files: its admission is unknown until its status is published.
    shared = [one.pod for one in window.waiting.values() if one.pod.qos is not QoS.GUARANTEED]
    created: dict[str, list[Pod]] = {}
    for pod in (*changes.admitted, *refused, *shared):
        created.setdefault(window.pods[pod.uid].created, []).append(pod)
    return tuple(tuple(pods) for _, pods in sorted(created.items()))


def _created(known: Mapping[str, ObservedPod], uid: str) -> str:
    return known[uid].created if uid in known else ""
