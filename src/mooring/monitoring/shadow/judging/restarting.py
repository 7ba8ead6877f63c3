"""On which files, and with which pods in which order, a kubelet may have started.

Nothing that can be seen tells whether an operator removed the state files while the kubelet was away, and of pods that
were created in the same second nothing tells which is asked about first. Both decide only where files are gone: with
them every pod keeps what it has.

Source: kubelet v1.37.1, pkg/kubelet/kubelet.go (HandlePodAdditions sorts by time of creation, in seconds), and
devicemanager manager.go (readCheckpoint: no devices until plugins register again).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, product
from typing import Final

from mooring.engine.core.config import KubeletConfig
from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.core.pod import ContainerKind, Pod, PodLevelGates, StatusSizes
from mooring.engine.kubelet.admit import AdmitResult, admit
from mooring.engine.kubelet.events import Restart
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import NotStarted, restart_kubelet
from mooring.inputs.pods.pod_fields import with_statuses
from mooring.monitoring.shadow.observed import ObservedPod

MOST_ASKED: Final = 4000
"""Pods that are asked about until an order fits."""
MOST_ORDERS: Final = 32
"""Orders that fit each pod, and are tried with what the kubelet did afterwards."""
_Reached = tuple[StateTexts, tuple[str, ...]]
"""What a kubelet has become, and the uids of the pods that it has not been asked about."""


@dataclass(frozen=True, slots=True)
class Restarting:
    """A restart of a kubelet, as far as it is known."""

    restart: Restart
    before: KubeletConfig
    """The configuration until then."""
    created: Mapping[str, str]
    """When pods were created, by uid, in seconds."""
    fits: Callable[[AdmitResult, Kubelet], bool]
    """Tells whether the kubelet did with a pod what an answer says, in which it became this one."""
    goal: Kubelet
    """At the end."""
    counted: Mapping[str, Sequence[Pod]] = field(default_factory=dict)
    """By uid, pods of which more is known than their specification: as the kubelet may have counted them."""

    def begun(self, base: Kubelet, leaving: Sequence[str]) -> Iterator[Kubelet]:
        """Yield the node before the restart in the forms that it may have had, the likely first.

        Args:
            base: as it was observed last.
            leaving: uids of the pods that are gone afterwards and were not refused.
        """
        for node in self._with_files(base):
            yield node
            if node.files != base.files or self.counted:
                yield from islice(self._ordered(node, frozenset(leaving)), MOST_ORDERS)
            if node.files == base.files and leaving:
                # They ended before the start: their requests do not count, and the files have what they held.
                yield absent(node, leaving)

    def _with_files(self, base: Kubelet) -> Iterator[Kubelet]:
        """Yield it with its files and without; a kubelet with another policy would not have started on them."""
        after = self.restart.kubelet or self.before
        cpu = (base.cpu_file, None) if self.before.cpu_manager_policy == after.cpu_manager_policy else (None,)
        memory = (
            (base.memory_file, None) if self.before.memory_manager_policy == after.memory_manager_policy else (None,)
        )
        found = [replace(base, cpu_file=one, memory_file=other) for one, other in product(cpu, memory)]
        # One of two files is removed less often than both.
        yield from sorted(found, key=lambda one: (one.cpu_file is None) != (one.memory_file is None))

    def _ordered(self, base: Kubelet, leaving: frozenset[str]) -> Iterator[Kubelet]:
        """Yield the node with its pods in the orders in which all answers fit, one for each end that they lead to."""
        started = restart_kubelet(base, self.restart.kubelet, release=self.restart.release)
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
            for counted in self.counted.get(pod.uid, (pod,)):
                yield None
                try:
                    then, answer = admit(kubelet, counted, running=True)
                except KubeletCrashError:
                    continue
                if self.fits(answer, then) and not self._takes(then, others):
                    for rest in self._orders(then, others, leaving, seen):
                        yield None if rest is None else (counted, *rest)
        if left[0].uid in leaving:
            yield from self._orders(kubelet, left[1:], leaving, seen)

    def _takes(self, kubelet: Kubelet, left: Iterable[Pod]) -> bool:
        """Tell whether CPUs have been given away that pods have at the end: a starting kubelet releases none."""
        goal, state = self.goal.node.cpu.assignments, kubelet.node.cpu
        waiting = (goal.get(pod.uid, {}) for pod in left if pod.uid not in state.assignments)
        return any(cpus & ~state.default for containers in waiting for cpus in containers.values())

    def _second(self, pod: Pod) -> str:
        return self.created.get(pod.uid, "")


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
            forms += [_allocating_nothing(one.pod)] if None in lasting else []
        counted = [[gates.requests_of(container) for container in each.containers] for each in (*forms, one.pod)]
        if any(amounts != counted[-1] for amounts in counted):
            found[uid] = [each for number, each in enumerate(forms) if counted[number] not in counted[:number]]
    return found


def _with_statuses(seen: ObservedPod) -> Pod:
    return replace(seen.pod, containers=tuple(with_statuses(seen.content, seen.pod.containers)))


def _allocating_nothing(pod: Pod) -> Pod:
    containers = (one if one.kind is ContainerKind.INIT else replace(one, allocated={}) for one in pod.containers)
    return replace(pod, containers=tuple(containers))


def absent(kubelet: Kubelet, uids: Iterable[str]) -> Kubelet:
    """Return the kubelet without pods about which it is not asked when it starts: its files have what they held."""
    node = kubelet.node
    for uid in uids:
        node = node.withdraw(uid)
    return replace(kubelet, node=node)
