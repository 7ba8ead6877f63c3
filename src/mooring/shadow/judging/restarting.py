"""On which files, and with which pods in which order, a kubelet may have started.

Nothing that can be seen tells whether an operator removed the state files while the kubelet was away, and of pods that
were created in the same second nothing tells which is asked about first. Both decide only where files are gone: with
them every pod keeps what it has.

Source: kubelet v1.37.1, pkg/kubelet/kubelet.go (HandlePodAdditions sorts by time of creation, in seconds), and
devicemanager manager.go (readCheckpoint: no devices until plugins register again).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations, islice, product
from typing import Final

from mooring.core.config import KubeletConfig
from mooring.core.errors import KubeletCrashError
from mooring.core.pod import Pod
from mooring.kubelet.admit import AdmitResult, admit
from mooring.kubelet.kubelet import Kubelet
from mooring.kubelet.start import restart_kubelet
from mooring.manifest.steps import Restart

MOST_ASKED: Final = 400
"""Pods that are asked about until an order fits."""
MOST_SUBSETS: Final = 32
"""Sets of pods that may have ended before the kubelet was asked."""


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

    def begun(self, base: Kubelet, leaving: Sequence[str]) -> Iterator[Kubelet]:
        """Yield the node before the restart in the forms that it may have had, the likely first.

        Args:
            base: as it was observed last.
            leaving: uids of the pods that are gone afterwards and were not refused.
        """
        for node in self._with_files(base):
            yield node
            if node.files == base.files:
                continue
            for uids in islice(_subsets(leaving), MOST_SUBSETS):
                ordered = self._ordered(absent(node, uids))
                if ordered is not None:
                    yield ordered

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

    def _ordered(self, base: Kubelet) -> Kubelet | None:
        """Return the node with its pods in an order in which all answers fit; None when there is none, or many."""
        started = restart_kubelet(base, self.restart.kubelet, release=self.restart.release).kubelet
        if started is None:
            return None
        pods = tuple(sorted(base.node.active.values(), key=self._second))
        found = next((one for one in islice(self._orders(started, pods), MOST_ASKED) if one is not None), None)
        if found is None:
            return None
        return replace(base, node=replace(base.node, active={pod.uid: pod for pod in found}))

    def _orders(self, kubelet: Kubelet, left: tuple[Pod, ...]) -> Iterator[tuple[Pod, ...] | None]:
        """Yield the orders in which all answers fit, and None for every pod that was asked about."""
        if not left:
            yield ()
            return
        for pod in [one for one in left if self._second(one) == self._second(left[0])]:
            yield None
            try:
                then, answer = admit(kubelet, pod, running=True)
            except KubeletCrashError:
                continue
            if self.fits(answer, then):
                for rest in self._orders(then, tuple(one for one in left if one is not pod)):
                    yield None if rest is None else (pod, *rest)

    def _second(self, pod: Pod) -> str:
        return self.created.get(pod.uid, "")


def _subsets(uids: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield no pod, all, and then some of them: the fewer are missing from all, the earlier."""
    yield ()
    yield from chain.from_iterable(combinations(uids, count) for count in range(len(uids), 0, -1))


def absent(kubelet: Kubelet, uids: Iterable[str]) -> Kubelet:
    """Return the kubelet without pods about which it is not asked when it starts: its files have what they held."""
    node = kubelet.node
    for uid in uids:
        node = node.withdraw(uid)
    return replace(kubelet, node=node)
