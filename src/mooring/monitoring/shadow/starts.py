"""On which files, and with which pods in which order, a kubelet may have started.

Nothing that can be seen tells whether an operator removed the state files while the kubelet was away, and of pods that
were created in the same second nothing tells which is asked about first. Both decide only where files are gone: with
them every pod keeps what it has.

Source: kubelet v1.37.1, pkg/kubelet/kubelet.go (HandlePodAdditions sorts by time of creation, in seconds), and
devicemanager manager.go (readCheckpoint: no devices until plugins register again).

Where a interval begins: what the engine may have been, on the observed state or as a kubelet starts on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, product
from typing import Final

from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.core.pod import ContainerKind, Pod, PodLevelGates, QoS, StatusSizes
from mooring.engine.kubelet.admit import admit
from mooring.engine.kubelet.events import Restart
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import NotStarted, restart_kubelet
from mooring.inputs.pods.pod_fields import with_statuses
from mooring.monitoring.shadow.orders import Changes, OrderSearch, with_started
from mooring.monitoring.shadow.unseen import ObservedNode, ObservedPod, Window, engine_on

MOST_ASKED: Final = 4000
"""Pods that are asked about until an order fits."""
MOST_ORDERS: Final = 32
"""Orders that fit each pod, and are tried with what the kubelet did afterwards."""
_Reached = tuple[StateTexts, tuple[str, ...]]
"""What a kubelet has become, and the uids of the pods that it has not been asked about."""


class Restarting:
    """A restart of a kubelet, as far as it is known."""

    def __init__(self, restart: Restart, before: ObservedNode, window: Window, search: OrderSearch) -> None:
        """Begin with what was observed.

        Args:
            restart: of the kubelet.
            before: the last observation before it.
            window: what is known of the pods.
            search: of the order that fits.
        """
        self._restart, self._before, self._search = restart, before.facts.config, search
        self._created = {uid: one.created for uid, one in window.pods.items()}
        self._counted = counted_by_status(before.pods, window.pods, search.goal.settings.pod_level)

    def begun(self, base: Kubelet, leaving: Sequence[str]) -> Iterator[Kubelet]:
        """Yield the node before the restart in the forms that it may have had, the likely first.

        Args:
            base: as it was observed last.
            leaving: uids of the pods that are gone afterwards and were not refused.
        """
        # With its files and without; a kubelet with another policy would not have started on them.
        after = self._restart.kubelet or self._before
        cpu = (base.cpu_file, None) if self._before.cpu_manager_policy == after.cpu_manager_policy else (None,)
        memory = (
            (base.memory_file, None) if self._before.memory_manager_policy == after.memory_manager_policy else (None,)
        )
        found = [replace(base, cpu_file=one, memory_file=other) for one, other in product(cpu, memory)]
        # One of two files is removed less often than both.
        for node in sorted(found, key=lambda one: (one.cpu_file is None) != (one.memory_file is None)):
            yield node
            if node.files != base.files or self._counted:
                yield from islice(self._ordered(node, frozenset(leaving)), MOST_ORDERS)
            if node.files == base.files and leaving:
                # They ended before the start: their requests do not count, and the files have what they held.
                yield absent(node, leaving)

    def _ordered(self, base: Kubelet, leaving: frozenset[str]) -> Iterator[Kubelet]:
        """Yield the node with its pods in the orders in which all answers fit, one for each end that they lead to."""
        started = restart_kubelet(base, self._restart.kubelet, release=self._restart.release)
        if isinstance(started, NotStarted):
            return
        pods = tuple(sorted(base.node.active.values(), key=self._second))
        for found in islice(self._orders(started, pods, leaving, set()), MOST_ASKED):
            if found is not None:
                node = absent(base, base.node.active.keys() - {pod.uid for pod in found}).node
                yield replace(base, node=replace(node, active={pod.uid: pod for pod in found}))

    def _orders(
        self, kubelet: Kubelet, left: tuple[Pod, ...], leaving: frozenset[str], seen: set[_Reached]
    ) -> Iterator[tuple[Pod, ...] | None]:
        """Yield the orders in which all answers fit, and None for every pod that was asked about.

        Args:
            kubelet: as it has become.
            left: the pods that it has not been asked about.
            leaving: uids of the pods that may have ended before it was asked about them.
            seen: from where all orders were followed already.
        """
        if not left:
            yield ()
            return
        reached = (kubelet.files, tuple(pod.uid for pod in left))
        if reached in seen:
            return
        seen.add(reached)
        for pod in [one for one in left if self._second(one) == self._second(left[0])]:
            others = tuple(one for one in left if one is not pod)
            for counted in self._counted.get(pod.uid, (pod,)):
                yield None
                try:
                    then, answer = admit(kubelet, counted, running=True)
                except KubeletCrashError:
                    continue
                # A starting kubelet releases no CPUs: those that pods have at the end must not have been given away.
                goal, state = self._search.goal.node.cpu.assignments, then.node.cpu
                waiting = (goal.get(one.uid, {}) for one in others if one.uid not in state.assignments)
                taken = any(cpus & ~state.default for containers in waiting for cpus in containers.values())
                if self._search.unlike(answer, then) is None and not taken:
                    for rest in self._orders(then, others, leaving, seen):
                        yield None if rest is None else (counted, *rest)
        if left[0].uid in leaving:
            yield from self._orders(kubelet, left[1:], leaving, seen)

    def _second(self, pod: Pod) -> str:
        return self._created.get(pod.uid, "")


def counted_by_status(
    before: Mapping[str, ObservedPod], later: Mapping[str, ObservedPod], gates: PodLevelGates
) -> dict[str, Sequence[Pod]]:
    """Return pods that a kubelet which starts may not count by their specification, by uid, in the forms they may have.

    While the containers of a pod are made, their statuses allocate nothing.

    Args:
        before: the pods at the last observation before the start.
        later: as they were observed last.
        gates: of the kubelet that starts.

    Source: kubelet v1.34.4, cm/cpumanager/policy_static.go and cm/memorymanager/policy_static.go
    (AllocatedResources of the container's status); spec: releases.md section 7.
    """
    found: dict[str, Sequence[Pod]] = {}
    for uid, one in before.items() if gates.statuses is not StatusSizes.NONE else ():
        form = _with_statuses(one)
        lasting = [container.allocated for container in form.containers if container.kind is not ContainerKind.INIT]
        forms = [form]
        if not all(lasting):
            forms += [_with_statuses(later[uid])] if uid in later else []
            if None in lasting:
                inits = (each.kind is ContainerKind.INIT for each in one.pod.containers)
                pairs = zip(one.pod.containers, inits, strict=True)
                emptied = tuple(each if is_init else replace(each, allocated={}) for each, is_init in pairs)
                forms.append(replace(one.pod, containers=emptied))
        counted = [[gates.requests_of(container) for container in each.containers] for each in (*forms, one.pod)]
        if any(amounts != counted[-1] for amounts in counted):
            found[uid] = [each for number, each in enumerate(forms) if counted[number] not in counted[:number]]
    return found


def _with_statuses(seen: ObservedPod) -> Pod:
    return replace(seen.pod, containers=tuple(with_statuses(seen.content, seen.pod.containers)))


def absent(kubelet: Kubelet, uids: Iterable[str]) -> Kubelet:
    """Return the kubelet without pods about which it is not asked when it starts: its files have what they held."""
    node = kubelet.node
    for uid in uids:
        node = node.withdraw(uid)
    return replace(kubelet, node=node)


def possible_starts(
    base: Kubelet, before: ObservedNode, changes: Changes, window: Window, search: OrderSearch
) -> Iterator[tuple[Kubelet, Changes]]:
    """Yield what the node may have been at a interval's begin, and what happened to it then, the likely first.

    Args:
        base: the engine on the state that was observed.
        before: the observation.
        changes: what happened, as far as it was observed.
        window: what is known of the pods.
        search: of the order that fits.
    """
    if changes.restart is None:
        return _observed(base, before, changes, window, search)
    return _started(base, before, changes, window, Restarting(changes.restart, before, window, search))


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
    base: Kubelet, before: ObservedNode, changes: Changes, window: Window, restarting: Restarting
) -> Iterator[tuple[Kubelet, Changes]]:
    """Yield what the node may have been when its kubelet started, and what happened to it then.

    The managers learn that all pods were read when the first of them have been asked about, and release nothing until
    then (removeStaleState and UpdateAllocatedDevices return until sourcesReady.AllReady()).

    Source: kubelet v1.37.1, pkg/kubelet/kubelet.go (syncLoopIteration), cm/cpumanager/cpu_manager.go,
    cm/memorymanager/memory_manager.go and cm/devicemanager/manager.go; spec: cpu-manager.md section 11 and
    topology-manager.md section 7.1.
    """
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
    # The new pods that it may find in its first list, by the second of their creation. A pod of the shared pool has no
    # entry in the state files: its admission is unknown until its status is published.
    refused = [one.pod for uid, one in window.refused.items() if uid not in window.used]
    shared = [one.pod for one in window.waiting.values() if one.pod.qos is not QoS.GUARANTEED]
    created: dict[str, list[Pod]] = {}
    for pod in (*changes.admitted, *refused, *shared):
        created.setdefault(window.pods[pod.uid].created, []).append(pod)
    if listed := tuple(tuple(pods) for _, pods in sorted(created.items())):
        for node in nodes:
            for begun in restarting.begun(node, gone):
                yield begun, replace(changes, listed=listed)
