"""A node that is played: the engine decides about the pods that are bound to it, and the product publishes it.

Nothing here decides. What a kubelet does around its managers is done as it does it: pods are admitted in the order in
which the API server shows them as bound, managers first, then the node resources check; a refused pod fails with the
kubelet's reason and message, and what it had been given is given back when the managers are asked the next time.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from operator import or_

from mooring.engine.core.bits import CPUMask
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import Rejection
from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.core.pod import Pod
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.node.resources import check_fit
from mooring.published.observation import EngineObserver, Observation

CRASH = "KubeletCrash"
"""Reason of a pod at which the kubelet would crash or never answer; the kubelet has no word for it."""


class PlayedNode:
    """One node; admits in one thread, is looked at by another."""

    def __init__(self, name: str, kubelet: Kubelet, clock: Callable[[], float], delay: Callable[[], float]) -> None:
        """Begin without pods.

        Args:
            name: of the node.
            kubelet: empty.
            clock: seconds that only go forward.
            delay: draws the seconds after which a change is seen by the publisher.
        """
        self.name, self.kubelet = name, kubelet
        self._clock, self._delay = clock, delay
        self._observer = EngineObserver(name)
        self._lock = threading.Lock()
        self._later: deque[tuple[float, Kubelet]] = deque([(0.0, kubelet)])
        self._seen: tuple[Kubelet, Observation] | None = None

    def admit(self, pod: Pod) -> Rejection | None:
        """Let the node decide about a pod that is bound to it; the containers of an admitted one start."""
        try:
            kubelet, decision = self.kubelet.decide(pod)
        except KubeletCrashError as error:
            return Rejection(CRASH, str(error))
        refused = decision.rejection
        if decision.admitted:
            others = [other for uid, other in kubelet.node.active.items() if uid != pod.uid]
            settings = kubelet.settings
            refused = check_fit(pod, others, settings.reservation, settings.config.max_pods)
            if refused is None:
                self._change(kubelet.start_containers(pod.uid))
                return None
            kubelet = replace(kubelet, node=kubelet.node.withdraw(pod.uid, refused))
        self._change(kubelet)
        return refused or Rejection(CRASH, "the kubelet would never answer")

    def remove(self, uid: str) -> None:
        """Let a pod end."""
        if uid in self.kubelet.node.active:
            kubelet, _ = self.kubelet.remove(uid)
            self._change(kubelet)

    def observe(self) -> Observation:
        """Be a source for a publisher: return what it may know by now."""
        with self._lock:
            while len(self._later) > 1 and self._later[1][0] <= self._clock():
                self._later.popleft()
            kubelet = self._later[0][1]
        if self._seen is None or self._seen[0] is not kubelet:
            self._seen = kubelet, self._observer.observe(kubelet)
        return self._seen[1]

    @property
    def is_told(self) -> bool:
        """Whether the publisher may know everything."""
        with self._lock:
            return len(self._later) == 1 or self._later[-1][0] <= self._clock()

    def contradiction(self) -> str:
        """Return what is wrong with who has which CPUs: two pods with one, or a pod with a CPU of the shared pool.

        Where cores have different numbers of CPUs the kubelet does that itself (MOOR-312), and nothing is wrong.
        """
        topology = self.kubelet.settings.topology
        if topology is None or len({cpus.bit_count() for cpus in topology.cores.values()}) > 1:
            return ""
        given = 0
        for uid, containers in self.kubelet.node.cpu.assignments.items():
            own = reduce(or_, containers.values(), 0)
            if own & (given | self.kubelet.node.cpu.default):
                return f"{self.name}: {CPUSet(CPUMask(own))} of {uid} belong to others too"
            given |= own
        return ""

    def _change(self, kubelet: Kubelet) -> None:
        with self._lock:
            self.kubelet = kubelet
            # What is seen of a later change is no older.
            due = max(self._clock() + self._delay(), self._later[-1][0])
            self._later.append((due, kubelet))
